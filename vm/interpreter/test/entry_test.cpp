// Calls of an entry point again and again: names bound once, tensors kept while shapes repeat.
#include <gtest/gtest.h>

#include "vm/base/fault/failing_new.h"
#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

// y = a + b, and `a` itself.
constexpr char kTwoInputs[] = R"(
function "main" 2 8 {
  ShapeOf r2, 1, r0
  Invoke r3, f"bytes", (r2)
  AllocStorage r3, r3, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r3, r4, f32, (r2)
  InvokePacked k"add", (r0, r1, r5)
  AllocADT r6, 0, (r5, r0)
  Ret r6
}
entry "main" f0 {
  input "a" f32 ["n"] [-1]
  input "b" f32 ["n"] [-1] default "ones"
  output "y" f32 ["n"] [-1]
  output "a again" f32 ["n"] [-1]
}
)";

class EntryTest : public Interpreter {
 protected:
  void SetUp() override {
    Interpreter::SetUp();
    load(std::string(kAddKernel) + kTwoInputs);
  }
};

TEST_F(EntryTest, CallsOfTheSameShapesSeeTheirOwnData) {
  for (float x = 0; x < 5; ++x) {
    const std::vector<Result> r = run({{{2}, {x, 2 * x}}, {{2}, {100, 200}}}, 2);
    EXPECT_EQ(r[0].floats, (std::vector<float>{100 + x, 200 + 2 * x}));
    EXPECT_EQ(r[1].floats, (std::vector<float>{x, 2 * x}));
  }
  EXPECT_EQ(session_->live_objects(), 0u);
  EXPECT_EQ(run({{{1}, {5}}, {{1}, {6}}}, 2)[0].floats, (std::vector<float>{11}));
  EXPECT_EQ(run({{{0}, {}}, {{0}, {}}}, 2)[0].shape, (std::vector<int64_t>{0}));
}

// Whatever a call leaves out, copies or gets wrong, the next one is not taken for checked.
TEST_F(EntryTest, WhatWasNotBorrowedIsCheckedAgain) {
  const float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const int64_t two[] = {2}, three[] = {3}, stride[] = {2};
  const auto given = [&](std::span<const int64_t> shape, std::span<const int64_t> strides = {}) {
    return InputTensor{data, DType::kF32, shape, strides, true};
  };
  const auto call = [&](InputTensor a, InputTensor b) {
    const InputTensor inputs[] = {a, b};
    OutputTensor out;
    session_->run(0, inputs, {&out, 1});
    return static_cast<const float*>(out.data)[1];
  };
  const InputTensor none;
  EXPECT_EQ(call(given(two), given(two)), 4);
  EXPECT_EQ(call(given(three), none), 3);
  EXPECT_THROW(call(given(three), given(two)), Error);
  EXPECT_EQ(call(given(two), given(two)), 4);
  EXPECT_EQ(call(given(three), given(three, stride)), 5);
  EXPECT_THROW(call(given(three), given(two)), Error);
  EXPECT_EQ(call(given(three), given(three)), 4);
  EXPECT_THROW(call({}, given(three)), Error);
  EXPECT_EQ(call(given(three), given(three)), 4);
}

TEST_F(EntryTest, SteadyCallsAllocateNothing) {
  const float a[] = {1, 2}, b[] = {3, 4};
  const int64_t shape[] = {2};
  const InputTensor inputs[] = {{a, DType::kF32, shape, {}, true},
                                {b, DType::kF32, shape, {}, true}};
  float y[2], again[2];
  OutputTensor outputs[2];
  const auto call = [&] {
    outputs[0].destination = y;
    outputs[1].destination = again;
    outputs[0].capacity = outputs[1].capacity = sizeof y;
    session_->run(0, inputs, outputs);
  };
  call();
  call();
  const CountNew news;
  for (int i = 0; i < 10; ++i) call();
  EXPECT_EQ(news.count(), 0u);
  EXPECT_EQ(y[1], 6);
  EXPECT_EQ(again[1], 2);
}

TEST_F(EntryTest, NamesAreFoundWhereverTheyStand) {
  const EntryPlan& plan = session_->plan(0);
  for (size_t likely : {size_t{0}, size_t{1}, size_t{7}}) {
    EXPECT_EQ(plan.find_input("a", likely), 0u);
    EXPECT_EQ(plan.find_input("b", likely), 1u);
    EXPECT_THROW(plan.find_input("c", likely), Error);
  }
}

}  // namespace
}  // namespace nimble::rt
