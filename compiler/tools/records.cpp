#include "compiler/tools/records.h"

#include "compiler/kernels/targets.h"
#include "compiler/tools/targets.h"
#include "compiler/tuned/layered.h"
#include "db/store/gpu_records.h"
#include "db/store/host_records.h"
#include "db/store/open_existing.h"
#include "db/store/place.h"
#include "vm/arguments/command_line.h"
#include "vm/base/device_number.h"
#include "vm/base/gpu_target.h"
#include "vm/base/printable.h"
#include "vm/base/text_table.h"
#include "vm/runtime/cuda_facts.h"

namespace nimble::tools {

namespace {

bool is_of_this_machine(const kernels::TargetInfo& target) {
  return kernels::target_row(target.level).architecture == kernels::Architecture::kPortable ||
         kernels::same_architecture(target, kernels::detect_host());
}

// Whether such hardware runs the target's code, and no better one that there is.
bool is_of(const db::Hardware& hardware, const kernels::TargetInfo& target) {
  const std::optional<int> capability = db::gpu_capability(hardware);
  if (target.is_gpu()) return capability && gpu_target(target.level)->runs_on(*capability);
  try {
    return !capability && kernels::target_of_isa(hardware.isa).level == target.level;
  } catch (const Error&) {  // of a future version
    return false;
  }
}

// Whose records serve a target that this machine is not of.
db::Hardware hardware_of(db::Store& store, const kernels::TargetInfo& target) {
  std::vector<db::Hardware> found;
  std::string list;
  for (const db::Hardware& h : store.hardware()) {
    if (!is_of(h, target)) continue;
    found.push_back(h);
    list +=
        fmt::format("{}{} {}", list.empty() ? "" : "; ", db::key_of(h).substr(0, 12), h.model_name);
  }
  if (found.size() > 1)
    throw Error(
        Status::kInvalidArgument, "--target " + target.level,
        fmt::format("the database has records of {} {}", found.size(),
                    target.is_gpu() ? "kinds of GPUs that run its code" : "machines of that level"),
        "say whose are used with --hardware: " + list);
  if (found.size() == 1) return found[0];
  db::Hardware none;  // it has no records, and each kernel is reported as untuned
  none.isa = target.level;
  return none;
}

// Whose records serve a GPU's target: this machine's GPU if it is one of it, whatever else the
// database knows.
db::Hardware gpu_of(db::Store& store, const kernels::TargetInfo& target) {
  try {
    if (db::Hardware here = db::gpu_hardware(rt::cuda_facts()); is_of(here, target)) return here;
  } catch (const Error& e) {  // there is none here: code for it is made anywhere
    if (e.status() == Status::kInvalidArgument) throw;
  }
  return hardware_of(store, target);
}

}  // namespace

std::unique_ptr<tuned::TunedSource> open_database(const ModelArguments& a) {
  if (a.databases.empty()) {
    if (!a.hardware.empty())
      throw Error(Status::kInvalidArgument, "--hardware " + a.hardware,
                  "says whose records are used, but there is no database", "give --db");
    return nullptr;
  }
  std::vector<std::unique_ptr<tuned::TunedSource>> sources;
  std::optional<Error> unknown;  // hardware that a database has no records of
  const Targets targets = targets_of(a);
  const kernels::TargetInfo& target = targets.cpus.at(0);
  for (const std::string& place : a.databases) {
    try {
      std::shared_ptr<db::Store> store = db::open_to_read(place);
      std::optional<db::Hardware> named, gpu;
      if (!a.hardware.empty()) named = db::find_hardware(*store, a.hardware);
      // It is the GPU's name or the CPU's; the other's is found as without.
      if (named && db::gpu_capability(*named)) {
        if (targets.gpus.empty() || !is_of(*named, targets.gpus[0]))
          throw Error(Status::kInvalidArgument, "--hardware " + a.hardware,
                      fmt::format("{} is a GPU, which runs no code of --target {}",
                                  printable(named->model_name), a.target),
                      "name the hardware that the code is for");
        std::swap(named, gpu);
      }
      if (const kernels::TargetInfo* one = kernels::gpu_of_records(targets.gpus); one && !gpu)
        gpu = gpu_of(*store, *one);
      const db::Hardware hardware = named                        ? *named
                                    : is_of_this_machine(target) ? db::host_hardware()
                                                                 : hardware_of(*store, target);
      sources.push_back(tuned::database_source(std::move(store), hardware, std::move(gpu)));
    } catch (const Error& e) {
      if (e.status() == Status::kIncompatible) throw IncompatibleDatabase(e);
      // Of several databases not each has records of every machine.
      if (e.place() != "--hardware " + a.hardware || e.status() != Status::kNotFound) throw;
      unknown = e;
    }
  }
  if (sources.empty()) throw *unknown;
  return tuned::layered_source(std::move(sources));
}

std::string database_word(const ModelArguments& a) {
  return a.databases.empty() ? "tuning.db" : shell_word(db::printable_place(a.databases[0]));
}

std::string tune_command(const ModelArguments& a) {
  const Targets targets = targets_of(a);
  const bool gpu = !targets.gpus.empty();
  const std::string& level = gpu ? targets.gpus[0].level : targets.cpus.at(0).level;
  return fmt::format("nimble tune {}{} --db {}{}",
                     model_text(a.model, a.shapes, a.import, a.precision, a.winograd),
                     gpu || level != kernels::detect_host().level ? " --target " + level : "",
                     database_word(a), a.policy == "auto" ? "" : " --policy " + a.policy);
}

int run_compiler_program(const char* name, const std::function<int()>& body) {
  return run_program(name, [&]() -> int {
    try {
      return body();
    } catch (const IncompatibleDatabase& e) {
      print_error(name, e.what());
      return kExitStale;
    }
  });
}

std::string_view name_of(tuned::Lookup::Outcome outcome) {
  using Outcome = tuned::Lookup::Outcome;
  switch (outcome) {
    case Outcome::kTuned:
      return "tuned";
    case Outcome::kStale:
      return "stale";
    case Outcome::kFallback:
      return "fallback";
    case Outcome::kMismatch:
      return "mismatch";
    case Outcome::kUntuned:
      return "untuned";
    case Outcome::kFixed:
      return "fixed";
  }
  return "untuned";
}

bool require_tuned(const char* program, const ModelArguments& a,
                   const driver::CompileReport& report) {
  using Outcome = tuned::Lookup::Outcome;
  constexpr size_t kMostLines = 20;
  size_t lacking = 0, of_gpu = 0, of_cpu = 0;
  for (const driver::KernelReport& k : report.kernels) {
    if (k.outcome == Outcome::kTuned || k.outcome == Outcome::kFixed) continue;
    ++(is_gpu(k.device) ? of_gpu : of_cpu);
    if (++lacking <= kMostLines)
      fmt::print(stderr, "{}: error: {} ({}): {}: {}\n", program, k.kernel, k.source,
                 name_of(k.outcome), k.reason.empty() ? "no tuning record" : k.reason);
  }
  if (lacking == 0) return true;
  if (lacking > kMostLines) fmt::print(stderr, "… and {} more\n", lacking - kMostLines);
  const Targets targets = targets_of(a);
  if (of_gpu > 0)
    fmt::print(stderr,
               "{}: error: {} of {} kernels have no exact record of the GPU and class ({}); tune "
               "on a machine that has it: {}\n",
               program, of_gpu, report.kernels.size(), report.gpu_class, tune_command(a));
  if (of_cpu > 0 && !targets.gpus.empty()) {
    ModelArguments beside = a;
    beside.target = "native";
    beside.features.clear();
    fmt::print(stderr,
               "{}: error: {} of {} kernels run on the CPU beside the GPU's and have no exact "
               "record; tune on a machine of the CPU's level: {} --beside {}\n",
               program, of_cpu, report.kernels.size(), tune_command(beside), targets.gpus[0].level);
  }
  if (of_cpu > 0 && targets.gpus.empty())
    fmt::print(stderr,
               "{}: error: {} of {} kernels have no exact record of this machine and class ({}); "
               "tune again: {}\n",
               program, of_cpu, report.kernels.size(), report.policy_class, tune_command(a));
  return false;
}

}  // namespace nimble::tools
