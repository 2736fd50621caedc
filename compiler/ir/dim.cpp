// Interning and polynomial arithmetic.
//
// Every Dim is a pointer to a node that exists once per process, so equality is a pointer
// comparison and shared sub-expressions cost nothing. Monomials are interned too: adding two
// polynomials then merges two short sorted lists, in which equal monomials are found by
// pointer. The tables are sharded by hash, a mutex each, because kernels are generated on
// several threads; nodes are never freed (a compile makes some tens of thousands).
#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_set>

#include "compiler/ir/dim_node.h"

namespace nimble::ir {
namespace {

constexpr size_t kShards = 64;

uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ull + (h << 12) + (h >> 4);
  return h * 0xff51afd7ed558ccdull;
}

bool same(const DimNode& a, const DimNode& b) {
  if (a.hash != b.hash || a.kind != b.kind) return false;
  switch (a.kind) {
    case DimNode::Kind::kAny:
      return true;
    case DimNode::Kind::kConstant:
      return a.constant == b.constant;
    case DimNode::Kind::kSymbol:
      return a.name == b.name;
    case DimNode::Kind::kFunction:
      return a.function == b.function && a.operands == b.operands;
    case DimNode::Kind::kSum:
      return std::equal(a.terms.begin(), a.terms.end(), b.terms.begin(), b.terms.end(),
                        [](const PolyTerm& x, const PolyTerm& y) {
                          return x.coefficient == y.coefficient && x.monomial == y.monomial;
                        });
  }
  return false;
}
bool same(const Monomial& a, const Monomial& b) {
  return a.hash == b.hash && a.atoms == b.atoms;
}

// One table of interned values of type T.
template <class T>
class Table {
 public:
  // `finish` completes a new value before it becomes visible to other threads.
  template <class Finish>
  const T* intern(T&& value, Finish finish) {
    Shard& s = shards_[(value.hash >> 58) % kShards];
    std::lock_guard lock(s.mutex);
    auto it = s.index.find(&value);
    if (it != s.index.end()) return *it;
    T& stored = s.storage.emplace_back(std::move(value));
    finish(stored);
    s.index.insert(&stored);
    return &stored;
  }

 private:
  struct Hash {
    size_t operator()(const T* v) const { return v->hash; }
  };
  struct Equal {
    bool operator()(const T* a, const T* b) const { return same(*a, *b); }
  };
  struct Shard {
    std::mutex mutex;
    std::unordered_set<const T*, Hash, Equal> index;
    std::deque<T> storage;  // stable addresses
  };
  std::array<Shard, kShards> shards_;
};

// Never destroyed: Dims with static storage may outlive any order of destruction.
Table<DimNode>& nodes() {
  static auto* t = new Table<DimNode>;
  return *t;
}
Table<Monomial>& monomials() {
  static auto* t = new Table<Monomial>;
  return *t;
}

const DimNode* intern(DimNode&& n) {
  return nodes().intern(std::move(n), [](DimNode& stored) {
    if (stored.is_atom()) stored.self = DimInterner::product({&stored});
  });
}

std::atomic<uint64_t> fresh_counter{0};

size_t limited(size_t parts) {
  if (parts > kMaxParts) {
    throw Error(Status::kInvalidArgument, "dim",
                fmt::format("an expression of dims has more than {} parts", kMaxParts),
                "multiply fewer sums, or name a part by a symbol of its own");
  }
  return parts;
}

}  // namespace

uint64_t symbol_bit(std::string_view name) {
  return uint64_t{1} << (std::hash<std::string_view>()(name) & 63);
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) {
    throw Error(Status::kInvalidArgument, "dim", fmt::format("{} + {} overflows 64 bits", a, b),
                "use smaller dims");
  }
  return r;
}
int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) {
    throw Error(Status::kInvalidArgument, "dim", fmt::format("{} * {} overflows 64 bits", a, b),
                "use smaller dims");
  }
  return r;
}
int64_t checked_div(int64_t a, int64_t b) {
  return b == -1 ? checked_mul(a, -1) : a / b;
}
int64_t remainder(int64_t a, int64_t b) {
  return b == -1 ? 0 : a % b;
}
int64_t floor_div(int64_t a, int64_t b) {
  if (b == -1) return checked_mul(a, -1);
  return a / b - ((a % b != 0 && (a % b < 0) != (b < 0)) ? 1 : 0);
}
int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int compare(const DimNode* a, const DimNode* b) {
  if (a == b) return 0;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  switch (a->kind) {
    case DimNode::Kind::kAny:
      return 0;
    case DimNode::Kind::kConstant:
      return a->constant < b->constant ? -1 : 1;
    case DimNode::Kind::kSymbol: {
      return a->name.compare(b->name) < 0 ? -1 : 1;
    }
    case DimNode::Kind::kFunction: {
      if (a->function != b->function) return a->function < b->function ? -1 : 1;
      if (a->operands.size() != b->operands.size()) {
        return a->operands.size() < b->operands.size() ? -1 : 1;
      }
      for (size_t i = 0; i < a->operands.size(); ++i) {
        if (int c = compare(a->operands[i], b->operands[i])) return c;
      }
      return 0;
    }
    case DimNode::Kind::kSum: {
      for (size_t i = 0; i < std::min(a->terms.size(), b->terms.size()); ++i) {
        if (int c = compare(a->terms[i].monomial, b->terms[i].monomial)) return c;
        const int64_t x = a->terms[i].coefficient, y = b->terms[i].coefficient;
        if (x != y) return x < y ? -1 : 1;
      }
      return a->terms.size() < b->terms.size() ? -1 : 1;
    }
  }
  return 0;
}

