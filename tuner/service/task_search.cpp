// The search at the representative size.
#include <algorithm>
#include <cmath>
#include <utility>

#include "tuner/measure/statistics.h"
#include "tuner/service/task_run.h"
#include "tuner/service/warm_start.h"
#include "vm/base/hash.h"

namespace nimble::tuner {
namespace {

constexpr size_t kMostPerRound = 16;
// A round that is lost by a kill must not cost more than a few seconds.
constexpr double kRoundMs = 3000;
constexpr int kPatience = 5;  // rounds without a gain of 1 %
constexpr double kWorthwhile = 0.01;

}  // namespace

void TaskRun::measure_search(size_t point, std::vector<db::Trial> trials) {
  std::vector<db::Trial> all;
  const auto add = [&](const db::Uuid& uuid) {
    if (std::optional<db::Trial> t = context_.store.trial(uuid)) all.push_back(std::move(*t));
  };
  for (const db::Uuid& anchor : times_.anchors()) add(anchor);
  compile(all);  // a process before this one did
  if (all.empty() || all.size() < times_.anchors().size()) {
    measure(point, trials, false);
    return;
  }
  std::move(trials.begin(), trials.end(), std::back_inserter(all));
  for (;;) {
    const std::vector<EntryResult> results = measure(point, all, false);
    if (times_.take(all, results) || seconds_left() <= 0) break;
    // Disturbed, so once more: what failed has failed, what has a time gets another one.
    std::vector<db::Trial> again;
    for (size_t i = 0; i < all.size(); ++i) {
      if (results[i].state == EntryState::kOk) all[i].state = db::TrialState::kOk;
      if (i < times_.anchors().size() || results[i].state == EntryState::kOk ||
          results[i].state == EntryState::kLate)
        again.push_back(std::move(all[i]));
    }
    all = std::move(again);
  }
  const std::vector<db::Hash> doubted = times_.doubted();
  if (doubted.empty()) return;
  std::vector<db::Trial> once_more;
  for (const db::Hash& config : doubted) {
    std::optional<db::Trial> t =
        context_.store.trial(db::uuid_of(key(config, point, db::Role::kSearch)));
    if (!t) continue;
    asked_.insert(t->uuid);  // the search is told again
    // Of an anchor every case tells.
    if (std::ranges::find(times_.anchors(), t->uuid) == times_.anchors().end())
      once_more.push_back(std::move(*t));
  }
  measure_search(point, std::move(once_more));
}

bool TaskRun::search(double until_s) {
  // A piece that was begun in time may end a little later; what comes next has the less.
  until_s_ = context_.end_s;
  const size_t point = representative_;
  const auto tell = [&](const db::TrialOutcome& o) {
    search_->tell(records_.candidate(o.trial.key.config), times_.ns(o));
  };
  const auto best_of = [&](const std::vector<db::TrialOutcome>& all) {
    double best = HUGE_VAL;
    for (const db::TrialOutcome& o : all)
      if (o.trial.key.role == db::Role::kSearch) best = std::min(best, times_.ns(o).value_or(best));
    return best;
  };
  if (!search_) {
    const Account::Span learning(context_.account, Activity::kLearn);
    SearchOptions options;
    options.seed = context_.seed ^ hash64(records_.workload());
    options.threads = static_cast<int>(records_.threads());
    options.symbols = task_.points[point].symbols;
    options.jobs = context_.compile_threads;
    options.random = context_.random_search;
    if (!options.random)
      options.seeds =
          warm_start(context_.store, records_.space(), records_.threads(), context_.hardware);
    report_.seeds = options.seeds.size();
    search_ = std::make_unique<Search>(records_.space(), options);
    // What earlier processes found out.
    const std::vector<db::TrialOutcome>& before = outcomes();
    for (const db::TrialOutcome& o : before)
      if (o.trial.key.role == db::Role::kSearch && db::is_final(o.trial.state)) {
        tell(o);
        round_ = std::max(round_, o.trial.round + 1);
      }
    best_ns_ = best_of(before);
    search_->learn();
  }
  const double at_first = best_ns_;
  int stale = 0;
  while (stale < kPatience) {
    const double begin = context_.meter.consumed_s();
    const double left_ms = (until_s - begin) * 1000;
    // The default's time tells what measuring one candidate takes: those far off are raced.
    const double each = candidate_s() * 1000;
    if (left_ms < 2 * each && round_ > 0) break;
    const auto count = static_cast<size_t>(
        std::clamp(std::min(kRoundMs, left_ms) / each, 2.0, static_cast<double>(kMostPerRound)));
    std::vector<Proposal> proposals;
    {
      const Account::Span learning(context_.account, Activity::kLearn);
      proposals = search_->propose(count);
    }
    if (proposals.empty()) {
      exhausted_ = true;
      break;
    }
    context_.meter.phase(fmt::format("search, round {}", round_));
    const auto trials = [&] {
      std::vector<db::NewTrial> out;
      for (const Proposal& p : proposals) {
        out.push_back({key(records_.put(p.candidate), point, db::Role::kSearch), round_,
                       static_cast<double>(-round_), p.predicted_ns});
        asked_.insert(db::uuid_of(out.back().key));
      }
      return out;
    };
    run(trials, db::Role::kSearch);
    const double before = best_ns_;
    {
      const Account::Span storing(context_.account, Activity::kStore);
      outcomes();
    }
    const std::vector<db::TrialOutcome>& all = outcomes();
    const Account::Span learning(context_.account, Activity::kLearn);
    // What there was no time for stays asked.
    for (const db::TrialOutcome& o : all)
      if (db::is_final(o.trial.state) && asked_.erase(o.trial.uuid) > 0) tell(o);
    best_ns_ = best_of(all);
    const std::optional<double> correlation = search_->learn();
    if (correlation) report_.model_correlation = correlation;
    stale = best_ns_ < before * (1 - kWorthwhile) ? 0 : stale + 1;
    context_.meter.times(best_ns_, report_.default_ns);
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
  return !crossed_ || best_ns_ < at_first * (1 - kWorthwhile);
}

}  // namespace nimble::tuner
