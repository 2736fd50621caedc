// Where a campaign's wall time goes: what --budget promises is checked by it.
//
// The campaign's own thread says what it is at; what other threads do meanwhile is counted under
// that, too. So the parts sum to the wall time, and compiling on two threads counts once.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace nimble::tuner {

enum class Activity {
  kImport,   // reading, typing and lowering the model
  kCompile,  // candidates; expected results that are computed beside it are free
  kTime,     // the worker checks and times candidates
  kPrepare,  // the worker makes test data; messages
  kCheck,    // expected results
  kLearn,    // proposals, features, cost model
  kStore,    // the database and the cache of work
  kOther,
};
inline constexpr size_t kActivities = static_cast<size_t>(Activity::kOther) + 1;
const char* name_of(Activity a);

class Account {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Account(Clock::time_point start = Clock::now()) : since_(start) {}

  // While it lives, time counts for its activity; then for what was before.
  class Span {
   public:
    Span(Account& account, Activity a) : account_(account), before_(account.now_) {
      account.change(a);
    }
    ~Span() { account_.change(before_); }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Account& account_;
    Activity before_;
  };
  // So much of what counted as the first was the second.
  void move(Activity from, Activity to, double seconds);
  // Up to now.
  double seconds(Activity a);
  double total();

 private:
  void change(Activity a);
  std::array<double, kActivities> seconds_{};
  Clock::time_point since_;
  Activity now_ = Activity::kOther;
};

}  // namespace nimble::tuner
