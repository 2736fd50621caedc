// cuBLASLt's products against plain loops, on stand-ins for the library and for NVIDIA's driver.

#include "vm/library/test/standin/cublaslt.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>

#include "vm/library/cublaslt_binding.h"
#include "vm/library/test/gpu_routine_harness.h"

namespace nimble::rt {
namespace {

using exec::VendorCall;
using exec::VendorOp;
using ::testing::HasSubstr;

class CublasLt : public GpuRoutine {
 protected:
  CublasLt() : GpuRoutine("NIMBLE_CUBLASLT", NIMBLE_STANDIN_CUBLASLT) {}
  const StandInCublasLt& library() const override {
    return standin_cublaslt(NIMBLE_STANDIN_CUBLASLT);
  }
  const char* name() const override { return "cublaslt.matmul"; }

  // x and w and what is added were added before, the result last.
  VendorCall call(std::vector<exec::VendorStep> then = {}) const {
    VendorCall c;
    c.routine = "cublaslt.matmul";
    c.x = 0;
    c.w = 1;
    c.y = static_cast<uint32_t>(operands_.size() - 1);
    c.then = std::move(then);
    return c;
  }
  std::vector<float> expected(const VendorCall& c) const override {
    const Operand &x = operands_[0], &w = operands_[1], &y = operands_.back();
    const size_t rank = y.shape.size();
    const int64_t k = c.transpose_x ? x.shape[x.shape.size() - 2] : x.shape.back();
    std::vector<float> out;
    Shape at(rank, 0);
    for (int64_t i = 0; i < count_of(y.shape); ++i) {
      for (size_t d = rank, left = static_cast<size_t>(i); d-- > 0;) {
        at[d] = static_cast<int64_t>(left % static_cast<size_t>(y.shape[d]));
        left /= static_cast<size_t>(y.shape[d]);
      }
      float v = 0;
      for (int64_t j = 0; j < k; ++j) {
        Shape of_x = at, of_w = at;
        of_x[rank - 2] = c.transpose_x ? j : at[rank - 2];
        of_x[rank - 1] = c.transpose_x ? at[rank - 2] : j;
        of_w[rank - 2] = c.transpose_w ? at[rank - 1] : j;
        of_w[rank - 1] = c.transpose_w ? j : at[rank - 1];
        v += x.values[place(x, of_x)] * w.values[place(w, of_w)];
      }
      for (const exec::VendorStep& s : c.then) {
        if (s.op == VendorOp::kLinear) v *= s.alpha;
        if (s.op == VendorOp::kAdd) v += operands_[s.tensor].values[place(operands_[s.tensor], at)];
        if (s.op == VendorOp::kRelu) v = std::max(v, 0.0F);
        if (s.op == VendorOp::kGeluTanh)
          v = 0.5F * v *
              (1 + std::tanh(std::sqrt(2 / std::acos(-1.0F)) * (v + 0.044715F * v * v * v)));
      }
      out.push_back(v);
    }
    return out;
  }
};

TEST_F(CublasLt, ProductsOfAnySizeAreRight) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                                {1, 7, 3},
                                {5, 1, 4},
                                {3, 5, 1},
                                {7, 13, 11},
                                {16, 8, 32},
                                {17, 31, 9}})
    for (const int turned : {0, 1, 2, 3}) {
      const bool tx = turned & 1, tw = turned & 2;
      add(tx ? Shape{k, m} : Shape{m, k});
      add(tw ? Shape{n, k} : Shape{k, n});
      add({m, n});
      VendorCall c = call();
      c.transpose_x = tx;
      c.transpose_w = tw;
      prepare(c);
      expect_right(c);
      clear();
    }
}

