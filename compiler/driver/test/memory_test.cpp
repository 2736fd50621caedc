// What compiled programs take from the system: nothing in a loop's steady state, little more than
// the largest single need under changing shapes, never more than the limit; and what growing a
// tensor row by row copies.
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "compiler/driver/test/harness.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"
#include "vm/runtime/storage_pool.h"

namespace nimble::driver::testing {
namespace {

using ir::Tensor;

ir::TensorRef filled(std::vector<int64_t> shape, float value = 0.25f) {
  int64_t count = 1;
  for (int64_t d : shape) count *= d;
  return Tensor::of<float>(DType::kF32, std::move(shape),
                           std::vector<float>(static_cast<size_t>(count), value));
}

struct Loaded {
  explicit Loaded(const ir::Module& m, const Configuration& c = {"default"}) {
    CompileReport report;
    model = load(driver::compile(m, options_of(c), &report), c);
    statistics = report.statistics;
  }
  std::unique_ptr<rt::Session> session(uint64_t limit = 0, bool profile = false) const {
    rt::SessionOptions o;
    o.threads = 1;
    o.memory_limit = limit;
    o.profile = profile;
    return std::make_unique<rt::Session>(model, o);
  }
  int64_t count(const std::string& what) const {
    auto it = statistics.find(what);
    return it == statistics.end() ? 0 : it->second;
  }
  std::shared_ptr<const rt::Model> model;
  std::map<std::string, int64_t> statistics;
};

uint64_t misses(const rt::Session& s) {
  return s.memory().allocations - s.memory().reuses;
}

// h, c: the state of a recurrent loop; a row of y is written at each step.
const char* const kRecurrent = R"(
fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, 8), f32], %h: Tensor[(8), f32], %c: Tensor[(8), f32], %y: Tensor[(n, 8), f32]) -> Tensor[(n, 8), f32] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %row = take_row(%x, %i);
    let %gate = softmax(%row) {axis = 0};
    let %kept = mul(%c, %gate);
    let %c2 = add(%kept, %row);
    let %t = softmax(%c2) {axis = 0};
    let %h2 = mul(%t, %h);
    let %y2 = write_row(%y, %i, %h2);
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %x, %h2, %c2, %y2);
    %u
  } else { %y };
  %r
}
fn @main(%x: Tensor[(n, 8), f32]) {
  let %h = full() {shape = (8), dtype = f32, value = 1.0};
  let %one = sum(%x) {axes = [0], keepdims = false};
  let %s = add(%one, %h);
  let %c = exp(%one);
  let %y = full() {shape = (n, 8), dtype = f32, value = 0.0};
  let %r = @loop(0i64, %x, %s, %c, %y);
  %r
})";

TEST(Memory, ALoopsSteadyStateAllocatesNothing) {
  const Loaded p(ir::parse_module(kRecurrent));
  auto session = p.session();
  // The steps after the first two find every block on the pool's lists.
  run_session(*session, "main", {filled({2, 8})});
  const uint64_t first = misses(*session);
  for (int64_t n : {3, 50}) {
    const uint64_t before = misses(*session);
    run_session(*session, "main", {filled({n, 8})});
    EXPECT_LE(misses(*session) - before, 2u) << n;  // the results of this length
  }
  EXPECT_GT(first, 2u);
  // The same shape again: nothing at all.
  const uint64_t before = misses(*session), reserved = session->memory().reserved;
  for (int i = 0; i < 10; ++i) run_session(*session, "main", {filled({50, 8})});
  EXPECT_EQ(misses(*session), before);
  EXPECT_EQ(session->memory().reserved, reserved);
}

TEST(Memory, TheSteadyLoopStaysRight) {
  Program p{"recurrent", kRecurrent, {-1, 1}};
  p.sizes = {{{"n", 0}}, {{"n", 1}}, {{"n", 2}}, {{"n", 17}}};
  for (const char* disabled : {"", "update-in-place", "plan-memory"}) {
    Configuration c{"default"};
    c.disabled_pass = disabled;
    check_program(p, c, 4);
  }
}

TEST(Memory, ElementwiseGroupsOverwriteDeadOperands) {
  const char* text = R"(fn @main(%x: Tensor[(n, 4), f32]) {
  let %a = softmax(%x) {axis = 0};
  let %s = matmul(%a, %a) {transpose_a = true};
  let %b = exp(%a);
  let %c = matmul(%b, %s);
  let %d = softmax(%c) {axis = 0};
  %d
})";
  const Loaded with(ir::parse_module(text));
  EXPECT_GE(with.count("update-in-place.tensors"), 1);
  Configuration off{"default"};
  off.disabled_pass = "update-in-place";
  const Loaded without(ir::parse_module(text), off);
  EXPECT_EQ(without.count("update-in-place.tensors"), 0);
  auto a = with.session(), b = without.session();
  const ir::TensorRef x = filled({1000, 4});
  expect_close(run_session(*a, "main", {x}), run_session(*b, "main", {x}), 1e-6);
}

// ---------------------------------------------------------------- growing tensors

