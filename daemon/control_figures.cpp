#include "daemon/control_figures.h"

#include <algorithm>
#include <string>

namespace inferd::daemon {

namespace {

double milliseconds(int64_t ns) { return static_cast<double>(ns) / 1e6; }

Json json_of(const TimeFigures& times) {
  return {{"count", times.count},
          {"mean_ms", milliseconds(times.mean_ns)},
          {"p50_ms", milliseconds(times.p50_ns)},
          {"p90_ms", milliseconds(times.p90_ns)},
          {"p99_ms", milliseconds(times.p99_ns)},
          {"max_ms", milliseconds(times.longest_ns)}};
}

Json json_of(const AccountFigures& figures) {
  const AccountSums& sums = figures.sums;
  return {{"requests",
           {{"accepted", sums.accepted},
            {"refused", sums.refused},
            {"finished", sums.finished},
            {"cancelled", sums.cancelled},
            {"overdue", sums.overdue},
            {"failed", sums.failed}}},
          {"tokens",
           {{"prompt", sums.prompt_tokens},
            {"cached", sums.cached_tokens},
            {"computed", sums.computed_tokens},
            {"recomputed", sums.recomputed_tokens},
            {"generated", sums.generated_tokens}}},
          {"hits", sums.hits},
          {"preemptions", sums.preemptions},
          {"sequences", figures.sequences},
          {"pages", figures.pages.value},
          {"pages_max", figures.pages_most.value},
          {"wait_s", static_cast<double>(sums.wait_ns) / 1e9},
          {"wait", json_of(figures.wait)},
          {"ttft", json_of(figures.ttft)},
          {"itl", json_of(figures.itl)}};
}

Json line_of(const char* resource, const char* kind, const PressureLine& line) {
  Json json = {{"resource", resource}, {"kind", kind}, {"total_us", line.total_ns / 1000}};
  for (size_t i = 0; i < kPressureWindowsS.size(); ++i) {
    json["avg" + std::to_string(kPressureWindowsS[i])] = line.averages[i] * 100;
  }
  return json;
}

Json json_of(const PressureFigures& pressure) {
  return Json::array({line_of("pages", "some", pressure.pages_some),
                      line_of("pages", "full", pressure.pages_full),
                      line_of("compute", "some", pressure.compute_some),
                      line_of("compute", "full", pressure.compute_full)});
}

}  // namespace

Json top_reply(const EngineSnapshot& snapshot, const AccountsSnapshot& accounts,
               std::optional<UserId> only_of_user) {
  const auto visible = [&](UserId user) { return !only_of_user || user == *only_of_user; };
  Json users = Json::array();
  for (const UserFigures& user : accounts.users) {
    if (!visible(user.user)) continue;
    users.push_back({{"uid", user.user.value},
                     {"sessions", user.sessions},
                     {"figures", json_of(user.figures)}});
  }
  Json sessions = Json::array();
  for (const SessionEntry& entry : snapshot.sessions) {
    if (!visible(entry.facts.user)) continue;
    const auto found = std::lower_bound(
        accounts.sessions.begin(), accounts.sessions.end(), entry.facts.id,
        [](const SessionFigures& session, SessionId id) { return session.session < id; });
    if (found == accounts.sessions.end() || found->session != entry.facts.id) continue;
    sessions.push_back({{"id", entry.facts.id.value},
                        {"pid", entry.facts.pid},
                        {"uid", entry.facts.user.value},
                        {"client", entry.facts.client},
                        {"figures", json_of(found->figures)}});
  }
  Json reply = {{"users", users}, {"sessions", sessions}, {"pressure", json_of(snapshot.pressure)}};
  if (!only_of_user) {
    reply["others"] = json_of(accounts.others.figures);
    reply["total"] = json_of(accounts.total);
  }
  return reply;
}

Json vmstat_reply(const EngineSnapshot& snapshot) {
  const scheduler::SchedulerStats& stats = snapshot.scheduler;
  const memory::PageCounts& pages = snapshot.pages;
  return {{"waiting", stats.waiting},
          {"running", stats.running},
          {"paused", stats.paused},
          {"pages",
           {{"total", pages.total.value},
            {"free", (pages.free + pages.reserved).value},
            {"live", pages.live().value},
            {"cached", pages.cached.value}}},
          {"steps", stats.steps},
          {"preemptions", stats.preemptions},
          {"pages_given_back", snapshot.loop.pages_given_back},
          {"tokens",
           {{"prompt", stats.prompt_tokens},
            {"cached", stats.cached_tokens},
            {"computed", stats.computed_tokens},
            {"recomputed", stats.recomputed_tokens},
            {"generated", stats.generated_tokens}}},
          {"pressure", json_of(snapshot.pressure)}};
}

}  // namespace inferd::daemon
