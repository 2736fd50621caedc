#include "compiler/kernels/templates/loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/op.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::Dim;
using kir::StmtRef;
using kir::ValueRef;

namespace {

// Whether a value or statement mentions one of some symbols or locals.
class Mentions {
 public:
  explicit Mentions(const std::set<std::string>& names) : names_(names) {}

  bool in(const Dim& d) const {
    for (const std::string& s : d.symbols())
      if (names_.contains(s)) return true;
    return false;
  }
  bool in(const ValueRef& v) {
    if (!v || !seen_.insert(v.get()).second) return false;
    if (v->kind == kir::ValueKind::kLocal && names_.contains(v->name)) return true;
    // Registers change from iteration to iteration.
    if (v->kind == kir::ValueKind::kRegister) return true;
    if (v->kind == kir::ValueKind::kLoad && v->buffer->writable) return true;
    if (in(v->index) || in(v->stride) || (v->valid && in(*v->valid)) || in(v->passthrough))
      return true;
    return std::any_of(v->operands.begin(), v->operands.end(),
                       [&](const ValueRef& o) { return in(o); });
  }
  bool in(const kir::Condition& c) const {
    return std::any_of(c.terms.begin(), c.terms.end(),
                       [&](const kir::Condition::Term& t) { return in(t.a) || in(t.b); });
  }

 private:
  const std::set<std::string>& names_;
  std::unordered_set<const kir::Value*> seen_;
};

// How many operations on elements of at most `widest` bytes stand one behind the other in a value.
// What is rarely needed does not count.
int longest_chain(const ValueRef& v, size_t widest,
                  std::unordered_map<const kir::Value*, int>& known) {
  if (const auto it = known.find(v.get()); it != known.end()) return it->second;
  int chain = 0;
  for (size_t i = 0; i < v->operands.size(); ++i)
    if (!v->rare || i != 1) chain = std::max(chain, longest_chain(v->operands[i], widest, known));
  switch (v->kind) {
    case kir::ValueKind::kUnary:
    case kir::ValueKind::kBinary:
    case kir::ValueKind::kFma:
    case kir::ValueKind::kCompare:
    case kir::ValueKind::kSelect:
    case kir::ValueKind::kCast:
      chain += size_of(v->dtype) <= widest ? 1 : 0;
      break;
    default:  // moves bits, or reads
      break;
  }
  known.emplace(v.get(), chain);
  return chain;
}

bool contains_check(const kir::Stmt& s) {
  return s.kind == kir::StmtKind::kCheck ||
         std::any_of(s.body.begin(), s.body.end(),
                     [](const StmtRef& inner) { return contains_check(*inner); });
}

}  // namespace

void hoist(std::set<std::string> varying, std::vector<StmtRef> body, std::vector<StmtRef>& ahead,
           std::vector<StmtRef>& inside) {
  bool open = true;  // nothing overtakes a check that stays inside: it may guard what follows
  for (StmtRef& s : body) {
    bool moves = false;
    if (open && (s->kind == kir::StmtKind::kLet || s->kind == kir::StmtKind::kLetIndex)) {
      moves = !Mentions(varying).in(s->value);
      if (!moves) varying.insert(s->var);
    } else if (open && s->kind == kir::StmtKind::kCheck) {
      moves = open = !Mentions(varying).in(s->condition);
    } else if (s->kind == kir::StmtKind::kIf) {
      open = false;
    }
    (moves ? ahead : inside).push_back(std::move(s));
  }
}

bool has_varying_check(std::set<std::string> varying, const std::vector<StmtRef>& body) {
  for (const StmtRef& s : body) {
    if (s->kind == kir::StmtKind::kLet || s->kind == kir::StmtKind::kLetIndex) {
      if (Mentions(varying).in(s->value)) varying.insert(s->var);
    } else if (s->kind == kir::StmtKind::kCheck) {
      if (Mentions(varying).in(s->condition)) return true;
    } else if (contains_check(*s)) {
      return true;
    }
  }
  return false;
}

