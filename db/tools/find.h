// What a user names by the beginning of its identifier.
#pragma once

#include "db/store/identifier.h"
#include "db/store/pages.h"
#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble::db {

inline Uuid find_campaign(Store& store, const std::string& prefix) {
  return the_one(store, Kind::kCampaign, prefix, "list them: nimble db campaigns");
}

// By its hash, the hash's beginning, or part of its text.
inline bool is_named(const Workload& w, const std::string& name) {
  return key_of(w).starts_with(name) || w.canonical.find(name) != std::string::npos;
}

inline Workload find_workload(Store& store, const std::string& name) {
  std::vector<Workload> meant;
  each_workload(store, [&](Workload w) {
    if (is_named(w, name)) meant.push_back(std::move(w));
  });
  if (meant.size() == 1) return meant[0];
  throw Error(meant.empty() ? Status::kNotFound : Status::kInvalidArgument, printable(name),
              meant.empty() ? "no workload is named so" : "names several workloads",
              "list them: nimble db show workloads");
}

// Its text; the hash of one that is not there.
inline std::string name_of_workload(Store& store, const Hash& hash) {
  const std::optional<Workload> found = store.workload(hash);
  return found ? found->canonical : hash;
}

}  // namespace nimble::db
