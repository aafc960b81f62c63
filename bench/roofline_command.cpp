// inferd-bench roofline: bandwidth and arithmetic peaks by thread count.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/command.h"
#include "bench/options.h"
#include "bench/roofline.h"

namespace inferd::bench {

Result<int> run_roofline_command(Arguments arguments) {
  std::vector<uint32_t> threads;
  uint32_t buffer_mib = 256;
  bool json = false;
  Options options("roofline", "what this machine can do, by thread count");
  options.add("threads", &threads, "thread counts, such as 1,2 (default: 1 and all processors)");
  options.add("buffer-mib", &buffer_mib, "buffer of the bandwidth measurement (default 256)");
  options.add("json", &json, "print JSON");
  INFERD_ASSIGN(const bool go, options.parse(arguments));
  if (!go) return 0;
  if (threads.empty()) {
    threads = {1};
    if (std::thread::hardware_concurrency() > 1) {
      threads.push_back(std::thread::hardware_concurrency());
    }
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (uint32_t count : threads) {
    if (count == 0 || count > 1024 || buffer_mib == 0 || buffer_mib > (1u << 20)) {
      return Error(ErrorCode::kInvalidArgument,
                   "--threads must be from 1 to 1024, --buffer-mib from 1 to 1048576");
    }
    const MachineFloor floor = measure_floor(count, Bytes(uint64_t{buffer_mib} << 20));
    rows.push_back({{"threads", count},
                    {"read_gb_per_s", floor.read_bytes_per_s / 1e9},
                    {"int8_gop_per_s", floor.int8_ops_per_s / 1e9},
                    {"f32_gflop_per_s", floor.f32_ops_per_s / 1e9},
                    {"bf16_gflop_per_s", floor.bf16_ops_per_s / 1e9}});
  }
  const auto name = [](const PeakKernel& kernel) {
    return kernel.name != nullptr ? std::string(kernel.name) : std::string("none");
  };
  if (json) {
    const nlohmann::ordered_json out = {{"buffer_mib", buffer_mib},
                                        {"int8", name(int8_peak_kernel())},
                                        {"f32", name(f32_peak_kernel())},
                                        {"bf16", name(bf16_peak_kernel())},
                                        {"rows", rows}};
    std::puts(out.dump(2).c_str());
    return 0;
  }
  std::printf("int8: %s; f32: %s; bf16: %s\n", name(int8_peak_kernel()).c_str(),
              name(f32_peak_kernel()).c_str(), name(bf16_peak_kernel()).c_str());
  std::printf("%8s %12s %12s %12s %12s\n", "threads", "read GB/s", "int8 GOP/s", "f32 GFLOP/s",
              "bf16 GFLOP/s");
  for (const auto& row : rows) {
    std::printf("%8u %12.1f %12.1f %12.1f %12.1f\n", row["threads"].get<unsigned>(),
                row["read_gb_per_s"].get<double>(), row["int8_gop_per_s"].get<double>(),
                row["f32_gflop_per_s"].get<double>(), row["bf16_gflop_per_s"].get<double>());
  }
  return 0;
}

}  // namespace inferd::bench
