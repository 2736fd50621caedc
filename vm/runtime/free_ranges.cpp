#include "vm/runtime/free_ranges.h"

#include <algorithm>
#include <iterator>

namespace nimble::rt {

void FreeRanges::resize(BySize::iterator range, uint8_t* data, size_t bytes) noexcept {
  auto sized = by_size_.extract(range);
  auto placed = by_address_.extract(sized.value().second);
  bytes_ += bytes - sized.value().first;
  sized.value() = {bytes, data};
  placed.key() = data;
  placed.mapped() = bytes;
  by_size_.insert(std::move(sized));
  by_address_.insert(std::move(placed));
}

void FreeRanges::erase(BySize::iterator range) noexcept {
  bytes_ -= range->first;
  by_address_.erase(range->second);
  by_size_.erase(range);
}

uint8_t* FreeRanges::take(size_t bytes) noexcept {
  const auto range = by_size_.lower_bound({bytes, nullptr});
  if (range == by_size_.end()) return nullptr;
  const auto [size, data] = *range;
  if (size == bytes)
    erase(range);
  else
    resize(range, data + bytes, size - bytes);
  return data;
}

void FreeRanges::give(uint8_t* data, size_t bytes) {
  const auto next = by_address_.lower_bound(data);
  const auto before = next == by_address_.begin() ? by_address_.end() : std::prev(next);
  const bool joins_next = next != by_address_.end() && data + bytes == next->first;
  const bool joins_before = before != by_address_.end() && before->first + before->second == data;
  const auto sized = [&](const auto& at) { return by_size_.find({at->second, at->first}); };
  if (joins_before) {
    size_t grown = before->second + bytes;
    if (joins_next) {
      grown += next->second;
      erase(sized(next));
    }
    resize(sized(before), before->first, grown);
  } else if (joins_next) {
    resize(sized(next), data, bytes + next->second);
  } else {
    const auto placed = by_address_.emplace(data, bytes).first;
    try {
      by_size_.emplace(bytes, data);
    } catch (...) {
      by_address_.erase(placed);
      throw;
    }
    bytes_ += bytes;
  }
}

std::pair<uint8_t*, size_t> FreeRanges::cut(size_t bytes, size_t whole) noexcept {
  if (by_size_.empty()) return {nullptr, 0};
  const auto range = std::prev(by_size_.end());
  const auto [size, data] = *range;
  size_t kept = size > bytes ? size - bytes : 0;
  const size_t into = reinterpret_cast<uintptr_t>(data + kept) % whole;
  if (into <= kept && kept - into + whole <= size) kept -= into;
  if (kept == 0) {
    erase(range);
    return {data, size};
  }
  resize(range, data, kept);
  return {data + kept, size - kept};
}

}  // namespace nimble::rt
