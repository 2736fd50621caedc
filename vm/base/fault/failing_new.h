// The test program's operator new, which can count its calls on a thread or make one of them fail.
#pragma once

#include <cstdint>

namespace nimble {

// Counts the calls of this thread while it lives.
class CountNew {
 public:
  CountNew();
  uint64_t count() const;

 private:
  uint64_t before_;
};

// What all threads have allocated and not freed, in calls.
int64_t live_news();

// While it lives, the n-th call on this thread (1: the next) throws std::bad_alloc, and so does
// every later one if `and_all_later`.
class FailNew {
 public:
  explicit FailNew(uint64_t n, bool and_all_later = false);
  ~FailNew();
  FailNew(const FailNew&) = delete;
  FailNew& operator=(const FailNew&) = delete;
  // Whether the n-th call came.
  bool failed() const;
};

}  // namespace nimble
