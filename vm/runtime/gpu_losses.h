// Whether this process has lost a GPU: an error left nothing of what was in its context
// (cuda_device.h). NVIDIA's libraries keep state there that is not ours to make anew.
#pragma once

namespace nimble::rt {

bool has_lost_gpu();
// As if none had been lost. For tests, whose process outlives many.
void forget_lost_gpus();

}  // namespace nimble::rt
