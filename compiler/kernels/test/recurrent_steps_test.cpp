// All steps of recurrent cells, against the reference interpreter: the template of GPUs in the
// emulator, with all blocks at once and with a launch for each step, and that of CPUs.
#include "compiler/kernels/test/recurrent_cases.h"

namespace nimble::kernels {
namespace {

using ir::Dim;

Workload steps(const std::string& op, int64_t hidden, ir::Attrs attrs,
               DType weights = DType::kF32) {
  return testing::recurrent_workload(op, hidden, std::move(attrs), weights);
}

ir::Attrs reversed(bool reverse) {
  return {{"reverse", reverse}};
}
ir::Attrs gru(bool linear_before_reset, bool reverse) {
  return {{"linear_before_reset", linear_before_reset}, {"reverse", reverse}};
}

// Launches step by step while it lives.
class Apart {
 public:
  explicit Apart(bool apart) : was_(harness_mode()) {
    if (!apart) return;
    harness_mode().prepare = [](const kir::Function& f, const TargetInfo&) -> Execute {
      kir::Interpreter::Options options;
      options.apart = true;
      options.order = 7;
      const auto interpreter = std::make_shared<kir::Interpreter>(f, options);
      return [interpreter](auto buffers, auto symbols, int threads) {
        return interpreter->run(buffers, symbols, threads);
      };
    };
  }
  ~Apart() { harness_mode() = was_; }
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;

 private:
  const HarnessMode was_;
};

// No steps, one, some; no rows, fewer than a group, and what is left over of one.
constexpr std::pair<int64_t, int64_t> kSizes[] = {{0, 3}, {1, 1}, {2, 0}, {5, 2}, {3, 5}, {2, 9}};

// Every other configuration by a launch for each step.
void check_steps(const Workload& w, int configurations) {
  testing::check_recurrent_on_gpu(
      w, "gpu_recurrent_steps", configurations,
      [](ReferenceHarness& harness, const Config& c, int i) {
        const Apart apart(i % 2 == 1);
        harness.lower(c);
        if (::testing::Test::HasFatalFailure()) return;
        for (const auto& [n, batch] : kSizes) {
          harness.run({n, batch}, 1, static_cast<unsigned>(n + batch + i));
          if (::testing::Test::HasFatalFailure()) return;
        }
      });
}

TEST(GpuRecurrentSteps, Lstm) {
  for (const int64_t hidden : {1, 19, 32, 100})
    check_steps(steps("lstm_steps", hidden, reversed(hidden % 2 == 1)), hidden == 32 ? 5 : 1);
}

TEST(GpuRecurrentSteps, Gru) {
  for (const int64_t hidden : {1, 21, 40})
    check_steps(steps("gru_steps", hidden, gru(true, hidden % 2 == 0)), hidden == 40 ? 5 : 1);
}

TEST(GpuRecurrentSteps, HalfWeights) {
  for (const DType stored : {DType::kF16, DType::kBF16})
    for (const int64_t hidden : {19, 40}) {
      check_steps(steps("lstm_steps", hidden, reversed(true), stored), 1);
      check_steps(steps("gru_steps", hidden, gru(true, false), stored), 1);
    }
}

TEST(GpuRecurrentSteps, EqualStepsInOneLaunchAndInMany) {
  const TargetInfo gpu = target_by_name("sm_90a");
  ReferenceHarness harness(steps("lstm_steps", 24, reversed(false)), gpu);
  const Config c = harness.chosen()->default_config(harness.workload(), gpu);
  const Lowered lowered = harness.chosen()->lower(harness.workload(), c, gpu, "k");
  const kir::Function& f = lowered.functions.at(0);
  ASSERT_NE(kir::steps_of(f), nullptr);
  EXPECT_EQ(kir::steps_of(f)->extent, ir::max(Dim::symbol("s0"), 1));
  constexpr int64_t n = 6, b = 2, h = 24;
  std::mt19937 random(3);
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<std::vector<float>> inputs, results[2];
  for (const int64_t size : {n * b * 4 * h, b * h, b * h, h * 4 * h})
    for (auto& x : inputs.emplace_back(static_cast<size_t>(size))) x = distribution(random);
  for (const bool apart : {false, true}) {
    kir::Interpreter::Options options;
    options.apart = apart;
    auto& out = results[apart];
    for (const int64_t size : {n * b * h, b * h, b * h})
      out.emplace_back(static_cast<size_t>(size), std::nanf(""));
    std::vector<std::span<std::byte>> buffers;
    for (auto* list : {&inputs, &out})
      for (auto& v : *list) buffers.push_back(std::as_writable_bytes(std::span(v)));
    const std::vector<int64_t> symbols = {n, b};
    ASSERT_EQ(kir::Interpreter(f, options).run(buffers, symbols), 0);
  }
  EXPECT_EQ(results[0], results[1]) << "to the bit";
}

// Weights that the GPU's blocks cannot hold are read by a loop of cells.
TEST(GpuRecurrentSteps, TakesWhatIsHeldOnChip) {
  const TargetInfo gpu = target_by_name("sm_90a");
  const auto taken = [&](const Workload& w) { return template_for(w, gpu) != nullptr; };
  EXPECT_TRUE(taken(steps("lstm_steps", 1024, reversed(false))));
  EXPECT_FALSE(taken(steps("lstm_steps", 4096, reversed(false))));
  EXPECT_FALSE(taken(steps("gru_steps", 64, gru(false, false))));
}

TEST(GpuRecurrentSteps, ShapesThatABlockCannotHaveAreNotValid) {
  testing::expect_refuses_shapes_of_no_block("gpu_recurrent_steps",
                                             steps("lstm_steps", 19, reversed(false)));
}

TEST(RecurrentSteps, OfCpus) {
  for (const char* level : {"x86-64-v3", "portable"})
    for (const auto& w :
         {steps("lstm_steps", 19, reversed(true)), steps("lstm_steps", 64, reversed(false)),
          steps("gru_steps", 21, gru(true, true)), steps("gru_steps", 16, gru(false, false)),
          steps("lstm_steps", 16, reversed(true), DType::kBF16)}) {
      ReferenceHarness harness(w, target_by_name(level));
      ASSERT_NE(harness.chosen(), nullptr);
      ASSERT_EQ(harness.chosen()->name(), "recurrent_steps");
      harness.lower(harness.chosen()->default_config(harness.workload(), target_by_name(level)));
      if (::testing::Test::HasFatalFailure()) return;
      for (const auto& [n, batch] : kSizes)
        for (const int threads : {1, 3}) {
          harness.run({n, batch}, threads, static_cast<unsigned>(n + batch));
          if (::testing::Test::HasFatalFailure()) return;
        }
    }
}

}  // namespace
}  // namespace nimble::kernels
