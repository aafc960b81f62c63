// The composition: model, memory, scheduler, engine thread, listeners, signals, service manager.
// Owner: main(). The thread that calls start() and run() is the control thread; the engine thread is
// made and joined here. Everything else in this folder is told what it needs and knows nothing of this.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <memory>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "daemon/client_listener.h"
#include "daemon/command_line.h"
#include "daemon/config.h"
#include "daemon/control_server.h"
#include "daemon/control_service.h"
#include "daemon/cache_domains.h"
#include "daemon/disk_tier.h"
#include "daemon/engine_mailbox.h"
#include "daemon/memory_pressure.h"
#include "daemon/model_loading.h"
#include "daemon/runtime_dir.h"
#include "daemon/step_loop.h"
#include "daemon/tier_index.h"
#include "engine/engine.h"
#include "memory/paged_memory.h"
#include "scheduler/scheduler.h"

namespace inferd::daemon {

class Daemon final : private StepLoopObserver, private ControlHost {
 public:
  Daemon(Config config, CommandLine command_line);
  ~Daemon() override;

  // Takes the runtime directory, loads the model, sizes the pool, opens the sockets, and says READY.
  // Blocks until then. An empty optional: a signal asked to end meanwhile.
  Result<std::optional<bool>> start();
  // Serves until a signal or a drain ends it.
  Result<void> run();

 private:
  // StepLoopObserver, on the engine thread.
  void on_session_ended(SessionId session, const Error& reason) override;
  void on_tier_trouble(const Error& error) override;
  // ControlHost, on the control thread.
  void start_drain() override;
  Result<ReloadReport> reload() override;
  void change_log_level(std::string_view level) override;
  const CacheDomains& cache_domains() const override { return cache_domains_; }

  Result<std::optional<LoadedEverything>> load_with_progress();
  Result<void> make_engine(LoadedEverything loaded);
  Result<void> open_tier();
  void keep_cache();
  Result<void> open_sockets();
  StepLoopLimits loop_limits(const Config& config) const;
  void wait_for_signal();
  void on_signal(int number);
  void shut_down(std::optional<int64_t> deadline_ns);
  void feed_watchdog();
  void watch_memory();
  void relieve_memory();
  void extend_stop_timeout();
  Result<ReloadReport> read_config_again();

  Config config_;
  const CommandLine command_line_;
  MonotonicClock clock_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer watchdog_timer_;
  boost::asio::steady_timer stop_timer_;

  std::optional<RuntimeDir> runtime_dir_;
  engine::ModelInfo model_info_;
  LoadedEverything loaded_;
  std::unique_ptr<engine::Engine> engine_;
  std::optional<EngineMailbox> mailbox_;
  CacheDomains cache_domains_;
  std::string tier_directory_;
  UniqueFd tier_lock_;
  std::optional<TierIndex> kept_;   // from the start on, until it is put back
  std::unique_ptr<DiskTier> tier_;  // its thread rings the mailbox
  std::unique_ptr<memory::PagedMemory> memory_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  std::unique_ptr<StepLoop> loop_;
  std::thread engine_thread_;
  std::unique_ptr<ClientListener> clients_;
  std::unique_ptr<ControlService> control_service_;
  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<MemoryPressure> pressure_;

  uint32_t stop_signals_ = 0;
  bool serving_ = false;
  bool stopping_ = false;
};

}  // namespace inferd::daemon
