// A thread of the system's that may fail to start, and that the child of a fork can forget.
// std::thread throws where the first happens, ends the process where the thrown exception meets a
// thread that runs already, and can do nothing about the second.
#pragma once

#include <pthread.h>

namespace nimble::rt {

class Thread {
 public:
  Thread() = default;
  ~Thread() { join(); }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  // Runs body(context), which must not throw. False if the system gives no thread: at a limit of
  // threads (pids.max, RLIMIT_NPROC) or of memory. Only without a thread.
  bool start(void (*body)(void* context), void* context) noexcept;
  // Waits until it has ended; without a thread nothing happens.
  void join() noexcept;
  // For the child of a fork, in which the thread is not, and may not be waited for either.
  void forget() noexcept { started_ = false; }
  bool started() const noexcept { return started_; }

 private:
  static void* run(void* self);

  pthread_t handle_{};
  void (*body_)(void*) = nullptr;
  void* context_ = nullptr;
  bool started_ = false;
};

}  // namespace nimble::rt
