// The step loop serves processes that overwrite their shared memory while it reads it. Under the
// address sanitizer whatever it is led to do wrong ends it; in every build the honest clients'
// answers are right to the token, and no id of theirs turns up where it does not belong.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <chrono>
#include <list>
#include <memory>
#include <new>

#include "base/prng.h"
#include "tests/unit/daemon/loop_fixture.h"
#include "tests/unit/mutator/mutator.h"

namespace inferd::daemon {
namespace {

using Steady = std::chrono::steady_clock;

constexpr uint32_t kMutators = 3;
constexpr uint32_t kHonestUser = 1000;
constexpr uint32_t kHostileUser = 2000;
constexpr uint32_t kAnswerTokens = 12;
// What a run has to have seen. Far less than what a second brings.
constexpr uint64_t kBrokenMin = 30;
constexpr uint64_t kHostileAcceptedMin = 100;
constexpr uint64_t kHonestAnswersMin = 100;
constexpr auto kPatience = std::chrono::seconds(120);

struct Unmap {
  void operator()(mutator::Board* board) const { munmap(board, sizeof(*board)); }
};

std::unique_ptr<mutator::Board, Unmap> make_board() {
  void* memory = mmap(nullptr, sizeof(mutator::Board), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return std::unique_ptr<mutator::Board, Unmap>(new (memory) mutator::Board);
}

// One hostile process and its session.
struct Attacker {
  FakeClient client;  // this process only keeps it open
  SessionId session;
  mutator::Mutator process;
};

class MutatorTest : public testing::Test {
 protected:
  MutatorTest() : board_(make_board()) {
    fixture_.engine.on_run = [this](const scheduler::BatchPlan& plan) { look_at(plan); };
  }

  // The prompts of hostile users hold what they can have written, and nobody else's ids.
  void look_at(const scheduler::BatchPlan& plan) {
    for (const scheduler::BatchItem& item : plan.items) {
      const auto info = fixture_.scheduler.info(item.sequence);
      ASSERT_TRUE(info.has_value());
      if (info->user != UserId(kHostileUser)) continue;
      for (size_t i = 0; i < item.tokens.size(); ++i) {
        if (item.position_first + i >= info->stats.prompt_tokens) continue;
        ASSERT_LT(item.tokens[i], mutator::kSecretFirst) << "of another session";
        ++hostile_tokens_;
      }
    }
  }

  void attack() {
    while (attackers_.size() < kMutators) {
      FakeClient client = fixture_.connect(kHostileUser);
      mutator::Mutator process(*client.raw, *board_, ++seed_);
      attackers_.push_back({std::move(client), fixture_.last_session(), std::move(process)});
    }
    for (const auto& ended : fixture_.ended) {
      broken_ += ended.second.code() == ErrorCode::kProtocol ? 1 : 0;
      std::erase_if(attackers_, [&](const Attacker& a) { return a.session == ended.first; });
      EXPECT_NE(ended.first, honest_session_) << ended.second.message();
    }
    fixture_.ended.clear();
    // Now and then one is killed in the middle of it. Its connection would end with it.
    if (!attackers_.empty() && prng_.below(2000) == 0) {
      fixture_.loop->remove_session(attackers_.front().session);
      attackers_.pop_front();
    }
  }

  void connect_honest() {
    honest_ = std::make_unique<FakeClient>(fixture_.connect(kHonestUser));
    honest_session_ = fixture_.last_session();
  }

  // An honest client always has one request under way, and checks every answer.
  void talk() {
    FakeClient& client = *honest_;
    client.read();
    if (cookie_ != 0) {
      ASSERT_EQ(client[cookie_].error, ErrorCode::kOk) << client[cookie_].sentence;
      if (!client[cookie_].finished) return;
      ASSERT_EQ(client[cookie_].ids, fake_answer(prompt_, kAnswerTokens));
      ++honest_answers_;
    }
    prompt_.clear();
    const uint64_t length = 1 + prng_.below(50);
    while (prompt_.size() < length) {
      prompt_.push_back(mutator::kSecretFirst + static_cast<TokenId>(prng_.below(8)));
    }
    ipc::SubmitRecord record = ipc::good_submission(++last_cookie_, 0);
    record.max_tokens = kAnswerTokens;
    record.header.flags = ipc::kSubmitIgnoreEos;
    cookie_ = last_cookie_;
    client.rewind_arena();
    client.submit(record, prompt_);
  }

  uint64_t hostile_accepted() const {
    return fixture_.loop->counters().requests - honest_answers_ - (cookie_ != 0 ? 1 : 0);
  }
  bool seen_enough() const {
    return broken_ >= kBrokenMin && hostile_accepted() >= kHostileAcceptedMin &&
           honest_answers_ >= kHonestAnswersMin;
  }

  std::unique_ptr<mutator::Board, Unmap> board_;
  LoopFixture fixture_{{.queue = 256}};
  Prng prng_{7};
  uint64_t seed_ = 0;
  std::list<Attacker> attackers_;
  uint64_t broken_ = 0;          // sessions that were ended for what they wrote
  uint64_t hostile_tokens_ = 0;  // of prompts that were computed for them
  std::unique_ptr<FakeClient> honest_;
  SessionId honest_session_;
  std::vector<TokenId> prompt_;
  uint64_t cookie_ = 0;
  uint64_t last_cookie_ = 0;
  uint64_t honest_answers_ = 0;
};

TEST_F(MutatorTest, ProcessesThatOverwriteTheirMemoryHurtOnlyThemselves) {
  connect_honest();
  const Steady::time_point start = Steady::now();
  const auto end = start + std::chrono::seconds(2);
  uint64_t turns = 0;
  while (Steady::now() < end || (!seen_enough() && Steady::now() < start + kPatience)) {
    attack();
    fixture_.clock.advance_ns(5'000'000);  // a session that waits for long is ended, too
    fixture_.loop->turn(false);
    talk();
    if (HasFatalFailure()) return;
    if (++turns % 64 == 0) {
      const auto verified = fixture_.loop->verify();
      ASSERT_TRUE(verified.ok()) << verified.error().message();
    }
  }
  EXPECT_TRUE(seen_enough()) << broken_ << " broken, " << hostile_accepted() << " accepted, "
                             << honest_answers_ << " answers";
  EXPECT_GT(hostile_tokens_, 0u);
  EXPECT_GT(board_->writes.load(), 10'000u);
  EXPECT_GT(board_->records.load(), 1000u);
  RecordProperty("sessions_broken", std::to_string(broken_));
  std::printf(
      "%lu words overwritten, %lu records; %lu sessions broken, %lu requests of theirs "
      "accepted, %lu honest answers\n",
      static_cast<unsigned long>(board_->writes.load()),
      static_cast<unsigned long>(board_->records.load()), static_cast<unsigned long>(broken_),
      static_cast<unsigned long>(hostile_accepted()), static_cast<unsigned long>(honest_answers_));

  for (const Attacker& attacker : attackers_) fixture_.loop->remove_session(attacker.session);
  attackers_.clear();
  fixture_.run_until_idle({honest_.get()});
  EXPECT_FALSE(honest_->session_ended);
  EXPECT_EQ((*honest_)[cookie_].ids, fake_answer(prompt_, kAnswerTokens));
  EXPECT_EQ(fixture_.loop->snapshot().sessions.size(), 1u);
  EXPECT_EQ(fixture_.pages_free(), PageCount(256));
}

}  // namespace
}  // namespace inferd::daemon
