#include "scheduler/quotas.h"

#include <algorithm>

#include "scheduler/admission.h"

namespace inferd::scheduler {

namespace {

constexpr double kSecondNs = 1e9;
// With so many buckets, those of who was away for an hour go first: they have run dry.
constexpr size_t kBucketsKept = 1024;
constexpr int64_t kForgottenAfterNs = 3600ll * 1'000'000'000;

std::string limit_name(std::string_view prefix, std::string_view what) {
  return "[limits] " + std::string(prefix) + "_" + std::string(what);
}

Error over(ErrorCode code, std::string_view who, const std::string& has, const std::string& limit,
           uint64_t allowed, const std::string& advice) {
  return Error(code, std::string(who) + " " + has + ", and " + limit + " allows " +
                         format_count(allowed) + ": " + advice);
}

}  // namespace

Result<void> check_quota(const Quota& quota, const Holdings& held, uint64_t pages,
                         std::string_view who, std::string_view prefix) {
  if (quota.sequences != 0 && held.sequences >= quota.sequences) {
    return over(ErrorCode::kUnavailable, who, "has " + format_count(held.sequences) + " requests",
                limit_name(prefix, "sequences"), quota.sequences, "wait until one has ended");
  }
  if (quota.queue != 0 && held.queue >= quota.queue) {
    return over(ErrorCode::kUnavailable, who,
                "has " + format_count(held.queue) + " requests that wait",
                limit_name(prefix, "queue"), quota.queue, "wait until one has begun");
  }
  if (quota.pages != 0 && pages > quota.pages) {
    return over(ErrorCode::kResourceExhausted, who,
                "asks for up to " + format_count(pages) + " pages in one request",
                limit_name(prefix, "pages"), quota.pages, "shorten it, or ask for fewer tokens");
  }
  if (quota.pages != 0 && held.pages + pages > quota.pages) {
    return over(ErrorCode::kUnavailable, who,
                "has requests of up to " + format_count(held.pages) + " pages and asks for " +
                    format_count(pages) + " more",
                limit_name(prefix, "pages"), quota.pages,
                "wait until one has ended, or ask for fewer tokens");
  }
  return {};
}

Result<void> check_rate(int64_t wait_ns, uint32_t tokens_per_s, std::string_view who,
                        std::string_view prefix) {
  if (wait_ns <= 0) return {};
  const auto seconds = static_cast<uint64_t>(static_cast<double>(wait_ns) / kSecondNs) + 1;
  return over(ErrorCode::kUnavailable, who,
              "had more tokens computed than " + format_count(TokenRates::kBurstSeconds) +
                  " seconds' worth",
              limit_name(prefix, "tokens_per_s"), tokens_per_s,
              "try again in " + format_count(seconds) + " s");
}

double TokenRates::left(const Bucket& bucket, uint32_t tokens_per_s, int64_t now_ns) {
  const double seconds = static_cast<double>(now_ns - bucket.at_ns) / kSecondNs;
  return std::max(0.0, bucket.tokens - seconds * tokens_per_s);
}

void TokenRates::open(uint64_t who, int64_t now_ns) {
  if (buckets_.size() >= kBucketsKept) {
    std::erase_if(buckets_, [&](const auto& entry) {
      return now_ns - entry.second.at_ns > kForgottenAfterNs;
    });
  }
  buckets_.try_emplace(who, Bucket{0, now_ns});
}

void TokenRates::charge(uint64_t who, uint32_t tokens, uint32_t tokens_per_s, int64_t now_ns) {
  const auto found = buckets_.find(who);
  if (found == buckets_.end()) return;  // it was submitted while there was no limit
  found->second.tokens = left(found->second, tokens_per_s, now_ns) + tokens;
  found->second.at_ns = now_ns;
}

int64_t TokenRates::wait_ns(uint64_t who, uint32_t tokens_per_s, int64_t now_ns) const {
  const auto found = buckets_.find(who);
  if (found == buckets_.end() || tokens_per_s == 0) return 0;
  const double surplus =
      left(found->second, tokens_per_s, now_ns) - static_cast<double>(kBurstSeconds) * tokens_per_s;
  return surplus <= 0 ? 0 : static_cast<int64_t>(surplus / tokens_per_s * kSecondNs) + 1;
}

}  // namespace inferd::scheduler
