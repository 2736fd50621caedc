// Runs all steps of a loop over a recurrent cell as one operator, where the GPU has a kernel for
// it.
//
//   fn @lstm(%step, %x: (n, b, 4h), %y: (n, b, h), %h, %c) -> (y, h, c) {
//     if (step < n) { h', c' = lstm_cell(take_row(x, step), h, c, R);
//                     @lstm(step + 1, x, write_row(y, step, h'), h', c') } else { (y, h, c) }
//   }
//   @lstm(0, xs, ys, hs, cs)   ->   lstm_steps(xs, hs, cs, R) {reverse = false}
//
// and the same backwards, from n - 1 down while 0 <= step. Nothing else may be in the loop: what
// importers write, and what hoist-projections leaves of a loop that a user wrote. All rows of y are
// written, so what it was does not matter; a loop may do without it. A kernel of all steps keeps
// the weights on chip (templates/gpu_recurrent_steps.cpp), which a launch for each step cannot.
//
// It stands behind what narrows weights: they are as the cell reads them. A CPU does better with
// the loop (templates/recurrent_steps.cpp).
#include <map>

#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/has_kernel.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Type;
using ir::VarRef;

// What a result of the loop is, and which parameter it was so far.
enum class Role { kY, kH, kC };

struct Loop {
  const ir::OpInfo* steps = nullptr;  // the operator of all steps
  ir::Attrs attrs;
  size_t step = 0, x = 0, h = 0;  // parameters
  std::optional<size_t> c, y;
  std::vector<Atom> others;  // weights and bias: constants, or parameters that stay
  bool reverse = false;
  std::vector<Role> results;
  bool tuple = false;
};

bool is_call(const Expr* e, std::string_view op) {
  return e && e->kind == ExprKind::kCall && !e->callee && !e->primitive && e->op == op;
}

bool is_integer(const Atom& a, int64_t value) {
  return a.is_constant() && a.constant->elements() == 1 && a.constant->shape.empty() &&
         !is_float(a.constant->dtype) && a.constant->value(0) == static_cast<double>(value);
}

// A tensor's first extent.
std::optional<Dim> rows_of(const Atom& a) {
  const Type t = ir::type_of(a);
  if (!t || t->kind != ir::TypeKind::kTensor || t->dims.empty()) return {};
  return t->dims[0];
}

// Whether `a` is `d`, and so is the extent of that attribute.
bool is_extent(const Definitions& d, const Atom& a, const Dim& extent) {
  if (const auto number = extent.as_constant(); number && is_integer(a, *number)) return true;
  const Expr* size = definition(d, a, "size");
  return size && ir::attr<Dim>(size->attrs, "value") == extent;
}

const ir::OpInfo* steps_of_cell(const std::string& cell) {
  for (const ir::OpInfo& op : ir::all_ops())
    if (op.traits.steps_of && cell == op.traits.steps_of) return &op;
  return nullptr;
}

class LoopMatcher {
 public:
  LoopMatcher(const std::string& name, const ir::Function& f)
      : name_(name), f_(f), d_(definitions_of(f)) {}

  std::optional<Loop> match() {
    if (!f_.type_variables.empty()) return {};
    const Expr* branch = find(*f_.body, f_.body->result);
    if (!branch || branch->kind != ExprKind::kIf) return {};
    if (!match_step(*branch->then_block) || !match_end(*branch->else_block) ||
        !match_condition(branch->args[0]))
      return {};
    // Nothing is left that would be lost.
    return used_ == bindings_of(*f_.body) ? std::optional(loop_) : std::nullopt;
  }

 private:
  static size_t bindings_of(const ir::Block& b) {
    size_t n = 0;
    visit_bindings(b, [&](const Binding& binding) { n += !is_call(binding.value.get(), "size"); });
    return n;
  }
  // The binding of a variable in a block, which is noted as used.
  const Expr* find(const ir::Block& b, const Atom& a) {
    if (!a.is_var()) return nullptr;
    for (const Binding& binding : b.bindings)
      if (binding.var == a.var) return ++used_, binding.value.get();
    return nullptr;
  }
  std::optional<size_t> parameter(const Atom& a) const {
    if (a.is_var())
      for (size_t i = 0; i < f_.parameters.size(); ++i)
        if (f_.parameters[i] == a.var) return i;
    return {};
  }
  bool stays(const Expr& rest, size_t i) const { return parameter(rest.args[i]) == i; }

