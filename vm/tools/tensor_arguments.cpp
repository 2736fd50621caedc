#include "vm/tools/tensor_arguments.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <regex>

#include "vm/base/checked.h"
#include "vm/base/error.h"
#include "vm/base/half.h"

namespace nimble {
namespace {

using nlohmann::json;

constexpr char kForms[] = "write NAME=@FILE.npy, NAME=[[1, 2], [3, 4]] or NAME=random:2x16";

Array make_array(DType dtype, std::vector<int64_t> shape, const std::string& place) {
  const std::optional<int64_t> bytes = try_byte_size(dtype, shape);
  if (!bytes || *bytes > int64_t{1} << 40)
    throw Error(Status::kInvalidArgument, place,
                fmt::format("a tensor of shape ({}) takes more than 1 TiB", fmt::join(shape, ", ")),
                "give a smaller one");
  try {
    std::vector<uint8_t> zeros(static_cast<size_t>(*bytes));
    return {dtype, std::move(shape), std::move(zeros)};
  } catch (const std::bad_alloc&) {
    throw Error(
        Status::kExhausted, place,
        fmt::format("there is no memory for a tensor of shape ({})", fmt::join(shape, ", ")),
        "give a smaller one");
  }
}

// Nested lists of numbers, all of one length at each level.
Array array_from_json(const json& value, DType dtype, const std::string& place) {
  std::vector<int64_t> shape;
  for (const json* v = &value; v->is_array(); v = &(*v)[0]) {
    shape.push_back(static_cast<int64_t>(v->size()));
    if (v->empty()) break;
  }
  Array out = make_array(dtype, shape, place);
  uint8_t* to = out.bytes.data();
  auto walk = [&](auto&& self, const json& v, size_t depth) -> void {
    if (depth == shape.size()) {
      const bool named = v.is_string();  // nan or an infinity
      if (!v.is_number() && !v.is_boolean() && !named)
        throw Error(Status::kInvalidArgument, place, "not all entries are numbers", kForms);
      if (!is_float(dtype) && (v.is_number_float() || named))
        throw Error(Status::kInvalidArgument, place,
                    fmt::format("{} is not a valid {}", named ? v.get<std::string>() : v.dump(),
                                name_of(dtype)),
                    "give whole numbers");
      const double real = v.is_boolean() ? v.get<bool>()
                          : named        ? std::strtod(v.get<std::string>().c_str(), nullptr)
                                         : v.get<double>();
      const int64_t whole = v.is_boolean()                 ? v.get<bool>()
                            : v.is_number_float() || named ? 0
                                                           : v.get<int64_t>();
      store_element(dtype, real, whole, to);
      to += size_of(dtype);
      return;
    }
    if (!v.is_array() || static_cast<int64_t>(v.size()) != shape[depth])
      throw Error(Status::kInvalidArgument, place, "the lists differ in length", kForms);
    for (const json& item : v) self(self, item, depth + 1);
  };
  walk(walk, value, 0);
  return out;
}

std::vector<int64_t> parse_shape(const std::string& text, const std::string& place) {
  std::vector<int64_t> shape;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int64_t extent = -1;
    const auto [next, code] = std::from_chars(at, end, extent);
    if (code != std::errc() || extent < 0 || (next < end && *next != 'x') || next + 1 == end)
      throw Error(Status::kInvalidArgument, place, fmt::format("\"{}\" is not a shape", text),
                  "write extents like 2x16");
    shape.push_back(extent);
    at = next + 1;
  }
  return shape;
}

Array read_member(const std::string& path, const std::string& name) {
  NamedArrays members = read_npz(path);
  for (auto& [member, array] : members)
    if (member == name) return std::move(array);
  if (members.size() == 1) return std::move(members[0].second);
  throw Error(Status::kNotFound, path, fmt::format("it has no array {}", name),
              "name one of its members");
}

Array parse_value(const std::string& text, DType dtype, const std::string& name,
                  const RandomOptions& options, std::mt19937_64* random) {
  const std::string place = "--input " + name;
  if (text.starts_with("@")) {
    const std::string path = text.substr(1);
    return path.ends_with(".npz") ? read_member(path, name) : read_npy(path);
  }
  for (const char* kind : {"random:", "zeros:", "ones:"}) {
    if (!text.starts_with(kind)) continue;
    std::vector<int64_t> shape = parse_shape(text.substr(std::strlen(kind)), place);
    Array out = make_array(dtype, shape, place);
    if (kind[0] == 'r') return random_array(dtype, std::move(shape), options.int_range, random);
    if (kind[0] == 'o')
      for (size_t i = 0; i < out.bytes.size(); i += size_of(dtype))
        store_element(dtype, 1.0, 1, out.bytes.data() + i);
    return out;
  }
  // JSON has no word for what is not finite: such words pass as strings.
  static const std::regex not_finite(R"([-+]?\b(nan|inf|infinity)\b)",
                                     std::regex::ECMAScript | std::regex::icase);
  const bool quoted = text.find('"') != std::string::npos;
  const json value =
      quoted ? json(json::value_t::discarded)
             : json::parse(std::regex_replace(text, not_finite, "\"$&\""), nullptr, false);
  if (value.is_discarded())
    throw Error(Status::kInvalidArgument, place, fmt::format("\"{}\" is not a tensor", text),
                kForms);
  return array_from_json(value, dtype, place);
}

}  // namespace

