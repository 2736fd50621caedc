// nimble-replay-bench: what of a run is not its kernels.
//
//     nimble-replay-bench --set b=1 --set n=128 --threads 2 dynamic.nimble static.nimble
//
// For each executable the run itself (`run`) and the same calls of kernels in a row, without the
// virtual machine, from memory that is there before (`replay`, vm/interpreter/replay.h). Bursts of
// all of them alternate, in rotating order. Prints JSON: the median of each burst in µs, and the
// profile of a few runs. The result of the replay is compared with that of the run, bit by bit.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "vm/base/checked.h"
#include "vm/base/element.h"
#include "vm/base/error.h"
#include "vm/base/json_writer.h"
#include "vm/interpreter/replay.h"
#include "vm/interpreter/session.h"

namespace nimble::rt {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> models;
  std::map<std::string, int64_t> extents;
  int32_t threads = 1;
  int rounds = 15, runs = 10, profiled = 20;
  int64_t int_range = 1000;
};

[[noreturn]] void usage(const std::string& problem) {
  fmt::print(stderr,
             "nimble-replay-bench: {}\n"
             "usage: nimble-replay-bench [--set NAME=N]... [--threads N] [--rounds N] [--runs N] "
             "[--int-range N] MODEL...\n",
             problem);
  std::exit(2);
}

int64_t number(const std::string& option, const char* text) {
  char* end = nullptr;
  const long long value = text ? std::strtoll(text, &end, 10) : 0;
  if (!text || end == text || *end != 0 || value < 0)
    usage(fmt::format("{} takes a number", option));
  return value;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* next = i + 1 < argc ? argv[i + 1] : nullptr;
    if (!word.starts_with("--")) {
      o.models.push_back(word);
      continue;
    }
    ++i;
    if (word == "--set") {
      const char* equals = next ? std::strchr(next, '=') : nullptr;
      if (!equals) usage("--set takes NAME=N");
      o.extents[std::string(next, equals)] = number(word, equals + 1);
    } else if (word == "--threads") {
      o.threads = static_cast<int32_t>(number(word, next));
    } else if (word == "--rounds") {
      o.rounds = static_cast<int>(std::max<int64_t>(1, number(word, next)));
    } else if (word == "--runs") {
      o.runs = static_cast<int>(std::max<int64_t>(1, number(word, next)));
    } else if (word == "--int-range") {
      o.int_range = std::max<int64_t>(1, number(word, next));
    } else {
      usage("there is no " + word);
    }
  }
  if (o.models.empty()) usage("no model is named");
  return o;
}

// An input by its port: integers below the range, floats around 0, masks as their default.
struct Drawn {
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
  InputTensor tensor;
};

Drawn draw(const exec::Port& port, const Options& o, std::mt19937_64* random) {
  Drawn d;
  if (!port.default_fill.empty()) return d;
  for (size_t i = 0; i < port.dims.size(); ++i) {
    int64_t extent = port.extents[i];
    if (extent < 0) {
      const auto at = o.extents.find(port.dims[i]);
      if (at == o.extents.end())
        usage(fmt::format("input {} needs --set {}=N", port.name, port.dims[i]));
      extent = at->second;
    }
    d.shape.push_back(extent);
  }
  const int64_t bytes = try_byte_size(port.dtype, d.shape).value();
  d.bytes.resize(static_cast<size_t>(bytes));
  const size_t size = size_of(port.dtype);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int64_t> below(0, o.int_range - 1);
  for (size_t at = 0; at < d.bytes.size(); at += size) {
    if (port.dtype == DType::kF32) {
      const float value = normal(*random);
      std::memcpy(d.bytes.data() + at, &value, size);
    } else if (is_int(port.dtype)) {
      const int64_t value = below(*random);
      std::memcpy(d.bytes.data() + at, &value, size);  // little-endian: truncates
    }
  }
  d.tensor = {d.bytes.data(), port.dtype, d.shape, {}, true};
  return d;
}

