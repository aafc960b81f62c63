#include "daemon/metrics_text.h"

#include <cstdio>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace inferd::daemon {

namespace {

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
    const std::string bucket = std::string(name) + "_bucket";
    uint64_t below = 0;
    for (size_t i = 0; i < histogram.buckets.size(); ++i) {
      below += histogram.buckets[i];
      const double bound_s = static_cast<double>(kHistogramBoundsNs[i]) / 1e9;
      sample(bucket, "{le=\"" + number(bound_s) + "\"}", std::to_string(below));
    }
    sample(bucket, "{le=\"+Inf\"}", std::to_string(histogram.count));
    sample(std::string(name) + "_sum", "", number(static_cast<double>(histogram.sum_ns) / 1e9));
    sample(std::string(name) + "_count", "", std::to_string(histogram.count));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string metrics_text(const EngineSnapshot& snapshot, double uptime_s) {
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
  out.by_label("inferd_requests_total", "counter", "Requests by outcome.", "outcome",
               {{"accepted", loop.requests},
                {"refused", loop.requests_refused},
                {"overdue", loop.requests_overdue},
                {"finished", scheduler.finished},
                {"cancelled", scheduler.cancelled}});
  out.by_label("inferd_tokens_total", "counter", "Tokens by kind.", "kind",
               {{"prompt", scheduler.prompt_tokens}, {"computed", scheduler.computed_tokens},
                {"cached", scheduler.cached_tokens}, {"generated", scheduler.generated_tokens},
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
  out.count("inferd_weight_reads_total", "Weight matrices read from memory.",
            snapshot.engine.weight_reads);
  out.histogram("inferd_step_seconds", "Time of one step, model and sampling.", loop.step);
  out.histogram("inferd_ttft_seconds", "Time from a request to its first token.", loop.ttft);
  out.histogram("inferd_itl_seconds", "Time between two tokens of a sequence.", loop.itl);
  return out.take();
}

}  // namespace inferd::daemon
