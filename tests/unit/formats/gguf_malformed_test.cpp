// Malformed files: each a clear error, and no allocation beyond what the file's size allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_vocabulary.h"
#include "gguf_bytes.h"
#include "tests/unit/counted_new.h"

namespace inferd::formats {
namespace {

using testing::HasSubstr;

// What parsing may take: the copy of the bytes that a file in memory needs, the sum that
// gguf_table.h states, and the error's sentences.
constexpr size_t allowed(size_t file_bytes) { return 15 * file_bytes + 16384; }

// Parses, and checks the peak of what was allocated meanwhile. The error's sentence, "" if none.
std::string parse(const std::vector<uint8_t>& bytes) {
  const size_t before = counted_new::live_bytes;
  counted_new::peak_bytes = before;
  const auto file = GgufFile::parse(bytes);
  EXPECT_LE(counted_new::peak_bytes - before, allowed(bytes.size()));
  return file.ok() ? "" : file.error().message();
}

std::string parse(const GgufBytes& bytes) { return parse(bytes.bytes()); }

TEST(GgufMalformed, EveryTruncationIsAnErrorThatSaysSo) {
  const std::vector<uint8_t> whole = small_file();
  ASSERT_EQ(parse(whole), "");
  // The last tensor ends 20 bytes before the end of the padded file.
  const auto file = GgufFile::parse(whole);
  const size_t needed = file->find_tensor("row")->offset + 12;
  for (size_t size = 0; size < needed; ++size) {
    const std::string message =
        parse(std::vector<uint8_t>(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)));
    ASSERT_NE(message, "") << size;
    ASSERT_THAT(message, testing::AnyOf(HasSubstr("file ends at byte " + std::to_string(size)),
                                        HasSubstr("hold fewer"), HasSubstr("header of 24"),
                                        HasSubstr("the file has " + std::to_string(size))));
  }
  EXPECT_EQ(
      parse(std::vector<uint8_t>(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(needed))),
      "");
}

TEST(GgufMalformed, EveryByteChangedIsAnErrorOrAFileThatHolds) {
  const std::vector<uint8_t> whole = small_file();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const uint8_t value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
      std::vector<uint8_t> changed = whole;
      changed[at] = value;
      parse(changed);
      const auto file = GgufFile::parse(changed);
      if (!file) continue;
      for (const TensorInfo& tensor : file->tensors()) {
        ASSERT_LE(tensor.offset + tensor.bytes, changed.size());
      }
    }
  }
}

TEST(GgufMalformed, CountsAndLengthsNearTheirLimitsFailBeforeAnythingIsReserved) {
  for (const uint64_t huge :
       {uint64_t{1} << 32, uint64_t{1} << 60, uint64_t{1} << 61, uint64_t{1} << 63, ~uint64_t{0},
        ~uint64_t{0} - 23, ~uint64_t{0} / 33, ~uint64_t{0} / 14}) {
    EXPECT_THAT(parse(GgufBytes().header(0, huge).pad(1, 64)), HasSubstr("keys"));
    EXPECT_THAT(parse(GgufBytes().header(huge, 0).pad(1, 64)), HasSubstr("tensors"));
    EXPECT_NE(parse(GgufBytes().header(huge, huge).pad(1, 64)), "");
    EXPECT_THAT(parse(GgufBytes().header(0, 1).number(huge, 8).pad(1, 64)), HasSubstr("key 0"));
    EXPECT_THAT(
        parse(GgufBytes().header(0, 1).key("k", ValueType::kString).number(huge, 8).pad(1, 64)),
        HasSubstr("'k'"));
    for (uint32_t type = 0; type <= 12; ++type) {
      EXPECT_NE(parse(GgufBytes().header(0, 1).array("k", type, huge).pad(1, 64)), "") << type;
    }
    EXPECT_THAT(parse(GgufBytes().header(1, 0).number(huge, 8).pad(1, 64)), HasSubstr("tensor 0"));
    EXPECT_THAT(parse(GgufBytes().header(1, 0).tensor("t", {huge}, 0, 0).pad(32, 64)),
                HasSubstr("'t'"));
    EXPECT_NE(
        parse(GgufBytes().header(1, 0).tensor("t", {huge, huge, huge, huge}, 0, 0).pad(32, 64)),
        "");
    EXPECT_NE(parse(GgufBytes().header(1, 0).tensor("t", {1}, 0, huge).pad(32, 64)), "");
    EXPECT_NE(parse(GgufBytes().header(1, 0).tensor("t", {1}, 0, huge / 32 * 32).pad(32, 64)), "");
  }
}

TEST(GgufMalformed, HeadersOfOtherKindsAreNamed) {
  EXPECT_THAT(parse(GgufBytes()), HasSubstr("0 bytes"));
  EXPECT_THAT(parse(GgufBytes().raw("GGML").pad(1, 60)), HasSubstr("not a GGUF"));
  EXPECT_THAT(parse(GgufBytes().header(0, 0, 1).pad(1, 60)), HasSubstr("version 1"));
  EXPECT_THAT(parse(GgufBytes().header(0, 0, 4).pad(1, 60)), HasSubstr("version 4"));
  EXPECT_THAT(parse(GgufBytes().header(0, 0, 0x03000000).pad(1, 60)), HasSubstr("big-endian"));
}

