// nimble-verifier-bench: what verification takes of files made to be dear (Google Benchmark).
//
// The argument is about how many bytes the file has. `s_per_MB` is what must stay below 1 whatever
// the file; `steps` is the share of the budget of rule R24 that was spent, 1 where it was refused.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cmath>

#include "vm/executable/bench/dear_programs.h"
#include "vm/executable/verifier.h"
#include "vm/executable/writer.h"

namespace nimble::exec {
namespace {

// An executable of that kind whose file has about `bytes` bytes.
Executable of_size(const dear::Kind& kind, double bytes, size_t* size) {
  constexpr size_t kProbe = 4096;  // so that the alignment of sections does not matter
  const double each = static_cast<double>(serialize(kind.make(2 * kProbe)).size()) -
                      static_cast<double>(serialize(kind.make(kProbe)).size());
  const auto n = static_cast<size_t>(std::max(16.0, bytes * kProbe / std::max(each, 1.0)));
  Executable e = kind.make(n);
  *size = serialize(e).size();
  return e;
}

void verify_kind(benchmark::State& state, const dear::Kind& kind) {
  size_t size = 0;
  const Executable e = of_size(kind, static_cast<double>(state.range(0)), &size);
  VerificationEffort effort;
  bool refused = false;
  for (auto _ : state) {
    const std::vector<Violation> found = find_violations(e, 1, 0, &effort);
    refused = !found.empty();
    if (refused && found[0].fault != Fault::kTooManySteps)
      state.SkipWithError(found[0].message.c_str());
  }
  state.counters["s_per_MB"] = benchmark::Counter(
      static_cast<double>(size) / 1e6,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["steps"] = static_cast<double>(effort.steps) / static_cast<double>(effort.budget);
  state.counters["refused"] = refused;
  state.SetLabel(fmt::format("{} bytes", size));
}

}  // namespace
}  // namespace nimble::exec

int main(int argc, char** argv) {
  using namespace nimble::exec;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const dear::Kind& kind : dear::kinds())
    benchmark::RegisterBenchmark(fmt::format("verify/{}", kind.name).c_str(),
                                 [&kind](benchmark::State& state) { verify_kind(state, kind); })
        ->Arg(100'000)
        ->Arg(1'000'000)
        ->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
