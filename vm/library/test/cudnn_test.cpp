// cuDNN's convolutions against plain loops, on stand-ins for the library and for NVIDIA's driver.

#include "vm/library/test/standin/cudnn.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>

#include "vm/library/cudnn_binding.h"
#include "vm/library/test/gpu_routine_harness.h"
#include "vm/runtime/cuda_graph.h"

namespace nimble::rt {
namespace {

using exec::VendorCall;
using exec::VendorOp;
using ::testing::HasSubstr;

class Cudnn : public GpuRoutine {
 protected:
  Cudnn() : GpuRoutine("NIMBLE_CUDNN", NIMBLE_STANDIN_CUDNN) {}
  const StandInCudnn& library() const override { return standin_cudnn(NIMBLE_STANDIN_CUDNN); }
  const char* name() const override { return "cudnn.conv2d"; }

  // Adds an image and weights, and says what to compute: the result is added by result().
  VendorCall convolution(Shape x, Shape w, VendorCall::Image image) {
    VendorCall c;
    c.routine = name();
    c.x = 0;
    c.w = 1;
    c.n = w[0];
    c.k = w[1] * w[2] * w[3];
    image.kernel = {w[2], w[3]};
    image.groups = x[1] / w[1];
    image.channels_first = true;
    c.image = image;
    add(std::move(x));
    add(std::move(w));
    return c;
  }
  static VendorCall::Image windows(std::array<int64_t, 2> strides = {1, 1},
                                   std::array<int64_t, 4> pads = {0, 0, 0, 0},
                                   std::array<int64_t, 2> dilations = {1, 1}) {
    VendorCall::Image image;
    image.strides = strides;
    image.pads = pads;
    image.dilations = dilations;
    return image;
  }
  Shape result_of(const VendorCall& c) const {
    const VendorCall::Image& image = *c.image;
    Shape y = {operands_[0].shape[0], c.n, 0, 0};
    for (size_t i = 0; i < 2; ++i) {
      const int64_t reach = (image.kernel[i] - 1) * image.dilations[i] + 1;
      y[2 + i] = (operands_[0].shape[2 + i] + image.pads[i] + image.pads[i + 2] - reach) /
                     image.strides[i] +
                 1;
    }
    return y;
  }
  void result(VendorCall* c) {
    add(result_of(*c));
    c->y = static_cast<uint32_t>(operands_.size() - 1);
  }

