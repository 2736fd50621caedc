// Method: one walk, with what stands for each name in the copy at hand: a number, or another Dim,
// for a variable of an unrolled loop, a name of its own for what a copy binds once more. Dims and
// values are rebuilt with these; a value without any stays the object that it was, and one that a
// statement has several times (values are directed graphs) is rebuilt once.
//
// Bodies are copied one behind the other into the block around them, not into blocks of their own:
// the first copy's addresses are there for the second. Names must differ for that. The first to
// bind a name keeps it, so that a function without copies stays as it reads.
//
// Conditions are decided before what they guard is looked at, term by term up to the first that
// fails: a copy that is never taken may index beyond a register, or divide by zero.
//
// It is for printers. The interpreter runs an unrolled loop as a loop, on purpose: it is what this
// lowering is compared with, and its program would grow with the copies that it has no use for.
#include "compiler/kernels/unroll.h"

#include <fmt/format.h>

#include <set>
#include <unordered_map>

#include "vm/base/error.h"

namespace nimble::kir {
namespace {

using Statements = std::vector<StmtRef>;

bool holds(Condition::Op op, int64_t a, int64_t b) {
  switch (op) {
    case Condition::Op::kLt:
      return a < b;
    case Condition::Op::kLe:
      return a <= b;
    case Condition::Op::kEq:
      return a == b;
    case Condition::Op::kNe:
      return a != b;
  }
  NIMBLE_UNREACHABLE();
}

class Unrolling {
 public:
  Unrolling(const Function& f, const std::map<std::string, Dim>& known) : out_(f), symbols_(known) {
    taken_ = {"thread", "threads"};
    if (f.launch) {
      taken_.insert(kBlockSymbols.begin(), kBlockSymbols.end());
      symbols_.insert_or_assign("threads", f.launch->threads);
    }
    taken_.insert(f.contract.symbols.begin(), f.contract.symbols.end());
    take_variables(*f.body);
  }

  Function run() {
    out_.body = block(out_.body);
    return std::move(out_);
  }

 private:
  // Loop variables keep their names: no loop stands inside of a copy of itself.
  void take_variables(const Stmt& s) {
    if (s.kind == StmtKind::kFor) taken_.insert(s.var);
    for (const StmtRef& b : s.body) take_variables(*b);
  }

  // --- Names

  Dim dim(const Dim& d) const { return d.as_constant() ? d : d.substitute(symbols_); }

  int64_t constant(const Dim& d) const {
    const auto c = dim(d).as_constant();
    NIMBLE_CHECK(c.has_value(), "{} is not constant in {}", d.str(), out_.name);
    return *c;
  }

  // The number of one register of a buffer.
  Dim number(const Buffer& b, const Dim& d) const {
    const int64_t n = constant(d);
    NIMBLE_CHECK(n >= 0 && n < *b.extent.as_constant(), "register {}[{}] in {}", b.name, n,
                 out_.name);
    return n;
  }

  // What is bound inside ends with it.
  template <class Body>
  void scoped(const Body& body) {
    const auto symbols = symbols_;
    const auto locals = locals_;
    body();
    symbols_ = symbols;
    locals_ = locals;
  }

  std::string own_name(const std::string& name) {
    std::string own = name;
    while (!taken_.insert(own).second) own = fmt::format("{}.{}", name, next_[name]++);
    return own;
  }

  // --- Values

  // Puts `now` in place of what is there; notes whether that changes anything.
  template <class T>
  static void put(T& at, T now, bool& changed) {
    if (at == now) return;
    at = std::move(now);
    changed = true;
  }

  ValueRef value(const ValueRef& v) {
    if (v->kind == ValueKind::kConst || v->kind == ValueKind::kIota) return v;
    if (const auto it = values_.find(v.get()); it != values_.end()) return it->second;
    Value copy = *v;
    bool changed = false;
    for (ValueRef& o : copy.operands) put(o, value(o), changed);
    if (copy.passthrough) put(copy.passthrough, value(copy.passthrough), changed);
    put(copy.index,
        v->kind == ValueKind::kRegister ? number(*v->buffer, v->index) : dim(copy.index), changed);
    put(copy.stride, dim(copy.stride), changed);
    if (copy.valid) put(*copy.valid, dim(*copy.valid), changed);
    if (v->kind == ValueKind::kLocal)
      if (const auto it = locals_.find(v->name); it != locals_.end())
        put(copy.name, it->second, changed);
    ValueRef now = changed ? std::make_shared<const Value>(std::move(copy)) : v;
    values_.emplace(v.get(), now);
    return now;
  }

