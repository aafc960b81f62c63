#include "daemon/disk_tier.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace inferd::daemon {

using memory::FetchState;
using memory::SlotRef;

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kPauseAfterFailureNs = 10 * kSecondNs;
constexpr int64_t kTroubleEveryNs = 60 * kSecondNs;
// What was fetched and nobody loads stays for a while, for somebody may be waiting for pages.
constexpr int64_t kFetchedKeptNs = kSecondNs / 2;
constexpr int64_t kFetchTimeKeptNs = 10 * kSecondNs;

}  // namespace

void DiskTier::Unmapper::operator()(std::byte* memory) const { ::munmap(memory, bytes); }

Result<std::unique_ptr<DiskTier>> DiskTier::open(const DiskTierOptions& options, const Clock& clock,
                                                 std::function<void()> wake) {
  INFERD_CHECK(options.page_bytes.value > 0 && options.page_bytes.value % 4096 == 0);
  INFERD_CHECK(options.slots > 0 && options.buffers > 0);
  UniqueFd file(::open(options.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return errno_error("cannot open '" + options.path + "' for cached pages", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return errno_error("cannot look at '" + options.path + "'", errno);
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) {
    return Error(ErrorCode::kPermissionDenied,
                 "'" + options.path +
                     "' is not a plain file of the daemon's own user; remove it, or name "
                     "another place with [memory] disk_path");
  }
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error(ErrorCode::kUnavailable, "another daemon uses '" + options.path +
                                              "'; give each one a [memory] disk_path of its own");
  }
  // Users' prompts lie in it: whoever made the file, nobody else may read it.
  if (::fchmod(file.get(), 0600) != 0) {
    return errno_error("cannot make '" + options.path + "' private", errno);
  }
  if (!options.keep_file && ::unlink(options.path.c_str()) != 0) {
    return errno_error("cannot unlink '" + options.path + "'", errno);
  }
  const auto bytes = static_cast<off_t>(options.slots * options.page_bytes.value);
  if (::ftruncate(file.get(), bytes) != 0) {
    return errno_error("cannot size '" + options.path + "'", errno);
  }
  std::unique_ptr<DiskTier> tier(new DiskTier(options, clock, std::move(wake), std::move(file)));
  INFERD_TRY(tier->map_buffers());
  tier->thread_ = std::thread([raw = tier.get()] { raw->run(); });
  return tier;
}

DiskTier::DiskTier(const DiskTierOptions& options, const Clock& clock, std::function<void()> wake,
                   UniqueFd file)
    : options_(options),
      clock_(clock),
      wake_(std::move(wake)),
      file_(std::move(file)),
      stores_(options.buffers),
      fetches_(options.buffers),
      facts_(options.slots) {
  for (uint32_t slot = 0; slot < options.slots; ++slot) facts_[slot].position = slot;
  prepared_.reserve(options.buffers);
  lost_.reserve(2 * size_t{options.buffers});
}

Result<void> DiskTier::map_buffers() {
  const size_t page = options_.page_bytes.value;
  const size_t bytes = 2 * page * options_.buffers;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return errno_error("cannot map buffers for pages on disk", errno);
  ::madvise(memory, bytes, MADV_DONTDUMP);
  memory_ = {static_cast<std::byte*>(memory), Unmapper{bytes}};
  for (uint32_t i = 0; i < options_.buffers; ++i) {
    stores_[i].bytes = {memory_.get() + i * page, page};
    fetches_[i].bytes = {memory_.get() + (options_.buffers + i) * page, page};
  }
  return {};
}

DiskTier::~DiskTier() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_ready_.notify_one();
  thread_.join();
}

// ---- the engine thread ----

uint32_t DiskTier::stores_free() const {
  if (!accepts_stores()) return 0;
  return static_cast<uint32_t>(std::count_if(stores_.begin(), stores_.end(), [](const Buffer& b) {
    return b.state == BufferState::kFree;
  }));
}

std::span<std::byte> DiskTier::store(SlotRef slot) {
  const auto found = std::find_if(stores_.begin(), stores_.end(),
                                  [](const Buffer& b) { return b.state == BufferState::kFree; });
  INFERD_CHECK(found != stores_.end() && slot.slot < options_.slots);
  found->state = BufferState::kPrepared;
  found->slot = slot;
  return found->bytes;
}