TEST_F(CublasLt, BatchesAreOneCall) {
  const auto product = [&](Shape x, Shape w, Shape y, const std::string& told,
                           bool turned = false) {
    SCOPED_TRACE(told);
    library().reset();
    add(std::move(x));
    add(std::move(w));
    add(std::move(y));
    VendorCall c = call();
    c.transpose_x = turned;
    prepare(c);
    expect_right(c);
    EXPECT_THAT(library().products(), HasSubstr(told));
    EXPECT_EQ(library().calls("cublasLtMatmul"), 1);
    clear();
  };
  product({3, 5, 4}, {3, 4, 6}, {3, 5, 6}, "6 x 5 by 4, batch 3");
  product({2, 3, 5, 4}, {2, 3, 4, 6}, {2, 3, 5, 6}, "6 x 5 by 4, batch 6");
  // Rows of all matrices are rows.
  product({3, 5, 4}, {4, 6}, {3, 5, 6}, "6 x 15 by 4, batch 1");
  product({3, 5, 4}, {1, 4, 6}, {3, 5, 6}, "6 x 15 by 4, batch 1");
  // One matrix for all, on either side.
  product({5, 4}, {3, 4, 6}, {3, 5, 6}, "6 x 5 by 4, batch 3");
  product({1, 5, 4}, {3, 4, 6}, {3, 5, 6}, "6 x 5 by 4, batch 3");
  product({3, 4, 5}, {4, 6}, {3, 5, 6}, "6 x 5 by 4, batch 3", true);
  product({1, 1, 4}, {1, 4, 6}, {1, 1, 6}, "6 x 1 by 4, batch 1");
}

TEST_F(CublasLt, WhatFollowsIsRight) {
  const exec::VendorStep half{VendorOp::kLinear, 0, 0.5F}, row{VendorOp::kAdd, 2},
      whole{VendorOp::kAdd, 3}, relu{VendorOp::kRelu}, gelu{VendorOp::kGeluTanh};
  const std::pair<std::vector<exec::VendorStep>, const char*> cases[] = {
      {{half}, "epilogue 1\n"},
      {{row}, "epilogue 4\n"},
      {{whole}, "epilogue 1, added\n"},
      {{relu}, "epilogue 2\n"},
      {{gelu}, "epilogue 32\n"},
      {{row, relu}, "epilogue 6\n"},
      {{half, row, whole, gelu}, "epilogue 36, added\n"},
      {{whole, row, relu}, "epilogue 6, added\n"}};
  for (const int64_t m : {1, 2, 9})
    for (const auto& [then, told] : cases) {
      SCOPED_TRACE(told);
      library().reset();
      add({m, 4});
      add({4, 6});
      add({6});
      add({m, 6});
      add({m, 6});
      const VendorCall c = call(then);
      prepare(c);
      expect_right(c);
      if (m > 1) {
        EXPECT_THAT(library().products(), HasSubstr(told));
      }
      clear();
    }
}

// Where the call says so, and there alone.
TEST_F(CublasLt, FactorsAreRoundedWhereTheyMay) {
  const float fine = 1 + 0x1p-12F;  // more than ten bits of fraction
  for (const bool tf32 : {false, true}) {
    library().reset();
    add({3, 1});
    add({1, 2});
    add({3, 2});
    operands_[0].values.assign(3, fine);
    device_->copy_in(operands_[0].data(), operands_[0].values.data(), 3 * sizeof(float));
    VendorCall c = call();
    c.tf32 = tf32;
    prepare(c);
    std::string why;
    const auto ready = routine_->find(tensors(), &why);
    ASSERT_TRUE(ready) << why;
    start(*ready);
    const std::vector<float> y = read(operands_[2]), w = operands_[1].values;
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], (tf32 ? 1 : fine) * w[i % 2]) << i;
    EXPECT_EQ(std::string(library().products()).find(", tf32") != std::string::npos, tf32);
    clear();
  }
  add({3, 4}, DType::kBF16);
  add({4, 2}, DType::kBF16);
  add({3, 2});
  VendorCall c = call();
  c.tf32 = true;
  EXPECT_THAT(refusal(c, Status::kUnsupported), HasSubstr("only factors of f32"));
}

TEST_F(CublasLt, NarrowOperandsAreSummedInF32) {
  for (const DType result : {DType::kF32, DType::kBF16}) {
    add({7, 24}, DType::kBF16);
    add({24, 10}, DType::kBF16);
    add({1, 10}, result);
    add({7, 10}, result);
    const VendorCall c = call({{VendorOp::kAdd, 2}, {VendorOp::kRelu}});
    prepare(c);
    expect_right(c);
    clear();
  }
}

