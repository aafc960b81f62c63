// inferd-bench perplexity: how well a model predicts a text, and its logits for comparison with a
// reference.
//
// The figures compare with llama-perplexity's: the text is cut into windows of `ctx` tokens that
// know nothing of each other; where the model begins texts with BOS, each window's first token is
// replaced by it; of each window the positions ctx/2 .. ctx-2 are scored, each by the probability
// that it gives to the token after it; what does not fill a window is left out.
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/command.h"
#include "bench/engine_driver.h"
#include "bench/npy_writer.h"
#include "bench/options.h"
#include "formats/gguf.h"
#include "formats/gguf_vocabulary.h"
#include "text/text_tables.h"
#include "text/tokenizer.h"

namespace inferd::bench {
namespace {

constexpr uint32_t kScoredRowsMax = 64;  // rows of logits that a step gives

struct PerplexityOptions {
  std::string model;
  std::string text;
  std::string ids;
  std::string logits;
  std::string isa = "auto";
  uint32_t ctx = 512;
  uint32_t threads = 0;
  uint32_t limit_windows = 0;
  bool json = false;
};

struct Prompt {
  std::vector<TokenId> tokens;
  TokenId bos = kNoToken;  // what each window begins with, if the model wants it
};

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error(ErrorCode::kNotFound, "cannot read " + path);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return Error(ErrorCode::kIo, "cannot read " + path);
  return bytes;
}

// Token ids as numbers with anything but digits between them.
Result<std::vector<TokenId>> parse_ids(const std::string& path, const std::string& text) {
  std::vector<TokenId> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    while (at != end && std::isdigit(static_cast<unsigned char>(*at)) == 0) ++at;
    if (at == end) return ids;
    TokenId id = 0;
    const auto [rest, error] = std::from_chars(at, end, id);
    if (error != std::errc()) {
      return Error(ErrorCode::kInvalidArgument, path + " holds a number that is no token id");
    }
    ids.push_back(id);
    at = rest;
  }
}

Result<Prompt> read_prompt(const PerplexityOptions& options) {
  INFERD_ASSIGN(const formats::GgufFile file, formats::GgufFile::open(options.model));
  INFERD_ASSIGN(const Vocabulary vocabulary, formats::read_vocabulary(file));
  INFERD_ASSIGN(const std::vector<uint8_t> block, build_text_tables(vocabulary));
  INFERD_ASSIGN(const TextTables tables, TextTables::open(block));
  Prompt prompt;
  if (tables.add_bos()) prompt.bos = tables.bos();
  INFERD_ASSIGN(std::string text,
                read_file(options.ids.empty() ? options.text : options.ids));
  if (text.ends_with('\n')) text.pop_back();
  if (!options.ids.empty()) {
    INFERD_ASSIGN(prompt.tokens, parse_ids(options.ids, text));
  } else {
    INFERD_ASSIGN(const Tokenizer tokenizer, Tokenizer::create(tables));
    EncodeOptions encode;
    encode.add_special = true;
    INFERD_ASSIGN(prompt.tokens, tokenizer.encode(text, encode));
    if (tables.add_eos() && !prompt.tokens.empty()) prompt.tokens.pop_back();
  }
  for (TokenId token : prompt.tokens) {
    if (!tables.contains(token)) {
      return Error(ErrorCode::kInvalidArgument,
                   "token id " + std::to_string(token) + " is outside the model's vocabulary");
    }
  }
  return prompt;
}

// -log of the probability that the logits give to `token`.
double negative_log_likelihood(std::span<const float> logits, TokenId token) {
  const double maximum = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - maximum);
  return maximum + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(token)]);
}

Result<void> check_options(const PerplexityOptions& options) {
  if (options.model.empty() || options.text.empty() == options.ids.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "say which model and which text: --model FILE.gguf and --text FILE or --ids FILE");
  }
  if (options.ctx < 4) return Error(ErrorCode::kInvalidArgument, "--ctx must be at least 4");
  return {};
}

struct Score {
  double nll_sum = 0;
  uint64_t positions = 0;
};

