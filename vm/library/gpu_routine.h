// What routines of NVIDIA's libraries have in common: how they are told what to compute, and how
// they find what serves a call. Internal to vm/library.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "vm/executable/contract.h"
#include "vm/executable/vendor_call.h"
#include "vm/executable/vendor_epilogue.h"
#include "vm/library/gpu_library.h"
#include "vm/library/kept_calls.h"
#include "vm/library/registry.h"

namespace nimble::rt {

struct GpuCall {
  exec::VendorCall call;
  exec::VendorEpilogue epilogue;
};

// What a configuration asks of a library, which fits the contract. `fault_of` says why the routine
// does not compute it on tensors of these types (x, w, y), "" if it does. Error(kCorrupt) for a
// configuration that is none, kUnsupported where the library is missing or does not compute it,
// kIncompatible where it was measured with another version; of `place`.
GpuCall gpu_call_of(const GpuLibrary& library, const char* place, const std::string& configuration,
                    const exec::KernelContract& contract,
                    std::string (*fault_of)(const GpuCall& told, DType x, DType w, DType y));

// Gives a row's kernel the library that a function opens.
template <auto library>
void bind_library(LibraryKernel* kernel) {
  kernel->unavailable = [] { return library().problem(); };
  kernel->version = [] { return library().version(); };
}

// The largest power of two, `most` or less, of which addresses are multiples; of several, or-ed.
inline uint32_t alignment_of(uintptr_t addresses, uint32_t most) {
  return uint32_t{1} << std::countr_zero(addresses | most);
}

inline void add_to_hash(int64_t value, size_t* hash) {
  *hash = (*hash ^ static_cast<size_t>(value)) * 0x9e3779b97f4a7c15;
  *hash ^= *hash >> 32;
}

// A routine whose calls are kept. Of the library are
// - Context, its state on a device;
// - Sizer, made of what is told and a call's tensors: throws Refused where they are something else;
//   empty(): the result has no elements; work(): what the library is asked for, by which Hash and
//   == tell calls apart;
// - Planned, the DeviceCall that serves such work.
template <class Context, class Sizer, class Planned, class Hash>
class KeptRoutine final : public DeviceRoutine {
 public:
  KeptRoutine(std::shared_ptr<const Context> context, GpuCall told)
      : context_(std::move(context)), told_(std::move(told)) {}

  std::shared_ptr<const DeviceCall> find(std::span<const LibraryTensor> tensors,
                                         std::string* why) override {
    try {
      const Sizer sizer(told_, tensors);
      if (sizer.empty()) return nothing_;
      return kept_.find(sizer.work(), why, [&](const Work& work) {
        return std::make_shared<const Planned>(context_, told_.call, work);
      });
    } catch (const Refused& refused) {
      *why = refused.why;
      return nullptr;
    }
  }

 private:
  using Work = std::remove_cvref_t<decltype(std::declval<const Sizer&>().work())>;

  const std::shared_ptr<const Context> context_;
  const GpuCall told_;
  const std::shared_ptr<const DeviceCall> nothing_ = std::make_shared<const NoCall>();
  KeptCalls<Work, Hash> kept_;
};

}  // namespace nimble::rt
