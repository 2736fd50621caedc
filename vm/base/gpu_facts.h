// What tells one kind of GPU from another, as its driver says it: whose records measurements are.
// And what tells a card from others of its kind.
#pragma once

#include <cstdint>
#include <string>

namespace nimble {

struct GpuFacts {
  std::string name;    // "NVIDIA H100 80GB HBM3"
  int capability = 0;  // 90 of 9.0
  int multiprocessors = 0;
  int64_t shared_bytes = 0;  // that a block may have
  int64_t l2_bytes = 0;
  uint64_t memory_bytes = 0;
  int memory_khz = 0, bus_bits = 0;  // of the memory; 0: the driver does not say

  std::string slot = {};  // of this card, on the machine's bus: "0000:3b:00"; empty: nobody says
  int driver = 0;         // CUDA's version that its driver has: 13000 of 13.0
  // Of this card, or of the part of it that the driver shows as one; nobody else's in the world:
  // "GPU-" or "MIG-" and this is its name in nvidia-smi. Empty: the driver does not say.
  std::string uuid = {};
};

}  // namespace nimble
