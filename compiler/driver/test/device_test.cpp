// Device placement end to end: every program runs compiled for the stand-in device; copies that are
// missing fail, and there are no more than there must be.
#include "vm/runtime/device.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "compiler/driver/test/copies.h"
#include "compiler/driver/test/harness.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/device_number.h"

namespace nimble::driver::testing {
namespace {

Configuration stand_in() {
  Configuration c{"for_the_stand_in"};
  c.device = kStandInDevice;
  return c;
}

class OnTheStandIn : public ::testing::TestWithParam<Program> {};

TEST_P(OnTheStandIn, AgreesWithTheReference) {
  check_program(GetParam(), stand_in(), 2);
}

INSTANTIATE_TEST_SUITE_P(Program, OnTheStandIn, ::testing::ValuesIn(all_programs()),
                         [](const auto& info) { return info.param.name; });

const Program& program(const std::string& name) {
  for (const Program& p : all_programs())
    if (p.name == name) return p;
  throw std::runtime_error("no program " + name);
}

exec::Executable compiled(const std::string& text, int32_t device,
                          CompileReport* report = nullptr) {
  Configuration c{"placed"};
  c.device = device;
  return driver::compile(ir::parse_module(text), options_of(c), report);
}

// The copies that a run at some sizes makes, by direction.
struct Copies {
  int64_t in = 0, out = 0;
  uint64_t bytes = 0;
};
Copies copies_of_run(const std::string& text, const Sizes& sizes, int32_t device = kStandInDevice,
                     const Program& ranges = {}) {
  auto model = load(compiled(text, device));
  rt::SessionOptions options;
  options.threads = 1;
  options.profile = true;
  rt::Session session(model, options);
  const ir::Module m = ir::parse_module(text);
  run_session(session, "main", random_inputs(ranges, *m.find("main"), sizes, 1));
  Copies c;
  const auto profile = nlohmann::json::parse(session.profiler().json(model->executable()));
  for (const auto& row : profile["copies"]) {
    (row["to"] == "cpu" ? c.out : c.in) += row["count"].get<int64_t>();
    c.bytes += row["bytes"].get<uint64_t>();
  }
  return c;
}

// --- missing copies: a module after placement loses one, and goes the rest of the way

std::vector<std::string> passes_until_placement(bool after) {
  const std::vector<std::string>& all = passes::default_pipeline();
  const auto at = std::find(all.begin(), all.end(), "place-devices") + 1;
  return after ? std::vector<std::string>(at, all.end())
               : std::vector<std::string>(all.begin(), at);
}

ir::Module placed(const std::string& text, int32_t device) {
  passes::PassContext context;
  context.target = kernels::target_by_name("native");
  context.device = device;
  passes::PipelineOptions options;
  options.passes = passes_until_placement(false);
  return passes::run_pipeline(ir::infer_types(ir::parse_module(text)), context, options);
}

// Nothing if there is no copy number k.
std::optional<ir::Module> without_copy(const ir::Module& m, size_t k) {
  size_t seen = 0;
  ir::Module out = passes::rewrite_module(
      m, [&](const ir::Binding& b, ir::BlockBuilder&) -> std::optional<ir::Atom> {
        if (b.value->op != "device_copy" || b.value->args[0].is_constant() || seen++ != k)
          return std::nullopt;
        return b.value->args[0];
      });
  if (seen <= k) return std::nullopt;
  return out;
}

exec::Executable finished(const ir::Module& m) {
  CompileOptions options = options_of({"placed"});
  options.pipeline.passes = passes_until_placement(true);
  options.pipeline.verify = false;  // it would not let the module through
  options.optimize = 0;
  return driver::compile(m, options);
}

std::vector<ir::TensorRef> run_once(const exec::Executable& e,
                                    const std::vector<ir::TensorRef>& inputs) {
  rt::SessionOptions options;
  options.threads = 1;
  rt::Session session(load(e), options);
  return run_session(session, "main", inputs);
}

// Each copy is taken away in turn. The IR verifier sees it, unless it is inside of what it does not
// follow; what is compiled nonetheless is refused when it is loaded or fails when it runs, with
// both devices named.
TEST(MissingCopies, FailCleanly) {
  size_t at_verification = 0, at_load = 0, at_run = 0;
  for (const char* name :
       {"device_there_and_back", "device_alternating", "device_loop_invariant", "device_branches",
        "device_tuple", "device_condition", "device_rows", "lstm", "halt_on_data", "tuple_state"}) {
    SCOPED_TRACE(name);
    const Program& p = program(name);
    const ir::Module whole = placed(p.text, kStandInDevice);
    ASSERT_TRUE(ir::verify(whole).empty()) << ir::verify(whole)[0];
    Sizes sizes;
    for (const std::string& n : symbols_of(*whole.find("main"))) sizes[n] = 3;
    for (size_t k = 0;; ++k) {
      SCOPED_TRACE(k);
      const std::optional<ir::Module> m = without_copy(whole, k);
      if (!m) {
        EXPECT_GT(k, 0u) << "there was no copy at all";
        break;
      }
      const std::vector<std::string> faults = ir::verify(*m);
      at_verification += !faults.empty() && faults[0].find("V15") != std::string::npos;
      std::string said;
      try {
        const exec::Executable e = finished(*m);
        // Both sides of a branch, so several inputs.
        for (unsigned seed = 1; seed <= 8; ++seed)
          run_once(e, random_inputs(p, *whole.find("main"), sizes, seed));
      } catch (const Error& error) {
        said = error.what();
      }
      const bool by_verifier = said.find("rule R21") != std::string::npos;
      const bool by_machine = said.find("on device 0 (cpu)") != std::string::npos &&
                              said.find("device 1 (stand-in)") != std::string::npos;
      EXPECT_TRUE(by_verifier || by_machine) << said;
      at_load += by_verifier;
      at_run += by_machine;
    }
  }
  EXPECT_GT(at_verification, 15u);
  EXPECT_GT(at_load, 0u);
  EXPECT_GT(at_run, 15u);
}

// The same without the checks: the host's first touch of the stand-in's memory is its last.
TEST(MissingCopiesDeathTest, FaultWithoutTheChecks) {
  const ir::Module whole =
      placed("fn @main(%x: Tensor[(n), f32]) { let %y = exp(%x); %y }", kStandInDevice);
  const std::optional<ir::Module> no_copy_back = without_copy(whole, 1);
  ASSERT_TRUE(no_copy_back);
  const exec::Executable e = finished(*no_copy_back);
  const ir::TensorRef x = ir::Tensor::of<float>(DType::kF32, {2}, {1, 2});
  EXPECT_THROW(run_once(e, {x}), Error);
  EXPECT_DEATH(
      {
        rt::set_device_checks(false);
        run_once(e, {x});
      },
      "");
}

// --- how many copies

int64_t inserted(const std::string& text, int32_t device) {
  CompileReport report;
  compiled(text, device, &report);
  return report.statistics["place-devices.copies"];
}

constexpr const char* kLayers = R"(fn @main(%x: Tensor[(n, 8), f32]) {
  let %w = range() {count = 64, start = 0, step = 1, dtype = f32};
  let %s = sin(%w);
  let %m = reshape(%s) {shape = (8, 8)};
  let %a = matmul(%x, %m);
  let %b = gelu(%a);
  let %c = softmax(%b) {axis = 1};
  let %d = add(%c, %x);
  let %e = matmul(%d, %m);
  let %f = layer_norm(%e, f32[8]{1, 1, 1, 1, 1, 1, 1, 1}, f32[8]{0, 0, 0, 0, 0, 0, 0, 0}) {epsilon = 1e-5, axis = 1};
  %f
})";

