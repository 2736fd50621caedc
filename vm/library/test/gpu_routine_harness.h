// Routines of a GPU's libraries, called as the VM calls them, on stand-ins for the library and for
// NVIDIA's driver.
#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "vm/base/error.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/executable/vendor_call.h"
#include "vm/library/registry.h"
#include "vm/runtime/cuda_device.h"
#include "vm/runtime/test/standin/cuda.h"

namespace nimble::rt {

using Shape = std::vector<int64_t>;

int64_t count_of(const Shape& shape);

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

// What the library had made ahead of a test it has behind it, too, and no rule of the library's or
// of the driver's was broken.
class GpuRoutine : public ::testing::Test {
 protected:
  // The environment's variable `variable` names the library: the stand-in in `file`.
  GpuRoutine(const char* variable, const char* file) : library_{variable, file} {}
  void SetUp() override;
  void TearDown() override;
  static const StandInCuda& driver() { return standin_cuda(NIMBLE_STANDIN_CUDA); }
  // What stands in for the library.
  virtual const StandIn& library() const = 0;
  // Of the routine.
  virtual const char* name() const = 0;
  // What a call gives, by plain loops over the operands' numbers.
  virtual std::vector<float> expected(const exec::VendorCall& call) const = 0;

  const LibraryKernel& kernel() const;
  void add(Shape shape, DType dtype = DType::kF32, int64_t offset = 0);
  std::vector<float> read(const Operand& o);
  // x and w and what is added were added before, the result last.
  exec::KernelContract contract() const;
  void prepare(const exec::VendorCall& c);
  void prepare(const std::string& configuration);
  std::string refusal(const exec::VendorCall& c, Status status);
  std::vector<LibraryTensor> tensors() const;
  std::string why_not();
  // Starts it in the device's order.
  void start(const DeviceCall& call, void* space = nullptr);
  // Starts it and compares the result with loops.
  void expect_right(const exec::VendorCall& c);
  // Each of the library's functions fails once at each of its calls, with each status: either ours
  // serves, or an error of the status that is due says so, and nothing is kept. `told` looks at
  // what is said then.
  void expect_any_call_may_fail(
      const exec::VendorCall& c, const std::vector<const char*>& functions,
      const std::map<int, Status>& due,
      const std::function<void(const std::string& function, const std::string& said)>& told);

  // Index of an element of `o` for the element of the result at `at`, by broadcasting.
  static size_t place(const Operand& o, const Shape& at);
  // All that was there is gone, what was made of it is still here.
  void lose_the_device();
  // Behind lose_the_device(): a new one, without operands.
  void have_a_new_device();
  void clear();

  const ScopedVariable driver_{"NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA};
  const ScopedVariable library_;
  std::unique_ptr<CudaDevice> device_;
  std::vector<Operand> operands_;
  std::shared_ptr<DeviceRoutine> routine_;
  size_t before_ = 0;  // of what the library makes, how much there was
};

}  // namespace nimble::rt
