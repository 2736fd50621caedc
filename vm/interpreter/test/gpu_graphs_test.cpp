// Launches that come again are started as CUDA graphs, and nothing else changes by it. The stand-in
// runs a graph's nodes that have no order between them backwards.
#include <gmock/gmock.h>

#include <functional>

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

// Launches of a kernel without a machine.
class Stretches : public GpuGraphs {
 protected:
  Stretches()
      : device_(cuda_device()),
        module_(device_, std::span(reinterpret_cast<const uint8_t*>(kImage.data()), kImage.size()),
                "test"),
        memory_(static_cast<uint8_t*>(device_.allocate(kBytes))) {}
  void TearDown() override {
    device_.free(memory_, kBytes);
    GpuGraphs::TearDown();
  }
  // Adds y = x + x five times, over so many elements, the last time over others.
  void add(uint64_t n, uint64_t last) {
    device_.enter();
    for (uint64_t i = 0; i < 5; ++i) {
      words_.set(function_, {4, 1, 1}, 32, 0, 6);
      const auto address = reinterpret_cast<uintptr_t>(memory_);
      const uint64_t values[] = {address, address, address + kBytes / 2, i == 4 ? last : n, 0, 0};
      std::copy_n(values, 6, words_.parameters());
      stretches_.add(words_);
    }
  }

  static constexpr std::string_view kImage = STANDIN_CUDA_IMAGE "add_0";
  static constexpr size_t kBytes = 4096;
  CudaDevice& device_;
  DeviceModule module_;
  const cuda::Function function_ = module_.find("add_0", 0, 6);
  uint8_t* memory_;
  GpuStretches stretches_{device_};
  LaunchWords words_{6};
};

// Whatever else is asked of the device comes behind what is put off, and so does whoever gets
// memory that goes back.
TEST_F(Stretches, NothingOvertakesThem) {
  for (int i = 0; i < 2; ++i) {
    add(7, 7);
    device_.synchronize();
  }
  EXPECT_EQ(launches(), 10);
  void* const other = device_.allocate(kBytes);
  float out = 0;
  const std::vector<std::function<void()>> uses = {
      [&] { device_.free(other, kBytes); },
      [&] { device_.copy_in(memory_, &out, sizeof out); },
      [&] { device_.copy_out(&out, memory_, sizeof out); },
      [&] { device_.copy_within(memory_, memory_ + kBytes / 2, sizeof out); },
      [&] { device_.clear(memory_, kBytes); },
      [&] { device_.trim(); },
      [&] { device_.synchronize(); },
      [&] { CudaEvent event(device_); },
      [&] { PinnedMemory pinned(device_, 1); },
  };
  int whole = 0;
  for (const auto& use : uses) {
    add(7, 7);
    void* const more = device_.allocate(kBytes);  // is nobody's business
    EXPECT_EQ(graphs(), whole);
    use();
    EXPECT_EQ(graphs(), ++whole);
    device_.free(more, kBytes);
  }
  EXPECT_EQ(launches(), 10);
  // What is dropped is never asked for.
  add(7, 7);
  stretches_.drop();
  device_.synchronize();
  EXPECT_EQ(graphs(), whole);
}

// An error where memory goes back is told at the next launch.
TEST_F(Stretches, ErrorsWait) {
  for (int i = 0; i < 3; ++i) {
    add(7, 7);
    device_.synchronize();
  }
  void* const other = device_.allocate(kBytes);
  add(7, 7);
  driver().fail("cuGraphLaunch", 1, 2);
  device_.free(other, kBytes);
  EXPECT_THROW(add(7, 7), Error);
  add(7, 7);
  device_.synchronize();
}

