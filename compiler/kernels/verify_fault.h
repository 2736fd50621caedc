// How the verifier's rules say what is wrong.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace nimble::kir {

struct Fault {
  std::string text;
};

template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Fault{fmt::format(format, std::forward<Args>(args)...)};
}

// Of rules that tell the fault instead; "" if there is none.
inline void sound(const std::string& fault) {
  require(fault.empty(), "{}", fault);
}

}  // namespace nimble::kir
