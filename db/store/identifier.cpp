#include "db/store/identifier.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "vm/base/printable.h"

namespace nimble::db {

std::string the_one(const std::vector<std::string>& found, std::string_view prefix,
                    std::string_view what, std::string_view how) {
  for (const std::string& id : found)
    if (id == prefix) return id;
  if (prefix.size() < kShortestPrefix)
    throw Error(Status::kInvalidArgument, printable(prefix),
                fmt::format("is too short for the beginning of a {}", what),
                fmt::format("give {} characters or more; {}", kShortestPrefix, how));
  if (found.empty())
    throw Error(Status::kNotFound, printable(prefix), fmt::format("no {} begins so", what),
                std::string(how));
  if (found.size() > 1) {
    constexpr size_t kMost = 4;
    const std::vector<std::string> some(found.begin(),
                                        found.begin() + std::min(kMost, found.size()));
    throw Error(Status::kInvalidArgument, printable(prefix),
                fmt::format("several {}s begin so: {}{}", what, fmt::join(some, ", "),
                            found.size() > kMost ? ", …" : ""),
                "give more of the identifier");
  }
  return found[0];
}

std::string the_one(Store& store, Kind kind, const std::string& prefix, std::string_view how) {
  return the_one(store.find(kind, prefix), prefix, name_of(kind), how);
}

}  // namespace nimble::db
