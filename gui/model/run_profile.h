// What `nimble run --profile --format json` tells, as plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nimble::gui {

struct KernelTime {  // of all calls of a kernel at one shape
  std::string name, source, shape, implementation, config;
  int64_t threads = 1, count = 0, total_ns = 0;
  double share = 0;  // of the run
};
struct InstructionTime {
  std::string name;
  int64_t count = 0, total_ns = 0;
};
struct RunProfile {
  int64_t wall_ns = 0, kernel_ns = 0, overhead_ns = 0;
  int64_t peak_live_bytes = 0, held_bytes = 0, requests = 0, reuses = 0;
  std::vector<KernelTime> kernels;            // the dearest first
  std::vector<InstructionTime> instructions;  // the dearest first
};

// Throws Error(kCorrupt) for what is no profile.
RunProfile profile_from_json(const std::string& json);

}  // namespace nimble::gui