TEST(Copies, AGraphHasItsInputsAndOutputs) {
  EXPECT_EQ(inserted(kLayers, kCpuDevice), 0);
  EXPECT_EQ(inserted(kLayers, kStandInDevice), 2);
  const Copies c = copies_of_run(kLayers, {{"n", 5}});
  EXPECT_EQ(c.in, 1);
  EXPECT_EQ(c.out, 1);
  EXPECT_EQ(c.bytes, 2u * 5 * 8 * 4);
}

TEST(Copies, ExecutablesForTheCpuAreAsBefore) {
  const exec::Executable e = compiled(kLayers, kCpuDevice);
  EXPECT_EQ(copies_in(e), 0u);
  for (const exec::Kernel& k : e.kernels) EXPECT_EQ(k.device, kCpuDevice);
}

TEST(Copies, AnLstmHasNoneInItsLoop) {
  for (int64_t n : {1, 7, 30}) {
    const Copies c = copies_of_run(program("lstm").text, {{"n", n}});
    EXPECT_EQ(c.in, 1) << n;
    EXPECT_EQ(c.out, 1) << n;
  }
}

TEST(Copies, RecursionHasNone) {
  const Program& p = program("recursion");
  const Copies c = copies_of_run(p.text, {{"n", 4}}, kStandInDevice, p);
  EXPECT_EQ(c.in, 1);
  EXPECT_EQ(c.out, 1);
}