int compare(const Monomial* a, const Monomial* b) {
  if (a == b) return 0;
  const size_t da = a ? a->atoms.size() : 0, db = b ? b->atoms.size() : 0;
  if (da != db) return da > db ? -1 : 1;
  for (size_t i = 0; i < da; ++i) {
    if (int c = compare(a->atoms[i], b->atoms[i])) return c;
  }
  return 0;
}

const DimNode* DimInterner::constant(int64_t v) {
  static constexpr int64_t kCached = 1024;
  auto make = [](int64_t value) {
    DimNode n;
    n.kind = DimNode::Kind::kConstant;
    n.constant = value;
    n.hash = mix(1, static_cast<uint64_t>(value));
    return intern(std::move(n));
  };
  static const auto* small = [&make] {
    auto* a = new std::array<const DimNode*, kCached>;
    for (int64_t i = 0; i < kCached; ++i) (*a)[i] = make(i);
    return a;
  }();
  return v >= 0 && v < kCached ? (*small)[v] : make(v);
}

const DimNode* DimInterner::symbol(std::string_view name) {
  NIMBLE_CHECK(!name.empty(), "a symbol needs a name");
  DimNode n;
  n.kind = DimNode::Kind::kSymbol;
  n.name = name;
  n.hash = mix(2, std::hash<std::string_view>()(name));
  n.symbol_mask = symbol_bit(name);
  return intern(std::move(n));
}

const DimNode* DimInterner::function(Dim::Function f, std::vector<const DimNode*> operands) {
  DimNode n;
  n.kind = DimNode::Kind::kFunction;
  n.function = f;
  n.hash = mix(3, static_cast<uint64_t>(f));
  for (const DimNode* o : operands) {
    n.hash = mix(n.hash, o->hash);
    n.symbol_mask |= o->symbol_mask;
    n.parts += o->parts;
  }
  limited(n.parts);
  n.operands = std::move(operands);
  return intern(std::move(n));
}

const DimNode* DimInterner::sum(const Terms& terms) {
  if (terms.empty()) return constant(0);
  if (terms.size() == 1) {
    const PolyTerm& t = terms[0];
    if (!t.monomial) return constant(t.coefficient);
    if (t.coefficient == 1 && t.monomial->atoms.size() == 1) return t.monomial->atoms[0];
  }
  DimNode n;
  n.kind = DimNode::Kind::kSum;
  n.hash = 4;
  n.parts = 0;
  n.terms.assign(terms.begin(), terms.end());
  for (const PolyTerm& t : terms) {
    n.hash =
        mix(mix(n.hash, static_cast<uint64_t>(t.coefficient)), t.monomial ? t.monomial->hash : 7);
    n.parts += !t.monomial || t.coefficient != 1;
    if (!t.monomial) continue;
    n.parts += t.monomial->parts;
    for (const DimNode* a : t.monomial->atoms) n.symbol_mask |= a->symbol_mask;
  }
  limited(n.parts);
  return intern(std::move(n));
}

const Monomial* DimInterner::product(std::vector<const DimNode*> sorted_atoms) {
  if (sorted_atoms.empty()) return nullptr;
  Monomial m;
  m.hash = 5;
  for (const DimNode* a : sorted_atoms) {
    m.hash = mix(m.hash, a->hash);
    m.parts += a->parts;
  }
  limited(m.parts);
  m.atoms = std::move(sorted_atoms);
  return monomials().intern(std::move(m), [](Monomial&) {});
}

const Monomial* DimInterner::product(const Monomial* a, const Monomial* b) {
  if (!a) return b;
  if (!b) return a;
  std::vector<const DimNode*> atoms(a->atoms.size() + b->atoms.size());
  std::merge(a->atoms.begin(), a->atoms.end(), b->atoms.begin(), b->atoms.end(), atoms.begin(),
             [](const DimNode* x, const DimNode* y) { return compare(x, y) < 0; });
  return product(std::move(atoms));
}

