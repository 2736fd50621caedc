// oneDNN's products and convolutions by a library of the caller's.
#pragma once

#include <memory>
#include <string>

#include "vm/library/registry.h"

namespace nimble::rt {

namespace onednn {
class Library;
}

// A routine by this library; Error(kCorrupt) for a configuration that is none, kUnsupported for one
// that the contract does not fit, kIncompatible if it was measured with another version.
std::unique_ptr<VendorRoutine> make_onednn_routine(const onednn::Library& library,
                                                   const std::string& configuration,
                                                   const exec::KernelContract& contract);

}  // namespace nimble::rt
