// A question that nobody waits for any more ends early.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "vm/base/error.h"

namespace nimble::gui {

class Cancel {
 public:
  Cancel() : state_(std::make_shared<State>()) {}
  void ask() const {
    state_->asked.store(true, std::memory_order_relaxed);
    const std::lock_guard lock(state_->mutex);
    if (state_->stop) state_->stop();
  }
  bool asked() const { return state_->asked.load(std::memory_order_relaxed); }
  bool same_as(const Cancel& other) const { return state_ == other.state_; }
  // Throws Error(kCancelled) once asked.
  void check() const {
    if (asked()) throw Error(Status::kCancelled, "query", "is no longer asked for");
  }
  // What ends the work that is under way now, called by the thread that asks; nothing: there is
  // none. Once this returns, what was set before is not called any more.
  void set_stop(std::function<void()> stop) const {
    const std::lock_guard lock(state_->mutex);
    state_->stop = std::move(stop);
  }

 private:
  struct State {
    std::atomic<bool> asked{false};
    std::mutex mutex;
    std::function<void()> stop;
  };
  std::shared_ptr<State> state_;
};

}  // namespace nimble::gui
