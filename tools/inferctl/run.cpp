// inferctl run: one prompt, one answer.

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>

#include "tools/inferctl/answer.h"
#include "tools/inferctl/command.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kRunOptions[] = {
    {"raw", "", "take the prompt as plain text to continue, without the model's chat template"},
    {"special", "", "with --raw: names of control tokens in the prompt become those tokens"},
    {"system", "TEXT", "a system message before the prompt"},
    {"ids", "1,2,3", "token ids instead of a text"},
    {"logprobs", "N",
     "report log probabilities, with N alternatives a token (0 to 20; needs --json)"},
    {"n", "K", "K answers to the one prompt at once (1 to 128), each drawn apart from the others"},
    kJsonOption,
};

// The prompt in the form that the library takes, with what it points to.
struct OwnedPrompt {
  std::string text;
  std::vector<int32_t> ids;
  inferd_prompt prompt{};
};

Result<std::string> prompt_text(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.positionals();
  if (words.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "run: no prompt; write one in quotes, or - to read it from standard input");
  }
  std::string text = words[0];
  if (text == "-") {
    text.clear();
    INFERD_TRY(read_standard_input(text));
  }
  if (text.empty()) return Error(ErrorCode::kInvalidArgument, "run: the prompt is empty");
  return text;
}

// Options that contradict each other are refused before the daemon is asked.
Result<void> check_options(const Arguments& arguments) {
  const bool ids = arguments.has("ids");
  const char* sentence = nullptr;
  if (ids && !arguments.positionals().empty()) {
    sentence = "run: --ids stands instead of a prompt; give one of the two";
  } else if (ids && (arguments.has("raw") || arguments.has("system"))) {
    sentence = "run: --ids is the whole prompt; it goes with neither --raw nor --system";
  } else if (arguments.has("raw") && arguments.has("system")) {
    sentence = "run: --system needs the model's chat template, which --raw leaves out";
  } else if (arguments.has("special") && !arguments.has("raw")) {
    sentence = "run: --special needs --raw; in a chat message text never becomes a control token";
  } else if (arguments.has("logprobs") && !arguments.has("json")) {
    sentence = "run: --logprobs needs --json, which has a place for them";
  }
  if (sentence != nullptr) return Error(ErrorCode::kInvalidArgument, sentence);
  return {};
}

Result<void> make_prompt(const Arguments& arguments, const Connection& connection,
                         OwnedPrompt& out) {
  inferd_prompt_init(&out.prompt);
  if (const auto typed = arguments.text("ids")) {
    INFERD_ASSIGN(out.ids, parse_ids(*typed == "-" ? out.text : *typed));
    out.prompt.ids = out.ids.data();
    out.prompt.ids_count = out.ids.size();
    return {};
  }
  INFERD_ASSIGN(const inferd_model_info info, model_info(connection));
  const std::optional<std::string> system = arguments.text("system");
  if (system && !info.has_chat_template) {
    return Error(ErrorCode::kUnsupported,
                 std::string("the model ") + info.name +
                     " has no chat template, so it takes no --system message");
  }
  if (arguments.has("raw") || !info.has_chat_template) {
    out.prompt.text = out.text.data();
    out.prompt.text_bytes = out.text.size();
    out.prompt.text_flags =
        INFERD_TOKENIZE_BOS | (arguments.has("special") ? INFERD_TOKENIZE_SPECIAL : 0u);
    return {};
  }
  ordered_json messages = ordered_json::array();
  if (system) messages.push_back({{"role", "system"}, {"content", *system}});
  messages.push_back({{"role", "user"}, {"content", out.text}});
  INFERD_ASSIGN(out.text, chat_request(messages));
  out.prompt.chat_json = out.text.data();
  out.prompt.chat_json_bytes = out.text.size();
  return {};
}

ordered_json logprobs_json(const Answer& answer) {
  if (answer.logprobs.empty()) return nullptr;
  ordered_json rows = ordered_json::array();
  for (size_t i = 0; i < answer.logprobs.size(); ++i) {
    ordered_json top = ordered_json::array();
    for (size_t k = 0; k < answer.top_logprobs_count; ++k) {
      const inferd_logprob& other = answer.top_logprobs[i * answer.top_logprobs_count + k];
      top.push_back({{"id", other.token}, {"logprob", other.logprob}});
    }
    rows.push_back({{"id", answer.logprobs[i].token},
                    {"logprob", answer.logprobs[i].logprob},
                    {"top", std::move(top)}});
  }
  return rows;
}

