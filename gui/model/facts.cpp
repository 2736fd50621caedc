#include "gui/model/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "vm/base/error.h"

namespace nimble::gui {
namespace {

double product_of(const db::Dims& dims) {
  double product = 1;
  for (const auto& [symbol, extent] : dims) product *= static_cast<double>(extent);
  return product;
}

}  // namespace

int weight_of(db::Role role) {
  switch (role) {
    case db::Role::kVerify:
      return 3;
    case db::Role::kCross:
      return 2;
    case db::Role::kSearch:
      return 1;
    case db::Role::kBaseline:
      return 0;
  }
  NIMBLE_UNREACHABLE();
}

std::string_view name_of(Standing s) {
  switch (s) {
    case Standing::kNewest:
      return "newest toolchain";
    case Standing::kOlderCompiler:
      return "older compiler";
    case Standing::kOlderCodegen:
      return "older code generator";
    case Standing::kDraft:
      return "draft only";
    case Standing::kUntuned:
      return "not tuned";
  }
  NIMBLE_UNREACHABLE();
}

void arrange(WorkloadFacts& facts, std::vector<db::Result> all,
             const std::map<std::string, std::pair<int64_t, int64_t>>& work_of_shape) {
  std::map<std::string, db::Dims> dims;
  std::map<db::Hash, ConfigFacts> configs;
  std::map<std::pair<db::Hash, std::string>, const db::Result*> chosen;
  facts.results = std::move(all);
  // Of the template's defaults over time, that of the last campaign that measured one.
  const db::Result* standard = nullptr;
  for (const db::Result& r : facts.results)
    if (r.role == db::Role::kBaseline && (!standard || r.created_at > standard->created_at))
      standard = &r;
  for (const db::Result& r : facts.results) {
    const std::string key = db::text_of(r.dims);
    dims.emplace(key, r.dims);
    ConfigFacts& c = configs[r.config];
    c.hash = r.config;
    c.template_name = r.template_name;
    c.template_version = r.template_version;
    c.json = r.config_json;
    c.is_default = standard && r.config == standard->config;
    c.is_vendor = r.template_name == db::kVendorTemplate;
    const db::Result*& best = chosen[{r.config, key}];
    if (!best || weight_of(r.role) > weight_of(best->role)) best = &r;
  }
  facts.shapes.clear();
  for (const auto& [key, d] : dims) {
    ShapeFacts s{key, d};
    if (const auto it = work_of_shape.find(key); it != work_of_shape.end())
      std::tie(s.flops, s.bytes) = it->second;
    facts.shapes.push_back(std::move(s));
  }
  std::sort(facts.shapes.begin(), facts.shapes.end(), [](const ShapeFacts& x, const ShapeFacts& y) {
    const double left = product_of(x.dims), right = product_of(y.dims);
    return left != right ? left < right : x.dims < y.dims;
  });
  std::map<std::string, size_t> shape_at;
  std::vector<double> fastest(facts.shapes.size(), INFINITY);
  for (size_t i = 0; i < facts.shapes.size(); ++i) shape_at[facts.shapes[i].key] = i;
  for (const auto& [key, r] : chosen) {
    double& best = fastest[shape_at[key.second]];
    best = std::min(best, r->median_ns);
  }
  // Those measured at few shapes come after those that can be compared.
  struct Rank {
    double sum = 0;
    size_t n = 0;
  };
  std::map<db::Hash, Rank> ranks;
  for (const auto& [key, r] : chosen) {
    Rank& rank = ranks[key.first];
    rank.sum += std::log(r->median_ns / fastest[shape_at[key.second]]);
    ++rank.n;
  }
  facts.configs.clear();
  for (auto& [hash, c] : configs) facts.configs.push_back(std::move(c));
  std::sort(facts.configs.begin(), facts.configs.end(),
            [&](const ConfigFacts& x, const ConfigFacts& y) {
              const Rank &left = ranks[x.hash], &right = ranks[y.hash];
              const bool many = 2 * left.n > facts.shapes.size();
              const bool other = 2 * right.n > facts.shapes.size();
              if (many != other) return many;
              const double l = left.sum / static_cast<double>(left.n);
              const double r = right.sum / static_cast<double>(right.n);
              return l != r ? l < r : x.hash < y.hash;
            });
  std::map<db::Hash, size_t> config_at;
  for (size_t i = 0; i < facts.configs.size(); ++i) config_at[facts.configs[i].hash] = i;
  facts.cells.clear();
  facts.index_.assign(facts.configs.size() * facts.shapes.size(), -1);
  for (const auto& [key, r] : chosen) {
    const Cell cell{config_at[key.first], shape_at[key.second], *r};
    facts.index_[cell.config * facts.shapes.size() + cell.shape] =
        static_cast<int64_t>(facts.cells.size());
    facts.cells.push_back(cell);
  }
}

std::optional<size_t> WorkloadFacts::config_index(const db::Hash& hash) const {
  for (size_t i = 0; i < configs.size(); ++i)
    if (configs[i].hash == hash) return i;
  return std::nullopt;
}

std::optional<size_t> WorkloadFacts::shape_index(const std::string& key) const {
  for (size_t i = 0; i < shapes.size(); ++i)
    if (shapes[i].key == key) return i;
  return std::nullopt;
}

const Cell* WorkloadFacts::best_at(size_t shape) const {
  const Cell* best = nullptr;
  for (size_t c = 0; c < configs.size(); ++c) {
    const Cell* at = cell(c, shape);
    if (at && (!best || at->result.median_ns < best->result.median_ns)) best = at;
  }
  return best;
}

const db::DispatchTable* deciding_table(const std::vector<db::DispatchTable>& tables) {
  for (const db::DispatchTable& t : tables)
    if (t.status == db::TableStatus::kActive) return &t;
  return tables.empty() ? nullptr : &tables.front();
}

const db::DispatchTable* WorkloadFacts::table(const db::Uuid& uuid) const {
  for (const db::DispatchTable& t : tables)
    if (t.uuid == uuid) return &t;
  for (const db::DispatchTable& t : tables)
    if (t.status == db::TableStatus::kActive && t.policy == policy) return &t;
  return deciding_table(tables);
}

std::string knobs_text(const ConfigFacts& config) {
  std::string text = config.template_name;
  const auto json = nlohmann::json::parse(config.json, nullptr, false);
  if (!json.is_object()) return text + " " + config.json;
  for (const auto& [knob, value] : json.items())
    text += fmt::format(" · {} {}", knob,
                        value.is_string()
                            ? value.get<std::string>()
                            : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return text;
}

std::string title_of(const WorkloadFacts& f) {
  const std::string symbols =
      f.record.symbolic_dims.empty() ? "" : fmt::format(" ({})", f.record.symbolic_dims);
  return fmt::format("{}{} · {} thread{} · {}", f.record.op, symbols, f.record.threads,
                     f.record.threads == 1 ? "" : "s", f.workload.substr(0, 8));
}

std::string text_of(const db::HostState& host) {
  std::vector<std::string> parts;
  if (!host.governor.empty()) parts.push_back("governor " + host.governor);
  const auto add_switch = [&](const char* name, const std::optional<bool>& on) {
    if (on) parts.push_back(fmt::format("{} {}", name, *on ? "on" : "off"));
  };
  add_switch("turbo", host.turbo);
  add_switch("SMT", host.smt);
  if (!host.affinity.empty()) parts.push_back("CPUs " + host.affinity);
  parts.push_back(fmt::format("load of others {:.2f}", host.load));
  parts.push_back(fmt::format("steal {:.1f} %", host.steal * 100));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace nimble::gui
