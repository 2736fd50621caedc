// nimble bench: the latency of an executable by shape.
//
// Shapes are visited round after round, so that drift of the machine spreads over all of them;
// the very first run at each shape is reported apart, for a dynamic compiler's worst case is the
// shape that it has not seen.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "vm/api/nimble.hpp"
#include "vm/base/program.h"
#include "vm/tools/memory_text.h"
#include "vm/tools/shape_arguments.h"
#include "vm/tools/tensor_arguments.h"
#include "vm/tools/text_table.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kAbout[] =
    "Measures how long a compiled model takes at each shape, on random inputs (inputs with a\n"
    "default keep it).\n\n"
    "--shapes n=16,27,53 lists values of a dim; several --shapes are combined. --set b=1 fixes\n"
    "one. Names are the dims of the signature (nimble inspect --signature). Times are in\n"
    "microseconds; `first` is the first run at the shape in this process.\n\n"
    "Naming the file here is your consent to run the native code in it.";

struct Options {
  std::string model, entry, format = "table";
  std::vector<std::string> shapes, fixed;
  int threads = 0, repetitions = 20, rounds = 3;
  bool pin = false, profile = false, no_native = false;
  double min_time = 0.3;
  RandomOptions random;
};

struct Case {
  ShapeValues shape;
  NamedArrays inputs;
  std::vector<api::NamedView> views;
  double first_us = 0;
  std::vector<double> us;

  double quantile(double q) const {  // of sorted samples: nearest rank
    const size_t rank = static_cast<size_t>(q * static_cast<double>(us.size()) + 0.999999);
    return us[std::clamp<size_t>(rank, 1, us.size()) - 1];
  }
  double mean() const { return std::accumulate(us.begin(), us.end(), 0.0) / us.size(); }
};

nimble_session* interrupted_session = nullptr;
volatile std::sig_atomic_t interrupted = 0;

