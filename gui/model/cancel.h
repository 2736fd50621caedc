// A question that nobody waits for any more ends early.
#pragma once

#include <atomic>
#include <memory>

#include "vm/base/error.h"

namespace nimble::gui {

class Cancel {
 public:
  Cancel() : asked_(std::make_shared<std::atomic<bool>>(false)) {}
  void ask() const { asked_->store(true, std::memory_order_relaxed); }
  bool asked() const { return asked_->load(std::memory_order_relaxed); }
  bool same_as(const Cancel& other) const { return asked_ == other.asked_; }
  // Throws Error(kCancelled) once asked.
  void check() const {
    if (asked()) throw Error(Status::kCancelled, "query", "is no longer asked for");
  }

 private:
  std::shared_ptr<std::atomic<bool>> asked_;
};

}  // namespace nimble::gui
