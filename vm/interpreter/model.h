// A loaded model: the executable, checked and verified, with its native code mapped, its kernels
// prepared and its constants where they are read fast. Immutable; sessions share it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vm/executable/executable.h"
#include "vm/executable/load_limits.h"
#include "vm/interpreter/kernel.h"
#include "vm/interpreter/program.h"
#include "vm/runtime/cuda_device.h"
#include "vm/runtime/native_image.h"

namespace nimble::rt {

struct LoadOptions {
  // Native code cannot be verified; it is loaded only from a file that the caller trusts. Without
  // trust the kernels' portable forms run: checked at every access, and many times slower.
  bool trust = false;
  // Write /tmp/perf-<pid>.map. Also on when the environment has NIMBLE_PERF_MAP=1.
  bool perf_map = false;
  exec::LoadLimits limits{};
  // The threads that sessions will have: vendors' routines are made ready in as many shares, for
  // the table of so many threads. 0: ThreadPool::default_threads().
  int32_t threads = 0;
};

class Model {
 public:
  // Errors name the file: those of exec::read and exec::verify; kIncompatible if no native image
  // fits this CPU (with the features it lacks) or this GPU; kUnsupported if kernels need a GPU and
  // there is none; kInvalidArgument without trust if a kernel has
  // native code only; kExhausted beyond the limits.
  static std::shared_ptr<const Model> load(const std::string& path, const LoadOptions& options);
  static std::shared_ptr<const Model> load(exec::Executable executable, const LoadOptions& options,
                                           const std::string& place);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const exec::Executable& executable() const { return executable_; }
  const std::string& place() const { return place_; }
  std::span<const DecodedFunction> functions() const { return functions_; }
  std::span<const PreparedKernel> kernels() const { return kernels_; }
  // Where a constant's bytes are read from: the mapped file, huge pages if it is hot, or its
  // device's memory.
  const uint8_t* constant_data(size_t index) const { return constants_[index]; }
  // Target of the native image in use; empty if none is: the model has no native code, it was
  // loaded without trust, or Linux refuses this process the registers that its code needs.
  const std::string& target() const { return target_; }
  // The same of the GPU.
  const std::string& gpu_target() const { return gpu_target_; }
  // Where its kernels run that are a GPU's; nullptr if it has none.
  CudaDevice* gpu() const { return gpu_; }
  // Throws if it was lost: what lay there must not be sought on the one that took its place.
  void check_gpu() const {
    if (CudaDevice* device = gpu(); device && device->lost()) device->enter();
  }
  // Whether the caller vouches for the file.
  bool trusted() const { return trusted_; }
  // Whether portable forms stand in for native code that the file has.
  bool no_native() const { return no_native_; }
  // Remarks for the user: vendor implementations that are missing here, and sizes for which one has
  // nothing.
  const std::vector<std::string>& notes() const { return notes_; }
  uint64_t hot_bytes() const { return hot_bytes_; }
  // What vendors' routines keep beside the constants: weights copied as their library wants them,
  // and scratchpads. And the calls, of one size and one constant each, that they are ready for.
  uint64_t vendor_bytes() const { return vendor_bytes_; }
  size_t vendor_calls() const { return vendor_calls_; }
  // All of the above and the provenance as JSON.
  const std::string& info() const { return info_; }

 private:
  Model() = default;
  void load_image(const LoadOptions& options);
  void load_gpu_image();
  // Makes the host the device of all that the file wants on the GPU.
  void keep_on_host();
  // Counts bytes that loading takes.
  void take(uint64_t bytes, std::string_view what);
  void place_constants();
  // Copies a constant that a device reads into its memory.
  const uint8_t* place_on_device(const exec::Constant& c);
  // Makes vendors' routines ready for the exact entries of the kernels' dispatch trees.
  void make_routines_ready(int32_t threads);
  // `constants`: by argument of the kernel, what the program may pass there, as far as it is known.
  void make_routine_ready(size_t kernel, VendorRoutine& routine, std::span<const int64_t> symbols,
                          int32_t threads, std::map<size_t, std::vector<uint32_t>>* constants);
  void describe();

  exec::Executable executable_;
  std::string place_, target_, gpu_target_, info_;
  std::shared_ptr<const NativeImage> image_;
  CudaDevice* gpu_ = nullptr;
  // Of the GPU's image, by the symbol of the kernel that is in it; "": one of all kernels.
  std::map<std::string, std::unique_ptr<DeviceModule>> modules_;
  std::vector<DecodedFunction> functions_;
  std::vector<PreparedKernel> kernels_;
  std::vector<const uint8_t*> constants_;
  std::vector<std::string> notes_;
  uint8_t* hot_ = nullptr;
  uint64_t hot_bytes_ = 0, vendor_bytes_ = 0;
  size_t vendor_calls_ = 0;
  struct DeviceBlock {
    Device* device;
    void* data;
    size_t bytes;
  };
  std::vector<DeviceBlock> device_blocks_;
  uint64_t memory_left_ = 0;  // of the limit for loading
  bool trusted_ = false, no_native_ = false;
};

}  // namespace nimble::rt