// What was found out of a size is kept, for each way in which its tensors may lie.
TEST_F(CublasLt, AlgorithmsAreSoughtOnce) {
  add({3, 4}, DType::kF32, 16);
  add({4, 6});
  add({3, 6});
  VendorCall c = call();
  prepare(c);
  for (int i = 0; i < 3; ++i) expect_right(c);
  EXPECT_EQ(library().calls("cublasLtMatmulAlgoGetHeuristic"), 1);
  operands_[0].offset = 0;  // the same block: other numbers, at a multiple of 256
  std::string why;
  EXPECT_TRUE(routine_->find(tensors(), &why)) << why;
  EXPECT_EQ(library().calls("cublasLtMatmulAlgoGetHeuristic"), 2);
  operands_[0].offset = 16;
  expect_right(c);
  EXPECT_EQ(library().calls("cublasLtMatmulAlgoGetHeuristic"), 2);
}

TEST_F(CublasLt, KeepsAThousandSizes) {
  add({1, 4});
  add({4, 6});
  add({1, 6});
  prepare(call());
  std::string why;
  const auto searches = [&](int64_t m) {
    operands_[0].shape[0] = operands_[2].shape[0] = m;  // not started: nobody looks at the memory
    const int before = library().calls("cublasLtMatmulAlgoGetHeuristic");
    EXPECT_TRUE(routine_->find(tensors(), &why)) << why;
    return library().calls("cublasLtMatmulAlgoGetHeuristic") - before;
  };
  for (int64_t m = 1; m <= 1024; ++m) ASSERT_EQ(searches(m), 1);
  for (int64_t m = 1; m <= 1024; ++m) ASSERT_EQ(searches(m), 0);
  EXPECT_EQ(searches(1025), 1);
  EXPECT_EQ(searches(1), 1) << "the one that was used longest ago went";
  EXPECT_EQ(searches(1024), 0);
}

TEST_F(CublasLt, TakesWhatTheSearchCallsGood) {
  add({3, 4});
  add({4, 6});
  add({3, 6});
  const VendorCall c = call();
  library().set(2, 1, 1000);
  prepare(c);
  expect_right(c);
  library().set(2, 0, 0);
  prepare(c);
  EXPECT_THAT(why_not(), HasSubstr("no algorithm"));
  const int searches = library().calls("cublasLtMatmulAlgoGetHeuristic");
  EXPECT_THAT(why_not(), HasSubstr("no algorithm"));
  EXPECT_EQ(library().calls("cublasLtMatmulAlgoGetHeuristic"), searches) << "asked once";
  library().set(0, 0, 0);
  prepare(c);
  EXPECT_THAT(why_not(), HasSubstr("status 15"));
  // Larger than what was asked for.
  library().set(0, 1, (size_t{32} << 20) + 1);
  prepare(c);
  EXPECT_THAT(why_not(), HasSubstr("no algorithm"));
}

TEST_F(CublasLt, ResultsWithoutElementsTakeNothing) {
  for (const auto& [x, w, y] : {std::array<Shape, 3>{Shape{0, 4}, Shape{4, 6}, Shape{0, 6}},
                                {Shape{3, 4}, Shape{4, 0}, Shape{3, 0}},
                                {Shape{0, 3, 4}, Shape{0, 4, 6}, Shape{0, 3, 6}}}) {
    add(x);
    add(w);
    add(y);
    prepare(call());
    expect_right(call());
    clear();
  }
  EXPECT_EQ(library().calls("cublasLtMatmul"), 0);
}

