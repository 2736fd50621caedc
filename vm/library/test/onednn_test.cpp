// oneDNN's routines against plain loops, by each version of the library that is installed; what
// they refuse; what is ready and what is not.
#include "vm/library/onednn.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "vm/base/error.h"
#include "vm/library/onednn_binding.h"

namespace nimble::rt {
namespace {

using exec::Access;
using exec::DimProgram;
using exec::KernelArgument;
using exec::KernelContract;
using exec::VendorCall;
using exec::VendorOp;
using exec::VendorStep;
using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

// A tensor and its values as numbers.
struct Data {
  DType dtype = DType::kF32;
  Ints shape;
  std::vector<double> values;
  std::vector<uint8_t> bytes;

  void store() {
    bytes.resize(values.size() * size_of(dtype));
    for (size_t i = 0; i < values.size(); ++i) {
      uint8_t* to = bytes.data() + i * size_of(dtype);
      switch (dtype) {
        case DType::kF32: {
          const auto v = static_cast<float>(values[i]);
          std::memcpy(to, &v, sizeof v);
          break;
        }
        case DType::kBF16: {
          // Values of these tests are small multiples of 1/16, which bf16 has.
          const auto v = static_cast<float>(values[i]);
          uint32_t bits = 0;
          std::memcpy(&bits, &v, sizeof bits);
          const auto half = static_cast<uint16_t>(bits >> 16);
          std::memcpy(to, &half, sizeof half);
          break;
        }
        case DType::kI32: {
          const auto v = static_cast<int32_t>(values[i]);
          std::memcpy(to, &v, sizeof v);
          break;
        }
        default:
          *to = static_cast<uint8_t>(static_cast<int>(values[i]));
      }
    }
  }
  double at(size_t i) const {
    const uint8_t* from = bytes.data() + i * size_of(dtype);
    if (dtype == DType::kI32) {
      int32_t v = 0;
      std::memcpy(&v, from, sizeof v);
      return v;
    }
    uint32_t bits = 0;
    if (dtype == DType::kBF16) {
      uint16_t half = 0;
      std::memcpy(&half, from, sizeof half);
      bits = uint32_t{half} << 16;
    } else {
      std::memcpy(&bits, from, sizeof bits);
    }
    float v = 0;
    std::memcpy(&v, &bits, sizeof v);
    return v;
  }
};

int64_t elements(const Ints& shape) {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

Data random_data(DType dtype, Ints shape, std::mt19937& random) {
  Data d{dtype, std::move(shape), {}, {}};
  const int low = dtype == DType::kU8 ? 1 : -16, high = dtype == DType::kU8 ? 255 : 16;
  std::uniform_int_distribution<int> draw(low, high);
  const bool integers = dtype == DType::kU8 || dtype == DType::kI8 || dtype == DType::kI32;
  d.values.resize(static_cast<size_t>(elements(d.shape)));
  for (double& v : d.values) v = integers ? draw(random) : draw(random) / 16.0;
  d.store();
  return d;
}

// The matrix (k, n) of `w`, in panels, with rubbish where panels are filled up.
Data packed(const Data& w, int64_t k, int64_t n, int64_t groups, VendorCall::Panel panel) {
  const int64_t per_group = n / groups, panels = (per_group + panel.width - 1) / panel.width;
  const int64_t rows = (k + panel.group - 1) / panel.group;
  Data out{w.dtype, {groups * panels, rows, panel.width, panel.group}, {}, {}};
  if (panel.group == 1) out.shape.pop_back();
  out.values.assign(static_cast<size_t>(groups * panels * rows * panel.width * panel.group), 7);
  for (int64_t row = 0; row < k; ++row)
    for (int64_t column = 0; column < n; ++column) {
      const int64_t g = column / per_group, c = column % per_group;
      const int64_t at = ((g * panels + c / panel.width) * rows + row / panel.group) * panel.width;
      out.values[static_cast<size_t>((at + c % panel.width) * panel.group + row % panel.group)] =
          w.values[static_cast<size_t>(row * n + column)];
    }
  out.store();
  return out;
}

double after(const std::vector<VendorStep>& steps, const std::vector<Data>& tensors, double v,
             const Ints& y, int64_t flat) {
  for (const VendorStep& s : steps) {
    double other = 0;
    if (exec::has_operand(s.op)) {
      const Data& d = tensors[s.tensor];
      int64_t at = 0, left = flat, stride = 1;
      for (size_t axis = y.size(); axis-- > 0;) {
        const int64_t coordinate = left % y[axis];
        left /= y[axis];
        const size_t missing = y.size() - d.shape.size();
        if (axis < missing) continue;
        const int64_t extent = d.shape[axis - missing];
        at += extent == 1 ? 0 : coordinate * stride;
        stride *= extent;
      }
      other = d.values[static_cast<size_t>(at)];
    }
    switch (s.op) {
      case VendorOp::kAdd:
        v += other;
        break;
      case VendorOp::kSub:
        v -= other;
        break;
      case VendorOp::kMul:
        v *= other;
        break;
      case VendorOp::kRelu:
        v = std::max(v, 0.0);
        break;
      case VendorOp::kLeakyRelu:
        v = v > 0 ? v : s.alpha * v;
        break;
      case VendorOp::kClip:
        v = std::clamp(v, double{s.alpha}, double{s.beta});
        break;
      case VendorOp::kTanh:
        v = std::tanh(v);
        break;
      case VendorOp::kSigmoid:
        v = 1 / (1 + std::exp(-v));
        break;
      case VendorOp::kGelu:
        v = v / 2 * (1 + std::erf(v / std::sqrt(2.0)));
        break;
      case VendorOp::kGeluTanh:
        v = v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
        break;
      case VendorOp::kLinear:
        v = s.alpha * v + s.beta;
        break;
      case VendorOp::kSwish:
        v = v / (1 + std::exp(-v));
        break;
    }
  }
  return v;
}

KernelContract contract_of(const std::vector<Data>& tensors, size_t result) {
  KernelContract c;
  for (size_t i = 0; i < tensors.size(); ++i) {
    KernelArgument a;
    a.dtype = tensors[i].dtype;
    a.access = i == result ? Access::kOut : Access::kIn;
    for (int64_t extent : tensors[i].shape) a.dims.push_back(DimProgram::constant(extent));
    c.arguments.push_back(std::move(a));
  }
  return c;
}

std::vector<LibraryTensor> views(std::vector<Data>& tensors) {
  std::vector<LibraryTensor> out;
  for (Data& d : tensors) out.push_back({d.dtype, d.shape, d.bytes.data()});
  return out;
}

class OneDnn : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    // Opened once: what it starts stays.
    static const std::unique_ptr<onednn::Library> all[] = {onednn::open_library(2, "libdnnl.so.2"),
                                                           onednn::open_library(3, "libdnnl.so.3")};
    library_ = all[GetParam() - 2].get();
    if (!library_->problem().empty()) GTEST_SKIP() << library_->problem();
  }

