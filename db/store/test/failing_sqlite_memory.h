// SQLite's allocator, which a test can make fail.
#pragma once

#include <cstdint>

namespace nimble::db {

// Puts an allocator before SQLite's own, once. No connection may be open.
void install_failing_sqlite_memory();

// What SQLite has allocated and not freed, in calls.
int64_t live_sqlite_allocations();

// While it lives, the n-th allocation (1: the next) fails, and so does every later one if
// `and_all_later`.
class FailSqliteMemory {
 public:
  explicit FailSqliteMemory(uint64_t n, bool and_all_later = false);
  ~FailSqliteMemory();
  FailSqliteMemory(const FailSqliteMemory&) = delete;
  FailSqliteMemory& operator=(const FailSqliteMemory&) = delete;
  // Whether the n-th allocation came.
  bool failed() const;
};

}  // namespace nimble::db
