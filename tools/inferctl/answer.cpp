#include "tools/inferctl/answer.h"

#include <charconv>
#include <cmath>
#include <csignal>
#include <limits>

namespace inferd::inferctl {
namespace {

// Ctrl-C is looked at this often; tokens themselves are never delayed by it.
constexpr int kInterruptCheckMs = 50;

// Set by the handler below, which is installed only while an answer is read.
volatile std::sig_atomic_t g_interrupted = 0;

extern "C" void on_interrupt(int) { g_interrupted = 1; }

// Catches SIGINT and SIGTERM for a scope. A second signal acts as it did before the scope.
class InterruptScope {
 public:
  InterruptScope() {
    g_interrupted = 0;
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &previous_int_);
    sigaction(SIGTERM, &action, &previous_term_);
  }
  ~InterruptScope() {
    sigaction(SIGINT, &previous_int_, nullptr);
    sigaction(SIGTERM, &previous_term_, nullptr);
  }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static bool interrupted() { return g_interrupted != 0; }

 private:
  struct sigaction previous_int_ {};
  struct sigaction previous_term_ {};
};

Result<inferd_logit_bias> parse_logit_bias(const std::string& text) {
  inferd_logit_bias entry{};
  const char* const end = text.data() + text.size();
  const auto id = std::from_chars(text.data(), end, entry.token);
  if (id.ec == std::errc() && id.ptr != end && *id.ptr == '=' && entry.token >= 0) {
    const auto bias = std::from_chars(id.ptr + 1, end, entry.bias);
    if (bias.ec == std::errc() && bias.ptr == end && !std::isnan(entry.bias)) return entry;
  }
  return Error(
      ErrorCode::kInvalidArgument,
      "--logit-bias takes a token id and a number, as in 42=-1.5 or 42=-inf, not '" + text + "'");
}

Result<inferd_priority> parse_priority(const std::string& text) {
  if (text == "interactive") return INFERD_PRIORITY_INTERACTIVE;
  if (text == "batch") return INFERD_PRIORITY_BATCH;
  if (text == "idle") return INFERD_PRIORITY_IDLE;
  return Error(ErrorCode::kInvalidArgument,
               "--priority is interactive, batch or idle, not '" + text + "'");
}

// Reads the answer of a sequence to its end.
Result<Answer> read_sequence(const Sequence& sequence,
                             const std::function<void(std::string_view)>& on_text) {
  inferd_error* error = nullptr;
  Answer answer;
  bool cancelled = false;
  while (answer.finish == INFERD_FINISH_NONE) {
    inferd_event event;
    inferd_event_init(&event);
    const inferd_status status = inferd_next(sequence.get(), kInterruptCheckMs, &event, &error);
    if (InterruptScope::interrupted() && !cancelled) {
      inferd_cancel(sequence.get());
      cancelled = true;
    }
    if (status == INFERD_TIMED_OUT && error == nullptr) continue;
    if (status != INFERD_OK) return take_error(status, error);
    answer.ids.insert(answer.ids.end(), event.ids, event.ids + event.ids_count);
    if (event.logprobs != nullptr) {
      answer.logprobs.insert(answer.logprobs.end(), event.logprobs,
                             event.logprobs + event.ids_count);
    }
    if (event.top_logprobs != nullptr) {
      answer.top_logprobs_count = event.top_logprobs_count;
      answer.top_logprobs.insert(answer.top_logprobs.end(), event.top_logprobs,
                                 event.top_logprobs + event.ids_count * event.top_logprobs_count);
    }
    const std::string_view piece(event.text, event.text_bytes);
    answer.text += piece;
    if (!piece.empty() && on_text) on_text(piece);
    answer.finish = event.finish;
  }
  answer.usage.struct_bytes = sizeof answer.usage;
  const inferd_status status = inferd_get_usage(sequence.get(), &answer.usage, &error);
  if (status != INFERD_OK) return take_error(status, error);
  return answer;
}

Result<Sequence> open_sequence(const Connection& connection, const inferd_prompt& prompt,
                               const inferd_sampling* sampling) {
  inferd_sequence* handle = nullptr;
  inferd_error* error = nullptr;
  const inferd_status status = inferd_open(connection.get(), &prompt, sampling, &handle, &error);
  if (status != INFERD_OK) return take_error(status, error);
  return Sequence(handle);
}

Result<Sequence> fork_sequence(const Sequence& parent, const inferd_sampling* sampling) {
  inferd_sequence* handle = nullptr;
  inferd_error* error = nullptr;
  const inferd_status status =
      inferd_sequence_fork(parent.get(), nullptr, sampling, &handle, &error);
  if (status != INFERD_OK) return take_error(status, error);
  return Sequence(handle);
}

}  // namespace

