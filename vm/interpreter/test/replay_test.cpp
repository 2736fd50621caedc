// A replay computes what the run computed, from memory of its own.
#include "vm/interpreter/replay.h"

#include <cstring>

#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// (x + w) + (x + w) + x, the last sum in the storage of the first, whose life has ended.
constexpr char kChain[] = R"(
constant "w" f32 [3] { 10, 20, 30 }
function "main" 1 9 {
  LoadConst r1, c"w"
  ShapeOf r2, 1, r0
  Invoke r3, f"bytes", (r2)
  AllocStorage r6, r3, 64, d0
  AllocStorage r7, r3, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r6, r4, f32, (r2)
  InvokePacked k"add", (r0, r1, r5)
  AllocTensorReg r8, r7, r4, f32, (r2)
  InvokePacked k"add", (r5, r5, r8)
  AllocTensorReg r5, r6, r4, f32, (r2)
  InvokePacked k"add", (r8, r0, r5)
  Ret r5
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)";

class Replay : public Interpreter {
 protected:
  // Logs the last of three runs on `x_`.
  void log_a_run() {
    for (int i = 0; i < 3; ++i) {
      session_->set_profiling(i == 2);
      session_->record_kernels(i == 2 ? &log_ : nullptr);
      run_once();
    }
    session_->record_kernels(nullptr);
    session_->set_profiling(false);
  }
  void run_once() {
    const std::vector<int64_t> shape = {static_cast<int64_t>(x_.size())};
    const InputTensor in{x_.data(), DType::kF32, shape, {}, true};
    session_->run(0, {&in, 1}, {&out_, 1});
  }
  std::vector<float> result(const KernelReplay& replay) const {
    const uint8_t* data = replay.at(out_.data);
    if (!data) return {};
    std::vector<float> y(x_.size());
    std::memcpy(y.data(), data, y.size() * sizeof(float));
    return y;
  }

  std::vector<float> x_ = {1, 2, 3};
  OutputTensor out_;
  KernelLog log_;
};

TEST_F(Replay, ComputesWhatTheRunDid) {
  load(std::string(kAddKernel) + kChain);
  log_a_run();
  EXPECT_EQ(log_.size(), 3u);
  KernelReplay replay(log_, session_->pool());
  EXPECT_THAT(result(replay), ElementsAre(0, 0, 0));
  replay.run();
  EXPECT_THAT(result(replay), ElementsAre(23, 46, 69));
  EXPECT_THAT(
      std::vector<float>(static_cast<float*>(out_.data), static_cast<float*>(out_.data) + 3),
      ElementsAre(23, 46, 69));
}

// Inputs stay where they are: what is written into them counts. All else is the replay's.
TEST_F(Replay, HasMemoryOfItsOwn) {
  load(std::string(kAddKernel) + kChain);
  log_a_run();
  KernelReplay replay(log_, session_->pool());
  x_ = {2, 2, 2};
  replay.run();
  EXPECT_THAT(result(replay), ElementsAre(26, 46, 66));
  EXPECT_FLOAT_EQ(static_cast<float*>(out_.data)[0], 23);
  const uint8_t* const place = replay.at(out_.data);
  out_.release();
  session_->trim();
  replay.run();
  EXPECT_FLOAT_EQ(reinterpret_cast<const float*>(place)[2], 66);
  EXPECT_EQ(replay.at(x_.data()), nullptr);
}

// A default input is written by no kernel.
TEST_F(Replay, KeepsWhatNoKernelWrote) {
  std::string text = std::string(kAddKernel) + kAddModel;
  text.replace(text.find("input \"x\""), 9,
               "input \"m\" f32 [\"n\"] [-1] default \"ones\"\n  input \"x\"");
  text.replace(text.find("function \"main\" 1 6"), 19, "function \"main\" 2 7");
  text.replace(text.find("LoadConst r1, c\"w\""), 18, "Move r6, r1");
  text.replace(text.find("(r0, r1, r5)"), 12, "(r0, r6, r5)");
  load(text);
  const std::vector<int64_t> shape = {3};
  const InputTensor in[2] = {{}, {x_.data(), DType::kF32, shape, {}, true}};
  session_->set_profiling(true);
  session_->record_kernels(&log_);
  session_->run(0, in, {&out_, 1});
  session_->record_kernels(nullptr);
  session_->trim();
  KernelReplay replay(log_, session_->pool());
  replay.run();
  EXPECT_THAT(result(replay), ElementsAre(2, 3, 4));
}

TEST_F(Replay, OfNothingIsNothing) {
  load(std::string(kAddKernel) + kChain);
  KernelReplay replay(log_, session_->pool());
  replay.run();
  EXPECT_EQ(replay.bytes(), 0u);
  run_once();
  EXPECT_EQ(replay.at(out_.data), nullptr);
}

TEST_F(Replay, RefusesValuesOfDataTypes) {
  PreparedKernel kernel;
  exec::Kernel named;
  named.name = "k";
  kernel.kernel = &named;
  kernel.device = &device(kCpuDevice);
  kernel.uses_scratch = false;
  kernel.targets.push_back({});
  KernelFrame frame;
  const Value nothing;
  try {
    log_.add(kernel, {&nothing, 1}, frame, {0, 1});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("k: it takes a value of a data type"));
  }
  kernel.targets[0].portable = true;
  EXPECT_THROW(log_.add(kernel, {}, frame, {0, 1}), Error);
  EXPECT_EQ(log_.size(), 0u);
}

}  // namespace
}  // namespace nimble::rt