std::optional<const Monomial*> divide(const Monomial* a, const Monomial* b) {
  if (!b) return a;
  if (!a || b->atoms.size() > a->atoms.size()) return std::nullopt;
  std::vector<const DimNode*> rest;
  size_t j = 0;
  for (const DimNode* atom : a->atoms) {
    if (j < b->atoms.size() && b->atoms[j] == atom) {
      ++j;
    } else {
      rest.push_back(atom);
    }
  }
  if (j != b->atoms.size()) return std::nullopt;
  return DimInterner::product(std::move(rest));
}

void terms_of(const DimNode* n, Terms& out) {
  switch (n->kind) {
    case DimNode::Kind::kAny:
      NIMBLE_UNREACHABLE("arithmetic on the wildcard ?");
    case DimNode::Kind::kConstant:
      if (n->constant != 0) out.push_back({n->constant, nullptr});
      return;
    case DimNode::Kind::kSymbol:
    case DimNode::Kind::kFunction:
      out.push_back({1, n->self});
      return;
    case DimNode::Kind::kSum:
      for (const PolyTerm& t : n->terms) out.push_back(t);
      return;
  }
}

Dim::Dim(int64_t value) : node_(DimInterner::constant(value)) {}
Dim Dim::symbol(std::string_view name) {
  return Dim(DimInterner::symbol(name));
}

Dim Dim::any() {
  static const DimNode* node = [] {
    DimNode n;
    n.kind = DimNode::Kind::kAny;
    return intern(std::move(n));
  }();
  return Dim(node);
}

bool Dim::is_any() const {
  return node_->kind == DimNode::Kind::kAny;
}
std::optional<int64_t> Dim::as_constant() const {
  if (node_->kind != DimNode::Kind::kConstant) return std::nullopt;
  return node_->constant;
}
std::optional<std::string> Dim::as_symbol() const {
  if (node_->kind != DimNode::Kind::kSymbol) return std::nullopt;
  return node_->name;
}
std::optional<Dim::Application> Dim::as_application() const {
  if (node_->kind != DimNode::Kind::kFunction) return std::nullopt;
  Application a{node_->function, {}};
  for (const DimNode* o : node_->operands) a.operands.push_back(Dim(o));
  return a;
}

bool operator<(const Dim& a, const Dim& b) {
  return compare(a.node_, b.node_) < 0;
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_constant(0) && !b.is_any()) return b;
  if (b.is_constant(0) && !a.is_any()) return a;
  Terms x, y, out;
  terms_of(a.node_, x);
  terms_of(b.node_, y);
  size_t i = 0, j = 0;
  while (i < x.size() && j < y.size()) {
    const int c = compare(x[i].monomial, y[j].monomial);
    if (c < 0) {
      out.push_back(x[i++]);
    } else if (c > 0) {
      out.push_back(y[j++]);
    } else {
      const int64_t s = checked_add(x[i].coefficient, y[j].coefficient);
      if (s != 0) out.push_back({s, x[i].monomial});
      ++i, ++j;
    }
  }
  while (i < x.size()) out.push_back(x[i++]);
  while (j < y.size()) out.push_back(y[j++]);
  return Dim(DimInterner::sum(out));
}

Dim operator-(const Dim& a, const Dim& b) {
  if (b.is_constant(0) && !a.is_any()) return a;
  if (a == b && !a.is_any()) return Dim(0);
  return a + b * Dim(-1);
}

Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_constant(1) && !b.is_any()) return b;
  if (b.is_constant(1) && !a.is_any()) return a;
  Terms x, y, products, out;
  terms_of(a.node_, x);
  terms_of(b.node_, y);
  limited(x.size() * y.size());  // before equal ones are added up
  for (const PolyTerm& s : x) {
    for (const PolyTerm& t : y) {
      products.push_back({checked_mul(s.coefficient, t.coefficient),
                          DimInterner::product(s.monomial, t.monomial)});
    }
  }
  std::sort(products.begin(), products.end(), [](const PolyTerm& s, const PolyTerm& t) {
    return compare(s.monomial, t.monomial) < 0;
  });
  for (const PolyTerm& t : products) {
    if (!out.empty() && out.back().monomial == t.monomial) {
      out.back().coefficient = checked_add(out.back().coefficient, t.coefficient);
    } else {
      out.push_back(t);
    }
  }
  Terms nonzero;
  for (const PolyTerm& t : out) {
    if (t.coefficient != 0) nonzero.push_back(t);
  }
  return Dim(DimInterner::sum(nonzero));
}

std::string fresh_symbol() {
  return fmt::format("?{}", ++fresh_counter);
}

void reserve_fresh_symbols(uint64_t number) {
  uint64_t seen = fresh_counter.load();
  while (seen < number && !fresh_counter.compare_exchange_weak(seen, number)) {
  }
}

}  // namespace nimble::ir
