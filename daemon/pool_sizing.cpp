#include "daemon/pool_sizing.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <span>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace inferd::daemon {

namespace {

constexpr uint32_t kPagesMin = 16;
// Version 1 writes "no limit" as the largest multiple of the page size; anything near is none.
constexpr uint64_t kUnlimitedFrom = 1ull << 60;

std::optional<std::string> read_small_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The first number of `text`; nothing for "max" and anything else that is none.
std::optional<uint64_t> leading_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc()) return std::nullopt;
  return value;
}

// The number behind `name` at the start of a line, as in /proc/meminfo and memory.stat.
std::optional<uint64_t> named_number(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.substr(0, name.size()) == name) return leading_number(line.substr(name.size()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::nullopt;
}

std::optional<uint64_t> number_in(const std::string& path) {
  const std::optional<std::string> text = read_small_file(path);
  return text ? leading_number(*text) : std::nullopt;
}

struct Hierarchy {
  std::string directory;  // of the process's group
  std::string mount;      // where to stop walking up
  bool version2 = true;
};

// "0::/system.slice/inferd.service" is version 2, "5:memory:/user" version 1.
std::vector<Hierarchy> hierarchies(const std::string& root) {
  std::vector<Hierarchy> found;
  std::istringstream lines(read_small_file(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
        found.push_back({root + mount + path, root + mount, true});
      }
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      const std::string mount = root + "/sys/fs/cgroup/memory";
      found.push_back({mount + path, mount, false});
    }
  }
  return found;
}

void consider(std::optional<MachineMemory::GroupLimit>& tightest, const Hierarchy& hierarchy,
              const std::string& directory) {
  const auto file = [&](const char* name) { return directory + "/" + name; };
  std::optional<uint64_t> limit;
  constexpr std::array kVersion1{"memory.limit_in_bytes"};
  constexpr std::array kVersion2{"memory.max", "memory.high"};
  const std::span<const char* const> names =
      hierarchy.version2 ? std::span<const char* const>(kVersion2) : kVersion1;
  for (const char* name : names) {
    if (const auto value = number_in(file(name))) limit = std::min(limit.value_or(*value), *value);
  }
  if (!limit || *limit >= kUnlimitedFrom) return;
  if (tightest && tightest->limit.value <= *limit) return;
  const uint64_t charged =
      number_in(file(hierarchy.version2 ? "memory.current" : "memory.usage_in_bytes")).value_or(0);
  const std::string stat = read_small_file(file("memory.stat")).value_or("");
  const uint64_t reclaimable = named_number(stat, "inactive_file ").value_or(0);
  tightest = MachineMemory::GroupLimit{Bytes(*limit),
                                       Bytes(charged - std::min(charged, reclaimable)), directory};
}

std::string plain(Bytes bytes) { return format_bytes(bytes); }

PageCount whole_pages(uint64_t bytes, Bytes page) {
  // The largest PageId is kNoPage.
  const uint64_t pages = std::min<uint64_t>(bytes / page.value, kNoPage.value - 1);
  return PageCount(static_cast<uint32_t>(pages));
}

}  // namespace

Result<MachineMemory> read_machine_memory(const std::string& root) {
  const std::optional<std::string> meminfo = read_small_file(root + "/proc/meminfo");
  if (!meminfo) return Error(ErrorCode::kIo, "cannot read /proc/meminfo; is /proc mounted?");
  const auto total = named_number(*meminfo, "MemTotal:");
  const auto available = named_number(*meminfo, "MemAvailable:");
  if (!total || !available) {
    return Error(ErrorCode::kDataCorrupt, "/proc/meminfo has no MemTotal or MemAvailable; set "
                                          "[memory] pool to a size");
  }
  MachineMemory memory;
  memory.total = Bytes(*total * 1024);
  memory.available = Bytes(*available * 1024);
  for (const Hierarchy& hierarchy : hierarchies(root)) {
    // A path that is not there (a group of another namespace) still has ancestors that are.
    std::string directory = hierarchy.directory;
    while (directory.size() > hierarchy.mount.size()) {
      consider(memory.group, hierarchy, directory);
      directory.resize(directory.find_last_of('/'));
    }
    consider(memory.group, hierarchy, hierarchy.mount);
  }
  return memory;
}

Result<PoolDecision> decide_pool(const PoolRequest& request, const MachineMemory& memory) {
  INFERD_CHECK(request.page.value > 0);
  INFERD_CHECK(request.context_tokens > 0 && request.sequences_max > 0);
  const uint64_t context_pages = (request.context_tokens + kPageTokens - 1) / kPageTokens;
  PoolDecision decision;
  std::string reason;
  if (request.configured.value > 0) {
    decision.pages = whole_pages(request.configured.value, request.page);
    reason = "as configured";
  } else {
    uint64_t limit = memory.total.value;
    uint64_t available = memory.available.value;
    std::string bound = plain(memory.total) + " of RAM, " + plain(memory.available) + " available";
    if (memory.group) {
      const uint64_t group_limit = memory.group->limit.value;
      const uint64_t left = group_limit - std::min(group_limit, memory.group->used.value);
      limit = std::min(limit, group_limit);
      available = std::min(available, left);
      bound += "; control group limit " + plain(memory.group->limit) + ", " + plain(Bytes(left)) +
               " left";
    }
    const uint64_t three_quarters = limit / 4 * 3;
    const uint64_t beside_weights = three_quarters - std::min(three_quarters, request.weights.value);
    const uint64_t useful = context_pages * request.sequences_max * request.page.value;
    decision.pages = whole_pages(std::min({available / 2, beside_weights, useful}), request.page);
    reason = "worked out from " + bound + "; weights " + plain(request.weights) +
             "; the least of half of what is available (" + plain(Bytes(available / 2)) +
             "), three quarters of the limit less the weights (" + plain(Bytes(beside_weights)) +
             ") and what " + std::to_string(request.sequences_max) + " full contexts can use (" +
             plain(Bytes(useful)) + ")";
  }
  const uint64_t pool_bytes = uint64_t{decision.pages.value} * request.page.value;
  decision.explanation = "page pool: " + plain(Bytes(pool_bytes)) + ", " +
                         std::to_string(decision.pages.value) + " pages of " + plain(request.page) +
                         " for " + std::to_string(uint64_t{decision.pages.value} * kPageTokens) +
                         " tokens, " + reason;
  if (decision.pages.value < kPagesMin) {
    return Error(ErrorCode::kResourceExhausted,
                 decision.explanation + ": that is less than the " + std::to_string(kPagesMin) +
                     " pages that a daemon needs; free memory, raise the control group's limit, or "
                     "set [memory] pool to at least " +
                     plain(Bytes(kPagesMin * request.page.value)));
  }
  if (decision.pages.value < context_pages) {
    decision.warning = "the pool holds " + std::to_string(decision.pages.value * kPageTokens) +
                       " tokens, less than the model's context of " +
                       std::to_string(request.context_tokens) +
                       "; longer requests are refused. Set [memory] pool to at least " +
                       plain(Bytes(context_pages * request.page.value)) + " to allow them";
  }
  return decision;
}

}  // namespace inferd::daemon
