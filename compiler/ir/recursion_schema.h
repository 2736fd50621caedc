// What the operators linearise and count.linearise are told of the functions that recurse over a
// value: vm/library/linearise.cpp says what they do with it. In the attribute `schema`, integers
// behind each other:
//   K, then for each kind: function, tag, C, C times (field, called function), D, D times (field,
//   dtype, rank, extents…)
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/type.h"

namespace nimble::ir {

struct RecursionSchema {
  struct Call {
    int64_t field = 0, function = 0;
  };
  struct Data {
    int64_t field = 0;
    DType dtype = DType::kF32;
    std::vector<int64_t> extents;
  };
  // A case of a function: what it does with one constructor.
  struct Kind {
    int64_t function = 0, tag = 0;
    std::vector<Call> calls;
    std::vector<Data> data;
  };
  std::vector<Kind> kinds;

  std::vector<int64_t> encode() const;
  // Nothing if the numbers are no schema.
  static std::optional<RecursionSchema> decode(const std::vector<int64_t>& numbers);
  // The type of linearise: the steps (steps, 3), then for each kind k its calls (counts[k]) and its
  // data (counts[k], extents…).
  Type result_type(const Dim& steps, const std::vector<Dim>& counts) const;
};

}  // namespace nimble::ir
