#include "lab.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace inferd::isolation {

std::string difference(const Record& expected, const Record& actual) {
  if (expected == actual) return "equal";
  const auto part = [](std::string_view what, const auto& a, const auto& b) -> std::string {
    const size_t common = std::min(a.size(), b.size());
    for (size_t i = 0; i < common; ++i) {
      if (a[i] != b[i]) return std::string(what) + " " + std::to_string(i) + " differs; ";
    }
    if (a.size() == b.size()) return "";
    return std::string(what) + "s: " + std::to_string(a.size()) + " and " +
           std::to_string(b.size()) + "; ";
  };
  return part("row of logits", expected.rows, actual.rows) + part("id", expected.ids, actual.ids) +
         "first rows at " + std::to_string(expected.row_first) + " and " +
         std::to_string(actual.row_first) + ", ends '" +
         std::string(scheduler::finish_reason_name(expected.finish)) + "' and '" +
         std::string(scheduler::finish_reason_name(actual.finish)) + "'";
}

Result<std::unique_ptr<Lab>> Lab::create(const LabOptions& options) {
  auto lab = std::unique_ptr<Lab>(new Lab());
  lab->options_ = options;
  if (lab->options_.step_logits == 0) lab->options_.step_logits = options.step_tokens;
  engine::EngineOptions engine_options;
  engine_options.threads = options.threads;
  engine_options.isa = options.isa;
  engine_options.step_tokens_max = options.step_tokens;
  engine_options.step_logits_max = lab->options_.step_logits;
  INFERD_ASSIGN(lab->model_, engine::load_model(options.model, engine_options));
  const uint32_t context = lab->model_->info().context_tokens;
  const uint32_t full = options.sequences * memory::pages_for_tokens(context).value;
  engine_options.pages = PageCount(options.pages == 0 ? full : options.pages);
  INFERD_ASSIGN(lab->engine_, lab->model_->start(engine_options));
  lab->memory_ = std::make_unique<memory::PagedMemory>(
      memory::MemoryConfig{.pages = engine_options.pages,
                           .sequences_max = options.sequences,
                           .sequence_tokens_max = context,
                           .tier_slots = options.tier_slots});
  if (options.tier_slots > 0) {
    lab->tier_ = std::make_unique<RamTier>(*lab->engine_, options.tier_lose_every);
    lab->memory_->set_tier(lab->tier_.get());
  }
  scheduler::SchedulerConfig config;
  config.step_tokens = options.step_tokens;
  config.step_logits = lab->options_.step_logits;
  config.context_tokens = context;
  config.queue_max = 256;
  INFERD_TRY(scheduler::check_config(config, *lab->memory_));
  lab->scheduler_ =
      std::make_unique<scheduler::Scheduler>(config, *lab->memory_, lab->clock_);
  lab->sampler_ = std::make_unique<engine::Sampler>(lab->info().vocabulary);
  return lab;
}

std::vector<Record> Lab::run(std::span<const Job> jobs) {
  std::vector<Record> records(jobs.size());
  uint32_t arrivals_left = static_cast<uint32_t>(jobs.size());
  for (uint32_t now = 0; arrivals_left > 0 || !scheduler_->idle(); ++now) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (jobs[i].arrive_step == now) {
        submit(jobs, i);
        --arrivals_left;
      }
      if (jobs[i].cancel_step == now && scheduler_->cancel(SequenceId(sequence_base_ + i))) {
        records[i].finish = scheduler::FinishReason::kCancelled;
      }
    }
    step(jobs, now, records);
  }
  INFERD_CHECK(scheduler_->verify().ok() && memory_->pool().counts().live().value == 0);
  sequence_base_ += jobs.size();
  return records;
}

std::vector<Record> Lab::run_alone(std::span<const Job> jobs) {
  std::vector<Record> records;
  for (const Job& job : jobs) records.push_back(run({&job, 1})[0]);
  return records;
}

void Lab::refresh_pages() {
  std::array<PageId, 64> pages;
  size_t count;
  do {
    count = memory_->pool().give_back(PageCount(0), pages);
    for (size_t i = 0; i < count; ++i) engine_->page_released(pages[i]);
  } while (count == pages.size());
}

