// What one user, or one client, may have at a time, and how much of the processor over time.
// Owner: scheduler. Engine thread only. Must not know requests, pages or turns.
//
// A quota is looked at when a request is submitted: who is over it is refused, with the limit's
// name and what to do, and nobody else notices. What was accepted is never taken back for a quota. Cached
// pages are: those charged to a user who has more pages in all than the quota go, and nobody else's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/ids.h"
#include "base/result.h"

namespace inferd::scheduler {

// 0: no limit.
struct Quota {
  uint32_t sequences = 0;     // running and waiting
  uint32_t queue = 0;         // waiting
  uint32_t pages = 0;         // that its requests come to, each at its full length, sharing nothing
  uint32_t tokens_per_s = 0;  // computed, for prompts and answers; what the cache had costs nothing

  bool any_held() const { return sequences != 0 || queue != 0 || pages != 0; }
};

// What somebody has at this moment.
struct Holdings {
  uint64_t sequences = 0;
  uint64_t queue = 0;
  uint64_t pages = 0;

  void add(bool waiting, uint64_t request_pages) {
    ++sequences;
    queue += waiting ? 1 : 0;
    pages += request_pages;
  }
};

// Whether one more request, of `pages` pages, is within the quota. `who` begins the sentence ("user
// 1000", "this client"), `prefix` the limit's name in [limits] ("user", "client"). Errors:
// kResourceExhausted if it never can be; kUnavailable if it can be once others have ended.
Result<void> check_quota(const Quota& quota, const Holdings& held, uint64_t pages,
                         std::string_view who, std::string_view prefix);

// How fast each one goes: a bucket that runs dry at the quota's rate. Whoever has more in it than
// kBurstSeconds of the rate is over it.
class TokenRates {
 public:
  static constexpr uint32_t kBurstSeconds = 10;

  // Before anything is charged: makes sure that charge() will not allocate.
  void open(uint64_t who, int64_t now_ns);
  void charge(uint64_t who, uint32_t tokens, uint32_t tokens_per_s, int64_t now_ns);
  // How many it remembers.
  size_t size() const { return buckets_.size(); }
  // How long until another request may come; 0: now.
  int64_t wait_ns(uint64_t who, uint32_t tokens_per_s, int64_t now_ns) const;

 private:
  struct Bucket {
    double tokens = 0;
    int64_t at_ns = 0;
  };
  static double left(const Bucket& bucket, uint32_t tokens_per_s, int64_t now_ns);

  // Looked up, and walked only to drop who was not seen for long.
  std::unordered_map<uint64_t, Bucket> buckets_;
};

// As check_quota(), for the rate.
Result<void> check_rate(int64_t wait_ns, uint32_t tokens_per_s, std::string_view who,
                        std::string_view prefix);

}  // namespace inferd::scheduler
