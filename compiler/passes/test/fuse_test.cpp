// Fusion at sizes that a text test cannot have.
#include <gtest/gtest.h>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

// A chain of any length is groups of a bounded size: looking at a whole group at each join would
// take time that is quadratic in the chain.
TEST(Fuse, LongChainsAreSeveralGroups) {
  constexpr int kLength = 1000, kMost = 128;
  std::string text = "fn @main(%x0: Tensor[(n), f32]) {\n";
  for (int i = 0; i < kLength; ++i) text += fmt::format("  let %x{} = exp(%x{});\n", i + 1, i);
  ir::Module m = ir::infer_types(ir::parse_module(text + fmt::format("  %x{}\n}}", kLength)));
  PassContext context;
  PipelineOptions options;
  options.passes = {"fuse"};
  options.verify = true;
  m = run_pipeline(m, context, options);
  EXPECT_EQ(context.statistics["fuse.groups"], (kLength + kMost - 1) / kMost);
  int members = 0;
  for (const ir::Binding& b : m.find("main")->body->bindings) {
    ASSERT_TRUE(b.value->primitive);
    const auto size = static_cast<int>(b.value->primitive->body->bindings.size());
    EXPECT_LE(size, kMost);
    members += size;
  }
  EXPECT_EQ(members, kLength);
}

// A deep network repeats its groups: each is worked out once, whatever the depth, by `fuse` and
// all that follows.
TEST(Fuse, EqualLayersHaveOneWorkload) {
  const auto made = [](int layers) {
    std::string text = "fn @main(%x0: Tensor[(n, 8), f32], %w: Tensor[(8, 8), f32]) {\n";
    for (int i = 0; i < layers; ++i)
      text += fmt::format(
          "  let %p{0} = matmul(%x{0}, %w);\n  let %g{0} = gelu(%p{0});\n"
          "  let %s{0} = add(%g{0}, %x{0});\n  let %x{1} = softmax(%s{0}) {{axis = 1}};\n",
          i, i + 1);
    PassContext context;
    context.target = kernels::target_by_name("x86-64-v3");
    run_pipeline(ir::infer_types(ir::parse_module(text + fmt::format("  %x{}\n}}", layers))),
                 context);
    EXPECT_GE(context.workloads->asked(), static_cast<size_t>(3 * layers));
    return context.workloads->made();
  };
  EXPECT_EQ(made(12), made(3));
}

}  // namespace
}  // namespace nimble::passes
