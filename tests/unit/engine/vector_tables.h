// The vector kernel tables that can run here: the processor's own, and those of AVX-512 over emulated
// instructions wherever there is AVX2, so that they are tested on machines without AVX-512 too.
// Owner: the engine's unit tests. Pure, any thread.
#pragma once

#include <string>
#include <vector>

#include "engine/cpu/isa.h"
#include "engine/cpu/kernels.h"
#ifdef INFERD_EMULATED_TABLES
#include "tests/unit/engine/emulation/tables.h"
#endif

namespace inferd::engine::cpu {

struct VectorTable {
  std::string name;
  const Kernels* kernels;
};

inline std::vector<VectorTable> vector_tables() {
  std::vector<VectorTable> tables;
  for (const char* name : {"avx2", "avx512", "avx512vnni", "avx512bf16"}) {
    const auto isa = parse_isa(name);
    if (isa.ok()) tables.push_back({name, &kernels_for(isa.value())});
  }
#ifdef INFERD_EMULATED_TABLES
  if (parse_isa("avx2").ok()) {
    tables.push_back({"emulated avx512", &kEmulatedAvx512});
    tables.push_back({"emulated avx512vnni", &kEmulatedAvx512Vnni});
    tables.push_back({"emulated avx512bf16", &kEmulatedAvx512Bf16});
  }
#endif
  return tables;
}

}  // namespace inferd::engine::cpu
