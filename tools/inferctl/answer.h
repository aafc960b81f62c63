// One answer from the daemon: sampling options from the command line, the wait for its events,
// Ctrl-C. Owner: inferctl; shared by `run` and `chat`. One thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/inferctl/arguments.h"
#include "tools/inferctl/connection.h"

namespace inferd::inferctl {

// The options that `run` and `chat` have in common.
inline constexpr OptionSpec kSamplingOptions[] = {
    {"model", "NAME",
     "which of the daemon's models (default: its first; inferctl list shows them)"},
    {"temperature", "T", "0 takes the likeliest token each time (default 0)"},
    {"top-k", "N", "draw among the N likeliest tokens (0: all)"},
    {"top-p", "P", "draw among the likeliest tokens that together reach probability P (1: all)"},
    {"min-p", "P", "draw among tokens at least P times as likely as the likeliest (0: all)"},
    {"repetition-penalty", "X", "make tokens already seen less likely by this factor (1: off)"},
    {"presence-penalty", "X", "subtract X from tokens already seen (0: off)"},
    {"frequency-penalty", "X", "subtract X for every time a token was seen (0: off)"},
    {"penalty-last-n", "N", "how far back the penalties look, in tokens (default 64)"},
    {"logit-bias", "ID=X", "add X to a token's logit; -inf forbids the token", true},
    {"seed", "N", "equal seeds give equal answers (default 0)"},
    {"max-tokens", "N", "end the answer after N tokens (default: at the context's end)"},
    {"stop", "TEXT", "end the answer before this text", true},
    {"priority", "CLASS",
     "interactive (default), batch, or idle: who is served first, and who gets what is left"},
    {"nice", "N", "within the class, from -20 (first; for root) to 19 (default 0)"},
    {"deadline", "MS", "give up if the answer has not been begun by then (default: wait)"},
    {"cache-domain", "NAME",
     "share computed prompts with all users of this domain (inferd.toml(5); default: with nobody)"},
    {"no-store", "", "take nothing from the prefix cache and leave nothing in it"},
};

// Owns what inferd_sampling points to.
class Sampling {
 public:
  // Errors: kInvalidArgument naming the option and its range.
  static Result<Sampling> from_arguments(const Arguments& arguments);

  // Ask for the log probability of each token, and of `top` alternatives.
  void want_logprobs(uint32_t top);
  void next_seed() { ++sampling_.seed; }
  void set_branch(uint32_t branch) { sampling_.branch = branch; }
  // Valid until this object changes or goes.
  const inferd_sampling* get();

 private:
  inferd_sampling sampling_{};
  std::vector<inferd_logit_bias> logit_bias_;
  std::vector<std::string> stop_;
  std::vector<const char*> stop_pointers_;
};

struct Answer {
  std::vector<int32_t> ids;
  std::string text;
  std::vector<inferd_logprob> logprobs;      // [ids], or empty if not asked for
  std::vector<inferd_logprob> top_logprobs;  // [ids, top_logprobs_count]
  size_t top_logprobs_count = 0;
  inferd_finish finish = INFERD_FINISH_NONE;
  inferd_usage usage{};
};

// Submits the prompt and reads its answer to the end; `on_text` gets each piece as it comes. While
// it waits, Ctrl-C (SIGINT) and SIGTERM cancel the sequence, and the answer ends as cancelled.
Result<Answer> read_answer(const Connection& connection, const inferd_prompt& prompt,
                           const inferd_sampling* sampling,
                           const std::function<void(std::string_view)>& on_text);

// The same for `count` answers at once: the first, and forks of it, of the branches 0, 1, 2, ...
Result<std::vector<Answer>> read_answers(const Connection& connection, const inferd_prompt& prompt,
                                         Sampling& sampling, uint32_t count);

// A chat request as the library takes it: {"messages": [...], "add_generation_prompt": true}.
// Errors: kInvalidArgument if a message is not UTF-8.
Result<std::string> chat_request(const nlohmann::ordered_json& messages);

// "[the answer ends at --max-tokens 16]" and the like, or "" where the model ended its answer.
std::string finish_note(const Answer& answer);

}  // namespace inferd::inferctl
