// The search at the representative sizes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tuner/measure/statistics.h"
#include "tuner/service/task_run.h"
#include "tuner/service/warm_start.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::tuner {
namespace {

constexpr size_t kMostPerRound = 16;
// A round that is lost by a kill must not cost more than a few seconds.
constexpr double kRoundMs = 3000;
// Rounds without a gain after which the other phases, and other workloads, have their turn. Of
// those in a row of which nothing was measured, since all was pruned, more: they say nothing of
// what measuring still gains, and cost their compiling alone.
constexpr int kPatience = 5, kBlindPatience = 20;

}  // namespace

// ---- the sizes ------------------------------------------------------------------------------

std::vector<Representative> TaskRun::search_points() {
  std::set<size_t> before;
  for (const db::TrialOutcome& o : outcomes())
    if (const std::optional<size_t> point = records_.point_of(o.trial.key.shape);
        point && o.trial.key.role == db::Role::kSearch)
      before.insert(*point);
  searched_before_ = !before.empty();
  if (!searched_before_) return representatives_of(task_);
  return representatives_of(task_, {before.begin(), before.end()});
}

// What it began with stays the first: its default's time is the one that everything else is told
// by.
void TaskRun::search_at(const std::vector<size_t>& points) {
  const size_t first = points.at(0);
  searched_at_ = representatives_of(task_, points);
  const auto own =
      std::ranges::find(searched_at_, first, [](const Representative& r) { return r.point; });
  std::rotate(searched_at_.begin(), own, own + 1);
  order_ = spread_order(task_, searched_at_);
}

void TaskRun::keep_affordable(double seconds) {
  std::vector<double> candidate_s = candidate_at_s();
  for (double& s : candidate_s) s *= context_.searching.ratio();
  const size_t most = shapes_in_time(seconds, candidate_s);
  if (searched_before_ || most == searched_at_.size()) return;
  std::vector<size_t> points;
  for (size_t s = 0; s < most; ++s) points.push_back(searched_at_[s].point);
  search_at(points);
}

void TaskRun::keep_possible() {
  std::vector<size_t> possible;
  for (const Representative& r : searched_at_)
    if (expectations_.possible(r.point)) possible.push_back(r.point);
  if (possible.size() == searched_at_.size()) return;
  if (possible.empty()) {
    // Sizes ascend, so that the nearest stand next to it; of two the smaller is tried first.
    const size_t wanted = first_point();
    std::vector<size_t> nearest(task_.points.size());
    std::iota(nearest.begin(), nearest.end(), size_t{0});
    const auto away = [&](size_t p) { return p < wanted ? wanted - p : p - wanted; };
    std::stable_sort(nearest.begin(), nearest.end(),
                     [&](size_t a, size_t b) { return away(a) < away(b); });
    const auto found = std::find_if(nearest.begin(), nearest.end(),
                                    [&](size_t p) { return expectations_.possible(p); });
    if (found == nearest.end())
      throw Error(Status::kUnsupported, task_.label, expectations_.impossible().at(wanted),
                  "give the sizes that the model meets with --fix or --trace");
    possible = {*found};
  }
  search_at(possible);
}

bool TaskRun::open_point(size_t point) {
  const db::TrialKey k = key(records_.default_config(), point, db::Role::kBaseline);
  run([&] { return std::vector<db::NewTrial>{{k, 0, 1e6, std::nullopt}}; }, db::Role::kBaseline);
  std::vector<db::TrialOutcome> here;
  std::ranges::copy_if(outcomes(), std::back_inserter(here), [&](const db::TrialOutcome& o) {
    return o.trial.key.shape == records_.shape(point);
  });
  for (const db::TrialOutcome& o : here) {
    if (o.trial.uuid != db::uuid_of(k)) continue;
    if (!o.median_ns) {
      const std::string why =
          fmt::format("the default schedule failed: {} {}", o.trial.error_class, o.trial.message);
      if (point == first_point())
        report_.note = why;
      else
        context_.meter.note(fmt::format("{} is not searched{}: {}", task_.label,
                                        at_text(task_.points[point]), why));
      return false;
    }
    times_[point].begin(context_.store, o.trial.uuid, *o.median_ns, here);
    return true;
  }
  return false;
}

// ---- what it has come to --------------------------------------------------------------------

std::optional<size_t> TaskRun::search_place(const db::TrialOutcome& o) const {
  if (o.trial.key.role != db::Role::kSearch) return std::nullopt;
  const std::optional<size_t> point = records_.point_of(o.trial.key.shape);
  for (size_t s = 0; s < searched_at_.size(); ++s)
    if (point == searched_at_[s].point) return s;
  return std::nullopt;
}

