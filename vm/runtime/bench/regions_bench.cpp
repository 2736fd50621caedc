// nimble-regions-bench: what a parallel region takes beyond the work in it (Google Benchmark).
//
// Every thread of a region is busy for a given time, whatever it computes; `over` is what the
// region takes more than that: waking or reaching the workers, and meeting them again. `pause` is
// the time between two regions, in which workers spin at first and then park.
#include <benchmark/benchmark.h>

#include <chrono>
#include <thread>

#include "vm/runtime/thread_pool.h"

namespace nimble::rt {
namespace {

using Clock = std::chrono::steady_clock;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

void busy_for(int64_t ns) {
  for (const int64_t end = now() + ns; now() < end;) {
  }
}

void work(void* context, int32_t, int32_t, nimble_barrier*) {
  busy_for(*static_cast<const int64_t*>(context));
}

// Half of the work on each side of a barrier.
void work_around_barrier(void* context, int32_t thread, int32_t, nimble_barrier* barrier) {
  busy_for(*static_cast<const int64_t*>(context) / 2);
  barrier->wait(barrier, thread);
  busy_for(*static_cast<const int64_t*>(context) / 2);
}

// Arguments: threads, work of each in ns, pause in µs.
void region(benchmark::State& state, ThreadPool::Body body) {
  const auto threads = static_cast<int32_t>(state.range(0));
  int64_t work_ns = state.range(1);
  const int64_t pause_ns = state.range(2) * 1000;
  ThreadPool pool(threads);
  int64_t total = 0;
  for (auto _ : state) {
    if (pause_ns > 0) busy_for(pause_ns);
    const int64_t begin = now();
    pool.run(body, &work_ns, threads);
    const int64_t ns = now() - begin;
    state.SetIterationTime(static_cast<double>(ns) * 1e-9);
    total += ns - work_ns;
  }
  state.counters["over_ns"] =
      benchmark::Counter(static_cast<double>(total), benchmark::Counter::kAvgIterations);
}

void arguments(benchmark::internal::Benchmark* b) {
  const int64_t cores = ThreadPool::default_threads();
  b->ArgNames({"threads", "work_ns", "pause_us"})->UseManualTime();
  b->Args({1, 1000, 0});
  if (cores < 2) return;
  for (const int64_t threads : {int64_t{2}, cores}) {
    for (const int64_t work_ns : {1000, 5000, 20000}) b->Args({threads, work_ns, 0});
    b->Args({threads, 20000, 20})->Args({threads, 20000, 1000});
    if (cores == 2) break;
  }
}

BENCHMARK_CAPTURE(region, plain, &work)->Apply(arguments);
BENCHMARK_CAPTURE(region, barrier, &work_around_barrier)->Apply(arguments);

}  // namespace
}  // namespace nimble::rt

BENCHMARK_MAIN();
