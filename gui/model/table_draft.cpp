#include "gui/model/table_draft.h"

#include <algorithm>

#include "vm/base/error.h"

namespace nimble::gui {
namespace {

constexpr char kSelf[] = "table editor";

// Narrows a feature's interval to [first, last]; false if nothing is left of it.
bool narrow(db::Region& region, const std::string& feature, int64_t first,
            std::optional<int64_t> last) {
  const auto it = region.find(feature);
  if (it != region.end()) {
    first = std::max(first, it->second.first);
    if (it->second.second) last = std::min(last.value_or(INT64_MAX), *it->second.second);
  }
  region[feature] = {first, last};
  return !last || first <= *last;
}

std::optional<db::Region> side_of(const TreeNode& test, db::Region region, bool yes) {
  const std::string feature = text_of(test.feature);
  const bool remainder = test.feature.kind == Feature::Kind::kMod;
  const std::optional<int64_t> last = remainder ? std::optional(test.feature.t - 1) : std::nullopt;
  if (test.equal) {
    // What is not equal is no interval: the whole of it stays.
    if (yes && !narrow(region, feature, test.value, test.value)) return std::nullopt;
    return region;
  }
  if (!narrow(region, feature, yes ? 0 : test.value + 1,
              yes ? std::optional(last ? std::min(*last, test.value) : test.value) : last))
    return std::nullopt;
  return region;
}

}  // namespace

std::vector<std::optional<db::Region>> regions_of(const DispatchTree& tree) {
  const auto& nodes = tree.nodes();
  std::vector<std::optional<db::Region>> regions(nodes.size());
  regions[0] = db::Region{};
  // Children stand after their parents.
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].leaf || !regions[i]) continue;
    regions[nodes[i].yes] = side_of(nodes[i], *regions[i], true);
    regions[nodes[i].no] = side_of(nodes[i], *regions[i], false);
  }
  return regions;
}

TableDraft::TableDraft(std::shared_ptr<const WorkloadFacts> facts, const db::DispatchTable& table)
    : facts_(std::move(facts)), original_(table) {
  states_.push_back({table, DispatchTree::of(facts_->record, table), std::string()});
}

std::optional<std::string> TableDraft::move_border(size_t node, int64_t value) {
  DispatchTree changed = tree();
  const TreeNode& test = changed.nodes().at(node);
  if (test.leaf) return "is no test";
  if (value == test.value) return std::nullopt;
  if (value < 0) return "a border is 0 or more";
  if (test.feature.kind == Feature::Kind::kMod && value >= test.feature.t)
    return fmt::format("a remainder of {} is less than {}", test.feature.t, test.feature.t);
  const std::string before = text_of(test);
  changed.set_value(node, value);
  const auto was = regions_of(tree()), is = regions_of(changed);
  for (size_t i = 0; i < is.size(); ++i)
    if (was[i] && !is[i])
      return fmt::format("{} would leave {} without shapes", text_of(test),
                         changed.nodes()[i].leaf ? fmt::format("entry {}", changed.nodes()[i].entry)
                                                 : text_of(changed.nodes()[i]));
  push(std::move(changed), now().entries, fmt::format("{} → {}", before, value));
  return std::nullopt;
}

std::optional<std::string> TableDraft::set_config(size_t entry, const db::Hash& config) {
  std::vector<db::DispatchEntry> entries = now().entries;
  if (entry >= entries.size()) return "there is no such entry";
  if (entries[entry].config == config) return std::nullopt;
  if (!facts_->config_index(config)) return "was never measured for this workload";
  const std::string before = entries[entry].config.substr(0, 8);
  entries[entry].config = config;
  push(tree(), std::move(entries),
       fmt::format("entry {}: {} → {}", entry, before, config.substr(0, 8)));
  return std::nullopt;
}

void TableDraft::push(DispatchTree tree, std::vector<db::DispatchEntry> entries,
                      std::string change) {
  State next{now(), std::move(tree), std::move(change)};
  next.table.tree = next.tree.json();
  // An entry that several leaves name keeps its range: there is no one interval for it.
  const auto regions = regions_of(next.tree);
  std::map<size_t, std::vector<size_t>> leaves;
  for (size_t i = 0; i < next.tree.nodes().size(); ++i)
    if (next.tree.nodes()[i].leaf)
      leaves[static_cast<size_t>(next.tree.nodes()[i].entry)].push_back(i);
  for (const auto& [entry, nodes] : leaves)
    if (nodes.size() == 1 && regions[nodes[0]])
      entries[entry].range = db::json_of(*regions[nodes[0]]);
  next.table.entries = std::move(entries);
  for (const db::DispatchEntry& e : next.table.entries)
    if (const auto c = facts_->config_index(e.config)) {
      const ConfigFacts& info = facts_->configs[*c];
      next.table.configs[e.config] = {info.template_name, info.template_version, info.json};
    }
  // What an entry promises: the plain mean over the measured shapes that it serves. Of one that
  // serves none nothing is known.
  struct Sum {
    double time = 0, regret = 0;
    size_t n = 0;
    const Cell* evidence = nullptr;
  };
  std::map<int64_t, Sum> sums;
  for (const RegretPoint& p : regret_of(*facts_, &next.table, Serving::Overrides::kLeftOut)) {
    if (!p.regret()) continue;
    Sum& s = sums[p.served.entry];
    s.time += p.chosen->result.median_ns;
    s.regret += *p.regret();
    ++s.n;
    s.evidence = p.chosen;  // of the largest shape: they ascend
  }
  for (size_t i = 0; i < next.table.entries.size(); ++i) {
    db::DispatchEntry& e = next.table.entries[i];
    const db::DispatchEntry& was = original_.entries[i];
    if (e.config == was.config && e.range == was.range) {
      e = was;
      continue;
    }
    e.expected_ns.reset();
    e.regret.reset();
    e.evidence.reset();
    if (const auto it = sums.find(static_cast<int64_t>(i)); it != sums.end()) {
      e.expected_ns = it->second.time / static_cast<double>(it->second.n);
      e.regret = it->second.regret / static_cast<double>(it->second.n);
      e.evidence = it->second.evidence->result.measurement;
    }
  }
  states_.resize(at_ + 1);
  states_.push_back(std::move(next));
  ++at_;
}

void TableDraft::undo() {
  if (can_undo()) --at_;
}

void TableDraft::redo() {
  if (can_redo()) ++at_;
}

db::NewDispatchTable TableDraft::to_store(const std::string& reason) const {
  if (!changed())
    throw Error(Status::kInvalidArgument, kSelf, "nothing was changed", "move a border first");
  if (reason.find_first_not_of(" \t\n") == std::string::npos)
    throw Error(Status::kInvalidArgument, kSelf, "the change has no reason", "say why");
  db::NewDispatchTable out = now();
  out.parent = original_.uuid;
  out.campaign.reset();  // a person made it
  out.objective = fmt::format("edited: {}", reason);
  for (size_t i = 0; i < out.entries.size(); ++i) {
    const db::DispatchEntry& was = original_.entries[i];
    if (out.entries[i].config != was.config || out.entries[i].range != was.range)
      out.entries[i].reason = reason;
  }
  return out;
}

}  // namespace nimble::gui
