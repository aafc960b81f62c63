#include "daemon/daemon.h"

#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <boost/asio/post.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <random>

#include "base/units.h"
#include "daemon/kept_cache.h"
#include "daemon/logging.h"
#include "daemon/pool_sizing.h"

namespace inferd::daemon {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kMillisecondNs = 1'000'000;
// While loading or draining, the service manager is asked for so much more time, and asked again
// twice as often.
constexpr seconds kExtension{20};
// Requests may wait, but not for nothing: see StepLoop::stuck_for_ns().
constexpr int64_t kStuckNs = 30'000 * kMillisecondNs;
constexpr uint64_t kTierSlotsMax = 1ull << 30;

void notify(const std::string& state) { ::sd_notify(0, state.c_str()); }

std::string extension() {
  return "EXTEND_TIMEOUT_USEC=" +
         std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(kExtension).count());
}

std::string in_seconds(int64_t ns) {
  const int64_t tenths = ns / (100 * kMillisecondNs);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

Daemon::Daemon(Config config, CommandLine command_line)
    : config_(std::move(config)), command_line_(std::move(command_line)),
      signals_(io_, SIGTERM, SIGINT, SIGHUP), watchdog_timer_(io_), stop_timer_(io_) {}

Daemon::~Daemon() {
  if (engine_thread_.joinable()) {
    mailbox_->post([](StepLoop& loop) { loop.stop(); });
    engine_thread_.join();
  }
}

// ---- start ----

Result<std::optional<bool>> Daemon::start() {
  wait_for_signal();
  INFERD_ASSIGN(RuntimeDir dir, RuntimeDir::open({config_.daemon.runtime_dir, config_.daemon.access,
                                                  config_.daemon.group}));
  runtime_dir_.emplace(std::move(dir));
  INFERD_ASSIGN(std::optional<LoadedEverything> loaded, load_with_progress());
  if (!loaded) return std::optional<bool>();
  INFERD_TRY(make_engine(std::move(*loaded)));
  INFERD_TRY(open_sockets());
  serving_ = true;
  log_info("ready: serving '" + model_info_.name + "' on " +
               runtime_dir_->socket_path(kClientSocketName),
           {{"INFERD_MODEL", model_info_.name}});
  notify("READY=1\nSTATUS=Serving " + model_info_.name);
  return std::optional<bool>(true);
}

Result<std::optional<LoadedEverything>> Daemon::load_with_progress() {
  const std::string& path = config_.models.front().path;
  log_info("loading " + path);
  notify("STATUS=Loading " + path + "\n" + extension());
  const int64_t start_ns = clock_.now_ns();
  auto loading = std::async(std::launch::async, load_everything, std::cref(config_));
  seconds said{0};
  while (loading.wait_for(milliseconds(100)) != std::future_status::ready) {
    io_.restart();
    io_.poll();
    if (stop_signals_ > 0) {
      // Reading cannot be interrupted, and nobody depends on it yet.
      log_info("ended while loading the model");
      runtime_dir_.reset();
      std::_Exit(0);
    }
    const seconds waited{(clock_.now_ns() - start_ns) / 1'000'000'000};
    if (waited < said + seconds(5)) continue;
    said = waited;
    log_info("still loading after " + std::to_string(waited.count()) + " s");
    notify("STATUS=Loading " + path + " for " + std::to_string(waited.count()) + " s\n" +
           extension());
  }
  Result<LoadedEverything> loaded = loading.get();
  if (!loaded) return loaded.error();
  model_info_ = loaded->model->info();
  if (!config_.models.front().name.empty()) model_info_.name = config_.models.front().name;
  log_info("loaded '" + model_info_.name + "' in " + in_seconds(clock_.now_ns() - start_ns) + ": " +
           model_info_.architecture + ", " + model_info_.quantization + ", " +
           std::to_string(model_info_.parameters) + " parameters, context of " +
           std::to_string(model_info_.context_tokens) + " tokens, weights " +
           format_bytes(model_info_.weight_bytes));
  return std::optional<LoadedEverything>(std::move(*loaded));
}

Result<void> Daemon::make_engine(LoadedEverything loaded) {
  loaded_ = std::move(loaded);
  INFERD_ASSIGN(const MachineMemory machine, read_machine_memory(""));
  PoolRequest request;
  request.configured = config_.memory.pool;
  request.page = model_info_.page_bytes;
  request.weights = model_info_.weight_bytes;
  request.context_tokens = model_info_.context_tokens;
  request.sequences_max = config_.scheduler.max_sequences;
  INFERD_ASSIGN(const PoolDecision pool, decide_pool(request, machine));
  log_info(pool.explanation, {{"INFERD_POOL_PAGES", std::to_string(pool.pages.value)}});
  if (!pool.warning.empty()) log_warn(pool.warning);

  engine::EngineOptions options;
  options.threads = config_.cpu.threads;
  options.isa = config_.cpu.isa;
  options.pages = pool.pages;
  options.step_tokens_max = config_.scheduler.step_tokens;
  options.step_logits_max = config_.scheduler.max_sequences;
  INFERD_ASSIGN(engine_, loaded_.model->start(options));
  INFERD_ASSIGN(EngineMailbox mailbox, EngineMailbox::create());
  mailbox_.emplace(std::move(mailbox));
  INFERD_ASSIGN(cache_domains_, CacheDomains::resolve(config_.cache_domains));
  INFERD_TRY(open_tier());
  const uint64_t tier_slots =
      tier_ == nullptr ? 0 : config_.memory.disk.value / model_info_.page_bytes.value;
  memory_ = std::make_unique<memory::PagedMemory>(memory::MemoryConfig{
      .pages = pool.pages,
      .sequences_max = config_.scheduler.max_sequences,
      .sequence_tokens_max = model_info_.context_tokens,
      .tier_slots = static_cast<uint32_t>(tier_slots),
      .hash_seed = (uint64_t{std::random_device()()} << 32) | std::random_device()()});
  memory_->set_tier(tier_.get());
  if (kept_) {
    const Restored restored = restore_kept(
        *kept_, cache_domains_, config_.limits.user_pinned_pages, memory_->prefixes(), *tier_);
    log_info("cached pages of the last run: " + std::to_string(restored.pages) +
             " found on disk, " + std::to_string(restored.pinned) + " of them pinned");
    if (restored.not_pinned > 0) {
      log_warn("not pinned any more, for [limits] user_pinned_pages allows less than before: " +
               std::to_string(restored.not_pinned) + " pages");
    }
    kept_.reset();
  }
  scheduler::SchedulerConfig scheduling;
  scheduling.step_tokens = config_.scheduler.step_tokens;
  scheduling.step_logits = config_.scheduler.max_sequences;
  scheduling.context_tokens = model_info_.context_tokens;
  scheduling.queue_max = config_.scheduler.queue;
  scheduling.session_requests_max = config_.limits.sequences_per_session;
  scheduling.user_quota = loop_limits(config_).user_quota;
  scheduling.session_quota = loop_limits(config_).session_quota;
  scheduling.share_percent = {0, config_.scheduler.batch_share_percent,
                              config_.scheduler.idle_share_percent};
  INFERD_TRY(scheduler::check_config(scheduling, *memory_));
  scheduler_ = std::make_unique<scheduler::Scheduler>(scheduling, *memory_, clock_);
  INFERD_ASSIGN(loop_, StepLoop::create({*engine_, *scheduler_, *memory_, *mailbox_, clock_, *this,
                                         loaded_.end_of_generation, tier_.get()},
                                        loop_limits(config_)));
  return {};
}

// The file for pages that the pool has no room for, and what the last run left in it.
Result<void> Daemon::open_tier() {
  const char* managed = std::getenv("CACHE_DIRECTORY");
  tier_directory_ = config_.memory.disk_path;
  if (tier_directory_ == "auto") tier_directory_ = managed != nullptr ? managed : "";
  if (config_.memory.disk.value == 0) {
    // What an earlier configuration left there is nobody's any more.
    if (!tier_directory_.empty()) remove_unused(tier_directory_);
    return {};
  }
  if (tier_directory_.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "[memory] disk is set, but the service manager names no cache directory: set [memory] "
                 "disk_path to a directory for it");
  }
  const uint64_t slots = config_.memory.disk.value / model_info_.page_bytes.value;
  if (slots == 0 || slots > kTierSlotsMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "[memory] disk is " + format_bytes(config_.memory.disk) + ", and a page of this model takes " +
                     format_bytes(model_info_.page_bytes) + ": set it to between one and " +
                     std::to_string(kTierSlotsMax) + " pages");
  }
  if (!config_.memory.prefix_cache) {
    log_warn("[memory] disk is of no use with prefix_cache = false: only cached prefixes go there");
  }
  INFERD_ASSIGN(tier_lock_, take_tier_directory(tier_directory_));
  KeptIndex kept = take_kept_index(tier_directory_, model_info_);
  if (!kept.why.empty()) log_warn("cached pages of the last run are not used: " + kept.why);
  if (config_.memory.disk_keep) kept_ = std::move(kept.index);
  if (!kept_) remove_kept(tier_directory_);
  DiskTierOptions options;
  options.path = tier_directory_ + "/" + kTierFileName;
  options.keep_file = config_.memory.disk_keep;
  options.page_bytes = model_info_.page_bytes;
  options.slots = static_cast<uint32_t>(slots);
  options.buffers = config_.scheduler.step_tokens / kPageTokens + config_.scheduler.max_sequences;
  INFERD_ASSIGN(tier_, DiskTier::open(options, clock_, [this] { mailbox_->post([](StepLoop&) {}); }));
  log_info("disk for pages: " + format_bytes(config_.memory.disk) + " in " + options.path + ", " +
           std::to_string(slots) + " pages");
  return {};
}

