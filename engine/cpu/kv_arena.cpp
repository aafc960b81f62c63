#include "engine/cpu/kv_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace inferd::engine::cpu {

Result<KvArena> KvArena::create(const KvLayout& layout, PageCount pages) {
  KvArena arena;
  arena.layout_ = layout;
  arena.page_bytes_ = layout.page_bytes();
  arena.region_bytes_ = arena.page_bytes_ * pages.value;
  arena.written_.assign(pages.value, 0);
  if (pages.value == 0) return Error(ErrorCode::kInvalidArgument, "a pool of 0 pages cannot hold a sequence");
  arena.fd_.reset(::memfd_create("inferd-pages", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!arena.fd_) return errno_error("cannot create shared memory for the page pool", errno);
  if (::ftruncate(arena.fd_.get(), static_cast<off_t>(arena.region_bytes_)) != 0) {
    return errno_error("cannot size the page pool", errno);
  }
  void* region = ::mmap(nullptr, arena.region_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                        arena.fd_.get(), 0);
  if (region == MAP_FAILED) return errno_error("cannot map the page pool", errno);
  arena.region_ = static_cast<uint8_t*>(region);
  // Pages hold what users wrote: never in a core dump.
  ::madvise(region, arena.region_bytes_, MADV_DONTDUMP);
  return arena;
}

KvArena::KvArena(KvArena&& other) noexcept
    : layout_(other.layout_),
      page_bytes_(other.page_bytes_),
      fd_(std::move(other.fd_)),
      region_(std::exchange(other.region_, nullptr)),
      region_bytes_(other.region_bytes_),
      written_(std::move(other.written_)) {}

KvArena::~KvArena() {
  if (region_ != nullptr) ::munmap(region_, region_bytes_);
}

void KvArena::take(PageId page) {
  INFERD_CHECK(page.value < written_.size());
  if (written_[page.value]) std::memset(base(page), 0, page_bytes_);
  written_[page.value] = 1;
}

void KvArena::give_back(PageId page) {
  INFERD_CHECK(page.value < written_.size());
  if (!written_[page.value]) return;
  // If the kernel refuses, the page simply stays and is zeroed when it is taken again.
  if (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(page.value * page_bytes_), static_cast<off_t>(page_bytes_)) == 0) {
    written_[page.value] = 0;
  }
}

void KvArena::copy(PageId from, PageId to) {
  INFERD_CHECK(from.value < written_.size() && to.value < written_.size());
  std::memcpy(base(to), base(from), page_bytes_);
  written_[to.value] = 1;
}

void KvArena::save(PageId page, std::span<std::byte> out) const {
  INFERD_CHECK(page.value < written_.size() && out.size() == page_bytes_);
  std::memcpy(out.data(), region_ + page.value * page_bytes_, page_bytes_);
}

void KvArena::restore(PageId page, std::span<const std::byte> content) {
  INFERD_CHECK(page.value < written_.size() && content.size() == page_bytes_);
  std::memcpy(base(page), content.data(), page_bytes_);
  written_[page.value] = 1;
}

}  // namespace inferd::engine::cpu
