// Writes values, on a stack of what is still to be written instead of by recursion.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "vm/base/element.h"
#include "vm/tools/value_text.h"

namespace nimble {
namespace {

using api::Type;

// The shortest text that reads back as the same number; one NaN for all.
template <typename T>
std::string real_text(T value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

std::string element_text(DType dtype, const uint8_t* from) {
  if (dtype == DType::kBool) return *from ? "true" : "false";
  return visit_element(dtype, from, []<typename T>(T value) {
    if constexpr (std::is_floating_point_v<T>) return real_text(value);
    return std::to_string(value);
  });
}

std::string tensor_text(const nimble_value* value, int64_t elements) {
  nimble_tensor t = NIMBLE_TENSOR_INIT;
  api::check(nimble_value_tensor(value, &t));
  const DType dtype = static_cast<DType>(t.dtype);
  const auto* data = static_cast<const uint8_t*>(t.data);
  if (t.rank == 0)
    return element_text(dtype, data) +
           (dtype == DType::kBool ? std::string() : std::string(name_of(dtype)));
  int64_t count = 1;
  std::string text = fmt::format("{}[", name_of(dtype));
  for (int32_t d = 0; d < t.rank; ++d) {
    text += fmt::format("{}{}", d ? ", " : "", t.shape[d]);
    count *= t.shape[d];
  }
  text += "]{";
  for (int64_t i = 0; i < std::min(count, elements); ++i)
    text += (i ? ", " : "") + element_text(dtype, data + i * static_cast<int64_t>(size_of(dtype)));
  return text + (count > elements ? ", …}" : "}");
}

// The parts with fields that the value reaches in more than one way, with no labels yet.
std::map<const nimble_value*, int> shared_parts(const nimble_value* value) {
  std::map<const nimble_value*, int> shared;
  std::map<const nimble_value*, bool> seen;
  std::vector<const nimble_value*> rest = {value};
  while (!rest.empty()) {
    const nimble_value* v = rest.back();
    rest.pop_back();
    const size_t fields = nimble_value_field_count(v);
    if (fields == 0) continue;
    if (!seen.try_emplace(v).second) {
      shared[v] = 0;
      continue;
    }
    for (size_t i = 0; i < fields; ++i) rest.push_back(nimble_value_field(v, i));
  }
  return shared;
}

}  // namespace

std::string text_of(const api::Value& value, const std::vector<Type>& types, int32_t root,
                    int64_t elements) {
  struct Item {
    const nimble_value* value;  // nullptr: the text alone
    uint32_t type;
    const char* text;
  };
  std::map<const nimble_value*, int> labels = shared_parts(value.handle());
  int last_label = 0;
  std::string out;
  std::vector<Item> rest = {{value.handle(), static_cast<uint32_t>(root), ""}};
  while (!rest.empty()) {
    const Item item = rest.back();
    rest.pop_back();
    out += item.text;
    if (!item.value) continue;
    const int64_t tag = nimble_value_tag(item.value);
    if (tag < 0) {
      out += tensor_text(item.value, elements);
      continue;
    }
    if (const auto shared = labels.find(item.value); shared != labels.end()) {
      if (shared->second > 0) {
        out += fmt::format("#{}", shared->second);
        continue;
      }
      shared->second = ++last_label;
      out += fmt::format("#{}=", last_label);
    }
    const Type::Constructor& c = types[item.type].constructors[static_cast<size_t>(tag)];
    out += c.name;
    const size_t fields = c.fields.size();
    if (fields == 0) {
      if (c.name.empty()) out += "()";
      continue;
    }
    rest.push_back({nullptr, 0, c.name.empty() && fields == 1 ? ",)" : ")"});
    for (size_t i = fields; i-- > 0;)
      rest.push_back({nimble_value_field(item.value, i), c.fields[i], i ? ", " : "("});
  }
  return out;
}

}  // namespace nimble
