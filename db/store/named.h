// Enumerators and the names that stand for them in the database. Private to db/store.
#pragma once

#include <optional>
#include <string_view>

#include "vm/base/error.h"

namespace nimble::db {

template <class E>
struct Named {
  E value;
  std::string_view name;
};

template <class E, size_t N>
std::string_view name_in(const Named<E> (&names)[N], E value) {
  for (const Named<E>& row : names)
    if (row.value == value) return row.name;
  NIMBLE_UNREACHABLE("enumerator {}", static_cast<int>(value));
}

template <class E, size_t N>
std::optional<E> value_in(const Named<E> (&names)[N], std::string_view name) {
  for (const Named<E>& row : names)
    if (row.name == name) return row.value;
  return std::nullopt;
}

}  // namespace nimble::db
