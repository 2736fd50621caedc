// Shape functions as code (paper, 3.2 and Appendix A).
//
// After memory lowering, extents and sizes are Dims in attributes. This pass computes them. The
// symbols of a Dim come from the shapes of tensors: where a variable's type has a bare symbol that
// nothing has bound yet, memory.shape_of reads it. As soon as symbols become known, one
// memory.invoke_shape computes every Dim that the rest of the block needs and that they suffice
// for, so a straight stretch costs a single call, usually at the function's entry.
//
// Where the values of a tensor decide extents, memory.read_extents names its elements: those that
// some Dim needs are read there (memory.read_scalar), and the next stretch begins.
//
// A branch's Dims are computed ahead of it too, unless computing could fail (broadcast, division, a
// product that overflows): then only on the path that needs them. A division by what only the run
// knows waits even longer, for whoever needs it: the check that the divisor is not 0 (a slice's
// step) stands ahead of that, and tells more than the division would. What a case of a match binds
// brings its symbols to that case alone.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "compiler/ir/builder.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::BlockBuilder;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::VarRef;

bool can_fail(const Dim& d) {
  for (const Dim::Term& t : d.terms())
    for (const Dim& atom : t.atoms)
      if (auto f = atom.as_application()) {
        if (f->function == Dim::Function::kBroadcast) return true;
        if ((f->function == Dim::Function::kFloorDiv || f->function == Dim::Function::kMod) &&
            !f->operands[1].as_constant())
          return true;
        for (const Dim& o : f->operands)
          if (can_fail(o)) return true;
      }
  return false;
}

namespace {

bool divides_by_symbols(const Dim& d) {
  for (const Dim::Term& t : d.terms())
    for (const Dim& atom : t.atoms)
      if (auto f = atom.as_application()) {
        if ((f->function == Dim::Function::kFloorDiv || f->function == Dim::Function::kMod) &&
            !f->operands[1].as_constant())
          return true;
        if (std::any_of(f->operands.begin(), f->operands.end(), divides_by_symbols)) return true;
      }
  return false;
}

// Whether computing with extents that tensors have could overflow. Multiples are taken not to,
// unless they are large: no tensor in memory has 2^39 elements along an axis.
bool may_overflow(const Dim& d) {
  constexpr int64_t kLargeFactor = int64_t{1} << 24;
  return std::ranges::any_of(d.terms(), [](const Dim::Term& t) {
    const bool large = t.coefficient > kLargeFactor || t.coefficient < -kLargeFactor;
    if (t.atoms.size() > 1 || (t.atoms.size() == 1 && large)) return true;
    return std::ranges::any_of(t.atoms, [](const Dim& atom) {
      auto f = atom.as_application();
      return f && std::ranges::any_of(f->operands, may_overflow);
    });
  });
}

// The Dims that an expression needs as scalars, in the order of its operands.
std::vector<Dim> needed(const Expr& e) {
  std::vector<Dim> out;
  if (e.kind != ExprKind::kCall) return out;
  if (e.op == "memory.alloc_storage") return {ir::attr<Dim>(e.attrs, "bytes")};
  if (e.op == "size") return {ir::attr<Dim>(e.attrs, "value")};
  if (e.op == "memory.alloc_tensor") out.push_back(ir::attr<Dim>(e.attrs, "offset"));
  if (e.op == "memory.row_view") out.push_back(ir::attr<Dim>(e.attrs, "row_bytes"));
  if (e.op == "memory.alloc_tensor" || e.op == "memory.row_view" || e.op == "memory.reshape")
    for (const Dim& d : ir::attr<std::vector<Dim>>(e.attrs, "shape")) out.push_back(d);
  return out;
}

// What a block needs. Symbols are read where they first appear, even if only a branch uses them in
// a Dim that may fail and so waits for that branch.
struct Wanted {
  std::set<Dim> dims;
  std::set<std::string> symbols;
};

struct Scope {
  std::unordered_map<Dim, Atom> values;  // symbols and computed Dims
  std::set<std::string> symbols;
};

class ShapeLowering {
 public:
  explicit ShapeLowering(PassContext& context) : context_(context) {}

  ir::FunctionRef lower(const ir::FunctionRef& f) {
    visit_bindings(*f->body, [&](const Binding& b) {
      if (b.value->op != "memory.read_extents") return;
      for (const std::string& s : ir::attr<std::vector<std::string>>(b.value->attrs, "symbols"))
        elements_.insert(s);
    });
    BlockBuilder b;
    Scope scope;
    const Wanted wanted = wanted_by(*f->body, false);
    for (const VarRef& p : f->parameters) learn(p, wanted, scope, b);
    auto copy = std::make_shared<ir::Function>(*f);
    lower_into(*f->body, scope, b);
    copy->body = b.finish(f->body->result);
    return copy;
  }

