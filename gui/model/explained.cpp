#include "gui/model/explained.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "vm/base/error.h"
#include "vm/base/json_text.h"

namespace nimble::gui {
namespace {

using Json = nlohmann::json;

// Null where it is not there.
Json field(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(name);
  return it == object.end() ? Json() : *it;
}
std::string text_in(const Json& object, const char* name) {
  const Json value = field(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

ExplainedKernel read(const Json& row) {
  ExplainedKernel k;
  k.kernel = row.at("kernel").get<std::string>();
  k.operators = row.at("operators").get<std::string>();
  k.implementation = row.at("implementation").get<std::string>();
  k.config = row.at("config").get<std::string>();
  k.calls = row.at("count").get<int64_t>();
  k.path = row.at("path").get<std::vector<std::string>>();
  k.summary = row.at("summary").get<std::string>();
  for (const auto& [symbol, extent] : row.at("call").at("shape").items())
    k.symbols[symbol] = extent.get<int64_t>();
  const Json evidence = field(row, "evidence"), entry = field(row, "entry");
  k.table = text_in(evidence, "table");
  if (const Json version = field(evidence, "version"); version.is_number_integer())
    k.version = version.get<int64_t>();
  if (const Json range = field(entry, "range"); range.is_object()) k.range = json_text(range, -1);
  if (field(entry, "override") == true) k.override_uuid = text_in(entry, "id");
  k.measurement = text_in(entry, "measurement");
  return k;
}

}  // namespace

std::vector<ExplainedKernel> explained_from_json(const std::string& text) {
  try {
    std::vector<ExplainedKernel> all;
    for (const Json& row : Json::parse(text)) all.push_back(read(row));
    return all;
  } catch (const Json::exception& e) {
    throw Error(Status::kCorrupt, "nimble explain",
                fmt::format("printed no explanation: {}", e.what()),
                "use a nimble-explain of the same version");
  }
}

}  // namespace nimble::gui