const char* const kGrowing = R"(
fn @loop(%i: Tensor[(), i64], %k: Tensor[(), i64], %y: Tensor[(?, m), f32], %v: Tensor[(m), f32]) -> Tensor[(?, m), f32] {
  let %more = less(%i, %k);
  let %r = if (%more) {
    let %row = unsqueeze(%v) {axes = [0]};
    let %y2 = concat(%y, %row) {axis = 0};
    let %w = add(%v, 1.0f32);
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %k, %y2, %w);
    %u
  } else { %y };
  %r
}
fn @main(%k: Tensor[(), i64], %v: Tensor[(m), f32]) {
  let %y = full() {shape = (1, m), dtype = f32, value = 7.0};
  let %r = @loop(0i64, %k, %y, %v);
  let %e = neg(%r);
  %e
})";

// Elements that kernels wrote, each call counted with its extents.
int64_t elements_copied(const rt::Session& s, const rt::Model& m) {
  int64_t out = 0;
  const auto profile = nlohmann::json::parse(s.profiler().json(m.executable()));
  for (const auto& k : profile["kernels"]) {
    int64_t elements = 1;
    for (const auto& [symbol, extent] : k["shape"].items()) elements *= extent.get<int64_t>();
    out += elements * k["count"].get<int64_t>();
  }
  return out;
}

TEST(Memory, AppendingRowsCopiesLinearlyMuch) {
  const Loaded p(ir::parse_module(kGrowing));
  EXPECT_EQ(p.count("grow-tensors.appends"), 1);
  EXPECT_EQ(p.count("lower-memory.grown"), 1);
  constexpr int64_t kSteps = 10000, kWidth = 3;
  auto session = p.session(0, true);
  const auto out =
      run_session(*session, "main", {Tensor::scalar_i64(kSteps), filled({kWidth}, 0.5f)});
  ASSERT_EQ(out[0]->shape, (std::vector<int64_t>{kSteps + 1, kWidth}));
  EXPECT_EQ(out[0]->value(0), -7);
  for (int64_t i = 0; i < kSteps; ++i)
    for (int64_t k = 0; k < kWidth; ++k)
      ASSERT_EQ(out[0]->value((i + 1) * kWidth + k), -(0.5 + static_cast<double>(i))) << i;
  // Each step makes a row and writes it; moves add up to less than twice the result, and the last
  // kernel reads all. Copying at each step would take kSteps * kSteps / 2 * kWidth.
  EXPECT_LE(elements_copied(*session, *p.model), 8 * kSteps * kWidth);
  // A doubled block, the one before it, and the result.
  EXPECT_LE(session->memory().peak, 4 * (kSteps + 1) * kWidth * sizeof(float) + (256 << 10));
}

TEST(Memory, WithoutThePassEachStepCopiesAll) {
  Configuration off{"default"};
  off.disabled_pass = "grow-tensors";
  const Loaded p(ir::parse_module(kGrowing), off);
  auto session = p.session(0, true);
  run_session(*session, "main", {Tensor::scalar_i64(500), filled({3})});
  EXPECT_GE(elements_copied(*session, *p.model), 500 * 500 / 2 * 3);
}

TEST(Memory, GrowingTensorsEqualTheReference) {
  Program p{"growing", kGrowing, {-1, 1}};
  p.special = {{"k", {0, 40}}};
  p.sizes = {{{"m", 0}}, {{"m", 1}}, {{"m", 5}}, {{"m", 17}}};
  check_program(p, {"default"}, 4);
  // The caller keeps what the loop is given: the first append must not write into it.
  Program kept{"kept",
               std::string(kGrowing).replace(std::string(kGrowing).find("let %e = neg(%r);"), 17,
                                             "let %s = (%r, %y);"),
               {-1, 1}};
  kept.text.replace(kept.text.rfind("%e"), 2, "%s");
  kept.special = {{"k", {0, 9}}};
  kept.sizes = p.sizes;
  check_program(kept, {"default"}, 4);
}

// ---------------------------------------------------------------- branches

// What the branch that is not taken would need is beyond 64 bits, or beyond the machine.
TEST(Memory, ABranchThatIsNotTakenNeedsNothing) {
  for (const char* shape : {"(n, n, n, n)", "(n, n)", "(1000000000000*n, 1)"}) {
    std::string text =
        R"(fn @main(%x: Tensor[(n), f32], %y: Tensor[(m), f32], %i: Tensor[(), i64]) {
  let %c = less(%i, 1i64);
  let %r = if (%c) {
    let %f = full() {dtype = f32, shape = SHAPE, value = 1.0};
    let %g = softmax(%f) {axis = 0};
    let %s = sum(%g) {axes = [0], keepdims = false};
    let %u = reshape(%s) {shape = (-1)};
    %u
  } else {
    let %f = expand(%y) {shape = (m, m)};
    let %g = softmax(%f) {axis = 0};
    let %t = sum(%g) {axes = [0], keepdims = false};
    %t
  };
  %r
})";
    text.replace(text.find("SHAPE"), 5, shape);
    for (const char* pass : {"", "plan-memory"}) {
      Configuration c{"default"};
      c.disabled_pass = pass;
      const Loaded p(ir::parse_module(text), c);
      auto session = p.session(uint64_t{64} << 20);
      const auto out =
          run_session(*session, "main", {filled({4'000'000}), filled({3}), Tensor::scalar_i64(3)});
      ASSERT_EQ(out[0]->shape, (std::vector<int64_t>{3}));
      EXPECT_EQ(out[0]->value(0), 1);
      EXPECT_LE(session->memory().peak, uint64_t{20} << 20);
    }
  }
}

