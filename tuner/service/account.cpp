#include "tuner/service/account.h"

#include <algorithm>

namespace nimble::tuner {

const char* name_of(Activity a) {
  constexpr const char* kNames[] = {"import", "compile", "time",  "prepare",
                                    "check",  "learn",   "store", "other"};
  static_assert(std::size(kNames) == kActivities);
  return kNames[static_cast<size_t>(a)];
}

void Account::change(Activity a) {
  const Clock::time_point now = Clock::now();
  seconds_[static_cast<size_t>(now_)] += std::chrono::duration<double>(now - since_).count();
  since_ = now;
  now_ = a;
}

void Account::move(Activity from, Activity to, double seconds) {
  change(now_);
  double& source = seconds_[static_cast<size_t>(from)];
  const double moved = std::clamp(seconds, 0.0, source);
  source -= moved;
  seconds_[static_cast<size_t>(to)] += moved;
}

double Account::seconds(Activity a) {
  change(now_);
  return seconds_[static_cast<size_t>(a)];
}

double Account::total() {
  change(now_);
  double sum = 0;
  for (double s : seconds_) sum += s;
  return sum;
}

}  // namespace nimble::tuner
