// inferd-bench memory: what the prefix index costs when it is full.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/prng.h"
#include "bench/command.h"
#include "bench/options.h"
#include "bench/statistics.h"
#include "memory/paged_memory.h"

namespace inferd::bench {

namespace {

using Clock = std::chrono::steady_clock;
using memory::PagedMemory;

constexpr CacheDomain kDomain{1};
constexpr uint32_t kBeginnings = 64;  // that the short prefixes share
constexpr uint32_t kBeginningPages = 4;
constexpr uint32_t kShortPages = 2;  // of a short prefix's own

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Tokens that follow from the number alone.
void append_tokens(std::vector<TokenId>& tokens, uint64_t number, uint32_t count) {
  Prng prng(number);
  for (uint32_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(prng.below(100'000)));
}

class FilledIndex {
 public:
  FilledIndex(uint32_t pages, uint32_t prompt_tokens)
      : memory_({.pages = PageCount(pages),
                 .sequences_max = 2,
                 .sequence_tokens_max = std::max(prompt_tokens, 1024u),
                 .hash_seed = 42}),
        prompt_tokens_(prompt_tokens) {}

  // Long ones as far as three quarters of the pool go, at most a tenth of all; then short ones.
  // Returns the number of long ones.
  uint32_t fill(uint32_t prefixes) {
    const uint32_t prompt_pages = prompt_tokens_ / kPageTokens;
    const uint32_t pages = memory_.pool().counts().total.value;
    const uint32_t long_ones =
        std::max(1u, std::min(prefixes / 10, pages / 4 * 3 / std::max(1u, prompt_pages)));
    std::vector<TokenId> tokens;
    for (uint32_t i = 0; i < long_ones; ++i) {
      tokens.clear();
      append_tokens(tokens, 1'000'000 + i, prompt_tokens_);
      compute(tokens);
    }
    for (uint32_t i = long_ones; i < prefixes; ++i) {
      tokens.clear();
      append_tokens(tokens, i % kBeginnings, kBeginningPages * kPageTokens);
      append_tokens(tokens, 2'000'000 + i, kShortPages * kPageTokens);
      compute(tokens);
    }
    return long_ones;
  }

  // Microseconds that each of `count` lookups took.
  std::vector<double> look_up(uint32_t long_ones, uint32_t count) {
    std::vector<double> times;
    std::vector<TokenId> tokens;
    std::vector<PageId> found;
    Prng prng(7);
    for (uint32_t i = 0; i < count; ++i) {
      tokens.clear();
      append_tokens(tokens, 1'000'000 + prng.below(long_ones), prompt_tokens_);
      const Clock::time_point start = Clock::now();
      const uint32_t matched = memory_.prefixes().lookup(kDomain, tokens, found);
      times.push_back(microseconds_since(start));
      INFERD_CHECK(matched == prompt_tokens_ / kPageTokens * kPageTokens);
    }
    return times;
  }

  // Microseconds a page, dropping everything.
  double drop_all() {
    const uint32_t cached = memory_.pool().counts().cached.value;
    const Clock::time_point start = Clock::now();
    INFERD_CHECK(memory_.drop_cached(UINT32_MAX, UINT32_MAX) == cached);
    return microseconds_since(start) / cached;
  }

  uint32_t cached_pages() const { return memory_.pool().counts().cached.value; }

 private:
  // A sequence comes, finds what there is, computes and offers the rest, and goes.
  void compute(const std::vector<TokenId>& tokens) {
    const uint32_t cached = memory_.prefixes().lookup(kDomain, tokens, pages_);
    memory::PageTable table = memory_.sequences().open(SequenceId(++sequences_), UserId(1));
    memory_.sequences().attach_prefix(table, pages_, cached);
    const auto left = static_cast<uint32_t>(tokens.size()) - cached;
    if (left > 0) {
      memory::Reservation reservation;
      INFERD_CHECK(memory_.reserve(table.pages_needed(left), reservation) ==
                   memory::ReserveStatus::kReserved);
      table.append(left, reservation);
      memory_.pool().forfeit(reservation);
    }
    for (uint32_t i = cached / kPageTokens; (i + 1) * kPageTokens <= tokens.size(); ++i) {
      const PageId kept = memory_.prefixes().insert(
          kDomain, i == 0 ? kNoPage : table.pages()[i - 1], table.pages()[i],
          std::span<const TokenId>(tokens).subspan(i * kPageTokens, kPageTokens));
      INFERD_CHECK(kept == table.pages()[i]);
    }
    memory_.sequences().close(table);
    std::vector<PageId> taken(64);
    while (memory_.pool().drain_taken(taken) == taken.size()) {
    }
  }

  PagedMemory memory_;
  const uint32_t prompt_tokens_;
  std::vector<PageId> pages_;
  uint64_t sequences_ = 0;
};

}  // namespace

Result<int> run_memory_command(Arguments arguments) {
  uint32_t pages = 1'000'000, tokens = 4000, lookups = 2000;
  std::vector<uint32_t> prefixes;
  bool json = false;
  Options options("memory", "the prefix index at size: lookups, inserts and drops");
  options.add("pages", &pages, "pages of the pool (default 1000000)");
  options.add("prefixes", &prefixes, "cached prefixes (default 1000,10000,100000)");
  options.add("tokens", &tokens, "tokens of a prompt that is looked up (default 4000)");
  options.add("lookups", &lookups, "lookups that are timed (default 2000)");
  options.add("json", &json, "print JSON: an array of rows");
  INFERD_ASSIGN(const bool go, options.parse(arguments));
  if (!go) return 0;
  if (prefixes.empty()) prefixes = {1000, 10'000, 100'000};
  const uint32_t most = *std::max_element(prefixes.begin(), prefixes.end());
  if (tokens < kPageTokens || tokens > 1'000'000 || lookups == 0 || most == 0 ||
      most > 100'000'000 || pages > 100'000'000 || pages / 4 < tokens / kPageTokens ||
      uint64_t{most} * (kShortPages + 1) + kBeginnings * kBeginningPages > pages / 4 * 3) {
    return Error(
        ErrorCode::kInvalidArgument,
        "the prefixes do not fit: --pages must be at least four times --tokens / 16, and four "
        "times --prefixes and a bit; --tokens at least 16");
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  if (!json)
    std::printf("%9s %9s %22s %12s %10s\n", "prefixes", "pages", "lookup us p50/p99",
                "fill us/page", "drop us/page");
  for (uint32_t count : prefixes) {
    FilledIndex index(pages, tokens);
    const Clock::time_point start = Clock::now();
    const uint32_t long_ones = index.fill(count);
    const double fill_us = microseconds_since(start) / index.cached_pages();
    const uint32_t cached = index.cached_pages();
    const std::vector<double> times = index.look_up(long_ones, lookups);
    const double drop_us = index.drop_all();
    const double p50 = percentile(times, 0.5), p99 = percentile(times, 0.99);
    rows.push_back({{"prefixes", count},
                    {"cached_pages", cached},
                    {"lookup_us", {{"p50", p50}, {"p99", p99}}},
                    {"fill_us_per_page", fill_us},
                    {"drop_us_per_page", drop_us}});
    if (!json)
      std::printf("%9u %9u %12.1f / %7.1f %12.2f %10.2f\n", count, cached, p50, p99, fill_us,
                  drop_us);
  }
  if (json) std::puts(rows.dump(2).c_str());
  return 0;
}

}  // namespace inferd::bench
