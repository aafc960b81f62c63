#include "bench/options.h"

#include <charconv>
#include <cstdio>
#include <utility>

namespace inferd::bench {
namespace {

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Error bad_value(const std::string& name, std::string_view value, const char* expected) {
  return Error(ErrorCode::kInvalidArgument,
               "--" + name + " is \"" + std::string(value) + "\"; expected " + expected);
}

Result<void> check_range(const std::string& name, uint32_t number, Range range) {
  if (number >= range.low && number <= range.high) return {};
  return Error(ErrorCode::kInvalidArgument,
               "--" + name + " must be from " + std::to_string(range.low) + " to " +
                   std::to_string(range.high) + ", not " + std::to_string(number));
}

Result<void> read_list(const std::string& name, std::string_view text,
                       std::vector<uint32_t>& numbers, Range range) {
  numbers.clear();
  std::string_view rest = text;
  while (true) {
    const size_t comma = rest.find(',');
    uint32_t number = 0;
    if (!read_number(rest.substr(0, comma), number)) {
      return bad_value(name, text, "whole numbers separated by commas, such as 1,2,8");
    }
    INFERD_TRY(check_range(name, number, range));
    numbers.push_back(number);
    if (comma == std::string_view::npos) return {};
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace

Options::Options(std::string command, std::string purpose)
    : command_(std::move(command)), purpose_(std::move(purpose)) {}

void Options::add(std::string_view name, bool* flag, std::string_view help) {
  options_.push_back({std::string(name), flag, std::string(help)});
}
void Options::add(std::string_view name, std::string* text, std::string_view help) {
  options_.push_back({std::string(name), text, std::string(help)});
}
void Options::add(std::string_view name, uint32_t* number, std::string_view help) {
  options_.push_back({std::string(name), number, std::string(help)});
}
void Options::add(std::string_view name, uint32_t* number, Range range, std::string_view help) {
  options_.push_back({std::string(name), number, std::string(help), range});
}
void Options::add(std::string_view name, double* number, std::string_view help) {
  options_.push_back({std::string(name), number, std::string(help)});
}
void Options::add(std::string_view name, std::vector<uint32_t>* numbers, std::string_view help) {
  options_.push_back({std::string(name), numbers, std::string(help)});
}

void Options::add(std::string_view name, std::vector<uint32_t>* numbers, Range range,
                  std::string_view help) {
  options_.push_back({std::string(name), numbers, std::string(help), range});
}

const Options::Option* Options::find(std::string_view name) const {
  for (const Option& option : options_) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

Result<bool> Options::parse(std::span<char* const> arguments) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      std::fputs(help().c_str(), stdout);
      return false;
    }
    const size_t equals = argument.find('=');
    const Option* option =
        argument.starts_with("--") ? find(argument.substr(2, equals - 2)) : nullptr;
    if (option == nullptr) {
      return Error(ErrorCode::kInvalidArgument, "unknown argument \"" + std::string(argument) +
                                                    "\"; see inferd-bench " + command_ + " --help");
    }
    if (bool* const* flag = std::get_if<bool*>(&option->target)) {
      if (equals != std::string_view::npos) return bad_value(option->name, argument, "no value");
      **flag = true;
      continue;
    }
    if (equals == std::string_view::npos && i + 1 == arguments.size()) {
      return Error(ErrorCode::kInvalidArgument, "--" + option->name + " needs a value");
    }
    const std::string_view value =
        equals != std::string_view::npos ? argument.substr(equals + 1) : arguments[++i];
    if (std::string* const* text = std::get_if<std::string*>(&option->target)) {
      **text = value;
    } else if (uint32_t* const* number = std::get_if<uint32_t*>(&option->target)) {
      if (!read_number(value, **number)) return bad_value(option->name, value, "a whole number");
      INFERD_TRY(check_range(option->name, **number, option->range));
    } else if (double* const* real = std::get_if<double*>(&option->target)) {
      if (!read_number(value, **real)) return bad_value(option->name, value, "a number");
    } else {
      INFERD_TRY(read_list(option->name, value, *std::get<std::vector<uint32_t>*>(option->target),
                           option->range));
    }
  }
  return true;
}

std::string Options::help() const {
  std::string text = "inferd-bench " + command_ + ": " + purpose_ + "\n\n";
  for (const Option& option : options_) {
    std::string left = "  --" + option.name;
    if (!std::holds_alternative<bool*>(option.target)) left += " VALUE";
    left.resize(std::max<size_t>(left.size() + 2, 28), ' ');
    text += left + option.help + "\n";
  }
  return text;
}

}  // namespace inferd::bench
