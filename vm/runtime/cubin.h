// The outside of a GPU's machine code. The driver is told where it begins and not how long it is:
// it reads as far as the code's own headers say.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace nimble::rt {

// Why `image` is no module whose parts all lie within it; "" if it is one, or assembly, which ends
// in a zero. What stands in the parts is the driver's to judge.
std::string fault_of_gpu_image(std::span<const uint8_t> image);

}  // namespace nimble::rt
