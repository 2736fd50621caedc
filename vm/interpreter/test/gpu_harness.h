// Programs whose kernels are a GPU's, on a stand-in for its driver that does everything as late as
// it may.
#pragma once

#include <cmath>

#include "vm/base/test/scoped_variable.h"
#include "vm/executable/check_status.h"
#include "vm/executable/reader.h"
#include "vm/executable/writer.h"
#include "vm/interpreter/test/harness.h"
#include "vm/runtime/cuda_device.h"
#include "vm/runtime/test/standin/cuda.h"

namespace nimble::rt {

// The kernels below as assembly, which the driver compiles.
inline constexpr const char* kAssembly =
    ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry add_0(\n)\n{\n}\n"
    ".visible .entry root_0(\n)\n{\n}\n.visible .entry root_1(\n)\n{\n}\n";

inline constexpr const char* kNegative = "an element is negative";

// y = a + b over symbols[0] elements; the grid covers them. Its accesses are of so many bytes.
template <uintptr_t kAccess>
int add_by(const StandInLaunch& l) {
  const int64_t n = l.symbols[0];
  if (l.grid[0] * 32 < n || l.threads != 32) return 700;
  const auto* a = static_cast<const float*>(l.pointers[0]);
  const auto* b = static_cast<const float*>(l.pointers[1]);
  auto* y = static_cast<float*>(l.pointers[2]);
  for (const void* p : {l.pointers[0], l.pointers[1], l.pointers[2]})
    if (reinterpret_cast<uintptr_t>(p) % kAccess != 0) return 716;  // a misaligned address
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
  return 0;
}
inline int add(const StandInLaunch& l) {
  return add_by<16>(l);
}

// y = sqrt(x), by way of scratch memory; a negative element fails the check.
inline int root(const StandInLaunch& l) {
  const int64_t n = l.symbols[0];
  const auto* x = static_cast<const float*>(l.pointers[0]);
  auto* y = static_cast<float*>(l.pointers[1]);
  auto* s = static_cast<float*>(l.scratch);
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] < 0) {
      if (*l.status == 0) *l.status = exec::check_status(kNegative);
      return 0;
    }
    if (std::isinf(x[i])) return 700;
    s[i] = std::sqrt(x[i]);
  }
  for (int64_t i = 0; i < n; ++i) y[i] = s[i];
  return 0;
}

inline constexpr const char* kKernels = R"ASM(
scalar "bytes" [a0 4 *]
constant "w" f32 [1] device d2 { 1 }
kernel "add" {
  source "add" symbols n device d2
  in f32 ([a0]) in f32 ([a0]) out f32 ([a0])
  dispatch { 0: 0 }
  native "add_0" launch ([a0 31 + 32 //], [1], [1]) block 32 shared 0
}
kernel "root" {
  source "sqrt" symbols n device d2
  in f32 ([a0]) out f32 ([a0])
  scratch [a0 4 *]
  dispatch { 0: n <= 4 ? 1 : 2  1: 0  2: 1 }
  native "root_0" launch ([1], [1], [1]) block 32 shared 1024
  native "root_1" launch ([1], [a0], [1]) block 64 shared 100000
}
)ASM";
inline constexpr const char* kEntry = R"ASM(
entry "main" f0 { input "x" f32 ["n"] [-1]  output "y" f32 ["n"] [-1] }
)ASM";

// Allocates a tensor of the shape of r0 on the GPU in this register; uses r1 to r3.
inline std::string allocate(int reg) {
  return fmt::format(
      "ShapeOf r1, 1, r0  Invoke r2, f\"bytes\", (r1)  AllocStorage r2, r2, 64, d2  "
      "LoadConsti r3, 0  AllocTensorReg r{}, r2, r3, f32, (r1)\n",
      reg);
}

// sqrt(x) + sqrt(x)
inline std::string program() {
  return "DeviceCopy r4, r0, d2\n" + allocate(5) + allocate(6) +
         ".note \"sqrt at layer.0\" InvokePacked k\"root\", (r4, r5)\n"
         ".note \"add at layer.1\" InvokePacked k\"add\", (r5, r5, r6)\n"
         "DeviceCopy r7, r6, d0  Ret r7\n";
}

class Gpu : public Interpreter {
 protected:
  void SetUp() override {
    driver().reset();
    driver().add_kernel("add_0", 3, 1, add);
    driver().add_kernel("root_0", 2, 1, root);
    driver().add_kernel("root_1", 2, 1, root);
  }
  void TearDown() override {
    const bool lost = model_ && model_->gpu() && model_->gpu()->lost();
    session_.reset();
    model_.reset();
    if (!lost) {
      EXPECT_EQ(cuda_device().in_use(), 0u);
    }
    EXPECT_STREQ(driver().violations(), "");
    driver().reset();
  }
  static const StandInCuda& driver() { return standin_cuda(NIMBLE_STANDIN_CUDA); }

  // What is loaded from now on finds such a GPU, for which the device is made anew.
  void use_gpu_of(int capability) {
    session_.reset();
    model_.reset();
    driver().set(13000, 1, capability);
    driver().fail("cuStreamSynchronize", 1, 719);
    EXPECT_THROW(cuda_device().synchronize(), Error);
  }

  exec::Executable executable(const std::string& body, const std::string& more = "") {
    exec::Executable e =
        exec::assemble(kKernels + more + "function \"main\" 1 12 {\n" + body + "}\n" + kEntry);
    e.texts.push_back(kNegative);
    add_image(&e, "sm_90a", STANDIN_CUDA_IMAGE "add_0 root_0 root_1");
    return e;
  }
  void add_image(exec::Executable* e, const std::string& target, std::string_view bytes) {
    exec::NativeImage image;
    image.target = target;
    image.bytes = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
    image.device = kCudaDevice;
    e->images.push_back(image);
  }
  void load(exec::Executable e, bool profile = false, size_t trace = 0) {
    SessionOptions options;
    options.profile = profile;
    options.trace = trace;
    load(std::move(e), options);
  }
  void load(exec::Executable e, SessionOptions options) {
    session_.reset();
    LoadOptions load;
    load.trust = true;
    model_ = Model::load(exec::deserialize(exec::serialize(e)), load, "test");
    options.threads = 2;
    session_ = std::make_unique<Session>(model_, options);
  }
  std::string refusal(exec::Executable e, Status status, bool trust = true) {
    LoadOptions load;
    load.trust = trust;
    try {
      Model::load(std::move(e), load, "test");
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), status) << error.what();
      EXPECT_FALSE(error.remedy().empty());
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  std::vector<float> floats(const std::vector<float>& x) {
    return run({{{static_cast<int64_t>(x.size())}, x}})[0].floats;
  }

  const ScopedVariable library_{"NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA};
};

}  // namespace nimble::rt
