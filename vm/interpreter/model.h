// A loaded model: the executable, checked and verified, with its native code mapped, its kernels
// prepared and its constants where they are read fast. Immutable; sessions share it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vm/executable/executable.h"
#include "vm/interpreter/kernel.h"
#include "vm/interpreter/program.h"
#include "vm/runtime/native_image.h"

namespace nimble::rt {

struct LoadOptions {
  // Native code cannot be verified; it is loaded only from a file that the caller trusts.
  bool trust = false;
  // Write /tmp/perf-<pid>.map. Also on when the environment has NIMBLE_PERF_MAP=1.
  bool perf_map = false;
};

class Model {
 public:
  // Errors name the file: those of exec::read and exec::verify; kIncompatible if no native image
  // fits this CPU (with the features it lacks); kInvalidArgument for native code without trust.
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
  // Where a constant's bytes are read from: the mapped file, or huge pages if it is hot.
  const uint8_t* constant_data(size_t index) const { return constants_[index]; }
  // Target of the native image in use; empty if the model has no native code.
  const std::string& target() const { return target_; }
  // Remarks for the user: vendor implementations that are missing here.
  const std::vector<std::string>& notes() const { return notes_; }
  uint64_t hot_bytes() const { return hot_bytes_; }
  // All of the above and the provenance as JSON.
  const std::string& info() const { return info_; }

 private:
  Model() = default;
  void load_image(const LoadOptions& options);
  void place_constants();
  void describe();

  exec::Executable executable_;
  std::string place_, target_, info_;
  std::shared_ptr<const NativeImage> image_;
  std::vector<DecodedFunction> functions_;
  std::vector<PreparedKernel> kernels_;
  std::vector<const uint8_t*> constants_;
  std::vector<std::string> notes_;
  uint8_t* hot_ = nullptr;
  uint64_t hot_bytes_ = 0;
};

}  // namespace nimble::rt
