#include "bench/roofline.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"

namespace inferd::bench {
namespace {

constexpr int64_t kMeasureNs = 100'000'000;
constexpr uint64_t kIterations = 20'000;  // between two looks at the clock: tens of microseconds

// Runs `work(thread)`, which returns the units it did, over and over on every thread for kMeasureNs
// after all have started; returns units per second, all threads together.
double rate_of(uint32_t threads, const std::function<double(uint32_t)>& work) {
  const MonotonicClock clock;
  std::barrier start(static_cast<ptrdiff_t>(threads));
  std::vector<double> rates(threads);
  const auto body = [&](uint32_t thread) {
    work(thread);  // warm: page tables, frequency
    start.arrive_and_wait();
    const int64_t begin_ns = clock.now_ns();
    double units = 0;
    int64_t elapsed_ns = 0;
    while (elapsed_ns < kMeasureNs) {
      units += work(thread);
      elapsed_ns = clock.now_ns() - begin_ns;
    }
    rates[thread] = units * 1e9 / static_cast<double>(elapsed_ns);
  };
  std::vector<std::jthread> others;
  for (uint32_t thread = 1; thread < threads; ++thread) others.emplace_back(body, thread);
  body(0);
  others.clear();  // joins
  double sum = 0;
  for (double rate : rates) sum += rate;
  return sum;
}

double peak_of(uint32_t threads, const PeakKernel& kernel) {
  if (kernel.run == nullptr) return 0;
  return rate_of(threads, [&](uint32_t) {
    kernel.run(kIterations);
    return static_cast<double>(kernel.operations) * static_cast<double>(kIterations);
  });
}

double bandwidth_of(uint32_t threads, Bytes read_buffer) {
  const size_t share = static_cast<size_t>(read_buffer.value) / threads;
  std::vector<std::vector<uint8_t>> parts(threads);
  {
    std::vector<std::jthread> fillers;  // each part is touched first by a thread of its own
    for (std::vector<uint8_t>& part : parts) {
      fillers.emplace_back([&part, share] { part.assign(share, 1); });
    }
  }
  std::atomic<uint64_t> sink{0};
  return rate_of(threads, [&](uint32_t thread) {
    sink.fetch_add(read_bytes(parts[thread].data(), share), std::memory_order_relaxed);
    return static_cast<double>(share);
  });
}

}  // namespace

MachineFloor measure_floor(uint32_t threads, Bytes read_buffer) {
  INFERD_CHECK(threads > 0 && read_buffer.value >= (1u << 20));
  MachineFloor floor;
  floor.threads = threads;
  floor.read_buffer = read_buffer;
  floor.read_bytes_per_s = bandwidth_of(threads, read_buffer);
  floor.int8_ops_per_s = peak_of(threads, int8_peak_kernel());
  floor.f32_ops_per_s = peak_of(threads, f32_peak_kernel());
  floor.bf16_ops_per_s = peak_of(threads, bf16_peak_kernel());
  return floor;
}

}  // namespace inferd::bench
