// A worker's signs of life, told by a thread of its own while the worker measures.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "tuner/fleet/fleet_worker.h"

namespace nimble::tuner {

// Says every so often that the worker lives, and keeps its lease. A database that does not answer
// is no reason to stop: nobody can tell whether the lease goes on, and the report will.
class Pulse {
 public:
  Pulse(const FleetWorkerOptions& options, const db::Uuid& worker, const std::atomic<bool>& cancel);
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  // Set once the worker is told to stop or has lost its lease: ends a measurement.
  std::atomic<bool> halt{false};

  // Under which name it goes from now on; while it holds no job. When it returns, nothing more is
  // told of the one before.
  void become(const db::Uuid& worker);
  void hold(const db::Job& job);
  // Whether it was held to the end.
  bool let_go();

 private:
  void run();

  const FleetWorkerOptions& options_;
  const std::atomic<bool>& cancel_;
  std::mutex mutex_;
  std::condition_variable wake_, told_;
  db::Uuid worker_;
  std::optional<db::Uuid> job_;
  int64_t attempt_ = 0;
  bool lost_ = false, end_ = false, telling_ = false;
  std::chrono::steady_clock::time_point due_ = std::chrono::steady_clock::now();
  std::thread thread_;
};

}  // namespace nimble::tuner
