// Substitution and simplification of kernels.
//
// Residues (paper, 3.5): a symbolic extent n that is tiled by a is 8*k + r for one of a residues r.
// substitute() writes that into a kernel, simplify() then proves boundary checks true or false
// and drops them.
//
// Bounds of loops are often symbolic (o < k), where plain intervals prove nothing about
// 8*o + 7 < 8*k + 3. So a comparison of affine forms is decided relationally: the difference is
// replaced by its extreme over each enclosing loop variable, innermost first, by substituting the
// variable's first or last value according to the sign of its coefficient; what is left speaks of
// shape symbols only and goes to the interval prover. This is exact for affine differences.
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "compiler/kernels/kernel_ir.h"
#include "vm/base/error.h"

namespace nimble::kir {
namespace {

using ir::DimContext;
using ir::Proof;

// Applies `dim` to every Dim of a value, keeping shared parts shared. Derived classes decide what
// happens to Dims and statements.
class Rewriter {
 public:
  virtual ~Rewriter() = default;

  ValueRef value(const ValueRef& v) {
    if (!v) return v;
    if (auto it = memo_.find(v.get()); it != memo_.end()) return it->second;
    auto out = std::make_shared<Value>(*v);
    for (ValueRef& o : out->operands) o = value(o);
    if (v->kind == ValueKind::kIndex || v->kind == ValueKind::kRegister) out->index = dim(v->index);
    ValueRef result;
    if (v->kind == ValueKind::kLoad) {
      out->index = dim(v->index);
      out->stride = dim(v->stride);
      out->passthrough = value(v->passthrough);
      result = load(std::move(out));
    } else {
      result = std::move(out);
    }
    kept_.push_back(v);  // keeps the key's address in use while it is in the table
    return memo_.emplace(v.get(), std::move(result)).first->second;
  }

  Condition condition(Condition c) {
    for (Condition::Term& t : c.terms) {
      t.a = dim(t.a);
      t.b = dim(t.b);
    }
    return c;
  }

 protected:
  virtual Dim dim(const Dim& d) = 0;
  virtual ValueRef load(std::shared_ptr<Value> v) {
    if (v->valid) v->valid = dim(*v->valid);
    return v;
  }
  void forget_values() {
    memo_.clear();
    kept_.clear();
  }

 private:
  std::unordered_map<const Value*, ValueRef> memo_;
  std::vector<ValueRef> kept_;
};

class Substituter : public Rewriter {
 public:
  explicit Substituter(const std::map<std::string, Dim>& replacement) : replacement_(replacement) {}

  StmtRef statement(const StmtRef& s) {
    auto out = std::make_shared<Stmt>(*s);
    for (StmtRef& b : out->body) b = statement(b);
    out->begin = dim(s->begin);
    out->extent = dim(s->extent);
    out->index = dim(s->index);
    out->stride = dim(s->stride);
    if (s->valid) out->valid = dim(*s->valid);
    out->condition = condition(s->condition);
    out->value = value(s->value);
    return out;
  }

  Dim dim(const Dim& d) override { return d.substitute(replacement_); }

 private:
  const std::map<std::string, Dim>& replacement_;
};

// ------------------------------------------------------------------- simplification

struct LoopRange {
  std::string var;
  Dim first, last;  // values of the first and last iteration; last < first if there is none
};

class Simplifier : public Rewriter {
 public:
  explicit Simplifier(const DimContext& facts) : facts_(facts) {}

  // Null: nothing is left.
  StmtRef statement(const StmtRef& s) {
    forget_values();
    switch (s->kind) {
      case StmtKind::kSeq:
        return sequence(s);
      case StmtKind::kFor:
        return loop(s);
      case StmtKind::kIf:
        return branch(s);
      case StmtKind::kCheck: {
        auto out = std::make_shared<Stmt>(*s);
        out->condition = reduced(s->condition).condition;
        return out->condition.terms.empty() ? nullptr : out;
      }
      case StmtKind::kStore: {
        auto out = access(s);
        if (s->valid) {
          out->valid = dim(*s->valid);
          if (less_equal(out->value->lanes, *out->valid) == Proof::kYes)
            out->valid.reset();
          else if (less_equal(*out->valid, 0) == Proof::kYes)
            return nullptr;
        }
        return out;
      }
      case StmtKind::kBarrier:
        return s;
      default:
        return access(s);
    }
  }

