#include "vm/runtime/tensor_maps.h"

#include <algorithm>

#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::rt {
namespace {

constexpr uint64_t kPiece = 16;  // bytes of which addresses and rows are multiples
constexpr uint64_t kMostPitch = uint64_t{1} << 40;

// CUtensorMapDataType.
int type_of(DType t) {
  switch (t) {
    case DType::kBool:
    case DType::kU8:
    case DType::kI8:
      return 0;
    case DType::kU16:
    case DType::kI16:
      return 1;
    case DType::kU32:
      return 2;
    case DType::kI32:
      return 3;
    case DType::kU64:
      return 4;
    case DType::kI64:
      return 5;
    case DType::kF16:
      return 6;
    case DType::kF32:
      return 7;
    case DType::kF64:
      return 8;
    case DType::kBF16:
      return 9;
  }
  NIMBLE_UNREACHABLE();
}

// CUtensorMapSwizzle of a line.
int swizzle_of(uint64_t line_bytes) {
  switch (line_bytes) {
    case 32:
      return 1;
    case 64:
      return 2;
    case 128:
      return 3;
  }
  NIMBLE_UNREACHABLE("lines of {} bytes", line_bytes);  // the verifier has looked
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Status::kUnsupported, "tensor map", what,
              "compile the model with other schedules for its products (nimble compile --knobs)");
}

}  // namespace

TensorMaps::Key TensorMaps::key_of(const BoxedTensor& t) {
  Key k{};
  k[0] = reinterpret_cast<uintptr_t>(t.address);
  k[1] = static_cast<uint64_t>(t.dtype) | uint64_t{t.rank} << 8;
  for (size_t axis = 0; axis < t.rank; ++axis) {
    k[2 + axis] = static_cast<uint64_t>(t.extents[axis]);
    k[2 + BoxedTensor::kMaxRank + axis] = t.box[axis];
  }
  return k;
}

size_t TensorMaps::Hash::operator()(const Key& k) const {
  return hash64(std::span(reinterpret_cast<const uint8_t*>(k.data()), sizeof k));
}

const TensorMaps::Words& TensorMaps::find(const BoxedTensor& tensor) {
  static constexpr Words kNothing{};
  NIMBLE_CHECK(tensor.rank >= 1 && tensor.rank <= BoxedTensor::kMaxRank, "rank {}", tensor.rank);
  for (size_t axis = 0; axis < tensor.rank; ++axis)
    if (tensor.extents[axis] == 0) return kNothing;
  const Key key = key_of(tensor);
  if (const auto known = by_key_.find(key); known != by_key_.end()) {
    kept_.splice(kept_.begin(), kept_, known->second);
    return kept_.front().words;
  }
  const Words words = encode(tensor);
  kept_.push_front({key, words});
  try {
    by_key_.emplace(key, kept_.begin());
  } catch (...) {
    kept_.pop_front();
    throw;
  }
  if (kept_.size() > kKept) {
    by_key_.erase(kept_.back().key);
    kept_.pop_back();
  }
  return kept_.front().words;
}

TensorMaps::Words TensorMaps::encode(const BoxedTensor& t) {
  if (reinterpret_cast<uintptr_t>(t.address) % kPiece != 0)
    refuse(fmt::format("a tensor lies at no multiple of {} bytes", kPiece));
  const uint64_t size = size_of(t.dtype);
  std::array<uint64_t, BoxedTensor::kMaxRank> extents{}, pitches{};
  std::array<uint32_t, BoxedTensor::kMaxRank> steps{};
  uint64_t pitch = size;
  for (size_t axis = 0; axis < t.rank; ++axis) {
    if (t.extents[axis] < 0 || t.extents[axis] > INT32_MAX)
      refuse(fmt::format("an extent of {}; copies of boxes take up to {}", t.extents[axis],
                         INT32_MAX));
    if (axis > 0) {
      if (pitch % kPiece != 0)
        refuse(
            fmt::format("rows of {} bytes; copies of boxes take multiples of {}", pitch, kPiece));
      if (pitch >= kMostPitch)
        refuse(fmt::format("rows that are {} bytes apart; copies of boxes take less than 2^40",
                           pitch));
      pitches[axis - 1] = pitch;
    }
    extents[axis] = static_cast<uint64_t>(t.extents[axis]);
    steps[axis] = 1;
    pitch = pitch > kMostPitch / extents[axis] ? kMostPitch : pitch * extents[axis];
  }
  alignas(64) Words words{};
  device_.enter_quietly();
  constexpr int kNoInterleave = 0, kPromotion256 = 3, kZeros = 0;
  device_.check(device_.driver().cuTensorMapEncodeTiled(
                    words.data(), type_of(t.dtype), t.rank, const_cast<void*>(t.address),
                    extents.data(), pitches.data(), t.box.data(), steps.data(), kNoInterleave,
                    swizzle_of(t.box[0] * size), kPromotion256, kZeros),
                "cuTensorMapEncodeTiled");
  return words;
}

}  // namespace nimble::rt
