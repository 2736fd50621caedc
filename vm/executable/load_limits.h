// How much a file may take of the machine before anything of it runs. A file of a kilobyte can ask
// for gigabytes (constants that are copied, code that is decoded) and for hours (of verification):
// loading is bounded by these, as running is by the limits of a session.
#pragma once

#include <cstdint>

namespace nimble::exec {

struct LoadLimits {
  static constexpr uint64_t kNone = UINT64_MAX;
  static constexpr uint64_t kDefaultMemory = uint64_t{4} << 30;
  static constexpr uint64_t kDefaultConstants = uint64_t{2} << 30;

  // 0: the default; kNone: no limit.
  // Bytes that loading may take: the file, unless it is mapped, what is decoded of it and its
  // kernels' code, and copies of constants. Default: none with trust, else kDefaultMemory.
  uint64_t memory = 0;
  // Bytes of all constants. Default: none with trust, else kDefaultConstants.
  uint64_t constants = 0;
  // Steps of the verifier (verifier.h). Default, with trust and without: kVerificationStepsPerByte.
  uint64_t verification_steps = 0;

  // With the defaults filled in, but for the verifier's.
  LoadLimits resolved(bool trust) const {
    LoadLimits out = *this;
    if (memory == 0) out.memory = trust ? kNone : kDefaultMemory;
    if (constants == 0) out.constants = trust ? kNone : kDefaultConstants;
    return out;
  }
};

}  // namespace nimble::exec
