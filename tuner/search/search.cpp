#include "tuner/search/search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>

#include "tuner/measure/statistics.h"
#include "tuner/search/features.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

constexpr size_t kMinPointsToTrust = 8;
constexpr size_t kMinToCorrelate = 4;

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]) > 1e-9 ? 1 : 0;
  return sum;
}

}  // namespace

Search::Search(const Space& space, SearchOptions options)
    : space_(space),
      all_(space.enumerate(kEnumerateUpTo)),
      options_(std::move(options)),
      random_(options_.seed),
      model_(options_.seed),
      fastest_ns_(options_.shapes.size(), HUGE_VAL),
      checked_(options_.shapes.size()) {
  NIMBLE_CHECK(!options_.shapes.empty(), "a search is at one shape at least");
}

void Search::begin_anew(uint64_t seed) {
  options_.seed = seed;
  random_ = Random(seed);
  model_ = CostModel(seed);
  points_.clear();
  point_of_.clear();
  tried_.clear();
  predicted_.clear();
  fastest_ns_.assign(options_.shapes.size(), HUGE_VAL);
  checked_.assign(options_.shapes.size(), {});
}

void Search::begin_with(CostModel earlier) {
  const size_t columns = features(space_.default_candidate())[0].size();
  if (earlier.columns() != columns)
    throw Error(Status::kIncompatible, "cost model",
                fmt::format("it is of {} features, points of this space have {}", earlier.columns(),
                            columns),
                "nothing: the search learns anew");
  earlier_ = std::move(earlier);
}

const Search::Features& Search::features(const tuned::Candidate& c) {
  const std::string text = text_of(c);
  const auto known = feature_cache_.find(text);
  if (known != feature_cache_.end()) return known->second;
  return feature_cache_.emplace(text, make_features(c)).first->second;
}

Search::Features Search::make_features(const tuned::Candidate& c) const {
  Features out(options_.shapes.size());
  const size_t columns = kernel_columns(space_.target());
  if (c.vendor.empty()) {
    const kernels::Template* t = kernels::find_template(c.template_name);
    const kernels::Lowered lowered =
        t->lower(space_.workload(), c.config, space_.target(), "candidate");
    const int threads = lowered.max_threads > 0 ? std::min(lowered.max_threads, options_.threads)
                                                : options_.threads;
    for (size_t s = 0; s < out.size(); ++s) {
      const std::vector<int64_t>& symbols = options_.shapes[s];
      const uint32_t leaf = lowered.tails.choose(symbols, options_.threads);
      const kir::Function& f = lowered.functions.at(leaf);
      out[s] = features_of(f, symbols, threads, space_.target());
      out[s].push_back(static_cast<float>(lowered.functions.size()));
      if (f.launch) {
        const std::vector<float> launch = launch_features(f, symbols, space_.target());
        out[s].insert(out[s].end(), launch.begin(), launch.end());
      }
      NIMBLE_CHECK(out[s].size() == columns, "{} features of {}, {} are due", out[s].size(), f.name,
                   columns);
    }
  } else {
    // Of a routine nothing is known but that it is none of our schedules.
    for (std::vector<float>& row : out) row.assign(columns, -1);
  }
  for (std::vector<float>& row : out)
    for (double x : space_.coordinates(c)) row.push_back(static_cast<float>(x));
  return out;
}

void Search::add(std::vector<tuned::Candidate>& pool, std::set<std::string>& seen,
                 std::optional<tuned::Candidate> c) const {
  if (!c) return;
  const std::string text = text_of(*c);
  if (tried_.contains(text) || !seen.insert(text).second) return;
  pool.push_back(std::move(*c));
}

// Evenly from all points that were not proposed: each draw is independent of what became of others.
std::vector<Proposal> Search::draw(size_t count) {
  std::vector<tuned::Candidate> pool;
  std::set<std::string> seen;
  add(pool, seen, space_.default_candidate());
  add(pool, seen, space_.vendor_candidate());
  std::vector<tuned::Candidate> all = all_;
  std::shuffle(all.begin(), all.end(), random_);
  for (const tuned::Candidate& c : all) add(pool, seen, c);
  constexpr size_t kDrawsEach = 100;  // before the space is held to be used up
  for (size_t i = 0; all_.empty() && i < kDrawsEach * count && pool.size() < count; ++i)
    add(pool, seen, space_.sample(random_));
  std::vector<Proposal> out;
  for (size_t i = 0; i < pool.size() && i < count; ++i) {
    tried_.insert(text_of(pool[i]));
    out.push_back({std::move(pool[i]), {}});
  }
  return out;
}

