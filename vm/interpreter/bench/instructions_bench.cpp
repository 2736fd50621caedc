// nimble-instructions-bench: what the virtual machine takes for each instruction (Google
// Benchmark).
//
// Each benchmark runs a loop whose body repeats one instruction, or a group that belongs together,
// kCopies times; `each` is the time of one of them, with the loop's own instructions in it: at a
// hundredth each, they don't matter. Compare two builds by runs that alternate, or by instructions
// under `valgrind --tool=callgrind --toggle-collect='*Machine::resume*'`.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "vm/executable/assembler.h"
#include "vm/interpreter/session.h"
#include "vm/library/registry.h"

namespace nimble::rt {
namespace {

constexpr int kCopies = 100;
constexpr int kTurns = 50;

struct Case {
  const char* name;
  const char* body;          // r0 is the input f32 (4), r1 its storage, r2 a scalar 1, r3 scalar 0
  const char* prepare = "";  // before the loop; registers from r10 on are free
  int copies = kCopies;
};

constexpr Case kCases[] = {
    {"Move", "Move r10, r2\n"},
    {"MoveObject", "Move r10, r0\n"},
    {"LoadConsti", "LoadConsti r10, 7\n"},
    {"LoadConst", "LoadConst r10, c\"w\"\n"},
    {"If", "If r2, @n{0}, @n{0}\nn{0}:\n"},
    {"Goto", "Goto @n{0}\nn{0}:\n"},
    {"GetTag", "GetTag r11, r10\n", "AllocADT r10, 1, (r0, r2)\n"},
    {"GetField", "GetField r11, r10, 0\n", "AllocADT r10, 1, (r0, r2)\n"},
    {"GetElement", "GetElement r11, r10, 0\n", "LoadConst r10, c\"i\"\n"},
    {"ShapeOf", "ShapeOf r10, 1, r0\n"},
    {"ReshapeTensor", "ReshapeTensor r10, r0, (r12, r12)\n", "LoadConsti r12, 2\n"},
    {"AllocADT", "AllocADT r10, 1, (r0, r2)\n"},
    {"InvokeScalar", "Invoke r10, f\"next\", (r2)\n"},
    {"InvokeScalarOfSixOperations", "Invoke r10, f\"bytes\", (r2, r2)\n"},
    {"InvokeAndRet", "Invoke r10, f\"same\", (r2)\n"},
    {"AllocStorageAndTensor", "AllocStorage r10, r12, 64, d0\nAllocTensor r11, r10, r3, f32, [4]\n",
     "LoadConsti r12, 16\n"},
    {"AllocTensorReg", "AllocTensorReg r11, r1, r3, f32, (r12)\n", "LoadConsti r12, 4\n"},
    {"InvokePackedOfTwoTensors", "InvokePacked k\"two\", (r0, r4)\n"},
    {"InvokePackedOfFiveTensors", "InvokePacked k\"five\", (r0, r0, r0, r2, r0, r4)\n"},
};

constexpr char kPrelude[] = R"(
constant "w" f32 [3] {{ 10, 20, 30 }}
constant "i" i64 [2] {{ 10, 20 }}
scalar "next" [a0 1 +]
scalar "more" [a0 {0} <]
scalar "bytes" [a0 a1 * 4 * 63 + 64 max]
kernel "two" {{ symbols n in f32 ([a0]) out f32 ([a0]) dispatch {{ 0: 0 }} host "bench.nothing" }}
kernel "five" {{
  symbols n s
  in f32 ([a0]) in f32 ([a0]) in f32 ([a0]) scalar s in f32 ([a0]) out f32 ([a0])
  dispatch {{ 0: n <= 16 ? 1 : 2
    1: 0
    2: 0 }}
  host "bench.nothing"
}}
function "main" 1 20 {{
  LoadConsti r2, 1
  LoadConsti r3, 0
  LoadConsti r5, 16
  AllocStorage r1, r5, 64, d0
  AllocTensor r4, r1, r3, f32, [4]
  LoadConsti r6, 0
  {1}
loop:
)";
constexpr char kEnd[] = R"(
  Invoke r6, f"next", (r6)
  Invoke r7, f"more", (r6)
  If r7, @loop, @done
done:
  Ret r0
}
function "same" 1 1 { Ret r0 }
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)";

std::string program(const Case& c) {
  std::string text = fmt::format(kPrelude, kTurns, c.prepare);
  for (int i = 0; i < c.copies; ++i) text += fmt::format(fmt::runtime(c.body), i);
  return text + kEnd;
}

void run_case(benchmark::State& state, const Case& c) {
  static const bool once = [] {
    add_library_kernel({"bench.nothing", exec::ImplementationKind::kHost, "", "Does nothing.",
                        [](const exec::KernelContract&) { return std::string(); }, nullptr,
                        [](const LibraryCall&, int32_t, int32_t, nimble_barrier*) {}});
    return true;
  }();
  (void)once;
  SessionOptions options;
  options.threads = 1;
  Session session(Model::load(exec::assemble(program(c)), {}, "bench"), options);
  const float x[4] = {1, 2, 3, 4};
  const int64_t shape[] = {4};
  const InputTensor input{x, DType::kF32, shape, {}, true};
  for (auto _ : state) {
    OutputTensor output;
    session.run(0, {&input, 1}, {&output, 1});
    benchmark::DoNotOptimize(output.data);
  }
  state.counters["each"] =
      benchmark::Counter(kTurns * c.copies, benchmark::Counter::kIsIterationInvariantRate |
                                                benchmark::Counter::kInvert);
}

}  // namespace
}  // namespace nimble::rt

int main(int argc, char** argv) {
  using namespace nimble::rt;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const Case& c : kCases)
    benchmark::RegisterBenchmark(c.name, [&c](benchmark::State& state) {
      run_case(state, c);
    })->Unit(benchmark::kMicrosecond);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
