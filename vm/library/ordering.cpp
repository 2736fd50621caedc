// Host operators that sort: unique, topk, non-maximum suppression.
//
// unique sorts the numbers of its slices (stably, so that the first of equals leads its class) and
// walks the classes. topk selects by a partial sort per line. Both order NaN above all numbers and
// equal to itself. nms is ONNX's: per batch and class, boxes in falling order of score, each kept
// unless a kept one overlaps it by more than the threshold.
#include <algorithm>
#include <numeric>

#include "vm/library/elements.h"
#include "vm/library/host_operators.h"

namespace nimble::rt {
namespace {

using exec::Access;
using exec::KernelContract;
using Order = std::vector<int64_t>;

std::string check_tensors(const KernelContract& c, std::initializer_list<Access> accesses,
                          size_t scalars) {
  size_t n = 0;
  for (const auto& a : c.arguments) {
    if (a.kind != exec::KernelArgument::Kind::kTensor) continue;
    if (n >= accesses.size() || a.access != accesses.begin()[n])
      return "another number or direction of tensors than its signature has";
    ++n;
  }
  if (n != accesses.size()) return "it lacks tensors of its signature";
  return check_scalars(c, scalars);
}

// The dtype of tensor argument i.
DType type_at(const KernelContract& c, size_t i) {
  for (const auto& a : c.arguments)
    if (a.kind == exec::KernelArgument::Kind::kTensor && i-- == 0) return a.dtype;
  return DType::kBool;
}

// ---------------------------------------------------------------------------------- unique

// Compares slices a and b of an axis element by element, in memory order.
template <class E>
int compare_slices(const E& e, const AxisView& v, int64_t a, int64_t b) {
  for (int64_t o = 0; o < v.outer; ++o)
    for (int64_t i = 0; i < v.inner; ++i) {
      const auto x = e[(o * v.extent + a) * v.inner + i], y = e[(o * v.extent + b) * v.inner + i];
      if (less_number(x, y)) return -1;
      if (less_number(y, x)) return 1;
    }
  return 0;
}

// The slices' numbers, equal ones side by side in order; `classes`: where each class begins.
Order sorted_slices(const LibraryTensor& x, const AxisView& v, Order* classes) {
  Order order(static_cast<size_t>(v.extent));
  std::iota(order.begin(), order.end(), 0);
  visit_elements(x, [&](auto e) {
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return compare_slices(e, v, a, b) < 0; });
    for (size_t i = 0; i < order.size(); ++i)
      if (i == 0 || compare_slices(e, v, order[i - 1], order[i]) != 0)
        classes->push_back(static_cast<int64_t>(i));
  });
  return order;
}

std::string check_count_unique(const KernelContract& c) {
  if (std::string bad = check_tensors(c, {Access::kIn, Access::kOut}, 1); !bad.empty()) return bad;
  return type_at(c, 1) == DType::kI64 ? "" : "the count must be i64";
}

void run_count_unique(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  require_fit(count_of(call.tensors[1]) == 1, "count_unique", "the result has one element");
  Order classes;
  sorted_slices(call.tensors[0], around(call.tensors[0], call.scalars[0]), &classes);
  *static_cast<int64_t*>(call.tensors[1].data) = static_cast<int64_t>(classes.size());
}

std::string check_unique(const KernelContract& c) {
  using enum Access;
  if (std::string bad = check_tensors(c, {kIn, kOut, kOut, kOut, kOut}, 2); !bad.empty())
    return bad;
  if (type_at(c, 0) != type_at(c, 1)) return "input and values differ in dtype";
  for (size_t i = 2; i < 5; ++i)
    if (type_at(c, i) != DType::kI64) return "indices and counts are i64";
  return {};
}

