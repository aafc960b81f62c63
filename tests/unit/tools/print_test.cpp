#include "tools/inferctl/print.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

std::string printed(const ordered_json& value) {
  testing::internal::CaptureStdout();
  print_json(value);
  return testing::internal::GetCapturedStdout();
}

// Prints many values of random bits in one array, reads them back, and compares bits.
template <typename Float, typename Bits>
void expect_same_bits_read_back(uint64_t seed) {
  Prng prng(seed);
  std::vector<Bits> bits;
  ordered_json values = ordered_json::array();
  while (bits.size() < 20000) {
    const auto random = static_cast<Bits>(prng.next());
    Float value;
    std::memcpy(&value, &random, sizeof value);
    if (!std::isfinite(value)) continue;
    bits.push_back(random);
    values.push_back(value);
  }
  const std::string text = printed(values);
  const char* at = text.c_str();
  for (const Bits expected : bits) {
    char* end = nullptr;
    const auto back = static_cast<Float>(std::strtod(at + 1, &end));
    Bits found;
    std::memcpy(&found, &back, sizeof found);
    ASSERT_EQ(expected, found) << std::string(at + 1, static_cast<size_t>(end - at - 1));
    at = end;
  }
}

TEST(Print, EveryFloatReadsBackToTheSameBits) {
  expect_same_bits_read_back<float, uint32_t>(7);
  expect_same_bits_read_back<double, uint64_t>(8);
}

TEST(Print, TextThatIsNotUtf8StillPrints) {
  EXPECT_EQ(printed({{"text", "a\xFFz"}}), "{\"text\":\"a\uFFFDz\"}\n");
}

TEST(Print, TableColumnsAreAsWideAsTheirWidestCell) {
  Table table({{"NAME", false}, {"COUNT", true}});
  table.add_row({"é", "5"});
  table.add_row({"longer", "1234567"});
  EXPECT_EQ(table.text(),
            "NAME      COUNT\n"
            "é             5\n"
            "longer  1234567\n");
}

TEST(Print, RowsShowTheNamedFieldsThatOccur) {
  testing::internal::CaptureStdout();
  print_rows({{{"zeta", 1}, {"name", "a"}, {"other", 2}}, {{"name", "b"}}},
             {"name", "gone", "zeta"}, "nothing");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "NAME  ZETA\na        1\nb        -\n");
  testing::internal::CaptureStdout();
  print_rows(ordered_json::array(), {"name"}, "nothing");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "nothing\n");
}

TEST(Print, ATextCannotMoveTheCursor) {
  EXPECT_EQ(for_terminal("a\x1b[2Jb\r\x07"), "a\uFFFD[2Jb\uFFFD\uFFFD");
  EXPECT_EQ(for_terminal("\xC2\x9B"
                         "1m"),
            "\uFFFD1m");
  EXPECT_EQ(for_terminal("tab\tline\nµ é 漢\xC2\xA0"), "tab\tline\nµ é 漢\xC2\xA0");
}

TEST(Print, DurationsShowTheirTwoLargestParts) {
  EXPECT_EQ(format_duration(0.9), "0 s");
  EXPECT_EQ(format_duration(59), "59 s");
  EXPECT_EQ(format_duration(310), "5 min 10 s");
  EXPECT_EQ(format_duration(7380), "2 h 3 min");
  EXPECT_EQ(format_duration(90000), "1 d 1 h");
}

TEST(Print, AMissingFileIsNamed) {
  EXPECT_THAT(read_file("/nowhere/at/all").error().message(), HasSubstr("/nowhere/at/all"));
  EXPECT_EQ(read_file("/nowhere/at/all").error().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace inferd::inferctl
