#include "gui/model/serving.h"

#include <algorithm>

#include "vm/base/error.h"
#include "vm/executable/dispatch_text.h"

namespace nimble::gui {

Serving::Serving(const WorkloadFacts& f, const db::DispatchTable* table, Overrides overrides)
    : table_(table), threads_(f.record.threads), symbols_(symbols_of(f.record)) {
  if (table) tree_ = DispatchTree::of(f.record, *table);
  if (overrides == Overrides::kLeftOut) return;
  for (const db::Override& o : f.overrides) {
    Layer layer{&o, {}};
    try {
      for (const auto& [name, ends] : db::region_from_json(o.region, "override " + o.uuid)) {
        const auto feature = exec::feature_from_text(name, symbols_);
        if (!feature || feature->kind == exec::DispatchFeature::Kind::kThreads)
          throw Error(Status::kInvalidArgument, "override " + o.uuid,
                      name + " is not a feature of the workload's shapes",
                      "withdraw it and make it anew");
        layer.ranges.push_back({*feature, ends.first, ends.second});
      }
      layers_.push_back(std::move(layer));
    } catch (const Error& e) {
      refused_.emplace_back(&o, e.what());
    }
  }
}

Served Serving::at(const db::Dims& dims) const {
  Served out;
  if (table_) {
    out.entry = tree_.entry_at(dims, threads_);
    out.config = table_->entries[static_cast<size_t>(out.entry)].config;
  }
  const std::vector<int64_t> extents = extents_of(symbols_, dims);
  const auto holds = [&](const Range& r) {
    const int64_t value = exec::value_of(r.feature, extents, 1);  // no feature of threads
    return value >= r.first && (!r.last || value <= *r.last);
  };
  for (const Layer& layer : layers_) {
    if (!std::ranges::all_of(layer.ranges, holds)) continue;
    out.by = layer.of;
    out.config = layer.of->config;
    break;
  }
  return out;
}

std::vector<TreeStep> Serving::path_at(const db::Dims& dims) const {
  return table_ ? tree_.path_at(dims, threads_) : std::vector<TreeStep>();
}

std::vector<int64_t> Serving::borders_of(const std::string& symbol) const {
  std::vector<int64_t> borders = tree_.borders_of(symbol);
  for (const Layer& layer : layers_)
    for (const Range& r : layer.ranges) {
      if (r.feature.kind != exec::DispatchFeature::Kind::kSymbol || symbols_[r.feature.a] != symbol)
        continue;
      if (r.first > 0) borders.push_back(r.first - 1);
      if (r.last) borders.push_back(*r.last);
    }
  std::ranges::sort(borders);
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  return borders;
}

const Cell* cell_of(const WorkloadFacts& f, const Served& served, size_t shape) {
  if (served.config.empty()) {
    for (size_t c = 0; c < f.configs.size(); ++c)
      if (f.configs[c].is_default) return f.cell(c, shape);
    return nullptr;
  }
  const auto c = f.config_index(served.config);
  return c ? f.cell(*c, shape) : nullptr;
}

}  // namespace nimble::gui