 protected:
  Dim dim(const Dim& d) override { return facts_.simplify(d); }

  ValueRef load(std::shared_ptr<Value> v) override {
    if (!v->valid) return v;
    v->valid = dim(*v->valid);
    if (less_equal(v->lanes, *v->valid) == Proof::kYes) {
      v->valid.reset();
      v->passthrough.reset();
    } else if (less_equal(*v->valid, 0) == Proof::kYes) {
      return v->passthrough ? v->passthrough : build::number(v->dtype, 0, v->lanes);
    }
    return v;
  }

 private:
  std::shared_ptr<Stmt> access(const StmtRef& s) {
    auto out = std::make_shared<Stmt>(*s);
    out->index = dim(s->index);
    out->stride = dim(s->stride);
    out->value = value(s->value);
    if (s->kind == StmtKind::kLetIndex)
      facts_.set(s->var, s->facts.value_or(ir::SymbolFacts{INT64_MIN, INT64_MAX, 1}));
    return out;
  }

  StmtRef sequence(const StmtRef& s) {
    auto out = std::make_shared<Stmt>();
    out->kind = StmtKind::kSeq;
    for (const StmtRef& b : s->body) {
      StmtRef r = statement(b);
      if (!r) continue;
      if (r->kind == StmtKind::kSeq)
        out->body.insert(out->body.end(), r->body.begin(), r->body.end());
      else
        out->body.push_back(std::move(r));
    }
    return out->body.empty() ? nullptr : out;
  }

  StmtRef loop(const StmtRef& s) {
    auto out = std::make_shared<Stmt>(*s);
    out->begin = dim(s->begin);
    out->extent = dim(s->extent);
    if (less_equal(out->extent, 0) == Proof::kYes) return nullptr;
    if (s->var.rfind("scope", 0) == 0 && s->loop == LoopKind::kUnroll) {  // from an earlier run
      StmtRef body = statement(s->body[0]);
      return body ? scoped(std::move(body)) : nullptr;
    }
    // One iteration is no loop, except that a thread loop also says who runs it.
    if (s->loop != LoopKind::kThread && less_equal(out->extent, s->step) == Proof::kYes &&
        less_equal(1, out->extent) == Proof::kYes)
      return scoped(statement(substitute(s->body[0], {{s->var, out->begin}})));
    const Dim trips = dim(trip_count(*out));
    loops_.push_back({s->var, out->begin, out->begin + (trips - 1) * s->step});
    const ir::SymbolFacts outer = facts_.facts(s->var);
    facts_.set(s->var, range_of(*out, loops_.back()));
    StmtRef body = statement(s->body[0]);
    facts_.set(s->var, outer);
    loops_.pop_back();
    if (!body) return nullptr;
    out->body = {std::move(body)};
    return out;
  }

  static bool binds_names(const Stmt& s) {
    if (s.kind == StmtKind::kLet || s.kind == StmtKind::kLetIndex) return true;
    return s.kind == StmtKind::kSeq &&
           std::any_of(s.body.begin(), s.body.end(),
                       [](const StmtRef& b) { return binds_names(*b); });
  }

  // A block whose loop or condition went away. Names that it binds must still end with it, or they
  // would meet those of its neighbours: an unrolled loop of one iteration keeps them inside.
  StmtRef scoped(StmtRef body) {
    if (!body || !binds_names(*body)) return body;
    return build::loop(LoopKind::kUnroll, "scope" + std::to_string(scopes_++), 0, 1,
                       std::move(body));
  }

