#include "compiler/kernels/contract_symbols.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "compiler/ir/op.h"

namespace nimble::kernels {

using ir::Attrs;
using ir::Dim;
using ir::Expr;
using ir::Type;

namespace {

// t = a*n + rest with n not in rest: n = floordiv(t - rest, a).
std::optional<Dim> solve(const Dim& compound, const std::string& symbol, const Dim& t) {
  int64_t coefficient = 0;
  Dim rest = 0;
  for (const Dim::Term& term : compound.terms()) {
    Dim product = term.coefficient;
    bool contains = false;
    for (const Dim& atom : term.atoms) {
      product = product * atom;
      contains |= atom.symbols().contains(symbol);
    }
    if (!contains) {
      rest = rest + product;
      continue;
    }
    if (coefficient != 0 || term.atoms.size() != 1 || term.atoms[0].as_symbol() != symbol)
      return std::nullopt;
    coefficient = term.coefficient;
  }
  if (coefficient == 0) return std::nullopt;
  if (coefficient < 0) return ir::floordiv(rest - t, -coefficient);
  return ir::floordiv(t - rest, coefficient);
}

}  // namespace

void ContractSymbols::bind(const std::vector<Type>& parameters, const std::set<int64_t>& scalars) {
  std::set<std::string> bound;
  for (size_t i = 0; i < parameters.size(); ++i)
    for (const Dim& d : parameters[i]->dims)
      if (auto s = d.as_symbol()) bound.insert(*s);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (scalars.contains(static_cast<int64_t>(i))) {
      scalar_symbols_.push_back(next());
      continue;
    }
    for (const Dim& d : parameters[i]->dims) {
      if (auto s = d.as_symbol()) {
        if (!renamed_.contains(*s)) {
          const std::string name = next();
          renamed_.emplace(*s, Dim::symbol(name));
        }
        continue;
      }
      if (whole_.contains(d)) continue;
      // Symbols that nothing binds, and those that a later dim binds: collapsed rows 4*n may
      // stand in front of the n that explains them, and the VM binds in order.
      std::set<std::string> unbound;
      bool readable = true;
      for (const std::string& s : d.symbols()) {
        if (!bound.contains(s)) unbound.insert(s);
        readable &= renamed_.contains(s);
      }
      if (readable) continue;
      const std::string name = next();
      whole_.emplace(d, Dim::symbol(name));
      if (unbound.size() == 1) compound_.emplace_back(d, *unbound.begin());
    }
  }
  // Solving needs the other symbols' final names, which stand now.
  for (const auto& [d, symbol] : compound_) {
    if (renamed_.contains(symbol)) continue;
    if (auto value = solve(d, symbol, whole_.at(d)))
      solved_.emplace(symbol, value->substitute(renamed_));
  }
  for (auto& [symbol, value] : solved_) renamed_.emplace(symbol, value);
}

Dim ContractSymbols::rewrite(const Dim& d) {
  const auto it = whole_.find(d);
  if (it != whole_.end()) return it->second;
  for (const std::string& s : d.symbols()) {
    if (renamed_.contains(s)) continue;
    const std::string name = next();  // nothing binds it: the caller passes it
    renamed_.emplace(s, Dim::symbol(name));
    extra_.emplace_back(Dim::symbol(s), name);
  }
  return d.substitute(renamed_);
}

Type ContractSymbols::rewrite(const Type& t) {
  if (t->kind == ir::TypeKind::kData) return t;
  if (t->kind == ir::TypeKind::kTuple) {
    std::vector<Type> elements;
    for (const Type& e : t->elements) elements.push_back(rewrite(e));
    return ir::tuple_type(std::move(elements));
  }
  std::vector<Dim> dims;
  for (const Dim& d : t->dims) dims.push_back(rewrite(d));
  return ir::tensor_type(std::move(dims), t->dtype);
}

Attrs ContractSymbols::rewrite(const Expr& e, Attrs attrs) {
  const std::vector<std::string_view>& offsets = ir::traits_of(e).offsets;
  for (auto& [name, value] : attrs) {
    const bool plain = std::find(offsets.begin(), offsets.end(), name) == offsets.end();
    if (auto* d = std::get_if<Dim>(&value)) *d = plain ? rewrite(*d) : rewrite_offset(*d);
    if (auto* all = std::get_if<std::vector<Dim>>(&value))
      for (Dim& d : *all) d = plain ? rewrite(d) : rewrite_offset(d);
  }
  return attrs;
}

std::string ContractSymbols::next() {
  names_.push_back(fmt::format("s{}", names_.size()));
  return names_.back();
}

Dim ContractSymbols::rewrite_offset(const Dim& d) {
  const std::set<std::string> symbols = d.symbols();
  if (std::all_of(symbols.begin(), symbols.end(),
                  [&](const std::string& s) { return renamed_.contains(s); }))
    return d.substitute(renamed_);
  auto [it, is_new] = passed_.try_emplace(d);
  if (is_new) {
    offsets_.push_back(next());
    it->second = Dim::symbol(offsets_.back());
    extra_.emplace_back(d, offsets_.back());
  }
  return it->second;
}

}  // namespace nimble::kernels