 private:
  // An element of a tensor may be anything, so that computing with it may overflow.
  bool is_element(const Dim& d) const {
    const std::set<std::string> symbols = d.symbols();
    return std::any_of(symbols.begin(), symbols.end(),
                       [&](const std::string& s) { return elements_.count(s) > 0; });
  }

  Wanted wanted_by(const Block& block, bool nested) const {
    Wanted out;
    for (const Binding& binding : block.bindings) {
      for (const Dim& d : needed(*binding.value)) {
        out.symbols.merge(d.symbols());
        if (d.as_constant() || divides_by_symbols(d)) continue;
        if (!(nested && (can_fail(d) || is_element(d) || may_overflow(d)))) out.dims.insert(d);
      }
      for (const ir::BlockRef& branch : ir::blocks_of(*binding.value)) {
        Wanted inner = wanted_by(*branch, true);
        out.dims.merge(inner.dims);
        out.symbols.merge(inner.symbols);
      }
    }
    return out;
  }

  VarRef scalar(BlockBuilder& b, ir::ExprRef e, const std::string& hint) {
    VarRef v = b.bind(std::move(e), hint);
    v->type = ir::scalar_type();
    return v;
  }

  // Reads the symbols that a variable's type introduces, if any wanted Dim needs them.
  void learn(const VarRef& v, const Wanted& wanted, Scope& scope, BlockBuilder& b) {
    if (!v->type) return;
    if (v->type->kind == ir::TypeKind::kTuple) return learn_fields(v, wanted, scope, b);
    const std::vector<Dim>& dims = v->type->dims;  // of other types: none
    bool any = false;
    for (const Dim& d : dims) {
      auto s = d.as_symbol();
      any |= s && wanted.symbols.count(*s) && !scope.symbols.count(*s);
    }
    if (!any) return;
    auto rank = static_cast<int64_t>(dims.size());
    VarRef shape = b.call("memory.shape_of", {v}, {{"rank", rank}}, v->name + "_shape");
    shape->type = ir::tuple_type(std::vector<ir::Type>(dims.size(), ir::scalar_type()));
    for (size_t i = 0; i < dims.size(); ++i) {
      auto s = dims[i].as_symbol();
      if (!s || !wanted.symbols.count(*s) || !scope.symbols.insert(*s).second) continue;
      scope.values[dims[i]] = scalar(b, ir::make_get_field(shape, static_cast<int64_t>(i)), *s);
    }
    compute(wanted.dims, scope, b);
  }

  // Reads the elements that memory.read_extents names, if any wanted Dim needs them.
  void learn_elements(const Expr& e, const Wanted& wanted, Scope& scope, BlockBuilder& b) {
    const auto& symbols = ir::attr<std::vector<std::string>>(e.attrs, "symbols");
    for (size_t i = 0; i < symbols.size(); ++i) {
      const std::string& s = symbols[i];
      if (!wanted.symbols.count(s) || !scope.symbols.insert(s).second) continue;
      scope.values[Dim::symbol(s)] =
          scalar(b,
                 ir::make_call("memory.read_scalar", {e.args[0]},
                               {{"index", static_cast<int64_t>(i)}, {"symbol", s}}, e.location),
                 s);
    }
    compute(wanted.dims, scope, b);
  }

  // Of a tuple, the tensors in it.
  void learn_fields(const VarRef& tuple, const Wanted& wanted, Scope& scope, BlockBuilder& b) {
    const std::vector<ir::Type>& fields = tuple->type->elements;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (!introduces(fields[i], wanted, scope)) continue;
      VarRef field = b.bind(ir::make_get_field(tuple, static_cast<int64_t>(i)), tuple->name);
      field->type = fields[i];
      learn(field, wanted, scope, b);
    }
  }

  static bool introduces(const ir::Type& t, const Wanted& wanted, const Scope& scope) {
    if (t->kind == ir::TypeKind::kTuple)
      return std::any_of(t->elements.begin(), t->elements.end(),
                         [&](const ir::Type& e) { return introduces(e, wanted, scope); });
    return std::any_of(t->dims.begin(), t->dims.end(), [&](const Dim& d) {
      auto s = d.as_symbol();
      return s && wanted.symbols.count(*s) && !scope.symbols.count(*s);
    });
  }

