// The last step of a task: from the best evidence in the database to a dispatch table.
#include <algorithm>
#include <cmath>

#include "tuner/service/regret.h"
#include "tuner/service/task_run.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

// The paper's choice: the one configuration that is best on average at the powers of two.
size_t single_choice(const CrossTable& cross, const std::vector<WorkloadPoint>& points) {
  CrossTable powers = cross;
  powers.shapes.clear();
  powers.weights.clear();
  for (auto& row : powers.times) row.clear();
  for (size_t s = 0; s < cross.shapes.size(); ++s) {
    const auto it = std::find_if(points.begin(), points.end(), [&](const WorkloadPoint& p) {
      return p.symbols == cross.shapes[s];
    });
    if (it == points.end() || !it->power_of_two) continue;
    powers.shapes.push_back(cross.shapes[s]);
    powers.weights.push_back(cross.weights[s]);
    for (size_t c = 0; c < cross.times.size(); ++c) powers.times[c].push_back(cross.times[c][s]);
  }
  return choose_single(powers.shapes.empty() ? cross : powers).entries[0].configuration;
}

double weighted(const CrossTable& cross, const std::vector<double>& times) {
  double sum = 0, mass = 0;
  for (size_t s = 0; s < times.size(); ++s) {
    sum += cross.weights[s] * times[s];
    mass += cross.weights[s];
  }
  return mass > 0 ? sum / mass : 0;
}

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

void TaskRun::make_table(bool complete) {
  // The best evidence that there is: finalists side by side, else the cross-evaluation as far as
  // it went, else the search at its one size.
  const Account::Span storing(context_.account, Activity::kStore);
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
  if (e.configs.empty()) {
    if (report_.note.empty()) report_.note = "nothing was measured";
    return;
  }
  // The default first: among equals it is the one.
  const auto own = std::find(e.configs.begin(), e.configs.end(), default_config_);
  const bool has_default = own != e.configs.end();
  if (has_default) {
    const auto at = own - e.configs.begin();
    std::rotate(e.configs.begin(), own, own + 1);
    std::rotate(e.cross.times.begin(), e.cross.times.begin() + at, e.cross.times.begin() + at + 1);
  }
  CrossTable levelled = e.cross;
  if (has_default) level_small_gains(levelled, 0, std::max(kLeastGain, report_.noise.value_or(0)));
  const Table table = choose(levelled);
  const size_t single = single_choice(e.cross, task_.points);

  // Evidence of each entry: the measurement at the size of most weight inside its region.
  std::map<std::pair<db::Hash, db::Hash>, db::Uuid> measurements;
  for (db::Role role : {db::Role::kSearch, db::Role::kCross, db::Role::kVerify}) {
    db::ResultQuery q{workload_, context_.hardware, policy_};
    const db::Toolchain toolchain = tuned::toolchain_record();
    q.codegen_version = toolchain.codegen_version;
    q.roles = {role};
    for (const db::Result& r : context_.store.results(q))
      if (r.campaign == context_.campaign) measurements[{r.config, r.shape}] = r.measurement;
  }
  db::NewDispatchTable out;
  out.workload = workload_;
  out.hardware = context_.hardware;
  out.toolchain = context_.toolchain;
  out.policy = policy_;
  out.campaign = context_.campaign;
  out.objective =
      fmt::format("weighted mean regret, {} sizes, {} configurations{}{}", e.cross.shapes.size(),
                  std::max(report_.k, e.configs.size()),
                  report_.noise ? fmt::format(", A/A {:.1f}%", *report_.noise * 100) : "",
                  complete ? "" : ", interrupted");
  out.tree = tuned::tree_to_json(table.tree, e.cross.symbols);
  // A choice among finalists, of times that were levelled, is judged by all that is known and by
  // the times as they were.
  const std::map<size_t, double> known = fastest();
  std::vector<double> best(e.points.size(), HUGE_VAL);
  for (size_t s = 0; s < e.points.size(); ++s) {
    if (const auto it = known.find(e.points[s]); it != known.end()) best[s] = it->second;
    for (const auto& row : e.cross.times) best[s] = std::min(best[s], row[s]);
  }
  std::vector<double> chosen_times(e.cross.shapes.size());
  for (const TableEntry& entry : table.entries) {
    db::DispatchEntry d;
    d.range = entry.range;
    d.config = e.configs[entry.configuration];
    d.expected_ns = entry.expected_ns;
    if (d.config != default_config_) d.fallback = default_config_;
    size_t heaviest = entry.shapes.at(0);
    std::vector<double> own, least, weights;
    for (size_t s : entry.shapes) {
      chosen_times[s] = e.cross.times[entry.configuration][s];
      own.push_back(chosen_times[s]);
      least.push_back(best[s]);
      weights.push_back(e.cross.weights[s]);
      if (e.cross.weights[s] > e.cross.weights[heaviest]) heaviest = s;
    }
    d.regret = regret_against(own, least, weights).mean;
    if (const auto it = measurements.find({d.config, shapes_[e.points[heaviest]]});
        it != measurements.end())
      d.evidence = it->second;
    out.entries.push_back(std::move(d));
  }
  context_.store.transaction([&] {
    // Within the transaction: what is active now is what the verdict is about.
    Verdict verdict = judge(out, e, basis);
    out.parent = verdict.rival;
    report_.table = context_.store.create_table(out);
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
  report_.entries = table.entries.size();
  const Regret regret = regret_against(chosen_times, best, e.cross.weights);
  report_.regret = regret.mean;
  report_.worst_regret = regret.worst;
  report_.single_regret = regret_against(e.cross.times[single], best, e.cross.weights).mean;
  std::vector<double> table_times, single_times, held_out_best, alike;
  for (size_t p = 0; p < task_.points.size(); ++p) {
    if (!task_.points[p].held_out) continue;
    const auto time_of = [&](size_t c) {
      const auto row = verified_.find(e.configs[c]);
      if (row == verified_.end() || !row->second.contains(p)) return HUGE_VAL;
      return row->second.at(p);
    };
    const uint32_t leaf =
        table.tree.choose(task_.points[p].symbols, static_cast<int32_t>(threads_));
    const double own = time_of(table.entries[leaf].configuration), alone = time_of(single);
    if (!std::isfinite(own) || !std::isfinite(alone)) continue;
    double least = HUGE_VAL;
    for (size_t c = 0; c < e.configs.size(); ++c) least = std::min(least, time_of(c));
    if (const auto it = known.find(p); it != known.end()) least = std::min(least, it->second);
    table_times.push_back(own);
    single_times.push_back(alone);
    held_out_best.push_back(least);
    alike.push_back(1);
  }
  if (!alike.empty()) {
    report_.held_out_regret = regret_against(table_times, held_out_best, alike).mean;
    report_.held_out_single_regret = regret_against(single_times, held_out_best, alike).mean;
  }
  report_.best_ns = weighted(e.cross, chosen_times);
  if (has_default) report_.default_ns = weighted(e.cross, e.cross.times[0]);
  report_.estimated = false;
}

}  // namespace nimble::tuner
