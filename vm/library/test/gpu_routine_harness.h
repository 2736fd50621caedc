// Routines of a GPU's libraries, called as the VM calls them, on a stand-in for NVIDIA's driver.
#pragma once

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "vm/base/error.h"
#include "vm/base/half.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/executable/vendor_call.h"
#include "vm/library/registry.h"
#include "vm/runtime/cuda_device.h"
#include "vm/runtime/gpu_losses.h"
#include "vm/runtime/test/standin/cuda.h"

namespace nimble::rt {

using Shape = std::vector<int64_t>;

inline int64_t count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

inline uint16_t narrow(float v) {
  uint32_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float widen(uint16_t v) {
  const uint32_t bits = uint32_t{v} << 16;
  float out = 0;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

// Multiples of 1/8 in -2…2: sums of their products are exact.
inline std::vector<float> numbers(int64_t count, int64_t seed) {
  std::vector<float> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>((static_cast<int64_t>(i) * 7 + seed * 11) % 33 - 16) / 8;
  return out;
}

// A tensor of the device's, with numbers in it.
struct Operand {
  Shape shape;
  DType dtype = DType::kF32;
  std::vector<float> values;
  void* block = nullptr;
  size_t bytes = 0;
  int64_t offset = 0;  // bytes of the block ahead of it
  void* data() const { return static_cast<uint8_t*>(block) + offset; }
};

class GpuRoutine : public ::testing::Test {
 protected:
  void SetUp() override {
    driver().reset();
    forget_lost_gpus();
    device_ = std::make_unique<CudaDevice>(CudaDriver::open());
  }
  void TearDown() override {
    routine_.reset();
    for (Operand& o : operands_)
      if (o.block) device_->free(o.block, o.bytes);
    device_.reset();
    EXPECT_STREQ(driver().violations(), "");
  }
  static const StandInCuda& driver() { return standin_cuda(NIMBLE_STANDIN_CUDA); }
  const LibraryKernel& kernel() const {
    return *find_library_kernel(exec::ImplementationKind::kVendor, name());
  }
  // Of the routine.
  virtual const char* name() const = 0;
  // What a call gives, by plain loops over the operands' numbers.
  virtual std::vector<float> expected(const exec::VendorCall& call) const = 0;

  void add(Shape shape, DType dtype = DType::kF32, int64_t offset = 0) {
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
  std::vector<float> read(const Operand& o) {
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

  // x and w and what is added were added before, the result last.
  exec::KernelContract contract() const {
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
  void prepare(const exec::VendorCall& c) { prepare(exec::to_json(c)); }
  void prepare(const std::string& configuration) {
    routine_ = kernel().prepare_on_gpu(configuration, contract(), *device_);
  }
  std::string refusal(const exec::VendorCall& c, Status status) {
    try {
      prepare(c);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), status) << e.what();
      return e.problem();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  std::vector<LibraryTensor> tensors() const {
    std::vector<LibraryTensor> out;
    for (const Operand& o : operands_) out.push_back({o.dtype, o.shape, o.data()});
    return out;
  }
  std::string why_not() {
    std::string why;
    EXPECT_EQ(routine_->find(tensors(), &why), nullptr);
    return why;
  }
  // Starts it in the device's order.
  void start(const DeviceCall& call, void* space = nullptr) {
    std::vector<void*> data;
    for (const Operand& o : operands_) data.push_back(o.data());
    device_->enter();
    call.start(data, space, device_->stream());
  }
  // Starts it and compares the result with loops.
  void expect_right(const exec::VendorCall& c) {
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

  // Index of an element of `o` for the element of the result at `at`, by broadcasting.
  static size_t place(const Operand& o, const Shape& at) {
    size_t index = 0;
    const size_t missing = at.size() - o.shape.size();
    for (size_t d = 0; d < o.shape.size(); ++d)
      index = index * static_cast<size_t>(o.shape[d]) +
              static_cast<size_t>(o.shape[d] == 1 ? 0 : at[d + missing]);
    return index;
  }
  // All that was there is gone, what was made of it is still here.
  void lose_the_device() {
    driver().fail("cuStreamSynchronize", 1, 700);
    EXPECT_THROW(device_->synchronize(), Error);
    EXPECT_TRUE(device_->lost());
  }
  // Behind lose_the_device(): a new one, without operands.
  void have_a_new_device() {
    routine_.reset();
    operands_.clear();
    device_ = std::make_unique<CudaDevice>(CudaDriver::open(), /*anew=*/true);
  }
  void clear() {
    routine_.reset();
    for (Operand& o : operands_) device_->free(o.block, o.bytes);
    operands_.clear();
  }

  const ScopedVariable driver_{"NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA};
  std::unique_ptr<CudaDevice> device_;
  std::vector<Operand> operands_;
  std::shared_ptr<DeviceRoutine> routine_;
};

}  // namespace nimble::rt
