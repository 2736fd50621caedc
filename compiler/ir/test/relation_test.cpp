// Relations against plain evaluation on numbers: for every combination of dims (constants and a
// symbol with each of several values) what a relation says symbolically must be what numpy's
// rules say of the numbers, and its demands must hold exactly where numpy accepts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/op.h"
#include "compiler/ir/shapes.h"
#include "vm/base/error.h"

namespace nimble::ir {
namespace {

using Dims = std::vector<Dim>;
using Ints = std::vector<int64_t>;
using Values = std::map<std::string, int64_t>;

struct Demand {
  Dim a, b;
};
struct Outcome {
  bool refused = false;
  std::string message;
  Type type;
  std::optional<Dims> contents;
  std::vector<Demand> demands;
};

Outcome relate(const std::string& op, std::vector<Type> inputs, Attrs attrs = {},
               std::map<size_t, Dims> contents = {}) {
  Outcome out;
  std::vector<Atom> args;
  for (const Type& t : inputs) args.push_back(Atom(make_var("x", t)));
  const ExprRef call = make_call(op, args, attrs);
  const OpInfo* info = find_op(op);
  EXPECT_NE(info, nullptr) << op;
  EXPECT_EQ(check_call(*info, *call), "");
  DimContext facts;
  RelationContext c{*call,
                    inputs,
                    facts,
                    [&](size_t i) -> const Dims* {
                      auto it = contents.find(i);
                      return it == contents.end() ? nullptr : &it->second;
                    },
                    [&](const Dim& a, const Dim& b, const std::string& what) {
                      const Proof p = facts.equal(a, b);
                      if (p == Proof::kNo) throw Error(Status::kInvalidArgument, "", what);
                      if (p == Proof::kUnknown) {
                        out.demands.push_back({a, b});
                        facts.assume_equal(a, b);
                      }
                    },
                    [] { return Dim::symbol(fresh_symbol()); }};
  try {
    RelationResult r = info->relation(c);
    out.type = r.type;
    out.contents = r.contents;
  } catch (const Error& e) {
    out.refused = true;
    out.message = e.what();
  }
  return out;
}

Type f32(Dims dims) {
  return tensor_type(std::move(dims), DType::kF32);
}
Type i64(Dims dims) {
  return tensor_type(std::move(dims), DType::kI64);
}

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

TEST(Relation, ProductsAndCells) {
  const Dim b = Dim::symbol("b"), n = Dim::symbol("n");
  const Attrs conv = {{"strides", Ints{2, 2}},
                      {"pads", Ints{1, 1, 1, 1}},
                      {"dilations", Ints{1, 1}},
                      {"groups", int64_t{1}}};
  EXPECT_EQ(str(relate("conv2d", {f32({b, 3, 224, n}), f32({8, 3, 3, 3}), f32({8})}, conv).type),
            "Tensor[(b, 8, 112, floordiv(n + 1, 2)), f32]");
  EXPECT_TRUE(relate("conv2d", {f32({b, 4, 8, 8}), f32({8, 3, 3, 3})}, conv).refused);
  Attrs last = conv;
  last["layout"] = std::string("nhwc");
  EXPECT_EQ(str(relate("conv2d", {f32({b, 224, n, 3}), f32({3, 3, 3, 8}), f32({8})}, last).type),
            "Tensor[(b, 112, floordiv(n + 1, 2), 8), f32]");
  EXPECT_TRUE(relate("conv2d", {f32({b, 3, 224, 224}), f32({8, 3, 3, 3})}, last).refused);
  last["groups"] = int64_t{3};
  EXPECT_EQ(str(relate("conv2d", {f32({b, 8, 9, 3}), f32({3, 2, 1, 6}), f32({6})}, last).type),
            "Tensor[(b, 4, 5, 6), f32]");
  EXPECT_TRUE(relate("conv2d", {f32({b, 8, 9, 3}), f32({3, 2, 1, 7})}, last).refused);
  last["layout"] = std::string("nchw");
  last["groups"] = int64_t{1};
  EXPECT_EQ(str(relate("conv2d", {f32({b, 3, 224, n}), f32({8, 3, 3, 3})}, last).type),
            "Tensor[(b, 8, 112, floordiv(n + 1, 2)), f32]");
  Attrs pool = {{"kernel", Ints{3, 2}},     {"strides", Ints{2, 1}},
                {"pads", Ints{1, 0, 1, 0}}, {"dilations", Ints{1, 1}},
                {"ceil_mode", false},       {"layout", std::string("nhwc")}};
  EXPECT_EQ(str(relate("max_pool2d", {f32({b, 9, n, 24})}, pool).type),
            "Tensor[(b, 5, n - 1, 24), f32]");
  EXPECT_EQ(
      str(relate("lstm_cell", {f32({b, 2048}), f32({b, 512}), f32({b, 512}), f32({512, 2048})})
              .type),
      "(Tensor[(b, 512), f32], Tensor[(b, 512), f32])");
  EXPECT_TRUE(relate("lstm_cell", {f32({b, 2047}), f32({b, 512}), f32({b, 512}), f32({512, 2048})})
                  .refused);
  const std::vector<Type> layer = {f32({n, b, 2048}), f32({b, 512}), f32({b, 512}),
                                   f32({512, 2048})};
  EXPECT_EQ(str(relate("lstm_steps", layer, {{"reverse", false}}).type),
            "(Tensor[(n, b, 512), f32], Tensor[(b, 512), f32], Tensor[(b, 512), f32])");
  EXPECT_EQ(str(relate("gru_steps", {f32({n, b, 51}), f32({b, 17}), f32({17, 51}), f32({51})},
                       {{"reverse", true}, {"linear_before_reset", true}})
                    .type),
            "(Tensor[(n, b, 17), f32], Tensor[(b, 17), f32])");
  EXPECT_TRUE(relate("gru_steps", {f32({b, 51}), f32({b, 17}), f32({17, 51}), f32({51})},
                     {{"reverse", true}, {"linear_before_reset", true}})
                  .refused);
  const Type step = tensor_type({}, DType::kI64);
  Attrs packed = {
      {"linear_before_reset", true}, {"hidden", int64_t{17}}, {"layout", std::string("gate16")}};
  const std::vector<Type> gru = {f32({b, 51}), f32({b, 17}), f32({2, 17, 3, 16}), f32({51}), step};
  EXPECT_EQ(str(relate("packed_gru_cell", gru, packed).type), "Tensor[(b, 17), f32]");
  packed["hidden"] = int64_t{18};
  EXPECT_TRUE(relate("packed_gru_cell", gru, packed).refused);
  packed["hidden"] = int64_t{17};
  packed["layout"] = std::string("panel16");
  EXPECT_TRUE(relate("packed_gru_cell", gru, packed).refused);
  packed["layout"] = std::string("gate8");
  EXPECT_TRUE(relate("packed_gru_cell", gru, packed).refused);  // 3 panels of 8
  EXPECT_EQ(str(relate("pack", {f32({300, 70})}, {{"layout", std::string("panel32")}}).type),
            "Tensor[(3, 300, 32), f32]");
  EXPECT_EQ(
      str(relate("packed_matmul", {f32({n, 300}), f32({3, 300, 32})},
                 {{"n", int64_t{70}}, {"k", int64_t{300}}, {"layout", std::string("panel32")}})
              .type),
      "Tensor[(n, 70), f32]");
  const Attrs heads = {{"heads", int64_t{12}}, {"scale", 0.125}};
  EXPECT_EQ(
      str(relate("attention",
                 {f32({b, n, 384}), f32({b, n, 384}), f32({b, n, 384}), f32({b, 1, 1, n})}, heads)
              .type),
      "Tensor[(b, n, 384), f32]");
  EXPECT_TRUE(
      relate("attention", {f32({b, n, 100}), f32({b, n, 100}), f32({b, n, 100})}, heads).refused);
}

TEST(Relation, WeightsInBlocksHaveTheFormThatTheyState) {
  const Dim m = Dim::symbol("m");
  const auto u8 = [](Dims d) { return tensor_type(std::move(d), DType::kU8); };
  const Attrs four = {
      {"bits", int64_t{4}}, {"block", int64_t{32}}, {"k", int64_t{70}}, {"n", int64_t{50}}};
  const auto with = [&](const std::string& name, AttrValue value) {
    Attrs attrs = four;
    attrs[name] = std::move(value);
    return attrs;
  };
  const std::vector<Type> stated = {f32({m, 70}), u8({50, 3, 16}), f32({50, 3})};
  EXPECT_EQ(str(relate("blockwise_matmul", stated, four).type), "Tensor[(m, 50), f32]");
  std::vector<Type> zeros = stated;
  zeros.push_back(u8({50, 3}));
  EXPECT_FALSE(relate("blockwise_matmul", zeros, four).refused);
  zeros.back() = f32({50, 3});
  EXPECT_FALSE(relate("blockwise_matmul", zeros, four).refused);
  const Attrs packed = with("layout", std::string("panel48x8"));
  EXPECT_EQ(str(relate("blockwise_matmul",
                       {f32({m, 70}), u8({2, 9, 48, 4}), f32({2, 3, 48}), u8({2, 3, 48})}, packed)
                    .type),
            "Tensor[(m, 50), f32]");
  EXPECT_FALSE(relate("blockwise_matmul", stated, with("activations", DType::kI8)).refused);

  // Other forms, and other numbers.
  EXPECT_TRUE(relate("blockwise_matmul", stated, packed).refused);
  EXPECT_TRUE(relate("blockwise_matmul", stated, with("bits", int64_t{8})).refused);
  EXPECT_TRUE(relate("blockwise_matmul", stated, with("bits", int64_t{3})).refused);
  for (const int64_t block : {int64_t{0}, int64_t{8}, int64_t{24}, int64_t{1} << 17})
    EXPECT_TRUE(relate("blockwise_matmul", stated, with("block", block)).refused) << block;
  for (const int64_t extent : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    EXPECT_TRUE(relate("blockwise_matmul", stated, with("k", extent)).refused) << extent;
    EXPECT_TRUE(relate("blockwise_matmul", stated, with("n", extent)).refused) << extent;
  }
  for (const char* layout : {"panel48", "panel48x4", "gate16", "rows"})
    EXPECT_TRUE(relate("blockwise_matmul", stated, with("layout", std::string(layout))).refused)
        << layout;
  EXPECT_TRUE(relate("blockwise_matmul", stated, with("activations", DType::kU8)).refused);
  const std::vector<std::vector<Type>> refused = {
      {f32({m, 71}), u8({50, 3, 16}), f32({50, 3})},
      {f32({m, 70}), u8({50, 3, 32}), f32({50, 3})},
      {f32({m, 70}), u8({50, 48}), f32({50, 3})},
      {f32({m, 70}), u8({50, 3, 16}), f32({50, 2})},
      {f32({m, 70}), f32({50, 3, 16}), f32({50, 3})},
      {u8({m, 70}), u8({50, 3, 16}), f32({50, 3})},
      {f32({m, 70}), u8({50, 3, 16}), f32({50, 3}), u8({50, 2})},
      {f32({m, 70}), u8({50, 3, 16}), f32({50, 3}), i64({50, 3})},
  };
  for (size_t i = 0; i < refused.size(); ++i)
    EXPECT_TRUE(relate("blockwise_matmul", refused[i], four).refused) << i;
}

TEST(Relation, GroupsOfBytesHaveTheFormThatTheyState) {
  const Dim m = Dim::symbol("m");
  const auto i8 = [](Dims d) { return tensor_type(std::move(d), DType::kI8); };
  const Attrs groups = {{"group", int64_t{64}},
                        {"k", int64_t{192}},
                        {"n", int64_t{50}},
                        {"layout", std::string("panel48x4")}};
  const auto with = [&](const std::string& name, AttrValue value) {
    Attrs attrs = groups;
    attrs[name] = std::move(value);
    return attrs;
  };
  const std::vector<Type> stated = {f32({m, 192}), i8({2, 48, 48, 4}), f32({3, 96}), f32({3, 96})};
  EXPECT_EQ(str(relate("packed_groupwise_matmul", stated, groups).type), "Tensor[(m, 50), f32]");
  const std::vector<Type> batch = {f32({m, 7, 192}), stated[1], stated[2], stated[3]};
  EXPECT_EQ(str(relate("packed_groupwise_matmul", batch, groups).type), "Tensor[(m, 7, 50), f32]");
  const std::vector<Type> whole = {stated[0], stated[1], f32({1, 96}), f32({1, 96})};
  EXPECT_FALSE(relate("packed_groupwise_matmul", whole, with("group", int64_t{192})).refused);
  const std::vector<Type> words = {stated[0], i8({2, 96, 48, 2}), stated[2], stated[3]};
  EXPECT_FALSE(
      relate("packed_groupwise_matmul", words, with("layout", std::string("panel48x2"))).refused);

  for (const int64_t group : {0, -64, 32, 96, 128, 384, 1024})
    EXPECT_TRUE(relate("packed_groupwise_matmul", stated, with("group", group)).refused) << group;
  for (const int64_t extent : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    EXPECT_TRUE(relate("packed_groupwise_matmul", stated, with("k", extent)).refused) << extent;
    EXPECT_TRUE(relate("packed_groupwise_matmul", stated, with("n", extent)).refused) << extent;
  }
  for (const int64_t steps : {1, 181, 255})
    EXPECT_FALSE(relate("packed_groupwise_matmul", stated, with("steps", steps)).refused) << steps;
  for (const int64_t steps : {0, -1, 256})
    EXPECT_TRUE(relate("packed_groupwise_matmul", stated, with("steps", steps)).refused) << steps;
  EXPECT_FALSE(relate("packed_groupwise_matmul", stated, with("max_weight", int64_t{90})).refused);
  EXPECT_TRUE(relate("packed_groupwise_matmul", stated, with("max_weight", int64_t{129})).refused);
  for (const char* layout : {"panel48", "panel48x8", "panel32x4", "gate16", "rows"})
    EXPECT_TRUE(
        relate("packed_groupwise_matmul", stated, with("layout", std::string(layout))).refused)
        << layout;
  const std::vector<std::vector<Type>> refused = {
      {f32({m, 191}), stated[1], stated[2], stated[3]},
      {i8({m, 192}), stated[1], stated[2], stated[3]},
      {stated[0], f32({2, 48, 48, 4}), stated[2], stated[3]},
      {stated[0], i8({2, 192, 48}), stated[2], stated[3]},
      {stated[0], stated[1], f32({3, 50}), stated[3]},
      {stated[0], stated[1], stated[2], f32({2, 96})},
      {stated[0], stated[1], i8({3, 96}), stated[3]},
  };
  for (size_t i = 0; i < refused.size(); ++i)
    EXPECT_TRUE(relate("packed_groupwise_matmul", refused[i], groups).refused) << i;
}

TEST(Relation, ProductsOfNarrowOperandsMayBeWide) {
  const Dim n = Dim::symbol("n");
  const auto narrow = [](Dims d, DType t = DType::kBF16) { return tensor_type(std::move(d), t); };
  const Attrs wide = {{"out", DType::kF32}};
  EXPECT_EQ(str(relate("matmul", {narrow({n, 300}), narrow({300, 70})}, wide).type),
            "Tensor[(n, 70), f32]");
  EXPECT_EQ(str(relate("matmul", {narrow({n, 300}), narrow({300, 70})}).type),
            "Tensor[(n, 70), bf16]");
  const DType half = DType::kF16;
  EXPECT_EQ(str(relate("matmul", {narrow({n, 300}, half), narrow({300, 70}, half)}, wide).type),
            "Tensor[(n, 70), f32]");
  EXPECT_EQ(str(relate("pack", {narrow({301, 70})}, {{"layout", std::string("panel32x2")}}).type),
            "Tensor[(3, 151, 32, 2), bf16]");
  Attrs packed = {{"n", int64_t{70}}, {"k", int64_t{301}}, {"layout", std::string("panel32x2")}};
  packed["out"] = DType::kF32;
  EXPECT_EQ(str(relate("packed_matmul", {narrow({n, 301}), narrow({3, 151, 32, 2})}, packed).type),
            "Tensor[(n, 70), f32]");
  EXPECT_TRUE(relate("packed_matmul", {narrow({n, 301}), narrow({3, 301, 32})}, packed).refused);
  // What is as wide as its operands, or narrower, or of other numbers.
  const std::vector<std::pair<DType, DType>> refused = {
      {DType::kF32, DType::kF32},  {DType::kF32, DType::kF64}, {DType::kBF16, DType::kBF16},
      {DType::kBF16, DType::kF64}, {DType::kF16, DType::kI32}, {DType::kI8, DType::kI64}};
  for (const auto& [in, out] : refused) {
    const Outcome o =
        relate("matmul", {narrow({n, 300}, in), narrow({300, 70}, in)}, {{"out", out}});
    EXPECT_TRUE(o.refused) << name_of(in) << " " << name_of(out);
    EXPECT_THAT(o.message, testing::HasSubstr("out = f32 for two operands of bf16 or of f16"));
  }
  EXPECT_TRUE(relate("matmul", {narrow({n, 300}), f32({300, 70})}, wide).refused);
  for (const DType a : {DType::kU8, DType::kI8})
    for (const DType b : {DType::kU8, DType::kI8})
      EXPECT_EQ(
          str(relate("matmul", {narrow({n, 300}, a), narrow({300, 70}, b)}, {{"out", DType::kI32}})
                  .type),
          "Tensor[(n, 70), i32]");
}

TEST(Relation, PromisesOfWeightsAreOfBytes) {
  const Dim n = Dim::symbol("n");
  const auto typed = [](Dims d, DType t) { return tensor_type(std::move(d), t); };
  Attrs packed = {{"n", int64_t{70}},
                  {"k", int64_t{300}},
                  {"layout", std::string("panel32x4")},
                  {"out", DType::kI32}};
  const std::vector<Type> bytes = {typed({n, 300}, DType::kU8), typed({3, 75, 32, 4}, DType::kI8)};
  for (const int64_t most : {0, 64, 128}) {
    packed["max_weight"] = most;
    EXPECT_EQ(str(relate("packed_matmul", bytes, packed).type), "Tensor[(n, 70), i32]") << most;
  }
  for (const int64_t most : {-1, 129}) {
    packed["max_weight"] = most;
    EXPECT_THAT(relate("packed_matmul", bytes, packed).message,
                testing::HasSubstr("no i8 exceeds 128 in size"));
  }
  packed["max_weight"] = int64_t{64};
  packed["out"] = DType::kF32;
  EXPECT_THAT(relate("packed_matmul",
                     {typed({n, 300}, DType::kBF16), typed({3, 75, 32, 4}, DType::kBF16)}, packed)
                  .message,
              testing::HasSubstr("max_weight is of weights of i8"));
  Attrs conv = {{"kernel", Ints{1, 1}},    {"filters", int64_t{8}},
                {"strides", Ints{1, 1}},   {"pads", Ints{0, 0, 0, 0}},
                {"dilations", Ints{1, 1}}, {"layout", std::string("panel8x4")},
                {"out", DType::kI32},      {"max_weight", int64_t{64}}};
  const std::vector<Type> image = {typed({n, 7, 7, 4}, DType::kU8),
                                   typed({1, 1, 8, 4}, DType::kI8)};
  EXPECT_EQ(str(relate("packed_conv2d", image, conv).type), "Tensor[(n, 7, 7, 8), i32]");
  conv["max_weight"] = int64_t{200};
  EXPECT_TRUE(relate("packed_conv2d", image, conv).refused);
}

TEST(Relation, ConvolutionsOfBytesAddUpInI32) {
  const Dim n = Dim::symbol("n");
  const auto typed = [](Dims d, DType t) { return tensor_type(std::move(d), t); };
  const DType image = DType::kU8, weights = DType::kI8, sums = DType::kI32;
  Attrs conv = {{"strides", Ints{1, 1}},
                {"pads", Ints{1, 1, 1, 1}},
                {"dilations", Ints{1, 1}},
                {"groups", int64_t{1}}};
  const std::vector<Type> operands = {typed({n, 4, 7, 7}, image), typed({8, 4, 3, 3}, weights),
                                      typed({8}, sums)};
  EXPECT_TRUE(relate("conv2d", operands, conv).refused);
  EXPECT_TRUE(
      relate("conv2d", {typed({n, 4, 7, 7}, sums), typed({8, 4, 3, 3}, sums)}, conv).refused);
  conv["out"] = sums;
  EXPECT_EQ(str(relate("conv2d", operands, conv).type), "Tensor[(n, 8, 7, 7), i32]");
  EXPECT_TRUE(relate("conv2d", {operands[0], operands[1], f32({8})}, conv).refused);
  Attrs packed = conv;
  packed["kernel"] = Ints{3, 3};
  packed["filters"] = int64_t{8};
  packed["layout"] = std::string("panel8x4");
  EXPECT_EQ(
      str(relate("packed_conv2d",
                 {typed({n, 7, 7, 4}, image), typed({1, 9, 8, 4}, weights), operands[2]}, packed)
              .type),
      "Tensor[(n, 7, 7, 8), i32]");
}

TEST(Relation, WinogradsTilesHaveTransformedWeights) {
  const Dim n = Dim::symbol("n"), h = Dim::symbol("h");
  Attrs attrs = {{"tile", int64_t{4}},
                 {"filters", int64_t{40}},
                 {"pads", Ints{1, 0, 2, 1}},
                 {"layout", std::string("panel32")}};
  const std::vector<Type> operands = {f32({n, h, 7, 24}), f32({2, 36, 24, 32}), f32({40})};
  EXPECT_EQ(str(relate("packed_winograd", operands, attrs).type), "Tensor[(n, h + 1, 6, 40), f32]");
  const auto refused = [&](const std::vector<Type>& given) {
    return relate("packed_winograd", given, attrs).refused;
  };
  EXPECT_TRUE(refused({f32({n, h, 7, 23}), operands[1], operands[2]}));
  EXPECT_TRUE(refused({operands[0], f32({2, 16, 24, 32}), operands[2]}));
  EXPECT_TRUE(refused({operands[0], f32({3, 36, 24, 32}), operands[2]}));
  EXPECT_TRUE(refused({operands[0], f32({2 * 36 * 24 * 32}), operands[2]}));
  EXPECT_TRUE(refused({operands[0], operands[1], f32({24})}));
  EXPECT_TRUE(refused({f32({n, h, 1, 24}), operands[1], operands[2]}));  // no window fits
  EXPECT_TRUE(refused({tensor_type({n, h, 7, 24}, DType::kF16), operands[1], operands[2]}));
  attrs["tile"] = int64_t{3};
  EXPECT_TRUE(refused(operands));
  attrs["tile"] = int64_t{2};
  EXPECT_FALSE(refused({operands[0], f32({2, 16, 24, 32}), operands[2]}));
  attrs["layout"] = std::string("panel32x2");
  EXPECT_TRUE(refused({operands[0], f32({2, 16, 24, 32}), operands[2]}));
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
