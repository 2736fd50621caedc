#include "vm/library/test/gpu_routine_harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "vm/base/half.h"
#include "vm/runtime/gpu_losses.h"

namespace nimble::rt {
namespace {

uint16_t narrow(float v) {
  uint32_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float widen(uint16_t v) {
  const uint32_t bits = uint32_t{v} << 16;
  float out = 0;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

// Multiples of 1/8 in -2…2: sums of their products are exact.
std::vector<float> numbers(int64_t count, int64_t seed) {
  std::vector<float> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>((static_cast<int64_t>(i) * 7 + seed * 11) % 33 - 16) / 8;
  return out;
}

}  // namespace

int64_t count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

void GpuRoutine::SetUp() {
  driver().reset();
  forget_lost_gpus();
  device_ = std::make_unique<CudaDevice>(CudaDriver::open());
  library().reset();
  before_ = library().alive();
}

void GpuRoutine::TearDown() {
  routine_.reset();
  for (Operand& o : operands_)
    if (o.block) device_->free(o.block, o.bytes);
  device_.reset();
  EXPECT_STREQ(driver().violations(), "");
  EXPECT_EQ(library().alive(), before_);
  EXPECT_STREQ(library().violations(), "");
}

const LibraryKernel& GpuRoutine::kernel() const {
  return *find_library_kernel(exec::ImplementationKind::kVendor, name());
}

void GpuRoutine::add(Shape shape, DType dtype, int64_t offset) {
  Operand o;
  o.shape = std::move(shape);
  o.dtype = dtype;
  o.offset = offset;
  o.values = numbers(count_of(o.shape), static_cast<int64_t>(operands_.size()));
  const size_t bytes = o.values.size() * size_of(dtype);
  o.bytes = std::max<size_t>(1, bytes + static_cast<size_t>(offset));
  o.block = device_->allocate(o.bytes);
  std::vector<uint8_t> raw(bytes);
  for (size_t i = 0; i < o.values.size(); ++i) {
    const uint16_t half = dtype == DType::kF16 ? f16_from_f32(o.values[i]) : narrow(o.values[i]);
    if (dtype == DType::kF32)
      std::memcpy(&raw[4 * i], &o.values[i], 4);
    else
      std::memcpy(&raw[2 * i], &half, 2);
  }
  if (bytes > 0) device_->copy_in(o.data(), raw.data(), bytes);
  operands_.push_back(std::move(o));
}

std::vector<float> GpuRoutine::read(const Operand& o) {
  std::vector<uint8_t> raw(o.values.size() * size_of(o.dtype));
  if (!raw.empty()) device_->copy_out(raw.data(), o.data(), raw.size());
  std::vector<float> out(o.values.size());
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, &raw[size_of(o.dtype) * i], 2);
    if (o.dtype == DType::kF32)
      std::memcpy(&out[i], &raw[4 * i], 4);
    else
      out[i] = o.dtype == DType::kF16 ? f32_from_f16(half) : widen(half);
  }
  return out;
}

exec::KernelContract GpuRoutine::contract() const {
  exec::KernelContract c;
  for (size_t i = 0; i < operands_.size(); ++i) {
    exec::KernelArgument a;
    a.dtype = operands_[i].dtype;
    a.access = i + 1 == operands_.size() ? exec::Access::kOut : exec::Access::kIn;
    for (const int64_t extent : operands_[i].shape)
      a.dims.push_back(exec::DimProgram::constant(extent));
    c.arguments.push_back(std::move(a));
  }
  return c;
}

void GpuRoutine::prepare(const exec::VendorCall& c) {
  prepare(exec::to_json(c));
}

void GpuRoutine::prepare(const std::string& configuration) {
  routine_ = kernel().prepare_on_gpu(configuration, contract(), *device_);
}

std::string GpuRoutine::refusal(const exec::VendorCall& c, Status status) {
  try {
    prepare(c);
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), status) << e.what();
    return e.problem();
  }
  ADD_FAILURE() << "no error";
  return {};
}

std::vector<LibraryTensor> GpuRoutine::tensors() const {
  std::vector<LibraryTensor> out;
  for (const Operand& o : operands_) out.push_back({o.dtype, o.shape, o.data()});
  return out;
}

std::string GpuRoutine::why_not() {
  std::string why;
  EXPECT_EQ(routine_->find(tensors(), &why), nullptr);
  return why;
}

void GpuRoutine::start(const DeviceCall& call, void* space) {
  std::vector<void*> data;
  for (const Operand& o : operands_) data.push_back(o.data());
  device_->enter();
  call.start(data, space, device_->stream());
}

void GpuRoutine::expect_right(const exec::VendorCall& c) {
  std::string why;
  const auto ready = routine_->find(tensors(), &why);
  ASSERT_TRUE(ready) << why;
  const size_t bytes = ready->workspace_bytes();
  void* space = bytes > 0 ? device_->allocate(bytes) : nullptr;
  start(*ready, space);
  if (space) device_->free(space, bytes);
  const std::vector<float> found = read(operands_.back()), right = expected(c);
  ASSERT_EQ(found.size(), right.size());
  for (size_t i = 0; i < right.size(); ++i)
    ASSERT_NEAR(found[i], right[i],
                operands_.back().dtype == DType::kF32 ? 1e-5F : 0.01F * (1 + std::abs(right[i])))
        << i;
}

void GpuRoutine::expect_any_call_may_fail(
    const exec::VendorCall& c, const std::vector<const char*>& functions,
    const std::map<int, Status>& due,
    const std::function<void(const std::string& function, const std::string& said)>& told) {
  const size_t alive = library().alive();
  for (const char* function : functions)
    for (const auto& [status, of_error] : due) {
      int failures = 0;
      for (int nth = 1;; ++nth) {
        SCOPED_TRACE(fmt::format("{} {}, {}", function, nth, status));
        library().reset();
        library().fail(function, nth, status);
        bool done = false;
        std::string said;
        try {
          prepare(c);
          const auto ready = routine_->find(tensors(), &said);
          if (ready) {
            start(*ready);
            done = true;
          }
        } catch (const Error& e) {
          EXPECT_EQ(e.status(), of_error);
          said = e.what();
        }
        routine_.reset();
        EXPECT_EQ(library().alive(), alive);
        if (done) break;
        ++failures;
        told(function, said);
        ASSERT_LT(nth, 500);
      }
      EXPECT_GT(failures, 0) << function;
    }
}

size_t GpuRoutine::place(const Operand& o, const Shape& at) {
  size_t index = 0;
  const size_t missing = at.size() - o.shape.size();
  for (size_t d = 0; d < o.shape.size(); ++d)
    index = index * static_cast<size_t>(o.shape[d]) +
            static_cast<size_t>(o.shape[d] == 1 ? 0 : at[d + missing]);
  return index;
}

void GpuRoutine::lose_the_device() {
  driver().fail("cuStreamSynchronize", 1, 700);
  EXPECT_THROW(device_->synchronize(), Error);
  EXPECT_TRUE(device_->lost());
}

void GpuRoutine::have_a_new_device() {
  routine_.reset();
  operands_.clear();
  device_ = std::make_unique<CudaDevice>(CudaDriver::open(), /*anew=*/true);
}

void GpuRoutine::clear() {
  routine_.reset();
  for (Operand& o : operands_) device_->free(o.block, o.bytes);
  operands_.clear();
}

}  // namespace nimble::rt
