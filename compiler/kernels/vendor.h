// Which workloads a vendor's library computes, and how it is told: products and convolutions, with
// what is fused behind them as far as the library has it (vm/executable/VendorOps.def).
#pragma once

#include <optional>
#include <string>

#include "compiler/kernels/workload.h"
#include "vm/executable/vendor_call.h"

namespace nimble::kernels {

// The call that computes the workload, without the library's version: whoever has the library adds
// it. Nothing, and in `why` (if given) the reason, where no routine does.
std::optional<exec::VendorCall> vendor_call_of(const Workload& w, std::string* why = nullptr);

}  // namespace nimble::kernels
