#include "gui/model/knobs.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace nimble::gui {
namespace {

// Numbers before text, by value.
bool comes_before(const nlohmann::json& x, const nlohmann::json& y) {
  if (x.is_number() != y.is_number()) return x.is_number();
  return x < y;
}

std::string text_of_value(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::vector<KnobAxis> knob_axes(const std::vector<ConfigFacts>& configs) {
  std::map<std::string, std::vector<nlohmann::json>> knobs;  // a value a configuration, null: none
  std::vector<nlohmann::json> templates;
  for (size_t i = 0; i < configs.size(); ++i) {
    templates.push_back(configs[i].template_name);
    const auto json = nlohmann::json::parse(configs[i].json, nullptr, false);
    if (!json.is_object()) continue;
    for (const auto& [knob, value] : json.items()) {
      auto& values = knobs[knob];
      values.resize(configs.size());
      values[i] = value;
    }
  }
  std::vector<KnobAxis> axes;
  const auto add = [&](const std::string& name, const std::vector<nlohmann::json>& values) {
    std::vector<nlohmann::json> distinct;
    for (const auto& v : values)
      if (!v.is_null() && std::find(distinct.begin(), distinct.end(), v) == distinct.end())
        distinct.push_back(v);
    if (distinct.size() < 2) return;
    std::sort(distinct.begin(), distinct.end(), comes_before);
    KnobAxis axis{name, {}, {}};
    for (const auto& v : distinct) axis.values.push_back(text_of_value(v));
    for (const auto& v : values) {
      const auto it = std::find(distinct.begin(), distinct.end(), v);
      axis.place.push_back(it == distinct.end() ? -1 : static_cast<int>(it - distinct.begin()));
    }
    axes.push_back(std::move(axis));
  };
  add("template", templates);
  for (const auto& [name, values] : knobs) add(name, values);
  return axes;
}

}  // namespace nimble::gui
