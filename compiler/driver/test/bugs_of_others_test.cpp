// Bugs that other compilers of dynamic networks had (docs/regressions-of-others.md), each as a
// program that shows it, compared with the reference interpreter. Sizes are those at which the
// wrong answer differs from the right one.
#include <gmock/gmock.h>

#include "compiler/driver/test/harness.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"
#include "vm/executable/assembler.h"

namespace nimble::driver::testing {
namespace {

using ::testing::HasSubstr;

class BugOfOthers : public ::testing::TestWithParam<Program> {};

TEST_P(BugOfOthers, IsNotOurs) {
  check_program(GetParam(), {"default"}, SIZE_MAX);
  Configuration bare{"without_plan_memory"};
  bare.disabled_pass = "plan-memory";
  bare.fusion = false;
  check_program(GetParam(), bare, SIZE_MAX);
}

Program with_sizes(std::string name, std::string text, std::vector<Sizes> sizes) {
  Program p;
  p.name = std::move(name);
  p.text = std::move(text);
  p.sizes = std::move(sizes);
  return p;
}

std::vector<Program> programs() {
  const std::vector<Sizes> pairs = {{{"b", 1}, {"c", 1}, {"m", 2}}, {{"b", 3}, {"c", 3}, {"m", 5}},
                                    {{"b", 1}, {"c", 4}, {"m", 7}}, {{"b", 4}, {"c", 1}, {"m", 1}},
                                    {{"b", 0}, {"c", 1}, {"m", 3}}, {{"b", 1}, {"c", 0}, {"m", 3}},
                                    {{"b", 2}, {"c", 3}, {"m", 3}}};
  const std::vector<Sizes> few = {{{"n", 0}}, {{"n", 1}}, {{"n", 2}}, {{"n", 7}}, {{"n", 33}}};
  std::vector<Program> out = {
      // An unknown batch is no 1 and no fixed number; of two, the result's is numpy's, which for 0
      // and 1 is 0 and not their maximum.
      with_sizes("unknown_batch_of_a_product", R"(
fn @main(%x: Tensor[(b, m, 4), f32], %y: Tensor[(c, 4, 5), f32]) {
  let %z = matmul(%x, %y);
  %z
})",
                 pairs),
      with_sizes("broadcast_of_unknowns", R"(
fn @main(%x: Tensor[(b, m), f32], %y: Tensor[(c, m), f32]) {
  let %z = add(%x, %y);
  let %s = sum(%z) {axes = [0], keepdims = true};
  let %t = sub(%z, %s);
  %t
})",
                 pairs),
      with_sizes("product_of_unknown_dims", R"(
fn @main(%x: Tensor[(n, k), f32], %w: Tensor[(m, j), f32]) {
  let %y = matmul(%x, %w) {transpose_b = true};
  let %z = relu(%y);
  %z
})",
                 {{{"n", 3}, {"k", 4}, {"m", 5}, {"j", 4}},
                  {{"n", 1}, {"k", 1}, {"m", 1}, {"j", 1}},
                  {{"n", 0}, {"k", 4}, {"m", 5}, {"j", 4}},
                  {{"n", 3}, {"k", 0}, {"m", 5}, {"j", 0}},
                  {{"n", 3}, {"k", 4}, {"m", 5}, {"j", 3}}}),
      // A result without elements must not keep the other results of its kernel from being made.
      with_sizes("one_empty_result_of_several", R"(
fn @main(%x: Tensor[(n, 6), f32], %k: Tensor[(m, 6), f32]) {
  let %a = add(%x, 1f32);
  let %b = mul(%a, 2f32);
  let %c = exp(%k);
  let %d = slice(%c) {axes = [1], starts = (3), ends = (3)};
  let %r = (%a, %d, %b, %c);
  %r
})",
                 {{{"n", 0}, {"m", 3}}, {{"n", 3}, {"m", 0}}, {{"n", 2}, {"m", 2}}}),
      with_sizes("reshape_of_a_constant", R"(
fn @main(%x: Tensor[(n, 3, 2), f32]) {
  let %w = reshape(f32[6]{1, 2, 3, 4, 5, 6}) {shape = (3, 2)};
  let %y = add(%x, %w);
  let %z = reshape(f32[]{7}) {shape = (1, 1)};
  let %r = (%y, %w, %z);
  %r
})",
                 few),
      with_sizes("reshape_and_concat_in_one_group", R"(
fn @main(%x: Tensor[(n, 6), f32], %y: Tensor[(n, 2, 3), f32]) {
  let %a = relu(%x);
  let %b = reshape(%a) {shape = (n, 2, 3)};
  let %c = concat(%b, %y, %b) {axis = 1};
  let %d = reshape(%c) {shape = (n, 18)};
  let %e = neg(%d);
  %e
})",
                 few),
      with_sizes("slices_backwards_and_beyond", R"(
fn @main(%x: Tensor[(n, 5), f32]) {
  let %a = slice(%x) {axes = [0], starts = (-1), ends = (-9223372036854775808), steps = [-1]};
  let %b = slice(%x) {axes = [0], starts = (-9223372036854775808), ends = (9223372036854775807)};
  let %c = slice(%x) {axes = [0], starts = (9223372036854775807), ends = (-9223372036854775808), steps = [-2]};
  let %d = slice(%x) {axes = [-1], starts = (4), ends = (-100), steps = [-3]};
  let %e = slice(%x) {axes = [0], starts = (3), ends = (1)};
  let %f = slice(%x) {axes = [0], starts = (1), ends = (9223372036854775807), steps = [9223372036854775807]};
  let %g = slice(%x) {axes = [0], starts = (9223372036854775807), ends = (-9223372036854775808), steps = [-9223372036854775807]};
  let %r = (%a, %b, %c, %d, %e, %f, %g);
  %r
})",
                 few),
      // Shapes in i32 and i64, and indices of either kind.
      with_sizes("i32_and_i64_together", R"(
fn @main(%x: Tensor[(n, 4), f32], %i: Tensor[(m), i32], %j: Tensor[(m), i64]) {
  let %k = cast(%i) {dtype = i64};
  let %s = add(%k, %j);
  let %a = gather(%x, %i) {axis = 1};
  let %b = gather(%x, %j) {axis = 1};
  let %c = add(%a, %b);
  let %l = size() {value = n};
  let %t = add(%s, %l);
  let %r = (%c, %t);
  %r
})",
                 {{{"n", 3}, {"m", 0}}, {{"n", 1}, {"m", 5}}, {{"n", 0}, {"m", 2}}}),
      // The extent of a concatenation is used by a group before the group that makes it.
      with_sizes("a_symbol_defined_before_its_use", R"(
fn @main(%x: Tensor[(n, 4), f32], %y: Tensor[(m, 4), f32]) {
  let %j: Tensor[(k, 4), f32] = concat(%x, %y) {axis = 0};
  let %f = full() {shape = (k, 4), dtype = f32, value = 2.0};
  let %l = size() {value = k};
  let %lf = cast(%l) {dtype = f32};
  let %a = mul(%j, %lf);
  let %b = add(%a, %f);
  %b
})",
                 {{{"n", 0}, {"m", 0}}, {{"n", 3}, {"m", 4}}, {{"n", 1}, {"m", 0}}}),
      // What both branches and what follows them use must be there before the branch.
      with_sizes("storage_across_branches", R"(
fn @main(%x: Tensor[(n, 4), f32], %c: Tensor[(), bool]) {
  let %a = softmax(%x) {axis = 1};
  let %r = if (%c) {
    let %p = softmax(%a) {axis = 0};
    let %q = if (%c) {
      let %s = cumsum(%p) {axis = 0};
      %s
    } else { %a };
    %q
  } else {
    let %t = cumsum(%a) {axis = 1};
    %t
  };
  let %y = add(%r, %a);
  let %z = cumsum(%y) {axis = 0};
  %z
})",
                 few)};
  for (Program& p : out)
    for (const char* index : {"i", "j"}) p.special[index] = {-2, 3};
  return out;
}