DiskTier::Buffer* DiskTier::find_fetch(SlotRef slot) {
  const auto found = std::find_if(fetches_.begin(), fetches_.end(), [slot](const Buffer& b) {
    return b.state != BufferState::kFree && b.slot == slot;
  });
  return found == fetches_.end() ? nullptr : &*found;
}

DiskTier::Buffer* DiskTier::free_fetch_buffer(int64_t now_ns) {
  Buffer* oldest = nullptr;
  for (Buffer& buffer : fetches_) {
    if (buffer.state == BufferState::kFree) return &buffer;
    const bool done = buffer.state == BufferState::kHere || buffer.state == BufferState::kLost;
    if (!done || now_ns - buffer.asked_ns < kFetchedKeptNs) continue;
    if (oldest == nullptr || buffer.asked_ns < oldest->asked_ns) oldest = &buffer;
  }
  return oldest;
}

FetchState DiskTier::fetch(SlotRef slot) {
  const int64_t now_ns = clock_.now_ns();
  if (Buffer* buffer = find_fetch(slot)) {
    switch (buffer->state) {
      case BufferState::kHere:
        buffer->asked_ns = now_ns;
        return FetchState::kHere;
      case BufferState::kLost:
        buffer->state = BufferState::kFree;
        return FetchState::kLost;
      default:
        return now_ns - buffer->asked_ns > options_.patience_ns ? unavailable(now_ns)
                                                                : FetchState::kComing;
    }
  }
  Buffer* buffer = free_fetch_buffer(now_ns);
  if (buffer == nullptr) {
    // Somebody else's pages come first; unless those do not come either.
    const bool stuck = std::all_of(fetches_.begin(), fetches_.end(), [&](const Buffer& b) {
      return b.state == BufferState::kBusy && now_ns - b.asked_ns > options_.patience_ns;
    });
    return stuck ? unavailable(now_ns) : FetchState::kComing;
  }
  *buffer = Buffer{buffer->bytes, slot, BufferState::kPrepared, false, now_ns};
  Job job;
  job.kind = Job::Kind::kFetch;
  job.buffer = static_cast<uint32_t>(buffer - fetches_.data());
  job.slot = slot;
  prepared_.push_back(std::move(job));
  return FetchState::kComing;
}

// For a while nobody shall take this disk for faster than computing.
FetchState DiskTier::unavailable(int64_t now_ns) {
  fetch_ns_ = static_cast<double>(options_.patience_ns);
  fetch_known_ns_ = now_ns;
  return FetchState::kUnavailable;
}

std::span<const std::byte> DiskTier::load(SlotRef slot) {
  Buffer* buffer = find_fetch(slot);
  INFERD_CHECK(buffer != nullptr && buffer->state == BufferState::kHere);
  buffer->loaded = true;
  ++counters_.pages_loaded;
  return buffer->bytes;
}

void DiskTier::end_loads() {
  for (Buffer& buffer : fetches_) {
    if (buffer.loaded) buffer = Buffer{buffer.bytes, {}, BufferState::kFree, false, 0};
  }
}

void DiskTier::submit() {
  uint32_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    for (uint32_t i = 0; i < stores_.size(); ++i) {
      if (stores_[i].state != BufferState::kPrepared) continue;
      stores_[i].state = BufferState::kBusy;
      jobs_.push_back({Job::Kind::kStore, i, stores_[i].slot, {}});
      ++count;
    }
    for (Job& job : prepared_) {
      fetches_[job.buffer].state = BufferState::kBusy;
      jobs_.push_back(std::move(job));
      ++count;
    }
  }
  prepared_.clear();
  under_way_ += count;
  if (count > 0) work_ready_.notify_one();
}

void DiskTier::erase_unused(const std::function<bool(uint32_t)>& is_used) {
  Job job;
  job.kind = Job::Kind::kErase;
  for (uint32_t slot = 0; slot < options_.slots; ++slot) {
    if (!is_used(slot)) job.erased.push_back(slot);
  }
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  ++under_way_;
  work_ready_.notify_one();
}

