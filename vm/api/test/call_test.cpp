// Prepared calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vm/api/nimble.h"
#include "vm/base/fault/failing_new.h"
#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"

namespace nimble {
namespace {

using ::testing::HasSubstr;

// Gives back its inputs, the second one first.
constexpr char kSwap[] = R"(
function "swap" 2 3 { AllocADT r2, 0, (r1, r0)  Ret r2 }
entry "swap" f0 {
  input "a" f32 ["n"] [-1]
  input "b" f32 ["m"] [-1]
  output "b again" f32 ["m"] [-1]
  output "a again" f32 ["n"] [-1]
}
)";

class CallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<uint8_t> file = exec::serialize(exec::assemble(kSwap));
    ASSERT_EQ(nimble_load_memory(file.data(), file.size(), nullptr, &model_), NIMBLE_OK);
    ASSERT_EQ(nimble_session_create(model_, nullptr, &session_), NIMBLE_OK);
  }
  void TearDown() override {
    nimble_call_destroy(call_);
    nimble_session_destroy(session_);
    nimble_model_destroy(model_);
  }
  nimble_status prepare(std::vector<const char*> names, size_t outputs = 2) {
    nimble_call_destroy(call_);
    return nimble_call_prepare(session_, nullptr, names.data(), names.size(), outputs, &call_);
  }
  static nimble_tensor tensor(const float* data, const int64_t* shape) {
    nimble_tensor t = NIMBLE_TENSOR_INIT;
    t.data = const_cast<float*>(data);
    t.dtype = NIMBLE_F32;
    t.shape = shape;
    t.rank = 1;
    return t;
  }

  nimble_model* model_ = nullptr;
  nimble_session* session_ = nullptr;
  nimble_call* call_ = nullptr;
};

TEST_F(CallTest, TakesInputsInTheOrderOfItsNames) {
  ASSERT_EQ(prepare({"b", "a"}), NIMBLE_OK);
  const int64_t two[] = {2}, one[] = {1};
  for (float x = 0; x < 3; ++x) {
    const float b[] = {x, x + 1}, a[] = {-x};
    const nimble_tensor inputs[] = {tensor(b, two), tensor(a, one)};
    nimble_tensor outputs[] = {NIMBLE_TENSOR_INIT, NIMBLE_TENSOR_INIT};
    ASSERT_EQ(nimble_call_run(call_, inputs, outputs), NIMBLE_OK) << nimble_last_error();
    EXPECT_EQ(outputs[0].shape[0], 2);
    EXPECT_EQ(static_cast<const float*>(outputs[0].data)[1], x + 1);
    EXPECT_EQ(static_cast<const float*>(outputs[1].data)[0], -x);
    EXPECT_NE(outputs[0].release, nullptr);
    for (nimble_tensor& t : outputs) nimble_tensor_release(&t);
  }
}

TEST_F(CallTest, WritesToBuffersAndKeepsTheirDescription) {
  ASSERT_EQ(prepare({"a", "b"}, 1), NIMBLE_OK);
  const int64_t two[] = {2};
  const float a[] = {1, 2}, b[] = {3, 4};
  const nimble_tensor inputs[] = {tensor(a, two), tensor(b, two)};
  float result[3] = {};
  for (int i = 0; i < 2; ++i) {
    nimble_tensor y = NIMBLE_TENSOR_INIT;
    y.data = result;
    y.capacity = sizeof result;
    ASSERT_EQ(nimble_call_run(call_, inputs, &y), NIMBLE_OK) << nimble_last_error();
    EXPECT_EQ(y.data, result);
    EXPECT_EQ(y.capacity, sizeof result);
    EXPECT_EQ(y.rank, 1);
    EXPECT_EQ(y.shape[0], 2);
    EXPECT_EQ(y.owner, nullptr);
    nimble_tensor_release(&y);
    EXPECT_EQ(result[1], 4);
  }
}

// Whatever a run does: storages, tensors, values, closures, calls of each kind, kernels, copies,
// outputs into buffers.
constexpr char kBusy[] = R"(
scalar "bytes" [a0 4 *]
scalar "less" [a0 1 -]
kernel "copy" { source "copy" symbols n in f32 ([a0]) out f32 ([a0]) scratch [a0]
  dispatch { 0: n <= 2 ? 1 : 2
    1: 0
    2: 0 } host "host.copy" }