StmtRef vector_loop(const std::string& var, const Dim& begin, const Dim& extent, int lanes,
                    int unroll, const SliceBody& body, Unrolled as) {
  const Dim c = Dim::symbol(var);
  std::vector<StmtRef> all;
  const auto loop = [&](const Dim& from, const Dim& length, int vectors) {
    if (length.is_constant(0)) return;
    const int copies = as == Unrolled::kTurns ? 1 : vectors, wide = vectors / copies * lanes;
    std::vector<StmtRef> statements;
    for (int slot = 0; slot < copies; ++slot)
      for (StmtRef& s : body({c + slot * lanes, std::nullopt, slot, wide}))
        statements.push_back(std::move(s));
    std::vector<StmtRef> ahead, inside;
    hoist({var}, std::move(statements), ahead, inside);
    // What stands ahead may read memory that only exists if the loop runs at all.
    StmtRef whole = kb::loop(kir::LoopKind::kSerial, var, from, length, kb::seq(std::move(inside)),
                             vectors * lanes);
    if (!ahead.empty()) {
      ahead.push_back(std::move(whole));
      whole = kb::seq(std::move(ahead));
      if (const auto n = length.as_constant(); !n) whole = kb::if_then(kb::lt(0, length), whole);
    }
    all.push_back(std::move(whole));
  };
  const Dim bulk = ir::floordiv(extent, unroll * lanes) * (unroll * lanes);
  loop(begin, bulk, unroll);
  const Dim full = ir::floordiv(extent, lanes) * lanes;
  if (unroll > 1) loop(begin + bulk, full - bulk, 1);
  const Dim tail = extent - full;
  if (!tail.is_constant(0)) {
    StmtRef last = kb::seq(body({begin + full, tail, 0, lanes}));
    all.push_back(tail.as_constant() ? last : kb::if_then(kb::lt(0, tail), last));
  }
  return kb::seq(std::move(all));
}

StmtRef masked_loop(const std::string& var, const Dim& begin, const Dim& extent, int lanes,
                    const SliceBody& body) {
  if (extent.as_constant()) return vector_loop(var, begin, extent, lanes, 1, body);
  const Dim c = Dim::symbol(var);
  return kb::loop(kir::LoopKind::kSerial, var, begin, extent,
                  kb::seq(body({c, begin + extent - c, 0, lanes})), lanes);
}

ValueRef lane_mask(const Dim& valid, int lanes) {
  return kb::compare(kir::CompareOp::kLt, kb::iota(lanes),
                     kb::broadcast(kb::cast(DType::kI32, kb::index(valid)), lanes));
}

Dim bind_dim(const std::string& symbol, const Dim& d, std::vector<StmtRef>& out) {
  if (d.as_constant() || d.as_symbol()) return d;
  out.push_back(kb::let_index(symbol, kb::index(d)));
  return Dim::symbol(symbol);
}

std::vector<Dim> bind_coordinates(const std::string& prefix, const std::vector<Dim>& dims,
                                  const Dim& flat, std::vector<StmtRef>& out) {
  std::vector<Dim> coordinates = coordinates_of(dims, flat);
  for (size_t i = 0; i < coordinates.size(); ++i) {
    if (coordinates[i].as_constant() || coordinates[i].as_symbol()) continue;
    const std::string name = fmt::format("{}{}", prefix, i);
    ir::SymbolFacts facts;
    if (const auto extent = dims[i].as_constant(); extent && *extent > 0) facts.high = *extent - 1;
    out.push_back(kb::let_index(name, kb::index(coordinates[i]), facts));
    coordinates[i] = Dim::symbol(name);
  }
  return coordinates;
}

Dim NamedExtents::operator()(const std::string& name, const Dim& d) {
  if (d.as_constant() || d.as_symbol()) return d;
  const auto [low, high] = w_.facts.range(d);
  statements_.push_back(kb::let_index(name, kb::index(d), ir::SymbolFacts{low, high, 1}));
  return Dim::symbol(name);
}

int group_lanes(const ir::Function& group, const TargetInfo& t) {
  bool small = false, any = false;
  const auto look = [&](const ir::Type& type) {
    if (type->kind != ir::TypeKind::kTensor) return;
    any = true;
    small |= size_of(type->dtype) < 8 && type->dtype != DType::kBool;
  };
  for (const ir::VarRef& p : group.parameters) look(p->type);
  for (const ir::Binding& b : group.body->bindings) look(b.var->type);
  return std::max(1, t.vector_bits / (small || !any ? 32 : 64));
}

