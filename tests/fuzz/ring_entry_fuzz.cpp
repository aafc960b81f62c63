// A client's whole region as the fuzzer pleases: control page, slots and arena. Whatever lies
// there, the daemon's end stays within its memory and limits, and publishes only where there is
// room.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "ipc/doorbell_batch.h"
#include "ipc/server_session.h"

namespace {

using namespace inferd;
using namespace inferd::ipc;

constexpr Geometry kGeometry = {128, 128, 4096};

struct CheckingVisitor final : SubmissionVisitor {
  ServerSession& session;
  explicit CheckingVisitor(ServerSession& s) : session(s) {}

  void on_submit(const Submission& s) override {
    INFERD_CHECK(s.cookie != 0);
    INFERD_CHECK(!s.prompt.empty() && s.prompt.size() <= kGeometry.arena_bytes / 4);
    INFERD_CHECK(s.stop_tokens.size() <= kStopTokensMax);
    INFERD_CHECK(s.logit_bias.size() <= kLogitBiasesMax);
    INFERD_CHECK(!s.scores() || s.fields.score_first < s.prompt.size());
    INFERD_CHECK(s.fields.temperature >= 0 && s.fields.top_p > 0);
    INFERD_CHECK(s.fields.priority <= uint8_t(Priority::kIdle));
    INFERD_CHECK(s.fields.nice >= kNiceMin && s.fields.nice <= kNiceMax);
    session.publish_accepted(s.cookie, SequenceId(1), static_cast<uint32_t>(s.prompt.size()), 1);
  }
  void on_refused(uint64_t cookie, const Error& error) override {
    session.publish_error(cookie, error);
  }
  void on_cancel(uint64_t cookie) override { session.publish_finished(cookie, {}); }
  void on_delivered(uint64_t cookie, uint32_t, bool) override {
    session.publish_finished(cookie, {});
  }
  void on_renice(const Renice& renice, const Result<void>& checked) override {
    INFERD_CHECK(!checked.ok() || (renice.nice >= kNiceMin && renice.nice <= kNiceMax));
    session.publish_reniced(renice, checked);
  }
  void on_pin(const Pin& pin, const Result<void>& checked) override {
    INFERD_CHECK(!checked.ok() || pin.cookie != 0);
    INFERD_CHECK(pin.prompt.size() <= kGeometry.arena_bytes / 4);
    Result<uint32_t> tokens(static_cast<uint32_t>(pin.prompt.size()));
    if (!checked.ok()) tokens = checked.error();
    session.publish_pinned(pin.cookie, tokens);
  }
};

}  // namespace

// Input: 8 bytes each for the client's two indices and its wake word, then the slots, then the
// arena.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const std::unique_ptr<DoorbellBatch> bells = DoorbellBatch::create().value();
  auto created = ServerSession::create(kGeometry, SessionId(1), kFeatures);
  INFERD_CHECK(created.ok());
  ServerSession& session = **created;
  const auto mapped = SharedRegion::map(UniqueFd(dup(session.client_fds(-1)[kFdClientRegion])),
                                        kGeometry.client_region_bytes(), Access::kReadWrite);
  INFERD_CHECK(mapped.ok());
  auto* control = reinterpret_cast<ClientControl*>(mapped->data());
  uint64_t words[3] = {};
  std::memcpy(words, data, std::min(bytes, sizeof(words)));
  control->submission_tail.value = words[0];
  control->completion_head.value = words[1];
  control->completion_wake.value = words[2];
  if (bytes > sizeof(words)) {
    const size_t rest = std::min<size_t>(bytes - sizeof(words), mapped->size() - kControlBytes);
    std::memcpy(mapped->data() + kControlBytes, data + sizeof(words), rest);
  }
  DrainScratch scratch;
  CheckingVisitor visitor(session);
  for (int turn = 0; turn < 20; ++turn) {
    const DrainOutcome outcome = session.drain(16, scratch, visitor);
    INFERD_CHECK(outcome.records <= 16);
    session.flush(*bells);
    if (session.prepare_sleep()) session.wake();
    if (outcome.broken) session.publish_last_word(outcome.broken->code(), "over");
  }
  session.flush(*bells);
  return 0;
}
