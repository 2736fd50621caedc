// The GPU as the runtime sees it, on a stand-in for its driver.
#include "vm/runtime/cuda_device.h"

#include <gmock/gmock.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <thread>

#include "vm/base/error.h"
#include "vm/base/fault/child.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/runtime/cuda_graph.h"
#include "vm/runtime/storage_pool.h"
#include "vm/runtime/test/standin/cuda.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// y[i] = 2 x[i] for i < n; a first element that is negative fails its check, one of 1e9 a trap.
int twice(const StandInLaunch& l) {
  const auto* x = static_cast<const float*>(l.pointers[0]);
  auto* y = static_cast<float*>(l.pointers[1]);
  if (x[0] == 1e9f) return 700;
  for (int64_t i = 0; i < l.symbols[0]; ++i) y[i] = 2 * x[i];
  return 0;
}

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    gpu_.reset();
    driver().reset();
    driver().add_kernel("twice", 2, 1, twice);
    alive_ = driver().alive();
  }
  void TearDown() override {
    gpu_.reset();
    EXPECT_EQ(driver().alive(), alive_);
    EXPECT_STREQ(driver().violations(), "");
    driver().reset();
  }
  static const StandInCuda& driver() { return standin_cuda(NIMBLE_STANDIN_CUDA); }
  CudaDevice& gpu() {
    if (!gpu_) gpu_ = std::make_unique<CudaDevice>(CudaDriver::open());
    return *gpu_;
  }
  std::string error_of(const std::function<void()>& body, Status status) {
    try {
      body();
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), status) << e.what();
      EXPECT_FALSE(e.remedy().empty());
      return e.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }

  const ScopedVariable library_{"NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA};
  std::unique_ptr<CudaDevice> gpu_;
  size_t alive_ = 0;
};

TEST_F(Cuda, SaysWhatItIs) {
  EXPECT_EQ(gpu().number(), kCudaDevice);
  EXPECT_FALSE(gpu().host_accessible());
  EXPECT_EQ(gpu().info().name, "Stand-in GPU");
  EXPECT_EQ(gpu().info().capability, 90);
  EXPECT_EQ(gpu().info().multiprocessors, 132);
  EXPECT_EQ(gpu().driver().version_text(), "13.0");
}

// Sizes around those of the pinned segments; what the host gave may change at once.
TEST_F(Cuda, CopiesInAndOut) {
  for (const size_t n : {size_t{1}, size_t{255}, size_t{257}, size_t{1} << 20,
                         (size_t{1} << 20) + 1, (size_t{11} << 20) + 3}) {
    std::vector<uint8_t> in(n), out(n);
    std::iota(in.begin(), in.end(), uint8_t{1});
    const std::vector<uint8_t> expected = in;
    void* a = gpu().allocate(n);
    void* b = gpu().allocate(n);
    gpu().copy_in(a, in.data(), n);
    std::fill(in.begin(), in.end(), 0);
    gpu().copy_within(b, a, n);
    gpu().clear(a, n);
    gpu().free(a, n);
    gpu().copy_out(out.data(), b, n);
    EXPECT_EQ(out, expected) << n;
    gpu().free(b, n);
  }
  EXPECT_EQ(gpu().in_use(), 0u);
}

TEST_F(Cuda, MemoryIsTakenSeldom) {
  StoragePool pool(gpu());
  for (int run = 0; run < 20; ++run) {
    std::vector<Block> blocks;
    for (size_t i = 0; i < 30; ++i) blocks.push_back(pool.allocate((i + 1) * (50'000 + 997 * run)));
    for (const Block& b : blocks) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data) % 64, 0u);
      pool.release(b);
    }
    pool.end_run();
  }
  EXPECT_LT(driver().calls("cuMemAlloc_v2"), 4);
}

TEST_F(Cuda, LaunchesInOrder) {
  DeviceModule module(
      gpu(), std::span(reinterpret_cast<const uint8_t*>("stand-in module:twice"), 21), "test");
  const cuda::Function f = module.find("twice", 100 << 10, 5);
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(module.find("thrice", 0, 5), nullptr);
  // The same code for another kernel, which asks for less: the launch below has as much as before.
  EXPECT_EQ(module.find("twice", 60 << 10, 5), f);
  std::vector<float> x{1, 2, 3}, y(3);
  void* a = gpu().allocate(12);
  void* b = gpu().allocate(12);
  gpu().copy_in(a, x.data(), 12);
  int64_t n = 3;
  void *scratch = nullptr, *status = nullptr;
  void* parameters[] = {&a, &b, &n, &scratch, &status};
  gpu().launch(f, {1, 1, 1}, 32, 100 << 10, parameters);
  n = 7;  // was read already
  gpu().copy_out(y.data(), b, 12);
  EXPECT_EQ(y, (std::vector<float>{2, 4, 6}));
  // From another thread, too.
  std::thread([&] { gpu().copy_out(y.data(), a, 12); }).join();
  EXPECT_EQ(y, x);
  gpu().free(a, 12);
  gpu().free(b, 12);
}