// ---------------------------------------------------------------- changing shapes

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * 4096;
}

// What the C++ library, the thread pool and the test itself may take besides.
constexpr int64_t kElsewhere = 2 << 20;

// What a session takes for the VM's objects before it runs.
constexpr uint64_t kObjects = 64 << 10;

struct Churn {
  const Loaded& program;
  std::function<std::vector<ir::TensorRef>(std::mt19937&)> inputs;
  int runs = 1000;

  // The most that was live in any single run, each in a session of its own.
  uint64_t need = 0;

  void check() {
    std::mt19937 random(17);
    auto session = program.session();
    [[maybe_unused]] const int64_t before = resident_bytes();
    for (int run = 0; run < runs; ++run) {
      const std::vector<ir::TensorRef> in = inputs(random);
      {
        auto alone = program.session();
        run_session(*alone, "main", in);
        need = std::max(need, alone->memory().peak);
      }
      run_session(*session, "main", in);
      ASSERT_LE(static_cast<double>(session->memory().reserved),
                std::max(1.2 * static_cast<double>(need),
                         static_cast<double>(rt::StoragePool::kAlwaysKept)))
          << "run " << run;
    }
#if !defined(__SANITIZE_ADDRESS__)  // which keeps what was freed, for a while
    EXPECT_LE(static_cast<double>(resident_bytes() - before),
              1.2 * static_cast<double>(need) + static_cast<double>(kElsewhere));
#endif
    // The same under a limit: never above it.
    const auto limit = static_cast<uint64_t>(1.3 * static_cast<double>(need));
    auto limited = program.session(limit);
    for (int run = 0; run < runs / 5; ++run) {
      run_session(*limited, "main", inputs(random));
      ASSERT_LE(limited->memory().reserved, limit);
    }
    // Too low a limit says so, and the session goes on.
    const uint64_t low = kObjects + (need - kObjects) / 2;
    auto tight = program.session(low);
    int failed = 0;
    for (int run = 0; run < runs / 5; ++run) {
      try {
        run_session(*tight, "main", inputs(random));
      } catch (const Error& e) {
        ++failed;
        EXPECT_EQ(e.status(), Status::kExhausted) << e.what();
        EXPECT_NE(e.problem().find("more are needed"), std::string::npos) << e.what();
        EXPECT_NE(e.remedy().find("raise the limit to at least"), std::string::npos);
      }
      ASSERT_LE(tight->memory().reserved, low);
    }
    EXPECT_GT(failed, 0);
    EXPECT_LT(failed, runs / 5);
  }
};

TEST(Memory, AThousandShapesOfAGraphHoldLittleMoreThanTheLargest) {
  const Loaded p(ir::parse_module(R"(fn @main(%x: Tensor[(n, m), f32], %w: Tensor[(m, 64), f32]) {
  let %a = matmul(%x, %w);
  let %b = softmax(%a) {axis = 1};
  let %c = matmul(%b, %b) {transpose_b = true};
  let %d = softmax(%c) {axis = 1};
  let %e = matmul(%d, %b);
  let %f = softmax(%e) {axis = 0};
  %f
})"));
  Churn churn{p, [](std::mt19937& random) {
                const auto n = static_cast<int64_t>(1 + random() % 700);
                const auto m = static_cast<int64_t>(1 + random() % 40);
                return std::vector<ir::TensorRef>{filled({n, m}), filled({m, 64})};
              }};
  churn.check();
}

// The recorded transformer of the importer's tests has MiniLM's structure at a small width.
TEST(Memory, AThousandLengthsOfATransformerHoldLittleMoreThanTheLargest) {
  const std::filesystem::path folder =
      std::filesystem::path(NIMBLE_SOURCE_DIR) / "compiler/frontend/test/data/tiny_bert";
  const Loaded p(frontend::import_model(folder.string()));
  const exec::EntryPoint& entry = p.model->executable().entries.at(0);
  Churn churn{p, [&entry](std::mt19937& random) {
                const auto n = static_cast<int64_t>(1 + random() % 64);
                std::vector<ir::TensorRef> in;
                for (const exec::Port& port : entry.inputs) {
                  const int64_t value = port.name == "attention_mask" ? 1 : 0;
                  in.push_back(Tensor::of<int64_t>(
                      DType::kI64, {1, n}, std::vector<int64_t>(static_cast<size_t>(n), value)));
                }
                return in;
              }};
  churn.check();
}

}  // namespace
}  // namespace nimble::driver::testing
