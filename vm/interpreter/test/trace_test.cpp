// What a trace tells of a run, and what it costs where nobody asked for one: nothing is kept.
#include "vm/interpreter/trace.h"

#include <nlohmann/json.hpp>

#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// y = x + 2 * w: a loop of two turns, as calls in tail position, each of which adds by a kernel.
constexpr char kLoop[] = R"(
constant "w" f32 [3] { 10, 20, 30 }
scalar "minus" [a0 1 -]
function "main" 1 3 {
  LoadConsti r1, 2
  Invoke r2, f"turn", (r0, r1)
  Move r1, r2
  Ret r1
}
function "turn" 2 8 {
  If r1, @more, @done
more:
  .origin "loop at /Loop"
  .note "add at /Loop/Add"
  LoadConst r2, c"w"
  ShapeOf r3, 1, r0
  Invoke r4, f"bytes", (r3)
  AllocStorage r4, r4, 64, d0
  LoadConsti r5, 0
  AllocTensorReg r5, r4, r5, f32, (r3)
  InvokePacked k"add", (r0, r2, r5)
  Invoke r1, f"minus", (r1)
  Invoke r6, f"turn", (r5, r1)
  Ret r6
done:
  Ret r0
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)";

class TraceTest : public Interpreter {
 protected:
  json traced(size_t limit, int runs = 1) {
    SessionOptions options;
    options.trace = limit;
    load(std::string(kAddKernel) + kLoop, options);
    for (int i = 0; i < runs; ++i)
      EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(21, 42, 63));
    return json::parse(session_->profiler().trace_json(model_->executable()));
  }
  static std::vector<json> of(const json& trace, const char* category) {
    std::vector<json> found;
    for (const json& e : trace.at("traceEvents"))
      if (e.value("cat", "") == category) found.push_back(e);
    return found;
  }
  static std::vector<std::string> names(const std::vector<json>& events) {
    std::vector<std::string> all;
    for (const json& e : events) all.push_back(e.at("name"));
    return all;
  }
  static bool holds(const json& outer, const json& inner) {
    const double begin = outer.at("ts"), end = begin + outer.at("dur").get<double>();
    const double from = inner.at("ts"), to = from + inner.at("dur").get<double>();
    return from >= begin - 1e-6 && to <= end + 1e-6;
  }
};

TEST_F(TraceTest, HasEachCallTurnInstructionAndKernelInOrder) {
  const json trace = traced(1000);
  // Three turns: that of 2, of 1, and the last one, of 0, which only returns.
  const std::vector<json> functions = of(trace, "function");
  EXPECT_THAT(names(functions), ElementsAre("main", "turn", "turn", "turn"));
  EXPECT_EQ(functions[0].at("args").at("depth"), 1);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(functions[i].at("args").at("depth"), 2);
    EXPECT_TRUE(holds(functions[0], functions[i]));
  }
  EXPECT_EQ(functions[1].at("args").at("source"), "loop at /Loop");

  const std::vector<json> instructions = of(trace, "instruction");
  const std::vector<std::string> turn = {
      "If",         "LoadConst",      "ShapeOf",      "Invoke", "AllocStorage",
      "LoadConsti", "AllocTensorReg", "InvokePacked", "Invoke", "Invoke"};
  std::vector<std::string> expected = {"LoadConsti", "Invoke"};
  for (int i = 0; i < 2; ++i) expected.insert(expected.end(), turn.begin(), turn.end());
  for (const char* last : {"If", "Ret", "Move", "Ret"}) expected.emplace_back(last);
  EXPECT_EQ(names(instructions), expected);
  EXPECT_EQ(trace.at("otherData").at("instructions"), instructions.size());
  EXPECT_EQ(trace.at("otherData").at("dropped_instructions"), 0);
  double last = 0;
  for (const json& e : instructions) {
    EXPECT_GE(e.at("ts").get<double>(), last);
    last = e.at("ts").get<double>() + e.at("dur").get<double>() - 1e-6;
  }

  const std::vector<json> kernels = of(trace, "kernel");
  ASSERT_THAT(names(kernels), ElementsAre("add", "add"));
  EXPECT_EQ(kernels[0].at("args").at("shape"), json({{"n", 3}}));
  EXPECT_EQ(kernels[0].at("args").at("implementation"), "test.add");
  for (const json& e : instructions)
    if (e.at("name") == "InvokePacked") {
      EXPECT_EQ(e.at("args").at("kernel"), "add");
      EXPECT_EQ(e.at("args").at("arguments"), "f32 (3), f32 (3), f32 (3)");
      EXPECT_EQ(e.at("args").at("source"), "add at /Loop/Add");
      EXPECT_TRUE(holds(e, kernels[0]) || holds(e, kernels[1]));
    }
}

TEST_F(TraceTest, TellsOperandsByTheirNames) {
  for (const json& e : of(traced(1000), "instruction")) {
    const json& args = e.at("args");
    if (e.at("name") == "AllocTensorReg") {
      EXPECT_EQ(args.at("storage"), "storage of 64 bytes");
      EXPECT_EQ(args.at("dtype"), "f32");
      EXPECT_EQ(args.at("shape"), "3");
    }
    if (e.at("name") == "LoadConst") {
      EXPECT_EQ(args.at("constant"), "w: f32 (3)");
    }
    if (e.at("name") == "AllocStorage") {
      EXPECT_EQ(args.at("bytes"), "12");
    }
  }
}

