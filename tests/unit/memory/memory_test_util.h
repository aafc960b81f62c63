// What the memory tests share: a region to break on purpose, and the structures that lie in it.
// Owner: tests/unit/memory.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "memory/paged_memory.h"

namespace inferd::memory {

// A zeroed, aligned region.
class TestRegion {
 public:
  explicit TestRegion(size_t bytes)
      : bytes_(bytes),
        memory_(
            static_cast<std::byte*>(std::aligned_alloc(kLayoutAlignment, (bytes + 63) / 64 * 64))) {
    std::fill_n(memory_.get(), bytes_, std::byte{0});
  }

  std::span<std::byte> span() const { return {memory_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

// The pool's structures as they lie in the region.
inline PoolHeader& pool_header(std::span<std::byte> region) {
  return array_at<PoolHeader>(region, 0, 1)[0];
}
inline PageRecord& page_record(std::span<std::byte> region, PageId page) {
  LayoutBuilder builder;
  builder.place<PoolHeader>(1);
  const uint32_t pages = pool_header(region).pages;
  return array_at<PageRecord>(region, builder.place<PageRecord>(pages), pages)[page.value];
}

// Takes one page, reserving it first; it must be there.
inline PageId take_one(PagePool& pool, UserId user) {
  Reservation reservation;
  const ReserveStatus status = pool.reserve(PageCount(1), reservation);
  INFERD_CHECK(status == ReserveStatus::kReserved);
  return pool.take(reservation, user);
}

// The verdict's sentence, "" if all is well.
inline std::string verdict(const Result<void>& result) {
  return result.ok() ? "" : result.error().message();
}

}  // namespace inferd::memory