  std::vector<float> expected(const VendorCall& c) const override {
    const VendorCall::Image& image = *c.image;
    const Operand &x = operands_[0], &w = operands_[1], &y = operands_.back();
    const int64_t depth = w.shape[1], per_group = c.n / image.groups;
    std::vector<float> out;
    for (int64_t b = 0; b < y.shape[0]; ++b)
      for (int64_t f = 0; f < y.shape[1]; ++f)
        for (int64_t i = 0; i < y.shape[2]; ++i)
          for (int64_t j = 0; j < y.shape[3]; ++j) {
            float v = 0;
            for (int64_t d = 0; d < depth; ++d)
              for (int64_t p = 0; p < w.shape[2]; ++p)
                for (int64_t q = 0; q < w.shape[3]; ++q) {
                  const int64_t row = i * image.strides[0] + p * image.dilations[0] - image.pads[0];
                  const int64_t col = j * image.strides[1] + q * image.dilations[1] - image.pads[1];
                  if (row < 0 || col < 0 || row >= x.shape[2] || col >= x.shape[3]) continue;
                  v += x.values[place(x, {b, f / per_group * depth + d, row, col})] *
                       w.values[place(w, {f, d, p, q})];
                }
            for (const exec::VendorStep& s : c.then) {
              const Operand& o = operands_[s.tensor];
              if (s.op == VendorOp::kAdd)
                v += o.shape.size() == 1 ? o.values[static_cast<size_t>(f)]
                                         : o.values[place(o, {b, f, i, j})];
              if (s.op == VendorOp::kRelu) v = std::max(v, 0.0F);
            }
            out.push_back(v);
          }
    return out;
  }
};

TEST_F(Cudnn, ConvolutionsOfAnySizeAreRight) {
  struct Case {
    Shape x, w;
    VendorCall::Image image;
  };
  for (const Case& t :
       std::vector<Case>{{{1, 1, 1, 1}, {1, 1, 1, 1}, windows()},
                         {{1, 3, 7, 5}, {4, 3, 3, 3}, windows()},
                         {{2, 3, 7, 5}, {4, 3, 3, 3}, windows({1, 1}, {1, 1, 1, 1})},
                         {{2, 3, 8, 9}, {5, 3, 3, 2}, windows({2, 3}, {1, 0, 2, 1})},
                         {{1, 2, 9, 9}, {3, 2, 3, 3}, windows({1, 1}, {2, 2, 2, 2}, {2, 2})},
                         {{1, 6, 5, 5}, {4, 3, 3, 3}, windows({1, 1}, {1, 1, 1, 1})},  // two groups
                         {{3, 4, 5, 6}, {4, 1, 3, 3}, windows({1, 1}, {1, 1, 1, 1})},  // depthwise
                         {{1, 16, 3, 3}, {7, 16, 1, 1}, windows()}}) {
    VendorCall c = convolution(t.x, t.w, t.image);
    result(&c);
    prepare(c);
    expect_right(c);
    clear();
  }
}

TEST_F(Cudnn, WhatFollowsIsRight) {
  const exec::VendorStep one{VendorOp::kAdd, 2}, two{VendorOp::kAdd, 3}, relu{VendorOp::kRelu};
  struct Case {
    std::vector<Shape> added;
    std::vector<exec::VendorStep> then;
    const char* told;
  };
  for (const Case& t :
       std::vector<Case>{{{}, {}, "convolution\n"},
                         {{}, {relu}, "convolution, relu\n"},
                         {{{4}}, {one}, "convolution, bias\n"},
                         {{{4, 1, 1}}, {one, relu}, "convolution, bias, relu\n"},
                         {{{1, 4, 1, 1}}, {one}, "convolution, bias\n"},
                         {{{2, 4, 5, 3}}, {one}, "convolution, add\n"},
                         {{{4}, {2, 4, 5, 3}}, {one, two, relu}, "convolution, add, bias, relu\n"},
                         {{{2, 4, 5, 3}, {4, 1, 1}}, {one, two}, "convolution, add, bias\n"}}) {
    SCOPED_TRACE(t.told);
    library().reset();
    VendorCall c = convolution({2, 3, 7, 5}, {4, 3, 3, 3}, windows());
    c.then = t.then;
    for (const Shape& s : t.added) add(s);
    result(&c);
    prepare(c);
    expect_right(c);
    EXPECT_STREQ(library().graphs(), t.told);
    clear();
  }
}

// f32 is neither narrowed nor transformed, and sums do not vary from run to run.
TEST_F(Cudnn, EnginesOfOtherNumbersArePassedOver) {
  VendorCall c = convolution({1, 3, 7, 5}, {4, 3, 3, 3}, windows());
  result(&c);
  for (const int note : {0, 1, 2, 3, 4, 5}) library().add_engine(3, note, 0, 0);
  prepare(c);
  EXPECT_THAT(why_not(), HasSubstr("no engine for it that computes in f32"));
  library().add_engine(3, -1, 0, 1);  // proposed, and refused where its plan is made
  library().add_engine(2, 0, 0, 0);
  library().add_engine(2, 9, 5000, 0);
  library().add_engine(2, -1, 70000, 0);
  prepare(c);
  std::string why;
  EXPECT_EQ(routine_->find(tensors(), &why)->workspace_bytes(), 5000u);
  expect_right(c);
  library().reset();
  library().add_engine(3, -1, (size_t{256} << 20) + 1, 0);
  library().add_engine(3, -1, size_t{256} << 20, 0);
  prepare(c);
  EXPECT_EQ(routine_->find(tensors(), &why)->workspace_bytes(), size_t{256} << 20);
}

// Whatever the reason: code that is not compiled, or memory that one engine has not.
TEST_F(Cudnn, EnginesThatFailArePassedOver) {
  VendorCall c = convolution({1, 3, 7, 5}, {4, 3, 3, 3}, windows());
  result(&c);
  // Of the descriptors that are closed the plan's is the last.
  prepare(c);
  std::string why;
  ASSERT_TRUE(routine_->find(tensors(), &why)) << why;
  const int closed = library().calls("cudnnBackendFinalize");
  for (const int status : {2000, 3000, 4000, 4003, 5000}) {
    SCOPED_TRACE(status);
    library().reset();
    library().add_engine(3, -1, 0, 0);
    library().add_engine(3, -1, 256, 0);
    prepare(c);
    library().fail("cudnnBackendFinalize", closed, status);
    const auto ready = routine_->find(tensors(), &why);
    ASSERT_TRUE(ready) << why;
    EXPECT_EQ(ready->workspace_bytes(), 256u);
    // Rules that fail leave it to the others.
    library().reset();
    library().add_engine(2, -1, 512, 0);
    prepare(c);
    library().fail("cudnnBackendFinalize", closed - 1, status);
    const auto other = routine_->find(tensors(), &why);
    ASSERT_TRUE(other) << why;
    EXPECT_EQ(other->workspace_bytes(), 512u);
  }
  // Without memory for any, the next call asks again.
  library().reset();
  library().add_engine(3, -1, 0, 0);
  prepare(c);
  library().fail("cudnnBackendFinalize", closed, 4004);
  try {
    routine_->find(tensors(), &why);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kExhausted) << e.what();
  }
  expect_right(c);
}

// Ours keep NaN behind ReLU.
TEST_F(Cudnn, NansAreKept) {
  VendorCall c = convolution({1, 1, 3, 3}, {1, 1, 1, 1}, windows());
  c.then = {{VendorOp::kRelu}};
  result(&c);
  operands_[0].values[4] = std::nanf("");
  device_->copy_in(operands_[0].data(), operands_[0].values.data(), 9 * sizeof(float));
  prepare(c);
  std::string why;
  const auto ready = routine_->find(tensors(), &why);
  ASSERT_TRUE(ready) << why;
  start(*ready);
  const std::vector<float> y = read(operands_.back());
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i == 4) << i;
}

