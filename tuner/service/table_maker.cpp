// The last step of a task: from evidence to a dispatch table. Whether it becomes active decides
// activation.cpp.
#include "tuner/service/table_maker.h"

#include <algorithm>

#include "compiler/kernels/vendor.h"
#include "compiler/tuned/tuned.h"
#include "tuner/service/regret.h"
#include "tuner/space/space.h"
#include "vm/base/error.h"
#include "vm/base/text_table.h"
#include "vm/executable/dispatch_json.h"

namespace nimble::tuner {
namespace {

// A gain over the default that is smaller than this, or than the default's difference from itself,
// is none: such a time counts as the default's.
constexpr double kLeastGain = 0.01;

void level_small_gains(CrossTable& cross, size_t base, double least) {
  for (size_t c = 0; c < cross.times.size(); ++c)
    for (size_t s = 0; s < cross.shapes.size(); ++s)
      if (c != base && cross.times[c][s] > cross.times[base][s] * (1 - least))
        cross.times[c][s] = std::max(cross.times[c][s], cross.times[base][s]);
}

double regret_of(const TableEntry& entry, const CrossTable& cross,
                 const std::vector<double>& best) {
  std::vector<double> own, least, weights;
  for (size_t s : entry.shapes) {
    own.push_back(cross.times[entry.configuration][s]);
    least.push_back(best[s]);
    weights.push_back(cross.weights[s]);
  }
  return regret_against(own, least, weights).mean;
}

}  // namespace

TableMaker::TableMaker(db::Store& store, const TaskRecords& records,
                       const kernels::TargetInfo& target, db::Uuid campaign, db::Hash hardware,
                       db::Hash toolchain)
    : store_(store),
      records_(records),
      target_(target),
      campaign_(std::move(campaign)),
      hardware_(std::move(hardware)),
      toolchain_(std::move(toolchain)) {}

void put_first(TableEvidence& e, const db::Hash& config) {
  const auto own = std::find(e.configs.begin(), e.configs.end(), config);
  if (own == e.configs.end()) return;
  const auto at = own - e.configs.begin();
  std::rotate(e.configs.begin(), own, own + 1);
  std::rotate(e.cross.times.begin(), e.cross.times.begin() + at, e.cross.times.begin() + at + 1);
  auto& exact_only = e.cross.exact_only;
  if (!exact_only.empty())
    std::rotate(exact_only.begin(), exact_only.begin() + at, exact_only.begin() + at + 1);
}

namespace {

bool is_exact_only(const db::ConfigInfo& info) {
  return info.template_name == tuned::kVendorTemplate &&
         kernels::serves_exact_sizes(candidate_of(info.template_name, info.json).vendor);
}

}  // namespace

void mark_exact_only(db::Store& store, TableEvidence& e) {
  e.cross.exact_only.clear();
  for (const db::Hash& config : e.configs) {
    const std::optional<db::ConfigInfo> info = store.config(config);
    e.cross.exact_only.push_back(info && is_exact_only(*info) ? 1 : 0);
  }
}

std::vector<db::Hash> finalists_of(const TableEvidence& e) {
  std::vector<db::Hash> out = {e.configs[choose_single(e.cross).entries[0].configuration]};
  for (const TableEntry& t : choose(e.cross).entries)
    if (const db::Hash& config = e.configs[t.configuration];
        std::find(out.begin(), out.end(), config) == out.end())
      out.push_back(config);
  return out;
}

db::NewDispatchTable TableMaker::slot() const {
  db::NewDispatchTable out;
  out.workload = records_.workload();
  out.hardware = hardware_;
  out.toolchain = toolchain_;
  out.policy = records_.policy();
  return out;
}

std::map<std::pair<db::Hash, db::Hash>, db::Uuid> TableMaker::own_measurements() const {
  std::map<std::pair<db::Hash, db::Hash>, db::Uuid> out;
  for (db::Role role : {db::Role::kSearch, db::Role::kCross, db::Role::kVerify}) {
    db::ResultQuery q{records_.workload(), hardware_, records_.policy()};
    const db::Toolchain toolchain = tuned::toolchain_record();
    q.codegen_version = toolchain.codegen_version;
    q.roles = {role};
    for (const db::Result& r : store_.results(q))
      if (r.campaign == campaign_) out[{r.config, r.shape}] = r.measurement;
  }
  return out;
}

db::NewDispatchTable TableMaker::record_of(const Table& table, const TableOrder& order) const {
  const TableEvidence& e = order.evidence;
  db::NewDispatchTable out = slot();
  out.campaign = campaign_;
  out.objective = fmt::format("weighted mean regret, {} sizes, {} configurations{}{}",
                              e.cross.shapes.size(), std::max(order.tried, e.configs.size()),
                              order.noise ? fmt::format(", A/A {:.1f}%", *order.noise * 100) : "",
                              order.complete ? "" : ", interrupted");
  out.tree = exec::tree_to_json(table.tree, e.cross.symbols);
  const auto measurements = own_measurements();
  for (const TableEntry& entry : table.entries) {
    db::DispatchEntry d;
    d.range = entry.range;
    d.config = e.configs[entry.configuration];
    d.expected_ns = entry.expected_ns;
    d.regret = regret_of(entry, e.cross, order.best);
    // Its evidence: the measurement at the size of most weight inside its region.
    const size_t heaviest = *std::max_element(
        entry.shapes.begin(), entry.shapes.end(),
        [&](size_t a, size_t b) { return e.cross.weights[a] < e.cross.weights[b]; });
    if (const auto it = measurements.find({d.config, records_.shape(e.points[heaviest])});
        it != measurements.end())
      d.evidence = it->second;
    out.entries.push_back(std::move(d));
  }
  return out;
}

std::vector<int64_t> TableMaker::tiles_of(const std::vector<db::Hash>& configs) const {
  const kernels::Workload& w = records_.task().workload();
  std::set<int64_t> tiles;
  for (const db::Hash& config : configs) {
    const std::optional<db::ConfigInfo> info = store_.config(config);
    NIMBLE_CHECK(info, "configuration {} is not in the database", config);
    const tuned::Candidate c = candidate_of(info->template_name, info->json);
    const kernels::Template* t = kernels::find_template(c.template_name);
    if (!t || !t->serves(w, target_)) continue;
    for (const kernels::Knob& knob : t->knobs(w, target_))
      if (knob.tile && c.config.contains(knob.name))
        tiles.insert(kernels::knob_int(c.config, knob.name));
  }
  return {tiles.begin(), tiles.end()};
}

std::string how_to_activate(const db::Uuid& table, const std::string& database) {
  return fmt::format("; to use it: nimble dispatch activate {} --db {}", table.substr(0, 8),
                     shell_word(database));
}

MadeTable TableMaker::make(const TableOrder& order) {
  const TableEvidence& e = order.evidence;
  CrossTable levelled = e.cross;
  levelled.tiles = tiles_of(e.configs);
  if (e.configs.at(0) == records_.default_config())
    level_small_gains(levelled, 0, std::max(kLeastGain, order.noise.value_or(0)));
  MadeTable out;
  out.table = choose(levelled);
  db::NewDispatchTable record = record_of(out.table, order);
  store_.transaction([&] {
    // Within the transaction: what is active now is what the verdict is about.
    Verdict verdict = judge(record, order);
    record.parent = verdict.rival;
    out.uuid = store_.create_table(record);
    if (verdict.comparison) {
      verdict.comparison->table = out.uuid;
      store_.add(*verdict.comparison);
    }
    out.inactive.clear();
    if (verdict.activate)
      store_.activate(out.uuid, verdict.reason);
    else
      out.inactive =
          fmt::format("table {} is stored, not active: {}", out.uuid.substr(0, 8), verdict.reason);
  });
  out.record = std::move(record);
  return out;
}

}  // namespace nimble::tuner
