#include "daemon/pressure.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace inferd::daemon {

void StallTime::add(int64_t from_ns, int64_t to_ns) {
  const int64_t begin_ns = std::max(from_ns, counted_until_ns_);
  if (begin_ns >= to_ns) return;
  counted_until_ns_ = to_ns;
  pending_ns_ += to_ns - begin_ns;
  line_.total_ns += static_cast<uint64_t>(to_ns - begin_ns);
}

void StallTime::roll(int64_t now_ns) {
  const int64_t passed_ns = now_ns - period_since_ns_;
  INFERD_DCHECK(passed_ns >= 0);
  if (passed_ns < kPeriodNs) return;
  const int64_t stalled_ns = std::min(pending_ns_, passed_ns);
  const double passed = static_cast<double>(passed_ns);
  const double share = static_cast<double>(stalled_ns) / passed;
  for (size_t i = 0; i < kPressureWindowsS.size(); ++i) {
    const double window_ns = static_cast<double>(kPressureWindowsS[i]) * 1e9;
    double& average = line_.averages[i];
    average = share + (average - share) * std::exp(-passed / window_ns);
  }
  pending_ns_ -= stalled_ns;
  period_since_ns_ = now_ns;
}

PressureMeter::PressureMeter(int64_t now_ns)
    : since_ns_(now_ns), pages_some_(now_ns), pages_full_(now_ns), compute_some_(now_ns),
      compute_full_(now_ns) {}

void PressureMeter::pass_time(int64_t now_ns) {
  if (pages_short_) pages_some_.add(since_ns_, now_ns);
  if (pages_blocked_) pages_full_.add(since_ns_, now_ns);
  if (compute_short_) compute_some_.add(since_ns_, now_ns);
  for (StallTime* line : {&pages_some_, &pages_full_, &compute_some_, &compute_full_}) {
    line->roll(now_ns);
  }
  since_ns_ = now_ns;
}

void PressureMeter::observe(int64_t now_ns, const scheduler::StepWaits& waits) {
  pass_time(now_ns);
  pages_short_ = waits.for_pages + waits.recomputing > 0;
  pages_blocked_ = pages_short_ && waits.computing == 0;
  compute_short_ = waits.for_turn > 0;
}

PressureFigures PressureMeter::figures(int64_t now_ns) const {
  PressureMeter now = *this;
  now.pass_time(now_ns);
  return {now.pages_some_.line(), now.pages_full_.line(), now.compute_some_.line(),
          now.compute_full_.line()};
}

}  // namespace inferd::daemon
