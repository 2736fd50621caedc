// The tables that are exchanged between databases, and what must hold of one row beyond SQL's own
// constraints. Import validates what comes in by it, `check` what is there.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "db/store/sql.h"

namespace nimble::db {

struct TableSpec {
  const char* name;
  const char* columns;  // all of them, in the order that `validate` expects
  const char* key;      // primary key: a row whose key is there is the same row
  // Throws Error(kCorrupt) if the row at hand is not what nimble writes: a key that is not the
  // hash of its content, text in another than its canonical form, a sample that is no time.
  void (*validate)(const Statement& row);
};

// In an order in which every row's foreign keys come before it.
std::span<const TableSpec> exchanged_tables();

// Statements of invariants over several rows: each query returns the offenders, `meaning` says
// what is wrong with them.
struct Invariant {
  const char* meaning;
  const char* query;  // one column: a key to name the offender by
};
std::span<const Invariant> invariants();

// And one that SQL cannot state: tells `say` of samples that are no times, or among which the
// median of their measurement is not.
void find_wrong_samples(Connection& db, const std::function<void(const std::string&)>& say);

}  // namespace nimble::db
