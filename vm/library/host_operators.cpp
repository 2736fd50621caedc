#include "vm/library/host_operators.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "vm/library/elements.h"

namespace nimble::rt {
namespace {

// The share of `bytes` that a thread handles, in whole cache lines.
std::pair<uint64_t, uint64_t> share(uint64_t bytes, int32_t thread, int32_t threads) {
  const uint64_t lines = (bytes + 63) / 64;
  auto bound = [&](int32_t t) {
    return std::min(bytes, lines * static_cast<uint64_t>(t) / static_cast<uint64_t>(threads) * 64);
  };
  const uint64_t begin = bound(thread);
  return {begin, (thread + 1 == threads ? bytes : bound(thread + 1)) - begin};
}

// Calls f(offset, size) for the pieces of a thread's share. The first thread pays for all.
template <class F>
void for_pieces(const LibraryCall& call, uint64_t bytes, int32_t thread, int32_t threads, F f) {
  if (thread == 0) call.meter->charge_bytes(bytes);
  auto [at, left] = share(bytes, thread, threads);
  while (left > 0) {
    call.meter->poll();
    const uint64_t piece = std::min(left, kBytesPerPoll);
    f(at, piece);
    at += piece;
    left -= piece;
  }
}

std::string check_copy(const exec::KernelContract& contract) {
  const exec::KernelArgument* x = nullptr;
  for (const auto& a : contract.arguments) {
    if (a.kind != exec::KernelArgument::Kind::kTensor) continue;
    if (x && x->dims != a.dims) return "input and output differ in shape";
    x = &a;
  }
  return {};
}

void run_copy(const LibraryCall& call, int32_t thread, int32_t threads, nimble_barrier*) {
  const LibraryTensor &x = call.tensors[0], &y = call.tensors[1];
  require_fit(std::ranges::equal(x.shape, y.shape), "copy", "input and output differ in shape");
  for_pieces(call, bytes_of(y), thread, threads, [&](uint64_t at, uint64_t size) {
    std::memcpy(static_cast<uint8_t*>(y.data) + at, static_cast<const uint8_t*>(x.data) + at, size);
  });
}

void run_zero(const LibraryCall& call, int32_t thread, int32_t threads, nimble_barrier*) {
  const LibraryTensor& y = call.tensors[0];
  for_pieces(call, bytes_of(y), thread, threads, [&](uint64_t at, uint64_t size) {
    std::memset(static_cast<uint8_t*>(y.data) + at, 0, size);
  });
}

}  // namespace

std::vector<LibraryKernel> host_operators() {
  using Kind = exec::ImplementationKind;
  return {
      {"host.copy", Kind::kHost, "x T (dims) -> y T (dims)", "Copies a tensor.", check_copy,
       nullptr, run_copy, ContractRule{{reads(kT), of_first_rank(writes(kT))}}},
      {"host.zero", Kind::kHost, "-> y T (dims); scalars give the dims", "Fills with zeros.",
       nullptr, nullptr, run_zero, ContractRule{{writes(kT)}}},
  };
}

}  // namespace nimble::rt
