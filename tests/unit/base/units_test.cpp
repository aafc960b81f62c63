#include "base/units.h"

#include <gtest/gtest.h>

namespace inferd {
namespace {

TEST(Units, ParsesWhatSystemdAcceptsAndDecimalUnits) {
  EXPECT_EQ(parse_bytes("123").value().value, 123u);
  EXPECT_EQ(parse_bytes("1.5 GiB").value().value, 3ull << 29);
  EXPECT_EQ(parse_bytes("2G").value().value, 2ull << 30);
  EXPECT_EQ(parse_bytes("3kB").value().value, 3000u);
}

TEST(Units, RefusesWhatIsNoSizeWithTheAcceptedForms) {
  for (const char* text : {"", "x", "-1", "1 parsec", "1e300G", "nan"}) {
    const auto result = parse_bytes(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_NE(result.error().message().find("GiB"), std::string::npos);
  }
}

TEST(Units, FormatsForPeople) {
  EXPECT_EQ(format_bytes(Bytes(17)), "17 B");
  EXPECT_EQ(format_bytes(Bytes(1536)), "1.5 KiB");
  EXPECT_EQ(format_bytes(Bytes(2ull << 30)), "2 GiB");
}

}  // namespace
}  // namespace inferd
