#include "tuner/service/search_times.h"

#include <cmath>

#include "tuner/measure/statistics.h"

namespace nimble::tuner {
namespace {

constexpr int64_t kMostCases = 10'000;  // of an earlier process

std::optional<double> time_of(const EntryResult& r) {
  if (r.state != EntryState::kOk) return std::nullopt;
  return median_of(r.samples_ns);
}

}  // namespace

void SearchTimes::begin(db::Store& store, const db::Uuid& baseline, double default_ns,
                        const std::vector<db::TrialOutcome>& outcomes) {
  default_ns_ = default_ns;
  anchors_ = {baseline};
  // A case is known by its host state.
  std::map<db::Uuid, double> defaults;
  for (const db::MeasurementSummary& m : store.measurements(baseline, kMostCases))
    defaults[m.measurement.host_state] = m.measurement.median_ns;
  for (const db::TrialOutcome& o : outcomes) {
    if (o.trial.key.role != db::Role::kSearch || !o.median_ns) continue;
    for (const db::MeasurementSummary& m : store.measurements(o.trial.uuid, 1))
      if (const auto it = defaults.find(m.measurement.host_state); it != defaults.end())
        ratios_[o.trial.uuid] = m.measurement.median_ns / it->second;
  }
}

bool SearchTimes::take(const std::vector<db::Trial>& trials,
                       const std::vector<EntryResult>& results) {
  const std::optional<double> base = results.empty() ? std::nullopt : time_of(results[0]);
  if (!base) return true;  // nothing to compare with: the times stand as they are
  const size_t known = anchors_.size();
  std::optional<double> second;  // the other anchor's time over the default's
  if (known > 1)
    if (const std::optional<double> ns = time_of(results.at(1))) second = *ns / *base;
  if (second && steadiness_.is_disturbed(*second)) return false;
  std::vector<db::Hash> beside;
  size_t fastest = 0;
  double least = HUGE_VAL;
  for (size_t i = known; i < trials.size(); ++i) {
    const std::optional<double> ns = time_of(results.at(i));
    if (!ns) continue;
    ratios_[trials[i].uuid] = *ns / *base;
    beside.push_back(trials[i].key.config);
    // The default itself would tell nothing of the default.
    if (*ns < least && trials[i].key.config != trials[0].key.config) least = *ns, fastest = i;
  }
  if (known == 1 && fastest > 0) {
    anchors_.push_back(trials[fastest].uuid);
    second = least / *base;
  }
  if (anchors_.size() > 1 && second) ratios_[anchors_[1]] = *second;
  if (second) doubted_ = steadiness_.add(*second, beside);
  return true;
}

std::optional<double> SearchTimes::ns(const db::TrialOutcome& outcome) const {
  if (!outcome.median_ns) return std::nullopt;
  const auto it = ratios_.find(outcome.trial.uuid);
  return it == ratios_.end() ? *outcome.median_ns : it->second * default_ns_;
}

}  // namespace nimble::tuner
