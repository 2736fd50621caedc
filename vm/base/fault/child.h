// The child of a fork, for tests.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace nimble {

// A child may allocate though other threads did at the time of the fork: glibc sees to that, the
// allocator of GCC 12's AddressSanitizer keeps the locks that they held.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAllocatorSurvivesFork = false;
#else
inline constexpr bool kAllocatorSurvivesFork = true;
#endif
// A child may start threads: ThreadSanitizer then meets a thread's number of the parent's again,
// and ends the child ("dup thread with used id").
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadsStartAfterFork = false;
#else
inline constexpr bool kThreadsStartAfterFork = true;
#endif
inline constexpr const char* kWhyNot = "the sanitizer's allocator does not survive a fork";

// Runs `body`, which returns whether all was well, in a child of this process, and tells how that
// went: "" if all was. Nothing of the test framework or of the process's end runs in the child. One
// that hangs is ended by a signal after a minute.
template <typename Body>
std::string in_child(Body body) {
  const pid_t child = ::fork();
  if (child < 0) return "no fork";
  if (child == 0) {
    ::alarm(60);
    bool well = false;
    try {
      well = body();
    } catch (...) {
    }
    ::_exit(well ? 0 : 1);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return "the child is lost";
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "found a fault: " + std::to_string(WEXITSTATUS(status));
}

}  // namespace nimble
