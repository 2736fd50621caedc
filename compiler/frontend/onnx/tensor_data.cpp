#include "compiler/frontend/onnx/tensor_data.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "vm/base/checked.h"

namespace nimble::frontend::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "ONNX stores little-endian");

constexpr const char* kRemedy = "export or download the model again";

template <class T, class V>
void fill(uint8_t* data, const std::vector<V>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T v = static_cast<T>(values[i]);
    std::memcpy(data + i * sizeof(T), &v, sizeof(T));
  }
}

// The typed lists: integers narrower than 64 bits, and the bits of 16-bit floats, share one.
void fill_from_lists(DType type, const TensorData& t, uint8_t* data) {
  if (type == DType::kF32) return fill<float>(data, t.floats);
  if (type == DType::kF64) return fill<double>(data, t.doubles);
  switch (size_of(type)) {
    case 1:
      return fill<uint8_t>(data, t.integers);
    case 2:
      return fill<uint16_t>(data, t.integers);
    case 4:
      return fill<uint32_t>(data, t.integers);
    default:
      return fill<uint64_t>(data, t.integers);
  }
}

size_t listed(DType type, const TensorData& t) {
  if (type == DType::kF32) return t.floats.size();
  if (type == DType::kF64) return t.doubles.size();
  return t.integers.size();
}

}  // namespace

DType dtype_of(int64_t type, const std::string& place) {
  switch (type) {
    case 1:
      return DType::kF32;
    case 2:
      return DType::kU8;
    case 3:
      return DType::kI8;
    case 4:
      return DType::kU16;
    case 5:
      return DType::kI16;
    case 6:
      return DType::kI32;
    case 7:
      return DType::kI64;
    case 9:
      return DType::kBool;
    case 10:
      return DType::kF16;
    case 11:
      return DType::kF64;
    case 12:
      return DType::kU32;
    case 13:
      return DType::kU64;
    case 16:
      return DType::kBF16;
    default:
      throw Error(Status::kUnsupported, place,
                  fmt::format("the ONNX element type {} is not supported", type),
                  "use float, integer or bool tensors");
  }
}

ir::TensorRef to_tensor(const TensorData& t, const std::shared_ptr<const void>& owner,
                        ExternalData& external, const std::string& place) {
  const DType type = dtype_of(t.type, place);
  const std::optional<int64_t> bytes = try_byte_size(type, t.dims);
  if (!bytes)
    throw Error(Status::kCorrupt, place, "a tensor's shape is negative or overflows", kRemedy);
  const auto size = static_cast<size_t>(*bytes);
  auto wrong_size = [&](size_t count, const char* what) {
    throw Error(Status::kCorrupt, place,
                fmt::format("a tensor of shape ({}) and type {} holds {} {}",
                            fmt::join(t.dims, ", "), nimble::name_of(type), count, what),
                kRemedy);
  };

  ExternalData::Bytes source;
  if (t.is_external) {
    source = external.read(t, size, place);
  } else if (t.has_raw) {
    if (t.raw.size() != size) wrong_size(t.raw.size(), "bytes");
    source = {t.raw, owner};
  } else if (listed(type, t) != size / size_of(type)) {
    wrong_size(listed(type, t), "elements");
  }

  const bool stored = t.is_external || t.has_raw;
  const bool aligned = reinterpret_cast<uintptr_t>(source.bytes.data()) % size_of(type) == 0;
  std::shared_ptr<ir::Tensor> out;
  if (stored && aligned && size > 0) {
    out = std::make_shared<ir::Tensor>();
    out->dtype = type;
    out->shape = t.dims;
    out->bytes = source.bytes;
    out->owner = source.owner;
  } else {
    uint8_t* data = nullptr;
    out = ir::Tensor::make(type, t.dims, &data);
    if (stored)
      std::copy(source.bytes.begin(), source.bytes.end(), data);
    else
      fill_from_lists(type, t, data);
  }
  out->name = t.name;
  if (type == DType::kBool &&
      std::any_of(out->bytes.begin(), out->bytes.end(), [](uint8_t b) { return b > 1; }))
    throw Error(Status::kCorrupt, place, "a bool is neither 0 nor 1", kRemedy);
  return out;
}

}  // namespace nimble::frontend::onnx
