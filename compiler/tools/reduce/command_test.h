// A shell command as the test of a reduction.
#pragma once

#include <functional>
#include <string>

namespace nimble::reduce {

struct Verdict {
  int code = 0;  // the exit code; 128 + the signal if one ended it
  bool timed_out = false;
  std::string output;  // stdout and stderr together, at most 4 MiB
};

// Runs `command` in a shell, every {} in it replaced by `path`, quoted (without {}: `path` comes
// last). It is in a process group of its own, which is killed after `seconds` or as soon as
// `interrupted` says so. Error(kIo) if no process can be started.
Verdict run_command(const std::string& command, const std::string& path, double seconds,
                    const std::function<bool()>& interrupted = {});

}  // namespace nimble::reduce
