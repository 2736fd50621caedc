// The representation behind Dim: interned nodes. Private to dim*.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/dim.h"
#include "vm/base/error.h"

namespace nimble::ir {

// A vector of trivially copyable elements with room for N of them in place: polynomials are
// short, and kernel templates build them by the thousand.
template <class T, size_t N>
class SmallVector {
 public:
  SmallVector() = default;
  SmallVector(const SmallVector&) = delete;
  SmallVector& operator=(const SmallVector&) = delete;
  void push_back(const T& v) {
    if (size_ < N) {
      inline_[size_++] = v;
      return;
    }
    if (size_ == N && heap_.empty()) heap_.assign(inline_.begin(), inline_.end());
    heap_.push_back(v);
    ++size_;
  }
  void clear() {
    size_ = 0;
    heap_.clear();
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return heap_.empty() ? inline_.data() : heap_.data(); }
  T* end() { return begin() + size_; }
  const T* begin() const { return heap_.empty() ? inline_.data() : heap_.data(); }
  const T* end() const { return begin() + size_; }
  T& operator[](size_t i) { return begin()[i]; }
  const T& operator[](size_t i) const { return begin()[i]; }
  T& back() { return begin()[size_ - 1]; }

 private:
  std::array<T, N> inline_;
  std::vector<T> heap_;  // all elements once there are more than N
  size_t size_ = 0;
};

// A product of atoms, sorted, repeated for powers; interned. The empty product is nullptr.
struct Monomial {
  uint64_t hash = 0;
  size_t parts = 0;
  std::vector<const DimNode*> atoms;
};

struct PolyTerm {
  int64_t coefficient;
  const Monomial* monomial;  // nullptr: the constant term
};
using Terms = SmallVector<PolyTerm, 8>;

struct DimNode {
  enum class Kind : uint8_t {
    kAny,
    kConstant,
    kSymbol,    // an atom
    kFunction,  // an atom
    kSum,       // anything else: terms in canonical order, none zero
  };
  Kind kind = Kind::kConstant;
  Dim::Function function{};  // kFunction
  uint64_t hash = 0;
  uint64_t symbol_mask = 0;              // a bloom filter of the symbols that occur
  size_t parts = 1;                      // symbols, constants and functions, written out
  int64_t constant = 0;                  // kConstant
  std::string name;                      // kSymbol
  std::vector<const DimNode*> operands;  // kFunction
  std::vector<PolyTerm> terms;           // kSum
  const Monomial* self = nullptr;        // kSymbol, kFunction: the product of this atom alone

  bool is_atom() const { return kind == Kind::kSymbol || kind == Kind::kFunction; }
};

// Nodes share their operands, so a handful of squarings would make a Dim that no memory holds once
// it is multiplied or written out. More parts than these are an Error, wherever they come up.
constexpr size_t kMaxParts = 4096;

// The hash bit of a symbol in DimNode::symbol_mask.
uint64_t symbol_bit(std::string_view name);

// The interner and the polynomial arithmetic on nodes.
struct DimInterner {
  static Dim wrap(const DimNode* n) { return Dim(n); }
  static const DimNode* constant(int64_t v);
  static const DimNode* symbol(std::string_view name);
  static const DimNode* function(Dim::Function f, std::vector<const DimNode*> operands);
  // From terms in canonical order without zeros.
  static const DimNode* sum(const Terms& terms);
  static const Monomial* product(const Monomial* a, const Monomial* b);
  static const Monomial* product(std::vector<const DimNode*> sorted_atoms);
};

// Canonical order: symbols before functions, symbols by name, functions by kind and operands.
// It depends on the text of a Dim only, so that printing is deterministic across processes.
int compare(const DimNode* a, const DimNode* b);
int compare(const Monomial* a, const Monomial* b);  // higher degree first, constant last

void terms_of(const DimNode* n, Terms& out);
int64_t checked_add(int64_t a, int64_t b);
int64_t checked_mul(int64_t a, int64_t b);
// As / and % of C++, but INT64_MIN by -1 is an Error and 0. b != 0.
int64_t checked_div(int64_t a, int64_t b);
int64_t remainder(int64_t a, int64_t b);
int64_t floor_div(int64_t a, int64_t b);  // b != 0
int64_t floor_mod(int64_t a, int64_t b);
// Divides polynomials exactly: nothing if a remainder is left. `b` is not zero.
std::optional<Dim> divide_exactly(const Dim& a, const Dim& b);
// The quotient of monomials, or nothing if b does not divide a.
std::optional<const Monomial*> divide(const Monomial* a, const Monomial* b);

// Parses the longest dim expression of `text` from `*pos` on and moves `*pos` behind it. On a
// fault returns nothing and sets `*problem`, with `*pos` at the fault.
std::optional<Dim> parse_dim_prefix(std::string_view text, size_t* pos, std::string* problem);
// Makes sure that fresh_symbol() never returns "?k" with k <= number.
void reserve_fresh_symbols(uint64_t number);

}  // namespace nimble::ir