// An executable with its inputs, and the calls of a run.
class Bench {
 public:
  Bench(const std::string& path, const Options& o) : path_(path), options_(o) {
    LoadOptions load;
    load.trust = true;
    model_ = Model::load(path, load);
    SessionOptions options;
    options.threads = o.threads;
    options.pin = true;
    session_ = std::make_unique<Session>(model_, options);
    std::mt19937_64 random(1);
    const exec::EntryPoint& entry = model_->executable().entries.at(0);
    for (const exec::Port& port : entry.inputs) inputs_.push_back(draw(port, o, &random));
    outputs_ = std::vector<OutputTensor>(entry.outputs.size());
    for (int i = 0; i < 3; ++i) run();
    session_->set_profiling(true);
    session_->record_kernels(&log_);
    run();
    session_->record_kernels(nullptr);
    session_->set_profiling(false);
    replay_ = std::make_unique<KernelReplay>(log_, session_->pool());
    compare();
  }

  void run() {
    std::vector<InputTensor> tensors;
    for (Drawn& d : inputs_) {
      tensors.push_back(d.tensor);
      tensors.back().shape = d.shape;
    }
    session_->run(0, tensors, outputs_);
  }
  void replay() { replay_->run(); }

  void profile(int runs) {
    session_->set_profiling(true);
    for (int i = 0; i < runs; ++i) run();
    session_->set_profiling(false);
  }

  void write(JsonWriter* json) const {
    json->member("model", path_).member("calls", log_.size());
    json->member("memory_peak", session_->memory().peak).member("replay_bytes", replay_->bytes());
  }
  std::string profile_json() const { return session_->profiler().json(model_->executable()); }

  std::vector<double> run_us, replay_us;

 private:
  void compare() {
    // The log's run was the last one, whose outputs are still held.
    std::vector<std::vector<uint8_t>> expected;
    for (const OutputTensor& t : outputs_) {
      const auto* data = static_cast<const uint8_t*>(t.data);
      expected.emplace_back(data,
                            data + static_cast<size_t>(try_byte_size(t.dtype, t.shape()).value()));
    }
    replay_->run();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const uint8_t* found = replay_->at(outputs_[i].data);
      if (!found || std::memcmp(found, expected[i].data(), expected[i].size()) != 0)
        throw Error(Status::kFatal, path_, fmt::format("output {} of the replay differs", i),
                    "name an output that a kernel writes");
    }
  }

  std::string path_;
  const Options& options_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Session> session_;
  std::vector<Drawn> inputs_;
  std::vector<OutputTensor> outputs_;
  KernelLog log_;
  std::unique_ptr<KernelReplay> replay_;
};

template <typename Once>
double burst(int runs, Once once) {
  for (int i = 0; i < 2; ++i) once();  // brings what it needs back into the caches
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const Clock::time_point start = Clock::now();
    once();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return times[static_cast<size_t>(runs / 2)];
}

int main_of(int argc, char** argv) {
  const Options o = parse(argc, argv);
  std::vector<std::unique_ptr<Bench>> all;
  for (const std::string& path : o.models) all.push_back(std::make_unique<Bench>(path, o));
  const size_t kinds = 2 * all.size();
  for (int round = 0; round < o.rounds; ++round)
    for (size_t turn = 0; turn < kinds; ++turn) {
      const size_t which = (turn + static_cast<size_t>(round)) % kinds;
      Bench& b = *all[which / 2];
      if (which % 2 == 0)
        b.run_us.push_back(burst(o.runs, [&] { b.run(); }));
      else
        b.replay_us.push_back(burst(o.runs, [&] { b.replay(); }));
    }
  std::string out = "[";
  for (const auto& b : all) {
    b->profile(o.profiled);
    JsonWriter json;
    json.begin_object();
    b->write(&json);
    for (const auto& [name, times] :
         {std::pair("run_us", &b->run_us), std::pair("replay_us", &b->replay_us)}) {
      json.key(name).begin_array();
      for (const double us : *times) json.value(us);
      json.end_array();
    }
    json.end_object();
    std::string text = json.text();
    text.pop_back();
    out += (out.size() > 1 ? ",\n " : "") + text + ",\"profile\":" + b->profile_json() + "}";
  }
  fmt::print("{}]\n", out);
  return 0;
}

}  // namespace
}  // namespace nimble::rt

int main(int argc, char** argv) {
  try {
    return nimble::rt::main_of(argc, argv);
  } catch (const nimble::Error& e) {
    fmt::print(stderr, "nimble-replay-bench: {}\n", e.what());
    return 1;
  }
}