// After the engine thread has ended.
void Daemon::keep_cache() {
  if (tier_ == nullptr || !config_.memory.disk_keep) return;
  notify(extension());
  loop_->store_cache();
  const TierIndex index = describe_kept(model_info_, cache_domains_, memory_->prefixes(), *tier_);
  Result<void> kept = tier_->sync();
  if (kept) kept = write_kept_index(tier_directory_, index);
  if (kept) {
    log_info("cached pages kept on disk for the next start: " + std::to_string(index.entries.size()));
  } else {
    log_warn("cached pages are not kept for the next start: " + kept.error().message());
  }
}

void Daemon::on_tier_trouble(const Error& error) {
  boost::asio::post(io_, [error] { log_warn(error.message()); });
}

StepLoopLimits Daemon::loop_limits(const Config& config) const {
  StepLoopLimits limits;
  limits.sequences_per_session = config.limits.sequences_per_session;
  limits.running_max = config.scheduler.max_sequences;
  limits.stall_timeout_ns = config.limits.stall_timeout_ms * kMillisecondNs;
  limits.itl_target_ns = config.scheduler.itl_target_ms * kMillisecondNs;
  limits.prefix_cache = config.memory.prefix_cache;
  limits.give_back_ns = config.memory.give_back_ms * kMillisecondNs;
  limits.cache_idle_ns = config.memory.cache_idle_ms * kMillisecondNs;
  limits.user_quota = {config.limits.user_sequences, config.limits.user_queue,
                       config.limits.user_pages, config.limits.user_tokens_per_s};
  limits.user_pinned_pages = config.limits.user_pinned_pages;
  limits.session_quota = {0, config.limits.client_queue, config.limits.client_pages,
                          config.limits.client_tokens_per_s};
  return limits;
}