TEST_F(Cuda, EventsTakeTime) {
  CudaEvent begin(gpu()), end(gpu());
  void* a = gpu().allocate(4);
  gpu().record(begin.get());
  gpu().clear(a, 4);
  gpu().record(end.get());
  gpu().synchronize();
  EXPECT_EQ(end.since(begin), 2'000'000);
  gpu().free(a, 4);
}

TEST_F(Cuda, OutOfMemoryIsNoMemory) {
  driver().fail("cuMemAlloc_v2", 1, 2);
  void* small = gpu().allocate(100);
  EXPECT_NE(small, nullptr);  // the second try, of a smaller chunk
  EXPECT_LT(gpu().reserved(), ChunkArena::kChunk);
  gpu().free(small, 100);
  driver().fail("cuMemAlloc_v2", 1, 800);
  EXPECT_THAT(error_of([&] { gpu().allocate(size_t{40} << 20); }, Status::kUnsupported),
              HasSubstr("cuMemAlloc gave"));
}

TEST_F(Cuda, ABadImageIsRefused) {
  const std::string text = error_of(
      [&] {
        const uint8_t bytes[] = {'n', 'o'};
        DeviceModule(gpu(), bytes, "model.nimble");
      },
      Status::kIncompatible);
  EXPECT_THAT(text, AllOf(HasSubstr("model.nimble"), HasSubstr("compute capability 9.0"),
                          HasSubstr("CUDA_ERROR_INVALID_IMAGE"),
                          HasSubstr("it does not begin as an image does")));
}

