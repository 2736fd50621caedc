// What records say of a GPU, as its driver tells it.
#include "vm/runtime/cuda_facts.h"

#include <gmock/gmock.h>

#include "vm/base/error.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/runtime/test/standin/cuda.h"

namespace nimble::rt {
namespace {

TEST(CudaFacts, AreTheDriversWithoutAContext) {
  const ScopedVariable library("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA);
  const StandInCuda& driver = standin_cuda(NIMBLE_STANDIN_CUDA);
  driver.reset();
  const GpuFacts gpu = cuda_facts();
  EXPECT_EQ(gpu.name, "Stand-in GPU");
  EXPECT_EQ(gpu.capability, 90);
  EXPECT_EQ(gpu.multiprocessors, 132);
  EXPECT_EQ(gpu.shared_bytes, 227 << 10);
  EXPECT_EQ(gpu.l2_bytes, 50 << 20);
  EXPECT_EQ(gpu.memory_bytes, uint64_t{80} << 30);
  EXPECT_EQ(gpu.memory_khz, 2'619'000);
  EXPECT_EQ(gpu.bus_bits, 5120);
  EXPECT_EQ(gpu.slot, "0000:3b:00");
  EXPECT_EQ(gpu.uuid, "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae00");
  EXPECT_EQ(gpu.driver, 13000);
  EXPECT_EQ(driver.calls("cuDevicePrimaryCtxRetain"), 0) << "who asks takes nothing of it";
  EXPECT_STREQ(driver.violations(), "");
  driver.set(13000, 2, 90);
  {
    const ScopedVariable second("NIMBLE_CUDA_DEVICE", "1");
    EXPECT_EQ(cuda_facts().slot, "0000:3c:00");
    EXPECT_EQ(cuda_facts().uuid, "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01");
  }
  driver.set(13000, 0, 90);
  EXPECT_THROW(cuda_facts(), Error);
  driver.reset();
}

// Databases and JSON hold UTF-8 alone.
TEST(CudaFacts, AreTextWhateverTheDriverCallsItsGpu) {
  const ScopedVariable library("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA);
  const StandInCuda& driver = standin_cuda(NIMBLE_STANDIN_CUDA);
  driver.reset();
  driver.rename("GPU \xff\"1\"");
  EXPECT_EQ(cuda_facts().name, "GPU \xEF\xBF\xBD\"1\"");
  driver.reset();
}

// What only tells cards apart may be missing, or may be no number at all.
TEST(CudaFacts, OfACardWithoutANumberOfItsOwnSayWhereItIs) {
  {
    const ScopedVariable library("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_OLD_CUDA);
    standin_cuda(NIMBLE_STANDIN_OLD_CUDA).reset();
    const GpuFacts gpu = cuda_facts();
    EXPECT_EQ(gpu.uuid, "");
    EXPECT_EQ(gpu.slot, "0000:3b:00");
  }
  const ScopedVariable library("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA);
  const StandInCuda& driver = standin_cuda(NIMBLE_STANDIN_CUDA);
  driver.reset();
  driver.fail("cuDeviceGetUuid_v2", 1, 1);
  EXPECT_EQ(cuda_facts().uuid, "");
  driver.reset();
}

TEST(CudaFacts, AreNoneWithoutADriver) {
  const ScopedVariable library("NIMBLE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  try {
    cuda_facts();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kUnsupported);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("its driver is not there"));
  }
}

}  // namespace
}  // namespace nimble::rt
