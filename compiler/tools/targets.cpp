#include "compiler/tools/targets.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/kernels/targets.h"
#include "vm/arguments/command_line.h"
#include "vm/base/device_number.h"

namespace nimble::tools {

namespace {

// Where kernels run that nothing else constrains: on the GPU that is a target.
// Error(kInvalidArgument) where --device says otherwise.
int32_t device_of(const ModelArguments& a, const Targets& targets) {
  const int32_t device = device_by_name(a.device).value_or(kCpuDevice);
  if (targets.gpus.empty()) {
    if (device != kCudaDevice) return device;
    throw Error(Status::kInvalidArgument, "--device " + a.device,
                "no architecture of a GPU is a target", "say which: --target sm_90a");
  }
  if (device == kStandInDevice)
    throw Error(
        Status::kInvalidArgument, "--device " + a.device,
        fmt::format("kernels for {} run on {}", targets.gpus[0].level, device_name(kCudaDevice)),
        "leave --device out");
  return kCudaDevice;
}

}  // namespace

Targets targets_of(const std::string& text) {
  Targets targets;
  for (const std::string& name : split(text)) {
    kernels::TargetInfo target = kernels::loaded_target_by_name(name);
    (target.is_gpu() ? targets.gpus : targets.cpus).push_back(std::move(target));
  }
  if (targets.cpus.empty())
    targets.cpus.push_back(
        kernels::loaded_target_by_name(targets.gpus.empty() ? text /* refuses it */ : "native"));
  std::stable_sort(targets.cpus.begin(), targets.cpus.end(),
                   [](const auto& x, const auto& y) { return kernels::is_lower_level(y, x); });
  for (size_t i = 1; i < targets.cpus.size(); ++i)
    if (!kernels::is_lower_level(targets.cpus[i], targets.cpus[i - 1]))
      throw Error(Status::kInvalidArgument, "--target " + text,
                  fmt::format("{} and {} are not two levels of one architecture",
                              targets.cpus[i - 1].level, targets.cpus[i].level),
                  "name each level once: x86-64-v4,x86-64-v3,x86-64-v2");
  targets.gpus = kernels::gpus_of_one_file(std::move(targets.gpus));
  return targets;
}

Targets targets_of(const ModelArguments& a) {
  if (a.features.empty()) return targets_of(a.target);
  if (a.target.find(',') != std::string::npos)
    throw Error(Status::kInvalidArgument, "--features",
                fmt::format("{} names several levels", a.target),
                "give one, or leave --features out");
  std::vector<std::string> all;
  for (const std::string& text : a.features)
    for (std::string& f : split(text)) all.push_back(std::move(f));
  return {{kernels::target_with_features(a.target, all)}, {}};
}

passes::PassContext pass_context(const ModelArguments& a) {
  passes::PassContext context;
  const Targets targets = targets_of(a);
  context.target = targets.cpus.at(0);
  if (!targets.gpus.empty()) context.gpu = targets.gpus[0];
  context.device = device_of(a, targets);
  context.precision = a.precision;
  context.winograd = a.winograd;
  return context;
}

driver::CompileOptions compile_options(const ModelArguments& a, tuned::TunedSource* tuned) {
  driver::CompileOptions options;
  const Targets targets = targets_of(a);
  options.target = targets.cpus.at(0);
  options.more_targets.assign(targets.cpus.begin() + 1, targets.cpus.end());
  options.gpus = targets.gpus;
  options.device = device_of(a, targets);
  options.precision = a.precision;
  options.winograd = a.winograd;
  options.pipeline.disabled.insert(a.disabled.begin(), a.disabled.end());
  options.tuned = tuned;
  if (a.policy != "auto") options.policy_class = a.policy;
  return options;
}

CLI::Validator one_target() {
  return read_by(kernels::target_by_name);
}

std::string machine_target_names() {
  return fmt::format("native, {}", fmt::join(kernels::machine_levels(), ", "));
}

}  // namespace nimble::tools
