#include "vm/tools/given_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "vm/base/error.h"

namespace nimble {

bool GivenInputs::has(const std::string& name) const {
  const auto named = [&](const auto& entry) { return entry.first == name; };
  return std::any_of(tensors.begin(), tensors.end(), named) ||
         std::any_of(values.begin(), values.end(), named);
}

std::vector<api::NamedValue> GivenInputs::all() const {
  std::vector<api::NamedValue> out = values;
  for (const auto& [name, array] : tensors) out.emplace_back(name, api::Value::of(view_of(array)));
  return out;
}

api::Value parse_one_value(const std::string& text, const std::string& place,
                           const std::vector<api::Type>& types, int32_t type) {
  const bool file = text.starts_with("@");
  const std::vector<api::Value> all =
      file ? read_values(text.substr(1), types, type) : parse_values(text, place, "", types, type);
  if (all.size() != 1)
    throw Error(Status::kInvalidArgument, place,
                fmt::format("{} holds {} values", file ? text.substr(1) : "the text", all.size()),
                file ? fmt::format("name one, counted from 0: {}[0]", text) : "give one");
  return all[0];
}

GivenInputs parse_given(const std::vector<std::string>& arguments,
                        const std::vector<api::Port>& ports, const std::vector<api::Type>& types,
                        const RandomOptions& options) {
  GivenInputs given;
  std::vector<std::string> tensors;
  for (const std::string& argument : arguments) {
    const auto port = std::find_if(ports.begin(), ports.end(), [&](const api::Port& p) {
      return p.type_index >= 0 && argument.starts_with(p.name + "=");
    });
    if (port == ports.end())
      tensors.push_back(argument);
    else
      given.values.emplace_back(port->name,
                                parse_one_value(argument.substr(port->name.size() + 1),
                                                "--input " + port->name, types, port->type_index));
  }
  given.tensors = parse_inputs(tensors, ports, options);
  return given;
}

}  // namespace nimble