// A library's call that adds 1 to a number, as often as the stand-in's stream comes to it.
class AddOne final : public DeviceCall {
 public:
  // `told`: graphs that had been destroyed when it went.
  AddOne(const StandInCuda& driver, int* told) : driver_(driver), told_(told) {}
  ~AddOne() override { *told_ = driver_.calls("cuGraphExecDestroy"); }
  uint64_t workspace_bytes() const override { return 0; }
  void start(std::span<void* const> data, void* workspace, cuda::Stream stream) const override {
    EXPECT_EQ(workspace, nullptr);
    ++starts;
    if (fails) throw Error(Status::kUnsupported, "a library", "it will not", "ask again");
    struct What {
      const StandInCuda& driver;
      uint64_t address;
    };
    const auto run = [](void* context) {
      const auto* what = static_cast<const What*>(context);
      auto* number = static_cast<float*>(what->driver.host_of(what->address, sizeof(float)));
      if (!number) return 700;
      *number += 1;
      return 0;
    };
    driver_.add_work(
        stream, run, [](void* context) { delete static_cast<What*>(context); },
        new What{driver_, reinterpret_cast<uintptr_t>(data[0])});
  }
  mutable int starts = 0;
  bool fails = false;

 private:
  const StandInCuda& driver_;
  int* told_;
};

class StretchesWithCalls : public Stretches {
 protected:
  // Four kernels that double the first number in place of others' numbers, then a call on it.
  void add_row(uint64_t n, const std::shared_ptr<AddOne>& call, int64_t offset = 0) {
    device_.enter();
    const auto address = reinterpret_cast<uintptr_t>(memory_);
    for (int i = 0; i < 4; ++i) {
      words_.set(function_, {4, 1, 1}, 32, 0, 6);
      const uint64_t values[] = {address, address, address, n, 0, 0};
      std::copy_n(values, 6, words_.parameters());
      stretches_.add(words_);
    }
    void* const data[] = {memory_ + offset};
    words_.set(*call, data, nullptr);
    stretches_.add(words_, call, [&] { call->start(data, nullptr, device_.stream()); });
  }
  float first() {
    float out = 0;
    device_.copy_out(&out, memory_, sizeof out);
    return out;
  }
  void set_first(float v) { device_.copy_in(memory_, &v, sizeof v); }
  int destroyed_ = -1;  // graphs, ahead of the call
};

TEST_F(StretchesWithCalls, StandInTheirOrder) {
  const auto call = std::make_shared<AddOne>(driver(), &destroyed_);
  float right = 1;
  set_first(right);
  for (int round = 0; round < 6; ++round) {
    add_row(1, call);
    right = 16 * right + 1;
    EXPECT_EQ(first(), right) << round;
  }
  EXPECT_EQ(call->starts, 3) << "twice in the stream, once into the graph";
  EXPECT_EQ(graphs(), 4);
  EXPECT_EQ(launches(), 8);
  EXPECT_EQ(stretches_.refusals(), 0u);
}

// What serves a call lives as long as the graph that has its kernels, and goes behind it.
TEST_F(StretchesWithCalls, LiveAsLongAsTheirGraph) {
  auto call = std::make_shared<AddOne>(driver(), &destroyed_);
  const std::weak_ptr<AddOne> alive = call;
  set_first(0);
  for (int round = 0; round < 3; ++round) {
    add_row(1, call);
    device_.synchronize();
  }
  call.reset();
  EXPECT_FALSE(alive.expired());
  EXPECT_EQ(stretches_.graphs(), 1u);
  stretches_.clear();
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(destroyed_, 1);
  // One that is in no row that is kept goes with its row.
  call = std::make_shared<AddOne>(driver(), &destroyed_);
  device_.enter();
  void* const data[] = {memory_};
  words_.set(*call, data, nullptr);
  stretches_.add(words_, call, [&] { call->start(data, nullptr, device_.stream()); });
  const std::weak_ptr<AddOne> other = call;
  call.reset();
  EXPECT_FALSE(other.expired());
  device_.synchronize();
  EXPECT_TRUE(other.expired());
}

// Another address, and another call of the same address, are no known row.
TEST_F(StretchesWithCalls, WordsTellThemApart) {
  const auto one = std::make_shared<AddOne>(driver(), &destroyed_);
  const auto other = std::make_shared<AddOne>(driver(), &destroyed_);
  set_first(0);
  for (int round = 0; round < 3; ++round) {
    add_row(1, one);
    device_.synchronize();
  }
  const int whole = graphs();
  const float before = first();
  add_row(1, one, 64);
  EXPECT_EQ(first(), 16 * before);
  add_row(1, other);
  EXPECT_EQ(first(), 256 * before + 1);
  EXPECT_EQ(graphs(), whole);
  EXPECT_EQ(other->starts, 1);
}

