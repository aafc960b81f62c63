// inferctl chat: a conversation in the terminal. The conversation lives here; the daemon sees each
// turn as a request of its own.

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "tools/inferctl/answer.h"
#include "tools/inferctl/command.h"
#include "tools/inferctl/line_reader.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kChatOptions[] = {
    {"system", "TEXT", "a system message before the conversation"},
    {"no-history", "", "do not keep typed lines in a file for the next time"},
};

constexpr std::string_view kChatHelp =
    "  /system TEXT   set the system message (without TEXT: none) and begin anew\n"
    "  /reset         forget the conversation, keep the system message\n"
    "  /retry         ask the last question again, with the next seed\n"
    "  /save FILE     write the conversation as JSON\n"
    "  /usage         figures of the last answer\n"
    "  /help          this text\n"
    "  /exit          leave (or Ctrl-D)\n"
    "A line that ends with \\ goes on in the next one. Ctrl-C ends an answer, not the program.\n";

class Chat {
 public:
  Chat(const Arguments& arguments, Sampling sampling)
      : arguments_(arguments),
        sampling_(std::move(sampling)),
        system_(arguments.text("system").value_or("")) {}

  Result<ExitCode> run();

 private:
  Result<void> connect();
  bool read_message(LineReader& reader, std::string& message);
  // False to leave.
  bool obey(const std::string& line);
  void ask(std::string question);
  ordered_json conversation() const;
  void retry();
  void save(const std::string& path) const;

  const Arguments& arguments_;
  Sampling sampling_;
  std::string system_;
  ordered_json messages_ = ordered_json::array();  // user and assistant in turn
  Connection connection_;
  inferd_usage usage_{};
  bool failed_ = false;  // the last question had no answer
};

Result<void> Chat::connect() {
  INFERD_ASSIGN(connection_, connect_client(arguments_, arguments_.text("model").value_or("")));
  INFERD_ASSIGN(const inferd_model_info info, model_info(connection_));
  if (!info.has_chat_template) {
    return Error(ErrorCode::kUnsupported,
                 std::string("the model ") + info.name +
                     " has no chat template; use inferctl run --raw with it");
  }
  return {};
}

bool Chat::read_message(LineReader& reader, std::string& message) {
  message.clear();
  for (;;) {
    std::string line;
    const auto outcome = reader.read(message.empty() ? "> " : ". ", line);
    if (outcome == LineReader::Outcome::kEnd) return !message.empty();
    if (outcome == LineReader::Outcome::kInterrupted) {
      message.clear();
      continue;
    }
    if (!line.ends_with('\\')) {
      message += line;
      return true;
    }
    line.pop_back();
    message += line + '\n';
  }
}

ordered_json Chat::conversation() const {
  ordered_json all = ordered_json::array();
  if (!system_.empty()) all.push_back({{"role", "system"}, {"content", system_}});
  all.insert(all.end(), messages_.begin(), messages_.end());
  return all;
}

void Chat::ask(std::string question) {
  messages_.push_back({{"role", "user"}, {"content", std::move(question)}});
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  const auto answer = [&]() -> Result<Answer> {
    if (!connection_) INFERD_TRY(connect());
    INFERD_ASSIGN(const std::string request, chat_request(conversation()));
    inferd_prompt prompt;
    inferd_prompt_init(&prompt);
    prompt.chat_json = request.data();
    prompt.chat_json_bytes = request.size();
    return read_answer(connection_, prompt, sampling_.get(), [terminal](std::string_view piece) {
      std::cout << (terminal ? for_terminal(piece) : std::string(piece)) << std::flush;
    });
  }();
  failed_ = !answer.ok();
  if (failed_) {
    messages_.erase(messages_.size() - 1);
    // The daemon may have been restarted meanwhile: the next question connects anew.
    const ErrorCode code = answer.error().code();
    if (code == ErrorCode::kUnavailable || code == ErrorCode::kProtocol || code == ErrorCode::kIo) {
      connection_.reset();
    }
    std::cout << std::flush;
    std::cerr << "inferctl: " << answer.error().message() << '\n';
    return;
  }
  std::cout << '\n' << std::flush;
  usage_ = answer.value().usage;
  messages_.push_back({{"role", "assistant"}, {"content", answer.value().text}});
  if (const std::string note = finish_note(answer.value()); !note.empty())
    std::cerr << note << '\n';
}

