// Tensor maps: what a GPU's copy engine is told of a tensor (PTX ISA, "Tensors"; CUDA Driver API,
// cuTensorMapEncodeTiled). The driver encodes one for an address, extents and boxes, which takes
// about as long as a launch, so those of the calls that came last are kept. A map is words that a
// launch passes by value, and says nothing of who owns the memory: one that is kept stays right
// whatever lies there.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

#include "vm/base/dtype.h"
#include "vm/runtime/cuda_device.h"

namespace nimble::rt {

// A dense tensor and the boxes that are copied of it, innermost axis first.
struct BoxedTensor {
  static constexpr size_t kMaxRank = 5;
  DType dtype{};
  const void* address = nullptr;
  uint32_t rank = 0;
  std::array<int64_t, kMaxRank> extents{};
  std::array<uint32_t, kMaxRank> box{};
};

class TensorMaps {
 public:
  static constexpr size_t kWords = 16;
  using Words = std::array<uint64_t, kWords>;
  // Maps that are kept; what was not asked for longest goes.
  static constexpr size_t kKept = 512;

  explicit TensorMaps(CudaDevice& device) : device_(device) {}

  // The map of a tensor, until the next call; zeros, which nobody may use, for one without
  // elements. Error(kUnsupported) for what no map describes: an address or rows at no multiples of
  // 16 bytes, extents beyond 31 bits. Disturbs nothing that is put off (PutOff).
  const Words& find(const BoxedTensor& tensor);
  size_t kept() const { return kept_.size(); }

 private:
  // All that decides what a map is, a word each.
  using Key = std::array<uint64_t, 2 + 2 * BoxedTensor::kMaxRank>;
  struct Hash {
    size_t operator()(const Key& k) const;
  };
  struct Kept {
    Key key;
    Words words;
  };
  static Key key_of(const BoxedTensor& tensor);
  Words encode(const BoxedTensor& tensor);

  CudaDevice& device_;
  std::list<Kept> kept_;  // the latest first
  std::unordered_map<Key, std::list<Kept>::iterator, Hash> by_key_;
};

}  // namespace nimble::rt