Result<void> Daemon::open_sockets() {
  INFERD_ASSIGN(ActivatedSockets activated, take_activated_sockets());
  if (!activated.clients) {
    INFERD_ASSIGN(activated.clients, runtime_dir_->listen_clients());
  }
  if (!activated.control) {
    INFERD_ASSIGN(activated.control, runtime_dir_->listen_control());
  }
  WelcomeFacts facts;
  ipc::ModelInfo model;
  model.name = model_info_.name;
  model.architecture = model_info_.architecture;
  model.quantization = model_info_.quantization;
  model.numerics_id = model_info_.numerics_id;
  model.parameters = model_info_.parameters;
  model.vocabulary = model_info_.vocabulary;
  model.context_tokens = scheduler_->sequence_limit().tokens;
  model.bos_token = loaded_.bos;
  model.eos_token = loaded_.eos;
  model.has_chat_template = loaded_.has_chat_template;
  facts.models = {std::move(model)};
  facts.text_tables_fd = loaded_.text_tables.get();
  facts.text_tables_bytes = loaded_.text_tables_bytes;
  facts.running_max = config_.scheduler.max_sequences;
  INFERD_ASSIGN(facts.weights, UserWeights::resolve(config_.users));
  facts.cache_domains = cache_domains_;
  facts.admin = UserId(::geteuid());
  clients_ = std::make_unique<ClientListener>(io_, std::move(activated.clients), *mailbox_, clock_,
                                              std::move(facts), config_.limits);
  control_service_ = std::make_unique<ControlService>(
      io_, *mailbox_, clock_, static_cast<ControlHost&>(*this),
      std::vector<engine::ModelInfo>{model_info_},
      UserId(::geteuid()));
  control_ = std::make_unique<ControlServer>(io_, std::move(activated.control), *control_service_,
                                             config_.limits.control_connections);
  return {};
}