TEST_F(Cudnn, PlansOfALostDeviceAreLeft) {
  VendorCall c = convolution({1, 3, 7, 5}, {4, 3, 3, 3}, windows());
  result(&c);
  prepare(c);
  expect_right(c);
  lose_the_device();
  const int destroyed = library().calls("cudnnBackendDestroyDescriptor");
  routine_.reset();
  EXPECT_EQ(library().calls("cudnnBackendDestroyDescriptor"), destroyed);
  EXPECT_EQ(library().calls("cudnnDestroy"), 0);
  before_ = library().alive();
  have_a_new_device();
  c = convolution({1, 3, 7, 5}, {4, 3, 3, 3}, windows());
  result(&c);
  EXPECT_THAT(refusal(c, Status::kUnsupported), HasSubstr("this process has lost a GPU"));
}

// While another thread plans, which the child does not have.
TEST_F(Cudnn, PlansOfAForkedChildAreLeft) {
  VendorCall c = convolution({1, 3, 7, 5}, {4, 3, 3, 3}, windows());
  result(&c);
  prepare(c);
  expect_right(c);
  const auto context = cudnn::context_of(cudnn::library(), *device_);
  context->lock().lock();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    const int destroyed = library().calls("cudnnBackendDestroyDescriptor");
    routine_.reset();
    ::_exit(library().calls("cudnnBackendDestroyDescriptor") == destroyed ? 0 : 1);
  }
  context->lock().unlock();
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Cudnn, PlansAreMadeOnce) {
  VendorCall c = convolution({1, 3, 7, 5}, {4, 3, 3, 3}, windows());
  result(&c);
  prepare(c);
  for (int i = 0; i < 3; ++i) expect_right(c);
  const int made = library().calls("cudnnBackendCreateDescriptor");
  expect_right(c);
  EXPECT_EQ(library().calls("cudnnBackendCreateDescriptor"), made + 1) << "what each call has";
}

