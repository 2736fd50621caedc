// Launches that come again are started as CUDA graphs, and nothing else changes by it. The stand-in
// runs a graph's nodes that have no order between them backwards.
#include <gmock/gmock.h>

#include "vm/interpreter/gpu_stretches.h"
#include "vm/interpreter/test/gpu_harness.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Doubles x so many times (an even number), and takes the root in the end.
std::string doublings(int times, const std::string& between = "") {
  std::string text = "DeviceCopy r4, r0, d2\n" + allocate(5);
  for (int i = 0; i < times; ++i) {
    text += i % 2 == 0 ? "InvokePacked k\"add\", (r4, r4, r5)\n"
                       : "InvokePacked k\"add\", (r5, r5, r4)\n";
    if (i + 1 == times / 2) text += between;
  }
  return text + "InvokePacked k\"root\", (r4, r5)  DeviceCopy r7, r5, d0  Ret r7\n";
}

class GpuGraphs : public Gpu {
 protected:
  int graphs() { return driver().calls("cuGraphLaunch"); }
  int launches() { return driver().calls("cuLaunchKernel"); }
  // sqrt(x * 2^times) of a length.
  void check(size_t n, int times, float first = 1) {
    std::vector<float> x(n), y(n);
    for (size_t i = 0; i < n; ++i) {
      x[i] = first + static_cast<float>(i);
      y[i] = std::sqrt(std::ldexp(x[i], times));
    }
    EXPECT_EQ(floats(x), y) << n << " " << first;
  }
};

TEST_F(GpuGraphs, FromTheThirdTimeOn) {
  load(executable(doublings(6)));
  for (int run = 0; run < 6; ++run) {
    const int plain = launches(), whole = graphs();
    check(5, 6, static_cast<float>(run));  // other data, elsewhere
    EXPECT_EQ(launches() - plain, run < 2 ? 7 : 0) << run;
    EXPECT_EQ(graphs() - whole, run < 2 ? 0 : 1) << run;
  }
  EXPECT_EQ(driver().calls("cuGraphInstantiateWithFlags"), 1);
  EXPECT_EQ(driver().calls("cuGraphDestroy"), 1);
}

TEST_F(GpuGraphs, LongRowsBecomeSeveral) {
  load(executable(doublings(100)));
  for (int run = 0; run < 4; ++run) {
    const int plain = launches(), whole = graphs();
    check(3, 100, static_cast<float>(run));
    EXPECT_EQ(launches() - plain, run < 2 ? 101 : 0);
    EXPECT_EQ(graphs() - whole, run < 2 ? 0 : 4);  // of 8, 16, 32 and 45
  }
}

TEST_F(GpuGraphs, ShortOnesStayAsTheyAre) {
  load(executable(doublings(2)));
  for (int run = 0; run < 5; ++run) check(3, 2);
  EXPECT_EQ(graphs(), 0);
}

TEST_F(GpuGraphs, ShapesTakeTurns) {
  load(executable(doublings(6)));
  for (int run = 0; run < 8; ++run) {
    // The pool finds its blocks in the first rounds; then each shape has its own.
    const int plain = launches(), whole = graphs();
    for (size_t n : {1, 33, 64, 1000, 20000}) check(n, 6, static_cast<float>(run));
    if (run < 4) continue;
    EXPECT_EQ(launches(), plain);
    EXPECT_EQ(graphs(), whole + 5);
  }
}

TEST_F(GpuGraphs, CopiesEndAStretch) {
  // The host's value joins in the middle.
  load(executable(doublings(8, "DeviceCopy r8, r4, d0  DeviceCopy r4, r8, d2\n")));
  for (int run = 0; run < 4; ++run) check(3, 8, static_cast<float>(run));
  const int plain = launches(), whole = graphs();
  for (int run = 0; run < 4; ++run) check(3, 8, static_cast<float>(run));
  EXPECT_EQ(launches(), plain);
  EXPECT_EQ(graphs(), whole + 4 * 2);
}

TEST_F(GpuGraphs, DataDecides) {
  // Where the first element is 0 four doublings more are made.
  const std::string more =
      "function \"main\" 1 12 {\n"
      "DeviceCopy r4, r0, d2\n" +
      allocate(5) +
      "InvokePacked k\"add\", (r4, r4, r5)  InvokePacked k\"add\", (r5, r5, r4)\n"
      "InvokePacked k\"add\", (r4, r4, r5)  InvokePacked k\"add\", (r5, r5, r4)\n"
      "DeviceCopy r8, r4, d0  LoadConsti r9, 4  LoadConsti r10, 0  AllocStorage r9, r9, 64, d0\n"
      "AllocTensor r9, r8, r10, i32, []  GetElement r9, r9, 0\n"
      "If r9, @rest, @again\n"
      "again:\n"
      "InvokePacked k\"add\", (r4, r4, r5)  InvokePacked k\"add\", (r5, r5, r4)\n"
      "rest:\n"
      "InvokePacked k\"add\", (r4, r4, r5)  InvokePacked k\"add\", (r5, r5, r4)\n"
      "InvokePacked k\"add\", (r4, r4, r5)  InvokePacked k\"add\", (r5, r5, r4)\n"
      "DeviceCopy r7, r4, d0  Ret r7\n}\n";
  exec::Executable e = exec::assemble(std::string(kKernels) + more + kEntry);
  add_image(&e, "sm_90a", STANDIN_CUDA_IMAGE "add_0 root_0 root_1");
  load(e);
  for (int run = 0; run < 12; ++run) {
    const bool zero = run % 3 == 1;
    const float first = zero ? 0.f : 1.f, factor = zero ? 1024.f : 256.f;
    EXPECT_EQ(floats({first, 3}), (std::vector<float>{first * factor, 3 * factor})) << run;
  }
  EXPECT_GT(graphs(), 12);
}

