#include "tuner/measure/lasting_thread.h"

namespace nimble::tuner {

LastingThread::LastingThread() : thread_([this] { serve(); }) {}

LastingThread::~LastingThread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LastingThread::run(const std::function<void()>& task) {
  std::unique_lock lock(mutex_);
  task_ = &task;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !task_; });
}

void LastingThread::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return task_ || ends_; });
    if (!task_) return;
    const std::function<void()>& task = *task_;
    lock.unlock();
    task();
    lock.lock();
    task_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace nimble::tuner