std::vector<tuned::Candidate> Search::elites() const {
  std::vector<std::vector<std::pair<tuned::Candidate, double>>> lists;
  for (size_t s = 0; s < options_.shapes.size(); ++s) lists.push_back(best(options_.elites, s));
  std::vector<tuned::Candidate> out;
  std::set<std::string> seen;
  for (size_t rank = 0; rank < options_.elites; ++rank)
    for (const auto& list : lists)
      if (rank < list.size() && out.size() < options_.elites &&
          seen.insert(text_of(list[rank].first)).second)
        out.push_back(list[rank].first);
  return out;
}

std::optional<double> Search::scale(size_t shape) const {
  const auto first = std::find_if(fastest_ns_.begin(), fastest_ns_.end(),
                                  [](double ns) { return std::isfinite(ns); });
  if (first != fastest_ns_.end() && std::isfinite(fastest_ns_[shape]))
    return fastest_ns_[shape] / *first;
  return shape == 0 ? std::optional(1.0) : std::nullopt;
}

std::vector<tuned::Candidate> Search::make_pool() {
  std::vector<tuned::Candidate> pool;
  std::set<std::string> seen;
  if (!all_.empty()) {
    for (const tuned::Candidate& c : all_) add(pool, seen, c);
    std::shuffle(pool.begin(), pool.end(), random_);
    return pool;
  }
  const std::vector<tuned::Candidate> parents = elites();
  for (size_t i = 0; i < options_.pool && !parents.empty(); ++i) {
    // Better ones have more children.
    const size_t rank =
        std::min(parents.size() - 1, static_cast<size_t>(std::abs(std::normal_distribution<double>(
                                         0, static_cast<double>(parents.size()) / 2)(random_))));
    if (i % 4 == 3)
      add(pool, seen, space_.cross(parents[rank], parents[i % parents.size()], random_));
    else
      add(pool, seen, space_.mutate(parents[rank], random_));
  }
  for (size_t i = 0; i < options_.pool && pool.size() < 2 * options_.pool; ++i)
    add(pool, seen, space_.sample(random_));
  return pool;
}

std::vector<Proposal> Search::propose(size_t count) {
  if (options_.random) return draw(count);
  std::vector<tuned::Candidate> pool = make_pool();
  const bool learnt = model_.trained() && points_.size() >= kMinPointsToTrust;
  const CostModel* ranks = learnt ? &model_ : earlier_ ? &*earlier_ : nullptr;
  std::vector<tuned::Candidate> first;
  std::set<std::string> taken;
  if (!learnt) {
    add(first, taken, space_.default_candidate());
    for (const tuned::Candidate& c : options_.seeds)
      if (space_.contains(c)) add(first, taken, c);
    add(first, taken, space_.vendor_candidate());
  }
  if (!ranks) {
    // Nothing to rank by: the default, what was good elsewhere, what is near it, then chance.
    const size_t told = first.size();
    auto near = space_.neighbours(space_.default_candidate());
    std::shuffle(near.begin(), near.end(), random_);
    for (size_t i = 0; i < near.size() && first.size() < told + count / 2; ++i)
      add(first, taken, near[i]);
    std::shuffle(pool.begin(), pool.end(), random_);
    for (const tuned::Candidate& c : pool) add(first, taken, c);
  }
  std::vector<Proposal> out;
  for (size_t i = 0; i < first.size() && i < count; ++i) {
    out.push_back({first[i], {}});
    tried_.insert(text_of(first[i]));
  }
  if (!ranks) return out;
  std::erase_if(pool, [&](const tuned::Candidate& c) { return taken.contains(text_of(c)); });
  for (Proposal& p : choose(pool, count - out.size(), *ranks)) {
    const std::string text = text_of(p.candidate);
    tried_.insert(text);
    predicted_[text] = p.predicted_ns;
    out.push_back(std::move(p));
  }
  return out;
}

