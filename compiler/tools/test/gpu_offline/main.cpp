// nimble-gpu-offline: what NVRTC and the assembler make of configurations of the GPUs' templates.
// Neither needs a GPU. A test tool; scripts/test-gpu-offline builds and runs it.
//
// Each sample (codegen/test/cuda_samples.h) is lowered by its default configuration and by drawn
// ones, for each architecture. One of them is compiled in a process of its own, so that an internal
// error of ours, or a crash of NVRTC's, is one failure and not the end of the run.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "compiler/codegen/cuda/cuda.h"
#include "compiler/codegen/test/cuda_samples.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/test/gpu_levels.h"
#include "compiler/kernels/test/template_harness.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/table.h"
#include "vm/base/error.h"
#include "vm/base/file.h"

namespace nimble::codegen::testing {
namespace {

using Json = Table::Json;

struct Options {
  std::vector<std::string> targets, templates;
  size_t configurations = 8;
  int jobs = 1;
  int seconds = 120;
  std::string out;
};

struct Task {
  size_t sample;
  std::string target, config;
  bool is_default;
};

// The default configuration, and drawn ones that are valid: the same in every run.
std::vector<kernels::Config> configs_of(const kernels::Workload& w, const kernels::Template& t,
                                        const kernels::TargetInfo& target, size_t most) {
  std::vector<kernels::Config> out = {t.default_config(w, target)};
  std::set<std::string> seen = {kernels::to_json(out[0])};
  const std::vector<kernels::Knob> knobs = t.knobs(w, target);
  std::mt19937 random(1234);
  for (size_t tries = 0; tries < 200 * most && out.size() <= most; ++tries) {
    kernels::Config c;
    for (const kernels::Knob& k : knobs) c[k.name] = k.choices[random() % k.choices.size()];
    if (t.valid(w, c, target) && seen.insert(kernels::to_json(c)).second)
      out.push_back(std::move(c));
  }
  return out;
}

Json error_of(const std::string& problem) {
  Json out;
  out["error"] = problem;
  return out;
}
bool is_error(const Json& result) {
  const auto error = result.find("error");
  return error != result.end() && !error->is_null();
}

// Compiles one; what comes of it, or "error".
Json result_of(const CudaSample& sample, const Task& task) {
  try {
    const kernels::TargetInfo target = kernels::target_by_name(task.target);
    const kernels::Workload w = kernels::testing::workload_of(sample.text);
    const kernels::Template& t = *kernels::find_template(sample.served_by);
    const kernels::Lowered lowered =
        t.lower(w, kernels::config_from_json(task.config), target, "kernel");
    const std::vector<CudaObject> objects = compile_cuda(lowered.functions, target);
    int registers = 0;
    int64_t spilled = 0, shared = 0;
    uint32_t alignment = 0;
    uint64_t code = 0;
    for (const CudaObject& o : objects) {
      if (!o.serialized.empty()) return error_of(o.serialized);
      registers = std::max(registers, o.resources.registers);
      spilled = std::max(spilled, o.resources.spill_bytes);
      alignment = std::max(alignment, o.argument_alignment);
      code += o.function.code_bytes;
    }
    for (const kir::Function& f : lowered.functions)
      shared = std::max(shared, kir::shared_bytes(f));
    return {{"threads", lowered.functions.at(0).launch->threads},
            {"registers", registers},
            {"spill_bytes", spilled},
            {"shared_bytes", shared},
            {"alignment", alignment},
            {"code_bytes", code}};
  } catch (const std::exception& e) {
    return error_of(e.what());
  }
}

struct Child {
  pid_t pid = 0;
  int from = -1;
  size_t task = 0;
  std::string text;
};

Child start(const Options& o, const std::vector<CudaSample>& samples, const Task& task, size_t n) {
  int ends[2];
  if (::pipe(ends) != 0) throw Error(Status::kIo, "pipe", "no pipe can be made");
  std::cout.flush();
  Child c{::fork(), ends[0], n, {}};
  if (c.pid < 0) throw Error(Status::kIo, "fork", "no process can be made");
  if (c.pid == 0) {
    ::close(ends[0]);
    // Processor time: how busy the machine is does not make a compilation slow.
    const auto seconds = static_cast<rlim_t>(o.seconds);
    const rlimit limit{seconds, seconds + 5};
    ::setrlimit(RLIMIT_CPU, &limit);
    const std::string text = result_of(samples[task.sample], task).dump();
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  return c;
}

// Of one that has closed its pipe.
Json finish(const Child& c) {
  ::close(c.from);
  int status = 0;
  ::waitpid(c.pid, &status, 0);
  if (WIFSIGNALED(status))
    return error_of(WTERMSIG(status) == SIGXCPU
                        ? std::string("it does not end in time")
                        : fmt::format("it dies: {}; see above", ::strsignal(WTERMSIG(status))));
  Json result = Json::parse(c.text, nullptr, false);
  return result.is_discarded() ? error_of("it ends without a result") : result;
}

// Runs all, `jobs` at a time; results in the order of the tasks.
std::vector<Json> run_all(const Options& o, const std::vector<CudaSample>& samples,
                          const std::vector<Task>& tasks) {
  const bool terminal = ::isatty(STDERR_FILENO);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Json> out(tasks.size());
  std::vector<Child> running;
  size_t next = 0, done = 0, errors = 0;
  while (done < tasks.size()) {
    for (; running.size() < static_cast<size_t>(o.jobs) && next < tasks.size(); ++next)
      running.push_back(start(o, samples, tasks[next], next));
    std::vector<pollfd> ends;
    for (const Child& c : running) ends.push_back({c.from, POLLIN, 0});
    if (::poll(ends.data(), ends.size(), -1) < 0) continue;
    for (size_t i = running.size(); i-- > 0;) {
      if (ends[i].revents == 0) continue;
      char buffer[4096];
      if (const ssize_t n = ::read(running[i].from, buffer, sizeof buffer); n > 0) {
        running[i].text.append(buffer, static_cast<size_t>(n));
        continue;
      }
      out[running[i].task] = finish(running[i]);
      errors += is_error(out[running[i].task]);
      running.erase(running.begin() + static_cast<ptrdiff_t>(i));
      ++done;
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      if (terminal || done % 50 == 0)
        fmt::print(stderr, "{}{} of {} configurations, {} errors, {:.0f} s{}", terminal ? "\r" : "",
                   done, tasks.size(), errors, spent.count(), terminal ? " " : "\n");
    }
  }
  if (terminal) fmt::print(stderr, "\n");
  return out;
}

bool is_wanted(const std::vector<std::string>& wanted, const std::string& name) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
}

// A line for each template and architecture: how many, and the most of each number.
Table summary_of(const Json& rows) {
  Table table({"template", "target", "configurations", "errors",
               Column("registers", "registers, most"), Column("shared_bytes", "bytes shared, most"),
               Column("spilling", "that spill"), Column("spill_bytes", "bytes spilled, most"),
               Column("defaults", "defaults that do")});
  std::map<std::pair<std::string, std::string>, std::vector<Json>> groups;
  for (const Json& row : rows)
    groups[{row.at("template").get<std::string>(), row.at("target").get<std::string>()}].push_back(
        row);
  for (const auto& [key, of] : groups) {
    int64_t registers = 0, spilling = 0, spilled = 0, shared = 0, errors = 0, defaults = 0;
    for (const Json& row : of) {
      if (is_error(row)) {
        ++errors;
        continue;
      }
      registers = std::max(registers, row.at("registers").get<int64_t>());
      spilled = std::max(spilled, row.at("spill_bytes").get<int64_t>());
      if (row.at("spill_bytes").get<int64_t>() > 0) {
        ++spilling;
        defaults += row.at("default").get<bool>();
      }
      shared = std::max(shared, row.at("shared_bytes").get<int64_t>());
    }
    table.add(
        {key.first, key.second, of.size(), errors, registers, shared, spilling, spilled, defaults});
  }
  return table;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Compiles the templates of GPUs in many configurations, and tells the registers and spilled "
      "bytes that the assembler reports",
      "nimble-gpu-offline"};
  Options o;
  app.add_option("--target", o.targets, "Architectures (default: all)")->delimiter(',');
  app.add_option("--template", o.templates, "Templates (default: all)")->delimiter(',');
  app.add_option("--configurations", o.configurations, "Of each sample, beside the default")
      ->capture_default_str();
  app.add_option("--seconds", o.seconds, "Processor time of one compilation at most")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--jobs", o.jobs, "Compilations at a time")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--out", o.out, "File for a line for each configuration, as CSV");
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  if (const std::string why = why_no_cuda(); !why.empty())
    throw Error(Status::kUnsupported, "NVRTC", "it cannot be opened: " + why,
                "say in NIMBLE_NVRTC where libnvrtc.so.13 is");
  if (o.targets.empty()) o.targets = kernels::testing::gpu_levels();