  // --- Statements

  StmtRef block(const StmtRef& s) {
    Statements all;
    scoped([&] { statement(s, all); });
    return all.size() == 1 ? all[0] : build::seq(std::move(all));
  }

  void copies(const Stmt& s, Statements& to) {
    const Dim begin = dim(s.begin);
    for (int64_t i = 0, extent = constant(s.extent); i < extent; i += s.step)
      scoped([&] {
        symbols_.insert_or_assign(s.var, begin + i);
        statement(s.body[0], to);
      });
  }

  // What is open of a condition: no terms if it holds, one alone if that fails.
  Condition open(const Condition& c, bool& fails) const {
    Condition left;
    fails = false;
    for (const Condition::Term& t : c.terms) {
      Condition::Term now{dim(t.a), t.op, dim(t.b)};
      const auto a = now.a.as_constant(), b = now.b.as_constant();
      if (a && b && holds(t.op, *a, *b)) continue;
      fails = a && b;
      if (fails) return {{now}};
      left.terms.push_back(std::move(now));
    }
    return left;
  }

  void branch(const Stmt& s, Statements& to) {
    bool fails = false;
    Condition left = open(s.condition, fails);
    if (fails || left.terms.empty()) {
      const size_t taken = fails ? 1 : 0;
      if (taken < s.body.size()) scoped([&] { statement(s.body[taken], to); });
      return;
    }
    StmtRef then = block(s.body[0]);
    to.push_back(build::if_then(std::move(left), std::move(then),
                                s.body.size() > 1 ? block(s.body[1]) : nullptr));
  }

  void check(const Stmt& s, Statements& to) {
    bool fails = false;
    Condition left = open(s.condition, fails);
    if (!left.terms.empty()) to.push_back(build::check(std::move(left), s.message));
  }

  void statement(const StmtRef& s, Statements& to) {
    switch (s->kind) {
      case StmtKind::kSeq:
        for (const StmtRef& b : s->body) statement(b, to);
        return;
      case StmtKind::kFor:
        if (s->loop == LoopKind::kUnroll) return copies(*s, to);
        break;
      case StmtKind::kIf:
        return branch(*s, to);
      case StmtKind::kCheck:
        return check(*s, to);
      default:
        break;
    }
    Stmt copy = *s;
    bool changed = false;
    put(copy.begin, dim(copy.begin), changed);
    put(copy.extent, dim(copy.extent), changed);
    put(copy.index,
        s->kind == StmtKind::kSetRegister ? number(*s->buffer, s->index) : dim(copy.index),
        changed);
    put(copy.stride, dim(copy.stride), changed);
    put(copy.to_index, dim(copy.to_index), changed);
    put(copy.phase, dim(copy.phase), changed);
    for (Dim& c : copy.coordinates) put(c, dim(c), changed);
    if (copy.valid) put(*copy.valid, dim(*copy.valid), changed);
    for (TileShape& t : copy.shapes) put(t.rows, dim(t.rows), changed);
    for (TileRef& t : copy.tiles) put(t.number, number(*t.buffer, t.number), changed);
    for (GroupView& v : copy.views) put(v.index, dim(v.index), changed);
    if (copy.value) {
      values_.clear();
      put(copy.value, value(copy.value), changed);
    }
    for (StmtRef& b : copy.body) put(b, block(b), changed);
    if (s->kind == StmtKind::kLet || s->kind == StmtKind::kLetIndex) {
      put(copy.var, own_name(s->var), changed);
      if (copy.var != s->var && s->kind == StmtKind::kLet) locals_[s->var] = copy.var;
      if (copy.var != s->var && s->kind == StmtKind::kLetIndex)
        symbols_.insert_or_assign(s->var, Dim::symbol(copy.var));
    }
    to.push_back(changed ? std::make_shared<const Stmt>(std::move(copy)) : s);
  }

  Function out_;
  std::map<std::string, Dim> symbols_;         // what stands for a symbol
  std::map<std::string, std::string> locals_;  // other names of locals
  std::set<std::string> taken_;
  std::map<std::string, int> next_;                    // the number that a name's next copy tries
  std::unordered_map<const Value*, ValueRef> values_;  // of the statement at work
};

}  // namespace

Function unroll(const Function& f, const std::map<std::string, Dim>& known) {
  return Unrolling(f, known).run();
}

}  // namespace nimble::kir
