// The configuration file and the --set option: any bytes end in a Config within its ranges or in problems.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "daemon/config.h"
#include "daemon/config_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferd::daemon;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<ConfigProblem> problems;
  const Config config = parse_config(text, "fuzz.toml", {{std::string(text), "--set"}}, problems);
  static_cast<void>(format_problems(problems));
  std::vector<ConfigProblem> of_file;
  const Config accepted = parse_config(text, "fuzz.toml", {}, of_file);
  for (const ConfigProblem& problem : of_file) INFERD_CHECK(!problem.message.empty());
  if (!of_file.empty()) return 0;
  INFERD_CHECK(accepted.models.size() == 1 && !accepted.models.front().path.empty());
  INFERD_CHECK(accepted.scheduler.max_sequences >= 1 &&
               accepted.scheduler.max_sequences <= accepted.scheduler.step_tokens);
  // What is written out reads back as the same.
  for (const KeySpec& spec : config_keys()) {
    if (spec.kind == KeyKind::kText) continue;  // would need quoting
    std::vector<ConfigProblem> again;
    const Config copy = parse_config("[[model]]\npath = \"m\"\n[scheduler]\nstep_tokens = 8192\n", "",
                                     {{std::string(spec.section) + "." + std::string(spec.key) + "=" +
                                           written_value(spec, accepted),
                                       "--set"}},
                                     again);
    if (again.empty()) INFERD_CHECK(written_value(spec, copy) == written_value(spec, accepted));
  }
  return 0;
}
