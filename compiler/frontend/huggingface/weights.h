// The weights of a Hugging Face folder.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/ir/tensor.h"

namespace nimble::frontend {

class Weights {
 public:
  // Maps model.safetensors, or the shards that model.safetensors.index.json names.
  explicit Weights(const std::string& folder);

  // Some heads store the encoder below "bert.": names are then looked up there.
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  bool has(const std::string& name) const { return tensors_.contains(prefix_ + name); }
  // A float tensor of this shape, as f32: the mapped one, or a converted copy of another width.
  // nimble::Error: kNotFound, kCorrupt (another shape), kUnsupported (no float).
  ir::TensorRef get(const std::string& name, const std::vector<int64_t>& shape) const;

 private:
  std::string folder_, prefix_;
  std::unordered_map<std::string, ir::TensorRef> tensors_;
};

}  // namespace nimble::frontend