ordered_json answer_json(const Answer& answer) {
  const inferd_usage& usage = answer.usage;
  return {{"ids", answer.ids},
          {"text", answer.text},
          {"finish_reason", inferd_finish_name(answer.finish)},
          {"logprobs", logprobs_json(answer)},
          {"usage",
           {{"prompt_tokens", usage.prompt_tokens},
            {"cached_tokens", usage.cached_tokens},
            {"completion_tokens", usage.completion_tokens},
            {"ttft_ms", usage.ttft_ms},
            {"itl_ms", usage.itl_ms},
            {"queue_ms", usage.queue_ms},
            {"computed_tokens", usage.computed_tokens},
            {"preemptions", usage.preemptions}}}};
}

// Several answers, printed when all of them have ended.
Result<ExitCode> run_several(const Arguments& arguments, const Connection& connection,
                             const inferd_prompt& prompt, Sampling& sampling) {
  INFERD_ASSIGN(const uint64_t count, arguments.unsigned_number("n", 1, 1, 128));
  INFERD_ASSIGN(const std::vector<Answer> answers,
                read_answers(connection, prompt, sampling, static_cast<uint32_t>(count)));
  bool cancelled = false;
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < answers.size(); ++i) {
    const Answer& answer = answers[i];
    cancelled = cancelled || answer.finish == INFERD_FINISH_CANCELLED;
    list.push_back(answer_json(answer));
    if (arguments.has("json")) continue;
    std::cout << "[" << i + 1 << " of " << answers.size() << "]\n"
              << (::isatty(STDOUT_FILENO) != 0 ? for_terminal(answer.text) : answer.text)
              << (answer.text.ends_with('\n') ? "\n" : "\n\n") << std::flush;
    if (const std::string note = finish_note(answer); !note.empty()) std::cerr << note << '\n';
  }
  if (arguments.has("json")) print_json(list);
  return cancelled ? ExitCode::kInterrupted : ExitCode::kOk;
}

Result<ExitCode> run(const Arguments& arguments) {
  INFERD_TRY(check_options(arguments));
  INFERD_ASSIGN(Sampling sampling, Sampling::from_arguments(arguments));
  if (arguments.has("logprobs")) {
    INFERD_ASSIGN(const uint64_t top, arguments.unsigned_number("logprobs", 0, 0, 20));
    sampling.want_logprobs(static_cast<uint32_t>(top));
  }
  OwnedPrompt prompt;
  if (!arguments.has("ids")) {
    INFERD_ASSIGN(prompt.text, prompt_text(arguments));
  } else if (arguments.text("ids") == "-") {
    INFERD_TRY(read_standard_input(prompt.text));
  }
  INFERD_ASSIGN(const Connection connection,
                connect_client(arguments, arguments.text("model").value_or("")));
  INFERD_TRY(make_prompt(arguments, connection, prompt));

  if (arguments.has("n")) return run_several(arguments, connection, prompt.prompt, sampling);
  const bool json = arguments.has("json");
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  const auto stream = [terminal](std::string_view piece) {
    std::cout << (terminal ? for_terminal(piece) : std::string(piece)) << std::flush;
  };
  INFERD_ASSIGN(const Answer answer,
                read_answer(connection, prompt.prompt, sampling.get(),
                            json ? std::function<void(std::string_view)>() : stream));
  if (json) {
    print_json(answer_json(answer));
  } else {
    if (!answer.text.ends_with('\n')) std::cout << '\n';
    std::cout.flush();
    if (const std::string note = finish_note(answer); !note.empty()) std::cerr << note << '\n';
  }
  return answer.finish == INFERD_FINISH_CANCELLED ? ExitCode::kInterrupted : ExitCode::kOk;
}

}  // namespace

const Command& run_command() {
  static const std::vector<OptionSpec> options = [] {
    std::vector<OptionSpec> all(std::begin(kRunOptions), std::end(kRunOptions));
    all.insert(all.end(), std::begin(kSamplingOptions), std::end(kSamplingOptions));
    return all;
  }();
  static const Command command{
      "run",
      "[--] \"PROMPT\" | -",
      "ask once and stream the answer",
      "Sends PROMPT (or standard input, for -) as a chat message, and prints the answer as it "
      "comes.\n"
      "A model without a chat template continues the text instead, as --raw makes any model do.\n"
      "Ctrl-C cancels. With --json the answer is printed once, at its end:\n"
      "{\"ids\", \"text\", \"finish_reason\", \"logprobs\", \"usage\"}. With --n it is an array of "
      "these.",
      options,
      1,
      run};
  return command;
}

}  // namespace inferd::inferctl
