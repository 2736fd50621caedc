// What a dispatch table loses, for the report and the record. A choice among finalists, of times
// that were levelled, is judged by all that is known and by the times as they were.
#include <algorithm>
#include <cmath>

#include "tuner/service/regret.h"
#include "tuner/service/task_run.h"

namespace nimble::tuner {
namespace {

// The paper's choice: the one configuration that is best on average at the powers of two.
size_t single_choice(const CrossTable& cross, const std::vector<WorkloadPoint>& points) {
  CrossTable powers = cross;
  powers.shapes.clear();
  powers.weights.clear();
  powers.exact.clear();
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

// The table's time at each size.
std::vector<double> chosen_times(const Table& table, const CrossTable& cross) {
  std::vector<double> out(cross.shapes.size());
  for (size_t s = 0; s < out.size(); ++s)
    out[s] = cross.times[table.entries[table.tree.choose(cross.shapes[s], 1)].configuration][s];
  return out;
}

}  // namespace

std::vector<double> TaskRun::best_known(const TableEvidence& e) const {
  const std::map<size_t, double> known = fastest();
  std::vector<double> best(e.points.size(), HUGE_VAL);
  for (size_t s = 0; s < e.points.size(); ++s) {
    // Times of another hour don't mix with these: what was faster then is so by as much now.
    if (const auto it = known.find(e.points[s]);
        it != known.end() && e.configs.at(0) == records_.default_config())
      best[s] = it->second * e.cross.times[0][s];
    for (const auto& row : e.cross.times) best[s] = std::min(best[s], row[s]);
  }
  return best;
}

void TaskRun::report_held_out(const Table& table, const TableEvidence& e, size_t single) {
  std::vector<double> table_times, single_times, best, alike;
  for (size_t p = 0; p < task_.points.size(); ++p) {
    if (!task_.points[p].held_out) continue;
    const auto time_of = [&](size_t c) {
      const auto row = verified_.find(e.configs[c]);
      if (row == verified_.end() || !row->second.contains(p)) return HUGE_VAL;
      return row->second.at(p);
    };
    const uint32_t leaf =
        table.tree.choose(task_.points[p].symbols, static_cast<int32_t>(records_.threads()));
    const double own = time_of(table.entries[leaf].configuration), alone = time_of(single);
    if (!std::isfinite(own) || !std::isfinite(alone)) continue;
    double least = HUGE_VAL;
    for (size_t c = 0; c < e.configs.size(); ++c) least = std::min(least, time_of(c));
    table_times.push_back(own);
    single_times.push_back(alone);
    best.push_back(least);
    alike.push_back(1);
  }
  if (alike.empty()) return;
  const Regret regret = regret_against(table_times, best, alike);
  report_.held_out_regret = regret.mean;
  report_.held_out_worst_regret = regret.worst;
  report_.held_out_single_regret = regret_against(single_times, best, alike).mean;
}

void TaskRun::report_vendor() {
  if (!vendor_) return;
  const TableEvidence e = evidence({db::Role::kCross});
  if (e.points.empty()) return;
  // What it has at a size, whatever it has at others: ours are out where one result is wrong.
  std::map<size_t, db::BothSides> at;
  for (size_t s = 0; s < e.points.size(); ++s) {
    db::BothSides& both = at[e.points[s]];
    both.size = dims_of(task_, e.points[s]);
    for (size_t c = 0; c < e.configs.size(); ++c)
      if (e.configs[c] != *vendor_)
        both.ours = std::min(both.ours.value_or(HUGE_VAL), e.cross.times[c][s]);
  }
  for (const db::TrialOutcome& o : outcomes()) {
    const db::Trial& t = o.trial;
    if (t.key.config != *vendor_ || !db::is_final(t.state) || t.error_class == kNotItsFault)
      continue;
    if (t.state != db::TrialState::kOk) report_.no_vendor = t.message;
    const auto both = at.find(records_.point_of(t.key.shape).value_or(task_.points.size()));
    if (both == at.end() || t.key.role != db::Role::kCross) continue;
    if (t.state == db::TrialState::kOk)
      both->second.vendor = ns_of(o);
    else
      both->second.vendor_failed = t.error_class != db::kNotAvailable;
  }
  std::vector<db::BothSides> sizes;
  for (auto& [point, both] : at) sizes.push_back(std::move(both));
  report_.vendor = db::standing_of(sizes);
  if (report_.vendor->sizes == 0 && report_.no_vendor.empty())
    report_.no_vendor = db::kVendorUntried;
}

void TaskRun::report_table(const Table& table, const TableEvidence& e,
                           const std::vector<double>& best) {
  const std::vector<double> chosen = chosen_times(table, e.cross);
  const size_t single = single_choice(e.cross, task_.points);
  const Regret regret = regret_against(chosen, best, e.cross.weights);
  report_.entries = table.entries.size();
  report_.regret = regret.mean;
  report_.worst_regret = regret.worst;
  report_.single_regret = regret_against(e.cross.times[single], best, e.cross.weights).mean;
  report_held_out(table, e, single);
  report_.best_ns = weighted(e.cross, chosen);
  if (e.configs[0] == records_.default_config())
    report_.default_ns = weighted(e.cross, e.cross.times[0]);
  report_.estimated = false;
  report_vendor();
}

}  // namespace nimble::tuner
