#include "tuner/service/task_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tuner/measure/statistics.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::tuner {
namespace {

constexpr double kExecutableMs = 500;  // of compiling one executable, by its size
constexpr double kMostPerExecutable = 4;
constexpr size_t kMostPerRound = 16;
// A round that is lost by a kill must not cost more than a few seconds.
constexpr double kRoundMs = 3000;
constexpr int kPatience = 5;  // rounds without a gain of 1 %
constexpr double kWorthwhile = 0.01;
// The least limit of a case, in s: less would not see one entry through.
constexpr double kLeastCase = 0.05;

db::TrialState state_of(EntryState s) {
  switch (s) {
    case EntryState::kOk:
      return db::TrialState::kOk;
    case EntryState::kWrong:
      return db::TrialState::kWrong;
    case EntryState::kTimeout:
      return db::TrialState::kTimeout;
    case EntryState::kCrashed:
    case EntryState::kFailed:
    case EntryState::kLost:
    case EntryState::kLate:
      return db::TrialState::kCrashed;
  }
  return db::TrialState::kCrashed;
}

std::string error_class_of(const EntryResult& r) {
  switch (r.state) {
    case EntryState::kOk:
      return "";
    case EntryState::kWrong:
      return "mismatch";
    case EntryState::kTimeout:
      return "hang";
    case EntryState::kCrashed:
      return r.message.starts_with("SIG") ? r.message : "crash";
    case EntryState::kFailed:
      return "refused";
    case EntryState::kLost:
    case EntryState::kLate:
      return kNotItsFault;
  }
  return "";
}

}  // namespace

double case_ms(double ns, const Policy& p) {
  const double sample = std::max(ns, static_cast<double>(p.batch_ns));
  return ((1 + p.warm_up) * ns + 1.5 * p.min_samples * sample) / 1e6;
}

TaskRun::TaskRun(CampaignContext& context, const TuningTask& task, int64_t threads)
    : context_(context), task_(task), threads_(threads), space_(task.workload(), context.target) {
  db::Store& store = context_.store;
  store.transaction([&] {
    workload_ = store.put(tuned::workload_record(task.workload(), context.target, threads));
    db::MeasurePolicy policy;
    policy.policy_class = context.policy.name;
    policy.mode = context.policy.cold ? db::CacheMode::kCold : db::CacheMode::kWarm;
    policy.warm_up = context.policy.warm_up;
    policy.threads = threads;
    policy.timer = kTimer;
    policy.stop_rule = context.policy.text();
    policy_ = store.put(policy);
    for (const WorkloadPoint& p : task.points) {
      db::Dims dims;
      for (size_t i = 0; i < p.symbols.size(); ++i)
        dims[task.workload().contract.symbols[i]] = p.symbols[i];
      shapes_.push_back(store.put(db::Shape{workload_, dims, p.flops, p.bytes}));
      point_of_[shapes_.back()] = shapes_.size() - 1;
    }
    default_config_ = put_config(space_.default_candidate());
  });
  report_.workload = workload_;
  report_.label = task.label;
  report_.threads = threads;
  report_.calls = task.calls;
  representative_ = task.representative();
  order_ = spread_order();
}

TaskRun::~TaskRun() {
  for (uint32_t id : executables_) context_.runner.remove(id);
}

bool TaskRun::finished_before() const {
  for (const db::DispatchTable& t : context_.store.tables(workload_, context_.hardware))
    if (t.campaign == context_.campaign && t.objective.find("interrupted") == std::string::npos)
      return true;
  return false;
}

db::Hash TaskRun::put_config(const tuned::Candidate& c) {
  const db::Hash schedule =
      context_.store.put(db::Template{c.template_name, tuned::kTemplateVersion, ""});
  const db::Hash hash = context_.store.put(db::Config{schedule, config_json(c)});
  candidates_.emplace(hash, c);
  return hash;
}

const tuned::Candidate& TaskRun::candidate(const db::Hash& config) {
  const auto it = candidates_.find(config);
  if (it != candidates_.end()) return it->second;
  const auto info = context_.store.config(config);
  NIMBLE_CHECK(info, "configuration {} is not in the database", config);
  return candidates_.emplace(config, candidate_of(info->template_name, info->json)).first->second;
}

