// NumPy's array files: .npy (format 1.0 to 3.0) and .npz (a zip of them, stored or deflated).
// Source: numpy/lib/format.py; PKWARE's APPNOTE for zip and zip64.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vm/base/dtype.h"

namespace nimble {

// A dense row-major array. `bytes` holds shape's product × size_of(dtype) bytes.
struct Array {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
  friend bool operator==(const Array&, const Array&) = default;
};

using NamedArrays = std::vector<std::pair<std::string, Array>>;

// Column-major and big-endian files are converted. NumPy has no bfloat16: a raw two-byte type
// ("V2", what ml_dtypes' bfloat16 is saved as) is read and written as bf16.
// Errors: kNotFound, kIo; kCorrupt for damage; kUnsupported for other element types.
Array read_npy(const std::string& path);
Array parse_npy(std::span<const uint8_t> bytes, const std::string& place);
std::vector<uint8_t> serialize_npy(DType dtype, std::span<const int64_t> shape,
                                   std::span<const uint8_t> bytes);
void write_npy(const std::string& path, const Array& array);
void write_npy(const std::string& path, DType dtype, std::span<const int64_t> shape,
               std::span<const uint8_t> bytes);

// Members in the file's order, names without ".npy". Check sums are verified. Members that overlap
// are kCorrupt; arrays of more than 1 GiB in all that have 64 times the file's bytes, kExhausted.
NamedArrays read_npz(const std::string& path);
NamedArrays parse_npz(std::span<const uint8_t> bytes, const std::string& place);
// Stored, not compressed; members of 4 GiB or more are refused (write them as .npy).
void write_npz(const std::string& path, const NamedArrays& arrays);

}  // namespace nimble
