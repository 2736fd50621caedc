#include "tuner/service/tuning_machine.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler/kernels/targets.h"
#include "compiler/tuned/tuned.h"
#include "db/store/gpu_records.h"
#include "db/store/host_records.h"
#include "vm/base/cpu.h"
#include "vm/base/error.h"
#include "vm/base/gpu_target.h"
#include "vm/base/printable.h"
#include "vm/runtime/cuda_facts.h"

namespace nimble::tuner {
namespace {

GpuFacts gpu_that_runs(const kernels::TargetInfo& target) {
  const std::string place = "--target " + target.level;
  GpuFacts gpu;
  try {
    gpu = rt::cuda_facts();
  } catch (const Error& e) {
    throw Error(e.status(), place, "there is no GPU to measure on: " + e.problem(),
                "tune on a machine that has such a GPU and its driver; here: " + e.remedy());
  }
  if (!gpu_target(target.level)->runs_on(gpu.capability))
    throw Error(
        Status::kUnsupported, place,
        fmt::format("this machine's GPU ({}, compute capability {}.{}) cannot run such code",
                    gpu.name, gpu.capability / 10, gpu.capability % 10),
        "tune on the GPU that the code is for; NIMBLE_CUDA_DEVICE chooses among several");
  return gpu;
}

// A card of another capability than the code's may have less shared memory than the code's row,
// and a hardware's record does not say. It has what the rows of assembly that it runs say: that is
// what all such cards have.
int64_t shared_bytes_of(const kernels::TargetInfo& target, int capability) {
  int64_t least = target.shared_bytes;
  if (gpu_target(target.level)->capability == capability) return least;
  for (const kernels::TargetRow& row : kernels::all_targets()) {
    const std::optional<GpuTarget> code = gpu_target(row.info.level);
    if (code && code->assembly && code->runs_on(capability))
      least = std::min(least, row.info.shared_bytes);
  }
  return least;
}

std::string best_level_of(const db::Hardware& hardware, int capability) {
  std::optional<GpuTarget> best;
  std::string level;
  for (const kernels::TargetRow& row : kernels::all_targets()) {
    const std::optional<GpuTarget> code = gpu_target(row.info.level);
    if (!code || !code->runs_on(capability) || (best && !code->better_than(*best))) continue;
    best = code;
    level = row.info.level;
  }
  if (!best)
    throw Error(Status::kUnsupported, "--hardware " + printable(hardware.model_name),
                fmt::format("no target makes code for a GPU of compute capability {}.{}",
                            capability / 10, capability % 10),
                "see the targets: nimble compile --help");
  return level;
}

bool is_assembly(const kernels::TargetInfo& target) {
  const std::optional<GpuTarget> code = gpu_target(target.level);
  return code && code->assembly;
}

// That a worker's record names (FleetWorker); 0 if it names none.
int64_t driver_of_worker(const db::Worker& worker) {
  const nlohmann::json said = nlohmann::json::parse(worker.capabilities, nullptr, false);
  if (!said.is_object() || !said.contains("gpu") || !said["gpu"].is_object()) return 0;
  const auto it = said["gpu"].find("driver");
  return it != said["gpu"].end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

}  // namespace

db::Toolchain toolchain_on(const kernels::TargetInfo& target, int64_t driver) {
  db::Toolchain out = tuned::toolchain_record(target);
  if (driver != 0 && is_assembly(target)) out.flags += " driver=" + db::driver_text(driver);
  return out;
}

kernels::TargetInfo target_on(const std::string& level, const db::Hardware& hardware) {
  const std::optional<int> capability = db::gpu_capability(hardware);
  if (level == "native")
    return capability ? target_on(best_level_of(hardware, *capability), hardware)
                      : kernels::target_of_isa(hardware.isa);
  kernels::TargetInfo out = kernels::target_by_name(level);
  const bool runs = out.is_gpu() ? capability && gpu_target(level)->runs_on(*capability)
                                 : !capability.has_value();
  if (!runs)
    throw Error(Status::kUnsupported, "--target " + level,
                fmt::format("{} ({}) cannot run such code", printable(hardware.model_name),
                            printable(hardware.isa)),
                "name hardware that the code is for: nimble db show hardware lists what there is");
  if (capability) out.shared_bytes = shared_bytes_of(out, *capability);
  return out;
}

db::Hardware gpu_of_fleet(db::Store& store, const kernels::TargetInfo& target) {
  const auto runs = [&](const db::Hardware& h) {
    const std::optional<int> capability = db::gpu_capability(h);
    return capability && gpu_target(target.level)->runs_on(*capability);
  };
  try {
    if (db::Hardware here = db::gpu_hardware(rt::cuda_facts()); runs(here)) return here;
  } catch (const Error& e) {  // there is none here
    if (e.status() == Status::kInvalidArgument) throw;
  }
  std::vector<db::Hardware> found;
  std::string list;
  for (const db::Hardware& h : store.hardware()) {
    if (!runs(h)) continue;
    found.push_back(h);
    list += fmt::format("{}{} {}", list.empty() ? "" : "; ", db::key_of(h).substr(0, 12),
                        printable(h.model_name));
  }
  if (found.size() == 1) return found[0];
  if (found.empty())
    throw Error(Status::kNotFound, "--target " + target.level,
                store.path() + " knows no GPU that runs such code",
                "begin a worker on a machine that has one: nimble worker --db PLACE --device gpu");
  throw Error(Status::kInvalidArgument, "--target " + target.level,
              fmt::format("{} kinds of GPUs run such code", found.size()),
              "say which is to measure with --hardware: " + list);
}

int64_t driver_of_fleet(db::Store& store, const kernels::TargetInfo& target,
                        const db::Hash& hardware) {
  if (!is_assembly(target)) return 0;
  const std::optional<db::Hardware> kind = store.hardware(hardware);
  if (kind && kind->isa == db::kAnyGpu) return 0;
  int64_t newest = 0;
  for (const db::LiveWorker& w : store.live_workers())
    if (w.hardware == hardware) newest = std::max(newest, driver_of_worker(w.worker));
  if (newest > 0) return newest;
  try {
    if (const GpuFacts here = rt::cuda_facts(); db::key_of(db::gpu_hardware(here)) == hardware)
      return here.driver;
  } catch (const Error& e) {  // there is none here
    if (e.status() == Status::kInvalidArgument) throw;
  }
  throw Error(Status::kNotFound, "--target " + target.level,
              "the driver makes machine code of it, and no worker that is alive on such a GPU "
              "tells which driver that is",
              "begin one: nimble worker --db PLACE --device gpu");
}

TuningMachine tuning_machine(const std::string& name) {
  TuningMachine out;
  out.target = kernels::target_by_name(name);
  if (out.target.is_gpu()) {
    const GpuFacts gpu = gpu_that_runs(out.target);
    tuned::require_toolchain(out.target);
    out.toolchain = toolchain_on(out.target, gpu.driver);
    out.hardware = db::gpu_hardware(gpu);
    out.machine = db::gpu_machine(gpu);
    // Others of the architecture may have more of it.
    out.target.shared_bytes = std::min(out.target.shared_bytes, gpu.shared_bytes);
  } else {
    if (!host_cpu().has(out.target.level))
      throw Error(
          Status::kUnsupported, "--target " + name,
          fmt::format("this machine is of level {} and cannot run such code", host_cpu().level),
          "tune on the machine that the code is for");
    out.toolchain = tuned::toolchain_record();
    out.hardware = db::host_hardware();
    out.machine = db::host_machine();
  }
  return out;
}

}  // namespace nimble::tuner