bool is_pullable(const ir::Expr& call) {
  const ir::OpInfo* op = call.kind == ir::ExprKind::kCall ? ir::find_op(call.op) : nullptr;
  return op && op->fusion <= ir::FusionKind::kInjective;
}

bool is_pullable_group(const ir::Function& group) {
  // A part is made of a result alone.
  const auto is_part = [&](const ir::Binding& b) {
    if (!ir::traits_of(*b.value).in_out) return false;
    const auto is_it = [&](const ir::Atom& a) { return a.is_var() && a.var == b.var; };
    if (is_it(group.body->result)) return true;
    const ir::Binding& last = group.body->bindings.back();
    return group.body->result.is_var() && last.var == group.body->result.var &&
           last.value->kind == ir::ExprKind::kTuple &&
           std::any_of(last.value->args.begin(), last.value->args.end(), is_it);
  };
  return std::all_of(group.body->bindings.begin(), group.body->bindings.end(),
                     [&](const ir::Binding& b) {
                       switch (b.value->kind) {
                         case ir::ExprKind::kAtom:
                         case ir::ExprKind::kTuple:
                         case ir::ExprKind::kGetField:
                           return true;
                         case ir::ExprKind::kCall:
                           // Shapes as operands were read by the shape function; the type has them.
                           return (is_pullable(*b.value) || is_part(b)) &&
                                  b.var->type->kind == ir::TypeKind::kTensor;
                         default:
                           return false;
                       }
                     });
}

ir::Atom strip_reshapes(const GroupEvaluator& group, const ir::Atom& a) {
  ir::Atom x = group.resolve(a);
  while (const ir::Expr* e = group.definition(x)) {
    if (ir::traits_of(*e).memory != ir::Memory::kView) break;
    x = group.resolve(e->args[0]);
  }
  return x;
}

const ir::Binding* formed_by(const ir::Function& group, const std::string& op, const ir::Atom& a) {
  std::vector<ir::Atom> pending = {a};
  const std::vector<Dim> dims = ir::type_of(a)->dims;
  const auto& bindings = group.body->bindings;
  for (auto b = bindings.rbegin(); b != bindings.rend(); ++b) {
    bool wanted = false;
    for (const ir::Atom& p : pending) wanted |= p.is_var() && p.var == b->var;
    if (!wanted || b->var->type->kind != ir::TypeKind::kTensor || b->var->type->dims != dims)
      continue;
    if (b->value->op == op) return &*b;
    if (b->value->kind == ir::ExprKind::kAtom || has_compute_rule(b->value->op))
      for (const ir::Atom& x : b->value->args) pending.push_back(x);
  }
  return nullptr;
}

bool computes_functions(const ir::Function& group, int lanes, const TargetInfo& t) {
  constexpr int kFunction = 12;  // an exponential has 14, a remainder 9
  const auto widest = static_cast<size_t>(t.vector_bits / 8 / lanes);
  const auto is_function = [&](const ir::Binding& b) {
    if (b.value->kind != ir::ExprKind::kCall || !has_compute_rule(b.value->op)) return false;
    std::vector<ValueRef> operands;
    for (const ir::Atom& a : b.value->args) {
      const DType type = compute_type(ir::type_of(a)->dtype);
      // A rule may look at a number that is known: a square is one product, a power a function.
      const bool known = a.is_constant() && a.constant->elements() == 1 && is_float(type);
      operands.push_back(known ? kb::number(type, a.constant->value(0), 1)
                               : kb::local("x", type, 1));
    }
    std::unordered_map<const kir::Value*, int> chains;
    const ValueRef value = compute(*b.value, operands, compute_type(b.var->type->dtype));
    return longest_chain(value, widest, chains) >= kFunction;
  };
  const auto& calls = group.body->bindings;
  return std::any_of(calls.begin(), calls.end(), is_function);
}

int threads_for(const Dim& elements, int64_t least) {
  const auto n = elements.as_constant();
  return n && *n < least ? 1 : 0;
}

}  // namespace nimble::kernels
