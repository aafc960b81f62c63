// The next tier on a CPU: pages that the pool has no room for, in a file on disk.
// Owner: the daemon. Every function is the engine thread's, except where it says otherwise; a thread of its own
// does all reading and writing, so that no disk makes anybody wait. Must not know tokens, sequences or users.
//
// The engine thread copies a page into a buffer and hands that over; what it wants back comes into a buffer
// first, and is checked there. Jobs are done in the order in which they were handed over, so a slot can be
// read while it is still being written, and used again while it is still being read. Each slot's checksum and
// generation are known to the thread alone: content that is not exactly what was last stored there counts as
// lost. So does what could not be written, for want of space or for any other reason: after such a failure
// nothing is stored for a while.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "memory/page_tier.h"

namespace inferd::daemon {

struct DiskTierOptions {
  std::string path;        // of the file; made with mode 0600 where it is not there
  bool keep_file = false;  // else it has no name from the start, and is gone with the process
  Bytes page_bytes{0};     // a multiple of 4096
  uint32_t slots = 0;
  // Pages on their way, in each direction: enough for all that one step may push out of the pool, for where a
  // page cannot be stored, those that follow it are lost with it.
  uint32_t buffers = 16;
  int64_t patience_ns = 2'000'000'000;  // a fetch that takes longer is not waited for
};

// Monotonic since start.
struct DiskTierCounters {
  uint64_t pages_stored = 0;
  uint64_t pages_loaded = 0;
  uint64_t pages_lost = 0;      // damaged or unreadable
  uint64_t store_failures = 0;  // could not be written
};

// Where a slot's content lies in the file, for those who keep it over a restart.
struct StoredPage {
  uint32_t position = 0;  // in pages
  uint64_t checksum = 0;
};

class DiskTier final : public memory::PageTier {
 public:
  // `wake` is called on the tier's own thread when something was done. Errors: kPermissionDenied, kIo;
  // kUnavailable if another daemon has the file.
  static Result<std::unique_ptr<DiskTier>> open(const DiskTierOptions& options, const Clock& clock,
                                                std::function<void()> wake);
  ~DiskTier() override;
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // memory::PageTier
  uint32_t stores_free() const override;
  memory::FetchState fetch(memory::SlotRef slot) override;
  double fetch_ns() const override;

  // A buffer of page_bytes to be filled at once with what goes to the slot. Needs stores_free() > 0.
  std::span<std::byte> store(memory::SlotRef slot);
  // Content that fetch() said is here.
  std::span<const std::byte> load(memory::SlotRef slot);
  // Hands stores and fetches over to the thread, stores first. After every plan.
  void submit();
  // The plan's loads are made: their buffers are free.
  void end_loads();
  // False for a while after something could not be written: nothing can be stored then, however long one waits.
  bool accepts_stores() const { return clock_.now_ns() >= stores_again_ns_; }
  // Takes in what was done. Returns slots whose content is gone, until it returns none.
  std::optional<memory::SlotRef> take_lost();
  // Overwrites nothing, but gives the disk space of all slots back that `is_used` denies, so that their
  // content is nowhere any more.
  void erase_unused(const std::function<bool(uint32_t)>& is_used);
  // Gives the memory of buffers back that are not in use.
  void give_back();
  // Waits until everything that was handed over is done.
  void finish();

  // When a fetch that has not come is given up; the largest number if there is none.
  int64_t fetch_due_ns() const;

  // What went wrong since the last call, at most once in a while.
  std::optional<Error> take_trouble();
  const DiskTierCounters& counters() const { return counters_; }
  Bytes page_bytes() const { return options_.page_bytes; }

  // For the restart; nothing may be under way (see finish()). What the slot holds; nothing if that was lost.
  std::optional<StoredPage> stored_page(memory::SlotRef slot) const;
  // The slot's content is what lies at that place of the file already. Each place may be given away once.
  void adopt(memory::SlotRef slot, const StoredPage& page);
  // Errors: kIo.
  Result<void> sync();

 private:
  enum class BufferState : uint8_t { kFree, kPrepared, kBusy, kHere, kLost };
  struct Buffer {
    std::span<std::byte> bytes;
    memory::SlotRef slot;
    BufferState state = BufferState::kFree;
    bool loaded = false;        // by the plan that is under way
    int64_t asked_ns = 0;       // first, or when somebody last wanted it
  };
  struct Job {
    enum class Kind : uint8_t { kStore, kFetch, kErase } kind = Kind::kStore;
    uint32_t buffer = 0;
    memory::SlotRef slot;
    std::vector<uint32_t> erased;  // slots, of kErase
  };
  struct Done {
    Job::Kind kind = Job::Kind::kStore;
    uint32_t buffer = 0;
    int error = 0;  // an errno; of a fetch also EILSEQ for what is not what was stored
    int64_t took_ns = 0;
  };
  struct SlotFacts {
    uint32_t generation = 0;
    uint32_t position = 0;
    uint64_t checksum = 0;
  };
  struct Unmapper {
    Unmapper() noexcept : bytes(0) {}
    explicit Unmapper(size_t count) : bytes(count) {}
    size_t bytes;
    void operator()(std::byte* memory) const;
  };

  DiskTier(const DiskTierOptions& options, const Clock& clock, std::function<void()> wake,
           UniqueFd file);
  Result<void> map_buffers();
  Buffer* find_fetch(memory::SlotRef slot);
  Buffer* free_fetch_buffer(int64_t now_ns);
  memory::FetchState unavailable(int64_t now_ns);
  void take_in(const Done& done);
  void collect();
  void note_failure(int error, bool writing);
  void run();
  Done work(const Job& job);
  int write_slot(const Job& job);
  int read_slot(const Job& job);
  void erase_slots(const Job& job);

  const DiskTierOptions options_;
  const Clock& clock_;
  const std::function<void()> wake_;
  const UniqueFd file_;
  std::unique_ptr<std::byte, Unmapper> memory_;  // of all buffers

  // The engine thread's.
  std::vector<Buffer> stores_;   // [buffers]
  std::vector<Buffer> fetches_;  // [buffers]
  std::vector<Job> prepared_;    // fetches, until submit()
  std::vector<memory::SlotRef> lost_;
  DiskTierCounters counters_;
  double fetch_ns_ = 0;
  int64_t fetch_known_ns_ = 0;   // when that was measured
  int64_t stores_again_ns_ = 0;  // nothing is stored before
  int64_t trouble_again_ns_ = 0;
  std::optional<Error> trouble_;
  uint32_t under_way_ = 0;  // jobs handed over and not yet taken in

  // The thread's; others' only while it has nothing to do.
  std::vector<SlotFacts> facts_;  // [slots]
  std::vector<uint32_t> slot_at_;  // [slots] by position; made by the first adopt(), for those that follow

  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable work_done_;
  std::deque<Job> jobs_;    // under mutex_
  std::vector<Done> done_;  // under mutex_
  bool stop_ = false;       // under mutex_
  std::thread thread_;
};

}  // namespace inferd::daemon
