// How a program opens a database that somebody has made: a slip in its name makes no other one.
#pragma once

#include <memory>
#include <string>

#include "db/store/store.h"

namespace nimble::db {

// Both throw as Store::open; kNotFound where there is no such database.
inline std::unique_ptr<Store> open_to_read(const std::string& place) {
  OpenOptions options;
  options.create = false;
  options.read_only = true;
  return Store::open(place, options);
}
inline std::unique_ptr<Store> open_to_write(const std::string& place) {
  OpenOptions options;
  options.create = false;
  return Store::open(place, options);
}

}  // namespace nimble::db
