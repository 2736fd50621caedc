// nimble bench: the latency of an executable by shape.
//
// Shapes are visited round after round, so that drift of the machine spreads over all of them;
// the very first run at each shape is reported apart, for a dynamic compiler's worst case is the
// shape that it has not seen.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <iostream>
#include <map>
#include <numeric>

#include "vm/api/nimble.hpp"
#include "vm/arguments/command_line.h"
#include "vm/arguments/table.h"
#include "vm/tools/argument_forms.h"
#include "vm/tools/given_inputs.h"
#include "vm/tools/load_arguments.h"
#include "vm/tools/memory_text.h"
#include "vm/tools/shape_arguments.h"
#include "vm/tools/tensor_arguments.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;
using Json = Table::Json;

constexpr char kAbout[] =
    "Measures how long a compiled model takes at each shape, on random inputs (inputs with a\n"
    "default keep it); --input NAME=VALUE gives one, written as for nimble run.\n\n"
    "--shapes n=16,27,53 lists values of a dim; those of several dims are combined. --set b=1\n"
    "fixes one. Names are the dims of the signature (nimble inspect --signature). Times are in\n"
    "microseconds; `first` is the first run at the shape in this process.\n\n"
    "--values t=trees.txt runs on every value of a file, one after the other (docs/values.md "
    "tells\n"
    "how they are written). The table then has one line for all of them, whose quantiles are over\n"
    "each value's median; --format csv and json have every value.\n\n"
    "Ctrl-C stops at the end of the kernel that runs, a second one at once.\n\n"
    "Naming the file here is your consent to run the native code in it.";

struct Options {
  std::string model, entry;
  Format format = Format::kTable;
  std::vector<std::string> inputs, shapes, fixed, values;
  int threads = 0, repetitions = 20, rounds = 3;
  bool pin = false, profile = false, no_native = false;
  double min_time = 0.3;
  exec::LoadLimits load;
  RandomOptions random;
};

struct Case {
  ShapeValues shape;
  NamedArrays inputs;
  std::vector<api::NamedView> views;
  // Instead of them where the entry point has values of data types.
  std::vector<api::NamedValue> values;
  int64_t value_number = -1;  // in the files of --values
  double first_us = 0;
  std::vector<double> us;

  double quantile(double q) const {  // of sorted samples: nearest rank
    const size_t rank = static_cast<size_t>(q * static_cast<double>(us.size()) + 0.999999);
    return us[std::clamp<size_t>(rank, 1, us.size()) - 1];
  }
  double mean() const { return std::accumulate(us.begin(), us.end(), 0.0) / us.size(); }
  std::string name() const {
    if (value_number < 0) return text_of(shape);
    const std::string value = fmt::format("value={}", value_number);
    return shape.empty() ? value : text_of(shape) + " " + value;
  }
};

nimble_session* interrupted_session = nullptr;
volatile std::sig_atomic_t interrupted = 0;

