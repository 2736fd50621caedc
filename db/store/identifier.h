// Identifiers as people type them: the first characters of a UUID or a hash stand for the whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "db/store/store.h"
#include "vm/base/error.h"

namespace nimble::db {

// Fewer characters name nothing: they would soon name several.
inline constexpr size_t kShortestPrefix = 4;

// The one of `found`, identifiers that begin with `prefix`, that it names: itself in full, or the
// only one. `what` they are ("campaign"); `how` they are listed. Errors: kNotFound,
// kInvalidArgument (too short; several, of which it says which).
std::string the_one(const std::vector<std::string>& found, std::string_view prefix,
                    std::string_view what, std::string_view how);

// The record whose key begins so; `how` such records are listed. Errors as the_one().
std::string the_one(Store& store, Kind kind, const std::string& prefix, std::string_view how);

// The one of `rows` whose identifier, `key` of it, begins with `prefix`. Errors as the_one().
template <typename Rows, typename Key>
auto find_by_prefix(const Rows& rows, const std::string& prefix, Key key, std::string_view what,
                    std::string_view how) {
  std::vector<std::string> found;
  for (const auto& r : rows)
    if (std::string(key(r)).starts_with(prefix)) found.push_back(key(r));
  const std::string id = the_one(found, prefix, what, how);
  for (const auto& r : rows)
    if (key(r) == id) return r;
  NIMBLE_UNREACHABLE("the identifier is one of the rows'");
}

}  // namespace nimble::db
