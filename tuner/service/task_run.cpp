#include "tuner/service/task_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tuner/service/task_state.h"
#include "vm/base/error.h"

namespace nimble::tuner {

double case_ms(double ns, const Policy& p) {
  const double sample = std::max(ns, static_cast<double>(p.batch_ns));
  return ((1 + p.warm_up) * ns + 1.5 * p.min_samples * sample) / 1e6;
}

TaskRun::TaskRun(CampaignContext& context, const TuningTask& task, int64_t threads)
    : context_(context),
      task_(task),
      records_(context.store, task, context.target, threads, context.policy),
      cache_(context.cache,
             fmt::format("{} {} {}", records_.workload(), context.toolchain, context.target.level)),
      builder_(context, records_, cache_),
      expectations_(context, records_, builder_, cache_),
      executor_(context, records_, builder_, expectations_) {
  records_.leave_out_vendor(context.backend);
  report_.no_vendor = records_.space().no_vendor();
  report_.workload = records_.workload();
  report_.label = task.label;
  report_.threads = threads;
  report_.calls = task.calls;
  searched_at_ = search_points();
  order_ = spread_order(task, searched_at_);
  const db::Task record = records_.task_record(context_.campaign, order_);
  row_ = record.uuid;
  context_.store.add_tasks({record});
  if (const std::vector<db::TaskPhase> phases = context_.store.phases(row_); !phases.empty())
    report_.ranked = db::rank_correlations_of(phases.back().detail);
}

void TaskRun::enter(plan::Phase phase) {
  TaskState state;
  if (found_.ratio < kUnusable) state.best_ratio = found_.ratio;
  state.trials = report_.trials;
  state.failed = report_.failed;
  state.pruned = report_.pruned;
  state.share = report_.share;
  state.spent_s = report_.spent_s;
  state.noise = report_.noise;
  state.searched_at = report_.searched_at;
  state.rank_correlations = report_.ranked;
  state.vendor = report_.vendor;
  state.no_vendor = report_.no_vendor;
  state.note = report_.remark();
  if (report_.table) {
    state.default_ns = report_.default_ns;
    state.best_ns = report_.best_ns;
    state.k = static_cast<int64_t>(report_.k);
    state.regret = report_.regret;
    state.worst_regret = report_.worst_regret;
    state.single_regret = report_.single_regret;
  }
  const Account::Span storing(context_.account, Activity::kStore);
  context_.store.enter_phase(row_, plan::name_of(phase), json_text(state),
                             state.share > 0 ? std::optional(state.share) : std::nullopt);
}

bool TaskRun::finished_before() const {
  const std::vector<db::TaskPhase> phases = context_.store.phases(row_);
  // A table that was made of what an interrupted task knew has no end of the task behind it.
  for (const db::DispatchTable& t : context_.store.tables(records_.workload(), context_.hardware))
    if (t.campaign == context_.campaign && std::ranges::any_of(phases, [&](const db::TaskPhase& p) {
          return p.phase == plan::name_of(plan::Phase::kDone) && p.created_at >= t.created_at;
        }))
      return true;
  return false;
}

db::TrialKey TaskRun::key(const db::Hash& config, size_t point, db::Role role) const {
  return {context_.campaign, records_.workload(), config, records_.shape(point), role,
          records_.threads()};
}

void TaskRun::run(const std::function<std::vector<db::NewTrial>()>& trials, db::Role role) {
  std::vector<db::Trial> claimed;
  const Account::Span storing(context_.account, Activity::kStore);
  // One transaction: each waits for the disk.
  context_.store.transaction([&] {
    context_.store.enqueue(trials());
    // What an earlier process left in the queue comes along.
    db::ClaimRequest request{context_.campaign, context_.owner, kLeaseMs, 1 << 20};
    request.role = role;
    request.workload = records_.workload();
    claimed = context_.store.claim(request);
  });
  for (const db::Trial& t : claimed) changed_.insert(t.uuid);
  std::erase_if(claimed, [&](const db::Trial& t) {
    return !expectations_.possible(*records_.point_of(t.key.shape));
  });
  run_claimed(std::move(claimed));
  give_back();
}

const std::vector<db::TrialOutcome>& TaskRun::outcomes() const {
  if (!std::exchange(outcomes_read_, true)) {
    outcomes_ = context_.store.outcomes(context_.campaign, records_.workload());
    for (size_t i = 0; i < outcomes_.size(); ++i) outcome_at_[outcomes_[i].trial.uuid] = i;
    changed_.clear();
  }
  std::vector<db::TrialOutcome> fresh;
  for (const db::Uuid& uuid : std::exchange(changed_, {})) {
    std::optional<db::TrialOutcome> now = context_.store.outcome(uuid);
    if (!now) continue;
    const auto at = outcome_at_.find(uuid);
    if (at == outcome_at_.end())
      fresh.push_back(std::move(*now));
    else
      outcomes_[at->second] = std::move(*now);
  }
  // In the order enqueued, so that a search is told the same in the same order.
  std::ranges::sort(fresh, {}, [](const db::TrialOutcome& o) { return o.trial.position; });
  for (db::TrialOutcome& o : fresh) {
    outcome_at_.emplace(o.trial.uuid, outcomes_.size());
    outcomes_.push_back(std::move(o));
  }
  return outcomes_;
}

void TaskRun::give_back() {
  const Account::Span storing(context_.account, Activity::kStore);
  context_.store.give_back(context_.campaign, context_.owner);
}

void TaskRun::run_claimed(std::vector<db::Trial> trials) {
  // What needs compiling goes in pieces, so that a kill loses a piece and not a round.
  // A candidate's trials at several sizes come one behind the other, and stay together.
  const size_t piece = builder_.per_piece();
  std::set<db::Hash> missing;
  std::vector<std::vector<db::Trial>> pieces(1);
  for (db::Trial& t : trials) {
    if (!builder_.has(t.key.config) && !missing.contains(t.key.config) && missing.size() >= piece) {
      pieces.emplace_back();
      missing.clear();
    }
    if (!builder_.has(t.key.config)) missing.insert(t.key.config);
    pieces.back().push_back(std::move(t));
  }
  // Rounds of the search are measured piece by piece. Configurations that are compared at a size
  // stay together: times are best compared within one case.
  std::vector<db::Trial> compiled;
  for (std::vector<db::Trial>& some : pieces) {
    // What there is no time for goes back to the queue.
    if (seconds_left() <= 0 && &some != pieces.data()) break;
    compile(some);
    const bool search = std::all_of(some.begin(), some.end(), [](const db::Trial& t) {
      return t.key.role == db::Role::kSearch;
    });
    std::move(some.begin(), some.end(), std::back_inserter(compiled));
    if (search || &some == &pieces.back()) measure(std::exchange(compiled, {}));
  }
}

void TaskRun::measure(std::vector<db::Trial> trials) {
  std::map<size_t, std::vector<db::Trial>> by_point;
  for (db::Trial& t : trials) by_point[*records_.point_of(t.key.shape)].push_back(std::move(t));
  for (auto& [point, group] : by_point) {
    if (context_.cancelled()) throw Error(Status::kCancelled, "tuning", "interrupted");
    // The default first: without its time those of the others are of no use.
    std::stable_partition(group.begin(), group.end(), [&](const db::Trial& t) {
      return t.key.config == records_.default_config();
    });
    if (group[0].key.role == db::Role::kSearch) {
      measure_search(point, std::move(group));
      continue;
    }
    const bool cross = group[0].key.role == db::Role::kCross;
    const std::vector<EntryResult> results = measure(point, group, false);
    if (!cross) continue;
    // Those that had no time come along the next time, all of them.
    if (std::any_of(results.begin(), results.end(),
                    [](const EntryResult& r) { return r.state == EntryState::kLate; }))
      cut_.insert(point);
    else
      cut_.erase(point);
  }
}

void TaskRun::compile(std::vector<db::Trial>& trials) {
  std::vector<db::Hash> configs;
  for (const db::Trial& t : trials) configs.push_back(t.key.config);
  // What the cross-evaluation will compare with is computed beside the last candidates.
  std::vector<std::function<void()>> ahead;
  if (builder_.has(records_.default_config()))
    for (size_t p : order_)
      if (!expectations_.at_hand(p)) ahead.push_back(expectations_.job(p));
  const std::map<db::Hash, std::string> failed = builder_.build(configs, ahead);
  const Account::Span storing(context_.account, Activity::kStore);
  expectations_.take();
  std::erase_if(trials, [&](const db::Trial& t) {
    if (const auto it = failed.find(t.key.config); it != failed.end()) {
      finish_failed(t, db::TrialState::kCompileFailed, "compiler", it->second);
      return true;
    }
    // What has a time has it, and what other phases ask for was found worth it, as was what an
    // earlier campaign chose.
    if (t.key.role != db::Role::kSearch || db::is_final(t.state) || seeds_.contains(t.key.config))
      return false;
    const std::optional<std::string> why = builder_.why_not_measured(t.key.config);
    if (why) finish_failed(t, db::TrialState::kCompileFailed, db::kPruned, *why);
    return why.has_value();
  });
}

void TaskRun::finish_failed(const db::Trial& trial, db::TrialState state,
                            const std::string& error_class, const std::string& message) {
  context_.store.transaction([&] {
    context_.store.finish({trial.uuid, context_.owner, state, error_class, message, std::nullopt});
    db::FailureLog log;
    log.trial = trial.uuid;
    log.attempt = trial.attempt;
    log.error_class = error_class;
    log.message = message;
    context_.store.add(log);
  });
  changed_.insert(trial.uuid);
  const int64_t pruned = error_class == db::kPruned ? 1 : 0;
  context_.meter.count(1, 1, pruned);
  ++report_.trials;
  ++report_.failed;
  report_.pruned += pruned;
}

std::vector<EntryResult> TaskRun::measure(size_t point, const std::vector<db::Trial>& trials,
                                          bool paired) {
  Executor::Outcome outcome = executor_.measure(point, trials, paired, seconds_left());
  for (const db::Trial& t : trials) changed_.insert(t.uuid);
  report_.trials += outcome.finished;
  report_.failed += outcome.failed;
  return std::move(outcome.results);
}

std::vector<std::function<void()>> TaskRun::expectation_jobs() {
  if (expectations_.at_hand(first_point())) return {};
  return {expectations_.job(first_point())};
}

double TaskRun::baseline() {
  enter(plan::Phase::kBaseline);
  builder_.take_default();
  expectations_.take();
  until_s_ = context_.end_s;
  if (!expectations_.possible(first_point())) keep_possible();
  context_.meter.phase("default schedule");
  const bool worker_runs = context_.runner.worker() > 0;
  const double begin = context_.meter.consumed_s();
  const size_t point = first_point();
  report_.default_ns = opening_ns_ = open_point(point) ? times_.at(point).default_ns() : 0;
  report_.estimated = false;
  // The first that is known of what a case costs beyond its runs.
  if (worker_runs && opening_ns_ > 0) {
    context_.finishing.expected += case_s(point, 1);
    context_.finishing.spent += context_.meter.consumed_s() - begin;
  }
  return report_.default_ns;
}

}  // namespace nimble::tuner
