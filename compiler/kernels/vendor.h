// Which workloads a vendor's library computes, and how it is told: products and convolutions, with
// what is fused behind them as far as the library has it (vm/executable/VendorOps.def; of a GPU's
// vm/executable/vendor_epilogue.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler/kernels/target.h"
#include "compiler/kernels/workload.h"
#include "vm/executable/vendor_call.h"

namespace nimble::kernels {

// The call that computes the workload on a target, oneDNN's of a CPU, cuBLASLt's and cuDNN's of a
// GPU, without the library's version: whoever has the library adds it. Nothing, and in `why` (if
// given) the reason, where no routine does.
std::optional<exec::VendorCall> vendor_call_of(const Workload& w, const TargetInfo& target,
                                               std::string* why = nullptr);
// Whether the routine is made for exact sizes, ahead of any call, and serves no others; a GPU's
// serve any.
bool serves_exact_sizes(std::string_view routine);

}  // namespace nimble::kernels
