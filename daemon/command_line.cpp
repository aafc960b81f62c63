#include "daemon/command_line.h"

#include <array>
#include <filesystem>
#include <string_view>

#include "daemon/config_reader.h"

namespace inferd::daemon {

namespace {

constexpr std::array<std::string_view, 8> kOptions{"--config", "--model",        "--runtime-dir",
                                                   "--set",    "--check-config", "--version",
                                                   "--help",   "-h"};

Error usage(const std::string& text) {
  return Error(ErrorCode::kInvalidArgument, text + "; see inferd --help");
}

std::string nearest_option(std::string_view word) {
  for (std::string_view option : kOptions) {
    if (edit_distance(word, option) <= 2) return "; did you mean " + std::string(option) + "?";
  }
  return {};
}

std::string absolute_path(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path absolute = std::filesystem::absolute(path, ignored);
  return absolute.empty() ? path : absolute.lexically_normal().string();
}

// As a TOML string, so that no path is taken for a number or a list.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

}  // namespace

Result<CommandLine> parse_command_line(std::span<const char* const> arguments,
                                       const std::string& user_runtime_dir) {
  CommandLine line;
  bool has_model = false;
  bool has_runtime_dir = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    const size_t equals = word.substr(0, 2) == "--" ? word.find('=') : std::string_view::npos;
    const std::string_view option = word.substr(0, equals);
    const auto takes_none = [&](CommandLine::Action action) -> Result<void> {
      if (equals != std::string_view::npos) {
        return usage(std::string(option) + " takes no value");
      }
      line.action = action;
      return {};
    };
    if (option == "--help" || option == "-h") {
      INFERD_TRY(takes_none(CommandLine::Action::kHelp));
      return line;
    }
    if (option == "--version") {
      INFERD_TRY(takes_none(CommandLine::Action::kVersion));
      return line;
    }
    if (option == "--check-config") {
      INFERD_TRY(takes_none(CommandLine::Action::kCheckConfig));
      continue;
    }
    const bool known = option == "--config" || option == "--model" || option == "--runtime-dir" ||
                       option == "--set";
    if (!known) return usage("unknown argument '" + std::string(word) + "'" + nearest_option(option));
    if (equals == std::string_view::npos && i + 1 == arguments.size()) {
      return usage(std::string(option) + " needs a value");
    }
    const std::string value(equals == std::string_view::npos ? std::string_view(arguments[++i])
                                                             : word.substr(equals + 1));
    if (value.empty()) return usage(std::string(option) + " needs a value that is not empty");
    const std::string origin = std::string(option) + " " + value;
    if (option == "--config") {
      line.config_path = value;
    } else if (option == "--model") {
      line.overrides.push_back({"model.path=" + quoted(absolute_path(value)), origin});
      has_model = true;
    } else if (option == "--runtime-dir") {
      line.overrides.push_back({"daemon.runtime_dir=" + quoted(absolute_path(value)), origin});
      has_runtime_dir = true;
    } else {
      line.overrides.push_back({value, origin});
      has_runtime_dir = has_runtime_dir || value.rfind("daemon.runtime_dir=", 0) == 0;
    }
  }
  if (line.config_path.empty() && !has_model) line.config_path = kDefaultConfigPath;
  if (line.config_path.empty() && !has_runtime_dir && !user_runtime_dir.empty()) {
    line.overrides.push_back({"daemon.runtime_dir=" + quoted(user_runtime_dir + "/inferd"),
                              "$XDG_RUNTIME_DIR"});
  }
  return line;
}

std::string help_text() {
  return R"(inferd: serves a language model to the programs of this machine

usage: inferd [--config FILE] [--set section.key=value]...
       inferd --model FILE.gguf [--runtime-dir DIR]      a private daemon without a config file
       inferd --check-config [--config FILE]             reports every mistake in the configuration

  --config FILE            read this file (default: /etc/inferd/inferd.toml, unless --model is given)
  --model FILE.gguf        serve this model
  --runtime-dir DIR        put the sockets here (private daemon: $XDG_RUNTIME_DIR/inferd)
  --set section.key=value  override a key of the configuration; may be repeated
  --check-config           check the configuration and exit
  --version                print the version and exit
  --help, -h               print this text and exit

Signals: TERM and INT finish the running requests, then end; a second one ends at once. HUP reads
the configuration again. The keys are explained in inferd.toml(5), exit codes in inferd(8).
)";
}

}  // namespace inferd::daemon
