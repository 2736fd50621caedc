// Where operators run beside a GPU that takes some of them.
#include "compiler/passes/support/operator_devices.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/device_number.h"

namespace nimble::passes {
namespace {

// "gpu", "cpu" or "any" for each variable of @main that an operator makes.
std::map<std::string, std::string> devices_of(const std::string& text,
                                              const std::set<std::string>& not_taken,
                                              const std::set<std::string>& not_by_cpu = {}) {
  const ir::Module m = ir::infer_types(ir::parse_module(text));
  const ir::Function& f = *m.find("main");
  std::set<std::pair<std::string, int32_t>> asked;
  const OperatorDevices devices(f, true, [&](const ir::Binding& b, int32_t device) {
    EXPECT_TRUE(asked.emplace(b.var->name, device).second) << b.var->name << " is asked for twice";
    return !(device == kCudaDevice ? not_taken : not_by_cpu).contains(b.value->op);
  });
  std::map<std::string, std::string> out;
  visit_bindings(*f.body, [&](const ir::Binding& b) {
    const auto device = devices.of(b.var.get());
    out[b.var->name] = !device ? "any" : *device == kCudaDevice ? "gpu" : "cpu";
  });
  return out;
}

TEST(OperatorDevices, FollowTheTemplates) {
  const auto at = devices_of(R"(fn @main(%x: Tensor[(n, 4), f32], %w: Tensor[(4, 4), f32]) {
  let %a = exp(%x);
  let %b = cumsum(%a) {axis = 1, exclusive = false, reverse = false};
  let %c = matmul(%b, %w);
  let %d = tanh(%c);
  %d
})",
                             {"cumsum"});
  EXPECT_EQ(at.at("b"), "cpu");
  EXPECT_EQ(at.at("c"), "gpu");
  EXPECT_EQ(at.at("d"), "gpu");
  // What the CPU alone reads, and nothing on the GPU made.
  EXPECT_EQ(at.at("a"), "cpu");
}

// Its extents depend on no data.
TEST(OperatorDevices, WhatIsToldItsCountIsMadeWhereItIsRead) {
  const auto at = devices_of(R"(fn @main(%x: Tensor[(n, 4), f32]) {
  let %r = range() {count = n, dtype = i64, start = 0, step = 1};
  let %c = cast(%r) {dtype = f32};
  let %u = unsqueeze(%c) {axes = [1]};
  let %y = mul(%x, %u);
  %y
})",
                             {});
  EXPECT_EQ(at.at("r"), "gpu");
  EXPECT_EQ(at.at("c"), "gpu");
  EXPECT_EQ(at.at("y"), "gpu");
}

TEST(OperatorDevices, StayWithTheCpuBetweenItsKernels) {
  const auto at = devices_of(R"(fn @main(%x: Tensor[(n, 4), f32], %w: Tensor[(4, 4), f32]) {
  let %p = matmul(%x, %w);
  let %a = cumsum(%p) {axis = 1, exclusive = false, reverse = false};
  let %b = exp(%a);
  let %c = softmax(%b) {axis = 1};
  let %d = cumsum(%c) {axis = 1, exclusive = false, reverse = false};
  let %e = add(%d, %p);
  %e
})",
                             {"cumsum"});
  EXPECT_EQ(at.at("p"), "gpu");
  EXPECT_EQ(at.at("b"), "cpu");
  EXPECT_EQ(at.at("c"), "cpu");
  EXPECT_EQ(at.at("e"), "gpu") << "it reads what the GPU made, too";
}

TEST(OperatorDevices, ViewsGoWithTheirNeighbours) {
  const auto at = devices_of(R"(fn @main(%x: Tensor[(n, 4), f32]) {
  let %a = exp(%x);
  let %v = reshape(%a) {shape = (4, n)};
  let %b = cumsum(%v) {axis = 1, exclusive = false, reverse = false};
  let %w = reshape(%b) {shape = (n, 4)};
  let %c = tanh(%w);
  %c
})",
                             {"cumsum"});
  EXPECT_EQ(at.at("v"), "any");
  EXPECT_EQ(at.at("a"), "cpu");
  EXPECT_EQ(at.at("c"), "cpu");
}

TEST(OperatorDevices, OfShapeCodeAreTheHosts) {
  const auto at = devices_of(R"(fn @main(%x: Tensor[(n, 4), f32], %i: Tensor[(n), i64]) {
  let %s = shape_of(%x);
  let %t = add(%s, i64[2]{1, 1});
  let %j = add(%i, %i);
  let %y = exp(%x);
  let %r = (%t, %j, %y);
  %r
})",
                             {});
  EXPECT_EQ(at.at("t"), "cpu");
  EXPECT_EQ(at.at("j"), "gpu") << "as many integers as the input has";
  EXPECT_EQ(at.at("y"), "gpu");
}

// The host would compute a few integers, and the CPU what lies between its kernels; but it has
// no template for them.
TEST(OperatorDevices, WhatTheGpuAloneTakesRunsThere) {
  const char* text =
      R"(fn @main(%i: Tensor[(2, 4), i64], %j: Tensor[(4, 2), i64], %x: Tensor[(n, 4), f32]) {
  let %p = matmul(%i, %j);
  let %q = add(%p, %p);
  let %a = exp(%x);
  let %b = cumsum(%a) {axis = 1, exclusive = false, reverse = false};
  let %c = tanh(%b);
  let %d = cumsum(%c) {axis = 1, exclusive = false, reverse = false};
  let %r = (%q, %d);
  %r
})";
  auto at = devices_of(text, {"cumsum"}, {"matmul", "exp", "tanh"});
  EXPECT_EQ(at.at("p"), "gpu");
  EXPECT_EQ(at.at("q"), "gpu") << "it reads what the GPU made";
  EXPECT_EQ(at.at("a"), "gpu");
  EXPECT_EQ(at.at("c"), "gpu");
  at = devices_of(text, {"cumsum"});
  for (const char* name : {"p", "q", "a", "c"}) EXPECT_EQ(at.at(name), "cpu") << name;
  // Neither has one: the message is of the CPU's templates, which are more.
  at = devices_of(text, {"cumsum", "matmul"}, {"matmul"});
  EXPECT_EQ(at.at("p"), "cpu");
}

TEST(OperatorDevices, OfWhatDataDecidesAreTheHosts) {
  const auto at = devices_of(R"(fn @main(%x: Tensor[(n), f32]) {
  let %g = greater(%x, 0f32);
  let %i = nonzero(%g);
  let %k = cast(%i) {dtype = f32};
  let %r = (%i, %k);
  %r
})",
                             {});
  EXPECT_EQ(at.at("g"), "gpu");
  EXPECT_EQ(at.at("i"), "cpu");
}

}  // namespace
}  // namespace nimble::passes