db::TrialKey TaskRun::key(const db::Hash& config, size_t point, db::Role role) const {
  return {context_.campaign, workload_, config, shapes_[point], role, threads_};
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
    request.workload = workload_;
    claimed = context_.store.claim(request);
  });
  std::erase_if(claimed, [&](const db::Trial& t) { return !possible(point_of_.at(t.key.shape)); });
  run_claimed(std::move(claimed));
}

void TaskRun::save_model() {
  if (unsaved_model_) context_.store.add(*unsaved_model_);
  unsaved_model_.reset();
}

size_t TaskRun::per_executable() const {
  return static_cast<size_t>(
      std::clamp(kExecutableMs / cpu_ms_per_candidate_, 1.0, kMostPerExecutable));
}

void TaskRun::run_claimed(std::vector<db::Trial> trials) {
  // What needs compiling goes in pieces, so that a kill loses a piece and not a round.
  const size_t piece = per_executable() * static_cast<size_t>(context_.compile_threads);
  size_t missing = 0;
  std::vector<std::vector<db::Trial>> pieces(1);
  for (db::Trial& t : trials) {
    if (!built_.contains(t.key.config) && ++missing > piece) {
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
  for (db::Trial& t : trials) by_point[point_of_.at(t.key.shape)].push_back(std::move(t));
  for (auto& [point, group] : by_point) {
    if (context_.cancelled()) throw Error(Status::kCancelled, "tuning", "interrupted");
    // The default first: without its time those of the others are of no use.
    std::stable_partition(group.begin(), group.end(),
                          [&](const db::Trial& t) { return t.key.config == default_config_; });
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

void TaskRun::finish_failed(const db::Trial& trial, db::TrialState state,
                            const std::string& error_class, const std::string& message) {
  context_.store.finish({trial.uuid, context_.owner, state, error_class, message, std::nullopt});
  context_.meter.count(1, 1);
  ++report_.trials;
  ++report_.failed;
}

Case TaskRun::case_of(size_t point) const {
  const WorkloadPoint& at = task_.points[point];
  Case c;
  c.symbols = at.symbols;
  c.threads = static_cast<int32_t>(threads_);
  c.seed = data_seed(task_, at);
  c.inputs = task_.fills_at(at);
  c.stepping = task_.stepping;
  c.policy = context_.policy;
  return c;
}

std::vector<EntryResult> TaskRun::measure(size_t point, const std::vector<db::Trial>& trials,
                                          bool paired) {
  const Expectation& e = expectations_.at(point);
  Case c = case_of(point);
  c.expected = e.outputs;
  c.tolerance = e.tolerance;
  const double limit_s = std::max(kLeastCase, seconds_left());
  if (limit_s < 1e6) c.limit_ns = static_cast<int64_t>(limit_s * 1e9);
  for (const db::Trial& t : trials) {
    const Kept& k = built_.at(t.key.config);
    c.entries.push_back({k.executable, k.kernel});
  }
  if (paired) {
    const Kept& k = built_.at(default_config_);
    c.entries.push_back({k.executable, k.kernel});
  }
  const auto measure_case = [&] {
    const Account::Span timing(context_.account, Activity::kTime);
    const double begin = context_.account.seconds(Activity::kTime);
    const CaseCost before = context_.runner.cost();
    std::vector<EntryResult> results = context_.runner.measure(c);
    const CaseCost& after = context_.runner.cost();
    const double wall = context_.account.seconds(Activity::kTime) - begin;
    const double used =
        static_cast<double>(after.check_ns - before.check_ns + after.time_ns - before.time_ns) /
        1e9;
    // A worker that was lost tells nothing; its candidate took the time.
    if (used > 0) context_.account.move(Activity::kTime, Activity::kPrepare, wall - used);
    return results;
  };
  std::vector<EntryResult> results = measure_case();
  for (const EntryResult& r : results) {
    if (r.state != EntryState::kWrong ||
        context_.backend.is_right(task_, task_.points[point], e, r.worst_output, r.worst_element))
      continue;
    // The default schedule is wrong where its samples did not show it. The plain interpreter then
    // tells the whole result, however long it takes.
    context_.meter.note(fmt::format(
        "{}: the default schedule is wrong at {}: element {} of result {}; please report this",
        task_.label, fmt::join(task_.points[point].symbols, ", "), r.worst_element,
        r.worst_output));
    {
      const Account::Span checking(context_.account, Activity::kCheck);
      expect(point, context_.backend.expect(task_, task_.points[point], candidate(default_config_),
                                            [] { return std::nullopt; }));
    }
    c.expected = expectations_.at(point).outputs;
    c.tolerance = expectations_.at(point).tolerance;
    results = measure_case();
    break;
  }
  const double tolerance = c.tolerance;
  const HostReading h = context_.host.read();
  const Account::Span storing(context_.account, Activity::kStore);
  const StopRule rule(context_.policy.min_samples, context_.policy.max_samples);
  int64_t failures = 0, finished = 0;
  context_.store.transaction([&] {
    for (const db::Artifact& a : unsaved_artifacts_) context_.store.put(a);
    const db::Uuid host = context_.store.put(
        db::HostState{"", h.governor, h.turbo, h.smt, h.affinity, h.load, h.steal});
    for (size_t i = 0; i < trials.size(); ++i) {
      const EntryResult& r = results[i];
      if (r.state == EntryState::kLate) continue;
      const db::Hash& artifact = built_.at(trials[i].key.config).artifact;
      db::TrialResult out{trials[i].uuid,    context_.owner, state_of(r.state),
                          error_class_of(r), r.message,      std::nullopt};
      if (r.state == EntryState::kOk) {
        const Summary s = summarise(r.samples_ns, rule);
        db::Measurement m;
        m.trial = trials[i].uuid;
        m.artifact = artifact;
        m.policy = policy_;
        m.machine = context_.machine;
        m.host_state = host;
        m.median_ns = s.median;
        m.mad_ns = s.mad;
        m.ci_low_ns = s.ci_low;
        m.ci_high_ns = s.ci_high;
        m.stop_reason = r.stop_reason;
        m.samples_ns = r.samples_ns;
        m.outliers = s.outliers;
        out.measurement = std::move(m);
      }
      if (db::is_final(trials[i].state)) {
        if (out.measurement) context_.store.add(*out.measurement);
        continue;
      }
      ++finished;
      failures += r.state != EntryState::kOk;
      if (context_.store.finish(out) &&
          (r.state == EntryState::kOk || r.state == EntryState::kWrong))
        context_.store.add(db::Correctness{"", artifact, shapes_[point], r.max_error, tolerance,
                                           r.state == EntryState::kOk});
    }
  });
  unsaved_artifacts_.clear();
  report_.trials += finished;
  report_.failed += failures;
  context_.meter.count(finished, failures);
  return results;
}

double TaskRun::baseline() {
  take_default();
  take_expectations();
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
  const auto found =
      std::find_if(nearest.begin(), nearest.end(), [&](size_t p) { return possible(p); });
  if (found == nearest.end())
    throw Error(Status::kUnsupported, task_.label, impossible_.at(nearest[0]),
                "give the sizes that the model meets with --fix or --trace");
  representative_ = *found;
  const size_t point = representative_;
  const db::TrialKey k = key(default_config_, point, db::Role::kBaseline);
  context_.meter.phase("default schedule");
  const bool worker_runs = context_.runner.worker() > 0;
  const double begin = context_.meter.consumed_s();
  run([&] { return std::vector<db::NewTrial>{{k, 0, 1e6, std::nullopt}}; }, db::Role::kBaseline);
  for (const db::TrialOutcome& o : context_.store.outcomes(context_.campaign, workload_))
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
    search_->tell(candidate(o.trial.key.config), o.median_ns);
    if (o.median_ns) best_ns_ = std::min(best_ns_, *o.median_ns);
  };
  if (!search_) {
    const Account::Span learning(context_.account, Activity::kLearn);
    SearchOptions options;
    options.seed = context_.seed ^ hash64(workload_);
    options.threads = static_cast<int>(threads_);
    options.symbols = task_.points[point].symbols;
    options.jobs = context_.compile_threads;
    search_ = std::make_unique<Search>(space_, options);
    // What earlier processes found out.
    for (const db::TrialOutcome& o : context_.store.outcomes(context_.campaign, workload_))
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
        out.push_back({key(put_config(p.candidate), point, db::Role::kSearch), round_,
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
      all = context_.store.outcomes(context_.campaign, workload_);
    }
    const Account::Span learning(context_.account, Activity::kLearn);
    // What there was no time for stays asked.
    for (const db::TrialOutcome& o : all)
      if (db::is_final(o.trial.state) && asked_.erase(o.trial.uuid) > 0) tell(o);
    const std::optional<double> correlation = search_->learn();
    if (!proposing.empty()) {
      db::CostModel m;
      m.campaign = context_.campaign;
      m.workload = workload_;
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
