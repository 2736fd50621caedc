// The Reader over db/store. What the store has no pages of yet (a campaign's trials) is read once
// and kept until it changes, so that scrolling asks memory.
#include "gui/model/reader.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "db/store/place.h"
#include "db/store/store.h"

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

class StoreReader final : public Reader {
 public:
  explicit StoreReader(const DatabasePlace& place) : place_(place) {
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

  Overview overview(const Cancel& cancel) override;
  std::vector<CampaignRow> campaigns(const Cancel& cancel) override;
  std::vector<CoverageRow> coverage(const Cancel& cancel) override;
  std::optional<WorkloadFacts> workload(const db::Hash& workload, const db::Hash& hardware,
                                        const db::Hash& policy, const Cancel& cancel) override;
  int64_t trial_count(const TrialQuery& query, const Cancel& cancel) override {
    return static_cast<int64_t>(matching(query, cancel).size());
  }
  std::vector<db::TrialOutcome> trials(const TrialQuery& query, int64_t first, int64_t count,
                                       const Cancel& cancel) override;
  std::optional<MeasurementFacts> measurement(const db::Uuid& uuid, const Cancel& cancel) override;
  std::string version(const Cancel& cancel) override;

 private:
  std::map<db::Hash, db::Toolchain> toolchains();
  WorkloadRow row_of(const db::Workload& w, const HardwareRow& h,
                     const std::vector<const db::DispatchTable*>& tables,
                     const std::map<db::Hash, db::Toolchain>& toolchains);
  const std::vector<size_t>& matching(const TrialQuery& query, const Cancel& cancel);

  DatabasePlace place_;
  std::unique_ptr<db::Store> store_;
  // Of the campaign asked for last.
  db::Uuid trials_of_;
  std::string trials_version_;
  std::vector<db::TrialOutcome> trials_;
  std::optional<TrialQuery> matched_;
  std::vector<size_t> matches_;
};

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

Overview StoreReader::overview(const Cancel& cancel) {
  Overview o;
  o.place = db::printable_place(store_->path());
  o.identity = store_->identity();
  o.schema = store_->schema_version();
  for (const db::Hardware& h : store_->hardware()) o.hardware.push_back({db::key_of(h), h});
  const std::vector<db::DispatchTable> tables = store_->tables();
  const auto chains = toolchains();
  std::map<std::pair<db::Hash, db::Hash>, int64_t> overrides;
  for (const db::Override& over : store_->overrides()) ++overrides[{over.workload, over.hardware}];
  std::map<std::pair<db::Hash, db::Hash>, std::vector<const db::DispatchTable*>> by_pair;
  for (const db::DispatchTable& t : tables) by_pair[{t.workload, t.hardware}].push_back(&t);
  for (const db::Workload& w : store_->workloads()) {
    const db::Hash hash = db::key_of(w);
    for (const HardwareRow& h : o.hardware) {
      cancel.check();
      const auto own = by_pair.find({hash, h.hash});
      if (own == by_pair.end() && store_->policies(hash, h.hash).empty()) continue;
      WorkloadRow row =
          row_of(w, h, own == by_pair.end() ? std::vector<const db::DispatchTable*>{} : own->second,
                 chains);
      row.overrides = overrides[{hash, h.hash}];
      o.workloads.push_back(std::move(row));
    }
  }
  return o;
}

std::vector<CoverageRow> StoreReader::coverage(const Cancel& cancel) {
  std::map<std::pair<db::Hash, db::Hash>, CoverageRow> rows;
  const Overview o = overview(cancel);
  for (const db::Workload& w : store_->workloads())
    for (const HardwareRow& h : o.hardware) {
      WorkloadRow& row = rows[{db::key_of(w), h.hash}].row;
      row.workload = db::key_of(w);
      row.hardware = h.hash;
      row.record = w;
      row.hardware_name = h.hardware.model_name;
    }
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
  for (db::Campaign& c : store_->campaigns()) {
    cancel.check();
    const db::CampaignProgress progress = store_->progress(c.uuid);
    rows.push_back({std::move(c), progress});
  }
  return rows;
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

  // Of the newest code generator that has any times here.
  std::set<int64_t, std::greater<>> generators;
  for (const auto& [hash, t] : toolchains()) generators.insert(t.codegen_version);
  std::vector<db::Result> results;
  for (const int64_t codegen : generators) {
    cancel.check();
    results = store_->results({workload, hardware, f.policy, codegen});
    f.codegen_version = codegen;
    if (!results.empty()) break;
  }
  for (const db::DispatchTable& t : f.tables) f.comparisons[t.uuid] = store_->comparisons(t.uuid);
  std::map<std::string, std::pair<int64_t, int64_t>> work;
  for (const db::Result& r : results) {
    const std::string key = db::text_of(r.dims);
    if (work.contains(key)) continue;
    cancel.check();
    if (const auto shape = store_->shape(r.shape)) work[key] = {shape->flops, shape->bytes};
  }
  arrange(f, std::move(results), work);
  return f;
}

const std::vector<size_t>& StoreReader::matching(const TrialQuery& query, const Cancel& cancel) {
  const db::CampaignProgress p = store_->progress(query.campaign);
  const std::string version = fmt::format("{}/{}/{}/{}", p.trials, p.claimed, p.ok, p.failed);
  if (trials_of_ != query.campaign || trials_version_ != version) {
    matched_.reset();
    trials_ = store_->outcomes(query.campaign);
    trials_of_ = query.campaign;
    trials_version_ = version;
  }
  if (matched_ == query) return matches_;
  cancel.check();
  matched_.reset();
  matches_.clear();
  for (size_t i = 0; i < trials_.size(); ++i) {
    const db::TrialOutcome& o = trials_[i];
    const db::Trial& t = o.trial;
    if (!query.workload.empty() && t.key.workload != query.workload) continue;
    if (!query.config.empty() && t.key.config != query.config) continue;
    const std::string shape = db::text_of(o.dims);
    if (!query.shape.empty() && shape != query.shape) continue;
    if (query.failed_only && (!db::is_final(t.state) || t.state == db::TrialState::kOk)) continue;
    const auto has = [&](const std::string& text) {
      return text.find(query.text) != std::string::npos;
    };
    if (!query.text.empty() && !has(t.error_class) && !has(t.message) && !has(o.config_json) &&
        !has(shape))
      continue;
    matches_.push_back(i);
  }
  // What has no time comes last in both directions.
  const auto time = [&](size_t i) {
    return query.order == TrialOrder::kTime ? trials_[i].median_ns : trials_[i].trial.predicted_ns;
  };
  const auto before = [&](size_t x, size_t y) {
    if (query.order == TrialOrder::kState && trials_[x].trial.state != trials_[y].trial.state)
      return (trials_[x].trial.state < trials_[y].trial.state) != query.descending;
    if (query.order == TrialOrder::kTime || query.order == TrialOrder::kPredicted) {
      const auto left = time(x), right = time(y);
      if (left.has_value() != right.has_value()) return left.has_value();
      if (left && *left != *right) return (*left < *right) != query.descending;
    }
    return query.order == TrialOrder::kQueue && query.descending ? x > y : x < y;
  };
  std::sort(matches_.begin(), matches_.end(), before);
  matched_ = query;
  return matches_;
}

std::vector<db::TrialOutcome> StoreReader::trials(const TrialQuery& query, int64_t first,
                                                  int64_t count, const Cancel& cancel) {
  const std::vector<size_t>& rows = matching(query, cancel);
  std::vector<db::TrialOutcome> page;
  const auto size = static_cast<int64_t>(rows.size());
  for (int64_t i = std::max<int64_t>(first, 0); i < std::min(size, first + count); ++i)
    page.push_back(trials_[rows[static_cast<size_t>(i)]]);
  return page;
}

std::optional<MeasurementFacts> StoreReader::measurement(const db::Uuid& uuid,
                                                         const Cancel& cancel) {
  auto m = store_->measurement(uuid);
  if (!m) return std::nullopt;
  MeasurementFacts f;
  f.measurement = std::move(*m);
  cancel.check();
  f.trial = store_->trial(f.measurement.trial);
  if (f.trial) {
    if (const auto c = store_->config(f.trial->key.config))
      f.config_text = c->template_name + " " + c->json;
    if (const auto w = store_->workload(f.trial->key.workload)) f.workload_text = w->canonical;
    if (const auto s = store_->shape(f.trial->key.shape)) f.shape = db::text_of(s->dims);
  }
  return f;
}

std::string StoreReader::version(const Cancel& cancel) {
  std::string text;
  for (const CampaignRow& row : campaigns(cancel))
    text += fmt::format("{}:{}/{}/{}/{}/{};", row.campaign.uuid,
                        static_cast<int>(row.campaign.state), row.progress.trials,
                        row.progress.claimed, row.progress.ok, row.progress.failed);
  return text + std::to_string(store_->overrides(true).size());
}

}  // namespace

std::unique_ptr<Reader> Reader::open(const DatabasePlace& place) {
  return std::make_unique<StoreReader>(place);
}

}  // namespace nimble::gui
