// Tensors in a text of values: literals, nested lists, single numbers, rows of .npy files.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vm/api/nimble.hpp"
#include "vm/base/npy.h"
#include "vm/tools/text_scanner.h"

namespace nimble {

class TensorReader : public TextScanner {
 public:
  // Names of files are relative to `folder`, which must outlive the reader.
  TensorReader(std::string_view text, const std::string& place, const std::string& folder)
      : TextScanner(text, place), folder_(folder) {}

 protected:
  // The tensor of the type that begins here. Error(kInvalidArgument) if none does.
  api::Value tensor(const api::Type& type);

 private:
  static bool is_scalar_word(std::string_view word);
  void check_dtype(size_t at, DType found, const api::Type& type) const;
  void check_shape(size_t at, const std::vector<int64_t>& shape, const api::Type& type) const;
  // One number of the type's dtype, with or without the dtype's name behind it.
  void number(const api::Type& type, std::vector<uint8_t>* bytes);
  static bool fits(DType dtype, int64_t n, bool negative);
  // Nested lists, one level for each dim; extents are -1 until the first list of a level closes.
  void list(const api::Type& type, size_t depth, Array* array);
  // "[2, 3]{1, 2, …}", after the dtype.
  void literal(const api::Type& type, Array* array);
  // "@FILE.npy", "@FILE.npy[7]" (a row without its dim) or "@FILE.npy[7:9]" (rows).
  api::Value from_file(const api::Type& type);
  void check_array(size_t at, const Array& array, const api::Type& type) const;

  const std::string& folder_;
  std::map<std::string, Array> files_;
  // References to files as they are written: dtype and shape, and the tensor itself.
  std::map<std::string, std::pair<Array, api::Value>> rows_;
};

}  // namespace nimble
