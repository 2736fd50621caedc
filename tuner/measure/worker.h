// The worker process: answers the requests of protocol.h on a pair of pipes.
#pragma once

#include <string>

namespace nimble::tuner {

struct WorkerOptions {
  int in = 0, out = 1;       // descriptors of the pipes
  int progress = -1;         // descriptor of the shared page; -1: none
  int64_t parent = 0;        // process that the worker dies with; 0: any
  int64_t memory_limit = 0;  // bytes of address space; 0: none
  std::string cpus;          // to be bound to, "0-3,8"; empty: all that it may use
  bool gpu = false;          // candidates are of this machine's GPU
};

// Serves until the parent closes its pipe. Returns the exit code: 0, or 1 after a broken stream.
int serve(const WorkerOptions& options);

}  // namespace nimble::tuner
