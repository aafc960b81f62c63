#include "daemon/metrics_text.h"

#include <cstdio>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

namespace inferd::daemon {

namespace {

// Upper bounds of the buckets that are told, in powers of two of microseconds: 0.5 ms to 268 s.
constexpr uint32_t kFirstBound = 9;
constexpr uint32_t kLastBound = 28;

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

class Writer {
 public:
  void head(std::string_view name, std::string_view type, std::string_view help) {
    text_.append("# HELP ").append(name).append(" ").append(help).append("\n");
    text_.append("# TYPE ").append(name).append(" ").append(type).append("\n");
  }
  void sample(std::string_view name, std::string_view labels, const std::string& value) {
    text_.append(name).append(labels).append(" ").append(value).append("\n");
  }
  void single(std::string_view name, std::string_view type, std::string_view help, double value) {
    head(name, type, help);
    sample(name, "", number(value));
  }
  void count(std::string_view name, std::string_view help, uint64_t value) {
    head(name, "counter", help);
    sample(name, "", std::to_string(value));
  }
  using Labelled = std::pair<std::string_view, uint64_t>;
  void by_label(std::string_view name, std::string_view type, std::string_view help,
                std::string_view label, std::initializer_list<Labelled> values) {
    head(name, type, help);
    for (const auto& [which, value] : values) {
      sample(name, "{" + std::string(label) + "=\"" + std::string(which) + "\"}",
             std::to_string(value));
    }
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
    head(name, "histogram", help);
    buckets(name, "", histogram);
  }
  // `label`: one that all samples have, "user=\"1000\"", or none.
  void buckets(std::string_view name, const std::string& label, const Histogram& histogram) {
    const std::string bucket = std::string(name) + "_bucket";
    const std::string first = label.empty() ? "{" : "{" + label + ",";
    const std::string alone = label.empty() ? "" : "{" + label + "}";
    for (uint32_t power = kFirstBound; power <= kLastBound; ++power) {
      const double bound_s = static_cast<double>(uint64_t{1} << power) / 1e6;
      sample(bucket, first + "le=\"" + number(bound_s) + "\"}",
             std::to_string(histogram.count_within(power)));
    }
    sample(bucket, first + "le=\"+Inf\"}", std::to_string(histogram.count()));
    sample(std::string(name) + "_sum", alone,
           number(static_cast<double>(histogram.sum_ns()) / 1e9));
    sample(std::string(name) + "_count", alone, std::to_string(histogram.count()));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void write_requests(Writer& out, const AccountSums& sums) {
  out.by_label("inferd_requests_total", "counter", "Requests by outcome.", "outcome",
               {{"accepted", sums.accepted},
                {"refused", sums.refused},
                {"overdue", sums.overdue},
                {"finished", sums.finished},
                {"cancelled", sums.cancelled},
                {"failed", sums.failed}});
  out.count("inferd_prefix_hits_total", "Requests of whose prompt something was cached.",
            sums.hits);
}

void write_pressure(Writer& out, const PressureFigures& pressure) {
  const struct {
    const char* labels;
    const PressureLine& line;
  } lines[] = {{"resource=\"pages\",kind=\"some\"", pressure.pages_some},
               {"resource=\"pages\",kind=\"full\"", pressure.pages_full},
               {"resource=\"compute\",kind=\"some\"", pressure.compute_some},
               {"resource=\"compute\",kind=\"full\"", pressure.compute_full}};
  out.head("inferd_pressure_ratio", "gauge", "Share of the last seconds that work stood still.");
  for (const auto& [labels, line] : lines) {
    for (size_t i = 0; i < kPressureWindowsS.size(); ++i) {
      const std::string window = std::to_string(kPressureWindowsS[i]);
      out.sample("inferd_pressure_ratio", "{" + std::string(labels) + ",window=\"" + window + "\"}",
                 number(line.averages[i]));
    }
  }
  out.head("inferd_pressure_stalled_seconds_total", "counter", "Time that work stood still.");
  for (const auto& [labels, line] : lines) {
    out.sample("inferd_pressure_stalled_seconds_total", "{" + std::string(labels) + "}",
               number(static_cast<double>(line.total_ns) / 1e9));
  }
}

// Series by user. How many there can be is bounded: users with a client, of which there can be
// [limits] connections; kDepartedUsersMax that left last; and all others together.
class UserSeries {
 public:
  UserSeries(Writer& out, const AccountsSnapshot& accounts) : out_(out) {
    for (const UserFigures& user : accounts.users) {
      users_.emplace_back("user=\"" + std::to_string(user.user.value) + "\"", &user);
    }
    users_.emplace_back("user=\"others\"", &accounts.others);
  }

  using Value = uint64_t (*)(const UserFigures&);
  void single(std::string_view name, std::string_view type, std::string_view help, Value value) {
    out_.head(name, type, help);
    for (const auto& [label, user] : users_) {
      out_.sample(name, "{" + label + "}", std::to_string(value(*user)));
    }
  }
  struct Kind {
    std::string_view name;
    uint64_t AccountSums::*sum;
  };
  void by_kind(std::string_view name, std::string_view help, std::string_view label_name,
               std::initializer_list<Kind> kinds) {
    out_.head(name, "counter", help);
    for (const auto& [label, user] : users_) {
      for (const Kind& kind : kinds) {
        out_.sample(name,
                    "{" + label + "," + std::string(label_name) + "=\"" + std::string(kind.name) +
                        "\"}",
                    std::to_string(user->figures.sums.*kind.sum));
      }
    }
  }
  void histogram(std::string_view name, std::string_view help, Histogram Account::*which) {
    out_.head(name, "histogram", help);
    for (const auto& [label, user] : users_) out_.buckets(name, label, user->account.*which);
  }

 private:
  Writer& out_;
  std::vector<std::pair<std::string, const UserFigures*>> users_;
};

void write_users(Writer& out, const AccountsSnapshot& accounts) {
  UserSeries users(out, accounts);
  users.by_kind("inferd_user_requests_total", "Requests by user and outcome.", "outcome",
                {{"accepted", &AccountSums::accepted},
                 {"refused", &AccountSums::refused},
                 {"overdue", &AccountSums::overdue},
                 {"finished", &AccountSums::finished},
                 {"cancelled", &AccountSums::cancelled},
                 {"failed", &AccountSums::failed}});
  users.by_kind("inferd_user_tokens_total", "Tokens by user and kind.", "kind",
                {{"prompt", &AccountSums::prompt_tokens},
                 {"computed", &AccountSums::computed_tokens},
                 {"recomputed", &AccountSums::recomputed_tokens},
                 {"cached", &AccountSums::cached_tokens},
                 {"generated", &AccountSums::generated_tokens}});
  users.single("inferd_user_preemptions_total", "counter", "Preemptions by user.",
               [](const UserFigures& user) { return user.figures.sums.preemptions; });
  users.single("inferd_user_prefix_hits_total", "counter",
               "Requests of whose prompt something was cached, by user.",
               [](const UserFigures& user) { return user.figures.sums.hits; });
  users.single("inferd_user_pages", "gauge", "KV pages charged to a user.",
               [](const UserFigures& user) { return uint64_t{user.figures.pages.value}; });
  users.single("inferd_user_sessions", "gauge", "Connected clients of a user.",
               [](const UserFigures& user) { return uint64_t{user.sessions}; });
  users.histogram("inferd_user_wait_seconds", "Time that requests waited for pages or their turn.",
                  &Account::wait);
  users.histogram("inferd_user_ttft_seconds", "Time from a request to its first token, by user.",
                  &Account::ttft);
  users.histogram("inferd_user_itl_seconds", "Time between two tokens of a sequence, by user.",
                  &Account::itl);
}

}  // namespace

std::string metrics_text(const EngineSnapshot& snapshot, const AccountsSnapshot& accounts,
                         double uptime_s) {
  const auto& scheduler = snapshot.scheduler;
  const auto& loop = snapshot.loop;
  const auto& pages = snapshot.pages;
  Writer out;
  out.single("inferd_uptime_seconds", "gauge", "Time since the daemon was ready.", uptime_s);
  out.by_label("inferd_sequences", "gauge", "Sequences by state.", "state",
               {{"waiting", scheduler.waiting}, {"running", scheduler.running},
                {"paused", scheduler.paused}});
  out.single("inferd_sessions", "gauge", "Connected clients.",
             static_cast<double>(snapshot.sessions.size()));
  out.by_label("inferd_pages", "gauge", "KV pages of the pool by use.", "use",
               {{"free", pages.free.value}, {"reserved", pages.reserved.value},
                {"owned", pages.owned.value}, {"shared", pages.shared.value},
                {"cached", pages.cached.value}});
  write_requests(out, accounts.total.sums);
  out.by_label("inferd_tokens_total", "counter", "Tokens by kind.", "kind",
               {{"prompt", scheduler.prompt_tokens}, {"computed", scheduler.computed_tokens},
                {"recomputed", scheduler.recomputed_tokens}, {"cached", scheduler.cached_tokens},
                {"generated", scheduler.generated_tokens},
                {"published", loop.tokens_published}});
  out.count("inferd_preemptions_total", "Sequences that had to give their pages back.",
            scheduler.preemptions);
  out.count("inferd_sessions_total", "Clients that ever connected.", loop.sessions);
  out.by_label("inferd_sessions_ended_total", "counter", "Sessions that the daemon ended.", "reason",
               {{"protocol", loop.sessions_broken}, {"stalled", loop.sessions_stalled}});
  out.count("inferd_steps_total", "Steps of the model.", loop.steps);
  out.count("inferd_turns_total", "Turns of the engine's loop, idle ones included.", loop.turns);
  out.count("inferd_doorbells_total", "Sleeping clients that were woken.", loop.doorbells);
  out.count("inferd_memory_shortages_total", "Times that the kernel told of a shortage of memory.",
            loop.memory_shortages);
  out.count("inferd_pages_given_back_total", "Idle pages whose memory went back to the system.",
            loop.pages_given_back);
  out.by_label("inferd_disk_pages", "gauge", "Pages that the file on disk has room for.", "state",
               {{"used", snapshot.disk.used}, {"free", snapshot.disk.slots - snapshot.disk.used}});
  out.by_label("inferd_disk_pages_total", "counter", "Pages on their way to disk and back.", "event",
               {{"stored", snapshot.disk.counters.pages_stored},
                {"loaded", snapshot.disk.counters.pages_loaded},
                {"lost", snapshot.disk.counters.pages_lost},
                {"store_failed", snapshot.disk.counters.store_failures}});
  out.count("inferd_weight_reads_total", "Weight matrices read from memory.",
            snapshot.engine.weight_reads);
  out.histogram("inferd_step_seconds", "Time of one step, model and sampling.", loop.step);
  out.histogram("inferd_ttft_seconds", "Time from a request to its first token.", loop.ttft);
  out.histogram("inferd_itl_seconds", "Time between two tokens of a sequence.", loop.itl);
  write_pressure(out, snapshot.pressure);
  write_users(out, accounts);
  return out.take();
}

}  // namespace inferd::daemon
