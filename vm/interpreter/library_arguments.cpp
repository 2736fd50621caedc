#include "vm/interpreter/library_arguments.h"

#include <algorithm>

#include "vm/interpreter/collapse.h"
#include "vm/interpreter/kernel_faults.h"

namespace nimble::rt {
namespace {

using exec::Access;

// The shape as the contract has accepted it, and as its verifier reasons about it.
std::span<const int64_t> contract_shape(const Tensor& t, uint8_t rank, CollapsedShape* space) {
  if (t.rank == rank) return t.shape();
  const int surplus = t.rank - rank;
  try_collapse(t, surplus, space->data());  // bind_arguments has looked
  std::copy_n(t.extents.begin() + surplus + 1, rank - 1, space->begin() + 1);
  return {space->data(), rank};
}

// Arguments up to which comparing them in pairs is faster than sorting.
constexpr size_t kFewArguments = 16;

// Where a tensor lies. `end` is `begin` if there is nothing in it.
KernelFrame::Range range_of(const Tensor& t, size_t argument, bool written) {
  const auto begin = reinterpret_cast<uintptr_t>(t.data());
  return {begin, begin + bytes_of(t), argument, written};
}

// `written`: the tensor that is argument `at`, among few.
void refuse_overlap(const PreparedKernel& k, std::span<const Value> arguments,
                    const Tensor& written, size_t at) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is(ObjectKind::kTensor) || i == at) continue;
    const Tensor& other = *static_cast<const Tensor*>(arguments[i].object);
    // What is written lies in a storage of a pool, whose memory is in no other.
    if (other.storage != written.storage) [[likely]]
      continue;
    const KernelFrame::Range a = range_of(written, at, true), b = range_of(other, i, false);
    if (std::max(a.begin, b.begin) < std::min(a.end, b.end)) [[unlikely]]
      fail_overlap(k, i, at);
  }
}

// For all that are written of many arguments.
[[gnu::noinline]] void refuse_overlaps_of_many(const PreparedKernel& k,
                                               std::span<const Value> arguments,
                                               KernelFrame* frame) {
  using Range = KernelFrame::Range;
  size_t n = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is(ObjectKind::kTensor)) continue;
    const Range r = range_of(*static_cast<const Tensor*>(arguments[i].object), i,
                             k.arguments[i].access != Access::kIn);
    if (r.begin < r.end) frame->ranges[n++] = r;
  }
  const std::span<Range> ranges(frame->ranges.data(), n);
  std::ranges::sort(ranges, {}, &Range::begin);
  // Of the ranges so far, those that reach farthest: of all, and of those that are written.
  const Range* last = nullptr;
  const Range* last_written = nullptr;
  for (const Range& r : ranges) {
    const Range* other = r.written ? last : last_written;
    if (other && r.begin < other->end) [[unlikely]]
      fail_overlap(k, other->argument, r.argument);
    if (!last || r.end > last->end) last = &r;
    if (r.written && (!last_written || r.end > last_written->end)) last_written = &r;
  }
}

}  // namespace

std::span<const LibraryTensor> library_tensors(const PreparedKernel& k,
                                               std::span<const Value> arguments,
                                               KernelFrame* frame) {
  size_t n = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is(ObjectKind::kTensor)) continue;
    const Tensor& t = *static_cast<const Tensor*>(arguments[i].object);
    frame->tensors[n] = {t.dtype, contract_shape(t, k.arguments[i].rank, &frame->collapsed[n]),
                         frame->buffers[n]};
    ++n;
  }
  return {frame->tensors.data(), n};
}

void refuse_overlaps(const PreparedKernel& k, std::span<const Value> arguments,
                     KernelFrame* frame) {
  if (arguments.size() > kFewArguments) [[unlikely]]
    return refuse_overlaps_of_many(k, arguments, frame);
  for (size_t i = 0; i < arguments.size(); ++i)
    if (k.arguments[i].access != Access::kIn && arguments[i].is(ObjectKind::kTensor))
      refuse_overlap(k, arguments, *static_cast<const Tensor*>(arguments[i].object), i);
}

}  // namespace nimble::rt
