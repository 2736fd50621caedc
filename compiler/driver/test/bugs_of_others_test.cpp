// Bugs that other compilers of dynamic networks had (docs/regressions-of-others.md), each as a
// program that shows it (programs/bugs_of_others), compared with the reference interpreter and with
// results worked out by hand. Sizes are those at which the wrong answer differs from the right one.
#include <gmock/gmock.h>

#include "compiler/driver/test/harness.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "vm/executable/assembler.h"

namespace nimble::driver::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class BugOfOthers : public ::testing::TestWithParam<Program> {};

TEST_P(BugOfOthers, IsNotOurs) {
  check_program(GetParam(), {"default"}, SIZE_MAX);
  Configuration bare{"without_plan_memory"};
  bare.disabled_pass = "plan-memory";
  bare.fusion = false;
  check_program(GetParam(), bare, SIZE_MAX);
}

INSTANTIATE_TEST_SUITE_P(Program, BugOfOthers, ::testing::ValuesIn(programs_of(kBugsOfOthers)),
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
              AllOf(HasSubstr("m.nir:2:"), HasSubstr("cast")));
}

// Extents and steps that cannot be are errors where they are known, with a remedy.
TEST(BugsOfOthers, NegativeDimsAreRefused) {
  for (const char* call :
       {"full() {shape = (-1, 2), dtype = f32, value = 0.0}", "reshape(%x) {shape = (-2, 2)}",
        "expand(%x) {shape = (-3, 4)}", "reshape(%x) {shape = (-1, -1)}"})
    EXPECT_THAT(
        failure_of(fmt::format("fn @main(%x: Tensor[(n), f32]) {{\n  let %y = {};\n  %y\n}}", call),
                   {}),
        HasSubstr("m.nir:2:"))
        << call;
}
TEST(BugsOfOthers, StepsOfNothingAreRefused) {
  EXPECT_THAT(
      failure_of("fn @main(%x: Tensor[(n), f32]) {\n"
                 "  let %y = slice(%x) {axes = [0], starts = (0), ends = (n), steps = [0]};\n"
                 "  %y\n}",
                 {}),
      AllOf(HasSubstr("m.nir:2:"), HasSubstr("use a positive or negative step")));
}

// What a product of unknown batches returns is no more known than they are.
TEST(BugsOfOthers, ABatchOfUnknownsIsTypedAsUnknown) {
  const ir::Module m = ir::infer_types(
      ir::parse_module("fn @main(%x: Tensor[(a, 2, 3), f32], %y: Tensor[(b, 3, 2), f32]) {\n"
                       "  let %z = matmul(%x, %y);\n  %z\n}"));
  EXPECT_EQ(ir::str(m.find("main")->result_type), "Tensor[(broadcast(a, b), 2, 2), f32]");
}

// A declared range is a promise that the run checks.
TEST(BugsOfOthers, SizesBeyondTheDeclaredBoundAreRefused) {
  const auto failure = [](const std::string& range, int64_t n) {
    return failure_of(fmt::format("fn @main(%x: Tensor[(n, 4), f32]) attrs {{range.n = {}}} {{\n"
                                  "  let %y = softmax(%x) {{axis = 1}};\n  %y\n}}",
                                  range),
                      {{n, 4}});
  };
  EXPECT_EQ(failure("[1, 64]", 64), "ran");
  for (int64_t n : {0, 65}) EXPECT_THAT(failure("[1, 64]", n), HasSubstr("range.n"));
  EXPECT_EQ(failure("[2, 8, 2]", 8), "ran");
  for (int64_t n : {0, 1, 3, 9, 100})
    EXPECT_THAT(failure("[2, 8, 2]", n), HasSubstr("range.n")) << n;
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
