// Memory of a device whose own allocator is slow and waits for what runs: it is taken in chunks,
// and handed out of them in parts. Parts are multiples of kUnit and aligned to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "vm/runtime/free_ranges.h"

namespace nimble::rt {

class ChunkArena {
 public:
  static constexpr size_t kUnit = 256;
  static constexpr size_t kChunk = size_t{32} << 20;
  // Free bytes of whole chunks that are kept for what comes.
  static constexpr size_t kKept = size_t{256} << 20;

  // `obtain` gives memory aligned to kUnit, nullptr if there is none left; `give_back` takes it.
  using Obtain = std::function<void*(size_t bytes)>;
  using GiveBack = std::function<void(void* memory)>;
  ChunkArena(Obtain obtain, GiveBack give_back)
      : obtain_(std::move(obtain)), give_back_(std::move(give_back)) {}
  ~ChunkArena() { give_all_back(); }
  ChunkArena(const ChunkArena&) = delete;
  ChunkArena& operator=(const ChunkArena&) = delete;

  // nullptr if there is no memory, after all chunks that are free were given back.
  void* allocate(size_t bytes);
  // A part or any stretch of whole units of one.
  void free(void* memory, size_t bytes) noexcept;
  // Gives all free chunks back.
  void trim() noexcept { trim_to(0); }
  // The same of all chunks: nobody uses what was handed out of them.
  void give_all_back() noexcept;
  // Forgets everything: the memory is gone.
  void forget() noexcept { chunks_.clear(); }

  size_t reserved() const { return reserved_; }
  size_t in_use() const { return in_use_; }

 private:
  // At the end of each chunk, never handed out: the driver may put the next one there, and who
  // makes one stretch of neighbours that it was given must not make one of two chunks.
  static constexpr size_t kGap = kUnit;
  struct Chunk {
    size_t bytes = 0;
    FreeRanges free;
    bool idle() const { return free.bytes() == bytes - kGap; }
  };
  void* take(size_t bytes) noexcept;
  void trim_to(size_t keep) noexcept;

  Obtain obtain_;
  GiveBack give_back_;
  std::map<uint8_t*, Chunk> chunks_;
  size_t reserved_ = 0, in_use_ = 0;
};

}  // namespace nimble::rt
