// oneDNN's routines against plain loops, by each version of the library that is installed; what is
// ready and what is not.
#include <gmock/gmock.h>

#include <utility>

#include "vm/base/error.h"
#include "vm/library/test/onednn_harness.h"

namespace nimble::rt {
namespace {

using exec::VendorCall;
using exec::VendorOp;
using exec::VendorStep;
using ::testing::HasSubstr;

TEST_P(OneDnn, ProductsAgreeWithPlainLoops) {
  for (int64_t m : {1, 2, 5, 37})
    for (int64_t k : {1, 19, 64})
      for (const VendorCall::Panel panel : {VendorCall::Panel{}, {48, 1}, {16, 1}})
        check_product(DType::kF32, DType::kF32, DType::kF32, panel, {m}, k, 33, {}, 2, 1e-5);
}

TEST_P(OneDnn, ExtentsOfPlainWeightsMayBeTheTensors) {
  std::vector<Data> tensors = {random_data(DType::kF32, {5, 7}, random_),
                               random_data(DType::kF32, {7, 9}, random_),
                               {DType::kF32, {5, 9}, {}, {}}};
  VendorCall call;
  call.routine = "onednn.matmul";
  call.w = 1;
  call.y = 2;
  const Data x = tensors[0], w = tensors[1];
  check(
      call, tensors,
      [&](const Ints& at) {
        double sum = 0;
        for (int64_t i = 0; i < 7; ++i)
          sum += x.values[static_cast<size_t>(at[0] * 7 + i)] *
                 w.values[static_cast<size_t>(i * 9 + at[1])];
        return sum;
      },
      2, 1e-5);
  const std::unique_ptr<VendorRoutine> r = routine(call, tensors);
  tensors[2].store();
  std::vector<LibraryTensor> t = views(tensors);
  const Ints other = {8, 9};
  t[1].shape = other;
  EXPECT_THROW(r->make_ready(t, 1), Error);
}

TEST_P(OneDnn, WhatFollowsIsInTheSameCall) {
  const auto f32 = [&](Ints shape) { return random_data(DType::kF32, std::move(shape), random_); };
  const auto step = [](VendorOp op, float alpha = 0, float beta = 0) {
    return VendorStep{op, 0, alpha, beta};
  };
  const auto product = [&](std::vector<std::pair<VendorStep, Data>> steps) {
    check_product(DType::kF32, DType::kF32, DType::kF32, {32, 1}, {3, 7}, 24, 40, std::move(steps),
                  2, 2e-5);
  };
  for (VendorOp op : {VendorOp::kRelu, VendorOp::kTanh, VendorOp::kSigmoid, VendorOp::kGelu,
                      VendorOp::kGeluTanh, VendorOp::kSwish})
    product({{step(VendorOp::kAdd), f32({40})}, {step(op), {}}});
  product({{step(VendorOp::kLeakyRelu, 0.25F), {}}});
  product({{step(VendorOp::kLinear, 0.5F, -2), {}}, {step(VendorOp::kRelu), {}}});
  product({{step(VendorOp::kClip, -0.5F, 0.75F), {}}});
  product({{step(VendorOp::kAdd), f32({40})}, {step(VendorOp::kAdd), f32({3, 7, 40})}});
  product({{step(VendorOp::kAdd), f32({3, 7, 40})}, {step(VendorOp::kRelu), {}}});
  product({{step(VendorOp::kMul), f32({3, 7, 1})}, {step(VendorOp::kMul), f32({1, 40})}});
  product({{step(VendorOp::kSub), f32({})}, {step(VendorOp::kAdd), f32({1, 1, 40})}});
}

TEST_P(OneDnn, NarrowProductsAgreeWithPlainLoops) {
  for (int64_t m : {1, 6, 33}) {
    check_product(DType::kBF16, DType::kBF16, DType::kF32, {32, 2}, {m}, 31, 33, {}, 2, 1e-5);
    check_product(DType::kBF16, DType::kBF16, DType::kBF16, {32, 2}, {m}, 31, 33,
                  {{{VendorOp::kAdd}, random_data(DType::kF32, {33}, random_)}}, 2, 1e-2);
  }
}

TEST_P(OneDnn, ByteProductsAgreeWithPlainLoops) {
  try {
    for (int64_t m : {1, 6, 33}) {
      check_product(DType::kU8, DType::kI8, DType::kI32, {32, 4}, {m}, 30, 33, {}, 2, 0);
      check_product(DType::kU8, DType::kI8, DType::kF32, {32, 4}, {m}, 30, 33,
                    {{{VendorOp::kSub}, random_data(DType::kI32, {33}, random_)},
                     {{VendorOp::kMul}, random_data(DType::kF32, {m, 1}, random_)},
                     {{VendorOp::kMul}, random_data(DType::kF32, {33}, random_)}},
                    2, 1e-5);
    }
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("exact on this CPU"));
  }
}

struct Windows {
  int64_t images = 1, height = 1, width = 1, channels = 1, filters = 1;
  VendorCall::Image image;
};

TEST_P(OneDnn, ConvolutionsAgreeWithPlainLoops) {
  const std::vector<Windows> all = {
      {1, 9, 7, 6, 20, {{3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1, false}},
      {3, 9, 7, 6, 20, {{3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, 1, false}},
      {1, 12, 5, 8, 16, {{3, 1}, {2, 1}, {2, 1}, {2, 0, 1, 0}, 1, false}},
      {1, 11, 11, 8, 24, {{5, 5}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 2, false}},
      {1, 9, 8, 20, 20, {{3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 20, false}},
      {2, 10, 10, 3, 18, {{3, 3}, {2, 2}, {1, 1}, {0, 1, 1, 0}, 1, true}},
      {1, 10, 10, 3, 18, {{3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, 1, true}},
  };
  for (const Windows& c : all)
    for (const bool panels : {false, true})
      for (const int32_t shares : {1, 2, 4}) {
        const VendorCall::Image& i = c.image;
        const int64_t depth = c.channels / i.groups, k = i.kernel[0] * i.kernel[1] * depth;
        const auto extent = [&](int64_t size, size_t axis) {
          const int64_t reach = (i.kernel[axis] - 1) * i.dilations[axis];
          return (size + i.pads[axis] + i.pads[axis + 2] - reach - 1) / i.strides[axis] + 1;
        };
        const Ints ys = {c.images, extent(c.height, 0), extent(c.width, 1), c.filters};
        const Ints xs = i.channels_first ? Ints{c.images, c.channels, c.height, c.width}
                                         : Ints{c.images, c.height, c.width, c.channels};
        const Data w = random_data(DType::kF32, {k, c.filters}, random_);
        VendorCall call;
        call.routine = "onednn.conv2d";
        call.w = 1;
        call.y = 4;
        call.k = k;
        call.n = c.filters;
        call.image = i;
        if (panels) call.panel = VendorCall::Panel{8, 1};
        call.then = {{VendorOp::kAdd, 2}, {VendorOp::kAdd, 3}, {VendorOp::kRelu}};
        if (i.groups > 1 && i.groups < c.filters) call.then.erase(call.then.begin() + 1);
        std::vector<Data> tensors = {random_data(DType::kF32, xs, random_),
                                     panels ? packed(w, k, c.filters, i.groups, *call.panel) : w,
                                     random_data(DType::kF32, {c.filters}, random_),
                                     random_data(DType::kF32, ys, random_),
                                     {DType::kF32, ys, {}, {}}};
        const std::vector<double> x = tensors[0].values;
        check(
            call, tensors,
            [&](const Ints& at) {
              const int64_t g = at[3] / (c.filters / i.groups);
              double sum = 0;
              for (int64_t u = 0; u < i.kernel[0]; ++u)
                for (int64_t v = 0; v < i.kernel[1]; ++v)
                  for (int64_t d = 0; d < depth; ++d) {
                    const int64_t h = at[1] * i.strides[0] + u * i.dilations[0] - i.pads[0];
                    const int64_t e = at[2] * i.strides[1] + v * i.dilations[1] - i.pads[1];
                    if (h < 0 || h >= c.height || e < 0 || e >= c.width) continue;
                    const int64_t channel = g * depth + d;
                    const int64_t from =
                        i.channels_first
                            ? ((at[0] * c.channels + channel) * c.height + h) * c.width + e
                            : ((at[0] * c.height + h) * c.width + e) * c.channels + channel;
                    const int64_t row = i.channels_first ? (d * i.kernel[0] + u) * i.kernel[1] + v
                                                         : (u * i.kernel[1] + v) * depth + d;
                    sum += x[static_cast<size_t>(from)] *
                           w.values[static_cast<size_t>(row * c.filters + at[3])];
                  }
              return sum;
            },
            shares, 2e-5);
      }
}

TEST_P(OneDnn, OnlyWhatIsReadyIsFound) {
  std::vector<Data> tensors = {random_data(DType::kF32, {4, 24}, random_),
                               random_data(DType::kF32, {1, 24, 48}, random_),
                               {DType::kF32, {4, 40}, std::vector<double>(160), {}}};
  tensors[2].store();
  VendorCall call;
  call.routine = "onednn.matmul";
  call.w = 1;
  call.y = 2;
  call.k = 24;
  call.n = 40;
  call.panel = VendorCall::Panel{48, 1};
  const std::unique_ptr<VendorRoutine> r = routine(call, tensors);
  EXPECT_EQ(r->weights(), std::optional<size_t>(1));
  std::vector<LibraryTensor> t = views(tensors);
  const uint64_t first = r->make_ready(t, 1);
  EXPECT_GE(first, 24u * 40 * 4);
  EXPECT_NE(r->find(t), nullptr);
  // Other weights are not those that were copied, whatever is in them.
  Data others = tensors[1];
  t[1].data = others.bytes.data();
  EXPECT_EQ(r->find(t), nullptr);
  t = views(tensors);
  const Ints more = {5, 24}, result = {5, 40};
  t[0].shape = more;
  EXPECT_EQ(r->find(t), nullptr);
  t[2].shape = result;
  EXPECT_EQ(r->find(t), nullptr);
  // The copy serves further sizes that want it alike.
  EXPECT_LT(r->make_ready(t, 1), first);
  r->forget();
  EXPECT_EQ(r->find(t), nullptr);
}

TEST_P(OneDnn, LeavesTheProgramsThreadsAsTheyWere) {
  const int before = library_->set_threads(3);
  { const onednn::OneThread one(*library_); }
  const int now = library_->set_threads(before);
  EXPECT_EQ(now, before == 0 ? 0 : 3);
}

INSTANTIATE_TEST_SUITE_P(Versions, OneDnn, ::testing::Values(2, 3));

}  // namespace
}  // namespace nimble::rt
