// The safetensors format: an 8-byte little-endian header length, a JSON header
// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …}, then the data.
// The reader checks every bound and trusts nothing: header size, number ranges, shape against
// byte count, overlap, holes, duplicate names.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/tensor.h"

namespace nimble::ir {

struct SafeTensors {
  std::vector<std::pair<std::string, TensorRef>> tensors;  // in order of their data
  std::map<std::string, std::string> metadata;             // "__metadata__"
  TensorRef find(const std::string& name) const;           // null if there is none
};

// Maps the file; the tensors view it and keep it alive (those that the file does not align for
// their element type are copied). nimble::Error: kCorrupt with the fault, kIo, kNotFound.
SafeTensors read_safetensors(const std::string& path);
// The same from memory that `owner` keeps alive; `place` names it in errors.
SafeTensors parse_safetensors(std::span<const uint8_t> bytes, std::shared_ptr<const void> owner,
                              const std::string& place);

// Writes atomically. Names must be unique; data is aligned to 64 bytes per file start.
void write_safetensors(const std::string& path, const SafeTensors& contents);

}  // namespace nimble::ir
