// Independent pieces of work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace nimble::codegen {

// Calls work(0) … work(count - 1), begun in this order, on up to `threads` threads, fewer where no
// more are to be had. `worker` is asked once on each thread for the `work` that it then does. All
// are done before the failure of the least one is thrown.
void run_parallel(size_t count, int threads,
                  const std::function<std::function<void(size_t)>()>& worker);

}  // namespace nimble::codegen