std::vector<Proposal> Search::choose(const std::vector<tuned::Candidate>& pool, size_t count,
                                     const CostModel& ranks) {
  // Lowering the pool is what a proposal costs; most of it is new.
  std::vector<const tuned::Candidate*> missing;
  for (const tuned::Candidate& c : pool)
    if (!feature_cache_.contains(text_of(c))) missing.push_back(&c);
  // They are kept once all are made: one that fails leaves no empty ones behind.
  std::vector<Features> made(missing.size());
  std::atomic<size_t> next{0};
  const auto lower = [&] {
    for (size_t i = next++; i < missing.size(); i = next++) made[i] = make_features(*missing[i]);
  };
  std::vector<std::future<void>> others;
  for (int i = 1; i < options_.jobs; ++i) others.push_back(std::async(std::launch::async, lower));
  lower();
  for (auto& f : others) f.get();
  for (size_t i = 0; i < missing.size(); ++i)
    feature_cache_.emplace(text_of(*missing[i]), std::move(made[i]));

  const size_t shapes = options_.shapes.size();
  std::vector<std::vector<double>> predicted, at;  // by shape; by point
  for (size_t s = 0; s < shapes; ++s) {
    std::vector<std::vector<float>> rows;
    for (const tuned::Candidate& c : pool) rows.push_back(features(c)[s]);
    predicted.push_back(ranks.predict(rows));
  }
  for (const tuned::Candidate& c : pool) at.push_back(space_.coordinates(c));
  std::vector<bool> used(pool.size(), false);
  std::vector<size_t> chosen;
  const auto take = [&](size_t i) {
    used[i] = true;
    chosen.push_back(i);
  };
  const size_t wanted = std::min(count, pool.size());
  const auto random_share = static_cast<size_t>(options_.epsilon * static_cast<double>(wanted));
  while (chosen.size() < wanted) {
    if (chosen.size() >= wanted - random_share) {
      std::vector<size_t> left;
      for (size_t i = 0; i < pool.size(); ++i)
        if (!used[i]) left.push_back(i);
      take(left[std::uniform_int_distribution<size_t>(0, left.size() - 1)(random_)]);
      continue;
    }
    const std::vector<double>& here = predicted[chosen.size() % shapes];
    size_t best = pool.size();
    double least = HUGE_VAL;
    for (size_t i = 0; i < pool.size(); ++i) {
      if (used[i]) continue;
      // 5 % for each point chosen in this round that differs in one knob only.
      double penalty = 1;
      for (size_t j : chosen)
        if (distance(at[i], at[j]) <= 1) penalty += 0.05;
      if (here[i] * penalty < least) least = here[i] * penalty, best = i;
    }
    if (best == pool.size()) break;  // a model that says no number says nothing
    take(best);
  }
  std::vector<Proposal> out;
  for (size_t i : chosen) {
    Proposal& p = out.emplace_back();
    p.candidate = pool[i];
    for (size_t s = 0; s < shapes; ++s) {
      const std::optional<double> known = scale(s);
      p.predicted_ns.push_back(known ? std::optional(predicted[s][i] * *known) : std::nullopt);
    }
  }
  return out;
}

void Search::tell(const tuned::Candidate& c, std::optional<double> time_ns, size_t shape) {
  const std::string text = text_of(c);
  tried_.insert(text);
  if (!time_ns) return;
  if (auto it = predicted_.find(text); it != predicted_.end())
    if (std::optional<double>& predicted = it->second.at(shape)) {
      checked_[shape].emplace_back(*predicted, *time_ns);
      predicted.reset();
    }
  auto it = point_of_.find(text);
  if (it == point_of_.end()) {
    points_.push_back({c, std::vector<std::optional<double>>(options_.shapes.size()), features(c)});
    it = point_of_.emplace(text, points_.size() - 1).first;
  }
  points_[it->second].times_ns.at(shape) = *time_ns;
}

std::optional<double> Search::learn() {
  double correlations = 0;
  size_t correlated = 0;
  for (std::vector<std::pair<double, double>>& checked : checked_) {
    if (checked.size() >= kMinToCorrelate) {
      std::vector<double> a, b;
      for (const auto& [predicted, measured] : checked) {
        a.push_back(predicted);
        b.push_back(measured);
      }
      correlations += rank_correlation(a, b);
      ++correlated;
    }
    // They tell of the model that is replaced now, and of no later one.
    checked.clear();
  }
  fastest_ns_.assign(options_.shapes.size(), HUGE_VAL);
  for (const Point& p : points_)
    for (size_t s = 0; s < p.times_ns.size(); ++s)
      fastest_ns_[s] = std::min(fastest_ns_[s], p.times_ns[s].value_or(HUGE_VAL));
  std::vector<std::vector<float>> rows;
  std::vector<double> times;
  for (const Point& p : points_)
    for (size_t s = 0; s < p.times_ns.size(); ++s)
      if (p.times_ns[s]) {
        rows.push_back(p.features[s]);
        times.push_back(*p.times_ns[s] / scale(s).value());
      }
  model_.train(rows, times);
  if (correlated == 0) return std::nullopt;
  return correlations / static_cast<double>(correlated);
}

std::vector<std::pair<tuned::Candidate, double>> Search::best(size_t count, size_t shape) const {
  std::vector<const Point*> order;
  for (const Point& p : points_)
    if (p.times_ns.at(shape)) order.push_back(&p);
  std::stable_sort(order.begin(), order.end(), [&](const Point* a, const Point* b) {
    return *a->times_ns[shape] < *b->times_ns[shape];
  });
  std::vector<std::pair<tuned::Candidate, double>> out;
  for (const Point* p : order) {
    if (out.size() == count) break;
    out.emplace_back(p->candidate, *p->times_ns[shape]);
  }
  return out;
}

}  // namespace nimble::tuner