INSTANTIATE_TEST_SUITE_P(Program, BugOfOthers, ::testing::ValuesIn(programs()),
                         [](const auto& info) { return info.param.name; });

std::string failure_of(const std::string& text, const std::vector<std::vector<int64_t>>& shapes) {
  try {
    Compiled compiled(ir::parse_module(text, "m.nir"), {"default"});
    std::vector<ir::TensorRef> inputs;
    for (const std::vector<int64_t>& shape : shapes) {
      uint8_t* data = nullptr;
      inputs.push_back(ir::Tensor::make(DType::kF32, shape, &data));
    }
    compiled.run("main", inputs);
  } catch (const Error& e) {
    return e.what();
  }
  return "ran";
}

// A type of mixed widths is an error at its place, never a silent conversion.
TEST(BugsOfOthers, MixedIntegerWidthsAreRefused) {
  EXPECT_THAT(failure_of("fn @main(%i: Tensor[(n), i32], %j: Tensor[(n), i64]) {\n"
                         "  let %s = add(%i, %j);\n  %s\n}",
                         {}),
              HasSubstr("m.nir:2:"));
}

// A declared range is a promise that the run checks.
TEST(BugsOfOthers, SizesBeyondTheDeclaredBoundAreRefused) {
  const char* text =
      "fn @main(%x: Tensor[(n, 4), f32]) attrs {range.n = [1, 64]} {\n"
      "  let %y = softmax(%x) {axis = 1};\n  %y\n}";
  EXPECT_EQ(failure_of(text, {{64, 4}}), "ran");
  EXPECT_NE(failure_of(text, {{65, 4}}), "ran");
  EXPECT_NE(failure_of(text, {{0, 4}}), "ran");
}

