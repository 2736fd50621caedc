// What a test's database has, of which there is little.
#pragma once

#include "db/store/pages.h"

namespace nimble::db {

inline std::vector<Campaign> all_campaigns(Store& db) {
  return db.campaigns(kListedAtOnce, {});
}

inline std::vector<Workload> all_workloads(Store& db) {
  return db.workloads(kListedAtOnce, "");
}

inline std::vector<DispatchTable> all_tables(Store& db) {
  std::vector<DispatchTable> all;
  each_table(db, [&](DispatchTable t) { all.push_back(std::move(t)); });
  return all;
}

}  // namespace nimble::db