// Tensors come as the contract has them, which the file has made up: nothing of the configuration
// is believed.
TEST_F(CublasLt, ExtentsThatAreNoProductsAreRefused) {
  struct Case {
    std::vector<Shape> shapes;
    std::vector<exec::VendorStep> then;
    const char* why;
  };
  const exec::VendorStep add2{VendorOp::kAdd, 2}, add3{VendorOp::kAdd, 3};
  for (const Case& t : std::vector<Case>{
           {{{3, 4}, {5, 6}, {3, 6}}, {}, "not those of a product"},
           {{{3, 4}, {4, 6}, {2, 6}}, {}, "not those of a product"},
           {{{3, 4}, {4, 6}, {3, 7}}, {}, "not those of a product"},
           {{{3, 4}, {4, 6}, {1, 3, 6}}, {}, "no product of matrices"},
           {{{4}, {4, 6}, {1, 6}}, {}, "no product of matrices"},
           {{{3, 4}, {4}, {3, 4}}, {}, "no product of matrices"},
           {{{3, 0}, {0, 6}, {3, 6}}, {}, "nothing to sum"},
           {{{2, 3, 4}, {3, 4, 6}, {3, 3, 6}}, {}, "batches do not match"},
           {{{2, 3, 4}, {2, 4, 6}, {1, 3, 6}}, {}, "batches do not match"},
           {{{2, 1, 3, 4}, {2, 5, 4, 6}, {2, 5, 3, 6}}, {}, "repeats one matrix"},
           {{{3, 4}, {4, 6}, {3, 1}, {3, 6}}, {add2}, "one row"},
           {{{3, 4}, {4, 6}, {5}, {3, 6}}, {add2}, "one row"},
           {{{3, 4}, {4, 6}, {1, 1, 6}, {3, 6}}, {add2}, "more axes"},
           {{{3, 4}, {4, 6}, {6}, {6}, {3, 6}}, {add2, add3}, "one row"},
           {{{3, 4}, {4, 6}, {3, 6}, {3, 6}, {3, 6}}, {add2, add3}, "one row"},
           {{{int64_t{1} << 31, 1}, {1, 1}, {int64_t{1} << 31, 1}}, {}, "than the library counts"},
       }) {
    SCOPED_TRACE(t.why);
    for (const Shape& shape : t.shapes) {
      add({1});  // memory of some size
      operands_.back().shape = shape;
    }
    prepare(call(t.then));
    EXPECT_THAT(why_not(), HasSubstr(t.why));
    for (Operand& o : operands_) o.shape = {1};
    clear();
  }
  EXPECT_EQ(library().calls("cublasLtMatmulAlgoGetHeuristic"), 0);
  // Numbers that the configuration states must be the tensors', too.
  add({3, 4});
  add({4, 6});
  add({3, 6});
  VendorCall c = call();
  c.k = 5;
  prepare(c);
  EXPECT_THAT(why_not(), HasSubstr("not those of a product"));
  c.k = 4;
  c.n = 6;
  prepare(c);
  expect_right(c);
  c.n = 7;
  prepare(c);
  EXPECT_THAT(why_not(), HasSubstr("not those of a product"));
}

TEST_F(CublasLt, ABiasAtOddBytesIsRefused) {
  add({3, 4});
  add({4, 6});
  add({6}, DType::kF32, 4);
  add({3, 6});
  prepare(call({{VendorOp::kAdd, 2}}));
  EXPECT_THAT(why_not(), HasSubstr("odd bytes"));
}

TEST_F(CublasLt, ContractsThatDoNotFitAreRefusedAtLoad) {
  add({3, 4});
  add({4, 6});
  add({6});
  add({3, 6});
  const auto with = [&](auto change) {
    VendorCall c = call();
    change(c);
    return refusal(c, Status::kUnsupported);
  };
  EXPECT_THAT(with([](VendorCall& c) { c.x = 3; }), HasSubstr("no input"));
  EXPECT_THAT(with([](VendorCall& c) { c.w = 9; }), HasSubstr("no input"));
  EXPECT_THAT(with([](VendorCall& c) { c.y = 1; }), HasSubstr("no output"));
  EXPECT_THAT(with([](VendorCall& c) { c.y = 4; }), HasSubstr("no output"));
  EXPECT_THAT(with([](VendorCall& c) { c.then = {{VendorOp::kAdd, 3}}; }), HasSubstr("no input"));
  EXPECT_THAT(with([](VendorCall& c) { c.then = {{VendorOp::kTanh}}; }), HasSubstr("no tanh"));
  EXPECT_THAT(with([](VendorCall& c) { c.then = {{VendorOp::kGelu}}; }), HasSubstr("by erf"));
  EXPECT_THAT(with([](VendorCall& c) {
                c.k = c.n = 4;
                c.panel = VendorCall::Panel{4, 1};
              }),
              HasSubstr("plain matrices"));
  operands_[2].dtype = DType::kBF16;
  EXPECT_THAT(with([](VendorCall& c) {
                c.then = {{VendorOp::kAdd, 2}};
              }),
              HasSubstr("added is bf16"));
  operands_[0].dtype = operands_[1].dtype = DType::kF16;
  EXPECT_THAT(with([](VendorCall&) {}), HasSubstr("multiplies no f16"));
  operands_[0].dtype = operands_[1].dtype = DType::kF32;
  operands_[2].dtype = DType::kF32;
  VendorCall measured = call();
  measured.library = "cuBLASLt 12.1.3";
  EXPECT_THAT(refusal(measured, Status::kIncompatible),
              HasSubstr("measured with cuBLASLt 12.1.3, here is cuBLASLt 13.0.2"));
  measured.library = kernel().version();
  prepare(measured);
  EXPECT_THROW(prepare(std::string("{")), Error);
}