void DiskTier::collect() {
  std::vector<Done> done;
  {
    const std::lock_guard lock(mutex_);
    if (done_.empty()) return;
    done.swap(done_);
  }
  for (const Done& one : done) take_in(one);
}

void DiskTier::take_in(const Done& done) {
  INFERD_CHECK(under_way_ > 0);
  --under_way_;
  if (done.kind == Job::Kind::kErase) return;
  if (done.kind == Job::Kind::kStore) {
    Buffer& buffer = stores_[done.buffer];
    if (done.error == 0) {
      ++counters_.pages_stored;
    } else {
      ++counters_.store_failures;
      lost_.push_back(buffer.slot);
      note_failure(done.error, true);
    }
    buffer = Buffer{buffer.bytes, {}, BufferState::kFree, false, 0};
    return;
  }
  Buffer& buffer = fetches_[done.buffer];
  buffer.state = done.error == 0 ? BufferState::kHere : BufferState::kLost;
  const int64_t now_ns = clock_.now_ns();
  if (done.error == ESTALE)
    return;  // it was stored anew meanwhile: nobody asks for the old content
  if (done.error != 0) {
    ++counters_.pages_lost;
    lost_.push_back(buffer.slot);
    note_failure(done.error, false);
    return;
  }
  const auto took_ns = static_cast<double>(
      std::max(done.took_ns, now_ns - buffer.asked_ns) > options_.patience_ns ? options_.patience_ns
                                                                              : done.took_ns);
  fetch_ns_ = fetch_ns_ == 0 ? took_ns : fetch_ns_ + (took_ns - fetch_ns_) / 8;
  fetch_known_ns_ = now_ns;
}

void DiskTier::note_failure(int error, bool writing) {
  const int64_t now_ns = clock_.now_ns();
  if (writing) stores_again_ns_ = now_ns + kPauseAfterFailureNs;
  if (now_ns < trouble_again_ns_) return;
  trouble_again_ns_ = now_ns + kTroubleEveryNs;
  if (error == EILSEQ) {
    trouble_ =
        Error(ErrorCode::kDataCorrupt,
              "a cached page in '" + options_.path +
                  "' is not what was stored there; it is computed again. If this goes on, look at "
                  "the disk");
    return;
  }
  trouble_ = errno_error(
      writing ? "cannot store cached pages in '" + options_.path +
                    "' (they are computed again when they are needed)"
              : "cannot read cached pages from '" + options_.path + "' (they are computed again)",
      error);
}

double DiskTier::fetch_ns() const {
  // An old figure says little: then it is measured again.
  return clock_.now_ns() - fetch_known_ns_ > kFetchTimeKeptNs ? 0 : fetch_ns_;
}

int64_t DiskTier::fetch_due_ns() const {
  int64_t due_ns = INT64_MAX;
  for (const Buffer& buffer : fetches_) {
    if (buffer.state == BufferState::kBusy) {
      due_ns = std::min(due_ns, buffer.asked_ns + options_.patience_ns + 1);
    }
  }
  // One that was given up and still has not come wakes nobody again.
  return due_ns > clock_.now_ns() ? due_ns : INT64_MAX;
}

std::optional<SlotRef> DiskTier::take_lost() {
  collect();
  if (lost_.empty()) return std::nullopt;
  const SlotRef lost = lost_.back();
  lost_.pop_back();
  return lost;
}

std::optional<Error> DiskTier::take_trouble() {
  std::optional<Error> trouble = std::move(trouble_);
  trouble_.reset();
  return trouble;
}

void DiskTier::give_back() {
  for (std::vector<Buffer>* buffers : {&stores_, &fetches_}) {
    for (const Buffer& buffer : *buffers) {
      if (buffer.state == BufferState::kFree) {
        ::madvise(buffer.bytes.data(), buffer.bytes.size(), MADV_DONTNEED);
      }
    }
  }
}

void DiskTier::finish() {
  submit();
  {
    std::unique_lock lock(mutex_);
    work_done_.wait(lock, [this] { return done_.size() >= under_way_; });
  }
  collect();
}

