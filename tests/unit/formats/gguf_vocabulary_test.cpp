#include "formats/gguf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "formats/gguf_writer.h"

namespace inferd::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Vocabulary> read(const std::function<void(GgufWriter&)>& add) {
  GgufWriter writer;
  add(writer);
  auto bytes = writer.bytes([](size_t, uint64_t, std::span<uint8_t>) { return Result<void>(); });
  auto file = GgufFile::parse(bytes.value());
  EXPECT_TRUE(file.ok());
  return read_vocabulary(*file);
}

void add_tokens(GgufWriter& writer, const std::string& model,
                const std::vector<std::string>& tokens) {
  writer.add_string("tokenizer.ggml.model", model);
  writer.add_string_array("tokenizer.ggml.tokens", tokens);
  if (model == "gpt2") {
    const std::vector<std::string> merges{"a b"};
    writer.add_string_array("tokenizer.ggml.merges", merges);
  }
}

const std::vector<std::string> kTokens{"<unk>", "<s>", "</s>", "a", "b", "ab", "<|im_end|>"};

TEST(ReadVocabulary, FillsInTheDefaultsOfEachTokenizerModel) {
  const auto llama = read([](GgufWriter& w) { add_tokens(w, "llama", kTokens); });
  ASSERT_TRUE(llama.ok()) << llama.error().message();
  EXPECT_EQ(llama->bos, 1);
  EXPECT_EQ(llama->eos, 2);
  EXPECT_EQ(llama->unknown, 0);
  EXPECT_TRUE(llama->add_bos);
  EXPECT_TRUE(llama->add_space_prefix);
  EXPECT_EQ(llama->types.size(), kTokens.size());

  const auto gpt2 = read([](GgufWriter& w) { add_tokens(w, "gpt2", kTokens); });
  ASSERT_TRUE(gpt2.ok()) << gpt2.error().message();
  EXPECT_EQ(gpt2->bos, kNoToken);  // the default, 11, lies beyond this vocabulary
  EXPECT_FALSE(gpt2->add_bos);
  EXPECT_FALSE(gpt2->add_space_prefix);
  EXPECT_THAT(gpt2->merges, ElementsAre("a b"));
}

TEST(ReadVocabulary, TokensKnownByTheirTextEndAGeneration) {
  const auto v = read([](GgufWriter& w) { add_tokens(w, "llama", kTokens); });
  ASSERT_TRUE(v.ok());
  EXPECT_EQ(v->eot, 6);
  EXPECT_EQ(v->types[6], TokenType::kControl);
  EXPECT_THAT(v->end_of_generation, ElementsAre(2, 6));
}

TEST(ReadVocabulary, ReadsTemplatesByName) {
  const auto v = read([](GgufWriter& w) {
    add_tokens(w, "llama", kTokens);
    w.add_string("tokenizer.chat_template", "{{ x }}");
    w.add_string("tokenizer.chat_template.tool_use", "{{ y }}");
  });
  ASSERT_TRUE(v.ok());
  EXPECT_EQ(v->chat_template, "{{ x }}");
  EXPECT_THAT(v->named_chat_templates, ElementsAre(testing::Pair("tool_use", "{{ y }}")));
}

std::string error_of(const std::function<void(GgufWriter&)>& add) {
  const auto v = read(add);
  return v.ok() ? "" : v.error().message();
}

TEST(ReadVocabulary, ListsThatDoNotFitTheTokensAreErrorsThatNameTheKey) {
  const std::vector<int32_t> types{1, 2}, unknown_type{1, 1, 1, 1, 1, 1, 7};
  const std::vector<float> scores(8);
  const std::vector<std::string> merges{"ab"};
  EXPECT_THAT(error_of([&](GgufWriter& w) {
                add_tokens(w, "llama", kTokens);
                w.add_array<int32_t>("tokenizer.ggml.token_type", types);
              }),
              HasSubstr("token_type"));
  EXPECT_THAT(error_of([&](GgufWriter& w) {
                add_tokens(w, "llama", kTokens);
                w.add_array<int32_t>("tokenizer.ggml.token_type", unknown_type);
              }),
              HasSubstr("type 7"));
  EXPECT_THAT(error_of([&](GgufWriter& w) {
                add_tokens(w, "llama", kTokens);
                w.add_array<float>("tokenizer.ggml.scores", scores);
              }),
              HasSubstr("8 scores for 7 tokens"));
  EXPECT_THAT(error_of([&](GgufWriter& w) {
                add_tokens(w, "llama", kTokens);
                w.add_string_array("tokenizer.ggml.merges", merges);
              }),
              HasSubstr("merges"));
  EXPECT_THAT(error_of([&](GgufWriter& w) { add_tokens(w, "llama", {}); }), HasSubstr("empty"));
  EXPECT_THAT(error_of([](GgufWriter&) {}), HasSubstr("tokenizer.ggml.model"));
}

TEST(ReadVocabulary, IdsBeyondTheVocabularyAreErrorsWhereTheyMatterAndNoneElsewhere) {
  EXPECT_THAT(error_of([](GgufWriter& w) {
                add_tokens(w, "llama", kTokens);
                w.add<uint32_t>("tokenizer.ggml.bos_token_id", 7);
              }),
              HasSubstr("bos_token_id"));
  const auto v = read([](GgufWriter& w) {
    add_tokens(w, "llama", kTokens);
    w.add<uint32_t>("tokenizer.ggml.bos_token_id", 0xFFFFFFFF);
    w.add<uint32_t>("tokenizer.ggml.padding_token_id", 7);
  });
  ASSERT_TRUE(v.ok()) << v.error().message();
  EXPECT_EQ(v->bos, kNoToken);
  EXPECT_EQ(v->padding, kNoToken);
}

}  // namespace
}  // namespace inferd::formats
