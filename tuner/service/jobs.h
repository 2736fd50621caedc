// Independent pieces of work on a few threads.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nimble::tuner {

// Runs every job, in order of begin, the calling thread among the `threads`; returns when all are
// done. A job that throws stops those that have not begun; the first exception is thrown on.
inline void run_jobs(const std::vector<std::function<void()>>& jobs, size_t threads) {
  std::atomic<size_t> next{0};
  std::exception_ptr fault;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) {
      try {
        jobs[i]();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!fault) fault = std::current_exception();
        next = jobs.size();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < threads && i < jobs.size(); ++i) others.emplace_back(work);
    work();
  }
  if (fault) std::rethrow_exception(fault);
}

}  // namespace nimble::tuner
