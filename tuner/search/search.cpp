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
      model_(options_.seed) {}

void Search::begin_anew(uint64_t seed) {
  options_.seed = seed;
  random_ = Random(seed);
  model_ = CostModel(seed);
  points_.clear();
  point_of_.clear();
  tried_.clear();
  predicted_.clear();
  checked_.clear();
}

void Search::begin_with(CostModel earlier) {
  const size_t columns = features(space_.default_candidate()).size();
  if (earlier.columns() != columns)
    throw Error(Status::kIncompatible, "cost model",
                fmt::format("it is of {} features, points of this space have {}", earlier.columns(),
                            columns),
                "nothing: the search learns anew");
  earlier_ = std::move(earlier);
}

const std::vector<float>& Search::features(const tuned::Candidate& c) {
  auto [it, fresh] = feature_cache_.try_emplace(text_of(c));
  if (fresh) it->second = make_features(c);
  return it->second;
}

std::vector<float> Search::make_features(const tuned::Candidate& c) const {
  std::vector<float> out;
  if (c.vendor.empty()) {
    const kernels::Template* t = kernels::find_template(c.template_name);
    const kernels::Lowered lowered =
        t->lower(space_.workload(), c.config, space_.target(), "candidate");
    const uint32_t leaf = lowered.tails.choose(options_.symbols, options_.threads);
    const int threads = lowered.max_threads > 0 ? std::min(lowered.max_threads, options_.threads)
                                                : options_.threads;
    out = features_of(lowered.functions.at(leaf), options_.symbols, threads, space_.target());
    out.push_back(static_cast<float>(lowered.functions.size()));
  } else {
    out.assign(feature_names().size() + 1, -1);
  }
  for (double x : space_.coordinates(c)) out.push_back(static_cast<float>(x));
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

std::vector<Proposal> Search::propose(size_t count) {
  if (options_.random) return draw(count);
  std::vector<tuned::Candidate> pool;
  std::set<std::string> seen;
  const bool learnt = model_.trained() && points_.size() >= kMinPointsToTrust;
  std::vector<tuned::Candidate> first;
  if (!all_.empty()) {
    for (const tuned::Candidate& c : all_) add(pool, seen, c);
    std::shuffle(pool.begin(), pool.end(), random_);
  } else {
    const auto elites = best(options_.elites);
    for (size_t i = 0; i < options_.pool && !elites.empty(); ++i) {
      // Better elites have more children.
      const size_t rank =
          std::min(elites.size() - 1, static_cast<size_t>(std::abs(std::normal_distribution<double>(
                                          0, static_cast<double>(elites.size()) / 2)(random_))));
      if (i % 4 == 3)
        add(pool, seen, space_.cross(elites[rank].first, elites[i % elites.size()].first, random_));
      else
        add(pool, seen, space_.mutate(elites[rank].first, random_));
    }
    for (size_t i = 0; i < options_.pool && pool.size() < 2 * options_.pool; ++i)
      add(pool, seen, space_.sample(random_));
  }
  const CostModel* ranks = learnt ? &model_ : earlier_ ? &*earlier_ : nullptr;
  std::set<std::string> taken;
  if (!learnt) {
    add(first, taken, space_.default_candidate());
    for (const tuned::Candidate& c : options_.seeds)
      if (space_.contains(c)) add(first, taken, c);
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
    std::vector<Proposal> out;
    for (size_t i = 0; i < first.size() && i < count; ++i) out.push_back({first[i], std::nullopt});
    for (const Proposal& p : out) tried_.insert(text_of(p.candidate));
    return out;
  }

  std::vector<Proposal> out;
  for (size_t i = 0; i < first.size() && i < count; ++i) {
    out.push_back({first[i], std::nullopt});
    tried_.insert(text_of(first[i]));
  }
  std::erase_if(pool, [&](const tuned::Candidate& c) { return taken.contains(text_of(c)); });

  // Lowering the pool is what a proposal costs; most of it is new.
  std::vector<std::pair<const tuned::Candidate*, std::vector<float>*>> missing;
  for (const tuned::Candidate& c : pool)
    if (auto [it, fresh] = feature_cache_.try_emplace(text_of(c)); fresh)
      missing.emplace_back(&c, &it->second);
  std::atomic<size_t> next{0};
  const auto lower = [&] {
    for (size_t i = next++; i < missing.size(); i = next++)
      *missing[i].second = make_features(*missing[i].first);
  };
  std::vector<std::future<void>> others;
  for (int i = 1; i < options_.jobs; ++i) others.push_back(std::async(std::launch::async, lower));
  lower();
  for (auto& f : others) f.get();
  std::vector<std::vector<float>> rows;
  for (const tuned::Candidate& c : pool) rows.push_back(features(c));
  const std::vector<double> predicted = ranks->predict(rows);
  std::vector<std::vector<double>> at;
  for (const tuned::Candidate& c : pool) at.push_back(space_.coordinates(c));
  std::vector<bool> used(pool.size(), false);
  std::vector<size_t> chosen;
  const auto take = [&](size_t i) {
    used[i] = true;
    chosen.push_back(i);
  };
  const size_t wanted = std::min(count - out.size(), pool.size());
  const auto random_share = static_cast<size_t>(options_.epsilon * static_cast<double>(wanted));
  while (chosen.size() < wanted) {
    if (chosen.size() >= wanted - random_share) {
      std::vector<size_t> left;
      for (size_t i = 0; i < pool.size(); ++i)
        if (!used[i]) left.push_back(i);
      take(left[std::uniform_int_distribution<size_t>(0, left.size() - 1)(random_)]);
      continue;
    }
    size_t best = pool.size();
    double least = HUGE_VAL;
    for (size_t i = 0; i < pool.size(); ++i) {
      if (used[i]) continue;
      // 5 % for each point chosen in this round that differs in one knob only.
      double penalty = 1;
      for (size_t j : chosen)
        if (distance(at[i], at[j]) <= 1) penalty += 0.05;
      if (predicted[i] * penalty < least) least = predicted[i] * penalty, best = i;
    }
    if (best == pool.size()) break;  // a model that says no number says nothing
    take(best);
  }
  for (size_t i : chosen) {
    out.push_back({pool[i], predicted[i]});
    const std::string text = text_of(pool[i]);
    tried_.insert(text);
    predicted_[text] = predicted[i];
  }
  return out;
}

void Search::tell(const tuned::Candidate& c, std::optional<double> time_ns) {
  const std::string text = text_of(c);
  tried_.insert(text);
  if (!time_ns) return;
  if (auto it = predicted_.find(text); it != predicted_.end()) {
    checked_.emplace_back(it->second, *time_ns);
    predicted_.erase(it);
  }
  const auto [it, fresh] = point_of_.try_emplace(text, points_.size());
  if (fresh)
    points_.push_back({c, *time_ns, features(c)});
  else
    points_[it->second].time_ns = *time_ns;
}

std::optional<double> Search::learn() {
  std::vector<std::vector<float>> rows;
  std::vector<double> times;
  for (const Point& p : points_) {
    rows.push_back(p.features);
    times.push_back(p.time_ns);
  }
  std::optional<double> correlation;
  if (checked_.size() >= 4) {
    std::vector<double> a, b;
    for (const auto& [predicted, measured] : checked_) {
      a.push_back(predicted);
      b.push_back(measured);
    }
    correlation = rank_correlation(a, b);
  }
  // They tell of the model that is replaced now, and of no later one.
  checked_.clear();
  model_.train(rows, times);
  return correlation;
}

std::vector<std::pair<tuned::Candidate, double>> Search::best(size_t count) const {
  std::vector<const Point*> order;
  for (const Point& p : points_) order.push_back(&p);
  std::stable_sort(order.begin(), order.end(),
                   [](const Point* a, const Point* b) { return a->time_ns < b->time_ns; });
  std::vector<std::pair<tuned::Candidate, double>> out;
  for (const Point* p : order) {
    if (out.size() == count) break;
    out.emplace_back(p->candidate, p->time_ns);
  }
  return out;
}

}  // namespace nimble::tuner
