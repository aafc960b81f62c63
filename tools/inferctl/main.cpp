// inferctl: administration of a running daemon, and a first taste of it.
// Finds the command, parses its options, prints its help, and turns its result into an exit code.

#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/inferctl/command.h"

namespace inferd::inferctl {
namespace {

std::array<const Command*, 18> all_commands() {
  return {&run_command(),       &chat_command(),     &status_command(),   &list_command(),
          &ps_command(),        &top_command(),      &vmstat_command(),   &cancel_command(),
          &renice_command(),    &cache_command(),    &verify_command(),   &drain_command(),
          &reload_command(),    &log_level_command(), &metrics_command(), &tokenize_command(),
          &detokenize_command(), &template_command()};
}

const Command* find_command(std::string_view name) {
  for (const Command* command : all_commands()) {
    if (command->name == name) return command;
  }
  return nullptr;
}

std::vector<OptionSpec> options_of(const Command& command) {
  std::vector<OptionSpec> options(command.options.begin(), command.options.end());
  options.insert(options.end(), {kSocketOption, kControlSocketOption, kHelpOption});
  return options;
}

void print_overview(std::ostream& out) {
  out << "usage: inferctl COMMAND [OPTION...] [ARGUMENT...]\n\n"
         "Talks to inferd, the language-model daemon of this machine.\n\n";
  for (const Command* command : all_commands()) {
    std::string name(command->name);
    name.resize(12, ' ');
    out << "  " << name << command->summary << '\n';
  }
  out << "\ninferctl COMMAND --help explains a command. inferctl --version prints the version.\n"
         "Exit codes: 0 success, 1 failure, 2 wrong usage, 3 no daemon reached, 130 Ctrl-C.\n";
}

void print_help(const Command& command) {
  std::cout << "usage: inferctl " << command.name << " [OPTION...]";
  if (!command.arguments.empty()) std::cout << ' ' << command.arguments;
  std::cout << "\n\n" << command.details << "\n\n" << describe_options(options_of(command));
}

int complain(const std::string& sentence, ExitCode code) {
  std::cerr << "inferctl: " << sentence << '\n';
  return static_cast<int>(code);
}

// The global options may also stand before the command: the command is the first word that is
// neither one of them nor a value of one.
size_t command_index(const std::vector<std::string>& words) {
  size_t i = 0;
  while (i < words.size()) {
    const std::string& word = words[i];
    if (word == "--socket" || word == "--control-socket") {
      i += 2;
    } else if (word.starts_with("--socket=") || word.starts_with("--control-socket=")) {
      ++i;
    } else {
      break;
    }
  }
  return i;
}

ExitCode exit_code_for(ErrorCode code) {
  return code == ErrorCode::kUnavailable ? ExitCode::kNoDaemon : ExitCode::kFailed;
}

// A full disk or a closed pipe must not look like success.
int finish(ExitCode code) {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0) {
    return complain("the output could not be written; is the disk full?", ExitCode::kFailed);
  }
  return static_cast<int>(code);
}

int run_main(std::vector<std::string> words) {
  const size_t index = command_index(words);
  if (index >= words.size()) {
    print_overview(std::cerr);
    return static_cast<int>(ExitCode::kUsage);
  }
  const std::string name = words[index];
  if (name == "--help" || name == "-h" || name == "help") {
    if (name == "help" && index + 1 < words.size()) {
      return run_main({words[index + 1], "--help"});
    }
    print_overview(std::cout);
    return finish(ExitCode::kOk);
  }
  if (name == "--version" || name == "-V") {
    std::cout << "inferctl " INFERD_VERSION "\n";
    return finish(ExitCode::kOk);
  }
  const Command* command = find_command(name);
  if (command == nullptr) {
    std::vector<std::string_view> names;
    for (const Command* candidate : all_commands()) names.push_back(candidate->name);
    const std::string_view near = nearest_name(name, names);
    return complain("there is no command '" + name + "'; " +
                        (near.empty() ? std::string("inferctl --help lists those there are")
                                      : "did you mean '" + std::string(near) + "'?"),
                    ExitCode::kUsage);
  }
  words.erase(words.begin() + static_cast<std::ptrdiff_t>(index));
  for (std::string& word : words) {
    if (word == "--") break;
    if (word == "-h") word = "--help";
  }
  const Result<Arguments> arguments = parse_arguments(words, options_of(*command));
  if (!arguments) {
    return complain(std::string(command->name) + ": " + arguments.error().message(),
                    ExitCode::kUsage);
  }
  if (arguments.value().has("help")) {
    print_help(*command);
    return finish(ExitCode::kOk);
  }
  if (arguments.value().positionals().size() > command->positionals_max) {
    const std::string& extra = arguments.value().positionals()[command->positionals_max];
    return complain(std::string(command->name) + ": '" + extra + "' is one argument too many" +
                        (command->positionals_max > 0 ? "; put a text with spaces in quotes" : ""),
                    ExitCode::kUsage);
  }
  const Result<ExitCode> outcome = command->run(arguments.value());
  if (!outcome) {
    std::cout.flush();
    return complain(outcome.error().message(), outcome.error().code() == ErrorCode::kInvalidArgument
                                                   ? ExitCode::kUsage
                                                   : exit_code_for(outcome.error().code()));
  }
  return finish(outcome.value());
}

}  // namespace
}  // namespace inferd::inferctl

int main(int argc, char** argv) {
  using inferd::inferctl::ExitCode;
  try {
    return inferd::inferctl::run_main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const nlohmann::json::exception& error) {
    // A reply of another shape than ours: not this daemon, or not this version.
    std::cerr << "inferctl: the daemon's reply is not as expected (" << error.what()
              << "); are daemon and inferctl of the same version?\n";
  } catch (const std::exception& error) {
    std::cerr << "inferctl: " << error.what() << '\n';
  }
  return static_cast<int>(ExitCode::kFailed);
}