  bool match_step(const ir::Block& b) {
    const Expr* rest = find(b, b.result);
    if (!rest || !calls_function(*rest, name_) || rest->args.size() != f_.parameters.size())
      return false;
    // The cell is the one operator that has such a twin.
    const Binding* cell = nullptr;
    for (const Binding& binding : b.bindings)
      if (binding.value->kind == ExprKind::kCall && !binding.value->op.empty() &&
          steps_of_cell(binding.value->op)) {
        if (cell) return false;
        cell = &binding;
      }
    if (!cell) return false;
    ++used_;
    const Expr& call = *cell->value;
    const ir::CellOperands& operands = *ir::traits_of(call).cell;
    loop_.steps = steps_of_cell(call.op);
    loop_.attrs = call.attrs;

    const Expr* row = find(b, call.args[0]);
    if (!is_call(row, "take_row")) return false;
    const auto x = parameter(row->args[0]), step = parameter(row->args[1]);
    const auto h = parameter(call.args[1]);
    const auto c = operands.c ? parameter(call.args[*operands.c]) : std::nullopt;
    if (!x || !step || !h || operands.c.has_value() != c.has_value()) return false;
    loop_.x = *x;
    loop_.step = *step;
    loop_.h = *h;
    loop_.c = c;
    for (size_t i = 2; i < call.args.size(); ++i) {
      if (i == operands.c) continue;
      const auto kept = parameter(call.args[i]);
      if (!call.args[i].is_constant() && (!kept || !stays(*rest, *kept))) return false;
      loop_.others.push_back(call.args[i]);
    }

    // The states of the next step; an LSTM's are fields.
    const auto state = [&](size_t parameter, int64_t field) {
      const Atom& next = rest->args[parameter];
      if (!operands.c) return next.is_var() && next.var == cell->var;
      const Expr* get = definition_of(next);
      return get && get->kind == ExprKind::kGetField && get->index == field &&
             get->args[0].is_var() && get->args[0].var == cell->var;
    };
    if (!state(loop_.h, 0) || (loop_.c && !state(*loop_.c, 1)) || !stays(*rest, loop_.x))
      return false;
    if (operands.c)
      for (const Binding& binding : b.bindings) used_ += binding.value->kind == ExprKind::kGetField;

    const Expr* next = find(b, rest->args[loop_.step]);
    if (!is_call(next, "add") && !is_call(next, "sub")) return false;
    loop_.reverse = is_call(next, "sub");
    if (parameter(next->args[0]) != loop_.step || !is_integer(next->args[1], 1)) return false;

    for (size_t i = 0; i < f_.parameters.size(); ++i) {
      if (i == loop_.x || i == loop_.step || i == loop_.h || loop_.c == i || stays(*rest, i))
        continue;
      const Expr* written = find(b, rest->args[i]);
      if (loop_.y || !is_call(written, "write_row")) return false;
      const Atom& value = written->args[2];
      const bool whole = parameter(written->args[0]) == i &&
                         parameter(written->args[1]) == loop_.step && value.is_var() &&
                         same_state(value, rest->args[loop_.h], *cell, operands);
      if (!whole || rows_of(f_.parameters[i]) != rows_of(f_.parameters[loop_.x])) return false;
      loop_.y = i;
    }
    return true;
  }

  // Whether `a` is h', of which there may be two fields.
  bool same_state(const Atom& a, const Atom& next, const Binding& cell,
                  const ir::CellOperands& operands) const {
    if (a.var == next.var) return true;
    const Expr* get = operands.c ? definition_of(a) : nullptr;
    return get && get->kind == ExprKind::kGetField && get->index == 0 && get->args[0].is_var() &&
           get->args[0].var == cell.var;
  }
  const Expr* definition_of(const Atom& a) const {
    const auto it = a.is_var() ? d_.find(a.var.get()) : d_.end();
    return it == d_.end() ? nullptr : it->second;
  }

  bool match_end(const ir::Block& b) {
    std::vector<Atom> results = {b.result};
    if (const Expr* tuple = find(b, b.result)) {
      if (tuple->kind != ExprKind::kTuple) return false;
      loop_.tuple = true;
      results = tuple->args;
    }
    for (const Atom& a : results) {
      const auto i = parameter(a);
      if (!i) return false;
      if (i == loop_.y)
        loop_.results.push_back(Role::kY);
      else if (i == loop_.h)
        loop_.results.push_back(Role::kH);
      else if (loop_.c && i == *loop_.c)
        loop_.results.push_back(Role::kC);
      else
        return false;
    }
    return true;
  }

  // step < n, or backwards step >= 0.
  bool match_condition(const Atom& a) {
    const Expr* more = find(*f_.body, a);
    if (!is_call(more, loop_.reverse ? "greater_equal" : "less")) return false;
    if (parameter(more->args[0]) != loop_.step) return false;
    if (loop_.reverse) return is_integer(more->args[1], 0);
    const auto n = rows_of(f_.parameters[loop_.x]);
    return n && is_extent(d_, more->args[1], *n);
  }

