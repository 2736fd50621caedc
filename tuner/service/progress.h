// What a campaign shows while it runs, and the record of the budget that it has used.
//
// A thread of its own writes the time consumed to the database every second and a half, so that a
// campaign that is killed continues with what is left, and waits for the disk to have that and all
// that was written before, so that the campaign's own thread need not. And it draws: one live line
// on a terminal, a line every few seconds elsewhere. It does no other work, so measurements hardly
// notice it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "db/store/store.h"

namespace nimble::tuner {

struct StatusLine {
  std::string task;                            // "3/10 packed_matmul k=384 n=384, 2 threads"
  std::string phase;                           // "search round 4"
  int64_t trials = 0, failed = 0, pruned = 0;  // pruned: of the failed
  double best_us = 0, default_us = 0;
  double done = 0;  // share of the campaign, 0…1
};

class ProgressMeter {
 public:
  struct Options {
    std::string database;
    db::Uuid campaign;                    // empty: nothing is recorded
    double budget_s = 0, consumed_s = 0;  // consumed by earlier processes
    bool show = true;
    // When this process began to spend: importing the model counts.
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  };
  explicit ProgressMeter(Options options);
  ~ProgressMeter();
  ProgressMeter(const ProgressMeter&) = delete;
  ProgressMeter& operator=(const ProgressMeter&) = delete;

  double consumed_s() const;
  double left_s() const { return options_.budget_s - consumed_s(); }
  // The campaign will end in so many seconds, if that is before the end of its budget.
  void outlook(double seconds);
  // What is shown.
  double told_left_s() const;
  // How far what was told after a third and two thirds of this process's time was from what came,
  // relative to that; negative: too little was told. Empty if it ended before anything was told:
  // as long as nobody knows whether there is enough to do, the budget's end is a bound.
  std::vector<double> told_errors() const;
  void task(const std::string& text, double done);
  void phase(const std::string& text);
  // `pruned`: of those that failed, those that were not measured for what their code takes.
  void count(int64_t trials, int64_t failed, int64_t pruned = 0);
  void times(double best_ns, double default_ns);
  // Prints a line that stays.
  void note(const std::string& text);

 private:
  void run();
  std::string line() const;

  Options options_;
  const bool terminal_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  double ends_s_ = std::numeric_limits<double>::infinity();  // by outlook()
  std::vector<std::pair<double, double>> told_;              // when, how much
  StatusLine now_;
  std::thread thread_;
};

// "1 m 05 s"
std::string duration_text(double seconds);

}  // namespace nimble::tuner