// In: x. Between five layers four borders. Out: the last lies there.
TEST(Copies, AnAlternatingProgramHasItsBorders) {
  for (int32_t device : {kCpuDevice, kStandInDevice}) {
    const Copies c =
        copies_of_run(program("device_alternating").text, {{"n", 3}, {"m", 4}}, device);
    EXPECT_EQ(c.in, 3);
    EXPECT_EQ(c.out, 3);
  }
}

TEST(Copies, AnAnnotationMovesTheWholeChain) {
  const Copies c =
      copies_of_run(program("device_annotated").text, {{"n", 3}, {"m", 4}}, kCpuDevice);
  EXPECT_EQ(c.in, 1);
  EXPECT_EQ(c.out, 1);
}

// Per step the state crosses twice; the matrix is copied once, ahead of the loop.
TEST(Copies, LoopInvariantOnesLeaveTheLoop) {
  const std::string& text = program("device_loop_invariant").text;
  CompileReport report;
  compiled(text, kCpuDevice, &report);
  EXPECT_EQ(report.statistics["place-devices.hoisted"], 1);
  const Copies c = copies_of_run(text, {{"n", 3}}, kCpuDevice);
  EXPECT_EQ(c.in, 4 + 1);
  EXPECT_LE(c.out, 4 + 1);

  const Copies asked = copies_of_run(program("device_copy_in_loop").text, {{"n", 3}}, kCpuDevice);
  EXPECT_EQ(asked.in, 2);  // w, and x, which is multiplied with it
  EXPECT_EQ(asked.out, 1);
}

// Each step asks the device for one bool.
TEST(Copies, AConditionIsAllThatComesBackInALoop) {
  const std::string& text = program("halt_on_data").text;
  const Copies c = copies_of_run(text, {{"n", 1000}}, kStandInDevice, program("halt_on_data"));
  EXPECT_EQ(c.in, 1);
  EXPECT_LE(c.bytes, 2u * 4000 + 60);
}

// A branch that nobody takes costs nothing.
TEST(Copies, OnlyTheBranchThatNeedsItMakesIt) {
  const char* text = R"(fn @there(%x: Tensor[(k), f32]) -> Tensor[(k), f32] attrs {device = 1} {
  let %y = exp(%x);
  %y
}
fn @main(%x: Tensor[(n), f32]) {
  let %n = size() {value = n};
  let %p = greater(%n, 3i64);
  let %s = sum(%x) {axes = [0], keepdims = true};
  let %here = on_device(%s) {device = 0};
  let %a = if (%p) { let %t = @there(%here); let %u = device_copy(%t) {device = 0, from = 1}; %u } else { %here };
  %a
})";
  Copies taken = copies_of_run(text, {{"n", 4}}, kCpuDevice);
  EXPECT_EQ(taken.in + taken.out, 2);
  Copies other = copies_of_run(text, {{"n", 3}}, kCpuDevice);
  EXPECT_EQ(other.in + other.out, 0);
}

TEST(Placement, UnknownDevicesAreTheUsersFault) {
  for (const char* text :
       {"fn @main(%x: Tensor[(n), f32]) attrs {device = 7} { let %y = exp(%x); %y }",
        "fn @main(%x: Tensor[(n), f32]) { let %y = on_device(%x) {device = 7}; %y }",
        "fn @main(%x: Tensor[(n), f32]) { let %y = device_copy(%x) {device = 1, from = 7}; %y }"}) {
    try {
      compiled(text, kCpuDevice);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kInvalidArgument) << e.what();
      EXPECT_NE(std::string(e.what()).find("there is no device 7"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("1 (stand-in)"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace nimble::driver::testing