  const std::string& name_;
  const ir::Function& f_;
  const Definitions d_;
  Loop loop_;
  size_t used_ = 0;  // bindings that are understood
};

// Whether a call of the loop begins with the first of all steps.
bool begins(const Loop& loop, const Definitions& d, const Expr& call) {
  const Atom& first = call.args[loop.step];
  if (!loop.reverse) return is_integer(first, 0);
  const auto n = rows_of(call.args[loop.x]);
  if (!n) return false;
  if (is_extent(d, first, *n - 1)) return true;
  const Expr* less = definition(d, first, "sub");
  return less && is_extent(d, less->args[0], *n) && is_integer(less->args[1], 1);
}

// The call in place of the loop's, and the type of its result; nothing if extents differ that the
// loop would have found equal step by step.
struct Joined {
  ir::ExprRef call;
  Type type;
};
std::optional<Joined> joined(const Loop& loop, const Expr& e) {
  const Type x = ir::type_of(e.args[loop.x]), h = ir::type_of(e.args[loop.h]);
  if (!x || !h || x->kind != ir::TypeKind::kTensor || h->kind != ir::TypeKind::kTensor ||
      x->dims.size() != 3 || h->dims.size() != 2 || x->dims[1] != h->dims[0])
    return {};
  std::vector<Atom> args = {e.args[loop.x], e.args[loop.h]};
  std::vector<Type> results = {ir::tensor_type({x->dims[0], h->dims[0], h->dims[1]}, h->dtype), h};
  if (loop.c) {
    args.push_back(e.args[*loop.c]);
    const Type c = ir::type_of(args.back());
    if (!c || !ir::equal(c, h)) return {};
    results.push_back(c);
  }
  if (loop.y) {
    const Type y = ir::type_of(e.args[*loop.y]);
    if (!y || !ir::equal(y, results[0])) return {};
  }
  args.insert(args.end(), loop.others.begin(), loop.others.end());
  ir::Attrs attrs = loop.attrs;
  attrs["reverse"] = loop.reverse;
  return Joined{
      ir::make_call(std::string(loop.steps->name), std::move(args), std::move(attrs), e.location),
      ir::tuple_type(std::move(results))};
}

}  // namespace

ir::Module join_steps(const ir::Module& m, PassContext& context) {
  if (!context.gpu) return m;
  std::map<std::string, Loop> loops;
  for (const auto& [name, f] : m.functions)
    if (auto loop = LoopMatcher(name, *f).match()) loops.emplace(name, std::move(*loop));
  if (loops.empty()) return m;

  std::map<const ir::Function*, Definitions> definitions;
  const auto join = [&](const ir::Function& f, const Binding& b,
                        ir::BlockBuilder& out) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (e.kind != ExprKind::kCall || !e.callee || !e.callee->is_global()) return {};
    const auto found = loops.find(e.callee->global);
    if (found == loops.end() || m.find(found->first).get() == &f) return {};
    Loop loop = found->second;
    const auto [d, is_new] = definitions.try_emplace(&f);
    if (is_new) d->second = definitions_of(f);
    if (!begins(loop, d->second, e)) return {};
    // A parameter that stays is what the call has there.
    const ir::Function& callee = *m.find(found->first);
    for (Atom& a : loop.others)
      for (size_t i = 0; i < callee.parameters.size(); ++i)
        if (a.is_var() && a.var == callee.parameters[i]) {
          a = e.args[i];
          break;
        }
    const std::optional<Joined> all = joined(loop, e);
    if (!all) return {};
    std::vector<Type> operands;
    for (const Atom& a : all->call->args) operands.push_back(ir::type_of(a));
    const kernels::TargetInfo& target = context.target_in(f);
    if (!target.is_gpu() || !has_kernel(*all->call, operands, all->type, target, context))
      return {};

    context.count("join-steps.loops");
    const VarRef whole = out.bind(all->call, "steps");
    whole->type = all->type;
    std::vector<Atom> results;
    for (const Role role : loop.results) {
      const auto field = static_cast<int64_t>(role);
      const VarRef v = out.bind(ir::make_get_field(whole, field, e.location), "state");
      v->type = all->type->elements[static_cast<size_t>(field)];
      results.emplace_back(v);
    }
    if (!loop.tuple) return results[0];
    std::vector<Type> types;
    for (const Atom& a : results) types.push_back(ir::type_of(a));
    const VarRef tuple = out.bind(ir::make_tuple(std::move(results), e.location), "results");
    tuple->type = ir::tuple_type(std::move(types));
    return tuple;
  };
  return rewrite_module(m, FunctionHook(join));
}

}  // namespace nimble::passes