void run_unique(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const LibraryTensor& x = call.tensors[0];
  const AxisView v = around(x, call.scalars[0]);
  Order begins;
  const Order order = sorted_slices(x, v, &begins);
  const auto n = static_cast<int64_t>(begins.size());
  const AxisView out = around(call.tensors[1], call.scalars[0]);
  require_fit(out.extent == n && out.outer == v.outer && out.inner == v.inner &&
                  count_of(call.tensors[2]) == n && count_of(call.tensors[3]) == v.extent &&
                  count_of(call.tensors[4]) == n,
              "unique", "a result does not fit the number of classes");
  Order by_appearance(begins.size());
  std::iota(by_appearance.begin(), by_appearance.end(), 0);
  auto first = [&](int64_t k) {
    return order[static_cast<size_t>(begins[static_cast<size_t>(k)])];
  };
  if (call.scalars[1] == 0)
    std::sort(by_appearance.begin(), by_appearance.end(),
              [&](int64_t a, int64_t b) { return first(a) < first(b); });
  auto *index = static_cast<int64_t*>(call.tensors[2].data),
       *inverse = static_cast<int64_t*>(call.tensors[3].data),
       *counts = static_cast<int64_t*>(call.tensors[4].data);
  const auto block = static_cast<size_t>(v.inner) * size_of(x.dtype);
  for (int64_t u = 0; u < n; ++u) {
    const auto k = static_cast<size_t>(by_appearance[static_cast<size_t>(u)]);
    const int64_t begin = begins[k], end = k + 1 < begins.size() ? begins[k + 1] : v.extent;
    index[u] = order[static_cast<size_t>(begin)];
    counts[u] = end - begin;
    for (int64_t i = begin; i < end; ++i) inverse[order[static_cast<size_t>(i)]] = u;
    if (block == 0) continue;
    for (int64_t o = 0; o < v.outer; ++o)
      std::memcpy(
          static_cast<uint8_t*>(call.tensors[1].data) + static_cast<size_t>(o * n + u) * block,
          static_cast<const uint8_t*>(x.data) +
              static_cast<size_t>(o * v.extent + index[u]) * block,
          block);
  }
}

// ------------------------------------------------------------------------------------ topk

std::string check_topk(const KernelContract& c) {
  using enum Access;
  if (std::string bad = check_tensors(c, {kIn, kOut, kOut}, 2); !bad.empty()) return bad;
  if (type_at(c, 0) != type_at(c, 1)) return "input and values differ in dtype";
  return type_at(c, 2) == DType::kI64 ? "" : "indices are i64";
}

void run_topk(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const LibraryTensor &x = call.tensors[0], &values = call.tensors[1], &indices = call.tensors[2];
  const int64_t axis = call.scalars[0];
  const bool largest = call.scalars[1] != 0;
  const AxisView v = around(x, axis), to = around(values, axis);
  const int64_t k = to.extent;
  require_fit(axis >= 0 && k <= v.extent && to.outer == v.outer && to.inner == v.inner &&
                  count_of(indices) == count_of(values),
              "topk", "a result does not fit k");
  const size_t size = size_of(x.dtype);
  auto* chosen = static_cast<int64_t*>(indices.data);
  Order order(static_cast<size_t>(v.extent));
  visit_elements(x, [&](auto e) {
    for (int64_t o = 0; o < v.outer; ++o)
      for (int64_t i = 0; i < v.inner; ++i) {
        const int64_t base = o * v.extent * v.inner + i;
        std::iota(order.begin(), order.end(), 0);
        // The earlier of equals first, which makes the order total.
        auto ahead = [&](int64_t a, int64_t b) {
          const auto p = e[base + a * v.inner], q = e[base + b * v.inner];
          if (less_number(p, q)) return !largest;
          if (less_number(q, p)) return largest;
          return a < b;
        };
        std::partial_sort(order.begin(), order.begin() + k, order.end(), ahead);
        for (int64_t j = 0; j < k; ++j) {
          const int64_t at = (o * k + j) * v.inner + i, from = order[static_cast<size_t>(j)];
          chosen[at] = from;
          std::memcpy(static_cast<uint8_t*>(values.data) + static_cast<size_t>(at) * size,
                      static_cast<const uint8_t*>(x.data) +
                          static_cast<size_t>(base + from * v.inner) * size,
                      size);
        }
      }
  });
}

// ------------------------------------------------------------------------------------- nms

struct Box {
  float top, left, bottom, right;
  float area() const { return (bottom - top) * (right - left); }
};

Box box_of(const float* p, bool center) {
  if (center) {  // x, y, width, height of the centre form
    return {p[1] - p[3] / 2, p[0] - p[2] / 2, p[1] + p[3] / 2, p[0] + p[2] / 2};
  }
  return {std::min(p[0], p[2]), std::min(p[1], p[3]), std::max(p[0], p[2]), std::max(p[1], p[3])};
}

