// Command-line options of the benchmarks: "--name value", "--name=value", "--flag".
// Owner: bench. One thread. Must not know what the options mean.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace inferd::bench {

// Both ends included.
struct Range {
  uint32_t low = 0;
  uint32_t high = UINT32_MAX;
};

// Options of one subcommand. The variables given here must outlive parse(); an option that does not
// occur leaves its variable as it was, so their values beforehand are the defaults.
class Options {
 public:
  // `purpose`: one sentence for --help.
  Options(std::string command, std::string purpose);

  void add(std::string_view name, bool* flag, std::string_view help);
  void add(std::string_view name, std::string* text, std::string_view help);
  void add(std::string_view name, uint32_t* number, std::string_view help);
  void add(std::string_view name, double* number, std::string_view help);
  // A whole number within the range.
  void add(std::string_view name, uint32_t* number, Range range, std::string_view help);
  // Comma-separated: "1,2,8". Each within the range, if there is one.
  void add(std::string_view name, std::vector<uint32_t>* numbers, std::string_view help);
  void add(std::string_view name, std::vector<uint32_t>* numbers, Range range,
           std::string_view help);

  // Reads the arguments after the subcommand's name. True: go on. False: help was asked for and is
  // printed. Errors: kInvalidArgument, naming the argument and what was expected.
  Result<bool> parse(std::span<char* const> arguments) const;

  std::string help() const;

 private:
  using Target = std::variant<bool*, std::string*, uint32_t*, double*, std::vector<uint32_t>*>;
  struct Option {
    std::string name;
    Target target;
    std::string help;
    Range range = {};  // of whole numbers
  };

  const Option* find(std::string_view name) const;

  std::string command_;
  std::string purpose_;
  std::vector<Option> options_;
};

}  // namespace inferd::bench
