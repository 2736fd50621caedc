// nimble-entry-bench: what a call of a model takes beside the model's own instructions, by the
// number of its inputs (Google Benchmark). The model returns its first input.
//
// "run": nimble_session_run with names in the order of the entry point, or from the last to the
// first; "call": a prepared call, also with record_shapes. `per_input` is the time of the whole by
// their number.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "vm/api/nimble.h"
#include "vm/executable/bench/dear_programs.h"
#include "vm/executable/writer.h"

namespace {

void check(nimble_status status) {
  if (status == NIMBLE_OK) return;
  fmt::print(stderr, "nimble-entry-bench: {}\n", nimble_last_error());
  std::exit(1);
}

enum class How { kInOrder, kReversed, kPrepared, kRecorded };

void run(benchmark::State& state, How how) {
  const auto count = static_cast<size_t>(state.range(0));
  const std::vector<uint8_t> file = nimble::exec::serialize(nimble::exec::dear::many_names(count));
  nimble_model* model = nullptr;
  check(nimble_load_memory(file.data(), file.size(), nullptr, &model));
  nimble_session_options options = NIMBLE_SESSION_OPTIONS_INIT;
  options.threads = 1;
  options.record_shapes = how == How::kRecorded;
  nimble_session* session = nullptr;
  check(nimble_session_create(model, &options, &session));

  const float data[4] = {1, 2, 3, 4};
  const int64_t shape[] = {4};
  std::vector<std::string> texts;
  for (size_t i = 0; i < count; ++i) texts.push_back(fmt::format("input{}", i));
  if (how == How::kReversed) std::reverse(texts.begin(), texts.end());
  std::vector<const char*> names;
  for (const std::string& t : texts) names.push_back(t.c_str());
  nimble_tensor tensor = NIMBLE_TENSOR_INIT;
  tensor.data = const_cast<float*>(data);
  tensor.dtype = NIMBLE_F32;
  tensor.shape = shape;
  tensor.rank = 1;
  const std::vector<nimble_tensor> inputs(count, tensor);
  float result[4];
  nimble_tensor output = NIMBLE_TENSOR_INIT;
  output.data = result;
  output.capacity = sizeof result;

  nimble_call* call = nullptr;
  const bool prepared = how == How::kPrepared || how == How::kRecorded;
  if (prepared) check(nimble_call_prepare(session, nullptr, names.data(), count, 1, &call));
  for (auto _ : state) {
    nimble_tensor y = output;
    check(prepared
              ? nimble_call_run(call, inputs.data(), &y)
              : nimble_session_run(session, nullptr, names.data(), inputs.data(), count, &y, 1));
    nimble_tensor_release(&y);
  }
  state.counters["per_input"] =
      benchmark::Counter(static_cast<double>(count), benchmark::Counter::kIsIterationInvariantRate |
                                                         benchmark::Counter::kInvert);
  nimble_call_destroy(call);
  nimble_session_destroy(session);
  nimble_model_destroy(model);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const auto add = [](const char* name, How how) {
    benchmark::RegisterBenchmark(name, [how](benchmark::State& state) { run(state, how); })
        ->ArgName("inputs")
        ->Arg(1)
        ->Arg(10)
        ->Arg(100)
        ->Arg(1000);
  };
  add("run/in_order", How::kInOrder);
  add("run/reversed", How::kReversed);
  add("call", How::kPrepared);
  add("call/record_shapes", How::kRecorded);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
