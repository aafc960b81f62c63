// The bytes behind page ids on the CPU: one memfd, address space for the whole pool, memory only for pages in use.
// Owner: the CPU backend; engine thread only, except that kernels read and write disjoint pages.
// Must not know sequences.
//
// A page holds 16 tokens of every layer: layer after layer K as [kv_heads][head_dim / 2][16][2] and V as
// [kv_heads][16][head_dim], f16, head_dim padded to a multiple of 16. Slots not yet written read as zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace inferd::engine::cpu {

struct KvLayout {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;  // padded

  size_t head_values() const { return size_t{head_dim} * kPageTokens; }  // of K or V, one head
  size_t layer_values() const { return 2 * head_values() * kv_heads; }
  // Bytes of one page, a multiple of the system's 4 KiB.
  size_t page_bytes() const { return (layer_values() * layers * 2 + 4095) / 4096 * 4096; }
};

class KvArena {
 public:
  static Result<KvArena> create(const KvLayout& layout, PageCount pages);
  KvArena(KvArena&& other) noexcept;
  KvArena& operator=(KvArena&&) = delete;
  ~KvArena();

  // Zeroes the page unless it is still untouched.
  void take(PageId page);
  // Returns the page's memory to the operating system.
  void give_back(PageId page);
  void copy(PageId from, PageId to);
  // The whole page as bytes, [page_bytes], and back.
  void save(PageId page, std::span<std::byte> out) const;
  void restore(PageId page, std::span<const std::byte> content);

  // K of one layer and head, [head_dim / 2][16][2] f16.
  uint16_t* keys(PageId page, uint32_t layer, uint32_t head) {
    return base(page) + layer * layout_.layer_values() + head * layout_.head_values();
  }
  // V of one layer and head, [16][head_dim] f16.
  uint16_t* values(PageId page, uint32_t layer, uint32_t head) {
    return keys(page, layer, layout_.kv_heads) + head * layout_.head_values();
  }

 private:
  KvArena() = default;
  uint16_t* base(PageId page) { return reinterpret_cast<uint16_t*>(region_ + page.value * page_bytes_); }

  KvLayout layout_;
  size_t page_bytes_ = 0;
  UniqueFd fd_;
  uint8_t* region_ = nullptr;
  size_t region_bytes_ = 0;
  std::vector<uint8_t> written_;  // per page: 1 if it may hold anything but zeros
};

}  // namespace inferd::engine::cpu
