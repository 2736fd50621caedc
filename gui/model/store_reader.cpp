#include "gui/model/store_reader.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "db/store/pages.h"
#include "db/store/place.h"

namespace nimble::gui {
namespace {

// Numbers of a version, each as a number: "19.1.7" is older than "19.1.10".
std::vector<int64_t> numbers_of(const std::string& version) {
  std::vector<int64_t> numbers(1, 0);
  for (char c : version) {
    if (c >= '0' && c <= '9' && numbers.back() < 1'000'000'000)
      numbers.back() = numbers.back() * 10 + (c - '0');
    else if (c == '.')
      numbers.push_back(0);
  }
  return numbers;
}

}  // namespace

StoreReader::StoreReader(const DatabasePlace& place) : place_(place) {
  db::OpenOptions options;
  options.create = false;
  options.read_only = true;
  try {
    store_ = db::Store::open(place.place, options);
  } catch (const Error& e) {
    if (e.status() != Status::kIncompatible || place.read_only) throw;
    // Opening a file for writing brings it up to date, as any other program of nimble does that
    // may write; a shared database refuses, with the remedy.
    options.read_only = false;
    db::Store::open(place.place, options);
    options.read_only = true;
    store_ = db::Store::open(place.place, options);
  }
}

std::map<db::Hash, db::Toolchain> StoreReader::toolchains() {
  std::map<db::Hash, db::Toolchain> all;
  for (const db::Toolchain& t : store_->toolchains()) all[db::key_of(t)] = t;
  return all;
}

WorkloadRow StoreReader::row_of(const db::Workload& w, const HardwareRow& h,
                                const std::vector<const db::DispatchTable*>& tables,
                                const std::map<db::Hash, db::Toolchain>& toolchains) {
  WorkloadRow row;
  row.workload = db::key_of(w);
  row.hardware = h.hash;
  row.record = w;
  row.hardware_name = h.hardware.model_name;
  if (tables.empty()) return row;
  const db::DispatchTable* table = tables.front();  // the newest comes first
  for (const db::DispatchTable* t : tables)
    if (t->status == db::TableStatus::kActive) {
      table = t;
      break;
    }
  row.table = table->uuid;
  row.version = table->version;
  row.policy_class = table->policy_class;
  row.entries = static_cast<int64_t>(table->entries.size());
  row.created_at = table->created_at;
  for (const db::DispatchEntry& e : table->entries)
    if (e.regret) row.worst_regret = std::max(row.worst_regret.value_or(0), *e.regret);
  for (const db::Comparison& c : store_->comparisons(table->uuid)) {
    if (c.rival) continue;
    row.speed_up = 1 / c.ratio;
    row.worst_speed_up = 1 / c.worst_ratio;
    row.compared_shapes = c.shapes;
    break;  // the newest comes first
  }
  const auto age = [](const db::Toolchain& t) {
    return std::tuple(t.codegen_version, numbers_of(t.version));
  };
  const auto own = toolchains.find(table->toolchain);
  row.staleness =
      table->status == db::TableStatus::kActive ? Staleness::kCurrent : Staleness::kDraft;
  if (own == toolchains.end() || row.staleness == Staleness::kDraft) return row;
  for (const auto& [hash, t] : toolchains) {
    if (t.compiler != own->second.compiler || age(t) <= age(own->second)) continue;
    const bool older_codegen = t.codegen_version > own->second.codegen_version;
    if (older_codegen || row.staleness == Staleness::kCurrent)
      row.staleness = older_codegen ? Staleness::kCodegen : Staleness::kCompiler;
  }
  return row;
}

std::map<std::pair<db::Hash, db::Hash>, double> StoreReader::model_shares(const Cancel& cancel) {
  std::map<std::pair<db::Hash, db::Hash>, double> shares;
  db::each_campaign(*store_, [&](const db::Campaign& c) {
    cancel.check();
    for (const db::Task& t : store_->tasks(c.uuid))
      if (t.share) shares.emplace(std::pair(t.workload, c.key.hardware), *t.share);
  });
  return shares;
}

Overview StoreReader::overview(const Cancel& cancel) {
  Overview o;
  o.place = db::printable_place(store_->path());
  o.identity = store_->identity();
  o.schema = store_->schema_version();
  for (const db::Hardware& h : store_->hardware()) o.hardware.push_back({db::key_of(h), h});
  const auto chains = toolchains();
  std::map<std::pair<db::Hash, db::Hash>, int64_t> overrides;
  for (const db::Override& over : store_->overrides()) ++overrides[{over.workload, over.hardware}];
  const auto shares = model_shares(cancel);
  db::each_workload(*store_, [&](const db::Workload& w) {
    const db::Hash hash = db::key_of(w);
    const std::vector<db::DispatchTable> tables = store_->tables(hash);
    for (const HardwareRow& h : o.hardware) {
      cancel.check();
      std::vector<const db::DispatchTable*> own;
      for (const db::DispatchTable& t : tables)
        if (t.hardware == h.hash) own.push_back(&t);
      if (own.empty() && store_->policies(hash, h.hash).empty()) continue;
      WorkloadRow row = row_of(w, h, own, chains);
      row.overrides = overrides[{hash, h.hash}];
      if (const auto share = shares.find({hash, h.hash}); share != shares.end())
        row.share = share->second;
      o.workloads.push_back(std::move(row));
    }
  });
  return o;
}

std::vector<CoverageRow> StoreReader::coverage(const Cancel& cancel) {
  std::map<std::pair<db::Hash, db::Hash>, CoverageRow> rows;
  const Overview o = overview(cancel);
  db::each_workload(*store_, [&](const db::Workload& w) {
    for (const HardwareRow& h : o.hardware) {
      WorkloadRow& row = rows[{db::key_of(w), h.hash}].row;
      row.workload = db::key_of(w);
      row.hardware = h.hash;
      row.record = w;
      row.hardware_name = h.hardware.model_name;
    }
  });
  for (const WorkloadRow& w : o.workloads) {
    cancel.check();
    CoverageRow& row = rows[{w.workload, w.hardware}];
    row.row = w;
    row.measured = true;
    const auto table = w.table ? store_->table(*w.table) : std::nullopt;
    if (table && table->campaign)
      if (const auto c = store_->campaign(*table->campaign)) row.command = c->command;
  }
  for (const db::DispatchMiss& m : store_->misses()) {
    const auto it = rows.find({m.workload, m.hardware});
    if (it == rows.end()) continue;
    ++it->second.missed_shapes;
    it->second.misses += m.count;
  }
  std::vector<CoverageRow> all;
  for (auto& [key, row] : rows) all.push_back(std::move(row));
  return all;
}

std::vector<CampaignRow> StoreReader::campaigns(const Cancel& cancel) {
  std::vector<CampaignRow> rows;
  db::each_campaign(*store_, [&](db::Campaign c) {
    cancel.check();
    const db::CampaignProgress progress = store_->progress(c.uuid);
    std::vector<db::Control> asked = store_->requests(c.uuid, 1);
    CampaignRow row{std::move(c), progress, {}};
    if (!asked.empty()) row.request = std::move(asked.front());
    rows.push_back(std::move(row));
  });
  return rows;
}

// Of the newest code generator that has any times there.
std::vector<db::Result> StoreReader::newest_results(const db::Hash& workload,
                                                    const db::Hash& hardware,
                                                    const db::Hash& policy, int64_t& codegen,
                                                    const Cancel& cancel) {
  std::set<int64_t, std::greater<>> generators;
  for (const auto& [hash, t] : toolchains()) generators.insert(t.codegen_version);
  std::vector<db::Result> results;
  for (const int64_t generator : generators) {
    cancel.check();
    results = store_->results({workload, hardware, policy, generator});
    codegen = generator;
    if (!results.empty()) break;
  }
  return results;
}

std::optional<WorkloadFacts> StoreReader::workload(const db::Hash& workload,
                                                   const db::Hash& hardware, const db::Hash& policy,
                                                   const Cancel& cancel) {
  WorkloadFacts f;
  const auto record = store_->workload(workload);
  const auto machine = store_->hardware(hardware);
  if (!record || !machine) return std::nullopt;
  f.workload = workload;
  f.hardware = hardware;
  f.record = *record;
  f.machine = *machine;
  for (const db::MeasurePolicy& p : store_->policies(workload, hardware))
    f.policies.push_back({db::key_of(p), p});
  f.tables = store_->tables(workload, hardware);
  f.overrides = store_->overrides(false, workload, hardware);
  if (f.policies.empty()) return std::nullopt;
  cancel.check();

  const auto known = [&](const db::Hash& hash) {
    return std::any_of(f.policies.begin(), f.policies.end(),
                       [&](const PolicyRow& p) { return p.hash == hash; });
  };
  f.policy = f.policies.front().hash;
  for (const db::DispatchTable& t : f.tables)
    if (t.status == db::TableStatus::kActive && known(t.policy)) f.policy = t.policy;
  if (known(policy)) f.policy = policy;

  std::vector<db::Result> results =
      newest_results(workload, hardware, f.policy, f.codegen_version, cancel);
  for (const db::DispatchTable& t : f.tables) f.comparisons[t.uuid] = store_->comparisons(t.uuid);
  std::map<std::string, std::pair<int64_t, int64_t>> work;
  for (const db::Result& r : results) {
    const std::string key = db::text_of(r.dims);
    if (work.contains(key)) continue;
    cancel.check();
    if (const auto shape = store_->shape(r.shape)) work[key] = {shape->flops, shape->bytes};
  }
  arrange(f, std::move(results), work);
  add_peers_and_twins(f, cancel);
  return f;
}

std::optional<MeasurementFacts> StoreReader::measurement(const db::Uuid& uuid,
                                                         const Cancel& cancel) {
  auto m = store_->measurement(uuid);
  if (!m) return std::nullopt;
  MeasurementFacts f;
  f.measurement = std::move(*m);
  cancel.check();
  f.trial = store_->trial(f.measurement.trial);
  f.host = store_->host_state(f.measurement.host_state);
  if (const auto machine = store_->machine(f.measurement.machine)) f.hostname = machine->hostname;
  if (f.trial) f.correctness = store_->correctness(f.measurement.artifact, f.trial->key.shape, 1);
  if (f.trial) {
    if (const auto c = store_->config(f.trial->key.config))
      f.config_text = c->template_name + " " + c->json;
    if (const auto w = store_->workload(f.trial->key.workload)) f.workload_text = w->canonical;
    if (const auto s = store_->shape(f.trial->key.shape)) f.shape = db::text_of(s->dims);
  }
  return f;
}

// Whatever windows show leaves an event, but a campaign that was only told its consumption.
std::string StoreReader::version(const Cancel&) {
  return std::to_string(store_->last_event());
}

std::unique_ptr<Reader> Reader::open(const DatabasePlace& place) {
  return std::make_unique<StoreReader>(place);
}

}  // namespace nimble::gui
