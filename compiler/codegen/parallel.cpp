#include "compiler/codegen/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace nimble::codegen {

void run_parallel(size_t count, int threads,
                  const std::function<std::function<void(size_t)>()>& worker) {
  std::vector<std::exception_ptr> failures(count);
  std::atomic<size_t> next{0};
  const auto run = [&] {
    std::function<void(size_t)> work;
    for (size_t i; (i = next.fetch_add(1)) < count;) {
      try {
        if (!work) work = worker();
        work(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  try {
    for (size_t i = 1; i < std::min<size_t>(static_cast<size_t>(std::max(threads, 1)), count); ++i)
      others.emplace_back(run);
  } catch (const std::system_error&) {  // no more threads to be had: those that run do it all
  }
  run();
  for (std::thread& t : others) t.join();
  for (const std::exception_ptr& e : failures)
    if (e) std::rethrow_exception(e);
}

}  // namespace nimble::codegen
