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

using exec::Access;
using exec::KernelContract;

enum Reduction : int64_t { kReplace, kAdd, kMul, kMin, kMax };

std::string check_scatter(const KernelContract& c) {
  std::vector<const exec::KernelArgument*> t;
  for (const auto& a : c.arguments)
    if (a.kind == exec::KernelArgument::Kind::kTensor) t.push_back(&a);
  if (t.size() != 4) return "another number of tensors than its signature has";
  for (size_t i = 0; i < 4; ++i)
    if (t[i]->access != (i < 3 ? Access::kIn : Access::kOut))
      return "inputs are read and outputs written";
  if (t[1]->dtype != DType::kI64 || t[1]->dims.size() != 1) return "the indices are a vector of i64";
  if (t[0]->dtype != t[2]->dtype || t[0]->dtype != t[3]->dtype)
    return "input, updates and output differ in dtype";
  if (t[0]->dims.empty() || t[0]->dims.size() != t[2]->dims.size() ||
      t[0]->dims.size() != t[3]->dims.size())
    return "input, updates and output differ in rank";
  return check_scalars(c, 1);
}

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
      return a != a || !(b != b || b < a) ? a : b;
    case kMax:
      return a != a || !(b != b || a < b) ? a : b;
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
  for (int64_t i = 0; i < n; ++i)
    out[i] = Narrow(combined(Widen(out[i]), Widen(in[i]), reduction));
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

void run_scatter(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const LibraryTensor &x = call.tensors[0], &index = call.tensors[1], &updates = call.tensors[2],
                      &y = call.tensors[3];
  const int64_t reduction = call.scalars[0];
  const AxisView rows = around(x, 0), given = around(updates, 0);
  require_fit(std::equal(x.shape.begin(), x.shape.end(), y.shape.begin(), y.shape.end()) &&
                  given.inner == rows.inner && given.extent == count_of(index) &&
                  reduction >= kReplace && reduction <= kMax,
              "scatter", "the updates do not fit the rows");
  const size_t size = size_of(x.dtype), row = static_cast<size_t>(rows.inner) * size;
  auto* out = static_cast<uint8_t*>(y.data);
  const auto* in = static_cast<const uint8_t*>(updates.data);
  const auto* at = static_cast<const int64_t*>(index.data);
  if (count_of(x) > 0 && y.data != x.data)
    std::memcpy(out, x.data, static_cast<size_t>(count_of(x)) * size);
  const Combine combine = combine_of(x.dtype);
  for (int64_t i = 0; i < given.extent; ++i) {
    const int64_t r = at[i] < 0 ? at[i] + rows.extent : at[i];
    if (r < 0 || r >= rows.extent)
      throw Error(Status::kFatal, "",
                  fmt::format("scatter: the index {} is out of range of {} rows", at[i],
                              rows.extent),
                  "give indices of rows that are there");
    if (row == 0) continue;
    if (reduction == kReplace)
      std::memcpy(out + static_cast<size_t>(r) * row, in + static_cast<size_t>(i) * row, row);
    else
      combine(out + static_cast<size_t>(r) * row, in + static_cast<size_t>(i) * row, rows.inner,
              reduction);
  }
}

}  // namespace

std::vector<LibraryKernel> scatter_operators() {
  return {{"host.scatter", exec::ImplementationKind::kHost,
           "x T (n, dims), index i64 (k), updates T (k, dims); reduction -> y T (n, dims)",
           "Rows replaced by, or combined with, updates in their order.", check_scatter, nullptr,
           run_scatter}};
}

}  // namespace nimble::rt
