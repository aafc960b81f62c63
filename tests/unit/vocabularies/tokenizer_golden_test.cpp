// Ids over real vocabularies equal llama.cpp's: its own pairs of text and ids, and the corpora of
// tests/golden/tokenizer. The vocabularies lie in $INFERD_PEER_MODELS; INFERD_TESTS_OFFLINE=1
// leaves these tests out where there are none.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_vocabulary.h"
#include "tests/unit/peer_models.h"
#include "text/tokenizer.h"

namespace inferd {
namespace {

const std::string kGolden = INFERD_SOURCE_DIR "/tests/golden/tokenizer/";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::string hexadecimal(const std::string& line) {
  std::string text;
  for (size_t i = 0; i + 1 < line.size(); i += 2) {
    text += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
  }
  return text;
}

std::string joined(const std::vector<TokenId>& ids) {
  std::string line;
  for (const TokenId id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
  return line;
}

std::string fnv(const std::string& line) {
  uint32_t value = 0x811c9dc5;
  for (const char c : line) value = (value ^ static_cast<unsigned char>(c)) * 0x01000193;
  char text[9];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

struct Loaded {
  std::vector<uint8_t> block;
  std::unique_ptr<Tokenizer> tokenizer;
};

Result<Loaded> load(const std::string& path) {
  INFERD_ASSIGN(const formats::GgufFile file, formats::GgufFile::open(path));
  INFERD_ASSIGN(const Vocabulary vocabulary, formats::read_vocabulary(file));
  Loaded loaded;
  INFERD_ASSIGN(loaded.block, build_text_tables(vocabulary));
  INFERD_ASSIGN(const TextTables tables, TextTables::open(loaded.block));
  INFERD_ASSIGN(Tokenizer tokenizer, Tokenizer::create(tables));
  loaded.tokenizer = std::make_unique<Tokenizer>(std::move(tokenizer));
  return loaded;
}

// The reference's pairs: texts between lines of "__ggml_vocab_test__", ids a line each.
void check_pairs(const Tokenizer& tokenizer, const std::string& path) {
  const std::string texts = read_file(path + ".inp");
  std::istringstream expected(read_file(path + ".out"));
  const std::string separator = "\n__ggml_vocab_test__\n";
  size_t pairs = 0;
  for (size_t at = 0; at < texts.size(); ++pairs) {
    const size_t end = std::min(texts.find(separator, at), texts.size());
    const std::string text = texts.substr(at, end - at);
    at = end + separator.size();
    std::string line;
    ASSERT_TRUE(std::getline(expected, line));
    std::istringstream numbers(line);
    std::vector<TokenId> ids;
    for (TokenId id = 0; numbers >> id;) ids.push_back(id);
    EXPECT_EQ(joined(tokenizer.encode(text).value()), joined(ids)) << text;
  }
  EXPECT_GT(pairs, 20u);
}

// Well-formed texts and ill-formed ones. The reference refuses to tokenize code points beyond
// U+10FFFF with most vocabularies, where we take each of their bytes for U+FFFD.
void check_corpora(const Tokenizer& tokenizer, const std::vector<std::string>& digests) {
  std::istringstream texts(read_file(kGolden + "corpus.txt") +
                           read_file(kGolden + "ill_formed.txt"));
  size_t at = 0;
  for (std::string line; std::getline(texts, line);) {
    const std::string text = hexadecimal(line);
    for (const bool special : {false, true}) {
      ASSERT_LT(at, digests.size());
      const std::string& expected = digests[at++];
      const auto ids = tokenizer.encode(text, {.parse_special = special, .add_special = true});
      ASSERT_TRUE(ids) << ids.error().message();
      EXPECT_TRUE(expected == "refused" || expected == fnv(joined(*ids)))
          << (special ? "special " : "plain ") << line << "\nhas ids " << joined(*ids);
      if (::testing::Test::HasFailure()) return;  // one text at a time is enough to read
    }
  }
  EXPECT_EQ(at, digests.size());
  EXPECT_GT(at, 1000u);
}

// Whether `names`, words without what all files have in common, has this file.
bool named_in(const std::string& names, const std::string& file) {
  std::istringstream words(names);
  for (std::string word; words >> word;) {
    if (file == "ggml-vocab-" + word + ".gguf") return true;
  }
  return false;
}

TEST(Vocabularies, IdsAreTheReferences) {
  const std::string folder = peer_models_folder();
  if (folder.empty()) {
    if (tests_are_offline()) GTEST_SKIP() << "no vocabularies, and INFERD_TESTS_OFFLINE=1";
    FAIL() << "there are no vocabularies: " << kHowToGetPeerModels;
  }
  std::map<std::string, std::vector<std::string>> golden;
  std::ifstream ids(kGolden + "ids.txt");
  std::string name;
  for (std::string line; std::getline(ids, line);) {
    if (line.starts_with("# ")) {
      name = line.substr(2);
    } else {
      golden[name].push_back(line);
    }
  }
  EXPECT_GE(golden.size(), 16u);
  const char* const some = std::getenv("INFERD_TEST_VOCABULARIES");
  for (const auto& [file, digests] : golden) {
    if (some != nullptr && !named_in(some, file)) continue;
    SCOPED_TRACE(file);
    auto loaded = load(folder + "/" + file);
    ASSERT_TRUE(loaded) << loaded.error().message();
    check_corpora(*loaded->tokenizer, digests);
    const std::string path = folder + "/" + file;
    if (std::filesystem::exists(path + ".inp")) check_pairs(*loaded->tokenizer, path);
  }
}

TEST(Vocabularies, OtherTokenizersAreRefusedByName) {
  const std::string folder = peer_models_folder();
  if (folder.empty()) GTEST_SKIP() << "the test above says why";
  const auto loaded = load(folder + "/ggml-vocab-bert-bge.gguf");
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(loaded.error().message().find("bert"), std::string::npos);
}

}  // namespace
}  // namespace inferd