// ---- serve ----

Result<void> Daemon::run() {
  INFERD_CHECK(serving_);
  engine_thread_ = std::thread([this] {
    loop_->run();
    boost::asio::post(io_, [this] { io_.stop(); });
  });
  clients_->start();
  control_->start();
  feed_watchdog();
  watch_memory();
  if (stop_signals_ > 0) shut_down(clock_.now_ns());
  io_.restart();
  io_.run();
  engine_thread_.join();
  keep_cache();
  log_info("ended");
  // Descriptors close in the order of use: nobody is told of a session that is gone.
  clients_->close();
  control_->close();
  return {};
}

void Daemon::wait_for_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int number) {
    if (error) return;
    on_signal(number);
    wait_for_signal();
  });
}

void Daemon::on_signal(int number) {
  if (number == SIGHUP) {
    if (!serving_ || stopping_) {
      log_warn("no reload: the daemon is " + std::string(stopping_ ? "stopping" : "still starting"));
      return;
    }
    notify("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(clock_.now_ns() / 1000));
    static_cast<void>(reload().ok());  // the log has what came of it
    notify("READY=1");
    return;
  }
  ++stop_signals_;
  if (!serving_) return;  // load_with_progress() and run() look at the count
  if (stop_signals_ == 1) {
    log_info("stopping: running requests have " +
             in_seconds(config_.daemon.drain_timeout_ms * kMillisecondNs) +
             " to end; a second signal ends them now");
    shut_down(clock_.now_ns() + config_.daemon.drain_timeout_ms * kMillisecondNs);
  } else {
    log_info("stopping now");
    shut_down(clock_.now_ns());
  }
}

void Daemon::start_drain() {
  log_info("draining: no new requests; the daemon ends when the running ones have ended");
  shut_down(std::nullopt);
}

void Daemon::shut_down(std::optional<int64_t> deadline_ns) {
  clients_->refuse_new();
  mailbox_->post([deadline_ns](StepLoop& loop) { loop.begin_drain(deadline_ns); });
  if (stopping_) return;
  stopping_ = true;
  notify("STOPPING=1\nSTATUS=Finishing running requests");
  extend_stop_timeout();
}

void Daemon::extend_stop_timeout() {
  notify(extension());
  stop_timer_.expires_after(kExtension / 2);
  stop_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) extend_stop_timeout();
  });
}

