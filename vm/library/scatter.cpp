// Scatter: rows of a tensor replaced by, or combined with, rows of updates at given indices.
//
// Indices may repeat, and the updates of one row are applied in their order, so that a result is
// the same on every machine: one thread does it all.
#include <algorithm>
#include <cstring>

#include "vm/library/elements.h"
#include "vm/library/host_operators.h"

namespace nimble::rt {
namespace {

enum Reduction : int64_t { kReplace, kAdd, kMul, kMin, kMax };

// numpy's: a NaN stays.
template <class T>
T combined(T a, T b, int64_t reduction) {
  switch (reduction) {
    case kAdd:
    case kMul:
      if constexpr (std::is_integral_v<T>) {
        const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
        return static_cast<T>(reduction == kAdd ? x + y : x * y);
      } else {
        return reduction == kAdd ? a + b : a * b;
      }
    case kMin:
      return b != b || b < a ? b : a;
    case kMax:
      return b != b || a < b ? b : a;
    default:
      return b;
  }
}

template <class T>
void combine_row(void* to, const void* from, int64_t n, int64_t reduction) {
  auto* out = static_cast<T*>(to);
  const auto* in = static_cast<const T*>(from);
  for (int64_t i = 0; i < n; ++i) out[i] = combined(out[i], in[i], reduction);
}

template <float (*Widen)(uint16_t), uint16_t (*Narrow)(float)>
void combine_half_row(void* to, const void* from, int64_t n, int64_t reduction) {
  auto* out = static_cast<uint16_t*>(to);
  const auto* in = static_cast<const uint16_t*>(from);
  for (int64_t i = 0; i < n; ++i) out[i] = Narrow(combined(Widen(out[i]), Widen(in[i]), reduction));
}

// Bools: or, and, and, or, for add, mul, min, max.
void combine_bool_row(void* to, const void* from, int64_t n, int64_t reduction) {
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  const bool either = reduction == kAdd || reduction == kMax;
  for (int64_t i = 0; i < n; ++i) out[i] = either ? out[i] | in[i] : out[i] & in[i];
}

using Combine = void (*)(void*, const void*, int64_t, int64_t);

Combine combine_of(DType t) {
  switch (t) {
    case DType::kBool:
      return combine_bool_row;
    case DType::kU8:
      return combine_row<uint8_t>;
    case DType::kI8:
      return combine_row<int8_t>;
    case DType::kI16:
      return combine_row<int16_t>;
    case DType::kU16:
      return combine_row<uint16_t>;
    case DType::kI32:
      return combine_row<int32_t>;
    case DType::kU32:
      return combine_row<uint32_t>;
    case DType::kI64:
      return combine_row<int64_t>;
    case DType::kU64:
      return combine_row<uint64_t>;
    case DType::kF16:
      return combine_half_row<f32_from_f16, f16_from_f32>;
    case DType::kBF16:
      return combine_half_row<f32_from_bf16, bf16_from_f32>;
    case DType::kF32:
      return combine_row<float>;
    case DType::kF64:
      return combine_row<double>;
  }
  NIMBLE_UNREACHABLE("dtype {}", static_cast<int>(t));
}

// Elements combined between two looks at whether the run was cancelled.
constexpr int64_t kPiece = WorkMeter::kPollSteps;

void run_scatter(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const LibraryTensor &x = call.tensors[0], &index = call.tensors[1], &updates = call.tensors[2],
                      &y = call.tensors[3];
  const int64_t reduction = call.scalars[0];
  const AxisView rows = around(x, 0), given = around(updates, 0);
  require_fit(std::ranges::equal(x.shape, y.shape) && same_but_axis(x, updates, 0) &&
                  given.extent == count_of(index) && reduction >= kReplace && reduction <= kMax,
              "scatter", "the updates do not fit the rows");
  const size_t size = size_of(x.dtype);
  // Where it is too large to be true there are no rows, and so no index of one.
  const uint64_t row = static_cast<uint64_t>(rows.inner) * size;
  auto* out = static_cast<uint8_t*>(y.data);
  const auto* in = static_cast<const uint8_t*>(updates.data);
  const auto* at = static_cast<const int64_t*>(index.data);
  StepCounter steps(*call.meter);
  copy_charged(steps, out, static_cast<const uint8_t*>(x.data), bytes_of(x));
  const Combine combine = combine_of(x.dtype);
  for (int64_t i = 0; i < given.extent; ++i) {
    steps.charge(1);
    const int64_t given_row = at[i], r = given_row < 0 ? given_row + rows.extent : given_row;
    if (r < 0 || r >= rows.extent)
      throw Error(
          Status::kFatal, "",
          fmt::format("scatter: the index {} is out of range of {} rows", given_row, rows.extent),
          "give indices of rows that are there");
    if (row == 0) continue;
    uint8_t* to = out + static_cast<uint64_t>(r) * row;
    const uint8_t* from = in + static_cast<uint64_t>(i) * row;
    if (reduction == kReplace) {
      copy_charged(steps, to, from, row);
      continue;
    }
    for (int64_t begin = 0; begin < rows.inner; begin += kPiece) {
      const int64_t n = std::min(kPiece, rows.inner - begin);
      charge_elements(steps, n);
      const size_t offset = static_cast<size_t>(begin) * size;
      combine(to + offset, from + offset, n, reduction);
    }
  }
}

}  // namespace

std::vector<LibraryKernel> scatter_operators() {
  return {{"host.scatter", exec::ImplementationKind::kHost,
           "x T (n, dims), index i64 (k), updates T (k, dims); reduction -> y T (n, dims)",
           "Rows replaced by, or combined with, updates in their order.", nullptr, nullptr,
           run_scatter,
           ContractRule{{reads(kT, {1}), reads(DType::kI64, {1, 1}), of_first_rank(reads(kT)),
                         of_first_rank(writes(kT))},
                        false,
                        1}}};
}

}  // namespace nimble::rt
