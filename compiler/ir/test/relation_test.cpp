// Relations against plain evaluation on numbers: for every combination of dims (constants and a
// symbol with each of several values) what a relation says symbolically must be what numpy's
// rules say of the numbers, and its demands must hold exactly where numpy accepts.
#include "compiler/ir/test/relation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/op.h"
#include "compiler/ir/shapes.h"
#include "vm/base/error.h"

namespace nimble::ir {
namespace {

using Values = std::map<std::string, int64_t>;

std::optional<int64_t> evaluate(const Dim& d, const Values& v) {
  try {
    return d.evaluate([&](const std::string& s) -> std::optional<int64_t> { return v.at(s); });
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The concrete shape that an outcome promises, or nothing where its checks fail.
std::optional<Ints> shape_at(const Outcome& o, const Values& v) {
  if (o.refused) return std::nullopt;
  for (const Demand& d : o.demands) {
    auto a = evaluate(d.a, v), b = evaluate(d.b, v);
    if (!a || !b || *a != *b) return std::nullopt;
  }
  Ints out;
  for (const Dim& d : o.type->dims) {
    auto x = evaluate(d, v);
    if (!x) return std::nullopt;
    out.push_back(*x);
  }
  return out;
}

Ints numbers(const Dims& dims, const Values& v) {
  Ints out;
  for (const Dim& d : dims) out.push_back(*evaluate(d, v));
  return out;
}

std::optional<Ints> numpy_broadcast(const Ints& a, const Ints& b) {
  Ints out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

std::optional<Ints> numpy_matmul(Ints a, Ints b) {
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  if (a.back() != b[b.size() - 2]) return std::nullopt;
  auto batch = numpy_broadcast(Ints(a.begin(), a.end() - 2), Ints(b.begin(), b.end() - 2));
  if (!batch) return std::nullopt;
  if (!row) batch->push_back(a[a.size() - 2]);
  if (!column) batch->push_back(b.back());
  return batch;
}

std::optional<Ints> numpy_concat(const Ints& a, const Ints& b, size_t axis) {
  if (a.size() != b.size()) return std::nullopt;
  Ints out = a;
  for (size_t i = 0; i < a.size(); ++i) {
    if (i == axis)
      out[i] += b[i];
    else if (a[i] != b[i])
      return std::nullopt;
  }
  return out;
}

const std::vector<Dim> kDims = {0, 1, 2, 7, Dim::symbol("n"), Dim::symbol("m")};

// All shapes of a rank over `choices`.
std::vector<Dims> shapes(size_t rank, const std::vector<Dim>& choices) {
  std::vector<Dims> out = {{}};
  for (size_t i = 0; i < rank; ++i) {
    std::vector<Dims> next;
    for (const Dims& s : out) {
      for (const Dim& d : choices) {
        next.push_back(s);
        next.back().push_back(d);
      }
    }
    out = std::move(next);
  }
  return out;
}

const std::vector<Values> kValues = {
    {{"n", 0}, {"m", 0}}, {{"n", 1}, {"m", 2}}, {{"n", 2}, {"m", 1}}, {{"n", 7}, {"m", 7}},
    {{"n", 2}, {"m", 7}}, {{"n", 1}, {"m", 1}}, {{"n", 5}, {"m", 0}}};

template <class Numpy>
void agree(const std::string& op, const Dims& a, const Dims& b, const Attrs& attrs, Numpy numpy) {
  const Outcome o = relate(op, {f32(a), f32(b)}, attrs);
  for (const Values& v : kValues) {
    const auto expected = numpy(numbers(a, v), numbers(b, v));
    ASSERT_EQ(shape_at(o, v), expected)
        << op << " of " << str(f32(a)) << " and " << str(f32(b)) << " at n = " << v.at("n")
        << ", m = " << v.at("m") << (o.refused ? ": " + o.message : "");
  }
}

TEST(Relation, BroadcastIsNumpys) {
  // Ranks up to 3 against each other; the third axis has fewer choices to bound the product.
  for (size_t ra = 0; ra <= 2; ++ra) {
    for (size_t rb = 0; rb <= 2; ++rb) {
      for (const Dims& a : shapes(ra, kDims)) {
        for (const Dims& b : shapes(rb, kDims)) agree("add", a, b, {}, numpy_broadcast);
      }
    }
  }
  const std::vector<Dim> few = {1, 2, Dim::symbol("n")};
  for (size_t rb = 0; rb <= 3; ++rb) {
    for (const Dims& a : shapes(3, few)) {
      for (const Dims& b : shapes(rb, few)) agree("add", a, b, {}, numpy_broadcast);
    }
  }
}

TEST(Relation, MatmulIsNumpys) {
  const std::vector<Dim> few = {1, 2, Dim::symbol("n"), Dim::symbol("m")};
  for (size_t ra = 1; ra <= 3; ++ra) {
    for (size_t rb = 1; rb <= 3; ++rb) {
      for (const Dims& a : shapes(ra, few)) {
        for (const Dims& b : shapes(rb, few)) agree("matmul", a, b, {}, numpy_matmul);
      }
    }
  }
  for (const Dims& a : shapes(2, kDims)) {
    for (const Dims& b : shapes(2, kDims)) agree("matmul", a, b, {}, numpy_matmul);
  }
}

TEST(Relation, ConcatIsNumpys) {
  for (size_t rank = 1; rank <= 2; ++rank) {
    for (int64_t axis = 0; axis < static_cast<int64_t>(rank); ++axis) {
      for (const Dims& a : shapes(rank, kDims)) {
        for (const Dims& b : shapes(rank, kDims)) {
          agree("concat", a, b, {{"axis", axis}}, [&](const Ints& x, const Ints& y) {
            return numpy_concat(x, y, static_cast<size_t>(axis));
          });
        }
      }
    }
  }
}

TEST(Relation, SliceIsNumpys) {
  const auto numpy_count = [](int64_t extent, int64_t start, int64_t end, int64_t step) {
    const auto clamp = [&](int64_t v) {
      if (v < 0) v += extent;
      return step > 0 ? std::clamp<int64_t>(v, 0, extent) : std::clamp<int64_t>(v, -1, extent - 1);
    };
    // As Python's slice.indices, with ONNX's explicit bounds.
    int64_t count = 0;
    if (step > 0) {
      for (int64_t i = clamp(start); i < clamp(end); i += step) ++count;
    } else {
      for (int64_t i = std::min(clamp(start), extent - 1); i > clamp(end) && i >= 0; i += step)
        ++count;
    }
    return count;
  };
  DimContext facts;
  const Dim n = Dim::symbol("n");
  for (int64_t step : {1, 2, 3, -1, -2}) {
    for (int64_t start = -4; start <= 5; ++start) {
      for (int64_t end = -5; end <= 5; ++end) {
        // Starts below the axis clamp to its first element; going backwards numpy gives none.
        const SliceBounds b = slice_bounds(n, start, end, step, facts);
        for (int64_t extent = 0; extent <= 6; ++extent) {
          if (step < 0 && (start < -extent || end < -extent - 1)) continue;
          ASSERT_EQ(evaluate(b.count, {{"n", extent}}), numpy_count(extent, start, end, step))
              << "extent " << extent << " [" << start << ":" << end << ":" << step << "] "
              << b.count.str();
        }
      }
    }
  }
  EXPECT_EQ(slice_bounds(n, 0, INT64_MAX, 1, facts).count, n);
  EXPECT_EQ(slice_bounds(n, -1, INT64_MIN, -1, facts).count, n);
  EXPECT_EQ(slice_bounds(n, 0, n, 1, facts).count, n);
}

// Bounds and step that the run reads: one formula for all signs agrees with those for known steps.
TEST(Relation, SliceReadAtRunTimeIsTheKnownSlice) {
  DimContext facts;
  const Dim n = Dim::symbol("n"), a = Dim::symbol("a"), e = Dim::symbol("e"), t = Dim::symbol("t");
  for (const char* s : {"a", "e", "t"}) facts.set(s, {INT64_MIN, INT64_MAX, 1});
  const SliceBounds read = slice_bounds(n, a, e, t, facts);
  const std::vector<int64_t> bounds = {INT64_MIN, -7, -3, -1, 0, 1, 4, 9, INT64_MAX};
  for (int64_t step :
       {-(int64_t{1} << 40), int64_t{-3}, int64_t{-1}, int64_t{1}, int64_t{2}, int64_t{1} << 40})
    for (int64_t start : bounds)
      for (int64_t end : bounds)
        for (int64_t extent = 0; extent <= 5; ++extent) {
          const SliceBounds known = slice_bounds(extent, start, end, step, {});
          const std::map<std::string, int64_t> values = {
              {"n", extent}, {"a", start}, {"e", end}, {"t", step}};
          ASSERT_EQ(evaluate(read.count, values), known.count.as_constant())
              << extent << " [" << start << ":" << end << ":" << step << "]";
          if (known.count.is_constant(0)) continue;
          ASSERT_EQ(evaluate(read.first, values), known.first.as_constant())
              << extent << " [" << start << ":" << end << ":" << step << "]";
        }
}

TEST(Relation, PoolingIsTheFormula) {
  DimContext facts;
  for (int64_t kernel = 1; kernel <= 3; ++kernel) {
    for (int64_t stride = 1; stride <= 3; ++stride) {
      for (int64_t pad = 0; pad <= 1; ++pad) {
        if (2 * pad > kernel) continue;  // no framework allows it
        for (bool ceil_mode : {false, true}) {
          const Dim count =
              window_count(Dim::symbol("n"), kernel, stride, pad, pad, 1, ceil_mode, facts);
          for (int64_t extent = 3; extent <= 12; ++extent) {
            int64_t expected = 0;  // windows one by one
            for (int64_t at = -pad;; at += stride) {
              const bool fits = at + kernel <= extent + pad;
              const bool hangs = ceil_mode && at < extent && at + kernel - stride < extent + pad;
              if (!fits && !hangs) break;
              ++expected;
            }
            ASSERT_EQ(evaluate(count, {{"n", extent}}), expected)
                << extent << " kernel " << kernel << " stride " << stride << " pad " << pad
                << (ceil_mode ? " ceil" : "");
          }
        }
      }
    }
  }
}

std::string reshaped(Dims from, Dims to) {
  const Outcome o = relate("reshape", {f32(std::move(from))}, {{"shape", std::move(to)}});
  return o.refused ? "refused" : str(o.type) + (o.demands.empty() ? "" : " if");
}

TEST(Relation, ReshapeKeepsSymbols) {
  const Dim b = Dim::symbol("b"), n = Dim::symbol("n");
  EXPECT_EQ(reshaped({b, n, 384}, {b, n, 12, 32}), "Tensor[(b, n, 12, 32), f32]");
  EXPECT_EQ(reshaped({b, n, 384}, {b, n, 12, -1}), "Tensor[(b, n, 12, 32), f32]");
  EXPECT_EQ(reshaped({b, n, 384}, {-1, 384}), "Tensor[(b*n, 384), f32]");
  EXPECT_EQ(reshaped({b * n, 384}, {b, -1, 384}), "Tensor[(b, n, 384), f32]");
  EXPECT_EQ(reshaped({b, n, 12, 32}, {0, 0, -1}), "Tensor[(b, n, 384), f32]");
  EXPECT_EQ(reshaped({b, n, 384}, {b, -1}), "Tensor[(b, 384*n), f32]");
  EXPECT_EQ(reshaped({2, 6}, {5, -1}), "refused");
  EXPECT_EQ(reshaped({2, 6}, {3, 5}), "refused");
  EXPECT_EQ(reshaped({2, 6}, {-1, -1}), "refused");
  EXPECT_EQ(reshaped({b, 4}, {n, 4}), "Tensor[(n, 4), f32] if");
  EXPECT_EQ(reshaped({n}, {2, -1}), "Tensor[(2, floordiv(n, 2)), f32] if");
}

// div rounds towards zero, and what it divides may be negative.
TEST(Relation, QuotientsOfEitherSignAreKnown) {
  const Dim n = Dim::symbol("n");
  const auto divided = [](const Dim& a) {
    return relate("div", {i64({}), i64({})}, {}, {{0, {a}}, {1, {3}}}).contents;
  };
  const auto once = divided(n - 7);
  ASSERT_TRUE(once);
  const auto twice = divided((*once)[0] + 1);
  ASSERT_TRUE(twice);
  for (int64_t v = 0; v < 40; ++v) {
    const std::map<std::string, Dim> value = {{"n", v}};
    EXPECT_EQ((*once)[0].substitute(value), Dim((v - 7) / 3)) << v;
    EXPECT_EQ((*twice)[0].substitute(value), Dim(((v - 7) / 3 + 1) / 3)) << v;
  }
  // Each quotient doubles what it divides: not without end.
  std::optional<Dims> nested = once;
  for (int depth = 0; nested && depth < 20; ++depth) nested = divided((*nested)[0] - n);
  EXPECT_FALSE(nested);
}

TEST(Relation, ContentsFlowThroughIntegerOperators) {
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m");
  const Attrs axis0 = {{"axis", int64_t{0}}};
  EXPECT_EQ(*relate("shape_of", {f32({n, 3})}).contents, (Dims{n, 3}));
  EXPECT_EQ(*relate("gather", {i64({2}), i64({})}, axis0, {{0, {n, 3}}, {1, {-1}}}).contents,
            Dims{3});
  EXPECT_EQ(*relate("concat", {i64({1}), i64({1})}, axis0, {{0, {n}}, {1, {4}}}).contents,
            (Dims{n, 4}));
  EXPECT_EQ(*relate("mul", {i64({}), i64({2})}, {}, {{0, {n}}, {1, {2, 3}}}).contents,
            (Dims{n * 2, n * 3}));
  EXPECT_EQ(*relate("div", {i64({}), i64({})}, {}, {{0, {n * 4}}, {1, {2}}}).contents, Dims{n * 2});
  EXPECT_FALSE(relate("div", {i64({}), i64({})}, {}, {{0, {n - 4}}, {1, {m}}}).contents);  // sign
  EXPECT_EQ(*relate("equal", {i64({2}), i64({})}, {}, {{0, {n, -1}}, {1, {-1}}}).contents,
            (Dims{0, 1}));
  const Type b2 = tensor_type({2}, DType::kBool);
  EXPECT_EQ(*relate("where", {b2, i64({2}), i64({2})}, {}, {{0, {0, 1}}, {1, {1, 1}}, {2, {n, -1}}})
                 .contents,
            (Dims{n, 1}));
  EXPECT_EQ(
      *relate("prod", {i64({2})}, {{"axes", Ints{0}}, {"keepdims", false}}, {{0, {n, 3}}}).contents,
      Dims{n * 3});
  EXPECT_EQ(
      *relate("slice", {i64({3})},
              {{"axes", Ints{0}}, {"starts", Dims{1}}, {"ends", Dims{INT64_MAX}}}, {{0, {n, 5, 6}}})
           .contents,
      (Dims{5, 6}));
  EXPECT_EQ(*relate("cast", {i64({1})}, {{"dtype", DType::kI32}}, {{0, {n}}}).contents, Dims{n});
}

TEST(Relation, ExpandGoesBothWays) {
  const Dim n = Dim::symbol("n");
  EXPECT_EQ(str(relate("bitcast", {f32({n, 3})}, {{"dtype", DType::kU32}}).type),
            "Tensor[(n, 3), u32]");
  EXPECT_TRUE(relate("bitcast", {f32({n, 3})}, {{"dtype", DType::kF64}}).refused);
  EXPECT_EQ(str(relate("random_bits", {i64({n}), i64({})}, {{"key", int64_t{1}}}).type),
            "Tensor[(n), u64]");
  EXPECT_TRUE(relate("random_bits", {f32({n}), i64({})}, {{"key", int64_t{1}}}).refused);
  EXPECT_EQ(str(relate("expand", {f32({1, 4})}, {{"shape", Dims{n, 1}}}).type),
            "Tensor[(n, 4), f32]");
  EXPECT_EQ(str(relate("expand", {f32({n, 4})}, {{"shape", Dims{-1, 4}}}).type),
            "Tensor[(n, 4), f32]");
  EXPECT_EQ(str(relate("expand", {f32({4})}, {{"shape", Dims{2, n, 1}}}).type),
            "Tensor[(2, n, 4), f32]");
}

TEST(Relation, RefusesWithARemedy) {
  const Outcome o = relate("add", {f32({2}), i64({2})});
  EXPECT_TRUE(o.refused);
  EXPECT_THAT(o.message, testing::HasSubstr("different element types f32 and i64"));
  EXPECT_THAT(o.message, testing::HasSubstr("insert cast"));
}

TEST(Registry, EveryRowIsUsable) {
  EXPECT_GT(all_ops().size(), 80u);
  for (const OpInfo& op : all_ops()) {
    EXPECT_EQ(find_op(op.name), &op);
    EXPECT_NE(op.relation, nullptr);
    EXPECT_FALSE(op.summary.empty());
    EXPECT_TRUE(op.max_args == -1 || op.min_args <= op.max_args);
  }
  EXPECT_EQ(find_op("no_such_op"), nullptr);
}

}  // namespace
}  // namespace nimble::ir
