#include "tuner/service/task_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tuner/measure/statistics.h"
#include "tuner/service/warm_start.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::tuner {
namespace {

constexpr size_t kMostPerRound = 16;
// A round that is lost by a kill must not cost more than a few seconds.
constexpr double kRoundMs = 3000;
constexpr int kPatience = 5;  // rounds without a gain of 1 %
constexpr double kWorthwhile = 0.01;

}  // namespace

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
  report_.workload = records_.workload();
  report_.label = task.label;
  report_.threads = threads;
  report_.calls = task.calls;
  representative_ = task.representative();
  order_ = spread_order(task);
}

bool TaskRun::finished_before() const {
  for (const db::DispatchTable& t : context_.store.tables(records_.workload(), context_.hardware))
    if (t.campaign == context_.campaign && t.objective.find("interrupted") == std::string::npos)
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
    save_model();
    context_.store.enqueue(trials());
    // What an earlier process left in the queue comes along.
    db::ClaimRequest request{context_.campaign, context_.owner, kLeaseMs, 1 << 20};
    request.role = role;
    request.workload = records_.workload();
    claimed = context_.store.claim(request);
  });
  std::erase_if(claimed, [&](const db::Trial& t) {
    return !expectations_.possible(*records_.point_of(t.key.shape));
  });
  run_claimed(std::move(claimed));
}

void TaskRun::save_model() {
  if (unsaved_model_) context_.store.add(*unsaved_model_);
  unsaved_model_.reset();
}

void TaskRun::run_claimed(std::vector<db::Trial> trials) {
  // What needs compiling goes in pieces, so that a kill loses a piece and not a round.
  const size_t piece = builder_.per_piece();
  size_t missing = 0;
  std::vector<std::vector<db::Trial>> pieces(1);
  for (db::Trial& t : trials) {
    if (!builder_.has(t.key.config) && ++missing > piece) {
      pieces.emplace_back();
      missing = 1;
    }
    pieces.back().push_back(std::move(t));
  }
  // Rounds of the search are measured piece by piece. Configurations that are compared at a size
  // stay together: times are best compared within one case.
  std::vector<db::Trial> compiled;
  for (std::vector<db::Trial>& some : pieces) {
    // What there is no time for goes back to the queue with the campaign's end.
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
    const auto it = failed.find(t.key.config);
    if (it == failed.end()) return false;
    finish_failed(t, db::TrialState::kCompileFailed, "compiler", it->second);
    return true;
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
  context_.meter.count(1, 1);
  ++report_.trials;
  ++report_.failed;
}

std::vector<EntryResult> TaskRun::measure(size_t point, const std::vector<db::Trial>& trials,
                                          bool paired) {
  Executor::Outcome outcome = executor_.measure(point, trials, paired, seconds_left());
  report_.trials += outcome.finished;
  report_.failed += outcome.failed;
  return std::move(outcome.results);
}

std::vector<std::function<void()>> TaskRun::expectation_jobs() {
  const size_t point = task_.representative();
  if (expectations_.at_hand(point)) return {};
  return {expectations_.job(point)};
}

double TaskRun::baseline() {
  builder_.take_default();
  expectations_.take();
  until_s_ = context_.end_s;
  // Sizes ascend, so that the nearest stand next to it; of two the smaller is tried first.
  std::vector<size_t> nearest(task_.points.size());
  std::iota(nearest.begin(), nearest.end(), size_t{0});
  const auto away = [&](size_t p) {
    const auto d = static_cast<int64_t>(p) - static_cast<int64_t>(task_.representative());
    return std::abs(d);
  };
  std::stable_sort(nearest.begin(), nearest.end(),
                   [&](size_t a, size_t b) { return away(a) < away(b); });
  const auto found = std::find_if(nearest.begin(), nearest.end(),
                                  [&](size_t p) { return expectations_.possible(p); });
  if (found == nearest.end())
    throw Error(Status::kUnsupported, task_.label, expectations_.impossible().at(nearest[0]),
                "give the sizes that the model meets with --fix or --trace");
  representative_ = *found;
  const size_t point = representative_;
  const db::TrialKey k = key(records_.default_config(), point, db::Role::kBaseline);
  context_.meter.phase("default schedule");
  const bool worker_runs = context_.runner.worker() > 0;
  const double begin = context_.meter.consumed_s();
  run([&] { return std::vector<db::NewTrial>{{k, 0, 1e6, std::nullopt}}; }, db::Role::kBaseline);
  for (const db::TrialOutcome& o : context_.store.outcomes(context_.campaign, records_.workload()))
    if (o.trial.uuid == db::uuid_of(k)) {
      if (!o.median_ns)
        report_.note =
            fmt::format("the default schedule failed: {} {}", o.trial.error_class, o.trial.message);
      report_.default_ns = opening_ns_ = o.median_ns.value_or(0);
      report_.estimated = false;
    }
  // The first that is known of what a case costs beyond its runs.
  if (worker_runs && opening_ns_ > 0) {
    context_.finishing.expected += case_s(point, 1);
    context_.finishing.spent += context_.meter.consumed_s() - begin;
  }
  return report_.default_ns;
}

bool TaskRun::search(double until_s) {
  // A piece that was begun in time may end a little later; what comes next has the less.
  until_s_ = context_.end_s;
  const size_t point = representative_;
  const auto tell = [&](const db::TrialOutcome& o) {
    search_->tell(records_.candidate(o.trial.key.config), o.median_ns);
    if (o.median_ns) best_ns_ = std::min(best_ns_, *o.median_ns);
  };
  if (!search_) {
    const Account::Span learning(context_.account, Activity::kLearn);
    SearchOptions options;
    options.seed = context_.seed ^ hash64(records_.workload());
    options.threads = static_cast<int>(records_.threads());
    options.symbols = task_.points[point].symbols;
    options.jobs = context_.compile_threads;
    options.seeds =
        warm_start(context_.store, records_.space(), records_.threads(), context_.hardware);
    report_.seeds = options.seeds.size();
    search_ = std::make_unique<Search>(records_.space(), options);
    // What earlier processes found out.
    for (const db::TrialOutcome& o :
         context_.store.outcomes(context_.campaign, records_.workload()))
      if (o.trial.key.role == db::Role::kSearch && db::is_final(o.trial.state)) {
        tell(o);
        round_ = std::max(round_, o.trial.round + 1);
      }
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
    std::vector<uint8_t> proposing;
    {
      const Account::Span learning(context_.account, Activity::kLearn);
      proposals = search_->propose(count);
      // The model that proposed is the one whose predictions this round tests.
      proposing = search_->model().serialised();
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
    std::vector<db::TrialOutcome> all;
    {
      const Account::Span storing(context_.account, Activity::kStore);
      all = context_.store.outcomes(context_.campaign, records_.workload());
    }
    const Account::Span learning(context_.account, Activity::kLearn);
    // What there was no time for stays asked.
    for (const db::TrialOutcome& o : all)
      if (db::is_final(o.trial.state) && asked_.erase(o.trial.uuid) > 0) tell(o);
    const std::optional<double> correlation = search_->learn();
    if (!proposing.empty()) {
      db::CostModel m;
      m.campaign = context_.campaign;
      m.workload = records_.workload();
      m.round = round_;
      m.model = proposing;
      m.rank_correlation = correlation;
      unsaved_model_ = std::move(m);
    }
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
  save_model();
  return !crossed_ || best_ns_ < at_first * (1 - kWorthwhile);
}

}  // namespace nimble::tuner