// What the library does not start leaves the row as it was: a kernel of ours takes its place.
TEST_F(StretchesWithCalls, OnesThatAreRefusedHaveNotCome) {
  const auto call = std::make_shared<AddOne>(driver(), &destroyed_);
  call->fails = true;
  set_first(1);
  float right = 1;
  for (int round = 0; round < 4; ++round) {
    device_.enter();
    EXPECT_THROW(add_row(1, call), Error);
    words_.set(function_, {4, 1, 1}, 32, 0, 6);
    const auto address = reinterpret_cast<uintptr_t>(memory_);
    const uint64_t values[] = {address, address, address, 1, 0, 0};
    std::copy_n(values, 6, words_.parameters());
    stretches_.add(words_);
    right *= 32;
    EXPECT_EQ(first(), right);
  }
  EXPECT_EQ(call->starts, 4) << "asked each time, in the stream";
  EXPECT_EQ(driver().calls("cuStreamBeginCapture_v2"), 0);
  // At the beginning of a row, too.
  words_.set(*call, std::span<void* const>(), nullptr);
  EXPECT_THROW(stretches_.add(words_, call, [] { throw Error(Status::kUnsupported, "", "no"); }),
               Error);
  device_.synchronize();
}

// Later it is the run's error: it has been started twice before, with the same words.
TEST_F(StretchesWithCalls, OnesThatWerePutOffMayFail) {
  const auto call = std::make_shared<AddOne>(driver(), &destroyed_);
  const auto other = std::make_shared<AddOne>(driver(), &destroyed_);
  set_first(0);
  const auto add_both = [&](int64_t offset) {
    add_row(1, call);
    void* const data[] = {memory_ + offset};
    words_.set(*other, data, nullptr);
    stretches_.add(words_, other, [&] { other->start(data, nullptr, device_.stream()); });
  };
  for (int round = 0; round < 3; ++round) {
    add_both(0);
    device_.synchronize();
  }
  call->fails = true;
  EXPECT_THROW(add_both(64), Error);
  stretches_.drop();
  call->fails = false;
  add_both(0);
  device_.synchronize();
  EXPECT_EQ(stretches_.refusals(), 0u);
}

// One that fails while it is captured leaves the row plain.
TEST_F(StretchesWithCalls, OnesThatCannotBeCapturedStayPlain) {
  const auto call = std::make_shared<AddOne>(driver(), &destroyed_);
  set_first(1);
  float right = 1;
  for (int round = 0; round < 6; ++round) {
    if (round == 2) driver().fail("cuStreamEndCapture", 1, 901);
    add_row(1, call);
    right = 16 * right + 1;
    EXPECT_EQ(first(), right) << round;
  }
  EXPECT_EQ(graphs(), 0);
  EXPECT_EQ(stretches_.refusals(), 1u);
  EXPECT_THAT(stretches_.last_refusal(), HasSubstr("cuStreamEndCapture gave"));
  EXPECT_EQ(driver().calls("cuGraphCreate"), driver().calls("cuGraphDestroy"));
}

TEST_F(Stretches, OnlySoManyAreKept) {
  for (uint64_t i = 0; i < 2000; ++i) {
    add(i % 30, i / 30);
    device_.synchronize();
    EXPECT_LE(stretches_.kept_launches(), GpuStretches::kKept);
  }
  EXPECT_EQ(stretches_.kept_launches(), 5u * 30 * 8);  // of the many that begin alike
  for (uint64_t i = 0; i < 2000; ++i) {
    add(i % 100, 0);
    device_.synchronize();
  }
  EXPECT_GE(stretches_.graphs(), 100u);
  for (uint64_t n = 0; n < 128; ++n)
    for (uint64_t last = 0; last < 8; ++last) {
      add(n, last);
      device_.synchronize();
      EXPECT_LE(stretches_.kept_launches(), GpuStretches::kKept);
    }
  stretches_.clear();
  EXPECT_EQ(stretches_.kept_launches() + stretches_.graphs(), 0u);
}

}  // namespace
}  // namespace nimble::rt
