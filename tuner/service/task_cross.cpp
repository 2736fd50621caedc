// The cross-evaluation: the best of the search at every size.
#include <algorithm>
#include <cmath>

#include "tuner/service/task_run.h"

namespace nimble::tuner {
namespace {

constexpr double kLeastCrossed = 3;  // configurations, the default among them
// What the cross-evaluation leaves time to verify at each size: finalists, and the default against
// itself.
constexpr double kLikelyFinalists = 5;
// Of the time that is left at most, while the price is a guess; and the sizes that are evaluated
// first, whatever they cost.
constexpr double kMostVerifying = 0.5;
constexpr size_t kLeastSizes = 2;

double distance(const WorkloadPoint& a, const WorkloadPoint& b) {
  double sum = 0;
  for (size_t i = 0; i < a.symbols.size(); ++i)
    sum += std::fabs(std::log2(static_cast<double>(a.symbols[i] + 1)) -
                     std::log2(static_cast<double>(b.symbols[i] + 1)));
  return sum;
}

}  // namespace

std::vector<size_t> spread_order(const TuningTask& task,
                                 const std::vector<Representative>& searched_at) {
  const std::vector<WorkloadPoint>& points = task.points;
  std::vector<size_t> left, order;
  // What was found at the search's own sizes is known to be of use there.
  for (const Representative& r : searched_at) order.push_back(r.point);
  double mass = 0;
  for (size_t p = 0; p < points.size(); ++p) {
    if (points[p].held_out || std::ranges::find(order, p) != order.end()) continue;
    left.push_back(p);
    mass += points[p].weight;
  }
  const double even = 1 / static_cast<double>(std::max<size_t>(1, left.size()));
  while (!left.empty()) {
    const auto use = [&](size_t p) {
      double away = order.empty() ? 1 : HUGE_VAL;
      for (const size_t before : order) away = std::min(away, distance(points[p], points[before]));
      return (even + (mass > 0 ? points[p].weight / mass : 0)) * away;
    };
    const auto next = std::max_element(left.begin(), left.end(),
                                       [&](size_t a, size_t b) { return use(a) < use(b); });
    order.push_back(*next);
    left.erase(next);
  }
  return order;
}

void TaskRun::cross(size_t top_k, double until_s) {
  until_s_ = until_s;
  crossed_ = true;
  // By its time over the best of its size, at the size where it does best.
  std::map<db::Hash, double> over_best;
  std::set<db::Hash> before, wrong;
  for (const db::TrialOutcome& o : outcomes()) {
    if (o.trial.key.role == db::Role::kCross && o.median_ns) before.insert(o.trial.key.config);
    const std::optional<size_t> s = search_place(o);
    if (!s || !db::is_final(o.trial.state)) continue;
    if (const std::optional<double> ns = ns_of(o)) {
      const double ratio = *ns / found_.best_ns.at(*s);
      const auto [at, fresh] = over_best.emplace(o.trial.key.config, ratio);
      if (!fresh) at->second = std::min(at->second, ratio);
    } else if (o.trial.error_class != kNotItsFault) {
      wrong.insert(o.trial.key.config);  // at one size: it is used at none
    }
  }
  std::vector<std::pair<double, db::Hash>> found;
  for (const auto& [config, ratio] : over_best)
    if (!wrong.contains(config)) found.emplace_back(ratio, config);
  std::sort(found.begin(), found.end());
  // Configurations that an earlier process began with come first: their trials are half done.
  std::vector<db::Hash> chosen(before.begin(), before.end());
  for (const auto& [ratio, config] : found) {
    // Twice the best at these sizes is rarely the best elsewhere, and the table has six at most.
    if (chosen.size() >= top_k || ratio > 2) break;
    if (std::find(chosen.begin(), chosen.end(), config) == chosen.end()) chosen.push_back(config);
  }
  // What a resumed campaign has to compile again, its cache being lost: for half of the time at
  // most.
  const double compile_s =
      std::max(0.5, (until_s - context_.meter.consumed_s()) / 2) * context_.compile_threads;
  size_t missing = 0;
  std::erase_if(chosen, [&](const db::Hash& config) {
    return !builder_.available(config) &&
           static_cast<double>(++missing) * builder_.ms_per_candidate() > compile_s * 1000;
  });
  if (std::find(chosen.begin(), chosen.end(), records_.default_config()) == chosen.end())
    chosen.push_back(records_.default_config());
  // The vendor's routine, whatever the search thinks of it: who wins, and where, is reported.
  if (const std::optional<tuned::Candidate> vendor = records_.space().vendor_candidate()) {
    vendor_ = records_.put(*vendor);
    if (over_best.contains(*vendor_) && !wrong.contains(*vendor_) &&
        std::find(chosen.begin(), chosen.end(), *vendor_) == chosen.end())
      chosen.push_back(*vendor_);
  }
  if (found.size() > 0)
    usable_ = static_cast<double>(chosen.size()) / static_cast<double>(found.size());
  finishing_ = {};
  size_t sizes = 0;
  const auto pace = [&] { return (sizes < kLeastSizes ? context_.finishing : finishing_).ratio(); };
  // What a small budget drops here: fewer k, the configurations of most regret so far going first;
  // then sizes. What was evaluated wants to be verified, or it cannot become active.
  double verifying = 0;  // the sizes so far, in s before the pace
  for (size_t i = 0; i < order_.size(); ++i) {
    const double all = until_s - context_.meter.consumed_s(), left = all / pace();
    const double least = case_s(order_[i], kLeastCrossed);
    const double verify_this = case_s(order_[i], kLikelyFinalists);
    if (sizes >= kLeastSizes && least + verifying + verify_this > left) continue;
    double fixed = verifying, per_config = 0;  // of all sizes that are due
    for (size_t j = i; j < order_.size(); ++j) {
      fixed += case_s(order_[j], 0) + case_s(order_[j], kLikelyFinalists);
      per_config += case_s(order_[j], 1) - case_s(order_[j], 0);
    }
    const auto affordable =
        static_cast<size_t>(std::max(kLeastCrossed, (left - fixed) / per_config));
    until_s_ = until_s - std::min(kMostVerifying * all, (verifying + verify_this) * pace());
    crossing_ = chosen.size();
    sizes_left_ = order_.size() - i;
    progressed();
    const double begin = context_.meter.consumed_s();
    expectations_.prepare({order_.begin() + static_cast<long>(i), order_.end()});
    if (!expectations_.possible(order_[i])) continue;
    if (chosen.size() > affordable) drop_worst(chosen, affordable);
    if (report_.k == 0) report_.k = chosen.size();
    context_.meter.phase(
        fmt::format("cross-evaluation of {}, size {} of {}", chosen.size(), i + 1, order_.size()));
    const auto trials = [&] {
      std::vector<db::NewTrial> out;
      for (const db::Hash& config : chosen)
        out.push_back(
            {key(config, order_[i], db::Role::kCross), 0, -static_cast<double>(i), std::nullopt});
      return out;
    };
    run(trials, db::Role::kCross);
    ++sizes;
    verifying += verify_this;
    const double spent = context_.meter.consumed_s() - begin;
    for (Pace* p : {&finishing_, &context_.finishing}) {
      p->expected += case_s(order_[i], static_cast<double>(chosen.size()));
      p->spent += spent;
    }
  }
  crossing_ = 0;
  const std::map<size_t, std::string>& impossible = expectations_.impossible();
  if (!impossible.empty())
    context_.meter.note(fmt::format("{}: {} of {} sizes cannot occur: {}", task_.label,
                                    impossible.size(), order_.size(), impossible.begin()->second));
}

void TaskRun::drop_worst(std::vector<db::Hash>& configs, size_t keep) {
  const TableEvidence e = evidence({db::Role::kCross});
  std::map<db::Hash, double> regret;  // not measured yet: 0, in the order of the search
  if (!e.configs.empty()) {
    const auto r = regrets(e.cross);
    for (size_t c = 0; c < e.configs.size(); ++c)
      for (size_t p = 0; p < r[c].size(); ++p) regret[e.configs[c]] += e.cross.weights[p] * r[c][p];
  }
  regret[records_.default_config()] = -1;  // stays: it is what everything is compared with
  if (vendor_) regret[*vendor_] = -0.5;    // and so does the other side
  std::stable_sort(configs.begin(), configs.end(),
                   [&](const db::Hash& a, const db::Hash& b) { return regret[a] < regret[b]; });
  configs.resize(std::min(configs.size(), keep));
}

}  // namespace nimble::tuner
