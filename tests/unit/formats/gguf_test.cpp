#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "gguf_bytes.h"

namespace inferd::formats {
namespace {

using testing::HasSubstr;

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::vector<uint8_t>& bytes) {
    path_ = testing::TempDir() + "inferd_gguf_" + std::to_string(::getpid()) + ".gguf";
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Gguf, ReadsBackEveryKindOfValue) {
  const auto file = GgufFile::parse(small_file());
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(*file->get_string("general.architecture"), "llama");
  EXPECT_EQ(*file->get_uint("u8"), 200u);
  EXPECT_EQ(*file->get_int("i8"), -5);
  EXPECT_EQ(*file->get_int("u16"), 65535);
  EXPECT_EQ(*file->get_int("i16"), -300);
  EXPECT_EQ(*file->get_uint("u32"), 4000000000u);
  EXPECT_EQ(*file->get_int("i32"), -70000);
  EXPECT_EQ(*file->get_uint("u64"), uint64_t{1} << 63);
  EXPECT_EQ(*file->get_int("i64"), -(int64_t{1} << 40));
  EXPECT_EQ(*file->get_float("f32"), 0.5);
  EXPECT_EQ(*file->get_float("f64"), 0.1);
  EXPECT_TRUE(*file->get_bool("flag"));
  EXPECT_THAT(*file->get_string_array("words"), testing::ElementsAre("one", "", "three"));
  EXPECT_THAT(*file->get_int_array("numbers"), testing::ElementsAre(-1, 2));
  EXPECT_THAT(*file->get_float_array("floats"), testing::ElementsAre(1.5f, -2.5f));
  ASSERT_EQ(file->keys().size(), 15u);
  EXPECT_EQ(file->keys()[12].name, "words");
  EXPECT_EQ(file->keys()[12].count, 3u);
  EXPECT_TRUE(file->keys()[12].is_array);
}

TEST(Gguf, GettersRefuseAbsentKeysAndOtherTypes) {
  const auto file = GgufFile::parse(small_file());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->get_uint("absent").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(file->get_int("u64").error().code(), ErrorCode::kDataCorrupt);
  EXPECT_EQ(file->get_uint("i8").error().code(), ErrorCode::kDataCorrupt);
  EXPECT_EQ(file->get_uint("f32").error().code(), ErrorCode::kDataCorrupt);
  EXPECT_EQ(file->get_uint("words").error().code(), ErrorCode::kDataCorrupt);
  EXPECT_EQ(file->get_float("u8").error().code(), ErrorCode::kDataCorrupt);
  EXPECT_EQ(file->get_bool("u8").error().code(), ErrorCode::kDataCorrupt);
  EXPECT_EQ(file->get_string("flag").error().code(), ErrorCode::kDataCorrupt);
  EXPECT_EQ(file->get_string_array("numbers").error().code(), ErrorCode::kDataCorrupt);
  EXPECT_EQ(file->get_int_array("floats").error().code(), ErrorCode::kDataCorrupt);
  EXPECT_EQ(file->get_float_array("u8").error().code(), ErrorCode::kDataCorrupt);
  EXPECT_THAT(file->get_uint("f32").error().message(), HasSubstr("'f32'"));
}

TEST(Gguf, ReadsTensorsFromTheFileAndRefusesWhatIsBeyondThem) {
  const std::vector<uint8_t> bytes = small_file();
  const TemporaryFile on_disk(bytes);
  const auto file = GgufFile::open(on_disk.path());
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(file->file_bytes(), bytes.size());
  const TensorInfo* matrix = file->find_tensor("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->bytes, 36u);
  EXPECT_EQ(matrix->dims[0], 32u);
  std::vector<uint8_t> out(10);
  ASSERT_TRUE(file->read_tensor(*matrix, 26, out).ok());
  EXPECT_EQ(out[0], 26);
  EXPECT_EQ(out[9], 35);
  EXPECT_EQ(file->read_tensor(*matrix, 27, out).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(file->read_tensor(*matrix, ~uint64_t{0}, out).error().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(file->find_tensor("absent"), nullptr);
}

TEST(Gguf, AFileThatShrinksWhileInUseIsAnErrorOfTheRead) {
  const std::vector<uint8_t> bytes = small_file();
  const TemporaryFile on_disk(bytes);
  const auto file = GgufFile::open(on_disk.path());
  ASSERT_TRUE(file.ok());
  const TensorInfo* row = file->find_tensor("row");
  ASSERT_NE(row, nullptr);
  std::filesystem::resize_file(on_disk.path(), row->offset + 4);
  std::vector<uint8_t> out(12);
  const auto read = file->read_tensor(*row, 0, out);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), ErrorCode::kDataCorrupt);
  EXPECT_THAT(read.error().message(), HasSubstr("'row'"));
}

TEST(Gguf, OpenSaysWhatIsWrongWithThePath) {
  EXPECT_EQ(GgufFile::open("/nonexistent/model.gguf").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(GgufFile::open("/tmp").error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(GgufFile::open("/dev/null").error().code(), ErrorCode::kInvalidArgument);
}

TEST(Gguf, TensorsOfTypesThatCannotBeReadAreListedAndRefusedWhenRead) {
  const GgufBytes bytes =
      GgufBytes().header(2, 0).tensor("odd", {256}, 10, 0).tensor("new", {7}, 999, 32).pad(32, 96);
  const auto file = GgufFile::parse(bytes.bytes());
  ASSERT_TRUE(file.ok()) << file.error().message();
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].bytes, 0u);
  const auto read = file->read_tensor(file->tensors()[0], 0, {});
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(read.error().message(), HasSubstr("Q2_K"));
  EXPECT_THAT(file->read_tensor(file->tensors()[1], 0, {}).error().message(),
              HasSubstr("type 999"));
}

TEST(Gguf, ReadsVersion2AndAlignmentsOtherThan32) {
  GgufBytes bytes;
  bytes.header(1, 1, 2).key("general.alignment", ValueType::kUint32).number(8, 4);
  bytes.tensor("t", {2}, 0, 8).pad(8, 16);
  const auto file = GgufFile::parse(bytes.bytes());
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(file->tensors()[0].offset, bytes.size() - 8);
}

TEST(Gguf, AFileGrowsInTheTableWithoutLosingItsNames) {
  // The front part is read in pieces from 64 KiB on: names must follow when it moves.
  GgufWriter writer;
  for (int i = 0; i < 500; ++i) {
    writer.add_string("key." + std::to_string(i),
                      std::string(1000, static_cast<char>('a' + i % 26)));
  }
  const std::vector<uint64_t> dims{1};
  for (int i = 0; i < 3000; ++i) {
    writer.add_tensor("tensor." + std::to_string(i), TensorType::kF32, dims);
  }
  const auto bytes =
      writer.bytes([](size_t, uint64_t, std::span<uint8_t>) { return Result<void>(); });
  ASSERT_TRUE(bytes.ok());
  const auto file = GgufFile::parse(*bytes);
  ASSERT_TRUE(file.ok()) << file.error().message();
  for (int i = 0; i < 500; ++i) {
    const std::string key = "key." + std::to_string(i);
    EXPECT_EQ(file->keys()[static_cast<size_t>(i)].name, key);
    ASSERT_TRUE(file->get_string(key).ok());
    EXPECT_EQ(file->get_string(key)->front(), 'a' + i % 26);
  }
  EXPECT_NE(file->find_tensor("tensor.2999"), nullptr);
}

TEST(GgufWriter, RefusesNamesGivenTwiceAndRowsThatAreNoWholeBlocks) {
  const auto nothing = [](size_t, uint64_t, std::span<uint8_t>) { return Result<void>(); };
  GgufWriter twice;
  twice.add<bool>("a", true);
  twice.add<bool>("a", false);
  EXPECT_EQ(twice.bytes(nothing).error().code(), ErrorCode::kInvalidArgument);
  GgufWriter rows;
  const std::vector<uint64_t> dims{33};
  rows.add_tensor("t", TensorType::kQ8_0, dims);
  EXPECT_EQ(rows.bytes(nothing).error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace inferd::formats
