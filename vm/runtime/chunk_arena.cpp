#include "vm/runtime/chunk_arena.h"

#include <algorithm>
#include <new>

#include "vm/runtime/round_up.h"

namespace nimble::rt {
namespace {

// What a chunk of its own is rounded to: the driver's pages.
constexpr size_t kPage = size_t{2} << 20;

}  // namespace

void ChunkArena::give_all_back() noexcept {
  for (const auto& [begin, chunk] : chunks_) give_back_(begin);
  chunks_.clear();
}

void* ChunkArena::take(size_t bytes) noexcept {
  for (auto& [begin, chunk] : chunks_)
    if (uint8_t* memory = chunk.free.take(bytes)) return memory;
  return nullptr;
}

void* ChunkArena::allocate(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  bytes = round_up(bytes, kUnit);
  void* memory = take(bytes);
  if (!memory) {
    const size_t own = round_up(bytes + kGap, kPage);
    size_t size = bytes > kChunk / 2 ? own : kChunk;
    void* chunk = obtain_(size);
    if (!chunk) {
      trim();
      chunk = obtain_(size = own);
    }
    if (!chunk) return nullptr;
    auto* begin = static_cast<uint8_t*>(chunk);
    try {
      Chunk& made = chunks_[begin];
      made.bytes = size;
      made.free.give(begin, size - kGap);
    } catch (...) {
      chunks_.erase(begin);
      give_back_(chunk);
      throw;
    }
    reserved_ += size;
    memory = chunks_[begin].free.take(bytes);
  }
  in_use_ += bytes;
  return memory;
}

void ChunkArena::free(void* memory, size_t bytes) noexcept {
  bytes = round_up(bytes, kUnit);
  auto* const begin = static_cast<uint8_t*>(memory);
  auto at = chunks_.upper_bound(begin);
  if (at == chunks_.begin()) return;  // of a device that was lost
  Chunk& chunk = std::prev(at)->second;
  in_use_ -= bytes;
  try {
    chunk.free.give(begin, bytes);
  } catch (const std::bad_alloc&) {  // no room in the list: then this stretch is not used again
    return;
  }
  if (chunk.idle()) trim_to(kKept);
}

// The largest free chunks go first.
void ChunkArena::trim_to(size_t keep) noexcept {
  for (;;) {
    size_t idle = 0;
    auto largest = chunks_.end();
    for (auto it = chunks_.begin(); it != chunks_.end(); ++it) {
      if (!it->second.idle()) continue;
      idle += it->second.bytes;
      if (largest == chunks_.end() || it->second.bytes > largest->second.bytes) largest = it;
    }
    if (idle <= keep || largest == chunks_.end()) return;
    reserved_ -= largest->second.bytes;
    give_back_(largest->first);
    chunks_.erase(largest);
  }
}

}  // namespace nimble::rt
