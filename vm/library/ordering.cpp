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

using Order = MeteredVector<int64_t>;

// ---------------------------------------------------------------------------------- unique

// Compares slices a and b of an axis element by element, in memory order.
template <class E>
int compare_slices(const E& e, const AxisView& v, int64_t a, int64_t b, StepCounter& steps) {
  for (int64_t o = 0; o < v.outer; ++o)
    for (int64_t i = 0; i < v.inner; ++i) {
      steps.charge(1);
      const auto x = e[(o * v.extent + a) * v.inner + i], y = e[(o * v.extent + b) * v.inner + i];
      if (less_number(x, y)) return -1;
      if (less_number(y, x)) return 1;
    }
  return 0;
}

// Slices of no elements are all equal, and there may be more of them than memory has bytes.
bool all_equal(const AxisView& v) {
  return v.outer == 0 || v.inner == 0;
}

// The numbers of slices that have elements, equal ones side by side in order, and where each class
// of equals begins.
struct Classes {
  Order order, begins;

  Classes(const LibraryTensor& x, const AxisView& v, MemoryAccount& account, StepCounter& steps)
      : order(static_cast<size_t>(v.extent), account), begins(account) {
    charge_elements(steps, v.extent);
    std::iota(order.begin(), order.end(), 0);
    visit_elements(x, [&](auto e) {
      std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        const int c = compare_slices(e, v, a, b, steps);
        return c < 0 || (c == 0 && a < b);
      });
      for (size_t i = 0; i < order.size(); ++i)
        if (i == 0 || compare_slices(e, v, order[i - 1], order[i], steps) != 0)
          begins.push_back(static_cast<int64_t>(i));
    });
  }
};

void run_count_unique(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const LibraryTensor& x = call.tensors[0];
  require_fit(count_of(call.tensors[1]) == 1, "count_unique", "the result has one element");
  const AxisView v = around(x, call.scalars[0]);
  int64_t count = v.extent > 0;
  if (!all_equal(v)) {
    MemoryAccount account(call.meter->memory);
    StepCounter steps(*call.meter);
    count = static_cast<int64_t>(Classes(x, v, account, steps).begins.size());
  }
  *static_cast<int64_t*>(call.tensors[1].data) = count;
}

void run_unique(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const LibraryTensor &x = call.tensors[0], &values = call.tensors[1];
  const int64_t axis = call.scalars[0];
  const AxisView v = around(x, axis), out = around(values, axis);
  const int64_t n = out.extent;
  const auto fits = [&](bool holds) {
    require_fit(holds, "unique", "a result does not fit the number of classes");
  };
  fits(same_but_axis(x, values, axis) && count_of(call.tensors[2]) == n &&
       count_of(call.tensors[3]) == v.extent && count_of(call.tensors[4]) == n);
  auto *index = static_cast<int64_t*>(call.tensors[2].data),
       *inverse = static_cast<int64_t*>(call.tensors[3].data),
       *counts = static_cast<int64_t*>(call.tensors[4].data);
  MemoryAccount account(call.meter->memory);
  StepCounter steps(*call.meter);
  if (all_equal(v)) {
    fits(n == (v.extent > 0));
    charge_elements(steps, v.extent);
    std::fill_n(inverse, v.extent, 0);
    if (n > 0) {
      index[0] = 0;
      counts[0] = v.extent;
    }
    return;
  }
  const Classes classes(x, v, account, steps);
  const Order &order = classes.order, &begins = classes.begins;
  fits(n == static_cast<int64_t>(begins.size()));
  Order by_appearance(begins.size(), account);
  std::iota(by_appearance.begin(), by_appearance.end(), 0);
  auto first = [&](int64_t k) {
    return order[static_cast<size_t>(begins[static_cast<size_t>(k)])];
  };
  if (call.scalars[1] == 0)
    std::sort(by_appearance.begin(), by_appearance.end(), [&](int64_t a, int64_t b) {
      steps.charge(1);
      return first(a) < first(b);
    });
  const uint64_t block = static_cast<uint64_t>(v.inner) * size_of(x.dtype);
  for (int64_t u = 0; u < n; ++u) {
    const auto k = static_cast<size_t>(by_appearance[static_cast<size_t>(u)]);
    const int64_t begin = begins[k], end = k + 1 < begins.size() ? begins[k + 1] : v.extent;
    const int64_t leader = order[static_cast<size_t>(begin)];
    index[u] = leader;
    counts[u] = end - begin;
    for (int64_t i = begin; i < end; ++i) {
      steps.charge(1);
      inverse[order[static_cast<size_t>(i)]] = u;
    }
    for (int64_t o = 0; o < v.outer; ++o)
      copy_charged(steps,
                   static_cast<uint8_t*>(values.data) + static_cast<uint64_t>(o * n + u) * block,
                   static_cast<const uint8_t*>(x.data) +
                       static_cast<uint64_t>(o * v.extent + leader) * block,
                   block);
  }
}

// ------------------------------------------------------------------------------------ topk

