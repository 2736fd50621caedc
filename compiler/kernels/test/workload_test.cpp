// The cache of workloads: equal groups are made once, changed ones anew.
#include "compiler/kernels/workload.h"

#include <gtest/gtest.h>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"

namespace nimble::kernels {
namespace {

ir::Function group(const std::string& text) {
  return *ir::infer_types(ir::parse_module(text)).functions.at(0).second;
}

const char kGroup[] = R"(
fn @main(%x: Tensor[(b, n, 8), f32], %y: Tensor[(b, n, 8), f32]) {
  let %s = add(%x, %y);
  let %t = mul(%s, 0.5f32);
  let %z = softmax(%t) {axis = 2};
  %z
})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

TEST(WorkloadCache, EqualGroupsAreMadeOnce) {
  WorkloadCache cache;
  const WorkloadRef first = cache.of(group(kGroup));
  EXPECT_EQ(cache.of(group(kGroup)), first);
  // What variables are called is nothing of the group's.
  EXPECT_EQ(cache.of(group(replaced(kGroup, "%s", "%sum"))), first);
  EXPECT_EQ(cache.made(), 1u);
  EXPECT_EQ(cache.asked(), 3u);
  const Workload fresh = make_workload(group(kGroup));
  EXPECT_EQ(first->key, fresh.key);
  EXPECT_EQ(first->anchor_key, fresh.anchor_key);
  EXPECT_EQ(first->contract.symbols, fresh.contract.symbols);
}

// Each change of something that the canonical form depends on.
TEST(WorkloadCache, ChangedGroupsAreMadeAnew) {
  const std::pair<const char*, const char*> kChanges[] = {
      {"(b, n, 8)", "(b, n, 16)"},     // an extent
      {"(b, n, 8)", "(b, b, 8)"},      // a symbol
      {"f32", "f64"},                  // the element type
      {"axis = 2", "axis = 1"},        // an attribute
      {"0.5f32", "0.25f32"},           // a constant's value
      {"add(%x, %y)", "add(%y, %x)"},  // operands
      {"softmax", "log_softmax"},      // an operator
      {"\n  %z\n", "\n  %t\n"},        // the result
  };
  WorkloadCache cache;
  const WorkloadRef first = cache.of(group(kGroup));
  std::set<WorkloadRef> all = {first};
  for (const auto& [from, to] : kChanges) {
    const std::string changed = replaced(kGroup, from, to);
    ASSERT_NE(changed, kGroup) << from;
    const WorkloadRef w = cache.of(group(changed));
    EXPECT_TRUE(all.insert(w).second) << to;
    EXPECT_EQ(w->key, make_workload(group(changed)).key) << to;
  }
  EXPECT_EQ(cache.made(), all.size());

  ir::Function f = group(
      "fn @main(%x: Tensor[(n), i64], %i: Tensor[(), i64]) "
      "{ let %y = add(%x, %i); %y }");
  const WorkloadRef boxed = cache.of(f);
  f.attrs["scalars"] = std::vector<int64_t>{1};
  const WorkloadRef scalar = cache.of(f);
  EXPECT_NE(boxed, scalar);
  EXPECT_EQ(boxed->contract.arguments[1].kind, exec::KernelArgument::Kind::kTensor);
  EXPECT_EQ(scalar->contract.arguments[1].kind, exec::KernelArgument::Kind::kScalar);
}

TEST(WorkloadCache, ConstantsAreAnotherKernelOfOneCanonicalForm) {
  WorkloadCache cache;
  const WorkloadRef plain = cache.of(group(kGroup));
  const WorkloadRef constant = cache.of(group(kGroup), {false, true});
  EXPECT_EQ(cache.of(group(kGroup), {false, true}), constant);
  EXPECT_EQ(cache.of(group(kGroup), {false, false}), plain);
  EXPECT_EQ(constant->key, plain->key);
  EXPECT_EQ(plain->identity(), plain->key + "vv");
  EXPECT_EQ(constant->identity(), plain->key + "vc");
  EXPECT_EQ(cache.made(), 1u);
}

TEST(WorkloadCache, RequirementsAreInferredWhenAskedFor) {
  WorkloadCache cache;
  // The kernel reads 2*k elements of %x: what its caller knows of n.
  auto f = std::make_shared<ir::Function>();
  const auto type = [](std::vector<ir::Dim> dims) {
    return ir::tensor_type(std::move(dims), DType::kF32);
  };
  const ir::Dim n = ir::Dim::symbol("n"), k = ir::Dim::symbol("k");
  const ir::VarRef x = ir::make_var("x", type({n})), y = ir::make_var("y", type({k}));
  const ir::VarRef v = ir::make_var("v", type({2, k})), z = ir::make_var("z", type({2, k}));
  auto body = std::make_shared<ir::Block>();
  body->bindings.push_back(
      {v, ir::make_call("reshape", {x}, {{"shape", std::vector<ir::Dim>{2, k}}})});
  body->bindings.push_back({z, ir::make_call("add", {v, y})});
  body->result = z;
  f->parameters = {x, y};
  f->body = body;
  f->result_type = z->type;
  const WorkloadRef w = cache.of(*f);
  EXPECT_TRUE(w->contract.requirements.empty());
  const std::vector<exec::DimProgram>& required = cache.requirements(*w);
  ASSERT_EQ(required.size(), 1u);
  EXPECT_NE(required[0].evaluate1(std::vector<int64_t>{8, 4}), 0);
  EXPECT_EQ(required[0].evaluate1(std::vector<int64_t>{7, 4}), 0);
  EXPECT_EQ(&cache.requirements(*w), &required);
}

}  // namespace
}  // namespace nimble::kernels
