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

}  // namespace
}  // namespace nimble::passes
