// The last step of a task: from the best evidence in the database to a dispatch table. What the
// table loses is reported by table_report.cpp; whether it becomes active decides activation.cpp.
#include <algorithm>

#include "tuner/service/task_run.h"
#include "vm/base/error.h"
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

}  // namespace

std::pair<TaskRun::Basis, TaskRun::Evidence> TaskRun::best_evidence() const {
  Basis basis = Basis::kVerified;
  Evidence e = compared(verified_);
  if (e.configs.empty()) {
    basis = Basis::kCross;
    e = evidence({db::Role::kCross});
  }
  if (e.configs.empty()) {
    basis = Basis::kSearch;
    e = evidence({db::Role::kSearch, db::Role::kBaseline});
  }
  // The default first: among equals it is the one.
  if (const auto own = std::find(e.configs.begin(), e.configs.end(), records_.default_config());
      own != e.configs.end()) {
    const auto at = own - e.configs.begin();
    std::rotate(e.configs.begin(), own, own + 1);
    std::rotate(e.cross.times.begin(), e.cross.times.begin() + at, e.cross.times.begin() + at + 1);
  }
  return {basis, std::move(e)};
}

std::map<std::pair<db::Hash, db::Hash>, db::Uuid> TaskRun::own_measurements() const {
  std::map<std::pair<db::Hash, db::Hash>, db::Uuid> out;
  for (db::Role role : {db::Role::kSearch, db::Role::kCross, db::Role::kVerify}) {
    db::ResultQuery q{records_.workload(), context_.hardware, records_.policy()};
    const db::Toolchain toolchain = tuned::toolchain_record();
    q.codegen_version = toolchain.codegen_version;
    q.roles = {role};
    for (const db::Result& r : context_.store.results(q))
      if (r.campaign == context_.campaign) out[{r.config, r.shape}] = r.measurement;
  }
  return out;
}

db::NewDispatchTable TaskRun::record_of(const Table& table, const Evidence& e,
                                        const std::vector<double>& best, bool complete) const {
  db::NewDispatchTable out;
  out.workload = records_.workload();
  out.hardware = context_.hardware;
  out.toolchain = context_.toolchain;
  out.policy = records_.policy();
  out.campaign = context_.campaign;
  out.objective =
      fmt::format("weighted mean regret, {} sizes, {} configurations{}{}", e.cross.shapes.size(),
                  std::max(report_.k, e.configs.size()),
                  report_.noise ? fmt::format(", A/A {:.1f}%", *report_.noise * 100) : "",
                  complete ? "" : ", interrupted");
  out.tree = exec::tree_to_json(table.tree, e.cross.symbols);
  const auto measurements = own_measurements();
  for (const TableEntry& entry : table.entries) {
    db::DispatchEntry d;
    d.range = entry.range;
    d.config = e.configs[entry.configuration];
    d.expected_ns = entry.expected_ns;
    if (d.config != records_.default_config()) d.fallback = records_.default_config();
    d.regret = regret_of(entry, e.cross, best);
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

void TaskRun::store_table(db::NewDispatchTable table, const Evidence& e, Basis basis) {
  context_.store.transaction([&] {
    // Within the transaction: what is active now is what the verdict is about.
    Verdict verdict = judge(table, e, basis);
    table.parent = verdict.rival;
    report_.table = context_.store.create_table(table);
    if (verdict.comparison) {
      verdict.comparison->table = *report_.table;
      context_.store.add(*verdict.comparison);
    }
    report_.inactive.clear();
    if (verdict.activate)
      context_.store.activate(*report_.table, verdict.reason);
    else
      report_.inactive =
          fmt::format("table stored, not active: {}; to use it: nimble dispatch activate {}",
                      verdict.reason, report_.table->substr(0, 8));
  });
  if (!report_.inactive.empty())
    context_.meter.note(fmt::format("{}: {}", task_.label, report_.inactive));
}

void TaskRun::make_table(bool complete) {
  const Account::Span storing(context_.account, Activity::kStore);
  const auto [basis, e] = best_evidence();
  if (e.configs.empty()) {
    if (report_.note.empty()) report_.note = "nothing was measured";
    return;
  }
  CrossTable levelled = e.cross;
  if (e.configs[0] == records_.default_config())
    level_small_gains(levelled, 0, std::max(kLeastGain, report_.noise.value_or(0)));
  const Table table = choose(levelled);
  const std::vector<double> best = best_known(e);
  const db::NewDispatchTable record = record_of(table, e, best, complete);
  store_table(record, e, basis);
  report_table(table, e, best);
  if (complete) keep_code(record);
}

}  // namespace nimble::tuner