  ir::SymbolFacts range_of(const Stmt& loop, const LoopRange& r) const {
    const auto first = facts_.range(r.first), last = facts_.range(r.last);
    ir::SymbolFacts facts{first.low, std::max(first.low, last.high), 1};
    for (int64_t d = loop.step; d > 1; --d) {
      if (loop.step % d != 0 || facts_.divisible(loop.begin, d) != Proof::kYes) continue;
      facts.divisor = d;
      break;
    }
    return facts;
  }

  StmtRef branch(const StmtRef& s) {
    const Reduced r = reduced(s->condition);
    if (r.never) return s->body.size() > 1 ? scoped(statement(s->body[1])) : nullptr;
    if (r.condition.terms.empty()) return scoped(statement(s->body[0]));
    StmtRef then = statement(s->body[0]);
    StmtRef otherwise = s->body.size() > 1 ? statement(s->body[1]) : nullptr;
    if (!then && !otherwise) return nullptr;
    return build::if_then(r.condition, then ? then : build::seq({}), otherwise);
  }

  struct Reduced {
    Condition condition;  // the terms that are not known to hold
    bool never = false;   // a term is known not to hold
  };

  Reduced reduced(const Condition& c) {
    Reduced out;
    for (Condition::Term t : c.terms) {
      t.a = dim(t.a);
      t.b = dim(t.b);
      const Proof p = holds(t);
      if (p == Proof::kNo) out.never = true;
      if (p != Proof::kYes) out.condition.terms.push_back(t);
    }
    return out;
  }

  Proof holds(const Condition::Term& t) const {
    switch (t.op) {
      case Condition::Op::kLt:
        return less_equal(t.a + 1, t.b);
      case Condition::Op::kLe:
        return less_equal(t.a, t.b);
      case Condition::Op::kEq:
      case Condition::Op::kNe: {
        Proof equal = facts_.equal(t.a, t.b);
        if (equal == Proof::kUnknown &&
            (less_equal(t.a + 1, t.b) == Proof::kYes || less_equal(t.b + 1, t.a) == Proof::kYes))
          equal = Proof::kNo;
        if (t.op == Condition::Op::kEq || equal == Proof::kUnknown) return equal;
        return equal == Proof::kYes ? Proof::kNo : Proof::kYes;
      }
    }
    NIMBLE_UNREACHABLE();
  }

  Proof less_equal(const Dim& a, const Dim& b) const {
    if (const Proof p = facts_.less_equal(a, b); p != Proof::kUnknown) return p;
    if (never_negative(b - a)) return Proof::kYes;
    if (never_negative(a - b - 1)) return Proof::kNo;
    return Proof::kUnknown;
  }

  bool never_negative(Dim d) const {
    for (auto it = loops_.rbegin(); it != loops_.rend(); ++it) {
      int64_t slope = 0;
      for (const Dim::Term& t : d.terms()) {
        bool here = false;
        for (const Dim& atom : t.atoms) here |= atom.symbols().contains(it->var);
        if (!here) continue;
        // Only a plain constant multiple of the variable has a known extreme.
        if (t.atoms.size() != 1 || t.atoms[0].as_symbol() != it->var) return false;
        slope += t.coefficient;
      }
      if (slope != 0) d = d.substitute({{it->var, slope > 0 ? it->first : it->last}});
    }
    return facts_.less_equal(0, facts_.simplify(d)) == Proof::kYes;
  }