TEST_F(CublasLt, AnyCallMayFail) {
  add({3, 4});
  add({4, 6});
  add({6});
  add({3, 6});
  expect_any_call_may_fail(
      call({{VendorOp::kAdd, 2}}),
      {"cublasLtCreate", "cublasLtMatrixLayoutCreate", "cublasLtMatmulDescCreate",
       "cublasLtMatmulDescSetAttribute", "cublasLtMatmulPreferenceCreate",
       "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"},
      {{3, Status::kExhausted}, {14, Status::kFatal}, {15, Status::kUnsupported}},
      [](const std::string& function, const std::string& said) {
        EXPECT_THAT(said, HasSubstr(function));
      });
  driver().reset();
  device_->synchronize();
}

TEST_F(CublasLt, WhatALostDeviceHadIsLeft) {
  add({3, 4});
  add({4, 6});
  add({3, 6});
  prepare(call());
  expect_right(call());
  lose_the_device();
  const int destroyed = library().calls("cublasLtMatmulDescDestroy");
  have_a_new_device();
  EXPECT_EQ(library().calls("cublasLtMatmulDescDestroy"), destroyed);
  EXPECT_EQ(library().calls("cublasLtDestroy"), 0);
  before_ = library().alive();
  add({3, 4});
  add({4, 6});
  add({3, 6});
  EXPECT_THAT(refusal(call(), Status::kUnsupported), HasSubstr("this process has lost a GPU"));
}

TEST_F(CublasLt, RoutinesOfADeviceShareItsHandle) {
  add({3, 4});
  add({4, 6});
  add({3, 6});
  prepare(call());
  const auto first = routine_;
  prepare(call());
  EXPECT_EQ(library().calls("cublasLtCreate"), 1);
  routine_.reset();
  EXPECT_EQ(library().calls("cublasLtDestroy"), 0);
}

// ---- which library

std::string problem_with(const std::string& file, const char* version = "130002") {
  const ScopedVariable library("NIMBLE_CUBLASLT", file);
  const ScopedVariable of("NIMBLE_STANDIN_CUBLASLT_VERSION", version);
  return cublaslt::library().problem();
}

TEST(CublasLtLibrary, IsLookedFor) {
  const ScopedVariable driver("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA);
  standin_cuda(NIMBLE_STANDIN_CUDA).reset();
  const std::string file = NIMBLE_STANDIN_CUBLASLT;
  EXPECT_EQ(problem_with(file), "");
  EXPECT_THAT(problem_with("off"), HasSubstr("NIMBLE_CUBLASLT is off"));
  EXPECT_THAT(problem_with("/nowhere/libcublasLt.so.13"), HasSubstr("/nowhere/libcublasLt.so.13"));
  EXPECT_THAT(problem_with("/usr/include"), HasSubstr("/usr/include/libcublasLt.so.13"));
  EXPECT_THAT(problem_with(NIMBLE_STANDIN_CUDA), HasSubstr("has no cublasLt"));
  // Each under a name of its own, for what is found under one is kept.
  EXPECT_EQ(problem_with("/" + file, "120103"), "");
  EXPECT_THAT(problem_with("//" + file, "110604"),
              HasSubstr("is cuBLASLt 11.6.4, one of 12 to 13"));
  EXPECT_THAT(problem_with("///" + file, "140000"), HasSubstr("is cuBLASLt 14.0.0"));
}

TEST(CublasLtLibrary, IsNoNewerThanTheDriver) {
  const ScopedVariable driver("NIMBLE_CUDA_DRIVER", std::string("/") + NIMBLE_STANDIN_CUDA);
  const StandInCuda& cuda = standin_cuda(NIMBLE_STANDIN_CUDA);
  cuda.reset();
  cuda.set(12040, 1, 90);
  EXPECT_THAT(problem_with(std::string("////") + NIMBLE_STANDIN_CUBLASLT),
              HasSubstr("this machine's driver is of CUDA 12"));
  cuda.reset();
}

}  // namespace
}  // namespace nimble::rt
