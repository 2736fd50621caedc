// Host operators that select by value: nonzero, compress, repeat, and the shape functions that
// count what they will give (paper, 3.2: data-dependent shape functions).
//
// An operator trusts no count: its output's extents come from the caller, and it refuses to write
// where they do not fit what the data say. Data that are looked at twice, to count and to write,
// bound nothing the second time: the output's own extents do.
#include <algorithm>
#include <array>

#include "vm/library/elements.h"
#include "vm/library/host_operators.h"

namespace nimble::rt {
namespace {

int64_t count_nonzero(const LibraryTensor& x, StepCounter& steps) {
  return visit_elements(x, [&](auto e) {
    int64_t found = 0;
    const int64_t n = count_of(x);
    constexpr int64_t kPiece = WorkMeter::kPollSteps;
    for (int64_t begin = 0; begin < n; begin += kPiece) {
      const int64_t end = std::min(n, begin + kPiece);
      charge_elements(steps, end - begin);
      for (int64_t i = begin; i < end; ++i) found += e[i] != 0;
    }
    return found;
  });
}

void run_count_nonzero(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  StepCounter steps(*call.meter);
  require_fit(count_of(call.tensors[1]) == 1, "count_nonzero", "the result has one element");
  *static_cast<int64_t*>(call.tensors[1].data) = count_nonzero(call.tensors[0], steps);
}

void run_nonzero(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  StepCounter steps(*call.meter);
  const LibraryTensor &x = call.tensors[0], &y = call.tensors[1];
  const size_t rank = x.shape.size();
  const int64_t found = y.shape[1];
  require_fit(y.shape[0] == static_cast<int64_t>(rank) && found == count_nonzero(x, steps),
              "nonzero", "the result is not (rank, count)");
  auto* out = static_cast<int64_t*>(y.data);
  visit_elements(x, [&](auto e) {
    std::array<int64_t, kMaxRank> at{};
    const int64_t n = count_of(x);
    int64_t column = 0;
    for (int64_t i = 0; i < n && column < found; ++i) {
      steps.charge(1);
      if (e[i] != 0) {
        for (size_t a = 0; a < rank; ++a) out[static_cast<int64_t>(a) * found + column] = at[a];
        ++column;
      }
      for (size_t a = rank; a-- > 0;) {
        if (++at[a] < x.shape[a]) break;
        at[a] = 0;
      }
    }
  });
}

// Copies blocks of an axis until y is full: next() gives the number of each block to take, -1 at
// the end.
template <class Next>
void take_blocks(const LibraryTensor& x, const LibraryTensor& y, int64_t axis, StepCounter& steps,
                 Next next) {
  if (count_of(y) == 0) return;
  const AxisView from = around(x, axis), to = around(y, axis);
  const uint64_t block = static_cast<uint64_t>(from.inner) * size_of(x.dtype);
  const auto* in = static_cast<const uint8_t*>(x.data);
  auto* out = static_cast<uint8_t*>(y.data);
  for (int64_t column = 0; column < to.extent; ++column) {
    const int64_t k = next();
    if (k < 0 || k >= from.extent) return;
    for (int64_t o = 0; o < from.outer; ++o)
      copy_charged(steps, out + static_cast<uint64_t>(o * to.extent + column) * block,
                   in + static_cast<uint64_t>(o * from.extent + k) * block, block);
  }
}

void run_compress(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  StepCounter steps(*call.meter);
  const LibraryTensor &x = call.tensors[0], &mask = call.tensors[1], &y = call.tensors[2];
  const int64_t axis = call.scalars[0], n = mask.shape[0];
  require_fit(same_but_axis(x, y, axis) && n <= around(x, axis).extent &&
                  around(y, axis).extent == count_nonzero(mask, steps),
              "compress", "the result does not fit the condition");
  const auto* keep = static_cast<const uint8_t*>(mask.data);
  int64_t k = -1;
  take_blocks(x, y, axis, steps, [&]() -> int64_t {
    while (++k < n) {
      steps.charge(1);
      if (keep[k]) return k;
    }
    return -1;
  });
}

// The sum of the repeats, each checked.
int64_t sum_repeats(const LibraryTensor& repeats, StepCounter& steps) {
  const auto* r = static_cast<const int64_t*>(repeats.data);
  int64_t sum = 0;
  for (int64_t i = 0, n = count_of(repeats); i < n; ++i) {
    steps.charge(1);
    const int64_t times = r[i];
    if (times < 0)
      throw Error(Status::kFatal, "", fmt::format("repeat: repeat {} is negative: {}", i, times),
                  "repeat each slice 0 times or more");
    if (__builtin_add_overflow(sum, times, &sum))
      throw Error(Status::kFatal, "", "repeat: the sum of the repeats exceeds 63 bits",
                  "repeat less");
  }
  return sum;
}

void run_count_repeat(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  StepCounter steps(*call.meter);
  require_fit(count_of(call.tensors[1]) == 1, "count_repeat", "the result has one element");
  *static_cast<int64_t*>(call.tensors[1].data) = sum_repeats(call.tensors[0], steps);
}

void run_repeat(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  StepCounter steps(*call.meter);
  const LibraryTensor &x = call.tensors[0], &repeats = call.tensors[1], &y = call.tensors[2];
  const int64_t axis = call.scalars[0], n = repeats.shape[0];
  require_fit(same_but_axis(x, y, axis) && n == around(x, axis).extent &&
                  around(y, axis).extent == sum_repeats(repeats, steps),
              "repeat", "the result does not fit the repeats");
  const auto* r = static_cast<const int64_t*>(repeats.data);
  int64_t k = -1, left = 0;
  take_blocks(x, y, axis, steps, [&]() -> int64_t {
    while (left <= 0) {
      steps.charge(1);
      if (++k >= n) return -1;
      left = r[k];
    }
    --left;
    return k;
  });
}

// The number of elements from start to below (above) stop, counted in double as ONNX does.
void run_count_range(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  for (const LibraryTensor& t : call.tensors)
    require_fit(count_of(t) == 1, "count_range", "each tensor has one element");
  auto number = [&](size_t i) {
    return visit_elements(call.tensors[i], [](auto e) { return static_cast<double>(e[0]); });
  };
  const double start = number(0), stop = number(1), step = number(2);
  const double count = std::ceil((stop - start) / step);
  if (step == 0 || !(count < 9e15))
    throw Error(Status::kFatal, "",
                fmt::format("range: from {} to {} in steps of {} has no end", start, stop, step),
                "give a step that leads from start to stop");
  *static_cast<int64_t*>(call.tensors[3].data) = static_cast<int64_t>(std::max(0.0, count));
}

}  // namespace

std::vector<LibraryKernel> selection_operators() {
  using Kind = exec::ImplementationKind;
  const TensorRule count = writes(DType::kI64, {1, 1});
  return {
      {"host.count_nonzero", Kind::kHost, "x T (dims) -> n i64 (1)",
       "Counts elements that are not zero.", nullptr, nullptr, run_count_nonzero,
       ContractRule{{reads(kT), count}}},
      {"host.nonzero", Kind::kHost, "x T (dims) -> y i64 (rank, n)",
       "Coordinates of the elements that are not zero.", nullptr, nullptr, run_nonzero,
       ContractRule{{reads(kT), writes(DType::kI64, {2, 2})}}},
      {"host.compress", Kind::kHost, "x T (dims), mask bool (m); axis -> y T (dims)",
       "The slices whose mask holds.", nullptr, nullptr, run_compress,
       ContractRule{{reads(kT), reads(DType::kBool, {1, 1}), writes(kT, {1})}, false, 1}},
      {"host.count_repeat", Kind::kHost, "repeats i64 (m) -> n i64 (1)", "The sum of the repeats.",
       nullptr, nullptr, run_count_repeat, ContractRule{{reads(DType::kI64, {1, 1}), count}}},
      {"host.repeat", Kind::kHost, "x T (dims), repeats i64 (m); axis -> y T (dims)",
       "Each slice as often as its repeat says.", nullptr, nullptr, run_repeat,
       ContractRule{{reads(kT), reads(DType::kI64, {1, 1}), writes(kT, {1})}, false, 1}},
      {"host.count_range", Kind::kHost, "start T (), stop T (), step T () -> n i64 (1)",
       "The number of elements of a range.", nullptr, nullptr, run_count_range,
       ContractRule{{reads(kT, {0, 0}), reads(kT, {0, 0}), reads(kT, {0, 0}), count}}},
  };
}

}  // namespace nimble::rt