void Daemon::feed_watchdog() {
  uint64_t timeout_us = 0;
  if (::sd_watchdog_enabled(0, &timeout_us) <= 0) return;
  // The engine answers between two steps: a step that hangs lets the watchdog bite. So does a scheduler that
  // finds nothing to do for those who wait.
  mailbox_->post([this](StepLoop& loop) {
    if (loop.stuck_for_ns() < kStuckNs) {
      notify("WATCHDOG=1");
    } else {
      const std::string seconds = in_seconds(loop.stuck_for_ns());
      boost::asio::post(io_, [seconds] {
        log_error("requests wait, but for " + seconds + " no step could be planned for any of them; this is a "
                  "fault of the daemon. inferctl verify may tell more, and inferctl ps who waits");
      });
    }
    boost::asio::post(io_, [this] {
      uint64_t period_us = 0;
      if (::sd_watchdog_enabled(0, &period_us) <= 0) return;
      watchdog_timer_.expires_after(std::chrono::microseconds(period_us / 3));
      watchdog_timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) feed_watchdog();
      });
    });
  });
}

void Daemon::watch_memory() {
  Result<PressureTrigger> trigger = open_pressure_trigger("");
  if (!trigger) {
    log_info("memory pressure is not watched: " + trigger.error().message());
    return;
  }
  log_debug("memory pressure is watched in " + trigger->path);
  pressure_ = std::make_unique<MemoryPressure>(io_, std::move(trigger->fd), [this] { relieve_memory(); });
}

void Daemon::relieve_memory() {
  mailbox_->post([this](StepLoop& loop) {
    const PageCount given = loop.relieve_memory();
    if (given.value == 0) return;
    boost::asio::post(io_, [this, given] {
      log_info("memory is short: gave " + format_bytes(Bytes(given.value * model_info_.page_bytes.value)) +
               " of cached and idle pages back");
    });
  });
}

void Daemon::on_session_ended(SessionId session, const Error& reason) {
  boost::asio::post(io_, [this, session, reason] { clients_->session_ended(session, reason); });
}

// ---- change ----

void Daemon::change_log_level(std::string_view level) {
  set_log_level(parse_log_level(level));
  log_info("log level is now " + std::string(level));
}

Result<ReloadReport> Daemon::reload() {
  const Result<ReloadReport> report = read_config_again();
  if (!report) {
    log_error("reload: " + report.error().message());
    return report;
  }
  for (const ConfigDifference& d : report->applied) {
    log_info("reload: " + d.key + " changes from " + d.from + " to " + d.to);
  }
  for (const ConfigDifference& d : report->needs_restart) {
    log_warn("reload: " + d.key + " stays " + d.from + "; " + d.to + " needs a restart");
  }
  if (report->applied.empty() && report->needs_restart.empty()) log_info("reload: no changes");
  return report;
}

Result<ReloadReport> Daemon::read_config_again() {
  std::string text;
  if (!command_line_.config_path.empty()) {
    INFERD_ASSIGN(text, read_config_file(command_line_.config_path));
  }
  std::vector<ConfigProblem> problems;
  const Config next =
      parse_config(text, command_line_.config_path, command_line_.overrides, problems);
  if (!problems.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "the configuration has mistakes, nothing was changed:\n" + format_problems(problems));
  }
  ReloadReport report;
  for (ConfigDifference& difference : config_differences(config_, next)) {
    (difference.reloadable ? report.applied : report.needs_restart).push_back(std::move(difference));
  }
  config_ = with_reloadable(config_, next);
  set_log_level(parse_log_level(config_.daemon.log_level));
  clients_->set_limits(config_.limits);
  control_->set_connections_max(config_.limits.control_connections);
  mailbox_->post([limits = loop_limits(config_)](StepLoop& loop) { loop.set_limits(limits); });
  return report;
}

}  // namespace inferd::daemon
