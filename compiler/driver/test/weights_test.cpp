// Programs whose weights are kept in few bits, by a policy or as the model has them, against the
// reference interpreter of the module as that rounds it.
#include <algorithm>
#include <cmath>

#include "compiler/driver/test/policies.h"
#include "compiler/ir/blockwise.h"
#include "compiler/ir/op.h"
#include "compiler/ir/text.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/reference/reference.h"

namespace nimble::driver::testing {
namespace {

using ir::Atom;
using ir::TensorRef;
using passes::Precision;
using Shape = std::vector<int64_t>;

// relu(x w + b) of weights (k, n), or if transposed (n, k).
ir::Module layer(const TensorRef& w, bool transposed) {
  const int64_t k = w->shape[transposed ? 1 : 0], n = w->shape[transposed ? 0 : 1];
  const ir::VarRef x =
      ir::make_var("x", ir::tensor_type({ir::Dim::symbol("s"), ir::Dim(k)}, DType::kF32));
  ir::BlockBuilder body;
  const ir::VarRef y =
      body.call("matmul", {Atom(x), Atom::of(w)}, {{"transpose_b", transposed}}, "y");
  const ir::VarRef sum = body.call("add", {Atom(y), Atom::of(tensor({n}, 3))}, {}, "sum");
  const ir::VarRef r = body.call("relu", {Atom(sum)}, {}, "r");
  ir::Module m;
  m.set("main", ir::make_function_of({x}, body.finish(r)));
  return m;
}

constexpr const char* kLastPass = "quantise-weights";
constexpr Precision kPolicies[] = {Precision::kInt4Weights, Precision::kInt8Weights};

TEST(Weights, ProductsAreThoseOfTheRoundedWeights) {
  const std::pair<int64_t, int64_t> sizes[] = {{1, 1},   {2, 7},   {31, 49},
                                               {32, 48}, {47, 16}, {130, 33}};
  size_t turn = 0;
  for (const Precision p : kPolicies)
    for (const Configuration& c : ways_to_compile(p))
      for (const auto& [k, n] : sizes) {
        // All of them as a user compiles; of other ways a part.
        if (!c.name.starts_with("default") && turn++ % 3 != 0) continue;
        const bool transposed = (k + n) % 2 == 0;
        const ir::Module m = layer(tensor(transposed ? Shape{n, k} : Shape{k, n}, 7), transposed);
        Compiled compiled(m, c);
        EXPECT_EQ(compiled.report().statistics.at("quantise-weights.products"), 1);
        const ir::Module reference = rounded(m, c, kLastPass);
        for (int64_t rows : {0, 1, 3, 13}) {
          const TensorRef x = tensor({rows, k}, 99);
          EXPECT_EQ(difference_of(compiled.run("main", {x}),
                                  reference::Interpreter(reference).run_tensors("main", {x}), 2e-5),
                    "")
              << c.name << ": " << rows << " x " << k << " x " << n;
        }
      }
}

// The weights that the numbers of a module's product stand for.
std::vector<double> weights_of(const ir::Module& m) {
  std::vector<double> out;
  passes::visit_bindings(*m.find("main")->body, [&](const ir::Binding& b) {
    if (ir::traits_of(*b.value).packs != ir::Packs::kBlocks) return;
    const ir::Blockwise form = ir::blockwise_of(b.value->attrs);
    const ir::Tensor &w = *b.value->args[1].constant, &s = *b.value->args[2].constant;
    for (int64_t row = 0; row < form.k; ++row)
      for (int64_t column = 0; column < form.n; ++column)
        out.push_back(s.value(form.scale_index(row / form.block, column)) *
                      static_cast<double>(form.number(w.bytes, row, column) - form.middle()));
  });
  return out;
}

// The error is that of the scale by the largest element at most, block by block; and no weight is
// off by more than what the smallest scale cuts off of the largest.
TEST(Weights, RoundingIsNoWorseThanByTheLargest) {
  constexpr int64_t k = 70, n = 40;
  for (const Precision p : kPolicies) {
    const TensorRef w = tensor({k, n}, 5);
    const std::vector<double> got = weights_of(rounded(layer(w, false), under(p), kLastPass));
    ASSERT_EQ(got.size(), static_cast<size_t>(k * n));
    const double steps = p == Precision::kInt4Weights ? 7 : 127;
    for (int64_t column = 0; column < n; ++column)
      for (int64_t first = 0; first < k; first += 32) {
        double largest = 0, error = 0, plain = 0;
        const int64_t end = std::min(k, first + 32);
        for (int64_t row = first; row < end; ++row)
          largest = std::max(largest, std::abs(w->value(row * n + column)));
        for (int64_t row = first; row < end; ++row) {
          const double v = w->value(row * n + column);
          const double off = got[static_cast<size_t>(row * n + column)] - v;
          const double nearest = std::nearbyint(v / largest * steps) * largest / steps - v;
          EXPECT_LE(std::abs(off), largest * 0.31) << row << ", " << column;
          error += off * off;
          plain += nearest * nearest;
        }
        EXPECT_LE(error, plain * (1 + 1e-4) + 1e-12) << first << ", " << column;
      }
  }
}

TEST(Weights, OfFewBitsTakeAnEighthOfTheMemory) {
  const ir::Module m = layer(tensor({1024, 256}, 1), false);
  const auto bytes = [&](const Configuration& c) {
    const Compiled compiled(m, c);
    size_t all = 0;
    for (const exec::Constant& k : compiled.executable().constants) {
      size_t one = size_of(k.dtype);
      for (int64_t d : k.shape) one *= static_cast<size_t>(d);
      all += one;
    }
    return all;
  };
  const size_t plain = bytes(Configuration{"default"});
  EXPECT_LT(bytes(under(Precision::kInt4Weights)) * 6, plain);
  EXPECT_LT(bytes(under(Precision::kInt8Weights)) * 3, plain);
}

TEST(Weights, ThePolicyIsTold) {
  const ir::Module m = layer(tensor({64, 64}, 1), false);
  const Compiled four(m, under(Precision::kInt4Weights));
  EXPECT_EQ(four.executable().provenance.options.at("precision"), "int4-weights");
  const Compiled plain(m, Configuration{"default"});
  EXPECT_FALSE(plain.report().statistics.contains("quantise-weights.products"));
}

}  // namespace
}  // namespace nimble::driver::testing
