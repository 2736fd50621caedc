#include "gui/model/store_reader.h"

#include <algorithm>
#include <set>

#include "db/store/pages.h"
#include "db/store/place.h"
#include "db/store/toolchains.h"
#include "db/store/topics.h"
#include "vm/base/error.h"

namespace nimble::gui {
namespace {

Standing standing_of(const db::TableSummary& t, const std::vector<db::Toolchain>& known) {
  if (!t.active) return Standing::kDraft;
  const auto own =
      std::ranges::find(known, t.toolchain, [](const auto& x) { return db::key_of(x); });
  if (own == known.end()) return Standing::kNewest;
  switch (db::age_of(*own, known)) {
    case db::ToolchainAge::kNewest:
      return Standing::kNewest;
    case db::ToolchainAge::kOlderCompiler:
      return Standing::kOlderCompiler;
    case db::ToolchainAge::kOlderCodegen:
      return Standing::kOlderCodegen;
  }
  NIMBLE_UNREACHABLE();
}

void set_place(WorkloadRow& row, const db::Workload& w, const HardwareRow& h) {
  row.workload = db::key_of(w);
  row.hardware = h.hash;
  row.record = w;
  row.hardware_name = h.hardware.model_name;
}

void set_table(WorkloadRow& row, const db::TableSummary& t,
               const std::vector<db::Toolchain>& known) {
  row.table = t.uuid;
  row.version = t.version;
  row.policy_class = t.policy_class;
  row.entries = t.entries;
  row.created_at = t.created_at;
  row.command = t.command;
  row.worst_regret = t.worst_regret;
  if (t.ratio) row.speed_up = 1 / *t.ratio;
  if (t.worst_ratio) row.worst_speed_up = 1 / *t.worst_ratio;
  row.standing = standing_of(t, known);
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

Overview StoreReader::overview(const Cancel& cancel) {
  Overview o;
  o.place = db::printable_place(store_->path());
  o.identity = store_->identity();
  o.schema = store_->schema_version();
  for (const db::Hardware& h : store_->hardware()) o.hardware.push_back({db::key_of(h), h});
  std::map<db::WorkloadPlace, WorkloadRow> rows;
  for (const db::WorkloadPlace& place : store_->measured_places()) rows[place];
  const std::vector<db::Toolchain> known = store_->toolchains();
  db::each_deciding_table(*store_, [&](const db::TableSummary& t) {
    cancel.check();
    set_table(rows[t.of], t, known);
  });
  for (const auto& [place, count] : store_->override_counts())
    if (const auto row = rows.find(place); row != rows.end()) row->second.overrides = count;
  cancel.check();
  for (const auto& [place, share] : store_->model_shares())
    if (const auto row = rows.find(place); row != rows.end()) row->second.share = share;
  db::each_workload(*store_, [&](const db::Workload& w) {
    const db::Hash hash = db::key_of(w);
    for (const HardwareRow& h : o.hardware) {
      cancel.check();
      const auto row = rows.find({hash, h.hash});
      if (row == rows.end()) continue;
      set_place(row->second, w, h);
      o.workloads.push_back(std::move(row->second));
    }
  });
  return o;
}

std::vector<CoverageRow> StoreReader::coverage(const Cancel& cancel) {
  Overview o = overview(cancel);
  std::map<db::WorkloadPlace, CoverageRow> rows;
  for (WorkloadRow& w : o.workloads) {
    CoverageRow& row = rows[{w.workload, w.hardware}];
    row.row = std::move(w);
    row.measured = true;
  }
  db::each_workload(*store_, [&](const db::Workload& w) {
    cancel.check();
    for (const HardwareRow& h : o.hardware) set_place(rows[{db::key_of(w), h.hash}].row, w, h);
  });
  for (const db::Misses& m : store_->misses()) {
    const auto it = rows.find({m.workload, m.hardware});
    if (it == rows.end()) continue;
    it->second.missed_shapes = m.shapes;
    it->second.misses = m.count;
  }
  std::vector<CoverageRow> all;
  for (auto& [key, row] : rows) all.push_back(std::move(row));
  return all;
}

// Counting a campaign's trials takes as long as it has trials. Of one that does not run the count
// stays, until an event says otherwise.
void StoreReader::forget_changed_progress() {
  constexpr int64_t kMostEvents = 1000;
  const int64_t last = store_->last_event();
  const std::vector<db::Event> events = store_->events(progress_as_of_, kMostEvents);
  bool all = last < progress_as_of_ || std::ssize(events) == kMostEvents;
  for (const db::Event& e : events) {
    if (e.campaign) resting_.erase(*e.campaign);
    all |= e.kind == db::topic::kImport;
  }
  if (all) resting_.clear();
  progress_as_of_ = last;
}

std::vector<CampaignRow> StoreReader::campaigns(const Cancel& cancel) {
  cancel.check();
  forget_changed_progress();
  std::vector<CampaignRow> rows;
  const std::map<db::Uuid, db::Control> requests = store_->last_requests();
  std::vector<db::Uuid> unknown;
  const auto count = [&] {
    cancel.check();
    for (auto& [uuid, progress] : store_->progress_of(unknown)) resting_[uuid] = progress;
    unknown.clear();
  };
  db::each_campaign(*store_, [&](db::Campaign c) {
    if (!resting_.contains(c.uuid)) unknown.push_back(c.uuid);
    if (std::ssize(unknown) == db::kListedAtOnce) count();
    CampaignRow row{std::move(c), {}, {}};
    if (const auto asked = requests.find(row.campaign.uuid); asked != requests.end())
      row.request = asked->second;
    rows.push_back(std::move(row));
  });
  count();
  for (CampaignRow& row : rows) {
    row.progress = resting_[row.campaign.uuid];
    if (row.campaign.state == db::CampaignState::kRunning) resting_.erase(row.campaign.uuid);
  }
  return rows;
}

// Of the newest code generator that has any times there.
std::vector<db::Result> StoreReader::newest_results(const db::Hash& workload,
                                                    const db::Hash& hardware,
                                                    const db::Hash& policy, int64_t& codegen,
                                                    const Cancel& cancel) {
  std::set<int64_t, std::greater<>> generators;
  for (const db::Toolchain& t : store_->toolchains()) generators.insert(t.codegen_version);
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
  // What decides is shown first, as in the list of workloads, unless nothing was measured so.
  if (const db::DispatchTable* t = deciding_table(f.tables); t && known(t->policy))
    f.policy = t->policy;
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
  f.samples = static_cast<int64_t>(f.measurement.samples_ns.size());
  if (f.samples == 0)
    for (const db::MeasurementSummary& s : store_->measurements(f.measurement.trial, 10'000))
      if (s.measurement.uuid == uuid) {
        f.samples = s.n;
        f.samples_removed = !s.has_samples;
      }
  f.trial = store_->trial(f.measurement.trial);
  f.host = store_->host_state(f.measurement.host_state);
  if (const auto machine = store_->machine(f.measurement.machine)) f.hostname = machine->hostname;
  if (f.trial) f.correctness = store_->correctness(f.measurement.artifact, f.trial->key.shape, 1);
  if (f.trial) {
    if (const auto c = store_->config(f.trial->key.config))
      f.config_text = c->template_name + " " + c->json;
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
