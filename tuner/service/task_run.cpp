#include "tuner/service/task_run.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <numeric>
#include <utility>

#include "tuner/measure/statistics.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

constexpr int64_t kLeaseMs = 60'000;
constexpr double kExecutableMs = 500;  // of compiling one executable, by its size
constexpr double kMostPerExecutable = 4;
constexpr size_t kMostPerRound = 16;
// A round that is lost by a kill must not cost more than a few seconds.
constexpr double kRoundMs = 3000;
constexpr int kPatience = 5;  // rounds without a gain of 1 %
constexpr double kWorthwhile = 0.01;
constexpr double kUnusable = HUGE_VAL;
// The error class of a trial whose end says nothing about its candidate.
constexpr char kNotItsFault[] = "environment";
constexpr double kLeastCrossed = 3;  // configurations, the default among them

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
      return kNotItsFault;
  }
  return "";
}

// What measuring an entry of this time takes, in ms: its check, its warm-up and its samples, of
// which a quiet machine needs little more than the least.
double case_ms(double ns, const Policy& p) {
  const double sample = std::max(ns, static_cast<double>(p.batch_ns));
  return ((2 + p.warm_up) * ns + 1.5 * p.min_samples * sample) / 1e6;
}

}  // namespace

TaskRun::TaskRun(CampaignContext& context, const TuningTask& task, int64_t threads)
    : context_(context), task_(task), threads_(threads), space_(task.workload(), context.target) {
  db::Store& store = context_.store;
  store.transaction([&] {
    workload_ = store.put(tuned::workload_record(task.workload(), context.target, threads));
    db::MeasurePolicy policy;
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
  int64_t version = 1;
  if (const kernels::Template* t = kernels::find_template(c.template_name)) version = t->version();
  const db::Hash schedule = context_.store.put(db::Template{c.template_name, version, ""});
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

void TaskRun::run(const std::vector<db::NewTrial>& trials, db::Role role) {
  std::vector<db::Trial> claimed;
  context_.store.transaction([&] {
    context_.store.enqueue(trials);
    // What an earlier process left in the queue comes along.
    db::ClaimRequest request{context_.campaign, context_.owner, kLeaseMs, 1 << 20};
    request.role = role;
    request.workload = workload_;
    claimed = context_.store.claim(request);
  });
  std::erase_if(claimed, [&](const db::Trial& t) { return !possible(point_of_.at(t.key.shape)); });
  run_claimed(std::move(claimed));
}

size_t TaskRun::per_executable() const {
  return static_cast<size_t>(
      std::clamp(kExecutableMs / ms_per_candidate_, 1.0, kMostPerExecutable));
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
  for (const auto& [point, group] : by_point) {
    if (context_.cancelled()) throw Error(Status::kCancelled, "tuning", "interrupted");
    measure(point, group);
  }
}

void TaskRun::finish_failed(const db::Trial& trial, db::TrialState state,
                            const std::string& error_class, const std::string& message) {
  context_.store.finish({trial.uuid, context_.owner, state, error_class, message, std::nullopt});
  context_.meter.count(1, 1);
  ++report_.trials;
  ++report_.failed;
}

void TaskRun::compile(std::vector<db::Trial>& trials) {
  std::vector<db::Hash> missing;
  for (const db::Trial& t : trials)
    if (!built_.contains(t.key.config) &&
        std::find(missing.begin(), missing.end(), t.key.config) == missing.end() &&
        !restore(t.key.config))
      missing.push_back(t.key.config);
  const auto workers = static_cast<size_t>(context_.compile_threads);
  const size_t share =
      std::max<size_t>(1, std::min(per_executable(), (missing.size() + workers - 1) / workers));
  std::vector<std::vector<db::Hash>> batches;
  for (size_t i = 0; i < missing.size(); i += share)
    batches.emplace_back(missing.begin() + static_cast<long>(i),
                         missing.begin() + static_cast<long>(std::min(missing.size(), i + share)));

  std::vector<Built> results(batches.size());
  std::vector<std::vector<tuned::Candidate>> candidates;
  for (const auto& b : batches) {
    candidates.emplace_back();
    for (const db::Hash& h : b) candidates.back().push_back(candidate(h));
  }
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < batches.size() && !context_.cancelled(); i = next++)
      results[i] = context_.backend.build(task_.workload(), candidates[i], context_.target);
  };
  std::vector<std::future<void>> others;
  for (size_t i = 1; i < std::min(workers, batches.size()); ++i)
    others.push_back(std::async(std::launch::async, work));
  work();
  for (auto& f : others) f.get();
  if (context_.cancelled()) throw Error(Status::kCancelled, "tuning", "interrupted");

  std::map<db::Hash, std::string> failed;
  double ms = 0;
  context_.store.transaction([&] {
    for (size_t i = 0; i < batches.size(); ++i) {
      ms += results[i].compile_ms;
      if (results[i].error.empty()) {
        keep(batches[i], std::move(results[i]));
        continue;
      }
      // One of them spoilt it: each alone.
      for (size_t k = 0; k < batches[i].size(); ++k) {
        Built alone =
            batches[i].size() == 1
                ? std::move(results[i])
                : context_.backend.build(task_.workload(), {candidates[i][k]}, context_.target);
        if (alone.error.empty())
          keep({batches[i][k]}, std::move(alone));
        else
          failed[batches[i][k]] = alone.error;
      }
    }
  });
  if (!missing.empty())
    ms_per_candidate_ = 0.5 * ms_per_candidate_ + 0.5 * ms / static_cast<double>(missing.size());
  std::erase_if(trials, [&](const db::Trial& t) {
    const auto it = failed.find(t.key.config);
    if (it == failed.end()) return false;
    finish_failed(t, db::TrialState::kCompileFailed, "compiler", it->second);
    return true;
  });
}

void TaskRun::keep(const std::vector<db::Hash>& configs, Built built) {
  const auto count = static_cast<int64_t>(configs.size());
  const std::string file = cache_key("executable", configs[0]);
  remember(file, {{"bytes", nlohmann::json::binary(built.executable)}});
  const uint32_t id = context_.runner.add(std::move(built.executable));
  executables_.insert(id);
  for (uint32_t k = 0; k < configs.size(); ++k) {
    const db::Artifact artifact{built.code_hashes[k],
                                workload_,
                                configs[k],
                                context_.toolchain,
                                built.compile_ms / static_cast<double>(count),
                                built.image_bytes / count};
    built_[configs[k]] = {id, k, context_.store.put(artifact)};
    // After the executable: what is found here can be loaded.
    remember(cache_key("candidate", configs[k]), {{"executable", file},
                                                  {"kernel", k},
                                                  {"code_hash", artifact.code_hash},
                                                  {"compile_ms", artifact.compile_ms},
                                                  {"bytes", artifact.size}});
  }
}

bool TaskRun::restore(const db::Hash& config) {
  const std::optional<nlohmann::json> entry = recall(cache_key("candidate", config));
  if (!entry) return false;
  const auto file = entry->at("executable").get<std::string>();
  auto it = restored_.find(file);
  if (it == restored_.end()) {
    const std::optional<nlohmann::json> executable = recall(file);
    if (!executable) return false;
    it = restored_.emplace(file, context_.runner.add(executable->at("bytes").get_binary())).first;
    executables_.insert(it->second);
  }
  // The artifact's row may have gone with the transaction that a kill cut short.
  const db::Hash artifact = context_.store.put(
      db::Artifact{entry->at("code_hash").get<std::string>(), workload_, config, context_.toolchain,
                   entry->at("compile_ms").get<double>(), entry->at("bytes").get<int64_t>()});
  built_[config] = {it->second, entry->at("kernel").get<uint32_t>(), artifact};
  return true;
}

// What an entry depends on, beyond the campaign, whose folder it is in.
std::string TaskRun::cache_key(const std::string& kind, const std::string& name) const {
  return fmt::format("{} {} {} {} {}", kind, workload_, context_.toolchain, context_.target.level,
                     name);
}

void TaskRun::remember(const std::string& key, const nlohmann::json& value) const {
  if (context_.cache) context_.cache->put(key, nlohmann::json::to_cbor(value));
}

std::optional<nlohmann::json> TaskRun::recall(const std::string& key) const {
  if (!context_.cache) return std::nullopt;
  const std::optional<std::vector<uint8_t>> bytes = context_.cache->get(key);
  if (!bytes) return std::nullopt;
  return nlohmann::json::from_cbor(*bytes);
}

std::optional<Expectation> TaskRun::recall_expectation(size_t point) const {
  const std::optional<nlohmann::json> record = recall(cache_key("expected", shapes_[point]));
  if (!record) return std::nullopt;
  Expectation e;
  e.tolerance = record->at("tolerance").get<double>();
  e.sampled = record->at("sampled").get<bool>();
  if (record->contains("outputs"))
    for (const nlohmann::json& bytes : record->at("outputs"))
      e.outputs.push_back(bytes.get_binary());
  return e;
}

bool TaskRun::possible(size_t point) {
  if (expectations_.contains(point)) return true;
  if (impossible_.contains(point)) return false;
  if (std::optional<Expectation> known = recall_expectation(point)) {
    expectations_.emplace(point, std::move(*known));
    return true;
  }
  try {
    expect(point, [&] { return default_result(point); });
  } catch (const Error& error) {
    // What its types tell there is an invalid argument, what its values tell is fatal; internal is
    // a default schedule that is wrong.
    if (error.status() == Status::kInternal)
      context_.meter.note(error.what());
    else if (error.status() != Status::kFatal && error.status() != Status::kInvalidArgument)
      throw;
    impossible_.emplace(point, error.what());
    return false;
  }
  return true;
}

void TaskRun::expect(size_t point, const DefaultResult& run) {
  Expectation e =
      context_.backend.expect(task_, task_.points[point], candidate(default_config_), run);
  if (context_.cancelled()) throw Error(Status::kCancelled, "tuning", "interrupted");
  nlohmann::json record = {{"tolerance", e.tolerance}, {"sampled", e.sampled}};
  for (std::vector<uint8_t>& bytes : e.outputs)
    record["outputs"].push_back(nlohmann::json::binary(bytes));
  remember(cache_key("expected", shapes_[point]), record);
  expectations_.insert_or_assign(point, std::move(e));
}

std::optional<std::vector<std::vector<uint8_t>>> TaskRun::default_result(size_t point) {
  if (!built_.contains(default_config_) && !restore(default_config_)) {
    Built built =
        context_.backend.build(task_.workload(), {candidate(default_config_)}, context_.target);
    if (!built.error.empty()) return std::nullopt;
    context_.store.transaction([&] { keep({default_config_}, std::move(built)); });
  }
  const Kept& k = built_.at(default_config_);
  Case c = case_of(point);
  c.entries = {{k.executable, k.kernel}};
  std::string why;
  auto out = context_.runner.run(c, &why);
  if (!out)
    context_.meter.note(fmt::format("{}: the default schedule failed at {}: {}", task_.label,
                                    fmt::join(task_.points[point].symbols, ", "), why));
  return out;
}

Case TaskRun::case_of(size_t point) const {
  const WorkloadPoint& at = task_.points[point];
  Case c;
  c.symbols = at.symbols;
  c.threads = static_cast<int32_t>(threads_);
  c.seed = data_seed(task_, at);
  c.inputs = task_.fills;
  c.stepping = task_.stepping;
  c.policy = context_.policy;
  return c;
}

void TaskRun::measure(size_t point, const std::vector<db::Trial>& trials) {
  const Expectation& e = expectations_.at(point);
  Case c = case_of(point);
  c.expected = e.outputs;
  c.tolerance = e.tolerance;
  for (const db::Trial& t : trials) {
    const Kept& k = built_.at(t.key.config);
    c.entries.push_back({k.executable, k.kernel});
  }
  // The default competes with itself: how far its two medians lie apart is what a difference
  // must exceed to count.
  const bool paired = trials[0].key.role == db::Role::kVerify && built_.contains(default_config_);
  if (paired) {
    const Kept& k = built_.at(default_config_);
    c.entries.push_back({k.executable, k.kernel});
  }
  std::vector<EntryResult> results = context_.runner.measure(c);
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
    expect(point, [] { return std::nullopt; });
    c.expected = e.outputs;
    c.tolerance = e.tolerance;
    results = context_.runner.measure(c);
    break;
  }
  const HostReading h = context_.host.read();
  if (paired && results.back().state == EntryState::kOk)
    for (size_t i = 0; i < trials.size(); ++i)
      if (trials[i].key.config == default_config_ && results[i].state == EntryState::kOk)
        same_.push_back(median_of(results.back().samples_ns) / median_of(results[i].samples_ns));
  int64_t failures = 0;
  context_.store.transaction([&] {
    const db::Uuid host = context_.store.put(
        db::HostState{"", h.governor, h.turbo, h.smt, h.affinity, h.load, h.steal});
    for (size_t i = 0; i < trials.size(); ++i) {
      const EntryResult& r = results[i];
      const db::Hash& artifact = built_.at(trials[i].key.config).artifact;
      db::TrialResult out{trials[i].uuid,    context_.owner, state_of(r.state),
                          error_class_of(r), r.message,      std::nullopt};
      if (r.state == EntryState::kOk) {
        const Summary s = summarise(r.samples_ns);
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
      } else {
        ++failures;
      }
      if (context_.store.finish(out) &&
          (r.state == EntryState::kOk || r.state == EntryState::kWrong))
        context_.store.add(db::Correctness{"", artifact, shapes_[point], r.max_error, e.tolerance,
                                           r.state == EntryState::kOk});
    }
  });
  report_.trials += static_cast<int64_t>(trials.size());
  report_.failed += failures;
  context_.meter.count(static_cast<int64_t>(trials.size()), failures);
}