// The library's handle goes to the stream that is captured, and back for what is started next.
TEST_F(Cudnn, CallsAreCaptured) {
  VendorCall c = convolution({1, 3, 7, 5}, {4, 3, 3, 3}, windows());
  c.then = {{VendorOp::kRelu}};
  result(&c);
  prepare(c);
  std::string why;
  const auto ready = routine_->find(tensors(), &why);
  ASSERT_TRUE(ready) << why;
  std::vector<void*> data;
  for (const Operand& o : operands_) data.push_back(o.data());
  const CudaLaunch::Captured captured = [&](cuda::Stream stream) {
    ready->start(data, nullptr, stream);
  };
  CudaLaunch launch;
  launch.captured = &captured;
  const std::vector<float> right = expected(c), nothing(right.size(), -1.0F);
  const auto forget = [&] {
    device_->copy_in(operands_.back().data(), nothing.data(), nothing.size() * sizeof(float));
  };
  // What fails while it is captured is told, and the next one is captured.
  library().fail("cudnnBackendExecute", 1, 5000);
  EXPECT_THROW(CudaGraph(*device_, {&launch, 1}), Error);
  forget();
  {
    CudaGraph graph(*device_, {&launch, 1});
    EXPECT_EQ(read(operands_.back()), nothing) << "nothing has been done yet";
    for (int i = 0; i < 2; ++i) {
      forget();
      device_->enter();
      graph.start();
      EXPECT_EQ(read(operands_.back()), right);
    }
    EXPECT_EQ(library().calls("cudnnBackendExecute"), 2);
    forget();
    start(*ready);
    EXPECT_EQ(read(operands_.back()), right);
    device_->synchronize();
  }
  EXPECT_EQ(library().calls("cudnnSetStream"), 3) << "the device's, the other, the device's";
}

TEST_F(Cudnn, ResultsWithoutElementsTakeNothing) {
  for (const Shape& x : {Shape{0, 3, 7, 5}, Shape{1, 3, 2, 5}}) {
    VendorCall c = convolution(x, {4, 3, 3, 3}, windows());
    add({x[0], 4, x[2] == 2 ? 0 : 5, 3});
    c.y = 2;
    prepare(c);
    std::string why;
    const auto ready = routine_->find(tensors(), &why);
    ASSERT_TRUE(ready) << why;
    EXPECT_TRUE(ready->empty());
    start(*ready);
    clear();
  }
  EXPECT_EQ(library().calls("cudnnBackendExecute"), 0);
}

TEST_F(Cudnn, ExtentsThatAreNoConvolutionsAreRefused) {
  VendorCall c = convolution({2, 6, 7, 5}, {4, 3, 3, 3}, windows({1, 1}, {1, 1, 1, 1}));
  add({4});
  result(&c);
  c.then = {{VendorOp::kAdd, 2}};
  prepare(c);
  expect_right(c);
  const auto with = [&](auto change) {
    VendorCall other = c;
    const std::vector<Operand> before = operands_;
    change(other);
    prepare(other);
    const std::string why = why_not();
    operands_ = before;
    return why;
  };
  const auto resized = [&](size_t operand, Shape shape) {
    return with([&](VendorCall&) { operands_[operand].shape = std::move(shape); });
  };
  const char* const none = "not those of a convolution";
  EXPECT_THAT(resized(0, {2, 6, 7, 6}), HasSubstr(none));
  EXPECT_THAT(resized(0, {3, 6, 7, 5}), HasSubstr(none));
  EXPECT_THAT(resized(0, {2, 7, 7, 5}), HasSubstr(none));
  EXPECT_THAT(resized(0, {12, 7, 5}), HasSubstr("four axes"));
  EXPECT_THAT(resized(1, {4, 3, 3, 4}), HasSubstr(none));
  EXPECT_THAT(resized(1, {4, 3, 2, 3}), HasSubstr(none));
  EXPECT_THAT(resized(1, {5, 3, 3, 3}), HasSubstr(none));
  EXPECT_THAT(resized(1, {4, 2, 3, 3}), HasSubstr(none));
  EXPECT_THAT(resized(3, {2, 4, 8, 5}), HasSubstr(none));
  EXPECT_THAT(resized(3, {2, 4, 7, 4}), HasSubstr(none));
  EXPECT_THAT(resized(3, {2, 5, 7, 5}), HasSubstr(none));
  EXPECT_THAT(resized(2, {5}), HasSubstr("to each channel"));
  EXPECT_THAT(resized(2, {4, 1, 5}), HasSubstr("to each channel"));
  EXPECT_THAT(resized(2, {1, 1, 4, 1, 1}), HasSubstr("more axes"));
  EXPECT_THAT(with([](VendorCall& o) { o.image->pads[0] = 2; }), HasSubstr(none));
  EXPECT_THAT(with([](VendorCall& o) { o.image->strides[1] = 2; }), HasSubstr(none));
  EXPECT_THAT(with([](VendorCall& o) { o.image->dilations[1] = 2; }), HasSubstr(none));
  EXPECT_THAT(with([](VendorCall& o) { o.image->groups = 4; }), HasSubstr(none));
  EXPECT_THAT(with([](VendorCall& o) { o.k = 18; }), HasSubstr(none));
  EXPECT_THAT(with([](VendorCall& o) { o.n = 8; }), HasSubstr(none));
  const int64_t much = int64_t{1} << 20;
  EXPECT_THAT(with([&](VendorCall&) {
                operands_[0].shape = {2, 6, much, much};
                operands_[3].shape = {2, 4, much, much};
              }),
              HasSubstr("larger than the library counts"));
  EXPECT_EQ(library().calls("cudnnBackendExecute"), 1);
}

