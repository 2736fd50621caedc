#include "compiler/ir/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "vm/base/file.h"
#include "vm/base/json_text.h"

namespace nimble::ir {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr const char* kMetadata = "__metadata__";

struct DTypeName {
  const char* name;
  DType dtype;
};
constexpr DTypeName kDTypes[] = {
    {"BOOL", DType::kBool}, {"I8", DType::kI8},   {"I16", DType::kI16},   {"I32", DType::kI32},
    {"I64", DType::kI64},   {"U8", DType::kU8},   {"U16", DType::kU16},   {"U32", DType::kU32},
    {"U64", DType::kU64},   {"F16", DType::kF16}, {"BF16", DType::kBF16}, {"F32", DType::kF32},
    {"F64", DType::kF64}};

[[noreturn]] void corrupt(const std::string& place, const std::string& problem) {
  throw Error(Status::kCorrupt, place, problem, "download or write the file again");
}

// A non-negative integer of the header.
uint64_t number(const nlohmann::json& j, const std::string& place, const std::string& what) {
  if (!j.is_number_unsigned()) corrupt(place, what + " is not a non-negative integer");
  return j.get<uint64_t>();
}

nlohmann::json parse_header(std::string_view text, const std::string& place) {
  nlohmann::json header = parse_json(text, [&](const std::string& problem) {
    corrupt(place, "the safetensors header " + problem);
  });
  if (!header.is_object()) corrupt(place, "the safetensors header is not a JSON object");
  return header;
}

}  // namespace

TensorRef SafeTensors::find(const std::string& name) const {
  for (const auto& [n, t] : tensors) {
    if (n == name) return t;
  }
  return nullptr;
}

SafeTensors parse_safetensors(std::span<const uint8_t> bytes, std::shared_ptr<const void> owner,
                              const std::string& place) {
  uint64_t header_size = 0;
  if (bytes.size() < sizeof header_size) corrupt(place, "the file is shorter than 8 bytes");
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  if (header_size > kMaxHeader || header_size > bytes.size() - sizeof header_size) {
    corrupt(place, fmt::format("a header of {} bytes exceeds the file or the limit", header_size));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof header_size,
                              header_size);
  const nlohmann::json header = parse_header(text, place);
  const std::span<const uint8_t> data = bytes.subspan(sizeof header_size + header_size);

  SafeTensors out;
  struct Entry {
    uint64_t begin, end;
    std::string name;
    TensorRef tensor;
  };
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (!value.is_object()) corrupt(place, fmt::format("the entry \"{}\" is not an object", name));
    if (name == kMetadata) {
      for (const auto& [k, v] : value.items()) {
        if (!v.is_string()) corrupt(place, "a metadata value is not a string");
        out.metadata[k] = v.get<std::string>();
      }
      continue;
    }
    const std::string where = fmt::format("{}: tensor \"{}\"", place, name);
    if (!value.contains("dtype") || !value["dtype"].is_string() || !value.contains("shape") ||
        !value["shape"].is_array() || !value.contains("data_offsets") ||
        !value["data_offsets"].is_array() || value["data_offsets"].size() != 2) {
      corrupt(where, "needs dtype, shape and data_offsets");
    }
    const std::string dtype_name = value["dtype"].get<std::string>();
    const auto* dtype = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                     [&](const DTypeName& d) { return dtype_name == d.name; });
    if (dtype == std::end(kDTypes)) {
      throw Error(Status::kUnsupported, where, fmt::format("dtype {} is not supported", dtype_name),
                  "convert it to F32, F16 or BF16");
    }
    auto tensor = std::make_shared<Tensor>();
    tensor->dtype = dtype->dtype;
    tensor->name = name;
    uint64_t size = size_of(dtype->dtype);
    for (const auto& d : value["shape"]) {
      const uint64_t extent = number(d, where, "an extent");
      if (extent > INT64_MAX || __builtin_mul_overflow(size, extent, &size)) {
        corrupt(where, "the shape overflows 64 bits");
      }
      tensor->shape.push_back(static_cast<int64_t>(extent));
    }
    const uint64_t begin = number(value["data_offsets"][0], where, "an offset");
    const uint64_t end = number(value["data_offsets"][1], where, "an offset");
    if (begin > end || end > data.size()) {
      corrupt(where, fmt::format("offsets {}…{} lie outside the data of {} bytes", begin, end,
                                 data.size()));
    }
    if (end - begin != size) {
      corrupt(where, fmt::format("{} bytes of data for a shape of {} bytes", end - begin, size));
    }
    const std::span<const uint8_t> content = data.subspan(begin, size);
    if (reinterpret_cast<uintptr_t>(content.data()) % size_of(dtype->dtype) == 0) {
      tensor->bytes = content;
      tensor->owner = owner;
    } else {
      uint8_t* copy = nullptr;
      auto aligned = Tensor::make(dtype->dtype, tensor->shape, &copy);
      std::copy(content.begin(), content.end(), copy);
      aligned->name = name;
      tensor = std::move(aligned);
    }
    if (dtype->dtype == DType::kBool &&
        std::any_of(content.begin(), content.end(), [](uint8_t b) { return b > 1; })) {
      corrupt(where, "a bool is neither 0 nor 1");
    }
    entries.push_back({begin, end, name, std::move(tensor)});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t at = 0;
  for (Entry& e : entries) {
    if (e.begin != at) {
      corrupt(place, fmt::format("tensor \"{}\" {} its neighbour", e.name,
                                 e.begin < at ? "overlaps" : "leaves a hole after"));
    }
    at = e.end;
    out.tensors.emplace_back(std::move(e.name), std::move(e.tensor));
  }
  if (at != data.size()) corrupt(place, "data follows the last tensor");
  return out;
}

SafeTensors read_safetensors(const std::string& path) {
  auto file = MappedFile::open(path);
  return parse_safetensors(file->bytes(), file, path);
}

void write_safetensors(const std::string& path, const SafeTensors& contents) {
  // Wide elements first, so that each tensor is aligned for its own type.
  auto order = contents.tensors;
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return size_of(a.second->dtype) > size_of(b.second->dtype);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!contents.metadata.empty()) header[kMetadata] = contents.metadata;
  uint64_t at = 0;
  std::vector<std::span<const uint8_t>> parts(2);
  for (const auto& [name, tensor] : order) {
    NIMBLE_CHECK(name != kMetadata && !header.contains(name), "tensor name {}", name);
    const auto* dtype =
        std::find_if(std::begin(kDTypes), std::end(kDTypes),
                     [type = tensor->dtype](const DTypeName& d) { return type == d.dtype; });
    header[name] = {{"dtype", dtype->name},
                    {"shape", tensor->shape},
                    {"data_offsets", {at, at + tensor->bytes.size()}}};
    at += tensor->bytes.size();
    parts.push_back(tensor->bytes);
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');  // the data starts at a multiple of 64
  const uint64_t size = text.size();
  parts[0] = {reinterpret_cast<const uint8_t*>(&size), sizeof size};
  parts[1] = {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  write_file_atomically(path, parts);
}

}  // namespace nimble::ir
