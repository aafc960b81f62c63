// Digests of results, to hold them against those of other machines and compilers.
// Owner: the engine's unit tests. Pure functions.
#pragma once

#include <cstdint>
#include <span>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace inferd::engine::cpu {

template <class T>
uint64_t digest(const T& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace inferd::engine::cpu