  const std::vector<CudaSample> samples = cuda_samples();
  for (const std::string& name : o.templates)
    if (std::none_of(samples.begin(), samples.end(),
                     [&](const CudaSample& s) { return s.served_by == name; }))
      return usage_error(app, "no sample is of the template " + name);
  std::vector<Task> tasks;
  for (const std::string& level : o.targets) {
    const kernels::TargetInfo target = kernels::target_by_name(level);
    if (!target.is_gpu()) return usage_error(app, level + " is no GPU's architecture");
    for (size_t i = 0; i < samples.size(); ++i) {
      if (!is_wanted(o.templates, samples[i].served_by)) continue;
      const kernels::Workload w = kernels::testing::workload_of(samples[i].text);
      const kernels::Template& t = *kernels::find_template(samples[i].served_by);
      const auto configs = configs_of(w, t, target, o.configurations);
      for (size_t c = 0; c < configs.size(); ++c)
        tasks.push_back({i, level, kernels::to_json(configs[c]), c == 0});
    }
  }
  const std::vector<Json> results = run_all(o, samples, tasks);

  Table all({"template", "target", "sample", "default", "config", "threads", "registers",
             "spill_bytes", "shared_bytes", "alignment", "code_bytes", "error"});
  std::vector<std::string> bad;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    Json row = {{"template", samples[task.sample].served_by},
                {"target", task.target},
                {"sample", samples[task.sample].text},
                {"default", task.is_default},
                {"config", task.config}};
    row.update(results[i]);
    const std::string what = fmt::format("{} for {} with {}, of {}", samples[task.sample].served_by,
                                         task.target, task.config, samples[task.sample].text);
    if (is_error(row))
      bad.push_back(fmt::format("{}: {}", what, row.at("error").get<std::string>()));
    else if (task.is_default && row.at("spill_bytes").get<int64_t>() > 0)
      bad.push_back(fmt::format("{}: the default spills {} bytes", what,
                                row.at("spill_bytes").get<int64_t>()));
    all.add_object(std::move(row));
  }
  if (!o.out.empty()) write_file_atomically(o.out, std::string_view(all.csv()));
  std::cout << summary_of(all.json()).text();
  for (const std::string& line : bad) fmt::print(stderr, "nimble-gpu-offline: {}\n", line);
  return bad.empty() ? kExitOk : kExitFailure;
}

}  // namespace
}  // namespace nimble::codegen::testing

int main(int argc, char** argv) {
  return nimble::run_program("nimble-gpu-offline",
                             [&] { return nimble::codegen::testing::run(argc, argv); });
}
