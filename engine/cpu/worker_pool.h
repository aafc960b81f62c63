// Threads that run kernels: one parallel loop at a time, its units handed out as threads come free.
// Owner: the CPU backend. run() is called by the engine thread only. Must not know what a unit computes.
//
// How a unit finds its loop without a lock: one 64-bit word holds {generation, unit count, next unit}.
//  1. The caller writes the loop's function and argument, then stores a new word (release).
//  2. A thread takes a unit by fetch_add(1) on the word (acquire); generation and count come with it, so
//     what it decides belongs to one loop. next < count: the unit is its own.
//  3. The function and argument cannot change under it: the caller writes the next loop's only after every
//     unit of this one was counted as done, and this unit was not yet.
//  4. A thread that got next >= count waits for another generation. Such an excess fetch_add may fall
//     on a newer word; then it took a unit of the newer loop, by 2, and runs that.
// The caller waits for units, never for threads: a worker that the kernel has put aside between units delays
// nobody.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace inferd::engine::cpu {

class WorkerPool {
 public:
  // Starts threads - 1 workers (threads >= 1). They spin for spin_us between loops, then sleep.
  explicit WorkerPool(uint32_t threads, uint32_t spin_us = 50);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  uint32_t threads() const { return static_cast<uint32_t>(workers_.size()) + 1; }

  // Calls body(unit, thread) for each unit in [0, units), thread in [0, threads()), and returns when all
  // are done. Units may run in any order and at once. units < 2^20. Does not allocate.
  template <typename Body>
  void run(uint32_t units, const Body& body) {
    run_erased(units, [](const void* context, uint32_t unit, uint32_t thread) {
      (*static_cast<const Body*>(context))(unit, thread);
    }, &body);
  }

 private:
  using Function = void (*)(const void* context, uint32_t unit, uint32_t thread);

  void run_erased(uint32_t units, Function function, const void* context);
  void work(uint32_t thread);
  // Takes and runs units until the current loop has none left; returns the generation that was exhausted.
  uint32_t take_units(uint32_t thread);

  struct alignas(64) {
    std::atomic<uint64_t> value{0};
  } word_;
  struct alignas(64) {
    std::atomic<uint32_t> value{0};
  } done_;
  struct alignas(64) {
    std::atomic<Function> function{nullptr};
    std::atomic<const void*> context{nullptr};
  } loop_;
  alignas(64) std::atomic<uint32_t> generation_{0};  // what sleeping workers wait on
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  uint32_t spin_us_;
  std::vector<std::thread> workers_;
};

}  // namespace inferd::engine::cpu
