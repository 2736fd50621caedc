// The verification: what a table would use and what it would displace, measured anew side by side.
#include <algorithm>
#include <cmath>

#include "tuner/measure/statistics.h"
#include "tuner/service/task_run.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

// A table may rest on a part of the sizes that were evaluated, if there is no time to verify more:
// the sizes come in an order that spreads them.
constexpr double kLeastVerified = 0.5;

}  // namespace

void TaskRun::verify(double until_s) {
  until_s_ = until_s;
  verified_.clear();
  const TableEvidence e = evidence({db::Role::kCross});
  if (e.configs.empty()) return;
  const std::vector<db::Hash> wanted = finalists_of(e);
  std::set<db::Hash> few = {records_.default_config(), wanted[0]};
  // What a new table would displace, in the same session: of an earlier campaign, perhaps.
  const TableMaker maker = table_maker();
  for (const db::Hash& config : maker.active_configs(maker.slot())) few.insert(config);
  std::set<db::Hash> finalists = few;
  finalists.insert(wanted.begin(), wanted.end());
  double all = 0;
  for (size_t p : e.points) all += verify_s(p, finalists.size());
  if (all > seconds_left()) finalists = few;  // better one configuration with evidence than none
  verify_at_all(e.points, finalists);
}

double TaskRun::verify_s(size_t point, size_t finalists) const {
  const Pace& pace = finishing_.expected > 0 ? finishing_ : context_.finishing;
  return pace.ratio() * case_s(point, static_cast<double>(finalists + 1));
}

void TaskRun::verify_at_all(const std::vector<size_t>& points,
                            const std::set<db::Hash>& finalists) {
  context_.meter.phase(fmt::format("verifying {} finalists", finalists.size()));
  // A size that not all finalists had time for compares none.
  size_t sizes = 0;
  verifying_ = task_.points.size();
  for (size_t p : order_) {
    if (std::find(points.begin(), points.end(), p) == points.end()) continue;
    if (seconds_left() < verify_s(p, finalists.size())) continue;
    progressed();
    --verifying_;
    if (!verify_at(p, finalists)) {
      for (auto& [config, times] : verified_) times.erase(p);
      break;
    }
    ++sizes;
  }
  verifying_ = 0;
  if (static_cast<double>(sizes) < kLeastVerified * static_cast<double>(points.size())) {
    verified_.clear();
    context_.meter.note(fmt::format("{}: time to verify {} finalists at {} of {} sizes only",
                                    task_.label, finalists.size(), sizes, points.size()));
    return;
  }
  // Sizes that no choice saw: what the choice is worth there.
  for (size_t p = 0; p < task_.points.size(); ++p) {
    if (!task_.points[p].held_out || seconds_left() <= 0) continue;
    if (expectations_.possible(p) && !verify_at(p, finalists))
      for (auto& [config, times] : verified_) times.erase(p);
  }
  // The baseline again, at the end: what drifted in between is not a candidate's merit.
  const auto& own = verified_.at(records_.default_config());
  if (const auto it = own.find(first_point()); it != own.end() && opening_ns_ > 0)
    report_.drift = it->second / opening_ns_ - 1;
  std::vector<double> apart;
  for (double ratio : same_) apart.push_back(std::fabs(ratio - 1));
  if (!apart.empty()) report_.noise = median_of(apart);
}

TriedDraft TaskRun::try_draft(const db::DispatchTable& draft, bool activate, double until_s) {
  until_s_ = until_s;
  verified_.clear();
  const TableMaker maker = table_maker();
  std::set<db::Hash> finalists = {records_.default_config()};
  for (const db::DispatchEntry& entry : draft.entries) finalists.insert(entry.config);
  for (const db::Hash& config : maker.active_configs(draft)) finalists.insert(config);
  std::vector<size_t> points;
  for (size_t p : order_)
    if (expectations_.possible(p)) points.push_back(p);
  verify_at_all(points, finalists);
  TableOrder order;
  order.evidence = compared(verified_);
  if (verified_.empty()) order.basis = TableBasis::kCross;  // there was no time
  for (const auto& [config, times] : verified_) order.verified.insert(config);
  order.noise = report_.noise;
  const Account::Span storing(context_.account, Activity::kStore);
  return maker.try_draft(draft, order, activate);
}

// Finalists are compared with each other alone, so all of them run in one case, whatever was
// measured before: times of another session, or of a campaign that this one extends, are another
// hour's. False if there was no time for all.
bool TaskRun::verify_at(size_t point, const std::set<db::Hash>& finalists) {
  if (!expectations_.possible(point)) return true;
  const std::string place = cache_.key("verified", records_.shape(point));
  // A process that was killed since has measured just these side by side.
  if (const auto known = cache_.get(place);
      known && known->at("finalists").get<std::set<db::Hash>>() == finalists) {
    for (const auto& [config, ns] : known->at("times").items())
      verified_[config][point] = ns.get<double>();
    return true;
  }
  std::vector<db::NewTrial> wanted;
  for (const db::Hash& config : finalists)
    wanted.push_back({key(config, point, db::Role::kVerify), 0, 0, std::nullopt});
  std::vector<db::Trial> trials;
  {
    const Account::Span storing(context_.account, Activity::kStore);
    context_.store.transaction([&] {
      context_.store.enqueue(wanted);
      db::ClaimRequest request{context_.campaign, context_.owner, kLeaseMs, 1 << 20};
      request.role = db::Role::kVerify;
      request.workload = records_.workload();
      context_.store.claim(request);
      for (const db::NewTrial& t : wanted) {
        std::optional<db::Trial> now = context_.store.trial(db::uuid_of(t.key));
        // Held by a process that died: whoever takes over has its time, the trial stays as it is.
        if (now) trials.push_back(std::move(*now));
      }
    });
  }
  compile(trials);  // what can be compiled no longer is out
  const bool paired = builder_.has(records_.default_config());
  const std::vector<EntryResult> results = measure(point, trials, paired);
  give_back();
  nlohmann::json times = nlohmann::json::object();
  bool whole = true;
  for (const db::Hash& config : finalists) verified_[config][point] = kUnusable;
  for (size_t i = 0; i < trials.size(); ++i) {
    const EntryResult& r = results[i];
    const db::Hash& config = trials[i].key.config;
    whole &= r.state != EntryState::kLate;
    const double ns = r.state == EntryState::kOk ? median_of(r.samples_ns) : kUnusable;
    verified_[config][point] = ns;
    if (std::isfinite(ns)) times[config] = ns;
    // The default competes with itself: how far its two medians lie apart is what a difference
    // must exceed to count.
    if (paired && config == records_.default_config() && r.state == EntryState::kOk &&
        results.back().state == EntryState::kOk)
      same_.push_back(median_of(results.back().samples_ns) / ns);
  }
  if (whole && times.size() == finalists.size())
    cache_.put(place, {{"finalists", finalists}, {"times", times}});
  return whole;
}

}  // namespace nimble::tuner