double TaskRun::baseline() {
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
  run({{k, 0, 1e6, std::nullopt}}, db::Role::kBaseline);
  for (const db::TrialOutcome& o : context_.store.outcomes(context_.campaign, workload_))
    if (o.trial.uuid == db::uuid_of(k)) {
      if (!o.median_ns)
        report_.note =
            fmt::format("the default schedule failed: {} {}", o.trial.error_class, o.trial.message);
      report_.default_ns = opening_ns_ = o.median_ns.value_or(0);
    }
  return report_.default_ns;
}

void TaskRun::search(double until_s) {
  const size_t point = representative_;
  SearchOptions options;
  options.seed = context_.seed ^ std::hash<std::string>()(workload_);
  options.threads = static_cast<int>(threads_);
  options.symbols = task_.points[point].symbols;
  Search search(space_, options);
  int64_t round = 0;
  double best = HUGE_VAL;
  const auto tell = [&](const db::TrialOutcome& o) {
    search.tell(candidate(o.trial.key.config), o.median_ns);
    if (o.median_ns) best = std::min(best, *o.median_ns);
  };
  // What earlier processes found out.
  for (const db::TrialOutcome& o : context_.store.outcomes(context_.campaign, workload_))
    if (o.trial.key.role == db::Role::kSearch && db::is_final(o.trial.state)) {
      tell(o);
      round = std::max(round, o.trial.round + 1);
    }
  search.learn();
  int stale = 0;
  // The default's time tells what measuring one candidate takes: those far off are raced.
  const double measuring = case_ms(opening_ns_, context_.policy);
  while (stale < kPatience) {
    const double left_ms = (until_s - context_.meter.consumed_s()) * 1000;
    const double each = ms_per_candidate_ / context_.compile_threads + measuring;
    if (left_ms < 2 * each && round > 0) break;
    const auto count = static_cast<size_t>(
        std::clamp(std::min(kRoundMs, left_ms) / each, 2.0, static_cast<double>(kMostPerRound)));
    const std::vector<Proposal> proposals = search.propose(count);
    if (proposals.empty()) break;
    context_.meter.phase(fmt::format("search, round {}", round));
    std::vector<db::NewTrial> trials;
    std::set<db::Uuid> mine;
    context_.store.transaction([&] {
      for (const Proposal& p : proposals) {
        trials.push_back({key(put_config(p.candidate), point, db::Role::kSearch), round,
                          static_cast<double>(-round), p.predicted_ns});
        mine.insert(db::uuid_of(trials.back().key));
      }
    });
    // The model that proposed is the one whose predictions this round tests.
    const std::vector<uint8_t> proposing = search.model().serialised();
    run(trials, db::Role::kSearch);
    const double before = best;
    for (const db::TrialOutcome& o : context_.store.outcomes(context_.campaign, workload_))
      if (mine.contains(o.trial.uuid)) tell(o);
    const std::optional<double> correlation = search.learn();
    if (!proposing.empty()) {
      db::CostModel m;
      m.campaign = context_.campaign;
      m.workload = workload_;
      m.round = round;
      m.model = proposing;
      m.rank_correlation = correlation;
      context_.store.add(m);
    }
    if (correlation) report_.model_correlation = correlation;
    stale = best < before * (1 - kWorthwhile) ? 0 : stale + 1;
    context_.meter.times(best, report_.default_ns);
    ++round;
  }
}

