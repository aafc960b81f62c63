// A ControlService over a real step loop with a fake engine, and a host that notes what it is
// asked. Owner: tests/unit/daemon.
#pragma once

#include <boost/asio/io_context.hpp>

#include <string>
#include <vector>

#include "daemon/control_service.h"
#include "tests/unit/daemon/loop_fixture.h"

namespace inferd::daemon {

class FakeHost final : public ControlHost {
 public:
  void start_drain() override { ++drains; }
  Result<ReloadReport> reload() override {
    if (!mistake.empty()) return Error(ErrorCode::kInvalidArgument, mistake);
    ReloadReport report;
    report.applied.push_back({"limits.connections", "1", "2", true});
    report.needs_restart.push_back({"scheduler.queue", "3", "4", false});
    return report;
  }
  void change_log_level(std::string_view level) override { levels.emplace_back(level); }
  const CacheDomains& cache_domains() const override { return domains; }

  CacheDomains domains;

  int drains = 0;
  std::string mistake;
  std::vector<std::string> levels;
};

inline constexpr uint32_t kAdmin = 500;

struct ControlFixture {
  explicit ControlFixture(UserId admin = UserId(kAdmin))
      : service(io, engine.mailbox, engine.clock, host, {model()}, admin) {}

  static engine::ModelInfo model() {
    engine::ModelInfo info;
    info.name = "fake";
    info.path = "/models/fake.gguf";
    info.file_tensor_bytes = Bytes(1000);
    return info;
  }
  // Lets both threads' work happen, in this one.
  void pump() {
    for (int round = 0; round < 3; ++round) {
      io.restart();
      io.poll();
      engine.clock.advance_ns(1'000'000);
      engine.loop->turn(false);
    }
    io.restart();
    io.poll();
  }

  LoopFixture engine;
  boost::asio::io_context io;
  FakeHost host;
  ControlService service;
};

}  // namespace inferd::daemon