TEST_F(GpuGraphs, AFailedCheckIsFound) {
  load(executable(doublings(6)));
  for (int run = 0; run < 3; ++run) check(2, 6);
  const int before = graphs();
  EXPECT_THAT(failure({{{2}, {1, -1}}}),
              AllOf(HasSubstr("kernel root (sqrt): an element is negative"), HasSubstr("n = 2")));
  EXPECT_EQ(graphs(), before + 1);
  check(2, 6);
  EXPECT_EQ(graphs(), before + 2);
}

TEST_F(GpuGraphs, AFaultLosesTheDevice) {
  load(executable(doublings(6)));
  for (int run = 0; run < 3; ++run) check(1, 6);
  EXPECT_THAT(failure({{{1}, {INFINITY}}}),
              AllOf(HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"), HasSubstr("kernel root (sqrt)")));
  EXPECT_THAT(failure({{{1}, {1}}}), HasSubstr("NVIDIA GPU: it was lost by"));
  load(executable(doublings(6)));
  for (int run = 0; run < 4; ++run) check(1, 6);
}

// Memory that went back meanwhile comes from elsewhere: what is known does not fit any more.
TEST_F(GpuGraphs, AddressesMayChange) {
  load(executable(doublings(6)));
  for (int run = 0; run < 4; ++run) check(1000, 6);
  EXPECT_EQ(graphs(), 2);
  session_->storage();
  session_->trim();
  cuda_device().trim();
  Session other(model_, {1});
  const std::vector<float> x(1000, 4.f);
  const int64_t shape[] = {1000};
  const InputTensor in{x.data(), DType::kF32, shape, {}, true};
  std::vector<OutputTensor> out(1);
  for (int run = 0; run < 4; ++run) {
    other.run(0, {&in, 1}, out);
    EXPECT_EQ(static_cast<const float*>(out[0].data)[999], 16.f);
    check(1000, 6, static_cast<float>(run));
  }
}

// What is put off must not be there when somebody else gets the memory.
TEST_F(GpuGraphs, MemoryThatGoesBackIsUsedNoMore) {
  SessionOptions options;
  options.memory_limit =
      1 << 20;  // two tensors at once fit, with what is kept of others they don't
  load(executable(doublings(6, "FreeTensor r2\n" + allocate(6))), options);
  for (int run = 0; run < 4; ++run)
    for (size_t n : {20000, 50000, 60000}) check(n, 6, static_cast<float>(run));
}

TEST_F(GpuGraphs, ProfilesSeeEachKernel) {
  load(executable(doublings(6)));
  for (int run = 0; run < 3; ++run) check(5, 6);
  EXPECT_EQ(graphs(), 1);
  session_->set_profiling(true);
  check(5, 6);
  EXPECT_EQ(graphs(), 1);
  EXPECT_THAT(session_->profiler().json(model_->executable()), HasSubstr("\"total_ns\":12000000"));
  session_->set_profiling(false);
  check(5, 6);
  EXPECT_EQ(graphs(), 2);
}

TEST_F(GpuGraphs, SlicesAndFuel) {
  load(executable(doublings(20)));
  for (int run = 0; run < 4; ++run) check(3, 20);
  const int64_t shape[] = {3};
  for (uint64_t slice : {1, 2, 5, 12}) {
    const float x[] = {1, 2, 3};
    const InputTensor in{x, DType::kF32, shape, {}, true};
    std::vector<OutputTensor> out(1);
    session_->start(0, {&in, 1});
    while (!session_->resume(slice, out)) {
      EXPECT_EQ(cuda_device().in_use() > 0, true);
      session_->trim();
    }
    EXPECT_EQ(static_cast<const float*>(out[0].data)[2], std::sqrt(std::ldexp(3.f, 20)));
  }
  for (uint64_t fuel : {8, 15, 20, 27}) {  // ends while launches are put off
    SessionOptions options;
    options.fuel = 40;
    load(executable(doublings(20)), options);
    for (int run = 0; run < 3; ++run) check(3, 20);
    session_->cancel();
    options.fuel = fuel;
    load(executable(doublings(20)), options);
    for (int run = 0; run < 5; ++run)
      EXPECT_THAT(failure({{{1}, {1}}}, Status::kExhausted), HasSubstr("instructions"));
  }
}

// A check on the host fails while launches are put off.
TEST_F(GpuGraphs, AnErrorDropsWhatIsPutOff) {
  load(executable(doublings(6, "LoadConst r8, c\"w\"  AllocADT r9, 0, (r4)\n") + ""));
  for (int run = 0; run < 3; ++run) check(3, 6);
  load(executable("DeviceCopy r4, r0, d2\n" + allocate(5) +
                  "InvokePacked k\"add\", (r4, r4, r5)  InvokePacked k\"add\", (r5, r5, r4)\n"
                  "InvokePacked k\"add\", (r4, r4, r5)  InvokePacked k\"add\", (r5, r5, r4)\n"
                  "InvokePacked k\"root\", (r4, r5)\n"
                  "ShapeOf r8, 1, r0  LoadConsti r9, 0  If r8, @go, @stop\n"
                  "stop: LoadConst r4, c\"w\"\n"
                  "go: InvokePacked k\"add\", (r4, r4, r5)\n"
                  "DeviceCopy r7, r5, d0  Ret r7\n"));
  for (int run = 0; run < 4; ++run) {
    EXPECT_EQ(floats({1, 2}), (std::vector<float>{32, 64}));
    EXPECT_THAT(failure({{{0}, {}}}), HasSubstr("kernel add (add)"));
  }
}

TEST_F(GpuGraphs, SessionsHaveTheirOwn) {
  load(executable(doublings(6)));
  Session other(model_, {1});
  const int64_t shape[] = {1};
  std::vector<OutputTensor> kept(8);
  for (size_t run = 0; run < kept.size(); ++run) {
    const float x[] = {static_cast<float>(run)};
    const InputTensor in{x, DType::kF32, shape, {}, true};
    other.run(0, {&in, 1}, {&kept[run], 1});  // stays alive
    check(1, 6, static_cast<float>(run));
  }
  for (size_t run = 0; run < kept.size(); ++run)
    EXPECT_EQ(static_cast<const float*>(kept[run].data)[0],
              std::sqrt(64 * static_cast<float>(run)));
  EXPECT_EQ(graphs(), 2 * 6);
}

TEST_F(GpuGraphs, MayBeTurnedOff) {
  {
    const ScopedVariable off("NIMBLE_CUDA_GRAPHS", "off");
    load(executable(doublings(6)));
    for (int run = 0; run < 4; ++run) check(2, 6);
    EXPECT_EQ(graphs(), 0);
  }
  const ScopedVariable wrong("NIMBLE_CUDA_GRAPHS", "yes");
  load(executable(doublings(6)));
  EXPECT_THAT(failure({{{1}, {1}}}, Status::kInvalidArgument), HasSubstr("NIMBLE_CUDA_GRAPHS"));
}

TEST_F(GpuGraphs, WithoutAGraphOneByOne) {
  load(executable(doublings(6)));
  driver().fail("cuGraphInstantiateWithFlags", 1, 2);
  for (int run = 0; run < 5; ++run) check(2, 6);
  EXPECT_EQ(graphs(), 0);
  EXPECT_EQ(launches(), 5 * 7);
  // What a start says is the run's error.
  load(executable(doublings(6)));
  for (int run = 0; run < 3; ++run) check(2, 6);
  driver().fail("cuGraphLaunch", 1, 2);
  EXPECT_THAT(failure({{{2}, {1, 2}}}, Status::kExhausted), HasSubstr("cuGraphLaunch"));
  check(2, 6);
}

TEST_F(GpuGraphs, OnlySoManyAreKept) {
  load(executable(doublings(6)));  // its module's functions
  check(1, 6);
  CudaDevice& device = cuda_device();
  DeviceModule module(device,
                      std::span(reinterpret_cast<const uint8_t*>(STANDIN_CUDA_IMAGE "add_0"),
                                sizeof STANDIN_CUDA_IMAGE "add_0" - 1),
                      "test");
  const cuda::Function f = module.find("add_0", 0);
  void* const memory = device.allocate(4096);
  {
    GpuStretches stretches(device);
    LaunchWords words(6);
    const auto stretch = [&](uint64_t which, uint64_t last) {
      device.enter();
      for (uint64_t i = 0; i < 5; ++i) {
        words.set(f, {4, 1, 1}, 32, 0, 6);
        const auto address = reinterpret_cast<uintptr_t>(memory);
        const uint64_t values[] = {address, address, address + 2048, i == 4 ? last : which, 0, 0};
        std::copy_n(values, 6, words.parameters());
        stretches.add(words);
      }
      device.synchronize();
    };
    for (uint64_t which = 0; which < 2000; ++which) {
      stretch(which % 30, which / 30);
      EXPECT_LE(stretches.kept_launches(), GpuStretches::kKept);
    }
    EXPECT_EQ(stretches.kept_launches(), 5u * 30 * 8);  // of the many that begin alike
    for (uint64_t which = 0; which < 2000; ++which) stretch(which % 32, 0);
    EXPECT_GE(stretches.graphs(), 30u);
    stretches.clear();
    EXPECT_EQ(stretches.kept_launches() + stretches.graphs(), 0u);
  }
  device.free(memory, 4096);
}

}  // namespace
}  // namespace nimble::rt