void Chat::retry() {
  if (messages_.empty()) {
    std::cerr << "There is no question to ask again yet.\n";
    return;
  }
  messages_.erase(messages_.size() - 1);
  const std::string question = messages_.back()["content"];
  messages_.erase(messages_.size() - 1);
  sampling_.next_seed();
  ask(question);
}

void Chat::save(const std::string& path) const {
  std::ofstream file(path);
  file << conversation().dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
  file.close();
  std::cerr << (file ? "Saved to " : "Could not write ") << path << '\n';
}

bool Chat::obey(const std::string& line) {
  const size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
  if (name == "/exit" || name == "/quit") return false;
  if (name == "/help") {
    std::cerr << kChatHelp;
  } else if (name == "/reset" || name == "/system") {
    if (name == "/system") system_ = rest;
    messages_.clear();
    std::cerr << "A new conversation.\n";
  } else if (name == "/retry") {
    retry();
  } else if (name == "/save" && !rest.empty()) {
    save(rest);
  } else if (name == "/usage") {
    std::fprintf(
        stderr,
        "prompt %u tokens (%u cached), answer %u; first after %.0f ms, then every %.1f ms\n",
        usage_.prompt_tokens, usage_.cached_tokens, usage_.completion_tokens, usage_.ttft_ms,
        usage_.itl_ms);
  } else {
    constexpr std::string_view kNames[] = {"/exit",  "/help", "/reset", "/system",
                                           "/retry", "/save", "/usage"};
    const std::string_view near = nearest_name(name, kNames);
    if (name == "/save") {
      std::cerr << "/save needs a file: /save talk.json\n";
    } else if (near.empty()) {
      std::cerr << "There is no " << name << "; /help lists the commands.\n";
    } else {
      std::cerr << "There is no " << name << "; did you mean " << near << "?\n";
    }
  }
  return true;
}

Result<ExitCode> Chat::run() {
  INFERD_TRY(connect());
  LineReader reader(arguments_.has("no-history") ? "" : default_history_path());
  if (reader.interactive()) {
    INFERD_ASSIGN(const inferd_model_info info, model_info(connection_));
    std::cerr << info.name << " (" << info.quantization << ", context " << info.context_tokens
              << " tokens). /help lists the commands, Ctrl-D leaves.\n";
  }
  std::string message;
  while (read_message(reader, message)) {
    if (message.find_first_not_of(" \t\n") == std::string::npos) continue;
    if (message.starts_with('/')) {
      if (!obey(message)) break;
    } else {
      ask(message);
    }
  }
  if (reader.interactive()) std::cerr << '\n';
  // A script that pipes questions in wants to know that the last one failed.
  return failed_ && !reader.interactive() ? ExitCode::kFailed : ExitCode::kOk;
}

Result<ExitCode> chat(const Arguments& arguments) {
  INFERD_ASSIGN(Sampling sampling, Sampling::from_arguments(arguments));
  return Chat(arguments, std::move(sampling)).run();
}

}  // namespace

const Command& chat_command() {
  static const std::vector<OptionSpec> options = [] {
    std::vector<OptionSpec> all(std::begin(kChatOptions), std::end(kChatOptions));
    all.insert(all.end(), std::begin(kSamplingOptions), std::end(kSamplingOptions));
    return all;
  }();
  static const std::string details =
      "Reads questions line by line and streams the answers, with line editing and history.\n"
      "Lines that begin with / are commands:\n" +
      std::string(kChatHelp) +
      "Typed lines are kept for the next time in "
      "${XDG_STATE_HOME:-~/.local/state}/inferd/chat_history.";
  static const Command command{"chat", "",  "talk with a model in the terminal", details, options,
                               0,      chat};
  return command;
}

}  // namespace inferd::inferctl
