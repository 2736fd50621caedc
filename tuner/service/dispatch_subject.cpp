#include "tuner/service/dispatch_subject.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "compiler/tuned/overlay.h"
#include "compiler/tuned/tuned.h"
#include "tuner/measure/statistics.h"
#include "vm/base/error.h"
#include "vm/executable/dispatch_json.h"

namespace nimble::tuner {
namespace {

// The first look at all candidates: those that are far behind are out after two samples.
constexpr int32_t kScreened = 4, kScreenedLeast = 2;
constexpr double kScreenRace = 1.3;
// Of the others so many run again; half of the samples choose. Of what is fast there are more
// samples, since a disturbance is long beside it.
constexpr size_t kFinalists = 6;
constexpr double kLeastSamples = 8, kMostSamples = 64;
constexpr double kSamplingNs = 5e8;  // of each configuration
// How often the first look runs each candidate: to compare its result, to warm up, to time it.
constexpr double kRunsOfLook = 2 + kScreenedLeast;
constexpr double kGuessedFlopsPerNs = 30;  // of a thread, before anything was timed
constexpr int64_t kLongestCase = 60'000'000'000;

Policy screening(Policy p) {
  p.min_samples = p.race_samples = kScreenedLeast;
  p.max_samples = kScreened;
  p.race_factor = kScreenRace;
  p.case_ns = kLongestCase;
  return p;
}

// Of configurations that take about so long.
Policy side_by_side(Policy p, double ns) {
  const double sample_ns = std::max(ns, static_cast<double>(p.batch_ns));
  const double half = std::clamp(kSamplingNs / sample_ns, kLeastSamples, kMostSamples) / 2;
  p.min_samples = p.max_samples = 2 * static_cast<int32_t>(half);
  p.race_factor = HUGE_VAL;
  p.ci_target = 0;
  p.case_ns = kLongestCase;
  return p;
}

// The median of every other sample: those that choose, or those that tell.
double half_median(const std::vector<double>& samples, size_t first) {
  std::vector<double> half;
  for (size_t i = first; i < samples.size(); i += 2) half.push_back(samples[i]);
  return half.empty() ? HUGE_VAL : median_of(half);
}

}  // namespace

DispatchSubject::DispatchSubject(CampaignContext& context, const TuningTask& task, int64_t threads,
                                 const std::string& policy_class, WorkloadRegret& out)
    : context_(context),
      task_(task),
      records_(context.store, task, context.target, threads, context.policy),
      cache_(nullptr, ""),
      builder_(context, records_, cache_),
      expectations_(context, records_, builder_, cache_),
      out_(out) {
  records_.leave_out_vendor(context.backend);
  out_.workload = records_.workload();
  out_.label = task.label;
  out_.threads = threads;
  out_.symbols = task.workload().contract.symbols;
  out_.drawn = task.points.size();
  find_table(policy_class);
}

void DispatchSubject::begin(const DispatchReportOptions& o) {
  look_ns_ = o.look_s * 1e9;
  ns_per_flop_ = 1 / (kGuessedFlopsPerNs * static_cast<double>(records_.threads()));
  search_.trials = o.search_trials;
  search_.seed = o.shapes.seed;
  const std::vector<db::Result> results = known_results();
  std::set<db::Hash> seen;
  for (const db::Result& r : results) seen.insert(r.shape);
  // What a file says of other shapes, or of one once more, does not count.
  std::set<std::vector<int64_t>> asked;
  for (const WorkloadPoint& p : task_.points) asked.insert(p.symbols);
  std::erase_if(out_.shapes, [&](const ShapeRegret& s) { return asked.erase(s.symbols) == 0; });
  std::map<std::vector<int64_t>, bool> done;  // by symbols: whether it was searched, too
  for (const ShapeRegret& s : out_.shapes) done[s.symbols] = s.unsearched.has_value();
  out_.known = out_.failed = 0;
  std::vector<size_t> order;
  for (size_t p = 0; p < task_.points.size(); ++p)
    if (seen.contains(records_.shape(p)))
      ++out_.known;
    else
      order.push_back(p);
  std::mt19937_64 random(o.shapes.seed);
  std::shuffle(order.begin(), order.end(), random);
  for (size_t i = 0; i < order.size(); ++i) {
    const auto it = done.find(task_.points[order[i]].symbols);
    if (it == done.end()) left_.push_back(order[i]);
    if (i < o.searches && (it == done.end() || !it->second)) searches_.push_back(order[i]);
  }
  choose_candidates(results, o.campaign.top_k);
  if (order.empty() && out_.shapes.empty())
    out_.note = "the database has times at every shape that was drawn";
}

std::string DispatchSubject::label() const {
  return fmt::format("{}, threads: {}", out_.label, out_.threads);
}

void DispatchSubject::abandon(const std::string& why) {
  out_.note = why;
  left_.clear();
  searches_.clear();
}

void DispatchSubject::measure() {
  const bool fresh = !has_shapes();
  std::vector<size_t>& from = fresh ? searches_ : left_;
  const size_t point = from.back();
  from.pop_back();
  if (!built_) build();
  expectations_.prepare({point});
  if (fresh) {
    if (!search(point)) searches_.push_back(point);
  } else {
    std::optional<ShapeRegret> found;
    if (expectations_.possible(point)) found = compare(point, those_for(point));
    if (found)
      out_.shapes.push_back(std::move(*found));
    else
      ++out_.failed;
  }
  expectations_.release_memory();
}

// What a compiler of this toolchain would take: a table that it may use, of just this class, and
// the overrides that are laid over it.
void DispatchSubject::find_table(const std::string& policy_class) {
  const db::LookupResult found = context_.store.lookup(
      {tuned::workload_record(task_.workload(), context_.target, records_.threads()),
       *context_.store.hardware(context_.hardware),
       tuned::toolchain_record(context_.target),
       tuned::template_versions(),
       {policy_class}});
  if (found.outcome == db::LookupOutcome::kHardMismatch)
    context_.meter.note(fmt::format("{}: {}", label(), found.reason));
  tree_ = exec::DispatchTree::single(0);
  if (found.table && found.table->policy_class == policy_class) {
    table_ = found.table;
    out_.table = table_->uuid;
    tree_ = exec::tree_from_json(table_->tree, out_.symbols);
    const std::string fault = tree_.verify(static_cast<uint32_t>(out_.symbols.size()),
                                           static_cast<uint32_t>(table_->entries.size()));
    if (!fault.empty())
      throw Error(Status::kCorrupt, "dispatch table " + table_->uuid, fault,
                  "tune the workload again");
    for (const db::DispatchEntry& e : table_->entries) leaves_.push_back(e.config);
  } else {
    leaves_.push_back(records_.default_config());
  }
  std::vector<tuned::Layer> layers;
  for (const db::Override& o : found.overrides) {
    // The compiler passes over one that it cannot use, too.
    try {
      tuned::Layer layer = tuned::layer_of(o, out_.symbols);
      if (!can_be_generated(records_.candidate(o.config))) continue;
      layer.leaf = static_cast<uint32_t>(leaves_.size());
      layers.push_back(std::move(layer));
    } catch (const Error& e) {
      context_.meter.note(fmt::format("{}: {}", label(), e.what()));
      continue;
    }
    leaves_.push_back(o.config);
    out_.overrides.push_back(o.uuid);
  }
  if (!layers.empty()) tree_ = tuned::lay_over(layers, tree_);
}

bool DispatchSubject::can_be_generated(const tuned::Candidate& c) const {
  if (!c.vendor.empty()) return true;
  const kernels::Template* t = kernels::find_template(c.template_name);
  return t && t->serves(task_.workload(), context_.target) &&
         t->valid(task_.workload(), c.config, context_.target);
}

std::vector<db::Result> DispatchSubject::known_results() const {
  db::ResultQuery q{records_.workload(), context_.hardware, records_.policy()};
  q.codegen_version = tuned::toolchain_record().codegen_version;
  return context_.store.results(q);
}

// The table's and the default; then by what they lose at the shapes at which they were compared,
// and those that only the search has seen by their times there.
void DispatchSubject::choose_candidates(const std::vector<db::Result>& results, size_t top_k) {
  std::map<db::Hash, double> best;  // by shape
  for (const db::Result& r : results) {
    const auto [it, fresh] = best.emplace(r.shape, r.median_ns);
    if (!fresh) it->second = std::min(it->second, r.median_ns);
  }
  struct Known {
    double sum = 0;
    std::set<db::Hash> shapes;
  };
  std::map<db::Hash, Known> known;  // by configuration
  size_t most = 1;
  for (const db::Result& r : results) {
    Known& k = known[r.config];
    if (!k.shapes.insert(r.shape).second) continue;
    k.sum += std::log(r.median_ns / best.at(r.shape));
    most = std::max(most, k.shapes.size());
  }
  std::vector<std::pair<std::pair<bool, double>, db::Hash>> order;
  for (const auto& [config, k] : known)
    order.push_back(
        {{2 * k.shapes.size() < most, k.sum / static_cast<double>(k.shapes.size())}, config});
  std::sort(order.begin(), order.end());
  const auto add = [&](const db::Hash& config) {
    if (std::find(candidates_.begin(), candidates_.end(), config) == candidates_.end())
      candidates_.push_back(config);
  };
  add(records_.default_config());
  for (const db::Hash& config : leaves_) {
    add(config);
    pool_.insert(config);
  }
  out_.pool = pool_.size();
  if (const std::optional<tuned::Candidate> vendor = records_.space().vendor_candidate())
    add(records_.put(*vendor));
  for (size_t i = 0; i < std::min(top_k, order.size()); ++i) add(order[i].second);
}

void DispatchSubject::build() {
  const std::map<db::Hash, std::string> failed = build(candidates_);
  built_ = true;
  for (const auto& [config, why] : failed)
    if (pool_.contains(config) || config == records_.default_config())
      throw Error(Status::kIncompatible, task_.label,
                  fmt::format("configuration {} of its table cannot be compiled: {}",
                              config.substr(0, 12), why),
                  "tune the workload again");
  std::erase_if(candidates_, [&](const db::Hash& c) { return failed.contains(c); });
  out_.candidates = candidates_.size();
}

std::map<db::Hash, std::string> DispatchSubject::build(const std::vector<db::Hash>& configs) {
  std::map<db::Hash, std::string> failed = builder_.build(configs, {});
  if (context_.cancelled()) throw Error(Status::kCancelled, "report", "interrupted");
  return failed;
}

std::vector<EntryResult> DispatchSubject::run(const Builder& builder, size_t point,
                                              const std::vector<db::Hash>& configs,
                                              const Policy& policy) {
  Case c = records_.case_at(point, policy);
  c.expected = expectations_.at(point).outputs;
  c.tolerance = expectations_.at(point).tolerance;
  for (const db::Hash& config : configs) {
    const Builder::Kept& k = builder.at(config);
    c.entries.push_back({k.executable, k.kernel});
  }
  const Account::Span timing(context_.account, Activity::kTime);
  return context_.runner.measure(c);
}

// Those that there is time for at a shape. They begin with the default and the table's.
std::vector<db::Hash> DispatchSubject::those_for(size_t point) const {
  const double run_ns = std::max(static_cast<double>(task_.points[point].flops) * ns_per_flop_,
                                 static_cast<double>(context_.policy.batch_ns));
  const size_t least = pool_.size() + 1 + kFinalists;
  const double fit = std::max(look_ns_ / (kRunsOfLook * run_ns), static_cast<double>(least));
  return {candidates_.begin(),
          candidates_.begin() +
              static_cast<ptrdiff_t>(std::min(fit, static_cast<double>(candidates_.size())))};
}

// A search from nothing at a shape that was measured; then the best of it beside the fastest that
// was known and the table's.
bool DispatchSubject::search(size_t point) {
  const auto before =
      std::find_if(out_.shapes.begin(), out_.shapes.end(),
                   [&](const ShapeRegret& s) { return s.symbols == task_.points[point].symbols; });
  if (before == out_.shapes.end() || !expectations_.possible(point)) return true;
  FreshSearchOptions how = search_;
  how.symbols = before->symbols;
  how.seed += point;
  bool over = false;
  const std::optional<std::vector<db::Hash>> found = fresh_search(
      context_, records_, how,
      [&](const Builder& builder, const std::vector<db::Hash>& configs) {
        return run(builder, point, configs, screening(context_.policy));
      },
      [&] { return over = context_.cancelled() || context_.meter.left_s() <= 0; });
  if (!found) return !over;
  std::vector<db::Hash> candidates(pool_.begin(), pool_.end());
  const auto add = [&](const db::Hash& c) {
    if (std::find(candidates.begin(), candidates.end(), c) == candidates.end())
      candidates.push_back(c);
  };
  add(records_.default_config());
  if (context_.store.config(before->oracle)) add(before->oracle);  // a file may say anything
  for (const db::Hash& c : *found) add(c);
  const std::map<db::Hash, std::string> failed = build(candidates);
  std::erase_if(candidates, [&](const db::Hash& c) { return failed.contains(c); });
  std::optional<ShapeRegret> after = compare(point, candidates);
  if (!after) return true;
  after->unsearched = before->regret();
  *before = std::move(*after);
  return true;
}

// Nothing where something was wrong.
std::optional<ShapeRegret> DispatchSubject::compare(size_t point,
                                                    const std::vector<db::Hash>& candidates) {
  const std::vector<int64_t>& symbols = task_.points[point].symbols;
  const uint32_t leaf = tree_.choose(symbols, static_cast<int32_t>(records_.threads()));
  const db::Hash chosen = leaves_[leaf];
  // Finalists.
  std::vector<std::pair<double, db::Hash>> fast;
  const std::vector<EntryResult> first =
      run(builder_, point, candidates, screening(context_.policy));
  for (size_t i = 0; i < candidates.size(); ++i)
    if (first[i].state == EntryState::kOk && !first[i].samples_ns.empty())
      fast.emplace_back(*std::min_element(first[i].samples_ns.begin(), first[i].samples_ns.end()),
                        candidates[i]);
  if (fast.empty()) return std::nullopt;
  std::sort(fast.begin(), fast.end());
  std::vector<db::Hash> finalists(pool_.begin(), pool_.end());
  const auto add = [&](const db::Hash& c) {
    if (std::find(finalists.begin(), finalists.end(), c) == finalists.end()) finalists.push_back(c);
  };
  for (size_t i = 0; i < std::min(kFinalists, fast.size()); ++i) add(fast[i].second);
  add(records_.default_config());
  std::vector<db::Hash> twice = finalists;
  twice.push_back(records_.default_config());
  const std::vector<EntryResult> second =
      run(builder_, point, twice, side_by_side(context_.policy, fast[0].first));

  ShapeRegret out;
  out.symbols = symbols;
  out.candidates = fast.size();
  out.chosen = chosen;
  double pool = HUGE_VAL, oracle = HUGE_VAL, own = HUGE_VAL;  // by the samples that choose
  for (size_t i = 0; i < twice.size(); ++i) {
    const EntryResult& r = second[i];
    const bool usable = r.state == EntryState::kOk && r.samples_ns.size() >= 2;
    if (!usable && (twice[i] == chosen || twice[i] == records_.default_config()))
      return std::nullopt;
    if (!usable) continue;
    const double choosing = half_median(r.samples_ns, 0), telling = half_median(r.samples_ns, 1);
    // The default's second run: it loses to itself what the luckier of two is ahead.
    if (i == finalists.size()) {
      out.noise = choosing < own ? out.default_ns / telling - 1 : 0;
      continue;
    }
    if (twice[i] == records_.default_config()) {
      out.default_ns = telling;
      own = choosing;
    }
    if (twice[i] == chosen) out.chosen_ns = telling;
    if (pool_.contains(twice[i]) && choosing < pool) {
      pool = choosing;
      out.pool = twice[i];
      out.pool_ns = telling;
    }
    if (choosing < oracle) {
      oracle = choosing;
      out.oracle = twice[i];
      out.oracle_ns = telling;
    }
  }
  // Of what an override sends somewhere, no table says anything.
  if (table_ && leaf < table_->entries.size()) out.foretold = table_->entries[leaf].regret;
  if (task_.points[point].flops > 0)
    ns_per_flop_ = out.default_ns / static_cast<double>(task_.points[point].flops);
  return out;
}

}  // namespace nimble::tuner