// The driver would read beyond the end of one that is cut off.
TEST_F(Cuda, ATruncatedImageIsRefused) {
  const uint8_t bytes[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  EXPECT_THAT(error_of([&] { DeviceModule(gpu(), bytes, "model.nimble"); }, Status::kCorrupt),
              AllOf(HasSubstr("model.nimble"), HasSubstr("it ends in its header")));
  EXPECT_EQ(driver().calls("cuModuleLoadDataEx"), 0);
}

std::span<const uint8_t> image_of_twice() {
  static constexpr std::string_view kText = STANDIN_CUDA_IMAGE "twice";
  return {reinterpret_cast<const uint8_t*>(kText.data()), kText.size()};
}

// Code of 8.0 runs on 8.6, whose blocks have less.
TEST_F(Cuda, MoreSharedMemoryThanBlocksHaveIsRefused) {
  driver().set(13000, 1, 86);
  DeviceModule module(gpu(), image_of_twice(), "model.nimble");
  EXPECT_NE(module.find("twice", 99 << 10, 5), nullptr);
  EXPECT_THAT(error_of([&] { module.find("twice", 100 << 10, 5); }, Status::kIncompatible),
              AllOf(HasSubstr("model.nimble"), HasSubstr("twice takes 102400 bytes"),
                    HasSubstr("compute capability 8.6) has 101376")));
}

// A launch brings as many parameters as the contract says; the driver reads as many as the code
// has.
TEST_F(Cuda, CodeOfMoreParametersIsRefused) {
  DeviceModule module(gpu(), image_of_twice(), "model.nimble");
  EXPECT_NE(module.find("twice", 0, 5), nullptr);
  EXPECT_THAT(error_of([&] { module.find("twice", 0, 4); }, Status::kCorrupt),
              AllOf(HasSubstr("model.nimble"), HasSubstr("twice has other parameters")));
  driver().expect_maps("twice", 1);
  EXPECT_NE(module.find("twice", 0, 5, 1), nullptr);
  EXPECT_THAT(error_of([&] { module.find("twice", 0, 5); }, Status::kCorrupt),
              HasSubstr("twice has other parameters"));
  EXPECT_THAT(error_of([&] { module.find("twice", 0, 6); }, Status::kCorrupt),
              HasSubstr("twice has other parameters"));
}

// A driver that tells no parameters: what a trusted file says of its code counts. There are no
// graphs either.
TEST(OldCuda, RunsWithoutWhatNeedNotBeThere) {
  const ScopedVariable library("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_OLD_CUDA);
  const StandInCuda& driver = standin_cuda(NIMBLE_STANDIN_OLD_CUDA);
  driver.add_kernel("twice", 2, 1, twice);
  EXPECT_EQ(CudaDriver::open().version_text(), "12.0");
  EXPECT_EQ(CudaDriver::open().cuFuncGetParamInfo, nullptr);
  EXPECT_FALSE(CudaGraph::available(CudaDriver::open()));
  {
    CudaDevice gpu(CudaDriver::open());
    DeviceModule module(gpu, image_of_twice(), "model.nimble");
    EXPECT_NE(module.find("twice", 0, 4), nullptr) << "nobody knows";
    const cuda::Function f = module.find("twice", 0, 5);
    const float x = 3;
    float y = 0;
    void *a = gpu.allocate(4), *b = gpu.allocate(4), *scratch = nullptr, *status = nullptr;
    gpu.copy_in(a, &x, 4);
    int64_t n = 1;
    void* parameters[] = {&a, &b, &n, &scratch, &status};
    gpu.launch(f, {1, 1, 1}, 32, 0, parameters);
    gpu.copy_out(&y, b, 4);
    EXPECT_EQ(y, 6);
    gpu.free(a, 4);
    gpu.free(b, 4);
  }
  EXPECT_EQ(driver.alive(), 0u);
  EXPECT_STREQ(driver.violations(), "");
}

TEST_F(Cuda, WhatIsMissingIsTold) {
  {
    const ScopedVariable none("NIMBLE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
    EXPECT_THAT(error_of([] { CudaDriver::open(); }, Status::kUnsupported),
                AllOf(HasSubstr("its driver is not there"), HasSubstr("/nowhere/libcuda.so.1"),
                      HasSubstr("compile the model for a CPU")));
  }
  driver().set(13000, 1, 90);
  {
    const ScopedVariable second("NIMBLE_CUDA_DEVICE", "1");
    EXPECT_THAT(error_of([] { CudaDevice device(CudaDriver::open()); }, Status::kUnsupported),
                HasSubstr("number 1 is not there, the driver sees 1"));
  }
  {
    const ScopedVariable second("NIMBLE_CUDA_DEVICE", "one");
    EXPECT_THAT(error_of([] { CudaDevice device(CudaDriver::open()); }, Status::kInvalidArgument),
                HasSubstr("NIMBLE_CUDA_DEVICE"));
  }
  {
    driver().set(13000, 2, 80);
    const ScopedVariable second("NIMBLE_CUDA_DEVICE", "1");
    EXPECT_EQ(gpu().info().ordinal, 1);
    EXPECT_EQ(gpu().info().capability, 80);
    gpu_.reset();
  }
  driver().set(13000, 0, 90);
  EXPECT_THAT(error_of([] { CudaDevice device(CudaDriver::open()); }, Status::kUnsupported),
              HasSubstr("the driver sees none"));
}

// Each is found when the driver is opened, which a process does once.
TEST_F(Cuda, AnOldDriverAndNoDeviceAreTold) {
  const std::string copy = ::testing::TempDir() + "/standin-cuda-copy.so";
  ASSERT_EQ(std::system(("cp " NIMBLE_STANDIN_CUDA " " + copy).c_str()), 0);
  const ScopedVariable other("NIMBLE_CUDA_DRIVER", copy);
  standin_cuda(copy.c_str()).set(11040, 1, 90);
  EXPECT_THAT(error_of([] { CudaDriver::open(); }, Status::kUnsupported),
              AllOf(HasSubstr("the driver is too old: it is of CUDA 11.4"),
                    HasSubstr("install one of CUDA 12.0 or newer")));
  standin_cuda(copy.c_str()).set(13000, 0, 90);
  EXPECT_THAT(error_of([] { CudaDriver::open(); }, Status::kUnsupported),
              AllOf(HasSubstr("CUDA_ERROR_NO_DEVICE"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  standin_cuda(copy.c_str()).set(13000, 1, 90);
  EXPECT_EQ(CudaDriver::open().version(), 13000);
}

TEST_F(Cuda, AFailureLeavesNothing) {
  for (const char* call : {"cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuCtxSetCurrent"}) {
    driver().fail(call, 1, 999);
    error_of([] { CudaDevice device(CudaDriver::open()); }, Status::kFatal);
    EXPECT_EQ(driver().alive(), alive_) << call;
  }
  driver().fail("cuMemHostGetDevicePointer_v2", 1, 1);
  error_of([&] { PinnedMemory memory(gpu(), 64); }, Status::kInternal);
}

TEST_F(Cuda, AStickyErrorLosesIt) {
  void* a = gpu().allocate(12);
  driver().fail("cuStreamSynchronize", 1, 700);
  float y[3];
  EXPECT_THAT(error_of([&] { gpu().copy_out(y, a, 12); }, Status::kFatal),
              AllOf(HasSubstr("cuStreamSynchronize gave CUDA_ERROR_ILLEGAL_ADDRESS"),
                    HasSubstr("report it")));
  EXPECT_TRUE(gpu().lost());
  EXPECT_THAT(error_of([&] { gpu().clear(a, 12); }, Status::kFatal),
              AllOf(HasSubstr("it was lost by CUDA_ERROR_ILLEGAL_ADDRESS"),
                    HasSubstr("load the model anew")));
  gpu().free(a, 12);  // nothing happens
  // A new one has all the use of it; whatever lay there is gone.
  alive_ = 0;
  CudaDevice anew(CudaDriver::open(), /*anew=*/true);
  void* b = anew.allocate(12);
  anew.clear(b, 12);
  anew.copy_out(y, b, 12);
  EXPECT_EQ(y[2], 0);
  anew.free(b, 12);
}

TEST_F(Cuda, AForkedChildHasNoUseOfIt) {
  void* a = gpu().allocate(12);
  EXPECT_EQ(in_child([&] {
              try {
                gpu().clear(a, 12);
              } catch (const Error& e) {
                gpu().free(a, 12);
                return std::string(e.what()).find("was forked by one that used the GPU") !=
                       std::string::npos;
              }
              return false;
            }),
            "");
  gpu().clear(a, 12);
  gpu().free(a, 12);
}

}  // namespace
}  // namespace nimble::rt
