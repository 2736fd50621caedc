// Which of a file's images of machine code are loaded: of the CPU's the one that uses most of it,
// of a GPU's the one that was made for it most closely.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "vm/base/cpu.h"
#include "vm/base/error.h"
#include "vm/base/gpu_target.h"
#include "vm/executable/launch.h"
#include "vm/interpreter/model.h"
#include "vm/runtime/cuda_device.h"

namespace nimble::rt {
namespace {

bool needs_native(const exec::Kernel& k) {
  return std::any_of(
      k.implementations.begin(), k.implementations.end(),
      [](const exec::Implementation& i) { return i.kind == exec::ImplementationKind::kNative; });
}

bool on_gpu(const exec::Kernel& k) {
  return is_gpu(k.device);
}

// What only a caller who vouches for the file may ask for: of its kernels some have machine code,
// and those on a GPU have that or a vendor's routine.
bool needs_trust(const exec::Kernel& k) {
  return needs_native(k) || on_gpu(k);
}

// What the GPU's images are for: "sm_80, sm_90a".
std::string gpu_targets(const exec::Executable& e) {
  std::vector<std::string> targets;
  for (const exec::NativeImage& image : e.images)
    if (image.device == kCudaDevice) targets.push_back(image.target);
  return targets.empty() ? "none" : fmt::format("{}", fmt::join(targets, ", "));
}

// Whether all that is asked for is what Linux refuses this process, on a CPU that has it.
bool only_refused(const std::vector<std::string>& missing) {
  // Asking is a change of the process: last.
  return std::ranges::all_of(missing, needs_tile_registers) &&
         tile_registers() == TileRegisters::kRefused;
}

bool has_portable_forms(const exec::Executable& e) {
  return std::ranges::all_of(e.kernels, [](const exec::Kernel& k) {
    return k.portable || on_gpu(k) ||
           std::ranges::all_of(k.implementations, [](const exec::Implementation& i) {
             return i.kind == exec::ImplementationKind::kHost;
           });
  });
}

// What any GPU's code is compiled for at least; a capability is 80 for 8.0.
constexpr int kOldestCapability = 80;

bool wants_perf_map(const LoadOptions& options) {
  const char* set = std::getenv("NIMBLE_PERF_MAP");
  return options.perf_map || (set && std::strcmp(set, "1") == 0);
}

}  // namespace

// Without trust nothing runs on the GPU: its kernels' portable forms do on the host, with all that
// is theirs.
void Model::keep_on_host() {
  if (!exec::uses_gpu(executable_)) return;
  const bool kernels = std::ranges::any_of(executable_.kernels, on_gpu);
  if (exec::move_to_cpu(&executable_) || !kernels) return;  // load_image() refuses the former
  no_native_ = true;
  notes_.push_back("the GPU is not used: portable forms of its kernels run on the CPU, far slower");
}

void Model::load_gpu_image() {
  if (std::ranges::none_of(executable_.kernels, on_gpu)) return;
  const bool portable = std::ranges::all_of(
      executable_.kernels, [](const exec::Kernel& k) { return k.portable || !on_gpu(k); });
  const std::string or_else =
      portable ? ", or run it without native code (--no-native), which is far slower" : "";
  CudaDevice* gpu = nullptr;
  try {
    gpu = &cuda_device();
  } catch (const Error& e) {
    throw Error(e.status(), place_,
                fmt::format("its kernels need an NVIDIA GPU, and {}: {}", e.place(), e.problem()),
                e.remedy() + or_else);
  }
  gpu_ = gpu;
  // A candidate for measuring is a vendor's routine and nothing else.
  if (std::ranges::none_of(executable_.kernels,
                           [](const exec::Kernel& k) { return on_gpu(k) && needs_native(k); }))
    return;
  const int capability = gpu->info().capability;
  const exec::NativeImage* best = nullptr;
  GpuTarget best_target;
  for (const exec::NativeImage& image : executable_.images) {
    if (image.device != kCudaDevice) continue;
    const std::optional<GpuTarget> target = nimble::gpu_target(image.target);
    if (!target || !target->runs_on(capability)) continue;
    if (best && !target->better_than(best_target)) continue;
    best = &image;
    best_target = *target;
  }
  if (!best)
    throw Error(
        Status::kIncompatible, place_,
        fmt::format("its kernels' GPU code is for {}, and this GPU ({}) has compute "
                    "capability {}.{}",
                    gpu_targets(executable_), gpu->info().name, capability / 10, capability % 10),
        (capability < kOldestCapability
             ? "run it on a GPU of compute capability 8.0 or newer, or compile the model for the "
               "CPU"
             : "compile the model for this GPU, or for all of compute capability 8.0 and newer, "
               "whose driver then compiles the kernels at load (--target compute_80, beside others "
               "or alone)") +
            or_else);
  if (best_target.assembly)
    notes_.push_back(fmt::format(
        "no code in the file is of this GPU's own kind (compute capability {}.{}): its driver "
        "compiles that of {}, which takes longer at the first load",
        capability / 10, capability % 10, best->target));
  if (best->modules.empty())
    modules_.emplace("", std::make_unique<DeviceModule>(*gpu, best->bytes, place_));
  for (std::span<const uint8_t> left = best->bytes; const auto& [symbol, bytes] : best->modules) {
    modules_.emplace(symbol, std::make_unique<DeviceModule>(*gpu, left.first(bytes), place_));
    left = left.subspan(bytes);
  }
  gpu_target_ = best->target;
}

void Model::load_image(const LoadOptions& options) {
  if (std::none_of(executable_.kernels.begin(), executable_.kernels.end(), needs_trust)) return;
  if (!options.trust) {
    for (const exec::Kernel& k : executable_.kernels)
      if (!k.portable && needs_trust(k))
        throw Error(
            Status::kInvalidArgument, place_,
            fmt::format("it holds {}, which runs with all rights of this process, and "
                        "kernel {} has no portable form",
                        needs_native(k) ? "native code" : "calls of a vendor's library", k.name),
            "set `trust` in the load options if you trust where the file comes from");
    no_native_ = true;
    notes_.push_back("native code is not used; portable kernels run, checked and slower");
    return;
  }
  load_gpu_image();
  if (std::ranges::none_of(executable_.kernels,
                           [](const exec::Kernel& k) { return !on_gpu(k) && needs_native(k); }))
    return;
  const exec::NativeImage* best = nullptr;
  std::vector<std::string> least_missing;
  const exec::NativeImage* first = nullptr;
  for (const exec::NativeImage& image : executable_.images) {
    if (image.device != kCpuDevice) continue;
    if (!first) first = &image;
    std::vector<std::string> missing = missing_here(image.features);
    if (missing.empty()) {
      if (!best || image.features.size() > best->features.size()) best = &image;
    } else if (least_missing.empty() || missing.size() < least_missing.size()) {
      least_missing = std::move(missing);
    }
  }
  if (!best) {
    if (!first)
      throw Error(Status::kCorrupt, place_, "its kernels' native code is missing",
                  "compile the model again");
    if (only_refused(least_missing) && has_portable_forms(executable_)) {
      no_native_ = true;
      notes_.push_back(
          "Linux refuses this process the tile registers that native code uses (nimble doctor says "
          "why that may be); portable kernels run, checked and slower");
      return;
    }
    if (const auto other = architecture_of_level(first->target);
        other && other != host_architecture())
      throw Error(
          Status::kIncompatible, place_,
          fmt::format("its native code is for {}, and this machine is {} ({})", first->target,
                      host_architecture() ? name_of(*host_architecture()) : "another one",
                      host_cpu().level),
          fmt::format("compile the model with --target {}, or run it without native code "
                      "(--no-native), which is slower",
                      host_cpu().level));
    throw Error(Status::kIncompatible, place_,
                fmt::format("this CPU lacks {}, which the model's kernels use",
                            fmt::join(least_missing, ", ")),
                fmt::format("compile the model with --target {} (or --target native here), or run "
                            "it without native code (--no-native), which is slower",
                            host_cpu_without_tiles().level));
  }
  image_ = NativeImage::load(best->bytes, place_);
  target_ = best->target;
  if (wants_perf_map(options)) image_->write_perf_map();
}

}  // namespace nimble::rt
