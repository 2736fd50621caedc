// Dim: the one kind of dimension expression in nimble.
//
// A Dim is an integer polynomial over atoms. Atoms are named symbols and the non-polynomial
// functions floordiv, mod, min, max and broadcast of Dims. It serves tensor types, shape
// functions, memory planning, kernel index expressions and dispatch alike, so that a fact
// proved in one place holds in all of them.
//
// Representation: a sum of terms `coefficient * atom1^e1 * atom2^e2 …`, terms sorted by their
// monomials, no zero coefficients. Nodes are interned: equal polynomials are the same node, so
// equality is a pointer comparison. Operators build the canonical form directly, with overflow
// of the 64-bit coefficients reported as nimble::Error (Status::kInvalidArgument).
//
// Symbols are identified by name and scoped to the function in which they occur: a caller
// renames (substitutes) a callee's symbols, so `n` in two functions never meet.
// A Dim of a tensor type is never negative; a kernel index may be, on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "vm/executable/dim_program.h"

namespace nimble::ir {

struct DimNode;   // interned, lives for the whole process
struct PolyTerm;  // one term of a node (dim_node.h)

class Dim {
 public:
  Dim() : Dim(int64_t{0}) {}
  Dim(int64_t value);  // NOLINT: implicit on purpose, integers are dims
  Dim(int value) : Dim(static_cast<int64_t>(value)) {}  // NOLINT
  static Dim symbol(std::string_view name);
  // The wildcard `?` of a type annotation (the paper's Any). Not a value: inference replaces
  // each one by a fresh symbol; arithmetic on it is an internal error.
  static Dim any();

  bool is_any() const;
  std::optional<int64_t> as_constant() const;
  bool is_constant(int64_t v) const { return as_constant() == v; }
  std::optional<std::string> as_symbol() const;  // a bare symbol with coefficient 1
  std::set<std::string> symbols() const;         // all that occur, also inside atoms

  // Replaces symbols; those without an entry stay. Result is canonical again.
  Dim substitute(const std::map<std::string, Dim>& replacement) const;
  // Value under an assignment; nimble::Error if a symbol is missing, on overflow or division by 0.
  int64_t evaluate(const std::function<std::optional<int64_t>(const std::string&)>& value) const;

  // Polynomial view, for passes that need it: {coefficient, {atom, …}} with repeated atoms.
  // An atom is itself a Dim (a symbol or one function application).
  struct Term {
    int64_t coefficient;
    std::vector<Dim> atoms;
  };
  std::vector<Term> terms() const;
  // If this is an application of a function atom: its kind and operands.
  enum class Function { kFloorDiv, kMod, kMin, kMax, kBroadcast };
  struct Application {
    Function function;
    std::vector<Dim> operands;
  };
  std::optional<Application> as_application() const;

  // The inverse of parse_dim: "n", "2*n + 1", "floordiv(n, 8)", "max(n, m)", "?".
  std::string str() const;
  // Compiles to a program over the symbols of `order` (argument i is order[i]).
  exec::DimProgram to_program(const std::vector<std::string>& order) const;

  friend bool operator==(const Dim& a, const Dim& b) { return a.node_ == b.node_; }
  // A total order that is stable within a process, for containers.
  friend bool operator<(const Dim& a, const Dim& b);
  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  size_t hash() const { return std::hash<const void*>()(node_); }
  const DimNode* node() const { return node_; }

 private:
  explicit Dim(const DimNode* n) : node_(n) {}
  friend struct DimInterner;
  const DimNode* node_;
};

// Floor division and its modulus (the result has the divisor's sign); divisor 0 is an Error.
// Simplified where the prover-free rules allow: floordiv(8*k + 3, 8) = k, mod(8*k + 3, 8) = 3.
Dim floordiv(const Dim& a, const Dim& b);
Dim mod(const Dim& a, const Dim& b);
Dim ceildiv(const Dim& a, const Dim& b);  // floordiv(a + b - 1, b)
Dim min(const Dim& a, const Dim& b);
Dim max(const Dim& a, const Dim& b);
// numpy broadcasting of two extents: broadcast(1, d) = d, broadcast(d, d) = d.
Dim broadcast(const Dim& a, const Dim& b);

// Parses the text of Dim::str(); nimble::Error with `place` on bad text.
Dim parse_dim(std::string_view text, const std::string& place = "dim");

// What is known about symbols in one function: a range and a divisor each.
// Unlisted symbols of tensor types are >= 0.
struct SymbolFacts {
  int64_t low = 0;
  int64_t high = INT64_MAX;
  int64_t divisor = 1;  // the symbol is a multiple of this
};
enum class Proof { kYes, kNo, kUnknown };

// Sound but incomplete prover: interval and divisibility reasoning over polynomials.
class DimContext {
 public:
  void set(const std::string& symbol, SymbolFacts facts) { facts_[symbol] = facts; }
  SymbolFacts facts(const std::string& symbol) const;
  // Also learns equalities: `assume_equal(n, m)` makes both provably equal from then on.
  void assume_equal(const Dim& a, const Dim& b);
  // And inequalities: a <= b.
  void assume_less_equal(const Dim& a, const Dim& b);
  Proof equal(const Dim& a, const Dim& b) const;
  Proof less(const Dim& a, const Dim& b) const;        // a < b
  Proof less_equal(const Dim& a, const Dim& b) const;  // a <= b
  Proof divisible(const Dim& a, int64_t by) const;
  struct Interval {
    int64_t low, high;  // INT64_MIN / INT64_MAX: unbounded
  };
  Interval range(const Dim& a) const;
  // Simplifies with the facts: min, max, mod, floordiv, broadcast that a range or divisor
  // decides; known equalities are rewritten to their representative.
  Dim simplify(const Dim& a) const;

 private:
  bool nonnegative(const Dim& d, int depth) const;
  bool nonnegative_by_atom(const Dim& d, const PolyTerm& t, const DimNode* atom, int depth) const;
  int64_t term_divisor(const PolyTerm& t) const;
  Dim simplify_atom(const DimNode* n) const;
  Dim recombine(const Dim& a) const;

  std::map<std::string, SymbolFacts> facts_;
  std::map<std::string, Dim> equal_to_;  // solved: no value mentions a key
  std::vector<Dim> nonnegative_;         // assumed >= 0
};

// Returns a symbol name that no earlier call returned and no source text can contain: "?1", ….
std::string fresh_symbol();

}  // namespace nimble::ir

template <>
struct std::hash<nimble::ir::Dim> {
  size_t operator()(const nimble::ir::Dim& d) const { return d.hash(); }
};
