#include "db/store/test/failing_sqlite_memory.h"

#include <sqlite3.h>

#include "vm/base/error.h"

namespace nimble::db {
namespace {

sqlite3_mem_methods under;
int64_t live = 0;
uint64_t fail_in = 0;  // allocations until one fails; 0: none does
bool fail_later = false, has_failed = false;

bool fails() {
  if (fail_in == 0) return false;
  if (fail_in > 1) {
    --fail_in;
    return false;
  }
  if (!fail_later) fail_in = 0;
  has_failed = true;
  return true;
}

void* allocate(int bytes) {
  void* memory = fails() ? nullptr : under.xMalloc(bytes);
  live += memory != nullptr;
  return memory;
}
void release(void* memory) {
  live -= memory != nullptr;
  under.xFree(memory);
}
void* resize(void* memory, int bytes) {
  return fails() ? nullptr : under.xRealloc(memory, bytes);
}

void check(int code) {
  NIMBLE_CHECK(code == SQLITE_OK, "SQLite says {}", code);
}

}  // namespace

void install_failing_sqlite_memory() {
  if (under.xMalloc) return;
  check(sqlite3_shutdown());
  check(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &under));
  sqlite3_mem_methods ours = under;
  ours.xMalloc = allocate;
  ours.xFree = release;
  ours.xRealloc = resize;
  check(sqlite3_config(SQLITE_CONFIG_MALLOC, &ours));
  check(sqlite3_initialize());
}

int64_t live_sqlite_allocations() {
  return live;
}

FailSqliteMemory::FailSqliteMemory(uint64_t n, bool and_all_later) {
  fail_in = n;
  fail_later = and_all_later;
  has_failed = false;
}
FailSqliteMemory::~FailSqliteMemory() {
  fail_in = 0;
}
bool FailSqliteMemory::failed() const {
  return has_failed;
}

}  // namespace nimble::db
