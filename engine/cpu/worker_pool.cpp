#include "engine/cpu/worker_pool.h"

#include <ctime>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace inferd::engine::cpu {

namespace {

constexpr uint32_t kUnitBits = 20;
constexpr uint64_t kUnitMask = (uint64_t{1} << kUnitBits) - 1;
constexpr uint32_t kGenerationMask = (1u << (64 - 2 * kUnitBits)) - 1;

uint64_t make_word(uint32_t generation, uint32_t count) {
  return (uint64_t{generation & kGenerationMask} << (2 * kUnitBits)) | (uint64_t{count} << kUnitBits);
}
uint32_t word_generation(uint64_t word) { return static_cast<uint32_t>(word >> (2 * kUnitBits)); }
uint32_t word_count(uint64_t word) { return static_cast<uint32_t>((word >> kUnitBits) & kUnitMask); }
uint32_t word_next(uint64_t word) { return static_cast<uint32_t>(word & kUnitMask); }

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

int64_t now_us() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

}  // namespace

WorkerPool::WorkerPool(uint32_t threads, uint32_t spin_us) : spin_us_(spin_us) {
  INFERD_CHECK(threads >= 1);
  workers_.reserve(threads - 1);
  for (uint32_t i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i] { work(i); });
  }
}

WorkerPool::~WorkerPool() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void WorkerPool::run_erased(uint32_t units, Function function, const void* context) {
  INFERD_CHECK(units < kUnitMask - 1024);
  if (units == 0) return;
  if (workers_.empty() || units == 1) {
    for (uint32_t unit = 0; unit < units; ++unit) function(context, unit, 0);
    return;
  }
  loop_.function.store(function, std::memory_order_relaxed);
  loop_.context.store(context, std::memory_order_relaxed);
  done_.value.store(0, std::memory_order_relaxed);
  const uint32_t generation = (generation_.load(std::memory_order_relaxed) + 1) & kGenerationMask;
  word_.value.store(make_word(generation, units), std::memory_order_release);
  // A worker sets itself sleeping, then looks at generation_ once more; this stores generation_, then
  // looks for sleepers. Both are sequentially consistent, so one of the two sees the other.
  generation_.store(generation);
  if (sleepers_.load() > 0) generation_.notify_all();
  take_units(0);
  while (done_.value.load(std::memory_order_acquire) != units) pause();
}

uint32_t WorkerPool::take_units(uint32_t thread) {
  for (;;) {
    const uint64_t word = word_.value.fetch_add(1, std::memory_order_acquire);
    if (word_next(word) >= word_count(word)) return word_generation(word);
    const Function function = loop_.function.load(std::memory_order_relaxed);
    const void* context = loop_.context.load(std::memory_order_relaxed);
    function(context, word_next(word), thread);
    done_.value.fetch_add(1, std::memory_order_release);
  }
}

void WorkerPool::work(uint32_t thread) {
  uint32_t seen = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    // Spin for a loop that is not the last one seen, then sleep for it.
    const int64_t deadline_us = now_us() + spin_us_;
    uint32_t spins = 0;
    while (generation_.load(std::memory_order_acquire) == seen) {
      pause();
      if (++spins % 64 == 0 && now_us() > deadline_us) {
        sleepers_.fetch_add(1);
        generation_.wait(seen);
        sleepers_.fetch_sub(1);
        break;
      }
    }
    if (stop_.load()) return;
    const uint32_t current = generation_.load(std::memory_order_acquire);
    if (current == seen) continue;
    seen = current;
    take_units(thread);
  }
}

}  // namespace inferd::engine::cpu
