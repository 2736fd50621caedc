// Prepared calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vm/api/nimble.h"
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