void Lab::submit(std::span<const Job> jobs, size_t index) {
  const Job& job = jobs[index];
  scheduler::Request request;
  // A family is of one user. Parents come before their children.
  size_t oldest = index;
  while (jobs[oldest].parent < oldest) oldest = jobs[oldest].parent;
  if (oldest != index) request.parent = SequenceId(sequence_base_ + job.parent);
  request.sequence = SequenceId(sequence_base_ + index);
  request.session = SessionId(1 + oldest % 4);
  request.user = UserId(1000 + static_cast<uint32_t>(oldest % 3));
  request.prompt = job.prompt;
  request.max_tokens = job.max_tokens;
  request.score = job.score;
  request.domain = job.domain;
  const Result<void> accepted = scheduler_->submit(request);
  INFERD_CHECK(accepted.ok());
}

void Lab::drop_cached() {
  memory_->drop_cached(UINT32_MAX, UINT32_MAX);
  make_stores();
}

void Lab::make_stores() {
  for (const memory::PageStore& store : memory_->stores()) tier_->store(store.slot, store.page);
  memory_->stores().clear();
}

void Lab::announce_pages() {
  std::array<PageId, 64> pages;
  size_t count;
  do {
    count = memory_->pool().drain_taken(pages);
    for (size_t i = 0; i < count; ++i) engine_->page_taken(pages[i]);
  } while (count == pages.size());
}

void Lab::keep_rows(const scheduler::BatchItem& item, std::span<const float> rows,
                    Record& record) const {
  const uint32_t first =
      item.position_first + static_cast<uint32_t>(item.tokens.size()) - item.logits_count;
  if (record.rows.empty()) record.row_first = first;
  // A position is asked for once, whatever happened in between.
  INFERD_CHECK(record.row_first + record.rows.size() == first);
  const size_t width = rows.size() / item.logits_count;
  for (uint32_t i = 0; i < item.logits_count; ++i) {
    record.rows.push_back(XXH3_64bits(rows.data() + i * width, width * sizeof(float)));
  }
}

void Lab::step(std::span<const Job> jobs, uint32_t step, std::vector<Record>& records) {
  scheduler::StepBudget budget = scheduler_->step_budget();
  budget.chunk_tokens_max = options_.chunk_tokens;
  const bool work = scheduler_->plan(budget, plan_);
  make_stores();
  if (!work) return;
  announce_pages();
  for (const scheduler::PageLoad& load : plan_.loads) tier_->load(load.slot, load.page);
  if (on_plan) on_plan(plan_, step);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].cancel_in_flight && jobs[i].cancel_step == step + 1 &&
        scheduler_->cancel(SequenceId(sequence_base_ + i))) {
      records[i].finish = scheduler::FinishReason::kCancelled;
    }
  }
  std::span<const float> logits;
  if (!plan_.items.empty()) logits = engine_->run(plan_);
  const size_t vocabulary = info().vocabulary;
  sampled_.assign(plan_.items.size(), kNoToken);
  results_.assign(plan_.items.size(), {});
  size_t row = 0;
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const scheduler::BatchItem& item = plan_.items[i];
    const size_t job = index_of(item.sequence);
    if (item.logits_count == 0) continue;
    const auto rows = logits.subspan(row * vocabulary, item.logits_count * vocabulary);
    row += item.logits_count;
    keep_rows(item, rows, records[job]);
    // A score request has rows in mid-prompt too; its next token is drawn after the last one alone.
    const std::span<const TokenId> history = scheduler_->tokens(item.sequence);
    if (item.position_first + item.tokens.size() < history.size() || history.empty()) continue;
    sampled_[i] =
        sampler_->sample(rows.last(vocabulary), jobs[job].sampling, {}, history, history.size(), {})
            .token;
    results_[i].tokens = std::span(&sampled_[i], 1);
  }
  INFERD_CHECK(row == plan_.logits_count);
  for (const scheduler::SequenceEvent& event : scheduler_->commit(results_)) {
    Record& record = records[index_of(event.sequence)];
    record.ids.insert(record.ids.end(), event.tokens.begin(), event.tokens.end());
    record.finish = event.finish;
    record.preemptions = event.stats.preemptions;
    record.loaded_tokens = event.stats.loaded_tokens;
    record.cached_tokens = event.stats.cached_tokens;
  }
#ifdef INFERD_VERIFY
  INFERD_CHECK(scheduler_->verify().ok());
#endif
}

}  // namespace inferd::isolation
