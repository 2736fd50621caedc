// What tests of campaigns for GPUs share.
#pragma once

#include <functional>
#include <string>

#include "compiler/kernels/target.h"
#include "vm/base/error.h"

namespace nimble::tuner {

const kernels::TargetInfo& hopper();

// Why no code for it can be made here; "" if it can.
std::string why_no_nvrtc();

// What `body` throws: an error of this status, with a remedy.
std::string refusal(const std::function<void()>& body, Status status);

}  // namespace nimble::tuner
