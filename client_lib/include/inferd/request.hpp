// inferd client library, C++20 interface: prompts, and how to continue them. Part of inferd.hpp.
#ifndef INFERD_REQUEST_HPP
#define INFERD_REQUEST_HPP

#include <inferd/inferd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace inferd::client {

// A prompt: text, chat messages as JSON, or token ids. Owns what it was given.
class Prompt {
 public:
  // flags: INFERD_TOKENIZE_*
  static Prompt text(std::string text, uint32_t flags = INFERD_TOKENIZE_BOS) {
    Prompt prompt;
    prompt.kind_ = Kind::kText;
    prompt.text_ = std::move(text);
    prompt.flags_ = flags;
    return prompt;
  }
  // As inferd_prompt.chat_json.
  static Prompt chat(std::string json) {
    Prompt prompt;
    prompt.kind_ = Kind::kChat;
    prompt.text_ = std::move(json);
    return prompt;
  }
  // Tokens, taken as they are.
  static Prompt ids(std::vector<int32_t> ids) {
    Prompt prompt;
    prompt.kind_ = Kind::kIds;
    prompt.ids_ = std::move(ids);
    return prompt;
  }

  // Borrows from this object.
  inferd_prompt c_prompt() const {
    static const int32_t no_ids = 0;  // an empty array of ids is still given
    inferd_prompt out;
    inferd_prompt_init(&out);
    switch (kind_) {
      case Kind::kText:
        out.text = text_.c_str();
        out.text_bytes = text_.size();
        out.text_flags = flags_;
        break;
      case Kind::kChat:
        out.chat_json = text_.c_str();
        out.chat_json_bytes = text_.size();
        break;
      case Kind::kIds:
        out.ids = ids_.empty() ? &no_ids : ids_.data();
        out.ids_count = ids_.size();
        break;
    }
    return out;
  }

 private:
  enum class Kind { kText, kChat, kIds };
  Prompt() = default;
  Kind kind_ = Kind::kText;
  std::string text_;
  std::vector<int32_t> ids_;
  uint32_t flags_ = 0;
};

// How to sample; the defaults are those of inferd_sampling_init().
struct Sampling {
  float temperature = 0;                      // 0: greedy
  uint32_t top_k = 0;                         // 0: off
  float top_p = 1;                            // 1: off
  float min_p = 0;                            // 0: off
  float repetition_penalty = 1;               // 1: off
  float presence_penalty = 0;                 // 0: off
  float frequency_penalty = 0;                // 0: off
  uint32_t penalty_last_n = 64;               // window of the penalties, in tokens
  uint64_t seed = 0;                          // equal seeds give equal tokens
  uint32_t branch = 0;                        // samples of one prompt: numbered, they draw apart
  std::vector<inferd_logit_bias> logit_bias;  // at most 256
  std::vector<std::string> stop;              // texts that end the answer; at most 16
  uint32_t max_tokens = INFERD_UNLIMITED_TOKENS;  // unlimited: up to the context's end
  bool logprobs = false;                          // report the log probability of each token
  uint32_t top_logprobs = 0;                      // and of so many alternatives, at most 20
  bool ignore_eos = false;                        // go on past the model's end
  inferd_priority priority = INFERD_PRIORITY_INTERACTIVE;  // how urgent it is
  int32_t nice = 0;                                        // within the priority, -20 (first) to 19
  std::chrono::milliseconds deadline{0};                   // to have started by; 0: none
  bool no_store = false;                                   // nothing from and into the prefix cache
};

namespace detail {

// A Sampling as the C interface takes it; borrows from it.
class CSampling {
 public:
  explicit CSampling(const Sampling& s) {
    stops_.reserve(s.stop.size());
    for (const std::string& stop : s.stop) stops_.push_back(stop.c_str());
    inferd_sampling_init(&sampling_);
    sampling_.temperature = s.temperature;
    sampling_.top_k = s.top_k;
    sampling_.top_p = s.top_p;
    sampling_.min_p = s.min_p;
    sampling_.repetition_penalty = s.repetition_penalty;
    sampling_.presence_penalty = s.presence_penalty;
    sampling_.frequency_penalty = s.frequency_penalty;
    sampling_.penalty_last_n = s.penalty_last_n;
    sampling_.seed = s.seed;
    sampling_.branch = s.branch;
    sampling_.logit_bias = s.logit_bias.data();
    sampling_.logit_bias_count = s.logit_bias.size();
    sampling_.stop = stops_.data();
    sampling_.stop_count = stops_.size();
    sampling_.max_tokens = s.max_tokens;
    sampling_.logprobs = s.logprobs ? 1 : 0;
    sampling_.top_logprobs = s.top_logprobs;
    sampling_.ignore_eos = s.ignore_eos ? 1 : 0;
    sampling_.priority = s.priority;
    sampling_.nice = s.nice;
    const auto longest = std::numeric_limits<uint32_t>::max();
    sampling_.deadline_ms =
        static_cast<uint32_t>(std::clamp<int64_t>(s.deadline.count(), 0, longest));
    sampling_.no_store = s.no_store ? 1 : 0;
  }
  CSampling(const CSampling&) = delete;
  CSampling& operator=(const CSampling&) = delete;

  const inferd_sampling* get() const { return &sampling_; }

 private:
  std::vector<const char*> stops_;
  inferd_sampling sampling_;
};

}  // namespace detail

}  // namespace inferd::client
#endif
