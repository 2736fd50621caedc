#include "vm/library/test/onednn_harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "vm/base/error.h"

namespace nimble::rt {

using exec::Access;
using exec::DimProgram;
using exec::KernelArgument;
using exec::KernelContract;
using exec::VendorCall;
using exec::VendorOp;
using exec::VendorStep;

void Data::store() {
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

double Data::at(size_t i) const {
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

namespace {

// What the steps behind a sum make of it, at element `flat` of the result.
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

}  // namespace

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

void OneDnn::SetUp() {
  // Opened once: what it starts stays.
  static const std::unique_ptr<onednn::Library> all[] = {onednn::open_library(2, "libdnnl.so.2"),
                                                         onednn::open_library(3, "libdnnl.so.3")};
  library_ = all[GetParam() - 2].get();
  if (!library_->problem().empty()) GTEST_SKIP() << library_->problem();
}

std::unique_ptr<VendorRoutine> OneDnn::routine(VendorCall call, const std::vector<Data>& tensors) {
  call.library = library_->version();
  return make_onednn_routine(*library_, to_json(call), contract_of(tensors, call.y));
}

void OneDnn::check(const VendorCall& call, std::vector<Data> tensors,
                   const std::function<double(const Ints&)>& sum, int32_t shares,
                   double tolerance) {
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
      ASSERT_NEAR(y.at(static_cast<size_t>(flat)), want, tolerance * std::max(1.0, std::fabs(want)))
          << "element " << flat << " of " << to_json(call) << ", " << threads << " threads";
    }
  }
}

void OneDnn::check_product(DType x, DType w, DType y, VendorCall::Panel panel, Ints rows, int64_t k,
                           int64_t n, std::vector<std::pair<VendorStep, Data>> steps,
                           int32_t shares, double tolerance) {
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

}  // namespace nimble::rt