  std::unique_ptr<VendorRoutine> routine(VendorCall call, const std::vector<Data>& tensors) {
    call.library = library_->version();
    return make_onednn_routine(*library_, to_json(call), contract_of(tensors, call.y));
  }

  // Runs the call on threads of which there are fewer and more than shares.
  void check(const VendorCall& call, std::vector<Data> tensors,
             const std::function<double(const Ints&)>& sum, int32_t shares, double tolerance) {
    const std::unique_ptr<VendorRoutine> r = routine(call, tensors);
    Data& y = tensors[call.y];
    std::vector<LibraryTensor> t = views(tensors);
    EXPECT_EQ(r->find(t), nullptr);
    try {
      r->make_ready(t, shares);
    } catch (const Error& e) {
      // bf16 needs instructions that not every CPU has.
      if (tensors[call.x].dtype == DType::kF32 || e.status() != Status::kUnsupported) throw;
      GTEST_SKIP() << e.what();
    }
    EXPECT_EQ(r->make_ready(t, shares), 0u) << "it was ready";
    const ReadyCall* ready = r->find(t);
    ASSERT_NE(ready, nullptr);
    for (int32_t threads : {1, 2, 3}) {
      y.values.assign(static_cast<size_t>(elements(y.shape)), 99);
      y.store();
      t = views(tensors);
      for (int32_t thread = 0; thread < threads; ++thread)
        ready->run({t, {}, {}, nullptr}, thread, threads);
      Ints at(y.shape.size());
      for (int64_t flat = 0; flat < elements(y.shape); ++flat) {
        int64_t left = flat;
        for (size_t axis = at.size(); axis-- > 0;) {
          at[axis] = left % y.shape[axis];
          left /= y.shape[axis];
        }
        const double want = after(call.then, tensors, sum(at), y.shape, flat);
        ASSERT_NEAR(y.at(static_cast<size_t>(flat)), want,
                    tolerance * std::max(1.0, std::fabs(want)))
            << "element " << flat << " of " << to_json(call) << ", " << threads << " threads";
      }
    }
  }

