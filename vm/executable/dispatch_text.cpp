#include "vm/executable/dispatch_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "vm/base/error.h"

namespace nimble::exec {
namespace {

using Kind = DispatchFeature::Kind;

std::optional<uint32_t> symbol_at(std::string_view name, std::span<const std::string> symbols) {
  const auto it = std::find(symbols.begin(), symbols.end(), name);
  if (it == symbols.end()) return std::nullopt;
  return static_cast<uint32_t>(it - symbols.begin());
}

}  // namespace

std::string text_of(const DispatchFeature& f, std::span<const std::string> symbols) {
  switch (f.kind) {
    case Kind::kSymbol:
      return symbols[f.a];
    case Kind::kCeilDiv:
      return fmt::format("ceildiv({},{})", symbols[f.a], f.t);
    case Kind::kMod:
      return fmt::format("mod({},{})", symbols[f.a], f.t);
    case Kind::kProduct:
      return fmt::format("{}*{}", symbols[f.a], symbols[f.b]);
    case Kind::kThreads:
      return "threads";
  }
  NIMBLE_UNREACHABLE("feature {}", static_cast<int>(f.kind));
}

std::optional<DispatchFeature> feature_from_text(std::string_view text,
                                                 std::span<const std::string> symbols) {
  DispatchFeature f;
  if (const auto a = symbol_at(text, symbols)) {
    f.a = *a;
    return f;
  }
  if (text == "threads") {
    f.kind = Kind::kThreads;
    return f;
  }
  if (const size_t star = text.find('*'); star != std::string_view::npos) {
    const auto a = symbol_at(text.substr(0, star), symbols);
    const auto b = symbol_at(text.substr(star + 1), symbols);
    if (!a || !b) return std::nullopt;
    f.kind = Kind::kProduct;
    f.a = *a;
    f.b = *b;
    return f;
  }
  for (const auto& [kind, name] : {std::pair(Kind::kCeilDiv, std::string_view("ceildiv(")),
                                   std::pair(Kind::kMod, std::string_view("mod("))}) {
    if (!text.starts_with(name) || !text.ends_with(")")) continue;
    const std::string_view inner = text.substr(name.size(), text.size() - name.size() - 1);
    const size_t comma = inner.find(',');
    if (comma == std::string_view::npos) return std::nullopt;
    const auto a = symbol_at(inner.substr(0, comma), symbols);
    const char* last = inner.data() + inner.size();
    const auto [end, error] = std::from_chars(inner.data() + comma + 1, last, f.t);
    if (!a || error != std::errc() || end != last || f.t < 1) return std::nullopt;
    f.kind = kind;
    f.a = *a;
    return f;
  }
  return std::nullopt;
}

}  // namespace nimble::exec
