// Host operators that select by value: nonzero, compress, repeat, and the shape functions that
// count what they will give (paper, 3.2: data-dependent shape functions).
//
// An operator trusts no count: its output's extents come from the caller, and it refuses to write
// where they do not fit what the data say.
#include <algorithm>
#include <limits>

#include "vm/library/elements.h"
#include "vm/library/host_operators.h"

namespace nimble::rt {
namespace {

using exec::Access;
using exec::KernelContract;

std::vector<const exec::KernelArgument*> tensors_of(const KernelContract& c) {
  std::vector<const exec::KernelArgument*> out;
  for (const auto& a : c.arguments)
    if (a.kind == exec::KernelArgument::Kind::kTensor) out.push_back(&a);
  return out;
}

// "" if the tensors are read but for the last `outputs`, which are written.
std::string check_access(const std::vector<const exec::KernelArgument*>& t, size_t inputs,
                         size_t outputs) {
  if (t.size() != inputs + outputs) return "another number of tensors than its signature has";
  for (size_t i = 0; i < t.size(); ++i)
    if (t[i]->access != (i < inputs ? Access::kIn : Access::kOut))
      return "inputs are read and outputs written";
  return {};
}

std::string check_count(const KernelContract& c) {
  const auto t = tensors_of(c);
  if (std::string bad = check_access(t, 1, 1); !bad.empty()) return bad;
  return t[1]->dtype == DType::kI64 ? "" : "the count must be i64";
}

int64_t count_nonzero(const LibraryTensor& x) {
  return visit_elements(x, [&](auto e) {
    int64_t found = 0;
    const int64_t n = count_of(x);
    for (int64_t i = 0; i < n; ++i) found += e[i] != 0;
    return found;
  });
}

void run_count_nonzero(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  require_fit(count_of(call.tensors[1]) == 1, "count_nonzero", "the result has one element");
  *static_cast<int64_t*>(call.tensors[1].data) = count_nonzero(call.tensors[0]);
}

std::string check_nonzero(const KernelContract& c) {
  if (std::string bad = check_count(c); !bad.empty()) return bad;
  return tensors_of(c)[1]->dims.size() == 2 ? "" : "the result has two dims";
}

void run_nonzero(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const LibraryTensor &x = call.tensors[0], &y = call.tensors[1];
  const size_t rank = x.shape.size();
  const int64_t found = y.shape[1];
  require_fit(y.shape[0] == static_cast<int64_t>(rank) && found == count_nonzero(x), "nonzero",
              "the result is not (rank, count)");
  auto* out = static_cast<int64_t*>(y.data);
  visit_elements(x, [&](auto e) {
    std::vector<int64_t> at(rank, 0);
    const int64_t n = count_of(x);
    int64_t column = 0;
    for (int64_t i = 0; i < n; ++i) {
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

// Copies blocks of an axis: next() gives the number of each block to take, -1 at the end.
template <class Next>
void take_blocks(const LibraryTensor& x, const LibraryTensor& y, const AxisView& from,
                 const AxisView& to, Next next) {
  const auto block = static_cast<size_t>(from.inner) * size_of(x.dtype);
  const auto* in = static_cast<const uint8_t*>(x.data);
  auto* out = static_cast<uint8_t*>(y.data);
  if (block == 0) return;
  int64_t column = 0;
  for (int64_t k = next(); k >= 0; k = next(), ++column)
    for (int64_t o = 0; o < from.outer; ++o)
      std::memcpy(out + static_cast<size_t>(o * to.extent + column) * block,
                  in + static_cast<size_t>(o * from.extent + k) * block, block);
}

std::string check_take(const KernelContract& c, DType by) {
  const auto t = tensors_of(c);
  if (std::string bad = check_access(t, 2, 1); !bad.empty()) return bad;
  if (std::string bad = check_scalars(c, 1); !bad.empty()) return bad;
  if (t[0]->dtype != t[2]->dtype) return "input and output differ in dtype";
  if (t[1]->dtype != by || t[1]->dims.size() != 1)
    return fmt::format("the second tensor is a vector of {}", name_of(by));
  return {};
}

// Whether y is x with another extent of the axis (flat: a vector).
bool same_but_axis(const LibraryTensor& x, const LibraryTensor& y, int64_t axis) {
  if (axis < 0) return y.shape.size() == 1;
  if (x.shape.size() != y.shape.size() || axis >= static_cast<int64_t>(x.shape.size()))
    return false;
  for (size_t i = 0; i < x.shape.size(); ++i)
    if (static_cast<int64_t>(i) != axis && x.shape[i] != y.shape[i]) return false;
  return true;
}

void run_compress(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const LibraryTensor &x = call.tensors[0], &mask = call.tensors[1], &y = call.tensors[2];
  const int64_t axis = call.scalars[0];
  const AxisView from = around(x, axis), to = around(y, axis);
  const int64_t n = mask.shape[0];
  require_fit(same_but_axis(x, y, axis) && to.extent == count_nonzero(mask) && n <= from.extent,
              "compress", "the result does not fit the condition");
  const auto* keep = static_cast<const uint8_t*>(mask.data);
  int64_t k = -1;
  take_blocks(x, y, from, to, [&]() -> int64_t {
    while (++k < n)
      if (keep[k]) return k;
    return -1;
  });
}

// The sum of the repeats, each checked.
int64_t sum_repeats(const LibraryTensor& repeats) {
  const auto* r = static_cast<const int64_t*>(repeats.data);
  int64_t sum = 0;
  for (int64_t i = 0; i < count_of(repeats); ++i) {
    if (r[i] < 0)
      throw Error(Status::kFatal, "", fmt::format("repeat: repeat {} is negative: {}", i, r[i]),
                  "repeat each slice 0 times or more");
    if (__builtin_add_overflow(sum, r[i], &sum))
      throw Error(Status::kFatal, "", "repeat: the sum of the repeats exceeds 63 bits",
                  "repeat less");
  }
  return sum;
}

std::string check_count_repeat(const KernelContract& c) {
  if (std::string bad = check_count(c); !bad.empty()) return bad;
  return tensors_of(c)[0]->dtype == DType::kI64 ? "" : "repeats are i64";
}

void run_count_repeat(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  require_fit(count_of(call.tensors[1]) == 1, "count_repeat", "the result has one element");
  *static_cast<int64_t*>(call.tensors[1].data) = sum_repeats(call.tensors[0]);
}

void run_repeat(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const LibraryTensor &x = call.tensors[0], &repeats = call.tensors[1], &y = call.tensors[2];
  const int64_t axis = call.scalars[0];
  const AxisView from = around(x, axis), to = around(y, axis);
  const int64_t n = repeats.shape[0];
  require_fit(same_but_axis(x, y, axis) && n == from.extent && to.extent == sum_repeats(repeats),
              "repeat", "the result does not fit the repeats");
  const auto* r = static_cast<const int64_t*>(repeats.data);
  int64_t k = 0, left = n > 0 ? r[0] : 0;
  take_blocks(x, y, from, to, [&]() -> int64_t {
    while (k < n && left == 0)
      if (++k < n) left = r[k];
    if (k >= n) return -1;
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

std::string check_count_range(const KernelContract& c) {
  const auto t = tensors_of(c);
  if (std::string bad = check_access(t, 3, 1); !bad.empty()) return bad;
  return t[3]->dtype == DType::kI64 ? "" : "the count must be i64";
}

}  // namespace

std::vector<LibraryKernel> selection_operators() {
  using Kind = exec::ImplementationKind;
  return {
      {"host.count_nonzero", Kind::kHost, "x T (dims) -> n i64 (1)",
       "Counts elements that are not zero.", check_count, nullptr, run_count_nonzero},
      {"host.nonzero", Kind::kHost, "x T (dims) -> y i64 (rank, n)",
       "Coordinates of the elements that are not zero.", check_nonzero, nullptr, run_nonzero},
      {"host.compress", Kind::kHost, "x T (dims), mask bool (m); axis -> y T (dims)",
       "The slices whose mask holds.",
       [](const KernelContract& c) { return check_take(c, DType::kBool); }, nullptr, run_compress},
      {"host.count_repeat", Kind::kHost, "repeats i64 (m) -> n i64 (1)", "The sum of the repeats.",
       check_count_repeat, nullptr, run_count_repeat},
      {"host.repeat", Kind::kHost, "x T (dims), repeats i64 (m); axis -> y T (dims)",
       "Each slice as often as its repeat says.",
       [](const KernelContract& c) { return check_take(c, DType::kI64); }, nullptr, run_repeat},
      {"host.count_range", Kind::kHost, "start T (), stop T (), step T () -> n i64 (1)",
       "The number of elements of a range.", check_count_range, nullptr, run_count_range},
  };
}

}  // namespace nimble::rt