Result<Sampling> Sampling::from_arguments(const Arguments& arguments) {
  constexpr uint64_t kUint32Max = std::numeric_limits<uint32_t>::max();
  Sampling sampling;
  inferd_sampling_init(&sampling.sampling_);
  inferd_sampling& s = sampling.sampling_;
  INFERD_ASSIGN(const double temperature, arguments.decimal("temperature", s.temperature, 0, 1000));
  INFERD_ASSIGN(const uint64_t top_k, arguments.unsigned_number("top-k", s.top_k, 0, kUint32Max));
  INFERD_ASSIGN(const double top_p, arguments.decimal("top-p", s.top_p, 0, 1));
  INFERD_ASSIGN(const double min_p, arguments.decimal("min-p", s.min_p, 0, 1));
  INFERD_ASSIGN(const double repetition,
                arguments.decimal("repetition-penalty", s.repetition_penalty, 0.01, 100));
  INFERD_ASSIGN(const double presence,
                arguments.decimal("presence-penalty", s.presence_penalty, -100, 100));
  INFERD_ASSIGN(const double frequency,
                arguments.decimal("frequency-penalty", s.frequency_penalty, -100, 100));
  INFERD_ASSIGN(const uint64_t last_n,
                arguments.unsigned_number("penalty-last-n", s.penalty_last_n, 0, kUint32Max));
  INFERD_ASSIGN(const uint64_t seed,
                arguments.unsigned_number("seed", s.seed, 0, std::numeric_limits<uint64_t>::max()));
  INFERD_ASSIGN(const uint64_t max_tokens,
                arguments.unsigned_number("max-tokens", s.max_tokens, 1, kUint32Max));
  if (const auto priority = arguments.text("priority")) {
    INFERD_ASSIGN(s.priority, parse_priority(*priority));
  }
  INFERD_ASSIGN(const int64_t nice, arguments.whole_number("nice", 0, -20, 19));
  INFERD_ASSIGN(const uint64_t deadline, arguments.unsigned_number("deadline", 0, 1, kUint32Max));
  s.nice = static_cast<int32_t>(nice);
  s.deadline_ms = static_cast<uint32_t>(deadline);
  s.no_store = arguments.has("no-store") ? 1 : 0;
  s.temperature = static_cast<float>(temperature);
  s.top_k = static_cast<uint32_t>(top_k);
  s.top_p = static_cast<float>(top_p);
  s.min_p = static_cast<float>(min_p);
  s.repetition_penalty = static_cast<float>(repetition);
  s.presence_penalty = static_cast<float>(presence);
  s.frequency_penalty = static_cast<float>(frequency);
  s.penalty_last_n = static_cast<uint32_t>(last_n);
  s.seed = seed;
  s.max_tokens = static_cast<uint32_t>(max_tokens);
  for (const std::string& text : arguments.texts("logit-bias")) {
    INFERD_ASSIGN(const inferd_logit_bias entry, parse_logit_bias(text));
    sampling.logit_bias_.push_back(entry);
  }
  sampling.stop_ = arguments.texts("stop");
  for (const std::string& stop : sampling.stop_) {
    if (stop.empty()) {
      return Error(ErrorCode::kInvalidArgument,
                   "--stop takes a text, and this one is empty; leave it out");
    }
  }
  return sampling;
}

void Sampling::want_logprobs(uint32_t top) {
  sampling_.logprobs = 1;
  sampling_.top_logprobs = top;
}

const inferd_sampling* Sampling::get() {
  stop_pointers_.clear();
  for (const std::string& stop : stop_) stop_pointers_.push_back(stop.c_str());
  sampling_.stop = stop_pointers_.data();
  sampling_.stop_count = stop_pointers_.size();
  sampling_.logit_bias = logit_bias_.data();
  sampling_.logit_bias_count = logit_bias_.size();
  return &sampling_;
}

Result<Answer> read_answer(const Connection& connection, const inferd_prompt& prompt,
                           const inferd_sampling* sampling,
                           const std::function<void(std::string_view)>& on_text) {
  const InterruptScope interrupts;
  INFERD_ASSIGN(const Sequence sequence, open_sequence(connection, prompt, sampling));
  return read_sequence(sequence, on_text);
}

Result<std::vector<Answer>> read_answers(const Connection& connection, const inferd_prompt& prompt,
                                         Sampling& sampling, uint32_t count) {
  const InterruptScope interrupts;
  std::vector<Sequence> sequences;
  for (uint32_t branch = 0; branch < count; ++branch) {
    sampling.set_branch(branch);
    INFERD_ASSIGN(Sequence opened, branch == 0 ? open_sequence(connection, prompt, sampling.get())
                                               : fork_sequence(sequences.front(), sampling.get()));
    sequences.push_back(std::move(opened));
  }
  std::vector<Answer> answers;
  for (const Sequence& sequence : sequences) {
    INFERD_ASSIGN(Answer answer, read_sequence(sequence, {}));
    answers.push_back(std::move(answer));
  }
  return answers;
}

Result<std::string> chat_request(const nlohmann::ordered_json& messages) {
  nlohmann::ordered_json request;
  request["messages"] = messages;
  request["add_generation_prompt"] = true;
  try {
    return request.dump();
  } catch (const nlohmann::json::type_error&) {
    return Error(
        ErrorCode::kInvalidArgument,
        "a chat message must be UTF-8, and this one is not; pass it with --raw, or convert it");
  }
}

std::string finish_note(const Answer& answer) {
  switch (answer.finish) {
    case INFERD_FINISH_LENGTH:
      return "[the answer was cut at " + std::to_string(answer.usage.completion_tokens) +
             " tokens, as --max-tokens asks]";
    case INFERD_FINISH_CONTEXT:
      return "[the answer was cut: the model's context is full]";
    case INFERD_FINISH_CANCELLED:
      return "[cancelled]";
    default:
      return "";
  }
}

}  // namespace inferd::inferctl