void store_element(DType dtype, double real, int64_t integer, uint8_t* to) {
  auto put = [&](auto value) { std::memcpy(to, &value, sizeof value); };
  switch (dtype) {
    case DType::kF16:
      return put(f16_from_f32(static_cast<float>(real)));
    case DType::kBF16:
      return put(bf16_from_f32(static_cast<float>(real)));
    case DType::kF32:
      return put(static_cast<float>(real));
    case DType::kF64:
      return put(real);
    case DType::kBool:
      return put(static_cast<uint8_t>(integer != 0));
    default:
      std::memcpy(to, &integer, size_of(dtype));  // little-endian: the low bytes
  }
}

Array random_array(DType dtype, std::vector<int64_t> shape, int64_t int_range,
                   std::mt19937_64* random) {
  Array out = make_array(dtype, std::move(shape), "random input");
  const uint64_t range =
      dtype == DType::kBool ? 2 : static_cast<uint64_t>(std::max<int64_t>(int_range, 1));
  for (size_t i = 0; i < out.bytes.size(); i += size_of(dtype)) {
    const uint64_t bits = (*random)();
    // 53 bits make every value exact, alike on every machine.
    const double real = static_cast<double>(bits >> 11) * 0x1p-52 - 1.0;
    store_element(dtype, real, static_cast<int64_t>(bits % range), out.bytes.data() + i);
  }
  return out;
}

std::pair<std::string, std::string> split_assignment(const std::string& text,
                                                     const std::string& option) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0)
    throw Error(Status::kInvalidArgument, option, fmt::format("\"{}\" has no NAME=VALUE", text),
                option == "--input" ? kForms : "write NAME=VALUE");
  return {text.substr(0, at), text.substr(at + 1)};
}

NamedArrays parse_inputs(const std::vector<std::string>& arguments,
                         const std::vector<api::Port>& ports, const RandomOptions& options) {
  NamedArrays out;
  std::mt19937_64 random(options.seed);
  for (const std::string& argument : arguments) {
    if (argument.starts_with("@") && argument.ends_with(".npz")) {
      for (auto& member : read_npz(argument.substr(1))) out.push_back(std::move(member));
      continue;
    }
    const auto [name, text] = split_assignment(argument, "--input");
    const auto port = std::find_if(ports.begin(), ports.end(),
                                   [&, &n = name](const api::Port& p) { return p.name == n; });
    // An unknown name is refused by the session, which suggests the nearest one.
    const DType dtype = port == ports.end() ? DType::kF32 : static_cast<DType>(port->dtype);
    out.emplace_back(name, parse_value(text, dtype, name, options, &random));
  }
  return out;
}

api::View view_of(const Array& array) {
  return api::View(const_cast<uint8_t*>(array.bytes.data()), static_cast<nimble_dtype>(array.dtype),
                   array.shape);
}

Array array_of(const api::Tensor& tensor) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
  return {static_cast<DType>(tensor.dtype()), tensor.shape(), {bytes, bytes + tensor.bytes()}};
}

Array array_of(const api::Value& tensor) {
  Array array = {static_cast<DType>(tensor.dtype()), tensor.shape(), {}};
  const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
  array.bytes.assign(bytes, bytes + *try_byte_size(array.dtype, array.shape));
  return array;
}

}  // namespace nimble