void TaskRun::cross(size_t top_k, double until_s) {
  struct Found {
    db::Hash config;
    double ns;
  };
  std::vector<Found> found;
  std::set<db::Hash> before;
  for (const db::TrialOutcome& o : context_.store.outcomes(context_.campaign, workload_)) {
    if (o.trial.key.role == db::Role::kCross) before.insert(o.trial.key.config);
    if (o.trial.key.role == db::Role::kSearch && o.median_ns)
      found.push_back({o.trial.key.config, *o.median_ns});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.ns < b.ns; });
  // Configurations that an earlier process began with come first: their trials are half done.
  std::vector<db::Hash> chosen(before.begin(), before.end());
  for (const Found& f : found) {
    // Twice the best at this size is rarely the best elsewhere, and the table has six entries.
    if (chosen.size() >= top_k || f.ns > 2 * found[0].ns) break;
    if (std::find(chosen.begin(), chosen.end(), f.config) == chosen.end())
      chosen.push_back(f.config);
  }
  // What a resumed campaign has to compile again, its cache being lost: for half of the time at
  // most.
  const double compile_s =
      std::max(0.5, (until_s - context_.meter.consumed_s()) / 2) * context_.compile_threads;
  size_t missing = 0;
  std::erase_if(chosen, [&](const db::Hash& config) {
    return !built_.contains(config) && !restore(config) &&
           static_cast<double>(++missing) * ms_per_candidate_ > compile_s * 1000;
  });
  if (std::find(chosen.begin(), chosen.end(), default_config_) == chosen.end())
    chosen.push_back(default_config_);
  // Sizes of most weight first, so that an interrupted evaluation is of use.
  std::vector<size_t> order(task_.points.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return task_.points[a].weight > task_.points[b].weight;
  });
  double spent_s = 0, configs = 0;  // on cases so far, and how many configurations they held
  for (size_t i = 0; i < order.size(); ++i) {
    if (!possible(order[i])) continue;
    // What a small budget drops here: fewer k. At the first size the price is a guess, later it
    // is known; the configurations of most regret so far go.
    const double left = std::max(0.0, until_s - context_.meter.consumed_s());
    // Three configurations at all sizes may be more than there is time for.
    if (left == 0 && configs > 0) break;
    const double each = configs == 0 ? 2e-3 : spent_s / configs;
    const auto affordable = static_cast<size_t>(
        std::max(kLeastCrossed, left / (each * static_cast<double>(order.size() - i))));
    if (chosen.size() > affordable) drop_worst(chosen, affordable);
    if (report_.k == 0) report_.k = chosen.size();
    context_.meter.phase(
        fmt::format("cross-evaluation of {}, size {} of {}", chosen.size(), i + 1, order.size()));
    std::vector<db::NewTrial> trials;
    for (const db::Hash& config : chosen)
      trials.push_back(
          {key(config, order[i], db::Role::kCross), 0, -static_cast<double>(i), std::nullopt});
    const double begin = context_.meter.consumed_s();
    run(trials, db::Role::kCross);
    spent_s += context_.meter.consumed_s() - begin;
    configs += static_cast<double>(chosen.size());
  }
  if (!impossible_.empty())
    context_.meter.note(fmt::format("{}: {} of {} sizes cannot occur: {}", task_.label,
                                    impossible_.size(), task_.points.size(),
                                    impossible_.begin()->second));
}