  void check_product(DType x, DType w, DType y, VendorCall::Panel panel, Ints rows, int64_t k,
                     int64_t n, std::vector<std::pair<VendorStep, Data>> steps, int32_t shares,
                     double tolerance) {
    Ints xs = rows, ys = rows;
    xs.push_back(k);
    ys.push_back(n);
    const Data weights = random_data(w, {k, n}, random_);
    std::vector<Data> tensors = {random_data(x, xs, random_)};
    VendorCall call;
    call.routine = "onednn.matmul";
    call.w = 1;
    call.k = k;
    call.n = n;
    if (panel.width > 0) {
      call.panel = panel;
      tensors.push_back(packed(weights, k, n, 1, panel));
    } else {
      tensors.push_back(weights);
    }
    for (auto& [step, data] : steps) {
      step.tensor = exec::has_operand(step.op) ? static_cast<uint32_t>(tensors.size()) : 0;
      call.then.push_back(step);
      if (exec::has_operand(step.op)) tensors.push_back(std::move(data));
    }
    call.y = static_cast<uint32_t>(tensors.size());
    tensors.push_back({y, ys, {}, {}});
    const Data rows_of = tensors[0];
    check(
        call, tensors,
        [&](const Ints& at) {
          int64_t row = 0;
          for (size_t axis = 0; axis + 1 < at.size(); ++axis) row = row * ys[axis] + at[axis];
          double sum = 0;
          for (int64_t i = 0; i < k; ++i)
            sum += rows_of.values[static_cast<size_t>(row * k + i)] *
                   weights.values[static_cast<size_t>(i * n + at.back())];
          return sum;
        },
        shares, tolerance);
  }

  const onednn::Library* library_ = nullptr;
  std::mt19937 random_{1};
};

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

TEST_P(OneDnn, SizesThatDoNotFitAreRefusedBeforeTheLibrarySeesThem) {
  const std::vector<Data> good = {random_data(DType::kF32, {4, 24}, random_),
                                  random_data(DType::kF32, {1, 24, 48}, random_),
                                  random_data(DType::kF32, {40}, random_),
                                  {DType::kF32, {4, 40}, {}, {}}};
  VendorCall call;
  call.routine = "onednn.matmul";
  call.w = 1;
  call.y = 3;
  call.k = 24;
  call.n = 40;
  call.panel = VendorCall::Panel{48, 1};
  call.then = {{VendorOp::kAdd, 2}};
  const std::unique_ptr<VendorRoutine> r = routine(call, good);
  const auto refused = [&](size_t tensor, Ints shape) {
    std::vector<Data> bad = good;
    std::vector<LibraryTensor> t = views(bad);
    t[tensor].shape = shape;
    EXPECT_THROW(r->make_ready(t, 1), Error) << tensor;
    EXPECT_EQ(r->find(t), nullptr);
  };
  refused(0, {4, 25});
  refused(0, {5, 24});
  refused(0, {96});
  refused(1, {1, 24, 32});
  refused(1, {1, 23, 48});
  refused(2, {39});
  refused(2, {2, 40});
  refused(3, {4, 41});
  refused(3, {0, 40});
}

// Sizes of entries that a table makes up: no memory lies behind these shapes.
TEST_P(OneDnn, SizesThatNoTensorHasAreRefusedBeforeTheLibrarySeesThem) {
  std::vector<Data> good = {random_data(DType::kF32, {4, 24}, random_),
                            random_data(DType::kF32, {1, 24, 48}, random_),
                            {DType::kF32, {4, 40}, {}, {}}};
  VendorCall call;
  call.routine = "onednn.matmul";
  call.w = 1;
  call.y = 2;
  call.k = 24;
  call.n = 40;
  call.panel = VendorCall::Panel{48, 1};
  const std::unique_ptr<VendorRoutine> r = routine(call, good);
  for (const Ints& rows : {Ints{int64_t{1} << 31}, Ints{int64_t{1} << 57},
                           Ints{int64_t{1} << 20, int64_t{1} << 20}, Ints{-2, -3}}) {
    Ints x = rows, y = rows;
    x.push_back(24);
    y.push_back(40);
    std::vector<LibraryTensor> t = views(good);
    t[0].shape = x;
    t[2].shape = y;
    try {
      r->make_ready(t, 1);
      ADD_FAILURE() << rows[0];
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kUnsupported);
      EXPECT_THAT(e.what(), HasSubstr("larger than the library counts"));
    }
    EXPECT_EQ(r->find(t), nullptr);
  }
}