function "busy" 2 12 {
  ShapeOf r2, 1, r0
  Invoke r3, f"bytes", (r2)
  AllocStorage r4, r3, 64, d0
  LoadConsti r5, 0
  AllocTensorReg r6, r4, r5, f32, (r2)
  InvokePacked k"copy", (r0, r6)
  LoadConsti r7, 20
  AllocClosure r8, f"deep", (r7)
  InvokeClosure r9, r8, (r6)
  DeviceCopy r10, r9, d0
  ReshapeTensor r10, r10, (r2)
  FreeTensor r9
  AllocADT r11, 0, (r10, r1)
  Ret r11
}
function "deep" 2 4 {
  If r0, @more, @done
more:
  Invoke r2, f"less", (r0)
  Invoke r3, f"deep", (r2, r1)
  Move r1, r3
done:
  Ret r1
}
entry "busy" f0 {
  input "a" f32 ["n"] [-1]
  input "b" f32 ["m"] [-1]
  output "a again" f32 ["n"] [-1]
  output "b again" f32 ["m"] [-1]
}
)";

TEST_F(CallTest, AllocatesNothingOnceItHasRun) {
  nimble_session_destroy(session_);
  nimble_model_destroy(model_);
  const std::vector<uint8_t> file = exec::serialize(exec::assemble(kBusy));
  ASSERT_EQ(nimble_load_memory(file.data(), file.size(), nullptr, &model_), NIMBLE_OK)
      << nimble_last_error();
  ASSERT_EQ(nimble_session_create(model_, nullptr, &session_), NIMBLE_OK);
  ASSERT_EQ(prepare({"a", "b"}), NIMBLE_OK);
  const int64_t extents[2][2] = {{2, 3}, {4, 1}};
  const float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7};
  float results[2][4];
  for (int i = 0; i < 8; ++i) {
    // Other shapes each time, and back.
    const nimble_tensor inputs[] = {tensor(a, &extents[i % 2][0]), tensor(b, &extents[i % 2][1])};
    nimble_tensor outputs[] = {NIMBLE_TENSOR_INIT, NIMBLE_TENSOR_INIT};
    for (int k = 0; k < 2; ++k) {
      outputs[k].data = results[k];
      outputs[k].capacity = sizeof results[k];
    }
    const CountNew news;
    ASSERT_EQ(nimble_call_run(call_, inputs, outputs), NIMBLE_OK) << nimble_last_error();
    if (i >= 4) {
      EXPECT_EQ(news.count(), 0u) << "run " << i;
    }
    EXPECT_EQ(results[0][1], 2);
    EXPECT_EQ(results[1][0], 5);
  }
}

TEST_F(CallTest, FailuresSayWhatIsWrong) {
  EXPECT_EQ(prepare({"a", "bb"}), NIMBLE_NOT_FOUND);
  EXPECT_THAT(nimble_last_error(), HasSubstr("no input bb"));
  EXPECT_EQ(call_, nullptr);
  EXPECT_EQ(prepare({"a", "a"}), NIMBLE_INVALID_ARGUMENT);
  EXPECT_THAT(nimble_last_error(), HasSubstr("given twice"));
  EXPECT_EQ(prepare({"a", "b"}, 3), NIMBLE_INVALID_ARGUMENT);
  EXPECT_EQ(nimble_call_prepare(session_, "other", nullptr, 0, 0, &call_), NIMBLE_NOT_FOUND);
  EXPECT_EQ(nimble_call_prepare(session_, nullptr, nullptr, 3, 0, &call_), NIMBLE_INVALID_ARGUMENT);
  EXPECT_EQ(nimble_call_run(nullptr, nullptr, nullptr), NIMBLE_INVALID_ARGUMENT);

  ASSERT_EQ(prepare({"a"}, 1), NIMBLE_OK);
  const int64_t two[] = {2};
  const float a[] = {1, 2};
  const nimble_tensor input = tensor(a, two);
  nimble_tensor y = NIMBLE_TENSOR_INIT;
  EXPECT_EQ(nimble_call_run(call_, &input, &y), NIMBLE_INVALID_ARGUMENT);
  EXPECT_THAT(nimble_last_error(), HasSubstr("input b: it is not given"));
  EXPECT_EQ(y.data, nullptr);
}

}  // namespace
}  // namespace nimble
