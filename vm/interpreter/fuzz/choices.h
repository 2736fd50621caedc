// The choices of a generator: a byte each, in order, and zeros behind the last one. So any bytes
// make a program, and a byte that changes changes little else of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vm/base/checked.h"
#include "vm/base/dtype.h"

namespace nimble::fuzz {

class Choices {
 public:
  explicit Choices(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint8_t next() {
    if (bytes_.empty()) return 0;
    const uint8_t b = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return b;
  }
  // One time in n; never when the bytes are used up.
  bool rarely(uint8_t n) { return next() % n == n - 1; }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[next() % all.size()];
  }

  DType dtype() { return static_cast<DType>(next() % kDTypeCount); }
  int64_t extent() {
    static constexpr int64_t kExtents[] = {1, 2, 3, 4, 0, 5, 6, 7, 8, 1, 2, 3, 4, 33};
    static constexpr int64_t kLarge[] = {1000, int64_t{1} << 31, int64_t{1} << 40,
                                         (int64_t{1} << 32) + 1};
    const uint8_t b = next();
    return b < 240 ? kExtents[b % std::size(kExtents)] : kLarge[b % std::size(kLarge)];
  }
  int64_t number() {
    static constexpr int64_t kLarge[] = {INT64_MAX, INT64_MIN, int64_t{1} << 32, 1000};
    const uint8_t b = next();
    return b < 240 ? b % 16 - 2 : kLarge[b % std::size(kLarge)];
  }
  // Extents that a tensor can have: their product fits, or one is 0.
  std::vector<int64_t> shape(int rank, const std::vector<int64_t>* like) {
    std::vector<int64_t> out;
    for (int d = 0; d < rank; ++d) {
      const auto at = static_cast<size_t>(d);
      out.push_back(like && at < like->size() && next() % 4 != 0 ? (*like)[at] : extent());
    }
    if (!try_byte_size(DType::kF64, out)) out.back() = 0;
    return out;
  }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace nimble::fuzz