// Scores one window and writes its logits to `npy`, if there is one.
Result<Score> score_window(EngineDriver& driver, std::span<const TokenId> window, NpyWriter* npy) {
  const size_t first = window.size() / 2;
  const size_t scored = window.size() - 1 - first;
  const size_t vocabulary = driver.info().vocabulary;
  Sequence& sequence = driver.sequences()[0];
  EngineDriver::set_length(sequence, 0);
  Score score;
  std::optional<Error> failed;
  driver.append(sequence, window.first(window.size() - 1), static_cast<uint32_t>(scored),
                [&](std::span<const float> logits) {
                  for (size_t row = 0; row < logits.size() / vocabulary; ++row) {
                    const TokenId next = window[first + score.positions + 1];
                    score.nll_sum +=
                        negative_log_likelihood(logits.subspan(row * vocabulary, vocabulary), next);
                    ++score.positions;
                  }
                  if (npy == nullptr || failed) return;
                  const Result<void> written = npy->append(logits);
                  if (!written) failed = written.error();
                });
  if (failed) return *failed;
  INFERD_CHECK(score.positions == scored);
  return score;
}

Result<Score> score_text(const PerplexityOptions& options) {
  INFERD_ASSIGN(Prompt prompt, read_prompt(options));
  size_t windows = prompt.tokens.size() / options.ctx;
  if (windows == 0) {
    return Error(ErrorCode::kInvalidArgument,
                 "the text has " + std::to_string(prompt.tokens.size()) +
                     " tokens, less than one window of " + std::to_string(options.ctx));
  }
  if (options.limit_windows > 0) windows = std::min<size_t>(windows, options.limit_windows);
  DriverOptions driver_options;
  driver_options.model = options.model;
  driver_options.threads = options.threads;
  driver_options.isa = options.isa;
  driver_options.sequence_tokens = options.ctx;
  driver_options.step_logits = kScoredRowsMax;
  INFERD_ASSIGN(const std::unique_ptr<EngineDriver> driver, EngineDriver::create(driver_options));
  const size_t scored = options.ctx - 1 - options.ctx / 2;
  std::optional<NpyWriter> npy;
  if (!options.logits.empty()) {
    INFERD_ASSIGN(NpyWriter writer,
                  NpyWriter::create(options.logits, windows * scored, driver->info().vocabulary));
    npy.emplace(std::move(writer));
  }
  Score total;
  for (size_t i = 0; i < windows; ++i) {
    const std::span<TokenId> window =
        std::span(prompt.tokens).subspan(i * options.ctx, options.ctx);
    if (prompt.bos != kNoToken) window[0] = prompt.bos;
    INFERD_ASSIGN(const Score score, score_window(*driver, window, npy ? &*npy : nullptr));
    total.nll_sum += score.nll_sum;
    total.positions += score.positions;
    std::fprintf(stderr, "window %zu of %zu: %.4f\n", i + 1, windows,
                 std::exp(total.nll_sum / static_cast<double>(total.positions)));
  }
  if (npy) INFERD_TRY(npy->finish());
  return total;
}

}  // namespace

Result<int> run_perplexity_command(Arguments arguments) {
  PerplexityOptions values;
  Options options("perplexity", "perplexity of a text, and its logits as a NumPy file");
  options.add("model", &values.model, "GGUF file");
  options.add("text", &values.text, "text file");
  options.add("ids", &values.ids, "instead of a text: a file of token ids");
  options.add("ctx", &values.ctx, "tokens of a window; its second half is scored (default 512)");
  options.add("logits", &values.logits, "write the scored logits here, NumPy f32 [positions, ids]");
  options.add("limit-windows", &values.limit_windows, "stop after so many windows (default: all)");
  options.add("threads", &values.threads, "worker threads (default: all processors)");
  options.add("isa", &values.isa, "auto, portable, avx2, avx512, avx512vnni or avx512bf16");
  options.add("json", &values.json, "print JSON");
  INFERD_ASSIGN(const bool go, options.parse(arguments));
  if (!go) return 0;
  INFERD_TRY(check_options(values));
  INFERD_ASSIGN(const Score score, score_text(values));
  const double perplexity = std::exp(score.nll_sum / static_cast<double>(score.positions));
  if (values.json) {
    const nlohmann::ordered_json out = {{"perplexity", perplexity}, {"positions", score.positions}};
    std::puts(out.dump().c_str());
  } else {
    std::printf("perplexity %.4f over %llu positions\n", perplexity,
                static_cast<unsigned long long>(score.positions));
  }
  return 0;
}

}  // namespace inferd::bench
