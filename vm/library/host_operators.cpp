#include "vm/library/host_operators.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace nimble::rt {
namespace {

uint64_t bytes_of(const LibraryTensor& t) {
  uint64_t n = size_of(t.dtype);
  for (int64_t extent : t.shape) n *= static_cast<uint64_t>(extent);
  return n;
}

// The share of `bytes` that a thread handles, in whole cache lines.
std::pair<uint64_t, uint64_t> share(uint64_t bytes, int32_t thread, int32_t threads) {
  const uint64_t lines = (bytes + 63) / 64;
  auto bound = [&](int32_t t) {
    return std::min(bytes, lines * static_cast<uint64_t>(t) / static_cast<uint64_t>(threads) * 64);
  };
  const uint64_t begin = bound(thread);
  return {begin, (thread + 1 == threads ? bytes : bound(thread + 1)) - begin};
}

std::string check_copy(const exec::KernelContract& contract) {
  std::vector<const exec::KernelArgument*> tensors;
  for (const auto& a : contract.arguments)
    if (a.kind == exec::KernelArgument::Kind::kTensor) tensors.push_back(&a);
  if (tensors.size() != 2) return "it takes one input and one output";
  if (tensors[0]->access != exec::Access::kIn || tensors[1]->access != exec::Access::kOut)
    return "the first tensor must be read, the second written";
  if (tensors[0]->dtype != tensors[1]->dtype) return "input and output differ in dtype";
  if (tensors[0]->dims != tensors[1]->dims) return "input and output differ in shape";
  return {};
}

void run_copy(const LibraryCall& call, int32_t thread, int32_t threads, nimble_barrier*) {
  const auto [begin, size] = share(bytes_of(call.tensors[0]), thread, threads);
  if (size == 0) return;
  std::memmove(static_cast<uint8_t*>(call.tensors[1].data) + begin,
               static_cast<const uint8_t*>(call.tensors[0].data) + begin, size);
}

std::string check_zero(const exec::KernelContract& contract) {
  size_t tensors = 0;
  for (const auto& a : contract.arguments)
    if (a.kind == exec::KernelArgument::Kind::kTensor) {
      ++tensors;
      if (a.access != exec::Access::kOut) return "its tensor must be written only";
    }
  return tensors == 1 ? "" : "it takes one output";
}

void run_zero(const LibraryCall& call, int32_t thread, int32_t threads, nimble_barrier*) {
  const auto [begin, size] = share(bytes_of(call.tensors[0]), thread, threads);
  if (size > 0) std::memset(static_cast<uint8_t*>(call.tensors[0].data) + begin, 0, size);
}

}  // namespace

std::vector<LibraryKernel> host_operators() {
  using Kind = exec::ImplementationKind;
  return {
      {"host.copy", Kind::kHost, "x T (dims) -> y T (dims)", "Copies a tensor.", check_copy,
       nullptr, run_copy},
      {"host.zero", Kind::kHost, "-> y T (dims); scalars give the dims", "Fills with zeros.",
       check_zero, nullptr, run_zero},
  };
}

}  // namespace nimble::rt
