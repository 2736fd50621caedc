// Stretches of memory that are free, of which any part may be handed out: neighbours become one,
// and a request takes the front of the smallest stretch that holds it. So the memory of a run of
// one shape serves the next run of another, whose tensors have other sizes; nothing goes back to
// the system and nothing is touched for the first time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace nimble::rt {

class FreeRanges {
 public:
  // The front of the smallest range of at least `bytes`; the lower one of equals. nullptr if there
  // is none. Asks for no memory.
  uint8_t* take(size_t bytes) noexcept;
  // std::bad_alloc leaves all as it was.
  void give(uint8_t* data, size_t bytes);
  // Takes `bytes` away from the end of the largest range, or all of it if it has no more;
  // {nullptr, 0} if there is none. A stretch of `whole` bytes, aligned to as many, is not divided
  // (it may be a huge page): the cut then begins at its beginning. Asks for no memory.
  std::pair<uint8_t*, size_t> cut(size_t bytes, size_t whole) noexcept;

  size_t bytes() const { return bytes_; }  // in all
  size_t ranges() const { return by_size_.size(); }

 private:
  using BySize = std::set<std::pair<size_t, uint8_t*>>;
  // Both are changed through their nodes, so that shrinking and growing ask for no memory.
  void resize(BySize::iterator range, uint8_t* data, size_t bytes) noexcept;
  void erase(BySize::iterator range) noexcept;

  std::map<uint8_t*, size_t> by_address_;
  BySize by_size_;
  size_t bytes_ = 0;
};

}  // namespace nimble::rt