void run_topk(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const LibraryTensor &x = call.tensors[0], &values = call.tensors[1], &indices = call.tensors[2];
  const int64_t axis = call.scalars[0];
  const bool largest = call.scalars[1] != 0;
  const AxisView v = around(x, axis);
  require_fit(axis >= 0 && same_but_axis(x, values, axis) &&
                  around(values, axis).extent <= v.extent &&
                  std::ranges::equal(indices.shape, values.shape),
              "topk", "a result does not fit k");
  if (count_of(values) == 0) return;
  const int64_t k = around(values, axis).extent;
  const size_t size = size_of(x.dtype);
  auto* chosen = static_cast<int64_t*>(indices.data);
  MemoryAccount account(call.meter->memory);
  StepCounter steps(*call.meter);
  Order order(static_cast<size_t>(v.extent), account);
  visit_elements(x, [&](auto e) {
    for (int64_t o = 0; o < v.outer; ++o)
      for (int64_t i = 0; i < v.inner; ++i) {
        const int64_t base = o * v.extent * v.inner + i;
        charge_elements(steps, v.extent);
        std::iota(order.begin(), order.end(), 0);
        // The earlier of equals first, which makes the order total.
        auto ahead = [&](int64_t a, int64_t b) {
          steps.charge(1);
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

void run_nms(const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
  if (thread != 0) return;
  const LibraryTensor &boxes = call.tensors[0], &scores = call.tensors[1], &rows = call.tensors[4];
  const int64_t batch = scores.shape[0], classes = scores.shape[1], n = scores.shape[2];
  const int64_t room = rows.shape[0], limit = call.scalars[0];
  const bool center = call.scalars[1] != 0;
  require_fit(boxes.shape[0] == batch && boxes.shape[1] == n && boxes.shape[2] == 4 &&
                  count_of(call.tensors[2]) == 1 && count_of(call.tensors[3]) == 1 &&
                  rows.shape[1] == 3 && count_of(call.tensors[5]) == 1,
              "nms", "the operands do not fit each other");
  auto& count = *static_cast<int64_t*>(call.tensors[5].data);
  count = 0;
  if (count_of(scores) == 0) return;
  const float threshold = *static_cast<const float*>(call.tensors[2].data),
              least = *static_cast<const float*>(call.tensors[3].data);
  auto* out = static_cast<int64_t*>(rows.data);
  int64_t found = 0;
  MemoryAccount account(call.meter->memory);
  StepCounter steps(*call.meter);
  Order order(account);
  MeteredVector<Box> kept(account);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t k = 0; k < classes; ++k) {
      const float* score = static_cast<const float*>(scores.data) + (b * classes + k) * n;
      const float* box = static_cast<const float*>(boxes.data) + b * n * 4;
      order.clear();
      for (int64_t i = 0; i < n; ++i) {
        steps.charge(1);
        if (score[i] > least) order.push_back(i);
      }
      std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
        steps.charge(1);
        return score[x] > score[y] || (score[x] == score[y] && x < y);
      });
      kept.clear();
      for (int64_t i : order) {
        if (static_cast<int64_t>(kept.size()) >= limit) break;
        const Box candidate = box_of(box + i * 4, center);
        if (std::any_of(kept.begin(), kept.end(), [&](const Box& o) {
              steps.charge(1);
              return overlaps(candidate, o, threshold);
            }))
          continue;
        require_fit(found < room, "nms", "more boxes than the bound");
        kept.push_back(candidate);
        out[found * 3] = b;
        out[found * 3 + 1] = k;
        out[found * 3 + 2] = i;
        ++found;
      }
    }
  count = found;
}

}  // namespace

std::vector<LibraryKernel> ordering_operators() {
  using Kind = exec::ImplementationKind;
  const TensorRule count = writes(DType::kI64, {1, 1});
  const TensorRule one = reads(DType::kF32);  // element, of any rank
  return {
      {"host.count_unique", Kind::kHost, "x T (dims); axis -> n i64 (1)",
       "Counts distinct elements or slices.", nullptr, nullptr, run_count_unique,
       ContractRule{{reads(kT), count}, false, 1}},
      {"host.unique", Kind::kHost,
       "x T (dims); axis, sorted -> values T, index i64 (u), inverse i64 (m), counts i64 (u)",
       "Distinct elements or slices, and where they are.", nullptr, nullptr, run_unique,
       ContractRule{{reads(kT), writes(kT, {1}), count, count, count}, false, 2}},
      {"host.topk", Kind::kHost, "x T (dims); axis, largest -> values T, indices i64",
       "The largest or smallest elements along an axis, in order.", nullptr, nullptr, run_topk,
       ContractRule{{reads(kT, {1}), of_first_rank(writes(kT)), of_first_rank(writes(DType::kI64))},
                    false,
                    2}},
      {"host.nms", Kind::kHost,
       "boxes f32 (b, n, 4), scores f32 (b, c, n), overlap f32 (1), score f32 (1); limit, center "
       "-> rows i64 (bound, 3), count i64 (1)",
       "Non-maximum suppression.", nullptr, nullptr, run_nms,
       ContractRule{{reads(DType::kF32, {3, 3}), reads(DType::kF32, {3, 3}), one, one,
                     writes(DType::kI64, {2, 2}), count},
                    false,
                    2}},
  };
}

}  // namespace nimble::rt