  DimContext facts_;
  std::vector<LoopRange> loops_;
  int scopes_ = 0;
};

// The value of the new symbol in old := a*k + r: nothing if `form` is a constant.
std::optional<std::pair<std::string, Dim>> solve(const std::string& old, const Dim& form,
                                                 ir::SymbolFacts* facts, const Function& f) {
  int64_t scale = 0, rest = 0;
  std::string symbol;
  for (const Dim::Term& t : form.terms()) {
    if (t.atoms.empty()) {
      rest = t.coefficient;
      continue;
    }
    const auto name = t.atoms[0].as_symbol();
    NIMBLE_CHECK(symbol.empty() && t.atoms.size() == 1 && name && t.coefficient > 0, "{} := {}",
                 old, form.str());
    symbol = *name;
    scale = t.coefficient;
  }
  if (symbol.empty()) return std::nullopt;
  NIMBLE_CHECK(rest >= 0 && rest < scale, "{} := {}", old, form.str());
  const ir::SymbolFacts was = f.facts.facts(old);
  facts->low = was.low <= rest ? 0 : (was.low - rest + scale - 1) / scale;
  facts->high = was.high == INT64_MAX ? INT64_MAX : std::max<int64_t>(0, (was.high - rest) / scale);
  return std::pair{symbol, ir::floordiv(Dim::symbol(old), scale)};
}

BufferRef substitute_buffer(const BufferRef& b, const std::map<std::string, Dim>& replacement) {
  auto out = std::make_shared<Buffer>(*b);
  out->extent = b->extent.substitute(replacement);
  return out;
}

// Points every access at the new buffers.
ValueRef rebind(const ValueRef& v, const std::unordered_map<const Buffer*, BufferRef>& to,
                std::unordered_map<const Value*, ValueRef>& memo) {
  if (!v) return v;
  if (auto it = memo.find(v.get()); it != memo.end()) return it->second;
  auto out = std::make_shared<Value>(*v);
  for (ValueRef& o : out->operands) o = rebind(o, to, memo);
  out->passthrough = rebind(v->passthrough, to, memo);
  if (out->buffer) out->buffer = to.at(out->buffer.get());
  return memo.emplace(v.get(), std::move(out)).first->second;
}

StmtRef rebind(const StmtRef& s, const std::unordered_map<const Buffer*, BufferRef>& to,
               std::unordered_map<const Value*, ValueRef>& memo) {
  auto out = std::make_shared<Stmt>(*s);
  for (StmtRef& b : out->body) b = rebind(b, to, memo);
  out->value = rebind(s->value, to, memo);
  if (out->buffer) out->buffer = to.at(out->buffer.get());
  return out;
}

}  // namespace

ValueRef substitute(const ValueRef& v, const std::map<std::string, Dim>& replacement) {
  return Substituter(replacement).value(v);
}

StmtRef substitute(const StmtRef& s, const std::map<std::string, Dim>& replacement) {
  return Substituter(replacement).statement(s);
}

Function substitute(Function f, const std::map<std::string, Dim>& replacement) {
  std::vector<StmtRef> body;
  for (const auto& [old, form] : replacement) {
    ir::SymbolFacts facts;
    if (auto solved = solve(old, form, &facts, f)) {
      f.facts.set(solved->first, facts);
      f.derived.push_back(*solved);
    }
    body.push_back(build::check(build::eq(Dim::symbol(old), form),
                                fmt::format("{} is not {}", old, form.str())));
  }
  body.push_back(substitute(f.body, replacement));
  // Arguments keep their extents: the caller's tensors have them whatever form n is of.
  std::unordered_map<const Buffer*, BufferRef> to;
  for (const BufferRef& b : f.arguments) to[b.get()] = b;
  for (auto* list : {&f.scratch, &f.registers}) {
    for (BufferRef& b : *list) {
      BufferRef replaced = substitute_buffer(b, replacement);
      to[b.get()] = replaced;
      b = std::move(replaced);
    }
  }
  std::unordered_map<const Value*, ValueRef> memo;
  f.body = rebind(build::seq(std::move(body)), to, memo);
  return f;
}

Function simplify(Function f) {
  // Between substitutions the prover must see that k is never negative even where the facts name
  // no range; DimContext takes unlisted symbols as >= 0, which holds for shape symbols.
  Simplifier s(f.facts);
  StmtRef body = s.statement(f.body);
  f.body = body ? body : build::seq({});
  return f;
}

}  // namespace nimble::kir