bool overlaps(const Box& a, const Box& b, float threshold) {
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (height <= 0 || width <= 0) return 0 > threshold;
  const float both = height * width, all = a.area() + b.area() - both;
  return (all <= 0 ? 0 : both / all) > threshold;
}

std::string check_nms(const KernelContract& c) {
  using enum Access;
  if (std::string bad = check_tensors(c, {kIn, kIn, kIn, kIn, kOut, kOut}, 2); !bad.empty())
    return bad;
  for (size_t i = 0; i < 4; ++i)
    if (type_at(c, i) != DType::kF32) return "boxes, scores and thresholds are f32";
  if (type_at(c, 4) != DType::kI64 || type_at(c, 5) != DType::kI64) return "results are i64";
  size_t rank[2] = {}, n = 0;
  for (const auto& a : c.arguments)
    if (a.kind == exec::KernelArgument::Kind::kTensor && n < 2) rank[n++] = a.dims.size();
  return rank[0] == 3 && rank[1] == 3 ? "" : "boxes and scores have three dims";
}

void run_nms(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const LibraryTensor &boxes = call.tensors[0], &scores = call.tensors[1];
  const int64_t batch = scores.shape[0], classes = scores.shape[1], n = scores.shape[2];
  const int64_t room = count_of(call.tensors[4]) / 3, limit = call.scalars[0];
  const bool center = call.scalars[1] != 0;
  require_fit(boxes.shape[0] == batch && boxes.shape[1] == n && boxes.shape[2] == 4 &&
                  count_of(call.tensors[2]) == 1 && count_of(call.tensors[3]) == 1 &&
                  count_of(call.tensors[5]) == 1,
              "nms", "the operands do not fit each other");
  const float threshold = *static_cast<const float*>(call.tensors[2].data),
              least = *static_cast<const float*>(call.tensors[3].data);
  auto* out = static_cast<int64_t*>(call.tensors[4].data);
  int64_t found = 0;
  Order order;
  std::vector<Box> kept;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t k = 0; k < classes; ++k) {
      const float* score = static_cast<const float*>(scores.data) + (b * classes + k) * n;
      const float* box = static_cast<const float*>(boxes.data) + b * n * 4;
      order.clear();
      for (int64_t i = 0; i < n; ++i)
        if (score[i] > least) order.push_back(i);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t x, int64_t y) { return score[x] > score[y]; });
      kept.clear();
      for (int64_t i : order) {
        if (static_cast<int64_t>(kept.size()) >= limit) break;
        const Box candidate = box_of(box + i * 4, center);
        if (std::any_of(kept.begin(), kept.end(),
                        [&](const Box& o) { return overlaps(candidate, o, threshold); }))
          continue;
        require_fit(found < room, "nms", "more boxes than the bound");
        kept.push_back(candidate);
        out[found * 3] = b;
        out[found * 3 + 1] = k;
        out[found * 3 + 2] = i;
        ++found;
      }
    }
  *static_cast<int64_t*>(call.tensors[5].data) = found;
}

}  // namespace

std::vector<LibraryKernel> ordering_operators() {
  using Kind = exec::ImplementationKind;
  return {
      {"host.count_unique", Kind::kHost, "x T (dims); axis -> n i64 (1)",
       "Counts distinct elements or slices.", check_count_unique, nullptr, run_count_unique},
      {"host.unique", Kind::kHost,
       "x T (dims); axis, sorted -> values T, index i64 (u), inverse i64 (m), counts i64 (u)",
       "Distinct elements or slices, and where they are.", check_unique, nullptr, run_unique},
      {"host.topk", Kind::kHost, "x T (dims); axis, largest -> values T, indices i64",
       "The largest or smallest elements along an axis, in order.", check_topk, nullptr, run_topk},
      {"host.nms", Kind::kHost,
       "boxes f32 (b, n, 4), scores f32 (b, c, n), overlap f32 (1), score f32 (1); limit, center "
       "-> rows i64 (bound, 3), count i64 (1)",
       "Non-maximum suppression.", check_nms, nullptr, run_nms},
  };
}

}  // namespace nimble::rt
