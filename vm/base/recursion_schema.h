// What the operators linearise and count.linearise are told of the functions that recurse over a
// value: vm/library/linearise.cpp says what they do with it. As integers behind each other (the
// operators' attribute `schema`, the kernels' scalars):
//   K, then for each kind: function, tag, C, C times (field, called function), D, D times (field,
//   dtype, rank, extents…)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "vm/base/dtype.h"

namespace nimble {

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
  // Nothing if the numbers do not begin with a schema, none of which is negative, or if others
  // follow: unless `used` wants to know how many the schema took.
  static std::optional<RecursionSchema> decode(std::span<const int64_t> numbers,
                                               size_t* used = nullptr);
};

}  // namespace nimble
