// cuDNN's attention against plain loops, on stand-ins for the library and for NVIDIA's driver.
#include <gmock/gmock.h>

#include <cmath>

#include "vm/library/test/gpu_routine_harness.h"
#include "vm/library/test/standin/cudnn.h"

namespace nimble::rt {
namespace {

using exec::VendorCall;
using ::testing::HasSubstr;

class CudnnAttention : public GpuRoutine {
 protected:
  CudnnAttention() : GpuRoutine("NIMBLE_CUDNN", NIMBLE_STANDIN_CUDNN) {}
  const StandInCudnn& library() const override { return standin_cudnn(NIMBLE_STANDIN_CUDNN); }
  const char* name() const override { return "cudnn.attention"; }

  // Adds queries, keys, values and the result.
  VendorCall attention(int64_t batch, int64_t heads, int64_t n, int64_t m, int64_t d, int64_t dv,
                       DType type = DType::kBF16) {
    add({batch, n, heads * d}, type);
    add({batch, m, heads * d}, type);
    add({batch, m, heads * dv}, type);
    add({batch, n, heads * dv}, type);
    VendorCall c;
    c.routine = name();
    c.x = 0;
    c.w = 1;
    c.y = 3;
    c.attention = VendorCall::Attention{2, heads, 0.375F};
    return c;
  }
  std::vector<float> expected(const VendorCall& c) const override {
    const Operand &q = operands_[0], &k = operands_[1], &v = operands_[2], &y = operands_[3];
    const int64_t heads = c.attention->heads, n = q.shape[1], m = k.shape[1];
    const int64_t d = q.shape[2] / heads, dv = v.shape[2] / heads;
    std::vector<float> out;
    for (int64_t i = 0; i < count_of(y.shape); ++i) {
      const int64_t column = i % (heads * dv), row = i / (heads * dv) % n;
      const int64_t entry = i / (heads * dv) / n, head = column / dv;
      double sum = 0, value = 0;
      for (int64_t j = 0; j < m; ++j) {
        double score = 0;
        for (int64_t e = 0; e < d; ++e)
          score += q.values[place(q, {entry, row, head * d + e})] *
                   k.values[place(k, {entry, j, head * d + e})];
        const double weight = std::exp(score * c.attention->scale);
        sum += weight;
        value += weight * v.values[place(v, {entry, j, column})];
      }
      out.push_back(static_cast<float>(value / sum));
    }
    return out;
  }
};

TEST_F(CudnnAttention, OfAnySizeIsRight) {
  struct Case {
    int64_t batch, heads, n, m, d, dv;
  };
  for (const DType type : {DType::kF16, DType::kBF16})
    for (const Case& t : {Case{1, 1, 1, 1, 1, 1}, Case{1, 2, 3, 5, 4, 4}, Case{2, 3, 7, 7, 8, 8},
                          Case{3, 1, 1, 9, 2, 6}, Case{2, 4, 16, 17, 8, 2}}) {
      library().reset();
      const VendorCall c = attention(t.batch, t.heads, t.n, t.m, t.d, t.dv, type);
      prepare(c);
      expect_right(c);
      EXPECT_STREQ(library().graphs(), "attention\n");
      clear();
    }
}

TEST_F(CudnnAttention, PlansAreMadeOnce) {
  VendorCall c = attention(2, 2, 3, 4, 8, 8);
  prepare(c);
  expect_right(c);
  const int made = library().calls("cudnnBackendCreateDescriptor");
  expect_right(c);
  EXPECT_EQ(library().calls("cudnnBackendCreateDescriptor"), made + 1) << "what each call has";
}

// Tensor cores are what it is for; narrow sums, and those that vary, are not.
TEST_F(CudnnAttention, EnginesOfOtherNumbersArePassedOver) {
  const VendorCall c = attention(1, 2, 3, 4, 8, 8);
  for (const int note : {1, 2, 4}) library().add_engine(3, note, 0, 0);
  prepare(c);
  EXPECT_THAT(why_not(), HasSubstr("no engine for it that sums in f32"));
  library().add_engine(3, 0, 512, 0);
  prepare(c);
  std::string why;
  const auto ready = routine_->find(tensors(), &why);
  ASSERT_TRUE(ready) << why;
  EXPECT_EQ(ready->workspace_bytes(), 512u);
  expect_right(c);
}

// One before 9.13 knows no such operation.
TEST_F(CudnnAttention, OlderLibrariesHaveNone) {
  const VendorCall c = attention(1, 2, 3, 4, 8, 8);
  prepare(c);
  // Five tensors; the operation is made ahead of them.
  library().fail("cudnnBackendCreateDescriptor", 1, 3000);
  EXPECT_THAT(why_not(), HasSubstr("cudnnBackendCreateDescriptor gave status 3000"));
  EXPECT_EQ(library().calls("cudnnBackendExecute"), 0);
}

TEST_F(CudnnAttention, ResultsWithoutElementsTakeNothing) {
  const VendorCall c = attention(2, 2, 0, 4, 8, 8);
  prepare(c);
  std::string why;
  const auto ready = routine_->find(tensors(), &why);
  ASSERT_TRUE(ready) << why;
  EXPECT_TRUE(ready->empty());
  start(*ready);
  EXPECT_EQ(library().calls("cudnnBackendExecute"), 0);
}

TEST_F(CudnnAttention, ExtentsThatAreNoneAreRefused) {
  VendorCall c = attention(2, 2, 3, 4, 8, 6);
  prepare(c);
  expect_right(c);
  const auto resized = [&](size_t operand, Shape shape) {
    const std::vector<Operand> before = operands_;
    operands_[operand].shape = std::move(shape);
    const std::string why = why_not();
    operands_ = before;
    return why;
  };
  const char* const none = "not those of attention";
  EXPECT_THAT(resized(0, {2, 3, 8}), HasSubstr(none));
  EXPECT_THAT(resized(0, {1, 3, 16}), HasSubstr(none));
  EXPECT_THAT(resized(1, {2, 5, 16}), HasSubstr(none));
  EXPECT_THAT(resized(1, {3, 4, 16}), HasSubstr(none));
  EXPECT_THAT(resized(2, {2, 4, 16}), HasSubstr(none));
  EXPECT_THAT(resized(3, {2, 4, 12}), HasSubstr(none));
  EXPECT_THAT(resized(0, {6, 16}), HasSubstr("three axes"));
  c.attention->heads = 5;
  prepare(c);
  EXPECT_THAT(why_not(), HasSubstr(none));
  const int64_t much = int64_t{1} << 40;
  c.attention->heads = 2;
  prepare(c);
  operands_[0].shape = operands_[3].shape = {2, much, 16};
  operands_[3].shape[2] = 12;
  EXPECT_THAT(why_not(), HasSubstr("larger than the library counts"));
  operands_[0].shape = {2, 3, 16};
  operands_[3].shape = {2, 3, 12};
  operands_[1].shape[1] = operands_[2].shape[1] = 0;
  EXPECT_THAT(why_not(), HasSubstr("nothing to attend to"));
  EXPECT_EQ(library().calls("cudnnBackendExecute"), 1);
}

TEST_F(CudnnAttention, ContractsThatDoNotFitAreRefusedAtLoad) {
  const VendorCall c = attention(1, 2, 3, 4, 8, 8);
  const auto with = [&](auto change) {
    VendorCall other = c;
    change(other);
    return refusal(other, Status::kUnsupported);
  };
  EXPECT_THAT(with([](VendorCall& o) { o.attention->v = 3; }), HasSubstr("no input"));
  EXPECT_THAT(with([](VendorCall& o) { o.y = 2; }), HasSubstr("no output"));
  EXPECT_THAT(with([](VendorCall& o) { o.attention.reset(); }), HasSubstr("computes attention"));
  operands_[2].dtype = DType::kF16;
  EXPECT_THAT(with([](VendorCall&) {}), HasSubstr("of different types"));
  for (Operand& o : operands_) o.dtype = DType::kF32;
  EXPECT_THAT(with([](VendorCall&) {}), HasSubstr("attends in f16 and bf16"));
}

}  // namespace
}  // namespace nimble::rt
