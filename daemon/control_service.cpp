#include "daemon/control_service.h"

#include <unistd.h>

#include <boost/asio/post.hpp>

#include <algorithm>
#include <array>
#include <memory>

#include "daemon/control_figures.h"
#include "daemon/control_errors.h"
#include "daemon/control_interface.h"
#include "daemon/metrics_text.h"
#include "daemon/step_loop.h"

namespace inferd::daemon {

namespace {

double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

Json json_of(const engine::ModelInfo& model) {
  return {{"name", model.name},
          {"path", model.path},
          {"architecture", model.architecture},
          {"quantization", model.quantization},
          {"parameters", model.parameters},
          {"context_tokens", model.context_tokens},
          {"file_bytes", model.file_tensor_bytes.value},
          {"weight_bytes", model.weight_bytes.value},
          {"page_bytes", model.page_bytes.value},
          {"numerics_id", model.numerics_id},
          {"content_id", model.content_id},
          {"loaded", true}};
}

Json json_of(const SequenceEntry& entry, const SessionFacts* session) {
  const scheduler::SequenceInfo& info = entry.info;
  return {{"id", info.sequence.value},
          {"session", info.session.value},
          {"pid", session != nullptr ? session->pid : 0},
          {"uid", info.user.value},
          {"client", session != nullptr ? session->client : std::string()},
          {"state", info.paused ? "paused" : std::string(sequence_state_name(info.state))},
          {"priority", std::string(priority_class_name(info.priority))},
          {"nice", info.nice},
          {"parent", info.parent.value},
          {"prompt_tokens", info.stats.prompt_tokens},
          {"computed_tokens", info.stats.computed_tokens},
          {"cached_tokens", info.stats.cached_tokens},
          {"generated_tokens", info.stats.generated_tokens},
          {"pages", info.pages.value},
          {"age_s", seconds(entry.age_ns)}};
}

Json json_of(const SessionEntry& entry) {
  return {{"id", entry.facts.id.value},   {"pid", entry.facts.pid},
          {"uid", entry.facts.user.value}, {"client", entry.facts.client},
          {"sequences", entry.sequences}, {"age_s", seconds(entry.age_ns)}};
}

Json json_of(const std::vector<ConfigDifference>& differences) {
  Json list = Json::array();
  for (const ConfigDifference& difference : differences) {
    list.push_back({{"key", difference.key}, {"from", difference.from}, {"to", difference.to}});
  }
  return list;
}

// Calls a reply exactly once, or with nothing for a oneway call.
ControlService::Reply oneway_reply(const ControlService::Reply& reply) {
  return [reply](std::string) { reply({}); };
}

}  // namespace

ControlService::ControlService(boost::asio::io_context& io, EngineMailbox& mailbox,
                               const Clock& clock, ControlHost& host,
                               std::vector<engine::ModelInfo> models, UserId admin)
    : io_(io), mailbox_(mailbox), clock_(clock), host_(host), models_(std::move(models)),
      admin_(admin), started_ns_(clock.now_ns()) {}

double ControlService::uptime_s() const { return seconds(clock_.now_ns() - started_ns_); }

const std::vector<ControlService::MethodSpec>& ControlService::methods() {
  static const std::vector<MethodSpec> kMethods{
      {"Status", &ControlService::status, false, {}},
      {"List", &ControlService::list, false, {}},
      {"Ps", &ControlService::ps, false, {}},
      {"Top", &ControlService::top, false, {}},
      {"Vmstat", &ControlService::vmstat, false, {}},
      {"Cancel", &ControlService::cancel, false, {"sequence"}},
      {"Renice", &ControlService::renice, false, {"sequence", "priority", "nice"}},
      {"CacheStat", &ControlService::cache_stat, false, {}},
      {"CacheFlush", &ControlService::cache_flush, false, {"domain"}},
      {"CachePin", &ControlService::cache_pin, false, {"tokens"}},
      {"CacheUnpin", &ControlService::cache_unpin, false, {}},
      {"Verify", &ControlService::verify, true, {}},
      {"Drain", &ControlService::drain, true, {}},
      {"Reload", &ControlService::reload, true, {}},
      {"LogLevel", &ControlService::log_level, true, {"level"}},
      {"Metrics", &ControlService::metrics, true, {}},
  };
  return kMethods;
}

void ControlService::handle(std::string_view message, UserId caller, const Reply& reply) {
  Result<ControlCall> parsed = parse_control_call(message);
  if (!parsed) {
    reply(control_error(Error(ErrorCode::kInvalidArgument, parsed.error().message())));
    return;
  }
  Call call;
  call.message = std::move(*parsed);
  call.caller = caller;
  call.privileged = is_privileged(caller);
  call.reply = call.message.oneway ? oneway_reply(reply) : reply;
  if (call.message.interface == kServiceInterface) {
    handle_service(call);
  } else if (call.message.interface == kControlInterface) {
    handle_control(call);
  } else {
    call.reply(service_error("InterfaceNotFound", {{"interface", call.message.interface}}));
  }
}

void ControlService::handle_service(const Call& call) {
  if (call.message.method == "GetInfo") {
    call.reply(encode_control_reply({{"vendor", "inferd"},
                                     {"product", "inferd"},
                                     {"version", INFERD_VERSION},
                                     {"url", ""},
                                     {"interfaces", {kServiceInterface, kControlInterface}}}));
    return;
  }
  if (call.message.method != "GetInterfaceDescription") {
    call.reply(service_error("MethodNotFound", {{"method", call.message.method}}));
    return;
  }
  const auto name = call.message.parameters.find("interface");
  if (name == call.message.parameters.end() || !name->is_string()) {
    call.reply(service_error("InvalidParameter", {{"parameter", "interface"}}));
  } else if (*name == kServiceInterface) {
    call.reply(encode_control_reply({{"description", kServiceInterfaceText}}));
  } else if (*name == kControlInterface) {
    call.reply(encode_control_reply({{"description", kControlInterfaceText}}));
  } else {
    call.reply(service_error("InterfaceNotFound", {{"interface", *name}}));
  }
}

void ControlService::handle_control(const Call& call) {
  const auto spec = std::find_if(methods().begin(), methods().end(), [&](const MethodSpec& m) {
    return m.name == call.message.method;
  });
  if (spec == methods().end()) {
    call.reply(service_error("MethodNotFound", {{"method", call.message.method}}));
    return;
  }
  for (const auto& [name, value] : call.message.parameters.items()) {
    const auto& taken = spec->parameters;
    if (std::find(taken.begin(), taken.end(), name) != taken.end()) continue;
    call.reply(service_error("InvalidParameter", {{"parameter", name}}));
    return;
  }
  if (spec->privileged && !call.privileged) {
    call.reply(control_error(Error(ErrorCode::kPermissionDenied,
                                   std::string(spec->name) +
                                       " is for root and the daemon's own user; try sudo")));
    return;
  }
  (this->*spec->method)(call);
}

void ControlService::with_snapshot(std::function<void(const EngineSnapshot&)> then) {
  mailbox_.post([&io = io_, then = std::move(then)](StepLoop& loop) {
    auto snapshot = std::make_shared<const EngineSnapshot>(loop.snapshot());
    boost::asio::post(io, [then, snapshot] { then(*snapshot); });
  });
}

void ControlService::with_accounts(
    std::function<void(const EngineSnapshot&, const AccountsSnapshot&)> then) {
  mailbox_.post([&io = io_, then = std::move(then)](StepLoop& loop) {
    auto snapshot = std::make_shared<const EngineSnapshot>(loop.snapshot());
    auto accounts = std::make_shared<const AccountsSnapshot>(loop.accounts());
    boost::asio::post(io, [then, snapshot, accounts] { then(*snapshot, *accounts); });
  });
}

void ControlService::status(const Call& call) {
  with_snapshot([this, call](const EngineSnapshot& snapshot) {
    const auto visible = [&](UserId user) { return call.privileged || user == call.caller; };
    uint64_t sequences = 0;
    uint64_t sessions = 0;
    for (const SequenceEntry& entry : snapshot.sequences) sequences += visible(entry.info.user);
    for (const SessionEntry& entry : snapshot.sessions) sessions += visible(entry.facts.user);
    Json models = Json::array();
    for (const engine::ModelInfo& model : models_) models.push_back(model.name);
    const memory::PageCounts& pages = snapshot.pages;
    const scheduler::SchedulerStats& stats = snapshot.scheduler;
    call.reply(encode_control_reply(
        {{"version", INFERD_VERSION},
         {"pid", ::getpid()},
         {"uptime_s", uptime_s()},
         {"models", models},
         {"pages",
          {{"total", pages.total.value},
           {"free", (pages.free + pages.reserved).value},
           {"live", pages.live().value},
           {"cached", pages.cached.value}}},
         {"disk",
          {{"slots", snapshot.disk.slots},
           {"used", snapshot.disk.used},
           {"pages_stored", snapshot.disk.counters.pages_stored},
           {"pages_loaded", snapshot.disk.counters.pages_loaded},
           {"pages_lost", snapshot.disk.counters.pages_lost},
           {"store_failures", snapshot.disk.counters.store_failures}}},
         {"sequences", sequences},
         {"sessions", sessions},
         {"tokens",
          {{"prompt", stats.prompt_tokens},
           {"computed", stats.computed_tokens},
           {"cached", stats.cached_tokens},
           {"generated", stats.generated_tokens}}}}));
  });
}

void ControlService::list(const Call& call) {
  Json models = Json::array();
  for (const engine::ModelInfo& model : models_) models.push_back(json_of(model));
  call.reply(encode_control_reply({{"models", models}}));
}

void ControlService::ps(const Call& call) {
  with_snapshot([call](const EngineSnapshot& snapshot) {
    const auto visible = [&](UserId user) { return call.privileged || user == call.caller; };
    Json sequences = Json::array();
    Json sessions = Json::array();
    for (const SequenceEntry& entry : snapshot.sequences) {
      if (!visible(entry.info.user)) continue;
      const auto session = std::find_if(
          snapshot.sessions.begin(), snapshot.sessions.end(),
          [&](const SessionEntry& s) { return s.facts.id == entry.info.session; });
      sequences.push_back(
          json_of(entry, session == snapshot.sessions.end() ? nullptr : &session->facts));
    }
    for (const SessionEntry& entry : snapshot.sessions) {
      if (visible(entry.facts.user)) sessions.push_back(json_of(entry));
    }
    call.reply(encode_control_reply({{"sequences", sequences}, {"sessions", sessions}}));
  });
}

void ControlService::top(const Call& call) {
  with_accounts([call](const EngineSnapshot& snapshot, const AccountsSnapshot& accounts) {
    const auto only = call.privileged ? std::nullopt : std::optional<UserId>(call.caller);
    call.reply(encode_control_reply(top_reply(snapshot, accounts, only)));
  });
}

void ControlService::vmstat(const Call& call) {
  with_snapshot([call](const EngineSnapshot& snapshot) {
    call.reply(encode_control_reply(vmstat_reply(snapshot)));
  });
}

void ControlService::cancel(const Call& call) {
  const auto id = call.message.parameters.find("sequence");
  if (id == call.message.parameters.end() || !id->is_number_unsigned()) {
    call.reply(service_error("InvalidParameter", {{"parameter", "sequence"}}));
    return;
  }
  const SequenceId sequence(id->get<uint64_t>());
  mailbox_.post([&io = io_, call, sequence](StepLoop& loop) {
    const auto only = call.privileged ? std::nullopt : std::optional<UserId>(call.caller);
    const Result<void> cancelled = loop.cancel_sequence(sequence, only);
    std::string message =
        cancelled ? encode_control_reply(Json::object()) : control_error(cancelled.error());
    boost::asio::post(io, [call, message = std::move(message)] { call.reply(message); });
  });
}

void ControlService::renice(const Call& call) {
  const Json& parameters = call.message.parameters;
  const auto refuse = [&](std::string_view name) {
    call.reply(service_error("InvalidParameter", {{"parameter", name}}));
  };
  const auto given = [&](const char* name) {
    const auto found = parameters.find(name);
    return found == parameters.end() || found->is_null() ? nullptr : &*found;
  };
  const Json* id = given("sequence");
  if (id == nullptr || !id->is_number_unsigned()) return refuse("sequence");
  StepLoop::Urgency urgency;
  if (const Json* priority = given("priority")) {
    if (!priority->is_string()) return refuse("priority");
    urgency.priority = scheduler::parse_priority_class(priority->get<std::string>());
    if (!urgency.priority) return refuse("priority");
  }
  if (const Json* nice = given("nice")) {
    if (!nice->is_number_integer()) return refuse("nice");
    const auto wanted = nice->get<int64_t>();
    if (wanted < scheduler::kNiceMin || wanted > scheduler::kNiceMax) return refuse("nice");
    urgency.nice = static_cast<int32_t>(wanted);
  }
  mailbox_.post([&io = io_, call, sequence = SequenceId(id->get<uint64_t>()),
                 urgency](StepLoop& loop) {
    const auto only = call.privileged ? std::nullopt : std::optional<UserId>(call.caller);
    const Result<StepLoop::Urgency> now = loop.renice_sequence(sequence, urgency, only);
    std::string message =
        now ? encode_control_reply({{"priority", std::string(priority_class_name(*now->priority))},
                                    {"nice", *now->nice}})
            : control_error(now.error());
    boost::asio::post(io, [call, message = std::move(message)] { call.reply(message); });
  });
}

void ControlService::verify(const Call& call) {
  mailbox_.post([&io = io_, call](StepLoop& loop) {
    const Result<void> verified = loop.verify();
    Json violations = Json::array();
    if (!verified) violations.push_back(verified.error().message());
    std::string message =
        encode_control_reply({{"ok", verified.ok()}, {"violations", violations}});
    boost::asio::post(io, [call, message = std::move(message)] { call.reply(message); });
  });
}

void ControlService::drain(const Call& call) {
  call.reply(encode_control_reply(Json::object()));
  host_.start_drain();
}

void ControlService::reload(const Call& call) {
  const Result<ReloadReport> report = host_.reload();
  if (!report) {
    call.reply(control_error(report.error()));
    return;
  }
  call.reply(encode_control_reply({{"applied", json_of(report->applied)},
                                   {"needs_restart", json_of(report->needs_restart)}}));
}

void ControlService::log_level(const Call& call) {
  static constexpr std::array<std::string_view, 6> kLevels{"trace", "debug", "info",
                                                           "warn",  "error", "off"};
  const auto level = call.message.parameters.find("level");
  const bool known = level != call.message.parameters.end() && level->is_string() &&
                     std::find(kLevels.begin(), kLevels.end(), level->get<std::string>()) !=
                         kLevels.end();
  if (!known) {
    call.reply(service_error("InvalidParameter", {{"parameter", "level"}}));
    return;
  }
  host_.change_log_level(level->get<std::string>());
  call.reply(encode_control_reply(Json::object()));
}

void ControlService::metrics(const Call& call) {
  with_accounts([this, call](const EngineSnapshot& snapshot, const AccountsSnapshot& accounts) {
    call.reply(encode_control_reply({{"text", metrics_text(snapshot, accounts, uptime_s())}}));
  });
}

}  // namespace inferd::daemon
