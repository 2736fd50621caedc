// How long a task would still take if it were let to come to its end: a campaign may have tried all
// that there is before its budget is spent, and then tells the time until that.
//
// What a candidate and a case cost by themselves is known from the default schedule, roughly: it
// leaves out the database, messages, learning, and how many samples a noisy machine needs. So what
// was done so far sets the pace: this task's rounds, as soon as there are some, else those of the
// tasks before it.
#include <algorithm>
#include <numeric>

#include "tuner/service/task_run.h"

namespace nimble::tuner {
namespace {

// Of the schedules found, those within twice the best time, before a search tells.
constexpr double kUsable = 0.6;
constexpr double kFinalists = 3;
// A size by itself: its expected result, test data, a transaction.
constexpr double kSizeSeconds = 0.01;
constexpr int64_t kEnoughToJudge = 4;

}  // namespace

double TaskRun::schedules() const {
  if (schedules_ < 0) {
    const size_t known = records_.space().enumerate(kEnumerateUpTo).size();
    schedules_ =
        known > 0 ? static_cast<double>(known) : static_cast<double>(records_.space().size());
  }
  return schedules_;
}

double TaskRun::case_s(size_t point, double configs) const {
  double ns = report_.default_ns > 0 && opening_ns_ == 0 ? report_.default_ns : opening_ns_;
  if (const auto known = times_.find(point);
      known != times_.end() && known->second.default_ns() > 0)
    ns = known->second.default_ns();
  else
    ns *= work_of(task_.points[point]) / work_of(task_.points[first_point()]);
  return kSizeSeconds + configs * case_ms(ns, context_.policy) / 1e3;
}

std::vector<double> TaskRun::candidate_at_s() const {
  std::vector<double> out;
  for (const Representative& r : searched_at_) out.push_back(case_s(r.point, 1) - kSizeSeconds);
  out[0] += builder_.ms_per_candidate() / context_.compile_threads / 1e3;
  return out;
}

double TaskRun::candidate_s() const {
  const std::vector<double> at = candidate_at_s();
  return std::accumulate(at.begin(), at.end(), 0.0);
}

double TaskRun::default_cost() const {
  return report_.calls * report_.default_ns * mean_work(task_) /
         work_of(task_.points[first_point()]);
}

double TaskRun::search_left_s() const {
  if (exhausted_) return 0;
  const double most = std::min(schedules(), static_cast<double>(context_.search_end.max_trials));
  const double left = std::max(0.0, most - static_cast<double>(search_ ? search_->tried() : 0));
  if (searched_ >= kEnoughToJudge) return left * searching_.spent / static_cast<double>(searched_);
  return left * candidate_s() * context_.searching.ratio();
}

double TaskRun::finish_left_s(size_t top_k) const {
  // What an earlier slice made is made again only if something better is found.
  if (report_.table && crossing_ == 0 && verifying_ == 0) return 0;
  double sum = 0;
  if (verifying_ == 0) {
    const double usable =
        std::min(static_cast<double>(top_k), (usable_ > 0 ? usable_ : kUsable) * schedules());
    const double configs = crossing_ > 0 ? static_cast<double>(crossing_) : std::max(1.0, usable);
    const size_t done = crossing_ > 0 ? order_.size() - sizes_left_ : 0;
    for (size_t i = done; i < order_.size(); ++i) sum += case_s(order_[i], configs);
  }
  // Finalists and the default, that one twice, at the sizes that no choice saw, too.
  double all = 0;
  for (size_t p = 0; p < task_.points.size(); ++p)
    all += case_s(p, std::min(schedules(), kFinalists) + 2);
  const auto sizes = static_cast<double>(task_.points.size());
  sum += all * (verifying_ > 0 ? static_cast<double>(verifying_) / sizes : 1);
  return sum * context_.finishing.ratio();
}

double TaskRun::work_left_s(size_t top_k) const {
  if (report_.default_ns <= 0) return 0;
  return search_left_s() + finish_left_s(top_k);
}

}  // namespace nimble::tuner
