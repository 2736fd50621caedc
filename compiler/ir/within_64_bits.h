// Dims have 64 bits; integers in tensors wrap.
#pragma once

#include "vm/base/error.h"

namespace nimble::ir {

// What `f` makes of dims, or `otherwise` where that has no 64 bits.
template <class F>
auto within_64_bits(const F& f, decltype(f()) otherwise) {
  try {
    return f();
  } catch (const Error&) {
    return otherwise;
  }
}

}  // namespace nimble::ir