void TaskRun::drop_worst(std::vector<db::Hash>& configs, size_t keep) {
  const Evidence e = evidence({db::Role::kCross});
  std::map<db::Hash, double> regret;  // not measured yet: 0, in the order of the search
  if (!e.configs.empty()) {
    const auto r = regrets(e.cross);
    for (size_t c = 0; c < e.configs.size(); ++c)
      for (size_t p = 0; p < r[c].size(); ++p) regret[e.configs[c]] += e.cross.weights[p] * r[c][p];
  }
  regret[default_config_] = -1;  // stays: it is what everything is compared with
  std::stable_sort(configs.begin(), configs.end(),
                   [&](const db::Hash& a, const db::Hash& b) { return regret[a] < regret[b]; });
  configs.resize(std::min(configs.size(), keep));
}

TaskRun::Evidence TaskRun::evidence(const std::set<db::Role>& roles) const {
  std::map<db::Hash, std::map<size_t, double>> times;
  for (const db::TrialOutcome& o : context_.store.outcomes(context_.campaign, workload_)) {
    if (!roles.contains(o.trial.key.role) || !db::is_final(o.trial.state)) continue;
    if (o.trial.error_class == kNotItsFault) continue;
    const auto it = point_of_.find(o.trial.key.shape);
    if (it == point_of_.end()) continue;
    // Later outcomes of a configuration at a size replace earlier ones.
    times[o.trial.key.config][it->second] =
        o.trial.state == db::TrialState::kOk && o.median_ns ? *o.median_ns : kUnusable;
  }
  // Where the default was tried. Whoever was dropped on the way lacks the later of these sizes
  // and is out.
  std::vector<size_t> points;
  const auto base = times.find(default_config_);
  for (size_t p = 0; p < task_.points.size(); ++p)
    if (base != times.end() && base->second.contains(p)) points.push_back(p);
  Evidence out;
  out.cross.symbols = task_.workload().contract.symbols;
  for (size_t p : points) {
    out.cross.shapes.push_back(task_.points[p].symbols);
    out.cross.weights.push_back(task_.points[p].weight);
  }
  for (const auto& [config, row] : times) {
    std::vector<double> line;
    for (size_t p : points) {
      const auto it = row.find(p);
      if (it == row.end()) break;
      line.push_back(it->second);
    }
    if (line.size() != points.size() || points.empty()) continue;
    // Wrong at one size is wrong: it is not used at any.
    if (std::any_of(line.begin(), line.end(), [](double x) { return !std::isfinite(x); })) continue;
    out.configs.push_back(config);
    out.cross.times.push_back(std::move(line));
  }
  return out;
}

