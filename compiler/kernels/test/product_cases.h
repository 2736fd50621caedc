// Products, and how their templates are compared with the reference interpreter: sampled
// configurations at all sizes up to 130.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/builder.h"
#include "compiler/ir/layout.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/test/exhaustive.h"
#include "compiler/kernels/test/knob_cases.h"
#include "compiler/kernels/test/reference_harness.h"

namespace nimble::kernels::products {

using ir::Dim;

inline constexpr int kConfigurations = 50;
// Runs of each configuration; 50 * 3 sizes visit all of 0 … 130.
inline constexpr int kRuns = 3;
inline constexpr int64_t kSizes = 131;

inline ir::Type f32(std::vector<Dim> dims) {
  return ir::tensor_type(std::move(dims), DType::kF32);
}
inline const Dim kM = Dim::symbol("m"), kN = Dim::symbol("n"), kK = Dim::symbol("k"),
                 kB = Dim::symbol("b");

inline constexpr const char* kTilesLevel = "x86-64-v4-amx";

// Builds a group call by call, with types given by hand.
struct Group {
  std::vector<ir::VarRef> parameters;
  ir::BlockBuilder body;
  ir::Attrs attrs;

  ir::VarRef parameter(const ir::Type& type) {
    parameters.push_back(ir::make_var("p" + std::to_string(parameters.size()), type));
    return parameters.back();
  }
  ir::VarRef call(const std::string& op, std::vector<ir::Atom> args, ir::Attrs a,
                  const ir::Type& type) {
    ir::VarRef v = body.call(op, std::move(args), std::move(a));
    v->type = type;
    return v;
  }
  ir::VarRef bind(ir::ExprRef value, const ir::Type& type) {
    ir::VarRef v = body.bind(std::move(value));
    v->type = type;
    return v;
  }
  Workload finish(const ir::VarRef& result) {
    return make_workload(
        *ir::make_function_of(parameters, body.finish(result), result->type, attrs));
  }
};

// Element types of a product.
struct Types {
  DType lhs = DType::kF32, rhs = DType::kF32, sum = DType::kF32;
};
inline constexpr Types kPairs = {DType::kBF16, DType::kBF16, DType::kF32};
inline constexpr Types kHalfWeights = {DType::kF32, DType::kF16, DType::kF32};
inline constexpr Types kHalves = {DType::kF16, DType::kF16, DType::kF32};
inline constexpr Types kQuads = {DType::kU8, DType::kI8, DType::kI32};

inline Workload dense_workload(const TargetInfo& target, const Dim& m, int64_t k, int64_t n,
                               bool epilogue, const Types& types = {}, std::string layout = "") {
  Group g;
  if (layout.empty()) layout = dense_layout(target, types.rhs, n);
  const ir::VarRef x = g.parameter(ir::tensor_type({m, k}, types.lhs));
  const ir::VarRef w =
      g.parameter(ir::tensor_type(ir::parse_layout(layout)->packed_dims(k, n), types.rhs));
  ir::Attrs attrs = {{"n", n}, {"k", k}, {"layout", layout}};
  if (types.rhs != types.sum) attrs["out"] = types.sum;
  ir::VarRef y =
      g.call("packed_matmul", {x, w}, std::move(attrs), ir::tensor_type({m, n}, types.sum));
  if (epilogue && types.sum != DType::kF32)
    y = g.call("cast", {y}, {{"dtype", DType::kF32}}, f32({m, n}));
  if (epilogue) {
    const ir::VarRef bias = g.parameter(f32({n})), residual = g.parameter(f32({m, n}));
    y = g.call("add", {y, bias}, {}, f32({m, n}));
    y = g.call("gelu", {y}, {}, f32({m, n}));
    y = g.call("add", {residual, y}, {}, f32({m, n}));
  }
  return g.finish(y);
}

// The template that serves products of narrow operands.
inline std::string narrow_dense(const TargetInfo& target) {
  return target.has("amx-bf16") ? "dense_tiles" : "dense";
}

// Panels of pairs of f16 as a target would have them that multiplies f16: those of bf16.
inline std::string halves_in_pairs(const TargetInfo& target, int64_t n) {
  return dense_layout(target, DType::kBF16, n);
}

// All of 0 … 130 in an order that mixes small and large.
inline int64_t size_of_run(int run) {
  return static_cast<int64_t>(run) * 47 % kSizes;
}

inline void check_configurations(
    const Workload& w, const TargetInfo& target, std::string_view name,
    const std::function<std::vector<int64_t>(int run, std::mt19937&)>& sizes,
    int configurations = kConfigurations) {
  ReferenceHarness harness(w, target);
  ASSERT_NE(harness.chosen(), nullptr);
  ASSERT_EQ(harness.chosen()->name(), name);
  testing::expect_refuses_other_knobs(*harness.chosen(), harness.workload(), target);
  std::mt19937 random(7);
  configurations =
      exhaustive() ? kConfigurations : std::min(configurations, harness_mode().most_configurations);
  const int runs = exhaustive() ? static_cast<int>(kSizes) : kRuns;
  for (int c = 0; c < configurations && !::testing::Test::HasFailure(); ++c) {
    const Config config =
        c == 0 ? harness.chosen()->default_config(harness.workload(), target)
               : random_config(*harness.chosen(), harness.workload(), target, random);
    SCOPED_TRACE(to_json(config));
    harness.lower(config);
    for (int r = 0; r < runs && !::testing::Test::HasFailure(); ++r) {
      const int run = c * runs + r;
      harness.run(sizes(run, random), 1 + static_cast<int>(random() % 3),
                  static_cast<unsigned>(run));
    }
  }
}

inline std::vector<int64_t> one_size(int run, std::mt19937&) {
  return {size_of_run(run)};
}

}  // namespace nimble::kernels::products