TEST_F(Cudnn, ContractsThatDoNotFitAreRefusedAtLoad) {
  VendorCall c = convolution({1, 3, 7, 5}, {4, 3, 3, 3}, windows());
  result(&c);
  const auto with = [&](auto change) {
    VendorCall other = c;
    change(other);
    return refusal(other, Status::kUnsupported);
  };
  EXPECT_THAT(with([](VendorCall& o) { o.x = 2; }), HasSubstr("no input"));
  EXPECT_THAT(with([](VendorCall& o) { o.y = 3; }), HasSubstr("no output"));
  EXPECT_THAT(with([](VendorCall& o) { o.image->channels_first = false; }), HasSubstr("NCHW"));
  EXPECT_THAT(with([](VendorCall& o) { o.image.reset(); }), HasSubstr("NCHW"));
  EXPECT_THAT(with([](VendorCall& o) { o.then = {{VendorOp::kGeluTanh}}; }), HasSubstr("no gelu"));
  EXPECT_THAT(with([](VendorCall& o) {
                o.then = {{VendorOp::kLinear, 0, 2}};
              }),
              HasSubstr("no factor"));
  operands_[0].dtype = DType::kBF16;
  EXPECT_THAT(with([](VendorCall&) {}), HasSubstr("convolves no bf16"));
  operands_[0].dtype = DType::kF32;
  c.library = "cuDNN 9.1.0";
  EXPECT_THAT(refusal(c, Status::kIncompatible), HasSubstr("here is cuDNN 9.14.0"));
}

TEST_F(Cudnn, AnyCallMayFail) {
  VendorCall c = convolution({1, 3, 7, 5}, {4, 3, 3, 3}, windows());
  c.then = {{VendorOp::kRelu}};
  result(&c);
  expect_any_call_may_fail(
      c,
      {"cudnnCreate", "cudnnSetStream", "cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
       "cudnnBackendFinalize", "cudnnBackendGetAttribute", "cudnnBackendExecute"},
      {{3000, Status::kUnsupported}, {4003, Status::kExhausted}, {5000, Status::kFatal}},
      [](const std::string&, const std::string& said) { EXPECT_FALSE(said.empty()); });
  library().reset();
  device_->synchronize();
}

// ---- which library

std::string problem_with(const std::string& file, const char* version = "91400") {
  const ScopedVariable library("NIMBLE_CUDNN", file);
  const ScopedVariable of("NIMBLE_STANDIN_CUDNN_VERSION", version);
  return cudnn::library().problem();
}

TEST(CudnnLibrary, IsLookedFor) {
  const std::string file = NIMBLE_STANDIN_CUDNN;
  EXPECT_EQ(problem_with(file), "");
  EXPECT_THAT(problem_with("off"), HasSubstr("NIMBLE_CUDNN is off"));
  EXPECT_THAT(problem_with("/nowhere/libcudnn.so.9"), HasSubstr("/nowhere/libcudnn.so.9"));
  EXPECT_THAT(problem_with(NIMBLE_STANDIN_CUDA), HasSubstr("has no cudnn"));
  // Under a name of its own, for what is found under one is kept.
  EXPECT_THAT(problem_with("/" + file, "80907"), HasSubstr("is cuDNN 8.9.7, one of 9 is wanted"));
}

}  // namespace
}  // namespace nimble::rt
