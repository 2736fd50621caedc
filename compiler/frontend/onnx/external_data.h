// Tensors whose bytes lie in files beside the model.
//
// The location of such a file comes from the model, so a crafted model may name any file of the
// machine (CVE-2022-25882, 2024-27318, 2026-27489, 2026-34447: "..", absolute names, a symbolic
// link as file or as parent, a hard link). So:
//   - a location is a relative name of plain components: no "..", ".", empty ones, NUL, backslash;
//   - each component is opened relative to the one before, O_NOFOLLOW: no symbolic link anywhere
//     below the model's folder, and no race between a check and its use;
//   - the file is regular, with one link, and of a size that models have;
//   - offset and length are plain decimals, lie inside the file and fit the tensor's shape;
//   - no key is given twice, no tensor has data in both places: readers would differ on them;
//   - depth, number and size of files are bounded.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "compiler/frontend/onnx/model.h"
#include "vm/base/file.h"

namespace nimble::frontend::onnx {

class ExternalData {
 public:
  // For models in `folder`.
  explicit ExternalData(std::string folder) : folder_(std::move(folder)) {}

  struct Bytes {
    std::span<const uint8_t> bytes;
    std::shared_ptr<const void> owner;
  };
  // The `size` bytes of a tensor. `place` names the tensor in errors.
  // nimble::Error: kCorrupt (a forbidden location, wrong bounds), kNotFound, kIo.
  Bytes read(const TensorData& tensor, size_t size, const std::string& place);

 private:
  std::string folder_;
  std::map<std::string, Bytes> files_;
};

}  // namespace nimble::frontend::onnx