void TaskRun::verify(double until_s) {
  const Evidence e = evidence({db::Role::kCross});
  if (e.configs.empty()) return;
  std::set<db::Hash> finalists = {default_config_};
  for (const TableEntry& t : choose(e.cross).entries) finalists.insert(e.configs[t.configuration]);
  finalists.insert(e.configs[choose_single(e.cross).entries[0].configuration]);
  // All sizes or none: verified times are used only if they lack no size.
  double ms = 0;
  for (size_t c = 0; c < e.configs.size(); ++c)
    if (finalists.contains(e.configs[c]))
      for (double ns : e.cross.times[c]) ms += case_ms(ns, context_.policy);
  if (context_.meter.consumed_s() + ms / 1000 > until_s) {
    context_.meter.note(fmt::format(
        "{}: no time to verify the winners; the table rests on the cross-evaluation", task_.label));
    return;
  }
  context_.meter.phase(fmt::format("verifying {} finalists", finalists.size()));
  for (size_t p = 0; p < task_.points.size(); ++p) {
    if (!possible(p)) continue;
    std::vector<db::NewTrial> trials;
    for (const db::Hash& config : finalists)
      trials.push_back(
          {key(config, p, db::Role::kVerify), 0, -static_cast<double>(p), std::nullopt});
    run(trials, db::Role::kVerify);
  }
  // The baseline again, at the end: what drifted in between is not a candidate's merit.
  const Evidence last = evidence({db::Role::kVerify});
  for (size_t i = 0; i < last.configs.size(); ++i)
    for (size_t p = 0; p < last.cross.shapes.size(); ++p)
      if (last.configs[i] == default_config_ && opening_ns_ > 0 &&
          last.cross.shapes[p] == task_.points[representative_].symbols)
        report_.drift = last.cross.times[i][p] / opening_ns_ - 1;
  std::vector<double> apart;
  for (double ratio : same_) apart.push_back(std::fabs(ratio - 1));
  if (!apart.empty()) report_.noise = median_of(apart);
}

}  // namespace nimble::tuner