TEST_F(TraceTest, MemoryRisesAndFallsAndIsNeverBelowZero) {
  const json trace = traced(1000);
  std::vector<int64_t> bytes;
  double last = 0;
  for (const json& e : trace.at("traceEvents")) {
    if (e.at("ph") != "C") continue;
    EXPECT_EQ(e.at("name"), "memory");
    EXPECT_GE(e.at("ts").get<double>(), last);
    last = e.at("ts");
    bytes.push_back(e.at("args").at("cpu").get<int64_t>());
  }
  ASSERT_GE(bytes.size(), 3u);
  for (const int64_t b : bytes) EXPECT_GE(b, 0);
  EXPECT_GT(*std::max_element(bytes.begin(), bytes.end()), bytes.front());
  EXPECT_EQ(static_cast<uint64_t>(*std::max_element(bytes.begin(), bytes.end())),
            session_->memory().peak);
}

TEST_F(TraceTest, KeepsTheFirstInstructionsAndCountsTheOthers) {
  const size_t all = of(traced(1000), "instruction").size();
  const json cut = traced(5);
  EXPECT_EQ(of(cut, "instruction").size(), 5u);
  EXPECT_EQ(of(cut, "kernel").size(), 0u);
  EXPECT_EQ(of(cut, "function").size(), 2u);
  EXPECT_EQ(cut.at("otherData").at("dropped_instructions"), all - 5);
  const json two = traced(all + 3, 2);  // the limit is for all runs of a session
  EXPECT_EQ(of(two, "instruction").size(), all + 3);
  EXPECT_EQ(two.at("otherData").at("dropped_instructions"), all - 3);
  EXPECT_THAT(names(of(two, "function")),
              ElementsAre("main", "turn", "turn", "turn", "main", "turn"));
}

TEST_F(TraceTest, HoldsWhatASuspendedRunDidInAllItsSlices) {
  const std::vector<std::string> whole = names(of(traced(1000), "instruction"));
  const float x[] = {1, 2, 3};
  const int64_t shape[] = {3};
  const InputTensor in{x, DType::kF32, shape, {}, true};
  session_->set_profiling(true);  // afresh
  session_->start(0, {&in, 1});
  std::vector<OutputTensor> out(1);
  while (!session_->resume(4, out)) {
  }
  const json trace = json::parse(session_->profiler().trace_json(model_->executable()));
  EXPECT_EQ(names(of(trace, "instruction")), whole);
}

// The instruction before which a run is suspended has begun to be told when the request is seen.
TEST_F(TraceTest, TellsAnInstructionOnceThatARunIsSuspendedBefore) {
  using Kind = exec::ImplementationKind;
  static Session* asked = nullptr;
  static const bool once = [] {
    add_library_kernel({"test.asks", Kind::kHost, "", "Suspends its own run.", accept, nullptr,
                        [](const LibraryCall&, int32_t thread, int32_t, nimble_barrier*) {
                          if (thread == 0) asked->suspend();
                        }});
    return true;
  }();
  (void)once;
  constexpr char kAsksTwice[] = R"(
kernel "k" { symbols n  in f32 ([a0])  scratch [0]  dispatch { 0: 0 }  host "test.asks" }
function "main" 1 2 {
  InvokePacked k"k", (r0)
  InvokePacked k"k", (r0)
  LoadConsti r1, 1
  Ret r0
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)";
  const float x[] = {1, 2, 3};
  const int64_t shape[] = {3};
  const InputTensor in{x, DType::kF32, shape, {}, true};
  for (const size_t limit : {size_t{100}, size_t{2}}) {
    SCOPED_TRACE(limit);
    SessionOptions options;
    options.trace = limit;
    load(kAsksTwice, options);
    asked = session_.get();
    std::vector<OutputTensor> out(1);
    session_->start(0, {&in, 1});
    int slices = 1;
    while (!session_->resume(0, out)) ++slices;
    EXPECT_EQ(slices, 3);
    json trace = json::parse(session_->profiler().trace_json(model_->executable()));
    std::vector<std::string> all = {"InvokePacked", "InvokePacked", "LoadConsti", "Ret"};
    EXPECT_EQ(trace.at("otherData").at("dropped_instructions"),
              all.size() - std::min(all.size(), limit));
    all.resize(std::min(all.size(), limit));
    EXPECT_EQ(names(of(trace, "instruction")), all);
    EXPECT_EQ(names(of(trace, "kernel")), (std::vector<std::string>{"k", "k"}));

    // A whole run, which goes on at once, is told as one.
    session_->set_profiling(true);
    session_->run(0, {&in, 1}, out);
    trace = json::parse(session_->profiler().trace_json(model_->executable()));
    EXPECT_EQ(names(of(trace, "instruction")), all);
    EXPECT_EQ(names(of(trace, "function")), (std::vector<std::string>{"main"}));
  }
}

TEST_F(TraceTest, ARunThatFailsLeavesWhatItDid) {
  SessionOptions options;
  options.trace = 100;
  options.fuel = 6;
  load(std::string(kAddKernel) + kLoop, options);
  EXPECT_THAT(failure({{{3}, {1, 2, 3}}}, Status::kExhausted), HasSubstr("6 instructions"));
  const json trace = json::parse(session_->profiler().trace_json(model_->executable()));
  EXPECT_EQ(of(trace, "instruction").size(), 6u);
}

// The plain loop has no place where a trace could be told, and the one of limits and profiles asks
// only where it profiles.
TEST_F(TraceTest, IsNotThereUnlessAskedFor) {
  EXPECT_EQ(Profiler().trace(), nullptr);
  for (const bool profile : {false, true}) {
    SessionOptions options;
    options.profile = profile;
    load(std::string(kAddKernel) + kLoop, options);
    run({{{3}, {1, 2, 3}}});
    const Profiler seen = session_->profiler();
    const json trace = json::parse(seen.trace_json(model_->executable()));
    EXPECT_EQ(trace.at("otherData").at("instructions"), 0);
    EXPECT_EQ(trace.at("traceEvents").size(), 2u) << "names alone";
  }
}

}  // namespace
}  // namespace nimble::rt
