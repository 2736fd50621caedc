#include "tuner/service/tuning_machine.h"

#include <algorithm>

#include "compiler/tuned/tuned.h"
#include "db/store/gpu_records.h"
#include "db/store/host_records.h"
#include "vm/base/cpu.h"
#include "vm/base/error.h"
#include "vm/base/gpu_target.h"
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

}  // namespace

TuningMachine tuning_machine(const std::string& name) {
  TuningMachine out;
  out.target = kernels::target_by_name(name);
  if (out.target.is_gpu()) {
    const GpuFacts gpu = gpu_that_runs(out.target);
    tuned::require_toolchain(out.target);
    out.toolchain = tuned::toolchain_record(out.target);
    out.hardware = db::gpu_hardware(gpu);
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
  }
  out.machine = {{}, db::host_machine().hostname, db::key_of(out.hardware)};
  return out;
}

}  // namespace nimble::tuner
