// A real engine, scheduler, memory and sampler in one process, without daemon or clients: runs jobs
// to their end, and keeps of each what must not depend on its neighbours. Owner: tests/isolation.
// One thread. Must not know what a test compares.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/sampling/sampler.h"
#include "memory/paged_memory.h"
#include "ram_tier.h"
#include "scheduler/scheduler.h"

namespace inferd::isolation {

inline constexpr uint32_t kNever = UINT32_MAX;

// One sequence: what is asked, and when it comes and goes.
struct Job {
  std::vector<TokenId> prompt;
  uint32_t max_tokens = 8;
  engine::SamplingParams sampling;
  bool score = false;  // logits of every position of the prompt are kept, not of its last alone
  CacheDomain domain;  // whose cached prefixes it may use; 0: none
  uint32_t parent = kNever;  // the job that it was forked from, by its place among them; one that
                             // runs alone has none
  uint32_t arrive_step = 0;       // submitted before the step of this number
  uint32_t cancel_step = kNever;  // cancelled before the step of this number
  bool cancel_in_flight = false;  // cancelled while the step before cancel_step is computed
};

// What a job got. Rows are digests of the logits' bytes, one for each position that gave logits, in
// order.
struct Record {
  std::vector<TokenId> ids;
  std::vector<uint64_t> rows;
  uint32_t row_first = 0;  // position of rows[0]
  scheduler::FinishReason finish = scheduler::FinishReason::kNone;
  // No results: how it came about.
  uint32_t preemptions = 0;
  uint32_t loaded_tokens = 0;
  uint32_t cached_tokens = 0;

  bool operator==(const Record& other) const {
    return ids == other.ids && rows == other.rows && row_first == other.row_first &&
           finish == other.finish;
  }
};

// "equal", or where the two differ first, in words.
std::string difference(const Record& expected, const Record& actual);

struct LabOptions {
  std::string model = {};
  uint32_t threads = 1;
  std::string isa = "auto";
  uint32_t pages = 0;          // of the pool; 0: enough for all sequences at full length
  uint32_t sequences = 32;     // that run at once
  uint32_t step_tokens = 512;  // computed in one step
  uint32_t step_logits = 0;    // 0: step_tokens
  uint32_t chunk_tokens = 0;   // longest chunk of a prompt; 0: as the step allows
  uint32_t tier_slots = 0;       // pages that a next tier has room for; 0: there is none
  uint32_t tier_lose_every = 0;  // of what is asked of it, every so many is lost; 0: nothing
};

class Lab {
 public:
  // Errors: those of loading the model.
  static Result<std::unique_ptr<Lab>> create(const LabOptions& options);

  // Runs all jobs to their end and returns their records, in the jobs' order. The pages keep what
  // they held: the next run's sequences get them dirty, unless refresh_pages() was called.
  std::vector<Record> run(std::span<const Job> jobs);
  // The same, one job after the other.
  std::vector<Record> run_alone(std::span<const Job> jobs);
  // Gives the memory of all free pages back.
  void refresh_pages();

  // Called with each plan before it is computed, and its number.
  std::function<void(const scheduler::BatchPlan&, uint32_t step)> on_plan;

  const engine::ModelInfo& info() const { return engine_->info(); }
  engine::EngineCounters counters() const { return engine_->counters(); }
  const memory::PagePool& pool() const { return memory_->pool(); }
  scheduler::Scheduler& scheduler() { return *scheduler_; }
  // Pages that came back from the next tier.
  uint64_t tier_loads() const { return tier_ == nullptr ? 0 : tier_->loads; }
  memory::PrefixIndex& prefixes() { return memory_->prefixes(); }
  // Everything cached leaves the pool, for the next tier if there is one.
  void drop_cached();

 private:
  Lab() = default;
  void submit(std::span<const Job> jobs, size_t index);
  void step(std::span<const Job> jobs, uint32_t step, std::vector<Record>& records);
  void announce_pages();
  void make_stores();
  void keep_rows(const scheduler::BatchItem& item, std::span<const float> rows,
                 Record& record) const;
  size_t index_of(SequenceId sequence) const { return sequence.value - sequence_base_; }

  LabOptions options_;
  ManualClock clock_;
  std::unique_ptr<engine::LoadedModel> model_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<RamTier> tier_;
  std::unique_ptr<memory::PagedMemory> memory_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  std::unique_ptr<engine::Sampler> sampler_;
  scheduler::BatchPlan plan_;
  std::vector<TokenId> sampled_;
  std::vector<scheduler::ItemResult> results_;
  uint64_t sequence_base_ = 1;  // id of the run's first sequence
};

}  // namespace inferd::isolation