// Bytes of a tensor beyond 64 bits: an error, not the remainder modulo 2^64.
TEST(BugsOfOthers, SizesThatWrapAreErrors) {
  const char* text =
      "fn @main(%x: Tensor[(n, 1), f32]) {\n"
      "  let %y = expand(%x) {shape = (n*4611686018427387904, 4)};\n"
      "  let %z = softmax(%y) {axis = 1};\n  %z\n}";
  EXPECT_NE(failure_of(text, {{1, 1}}), "ran");
  EXPECT_NE(failure_of(text, {{4, 1}}), "ran");
}

// A closure that is handed to itself, called ever deeper: when the run is over, every object of it
// is gone, and a second run takes no memory that the first did not.
TEST(BugsOfOthers, RecursiveClosuresLeaveNothingBehind) {
  const char* text = R"(
scalar "minus" [a0 1 -]
function "main" 1 5 {
  ShapeOf r1, 1, r0
  AllocADT r2, 0, (r1, r0)
  AllocClosure r3, f"down", (r2)
  InvokeClosure r4, r3, (r3, r1)
  Ret r4
}
function "down" 3 6 {
  If r2, @more, @done
more:
  Invoke r3, f"minus", (r2)
  AllocClosure r4, f"down", (r0)
  InvokeClosure r5, r4, (r1, r3)
  Move r2, r5
  Ret r2
done:
  Ret r2
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" i64 [] []
}
)";
  rt::SessionOptions options;
  options.threads = 1;
  rt::Session session(load(exec::assemble(text)), options);
  uint8_t* data = nullptr;
  const ir::TensorRef x = ir::Tensor::make(DType::kF32, {500}, &data);
  uint64_t in_use = 0;
  for (int run = 0; run < 200; ++run) {
    EXPECT_EQ(run_session(session, "main", {x})[0]->integer(0), 0);
    if (run == 0) in_use = session.memory().reserved;
    EXPECT_EQ(session.memory().reserved, in_use) << "run " << run;
  }
}

}  // namespace
}  // namespace nimble::driver::testing