std::optional<double> TaskRun::ns_of(const db::TrialOutcome& o) const {
  const std::optional<size_t> point = records_.point_of(o.trial.key.shape);
  const auto times = point ? times_.find(*point) : times_.end();
  return times == times_.end() ? o.median_ns : times->second.ns(o);
}

TaskRun::Found TaskRun::found_of(const std::vector<db::TrialOutcome>& outcomes) const {
  // Round by round, as it was found.
  std::map<int64_t, std::vector<const db::TrialOutcome*>> rounds;
  for (const db::TrialOutcome& o : outcomes)
    if (search_place(o) && db::is_final(o.trial.state)) rounds[o.trial.round].push_back(&o);
  Found out;
  out.best_ns.assign(searched_at_.size(), HUGE_VAL);
  std::vector<double> shares;
  for (const Representative& r : searched_at_) shares.push_back(r.share);
  double before = HUGE_VAL;
  for (const auto& [round, trials] : rounds) {
    std::set<db::Hash> configs;
    for (const db::TrialOutcome* o : trials) {
      // What was not measured says nothing of what measuring still gains.
      if (o->trial.error_class != db::kPruned) configs.insert(o->trial.key.config);
      double& best = out.best_ns[*search_place(*o)];
      best = std::min(best, ns_of(*o).value_or(best));
    }
    std::vector<double> over_default;
    for (size_t s = 0; s < searched_at_.size(); ++s)
      over_default.push_back(out.best_ns[s] / times_.at(searched_at_[s].point).default_ns());
    out.ratio = searched_ratio(over_default, shares);
    out.trials += std::ssize(configs);
    out.dry += std::ssize(configs);
    if (gains(out.ratio, before) || before == HUGE_VAL) out.dry = 0, before = out.ratio;
  }
  return out;
}

bool TaskRun::ends_search() {
  const SearchEnd& end = context_.search_end;
  if (found_.trials >= end.max_trials)
    report_.search_ended = fmt::format("{} trials are the most", end.max_trials);
  else if (found_.dry >= end.patience)
    report_.search_ended = fmt::format("{} trials gained less than 1 %", end.patience);
  exhausted_ |= !report_.search_ended.empty();
  return exhausted_;
}

// ---- rounds ---------------------------------------------------------------------------------

void TaskRun::measure_search(size_t point, std::vector<db::Trial> trials) {
  std::vector<db::Trial> all;
  const auto add = [&](const db::Uuid& uuid) {
    if (std::optional<db::Trial> t = context_.store.trial(uuid)) all.push_back(std::move(*t));
  };
  SearchTimes& times = times_[point];
  for (const db::Uuid& anchor : times.anchors()) add(anchor);
  compile(all);  // a process before this one did
  if (all.empty() || all.size() < times.anchors().size()) {
    measure(point, trials, false);
    return;
  }
  std::move(trials.begin(), trials.end(), std::back_inserter(all));
  for (;;) {
    const std::vector<EntryResult> results = measure(point, all, false);
    if (times.take(all, results) || seconds_left() <= 0) break;
    // Disturbed, so once more: what failed has failed, what has a time gets another one.
    std::vector<db::Trial> again;
    for (size_t i = 0; i < all.size(); ++i) {
      if (results[i].state == EntryState::kOk) all[i].state = db::TrialState::kOk;
      if (i < times.anchors().size() || results[i].state == EntryState::kOk ||
          results[i].state == EntryState::kLate)
        again.push_back(std::move(all[i]));
    }
    all = std::move(again);
  }
  const std::vector<db::Hash> doubted = times.doubted();
  if (doubted.empty()) return;
  std::vector<db::Trial> once_more;
  for (const db::Hash& config : doubted) {
    std::optional<db::Trial> t =
        context_.store.trial(db::uuid_of(key(config, point, db::Role::kSearch)));
    if (!t) continue;
    asked_.insert(t->uuid);  // the search is told again
    // Of an anchor every case tells.
    if (std::ranges::find(times.anchors(), t->uuid) == times.anchors().end())
      once_more.push_back(std::move(*t));
  }
  measure_search(point, std::move(once_more));
}

void TaskRun::tell_search(const db::TrialOutcome& o) {
  if (const std::optional<size_t> s = search_place(o))
    search_->tell(records_.candidate(o.trial.key.config), ns_of(o), *s);
}

