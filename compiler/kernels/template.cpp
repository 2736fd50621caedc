#include "compiler/kernels/template.h"

#include <fmt/format.h>

#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"
#include "vm/base/json_text.h"
#include "vm/base/printable.h"

namespace nimble::kernels {

namespace {

const KnobValue& knob(const Config& c, const std::string& name) {
  const auto it = c.find(name);
  if (it == c.end())
    throw Error(Status::kInvalidArgument, "configuration " + to_json(c),
                fmt::format("has no knob \"{}\"", name), "tune this workload again");
  return it->second;
}

}  // namespace

std::string choices_text(const Knob& k) {
  std::string out;
  for (const KnobValue& value : k.choices) {
    if (!out.empty()) out += ", ";
    std::visit([&](const auto& v) { out += fmt::format("{}", v); }, value);
  }
  return out;
}

std::string to_json(const Config& c) {
  nlohmann::json out = nlohmann::json::object();  // whose members are sorted
  for (const auto& [name, value] : c)
    std::visit([&, &name = name](const auto& v) { out[name] = v; }, value);
  return json_text(out, -1);
}

Config config_from_json(const std::string& text) {
  const auto fail = [&](const std::string& problem) {
    throw Error(Status::kCorrupt, "configuration " + printable(text), problem,
                "give a JSON object of integers and strings, such as {\"unroll\":4}");
  };
  const nlohmann::json json = parse_json(text, fail);
  if (!json.is_object()) fail("is not a JSON object");
  Config out;
  for (const auto& [name, value] : json.items()) {
    if (value.is_number_integer() &&
        !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX))
      out.emplace(name, value.get<int64_t>());
    else if (value.is_string())
      out.emplace(name, value.get<std::string>());
    else
      fail("\"" + name + "\" is not an integer of 64 bits or a string");
  }
  return out;
}

int64_t knob_int(const Config& c, const std::string& name) {
  const auto* v = std::get_if<int64_t>(&knob(c, name));
  if (v == nullptr)
    throw Error(Status::kInvalidArgument, "configuration " + to_json(c),
                fmt::format("knob \"{}\" is not an integer", name), "tune this workload again");
  return *v;
}

const std::string& knob_text(const Config& c, const std::string& name) {
  const auto* v = std::get_if<std::string>(&knob(c, name));
  if (v == nullptr)
    throw Error(Status::kInvalidArgument, "configuration " + to_json(c),
                fmt::format("knob \"{}\" is not a string", name), "tune this workload again");
  return *v;
}

const std::vector<const Template*>& all_templates() {
  static const std::vector<const Template*> all = [] {
    std::vector<const Template*> list;
#define NIMBLE_TEMPLATE(class_name, text)   \
  static const class_name class_name##_one; \
  list.push_back(&class_name##_one);
#include "compiler/kernels/Templates.def"
#undef NIMBLE_TEMPLATE
    return list;
  }();
  return all;
}

const Template* find_template(std::string_view name) {
  for (const Template* t : all_templates())
    if (t->name() == name) return t;
  return nullptr;
}

const Template* template_for(const Workload& w, const TargetInfo& target) {
  // Values of data types are read by host operators alone.
  for (const exec::KernelArgument& a : w.contract.arguments)
    if (a.kind == exec::KernelArgument::Kind::kData) return nullptr;
  for (const Template* t : all_templates())
    if (t->serves(w, target)) return t;
  return nullptr;
}

}  // namespace nimble::kernels