void measure(api::Session& session, const Options& o, std::vector<Case>* cases) {
  auto once = [&](const Case& c) {
    const Clock::time_point start = Clock::now();
    if (c.values.empty())
      session.run(c.views, o.entry);
    else
      session.run_values(c.values, o.entry);
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  // Seconds are for a shape, or for all values of a file.
  const double cases_in_time = o.values.empty() ? 1 : static_cast<double>(cases->size());
  for (Case& c : *cases) c.first_us = once(c);
  if (o.profile) session.set_profiling(true);
  for (int round = 0; round < o.rounds; ++round)
    for (Case& c : *cases) {
      once(c);  // brings this shape's data back into the caches
      const int runs = std::max(1, (o.repetitions + o.rounds - 1) / o.rounds);
      double spent = 0;
      for (int i = 0; i < runs || spent < o.min_time * 1e6 / o.rounds / cases_in_time; ++i) {
        const double us = once(c);
        c.us.push_back(us);
        spent += us;
        if (interrupted) throw Error(Status::kCancelled, "", "interrupted");
      }
    }
  for (Case& c : *cases) std::sort(c.us.begin(), c.us.end());
}

// Of all values of --values together: each counts as one sample, by its median.
Case all_values(const std::vector<Case>& cases) {
  Case all;
  for (const Case& c : cases) {
    all.first_us += c.first_us / static_cast<double>(cases.size());
    all.us.push_back(c.quantile(0.5));
  }
  std::sort(all.us.begin(), all.us.end());
  return all;
}

int64_t peak_rss_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

Json times_of(const Case& c) {
  return {{"first_us", c.first_us},
          {"min_us", c.us.front()},
          {"p50_us", c.quantile(0.5)},
          {"p99_us", c.quantile(0.99)},
          {"mean_us", c.mean()}};
}

// `name`: what stands in the first column of the CSV and the table for people.
Json row_of(const std::string& name, const Case& c, size_t runs, int threads) {
  Json row = {{"shape", c.shape}, {"case", name}, {"threads", threads}, {"runs", runs}};
  if (c.value_number >= 0) row["value"] = c.value_number;
  row.update(times_of(c));
  return row;
}

Table case_table() {
  const auto us = [](const Json& v) { return fmt::format("{:.1f}", v.get<double>()); };
  return Table({{"case", "shape"},
                {"threads", ""},
                "runs",
                {"first_us", "first us", us},
                {"min_us", "min us", us},
                {"p50_us", "p50 us", us},
                {"p99_us", "p99 us", us},
                {"mean_us", "mean us", us}});
}

void print(const Options& o, const std::vector<Case>& cases, api::Session& session,
           const api::Model& model, double load_ms) {
  Table all = case_table();
  size_t runs = 0;
  for (const Case& c : cases) {
    all.add_object(row_of(c.name(), c, c.us.size(), session.threads()));
    runs += c.us.size();
  }
  print_report(
      std::cout, o.format,
      [&] {
        Json out = {{"model", o.model},
                    {"info", Json::parse(model.info(), nullptr, false)},
                    {"threads", session.threads()},
                    {"load_ms", load_ms},
                    {"peak_rss_bytes", peak_rss_bytes()},
                    {"cases", all.json()}};
        if (!o.values.empty()) {
          out["values"] = times_of(all_values(cases));
          out["values"]["count"] = cases.size();
        }
        if (o.profile) out["profile"] = profile_json_with_memory(session);
        return out;
      },
      [&] { return all; },
      [&] {
        Table shown = o.values.empty() ? all : case_table();
        if (!o.values.empty())
          shown.add_object(row_of(fmt::format("{} values", cases.size()), all_values(cases), runs,
                                  session.threads()));
        std::cout << shown.text()
                  << fmt::format("threads {}, load {:.1f} ms, peak memory {:.1f} MiB\n",
                                 session.threads(), load_ms,
                                 static_cast<double>(peak_rss_bytes()) / (1 << 20));
        if (o.profile) std::cout << '\n' << profile_table_with_memory(session);
      });
}

// What --values names: the values of each port, as many of each.
std::vector<std::pair<std::string, std::vector<api::Value>>> values_of_files(
    const Options& o, const std::vector<api::Type>& types, const std::vector<api::Port>& ports,
    const GivenInputs& given) {
  std::vector<std::pair<std::string, std::vector<api::Value>>> all;
  for (const std::string& text : o.values) {
    const auto [name, file] = split_assignment(text, "--values");
    const auto port = std::find_if(ports.begin(), ports.end(),
                                   [&, &n = name](const api::Port& p) { return p.name == n; });
    if (port == ports.end() || port->type_index < 0)
      throw Error(Status::kInvalidArgument, "--values " + name,
                  "the model has no input of a data type of that name",
                  "see nimble inspect --signature");
    all.emplace_back(
        name, read_values(file.starts_with("@") ? file.substr(1) : file, types, port->type_index));
    if (all.back().second.size() != all[0].second.size())
      throw Error(Status::kInvalidArgument, "--values " + name,
                  fmt::format("{} values, but {} of {}", all.back().second.size(),
                              all[0].second.size(), all[0].first),
                  "give files with as many values each");
  }
  for (const api::Port& p : ports) {
    const bool listed = std::any_of(all.begin(), all.end(),
                                    [&](const auto& entry) { return entry.first == p.name; });
    if (p.type_index >= 0 && !listed && !given.has(p.name))
      throw Error(
          Status::kInvalidArgument, fmt::format("{}: input {}", o.model, p.name),
          fmt::format("it is a {}, for which there are no random values", p.type),
          fmt::format("name a file of values, --values {0}=FILE, or give one: --input '{0}=…'",
                      p.name));
  }
  return all;
}

int bench(const Options& o) {
  const Clock::time_point start = Clock::now();
  const api::Model model(
      o.model, {!o.no_native, false, o.load.memory, o.load.constants, o.load.verification_steps});
  const double load_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  if (nimble_model_find_entry(model.handle(), o.entry.empty() ? nullptr : o.entry.c_str()) < 0)
    throw Error(Status::kNotFound, o.model, fmt::format("it has no entry point {}", o.entry),
                fmt::format("it has {}", fmt::join(model.entries(), ", ")));
  const std::vector<api::Port> ports = model.inputs(o.entry);
  const std::vector<api::Type> types = model.types();
  const GivenInputs given = parse_given(o.inputs, ports, types, o.random);
  const auto values = values_of_files(o, types, ports, given);
  std::vector<Case> cases;
  for (ShapeValues& shape : shape_combinations(o.shapes, o.fixed)) {
    check_names(shape, ports, o.model);
    NamedArrays tensors = complete_inputs(ports, given.tensors, shape, o.random, o.model);
    if (values.empty() && given.values.empty()) {
      cases.push_back({std::move(shape), std::move(tensors)});
      Case& c = cases.back();
      for (const auto& [name, array] : c.inputs) c.views.emplace_back(name, view_of(array));
      continue;
    }
    const std::vector<api::NamedValue> shared = GivenInputs{std::move(tensors), given.values}.all();
    if (values.empty()) {
      cases.push_back({shape});
      cases.back().values = shared;
      continue;
    }
    for (size_t i = 0; i < values[0].second.size(); ++i) {
      cases.push_back({shape});
      cases.back().value_number = static_cast<int64_t>(i);
      cases.back().values = shared;
      for (const auto& [name, list] : values) cases.back().values.emplace_back(name, list[i]);
    }
  }
  api::SessionOptions options;
  options.threads = o.threads;
  options.pin = o.pin;
  api::Session session(model, options);
  interrupted_session = session.handle();
  std::signal(SIGINT, [](int) {
    if (interrupted) ::_exit(kExitInterrupted);  // a kernel runs to its end
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
  app.add_option("-i,--input", o.inputs, "An input, NAME=VALUE; once per input")
      ->check(input_form())
      ->type_name("INPUT");
  app.add_option("--shapes", o.shapes, "Values of a dim, NAME=16,27,53")
      ->delimiter('\0')
      ->check(shapes_form())
      ->type_name("LIST");
  app.add_option("--set", o.fixed, "One value of a dim, NAME=1")
      ->check(extent_form())
      ->type_name("NAME=N");
  app.add_option("--values", o.values, "Values of an input of a data type, NAME=FILE")
      ->check(assignment_form("--values"))
      ->type_name("NAME=FILE");
  app.add_option("--threads", o.threads, "Threads (default: all that the process may use)")
      ->check(CLI::Range(0, 1024));
  app.add_flag("--pin", o.pin, "Bind threads to cores");
  app.add_option("--repetitions", o.repetitions, "Runs per shape or value, at least")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--min-time", o.min_time, "Seconds per shape or file, at least")
      ->check(number_from_zero())
      ->capture_default_str();
  app.add_option("--rounds", o.rounds, "Rounds over all shapes")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seed", o.random.seed, "Of the inputs")
      ->check(whole_number())
      ->capture_default_str();
  app.add_option("--int-range", o.random.int_range, "Integers are drawn from 0 … N - 1")
      ->check(number_above_zero())
      ->capture_default_str();
  app.add_flag("--no-native", o.no_native, "Time the checked, portable form of the kernels");
  add_load_limits(app, &o.load);
  app.add_flag("--profile", o.profile, "Also print where the time went (adds overhead)");
  add_format(app, &o.format, "The times");
  if (const auto code = parse_arguments(app, argc, argv, {kExitInterrupted})) return *code;
  try {
    return bench(o);
  } catch (const api::Error& e) {
    if (!interrupted) rethrow_with_range(e, o.random);
  } catch (const std::exception& e) {
    if (!interrupted) throw;
  }
  fmt::print(stderr, "nimble bench: interrupted\n");
  return kExitInterrupted;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_program("nimble bench", [&] { return nimble::main_of(argc, argv); });
}
