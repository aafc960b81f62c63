#include <algorithm>

#include "scheduler/policy.h"

namespace inferd::scheduler {

void FifoPolicy::order_running(std::span<Candidate> running) {
  std::sort(running.begin(), running.end(), [](const Candidate& a, const Candidate& b) {
    if (a.decode != b.decode) return a.decode;
    return a.arrival < b.arrival;
  });
}

uint32_t FifoPolicy::next_waiting(std::span<const Candidate>) { return 0; }

void FifoPolicy::served(const Service&) {}

}  // namespace inferd::scheduler