void TaskRun::begin_search(double seconds) {
  keep_affordable(seconds);
  // Sizes beside the first are opened where they are of use: when the search begins.
  context_.meter.phase("default schedule");
  std::vector<size_t> points, open;
  for (const Representative& r : searched_at_) points.push_back(r.point);
  expectations_.prepare(points);
  keep_possible();
  for (const Representative& r : searched_at_)
    if (times_.contains(r.point) || open_point(r.point)) open.push_back(r.point);
  if (open.size() < searched_at_.size()) search_at(open);
  const Account::Span learning(context_.account, Activity::kLearn);
  SearchOptions options;
  options.seed = context_.seed ^ hash64(records_.workload());
  options.threads = static_cast<int>(records_.threads());
  for (const Representative& r : searched_at_) {
    options.shapes.push_back(task_.points[r.point].symbols);
    report_.searched_at.emplace_back(dims_of(task_, r.point), r.share);
  }
  options.jobs = context_.compile_threads;
  options.random = context_.random_search;
  if (!options.random)
    options.seeds =
        warm_start(context_.store, records_.space(), records_.threads(), context_.hardware);
  report_.seeds = options.seeds.size();
  for (const tuned::Candidate& c : options.seeds) seeds_.insert(records_.put(c));
  search_ = std::make_unique<Search>(records_.space(), options);
  // What earlier processes found out.
  const std::vector<db::TrialOutcome>& before = outcomes();
  for (const db::TrialOutcome& o : before)
    if (search_place(o) && db::is_final(o.trial.state)) {
      tell_search(o);
      round_ = std::max(round_, o.trial.round + 1);
    }
  found_ = found_of(before);
  search_->learn();
}

bool TaskRun::search(double until_s) {
  // A piece that was begun in time may end a little later; what comes next has the less.
  until_s_ = context_.end_s;
  if (!search_) begin_search(until_s - context_.meter.consumed_s());
  const double at_first = found_.ratio;
  int stale = 0, blind = 0;
  while (stale < kPatience && blind < kBlindPatience && !ends_search()) {
    const double begin = context_.meter.consumed_s();
    const double left_ms = (until_s - begin) * 1000;
    // The default's times tell what measuring one candidate takes: those far off are raced.
    const double each = candidate_s() * 1000;
    if (left_ms < 2 * each && round_ > 0) break;
    const auto affordable = static_cast<size_t>(
        std::clamp(std::min(kRoundMs, left_ms) / each, 2.0, static_cast<double>(kMostPerRound)));
    const size_t count =
        std::min(affordable, static_cast<size_t>(context_.search_end.max_trials - found_.trials));
    std::vector<Proposal> proposals;
    {
      const Account::Span learning(context_.account, Activity::kLearn);
      proposals = search_->propose(count);
    }
    if (proposals.empty()) {
      report_.search_ended = kAllTried;
      exhausted_ = true;
      break;
    }
    context_.meter.phase(fmt::format("search, round {}", round_));
    const auto trials = [&] {
      std::vector<db::NewTrial> out;
      for (const Proposal& p : proposals) {
        const db::Hash config = records_.put(p.candidate);
        for (size_t s = 0; s < searched_at_.size(); ++s) {
          const std::optional<double> predicted =
              p.predicted_ns.empty() ? std::nullopt : p.predicted_ns[s];
          out.push_back({key(config, searched_at_[s].point, db::Role::kSearch), round_,
                         static_cast<double>(-round_), predicted});
          asked_.insert(db::uuid_of(out.back().key));
        }
      }
      return out;
    };
    run(trials, db::Role::kSearch);
    const double before = found_.ratio;
    const int64_t tried = found_.trials;
    {
      const Account::Span storing(context_.account, Activity::kStore);
      outcomes();
    }
    const std::vector<db::TrialOutcome>& all = outcomes();
    const Account::Span learning(context_.account, Activity::kLearn);
    // What there was no time for stays asked.
    for (const db::TrialOutcome& o : all)
      if (db::is_final(o.trial.state) && asked_.erase(o.trial.uuid) > 0) tell_search(o);
    found_ = found_of(all);
    const std::optional<double> correlation = search_->learn();
    if (correlation) report_.ranked.emplace_back(round_, *correlation);
    blind = found_.trials > tried ? 0 : blind + 1;
    if (gains(found_.ratio, before))
      stale = 0;
    else if (blind == 0)
      ++stale;
    context_.meter.times(found_.ratio * report_.default_ns, report_.default_ns);
    ++round_;
    const double spent = context_.meter.consumed_s() - begin;
    const auto done = static_cast<double>(proposals.size());
    for (Pace* pace : {&searching_, &context_.searching}) {
      pace->expected += done * each / 1e3;
      pace->spent += spent;
    }
    searched_ += static_cast<int64_t>(proposals.size());
    progressed();
  }
  return !crossed_ || gains(found_.ratio, at_first);
}

}  // namespace nimble::tuner