std::optional<StoredPage> DiskTier::stored_page(SlotRef slot) const {
  INFERD_CHECK(under_way_ == 0);
  const SlotFacts& facts = facts_.at(slot.slot);
  if (facts.generation != slot.generation) return std::nullopt;
  return StoredPage{facts.position, facts.checksum};
}

void DiskTier::adopt(SlotRef slot, const StoredPage& page) {
  INFERD_CHECK(under_way_ == 0 && slot.slot < facts_.size() && page.position < facts_.size());
  if (slot_at_.empty()) {
    slot_at_.resize(facts_.size());
    for (uint32_t i = 0; i < facts_.size(); ++i) slot_at_[facts_[i].position] = i;
  }
  // The slot that had the place gets this one's in exchange, so that all places stay different.
  SlotFacts& facts = facts_[slot.slot];
  const uint32_t other = slot_at_[page.position];
  std::swap(facts_[other].position, facts.position);
  slot_at_[facts_[other].position] = other;
  slot_at_[page.position] = slot.slot;
  facts.generation = slot.generation;
  facts.checksum = page.checksum;
}

Result<void> DiskTier::sync() {
  INFERD_CHECK(under_way_ == 0);
  if (::fsync(file_.get()) != 0) return errno_error("cannot write '" + options_.path + "'", errno);
  return {};
}

// ---- its own thread ----

void DiskTier::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_ready_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    const Done done = work(job);
    lock.lock();
    done_.push_back(done);
    lock.unlock();
    work_done_.notify_one();
    if (wake_) wake_();
    lock.lock();
  }
}

DiskTier::Done DiskTier::work(const Job& job) {
  Done done;
  done.kind = job.kind;
  done.buffer = job.buffer;
  // Only a duration, on this thread: the clock that was injected is the engine thread's.
  const MonotonicClock clock;
  const int64_t start_ns = clock.now_ns();
  switch (job.kind) {
    case Job::Kind::kStore:
      done.error = write_slot(job);
      break;
    case Job::Kind::kFetch:
      done.error = read_slot(job);
      break;
    case Job::Kind::kErase:
      erase_slots(job);
      break;
  }
  done.took_ns = clock.now_ns() - start_ns;
  return done;
}

int DiskTier::write_slot(const Job& job) {
  const std::span<const std::byte> bytes = stores_[job.buffer].bytes;
  SlotFacts& facts = facts_[job.slot.slot];
  facts.generation = 0;  // until it is written, it holds nothing
  const auto place = static_cast<off_t>(facts.position * options_.page_bytes.value);
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t count = ::pwrite(file_.get(), bytes.data() + written, bytes.size() - written,
                                   place + static_cast<off_t>(written));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return EIO;
    written += static_cast<size_t>(count);
  }
  facts.checksum = XXH3_64bits(bytes.data(), bytes.size());
  facts.generation = job.slot.generation;
  return 0;
}

int DiskTier::read_slot(const Job& job) {
  const SlotFacts& facts = facts_[job.slot.slot];
  if (facts.generation != job.slot.generation) return ESTALE;
  const std::span<std::byte> bytes = fetches_[job.buffer].bytes;
  const auto place = static_cast<off_t>(facts.position * options_.page_bytes.value);
  for (size_t read = 0; read < bytes.size();) {
    const ssize_t count = ::pread(file_.get(), bytes.data() + read, bytes.size() - read,
                                  place + static_cast<off_t>(read));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return EILSEQ;  // somebody cut the file
    read += static_cast<size_t>(count);
  }
  return XXH3_64bits(bytes.data(), bytes.size()) == facts.checksum ? 0 : EILSEQ;
}

void DiskTier::erase_slots(const Job& job) {
  for (uint32_t slot : job.erased) {
    facts_[slot].generation = 0;
    const auto place = static_cast<off_t>(facts_[slot].position * options_.page_bytes.value);
    const auto bytes = static_cast<off_t>(options_.page_bytes.value);
    if (::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place, bytes) == 0)
      continue;
    // A file system without holes: zeros do as well.
    const std::vector<std::byte> zeros(options_.page_bytes.value);
    if (::pwrite(file_.get(), zeros.data(), zeros.size(), place) < 0) return;
  }
}

}  // namespace inferd::daemon
