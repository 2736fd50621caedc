// A thread that lasts as long as its owner and runs what others ask of it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace nimble::tuner {

// Starts the children that are to die with their parent (PR_SET_PDEATHSIG): to Linux the parent is
// the thread that started a child, not its process. One that a passing thread started would be
// killed when that thread ends.
class LastingThread {
 public:
  LastingThread();
  ~LastingThread();
  LastingThread(const LastingThread&) = delete;
  LastingThread& operator=(const LastingThread&) = delete;

  // Runs `task`, which throws nothing, on the thread and returns when it is done. From one thread
  // at a time.
  void run(const std::function<void()>& task);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* task_ = nullptr;  // that waits or runs
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace nimble::tuner