void measure(api::Session& session, const Options& o, std::vector<Case>* cases) {
  auto once = [&](const Case& c) {
    const Clock::time_point start = Clock::now();
    const std::vector<api::Tensor> outputs = session.run(c.views, o.entry);
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  for (Case& c : *cases) c.first_us = once(c);
  if (o.profile) session.set_profiling(true);
  for (int round = 0; round < o.rounds; ++round)
    for (Case& c : *cases) {
      once(c);  // brings this shape's data back into the caches
      const int runs = std::max(1, (o.repetitions + o.rounds - 1) / o.rounds);
      double spent = 0;
      for (int i = 0; i < runs || spent < o.min_time * 1e6 / o.rounds; ++i) {
        const double us = once(c);
        c.us.push_back(us);
        spent += us;
        if (interrupted) throw Error(Status::kCancelled, "", "interrupted");
      }
    }
  for (Case& c : *cases) std::sort(c.us.begin(), c.us.end());
}

int64_t peak_rss_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

void print(const Options& o, const std::vector<Case>& cases, api::Session& session,
           const api::Model& model, double load_ms) {
  if (o.format == "json") {
    nlohmann::json out;
    out["model"] = o.model;
    out["info"] = nlohmann::json::parse(model.info(), nullptr, false);
    out["threads"] = session.threads();
    out["load_ms"] = load_ms;
    out["peak_rss_bytes"] = peak_rss_bytes();
    for (const Case& c : cases)
      out["cases"].push_back({{"shape", c.shape},
                              {"runs", c.us.size()},
                              {"first_us", c.first_us},
                              {"min_us", c.us.front()},
                              {"p50_us", c.quantile(0.5)},
                              {"p99_us", c.quantile(0.99)},
                              {"mean_us", c.mean()}});
    if (o.profile) out["profile"] = profile_json_with_memory(session);
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  if (o.format == "csv") {
    fmt::print("shape,threads,runs,first_us,min_us,p50_us,p99_us,mean_us\n");
    for (const Case& c : cases)
      fmt::print("{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f}\n", text_of(c.shape),
                 session.threads(), c.us.size(), c.first_us, c.us.front(), c.quantile(0.5),
                 c.quantile(0.99), c.mean());
    return;
  }
  TextTable table({"shape", "runs", "first us", "min us", "p50 us", "p99 us", "mean us"});
  for (const Case& c : cases)
    table.add({text_of(c.shape), std::to_string(c.us.size()), fmt::format("{:.1f}", c.first_us),
               fmt::format("{:.1f}", c.us.front()), fmt::format("{:.1f}", c.quantile(0.5)),
               fmt::format("{:.1f}", c.quantile(0.99)), fmt::format("{:.1f}", c.mean())});
  fmt::print("{}", table.str());
  fmt::print("threads {}, load {:.1f} ms, peak memory {:.1f} MiB\n", session.threads(), load_ms,
             static_cast<double>(peak_rss_bytes()) / (1 << 20));
  if (o.profile) fmt::print("\n{}", profile_table_with_memory(session));
}

int bench(const Options& o) {
  const Clock::time_point start = Clock::now();
  const api::Model model(o.model, {!o.no_native});
  const double load_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  if (nimble_model_find_entry(model.handle(), o.entry.empty() ? nullptr : o.entry.c_str()) < 0)
    throw Error(Status::kNotFound, o.model, fmt::format("it has no entry point {}", o.entry),
                fmt::format("it has {}", fmt::join(model.entries(), ", ")));
  const std::vector<api::Port> ports = model.inputs(o.entry);
  std::vector<Case> cases;
  for (ShapeValues& shape : shape_combinations(o.shapes, o.fixed)) {
    for (const auto& [name, extent] : shape) {
      const bool known = std::any_of(ports.begin(), ports.end(), [&, &n = name](const auto& p) {
        return std::find(p.dims.begin(), p.dims.end(), n) != p.dims.end();
      });
      if (!known)
        throw Error(Status::kInvalidArgument, o.model, fmt::format("no input has a dim {}", name),
                    "see nimble inspect --signature");
    }
    cases.push_back({std::move(shape)});
    Case& c = cases.back();
    c.inputs = random_inputs(ports, c.shape, o.random, o.model);
    for (const auto& [name, array] : c.inputs) c.views.emplace_back(name, view_of(array));
  }
  api::SessionOptions options;
  options.threads = o.threads;
  options.pin = o.pin;
  api::Session session(model, options);
  interrupted_session = session.handle();
  std::signal(SIGINT, [](int) {
    interrupted = 1;
    nimble_cancel(interrupted_session);
  });
  measure(session, o, &cases);
  print(o, cases, session, model, load_ms);
  return kExitOk;
}

int main_of(int argc, char** argv) {
  Options o;
  CLI::App app(kAbout, "nimble bench");
  app.add_option("MODEL", o.model, "The .nimble file")->required();
  app.add_option("--entry", o.entry, "Entry point (default: the first)");
  app.add_option("--shapes", o.shapes, "Values of a dim, NAME=16,27,53")
      ->delimiter('\0')
      ->type_name("LIST");
  app.add_option("--set", o.fixed, "One value of a dim, NAME=1")->type_name("NAME=N");
  app.add_option("--threads", o.threads, "Threads (default: all that the process may use)")
      ->check(CLI::Range(0, 1024));
  app.add_flag("--pin", o.pin, "Bind threads to cores");
  app.add_option("--repetitions", o.repetitions, "Runs per shape, at least")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--min-time", o.min_time, "Seconds per shape, at least")->capture_default_str();
  app.add_option("--rounds", o.rounds, "Rounds over all shapes")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seed", o.random.seed, "Of the inputs")->capture_default_str();
  app.add_option("--int-range", o.random.int_range, "Integers are drawn from 0 … N - 1")
      ->capture_default_str();
  app.add_flag("--no-native", o.no_native, "Time the checked, portable form of the kernels");
  app.add_flag("--profile", o.profile, "Also print where the time went (adds overhead)");
  app.add_option("--format", o.format, "Output format")
      ->check(CLI::IsMember({"table", "json", "csv"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kExitOk : kExitUsage;
  }
  try {
    return bench(o);
  } catch (const std::exception& e) {
    if (!interrupted) throw;
    fmt::print(stderr, "nimble bench: interrupted\n");
    return kExitInterrupted;
  }
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_program("nimble bench", [&] { return nimble::main_of(argc, argv); });
}
