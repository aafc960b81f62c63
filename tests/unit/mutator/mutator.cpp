#include "tests/unit/mutator/mutator.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "base/prng.h"
#include "ipc/doorbell.h"

namespace inferd::mutator {
namespace {

constexpr uint32_t kWritesAtOnce = 32;

// One word of control page or slots: a flipped bit, a small step, a small number, or anything.
void write_word(std::byte* region, uint64_t word, Prng& prng) {
  auto& place = *reinterpret_cast<uint64_t*>(region + word * 8);
  std::atomic_ref<uint64_t> shared(place);
  const uint64_t old = shared.load(std::memory_order_relaxed);
  uint64_t value = prng.next();
  switch (prng.below(4)) {
    case 0:
      value = old ^ (uint64_t{1} << prng.below(64));
      break;
    case 1:
      value = old + prng.below(600) - 300;
      break;
    case 2:
      value = prng.below(64);
      break;
    case 3:
      break;
  }
  shared.store(value, std::memory_order_relaxed);
}

// One id of the arena: one that the model has and nobody keeps secret, or one that it has not.
void write_id(std::byte* arena, uint64_t arena_bytes, Prng& prng) {
  constexpr int32_t kOutside[] = {-1, INT32_MIN, INT32_MAX, 50, 1'000'000};
  auto& place = *reinterpret_cast<int32_t*>(arena + prng.below(arena_bytes / 4) * 4);
  const auto id = prng.below(8) != 0 ? static_cast<int32_t>(prng.below(kSecretFirst))
                                     : kOutside[prng.below(std::size(kOutside))];
  std::atomic_ref<int32_t>(place).store(id, std::memory_order_relaxed);
}

// What the daemon copies: ids in the arena, and words of the slots that the player uses just now.
void mutate_contents(ipc::RawClient& raw, Board& board, uint64_t seed) {
  Prng prng(seed);
  std::byte* region = raw.client_region.data();
  const auto arena_offset = static_cast<uint64_t>(raw.arena - region);
  const uint64_t arena_bytes = raw.client_region.size() - arena_offset;
  for (;;) {
    for (uint32_t i = 0; i < kWritesAtOnce; ++i) {
      if (prng.below(4) != 0) {
        write_id(raw.arena, arena_bytes, prng);
      } else {
        const uint64_t bytes = arena_offset - ipc::kControlBytes;
        write_word(region, (ipc::kControlBytes + prng.below(bytes)) / 8, prng);
      }
    }
    board.writes += kWritesAtOnce;
    std::this_thread::sleep_for(std::chrono::microseconds(prng.below(500)));
  }
}

// What the daemon goes by: the indices and the wake word. Seldom enough for others to be served
// first.
void mutate_indices(ipc::RawClient& raw, Board& board, uint64_t seed) {
  Prng prng(seed);
  for (;;) {
    std::this_thread::sleep_for(std::chrono::microseconds(prng.below(30'000)));
    const uint64_t word = prng.below(4) == 0 ? prng.below(ipc::kControlBytes / 8)
                                             : prng.below(3) * (ipc::kSlotBytes / 8);
    write_word(raw.client_region.data(), word, prng);
    ++board.writes;
  }
}

// Plays by the rules, but for what it asks: offsets, counts and cookies are any.
void play(ipc::RawClient& raw, Board& board, uint64_t seed) {
  Prng prng(seed);
  for (;;) {
    const uint64_t cookie = 1 + prng.below(12);
    if (raw.submissions.free_slots(2) >= 2) {
      if (prng.below(4) != 0) {
        ipc::SubmitRecord record =
            ipc::good_submission(cookie, 1 + static_cast<uint32_t>(prng.below(60)));
        record.max_tokens = 1 + static_cast<uint32_t>(prng.below(40));
        record.prompt_offset = static_cast<uint32_t>(prng.below(5u << 16)) * 4;  // some outside
        raw.put(&record, sizeof(record));
      } else if (const uint64_t kind = prng.below(4); kind == 0) {
        ipc::PinRecord record = {};
        record.header = {prng.below(4) != 0 ? ipc::kPin : ipc::kUnpin, 1, 0, 0, cookie};
        record.prompt_offset = static_cast<uint32_t>(prng.below(5u << 16)) * 4;
        record.prompt_count = static_cast<uint32_t>(prng.below(60));
        raw.put(&record, sizeof(record));
      } else if (kind == 1) {
        const ipc::CancelRecord record = {{ipc::kCancel, 1, 0, 0, cookie}, {}};
        raw.put(&record, sizeof(record));
      } else {
        const ipc::DeliveredRecord record = {
            {ipc::kDelivered, 1, 0, ipc::kDeliveredTruncate, cookie}, 3, 0, {}};
        raw.put(&record, sizeof(record));
      }
      ++board.records;
    }
    if (prng.below(2) == 0 || raw.waker.should_ring()) {
      ipc::ring_doorbell(raw.submission_bell.get());
    }
    for (uint32_t i = 0; i < 8 && !raw.take().empty(); ++i) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(prng.below(300)));
  }
}

}  // namespace

Mutator::Mutator(ipc::RawClient& raw, Board& board, uint64_t seed) {
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It rings for sessions that have ended.
  signal(SIGPIPE, SIG_IGN);
  if (getppid() != parent) _exit(1);
  std::thread contents(mutate_contents, std::ref(raw), std::ref(board), seed * 3);
  std::thread indices(mutate_indices, std::ref(raw), std::ref(board), seed * 3 + 1);
  play(raw, board, seed * 3 + 2);
}

Mutator::Mutator(Mutator&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

Mutator::~Mutator() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace inferd::mutator