  // Computes every wanted Dim whose symbols are known and that is not computed yet.
  void compute(const std::set<Dim>& wanted, Scope& scope, BlockBuilder& b) {
    std::vector<Dim> ready;
    std::set<std::string> symbols;
    for (const Dim& d : wanted) {
      if (scope.values.count(d) || d.as_symbol()) continue;
      std::set<std::string> reads = d.symbols();
      bool known =
          std::includes(scope.symbols.begin(), scope.symbols.end(), reads.begin(), reads.end());
      if (!known) continue;
      ready.push_back(d);
      symbols.merge(reads);
    }
    if (ready.empty()) return;
    // Dims are ordered by address; text makes equal models equal files.
    std::sort(ready.begin(), ready.end(),
              [](const Dim& x, const Dim& y) { return x.str() < y.str(); });
    std::vector<Atom> args;
    std::vector<std::string> names(symbols.begin(), symbols.end());
    for (const std::string& s : names) args.push_back(scope.values.at(Dim::symbol(s)));
    VarRef values = b.call("memory.invoke_shape", std::move(args),
                           {{"results", ready}, {"symbols", names}}, "sizes");
    values->type = ir::tuple_type(std::vector<ir::Type>(ready.size(), ir::scalar_type()));
    for (size_t i = 0; i < ready.size(); ++i)
      scope.values[ready[i]] = scalar(b, ir::make_get_field(values, static_cast<int64_t>(i)), "d");
    context_.count("lower-shapes.stretches");
    context_.count("lower-shapes.extents", static_cast<int64_t>(ready.size()));
  }

  Atom value(const Dim& d, const Scope& scope, const Expr& e) const {
    if (auto c = d.as_constant()) return Atom::of(ir::Tensor::scalar_i64(*c));
    auto it = scope.values.find(d);
    if (it == scope.values.end())
      throw Error(Status::kUnsupported, e.location.str(),
                  fmt::format("the extent {} cannot be computed here: no tensor in scope has it "
                              "as an extent of its own",
                              d.str()),
                  "add an operand whose shape has that extent");
    return it->second;
  }

  // `bound`: what the case of a match binds for the block.
  ir::BlockRef lower_block(const Block& block, Scope scope, const std::vector<VarRef>& bound = {}) {
    BlockBuilder b;
    const Wanted wanted = wanted_by(block, false);
    compute(wanted.dims, scope, b);
    for (const VarRef& v : bound) learn(v, wanted, scope, b);
    lower_into(block, scope, b);
    return b.finish(block.result);
  }

  void lower_into(const Block& block, Scope& scope, BlockBuilder& b) {
    const Wanted wanted = wanted_by(block, false);
    for (auto at = block.bindings.begin(); at != block.bindings.end(); ++at) {
      const Binding& binding = *at;
      const Expr& e = *binding.value;
      auto now = std::make_shared<Expr>(e);
      const std::vector<Dim> dims = needed(e);
      if (std::any_of(dims.begin(), dims.end(), divides_by_symbols)) {
        // With those of the stretch up to the next check.
        std::set<Dim> late;
        for (auto next = at; next != block.bindings.end(); ++next) {
          if (!ir::blocks_of(*next->value).empty()) break;
          for (const Dim& d : needed(*next->value))
            if (divides_by_symbols(d)) late.insert(d);
        }
        compute(late, scope, b);
      }
      if (e.op == "memory.read_extents") {
        learn_elements(e, wanted, scope, b);
        continue;
      }
      if (e.kind == ExprKind::kIf) {
        now->then_block = lower_block(*e.then_block, scope);
        now->else_block = lower_block(*e.else_block, scope);
      } else if (e.kind == ExprKind::kMatch) {
        for (ir::MatchCase& c : now->cases)
          c.body = lower_block(*c.body, scope, ir::variables_of(c.pattern));
      } else if (e.kind == ExprKind::kCall && e.op == "size") {
        now->kind = ExprKind::kAtom;
        now->op.clear();
        now->args = {value(ir::attr<Dim>(e.attrs, "value"), scope, e)};
        now->attrs.clear();
      } else {
        for (const Dim& d : dims) now->args.push_back(value(d, scope, e));
      }
      b.append({binding.var, now});
      // A tensor allocated here has extents that were computed; others may bring new ones.
      if (e.kind != ExprKind::kCall || e.callee) learn(binding.var, wanted, scope, b);
    }
  }

  PassContext& context_;
  std::set<std::string> elements_;  // symbols that memory.read_extents names
};

}  // namespace

ir::Module lower_shapes(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) f = ShapeLowering(context).lower(f);
  return out;
}

}  // namespace nimble::passes