TEST(GgufMalformed, KeysThatBreakTheRulesAreNamed) {
  const auto one = [] { return GgufBytes().header(0, 1); };
  EXPECT_THAT(parse(one().text("").number(0, 4).number(1, 8).pad(1, 20)), HasSubstr("empty name"));
  EXPECT_THAT(parse(one().text("k").number(13, 4).pad(1, 20)), HasSubstr("value type 13"));
  EXPECT_THAT(parse(one().array("k", 99, 1).pad(1, 20)), HasSubstr("value type 99"));
  EXPECT_THAT(parse(one().array("k", 9, 1).pad(1, 20)), HasSubstr("array of arrays"));
  EXPECT_THAT(parse(one().key("k", ValueType::kBool).number(2, 1).pad(1, 20)), HasSubstr("0 or 1"));
  EXPECT_THAT(parse(one().array("k", 7, 3).number(0x020100, 3).pad(1, 20)), HasSubstr("0 or 1"));
  EXPECT_THAT(parse(GgufBytes()
                        .header(0, 2)
                        .key("k", ValueType::kUint8)
                        .number(1, 1)
                        .key("k", ValueType::kInt8)
                        .number(1, 1)),
              HasSubstr("second time"));
  for (const uint64_t alignment : {0, 3, 48}) {
    EXPECT_THAT(parse(one().key("general.alignment", ValueType::kUint32).number(alignment, 4)),
                HasSubstr("power of two"));
  }
  EXPECT_THAT(parse(one().key("general.alignment", ValueType::kUint64).number(32, 8)),
              HasSubstr("uint32"));
  EXPECT_THAT(parse(one().number(65536, 8).pad(1, 70000)), HasSubstr("65535"));
}

TEST(GgufMalformed, TensorsThatBreakTheRulesAreNamed) {
  const auto one = [] { return GgufBytes().header(1, 0); };
  EXPECT_THAT(parse(one().tensor("", {1}, 0, 0).pad(32, 64)), HasSubstr("empty name"));
  EXPECT_THAT(parse(one().tensor("t", {}, 0, 0).pad(32, 64)), HasSubstr("0 dimensions"));
  EXPECT_THAT(parse(one().tensor("t", {1, 1, 1, 1, 1}, 0, 0).pad(32, 64)),
              HasSubstr("5 dimensions"));
  EXPECT_THAT(parse(one().tensor("t", {0}, 0, 0).pad(32, 64)), HasSubstr("size 0"));
  EXPECT_THAT(parse(one().tensor("t", {4, 0}, 0, 0).pad(32, 64)), HasSubstr("size 0"));
  EXPECT_THAT(parse(one().tensor("t", {33}, 8, 0).pad(32, 64)), HasSubstr("multiple of 32"));
  EXPECT_THAT(parse(one().tensor("t", {128}, 12, 0).pad(32, 256)), HasSubstr("multiple of 256"));
  EXPECT_THAT(parse(one().tensor("t", {4}, 0, 16).pad(32, 64)), HasSubstr("alignment"));
  EXPECT_THAT(parse(one().tensor("t", {17}, 0, 0).pad(32, 64)), HasSubstr("file ends"));
  EXPECT_THAT(parse(one().tensor("t", {1}, 0, 64).pad(32, 64)), HasSubstr("file ends"));
  const auto two = [](std::string_view second, uint64_t offset) {
    return GgufBytes()
        .header(2, 0)
        .tensor("t", {16}, 0, 0)
        .tensor(second, {4}, 0, offset)
        .pad(32, 128);
  };
  EXPECT_EQ(parse(two("u", 64)), "");
  EXPECT_THAT(parse(two("u", 32)), HasSubstr("overlaps"));
  EXPECT_THAT(parse(two("u", 0)), HasSubstr("overlaps"));
  EXPECT_THAT(parse(two("t", 64)), HasSubstr("twice"));
}

TEST(GgufMalformed, ManyTinyEntriesStayWithinTheStatedSum) {
  // The worst that a file can do: as many of the smallest keys and tensors as fit.
  GgufBytes keys;
  keys.header(0, 30000);
  for (uint32_t i = 0; i < 30000; ++i) {
    keys.text(std::to_string(i)).number(0, 4).number(1, 1);
  }
  EXPECT_EQ(parse(keys), "");
  GgufBytes tensors;
  tensors.header(10000, 0);
  for (uint32_t i = 0; i < 10000; ++i) tensors.tensor(std::to_string(i), {1}, 999, 0);
  EXPECT_EQ(parse(tensors), "");
}

}  // namespace
}  // namespace inferd::formats
