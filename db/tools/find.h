// What a user names by the beginning of its identifier.
#pragma once

#include "db/store/identifier.h"
#include "db/store/store.h"
#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble::db {

// The one key among those of `rows` that begins so, as the_one() says. `what` they are and the
// `remedy` are for the message.
template <class Rows, class Key>
std::string key_by_prefix(const Rows& rows, const std::string& prefix, Key key, const char* what,
                          const char* remedy) {
  std::vector<std::string> found;
  for (const auto& row : rows)
    if (std::string k = key(row); k.starts_with(prefix)) found.push_back(std::move(k));
  return the_one(found, prefix, what, remedy);
}

inline Uuid find_campaign(Store& store, const std::string& prefix) {
  return key_by_prefix(
      store.campaigns(), prefix, [](const Campaign& c) { return c.uuid; }, "campaign",
      "list them: nimble db campaigns");
}

// By its hash, the hash's beginning, or part of its text.
inline Workload find_workload(Store& store, const std::string& name) {
  std::vector<Workload> meant;
  for (Workload& w : store.workloads())
    if (key_of(w).starts_with(name) || w.canonical.find(name) != std::string::npos)
      meant.push_back(std::move(w));
  if (meant.size() == 1) return meant[0];
  throw Error(meant.empty() ? Status::kNotFound : Status::kInvalidArgument, printable(name),
              meant.empty() ? "no workload is named so" : "names several workloads",
              "list them: nimble db show workloads");
}

}  // namespace nimble::db