TEST_P(OneDnn, WindowsInThePaddingAloneAndHugeOnesAreRefused) {
  struct Case {
    VendorCall::Image image;
    int64_t height, rows;  // of the image and of the result
    const char* why;
  };
  const std::vector<Case> all = {
      {{{1, 1}, {1, 1}, {1, 1}, {1, 0, 1, 0}, 1, false}, 5, 7, "padding alone"},
      {{{3, 1}, {1, 1}, {1, 1}, {3, 0, 0, 0}, 1, false}, 5, 6, "padding alone"},
      {{{3, 1}, {1, 1}, {1, 1}, {0, 0, 3, 0}, 1, false}, 5, 6, "padding alone"},
      {{{1, 1}, {INT32_MAX, 1}, {1, 1}, {0, 0, 0, 0}, 1, false}, 5, 1, "windows are larger"},
      {{{1, 1}, {1, 1}, {INT32_MAX, 1}, {0, 0, 0, 0}, 1, false}, 5, 5, "windows are larger"},
      {{{2, 1}, {INT32_MAX, 1}, {70000, 1}, {70000, 0, 70000, 0}, 1, false}, 5, 1, "larger"},
      {{{1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1, false}, 1 << 26, 1 << 26, "larger"},
  };
  for (const Case& c : all) {
    const int64_t k = c.image.kernel[0] * 8;
    VendorCall call;
    call.routine = "onednn.conv2d";
    call.w = 1;
    call.y = 2;
    call.k = k;
    call.n = 16;
    call.image = c.image;
    const Ints x = {1, c.height, 3, 8}, y = {1, c.rows, 3, 16};
    std::vector<Data> given = {random_data(DType::kF32, {1, 5, 3, 8}, random_),
                               random_data(DType::kF32, {k, 16}, random_),
                               {DType::kF32, {1, 5, 3, 16}, {}, {}}};
    const std::unique_ptr<VendorRoutine> r = routine(call, given);
    std::vector<LibraryTensor> t = views(given);
    t[0].shape = x;
    t[2].shape = y;
    try {
      r->make_ready(t, 1);
      ADD_FAILURE() << c.why;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kUnsupported);
      EXPECT_THAT(e.what(), HasSubstr(c.why));
    }
  }
}

TEST_P(OneDnn, RefusesContractsThatTheConfigurationDoesNotFit) {
  const std::vector<Data> good = {{DType::kF32, {4, 24}, {}, {}},
                                  {DType::kF32, {24, 40}, {}, {}},
                                  {DType::kF32, {4, 40}, {}, {}}};
  VendorCall call;
  call.routine = "onednn.matmul";
  call.w = 1;
  call.y = 2;
  call.k = 24;
  call.n = 40;
  EXPECT_NO_THROW(routine(call, good));
  const auto why = [&](const VendorCall& c, const std::vector<Data>& tensors) -> std::string {
    try {
      routine(c, tensors);
    } catch (const Error& e) {
      return e.what();
    }
    return "taken";
  };
  VendorCall bad = call;
  bad.y = 3;
  EXPECT_THAT(why(bad, good), HasSubstr("no output"));
  bad = call;
  bad.x = 2;
  EXPECT_THAT(why(bad, good), HasSubstr("no input"));
  bad = call;
  bad.x = 1;
  EXPECT_THAT(why(bad, good), HasSubstr("one tensor"));
  bad = call;
  bad.then = {{VendorOp::kAdd, 7}};
  EXPECT_THAT(why(bad, good), HasSubstr("no input"));
  std::vector<Data> types = good;
  types[0].dtype = DType::kF64;
  EXPECT_THAT(why(call, types), HasSubstr("multiplies no f64"));
  // In groups, with a residual behind: oneDNN 2.7 adds others of its numbers on AVX2.
  VendorCall grouped;
  grouped.routine = "onednn.conv2d";
  grouped.w = 1;
  grouped.y = 3;
  grouped.k = 100;
  grouped.n = 24;
  grouped.image = VendorCall::Image{{5, 5}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 2, false};
  std::vector<Data> images = {{DType::kF32, {1, 11, 11, 8}, {}, {}},
                              {DType::kF32, {100, 24}, {}, {}},
                              {DType::kF32, {1, 7, 7, 24}, {}, {}},
                              {DType::kF32, {1, 7, 7, 24}, {}, {}}};
  EXPECT_EQ(why(grouped, images), "taken");
  grouped.then = {{VendorOp::kAdd, 2}};
  EXPECT_THAT(why(grouped, images), HasSubstr("in groups"));
  images[2].shape = {24};
  EXPECT_EQ(why(grouped, images), "taken");
  // Measured with another version: whatever was found of that tells nothing of this one.
  call.library = "oneDNN 1.0.0";
  EXPECT_THROW(make_onednn_routine(*library_, to_json(call), contract_of(good, 2)), Error);
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
