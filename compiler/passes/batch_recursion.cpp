// Batches recursion over data types: what Cortex (MLSys 2021) and ACRoBat (MLSys 2024) do for
// recursive models.
//
// A function that recurses over a tree computes one node at a time, with matrices that hardly get
// used before the next node asks for them again. Nodes of one height do not depend on each other:
//
//   fn @f(%t: Tree, %w) -> Tensor[(1, 150), f32] {        fn @f.batched(%t: Tree, %w) {
//     match (%t) {                                          order = linearise(%t)
//       Leaf(%x) => { tanh(matmul(%x, %w)) }                states = @f.steps(0, order, zeros, %w)
//       Node(%l, %r) => { add(@f(%l, %w), @f(%r, %w)) }     last row of states
//     }                                                   }
//   }
//   fn @f.steps(%i, order…, %states, %w) {      for each step, by its kind:
//     Leaf: new = tanh(matmul(stack of all %x, %w))
//     Node: new = add(gather(%states, rows of %l), gather(%states, rows of %r))
//     @f.steps(%i + 1, order…, %states with the step's rows replaced by new, %w)
//   }
//
// linearise (vm/library/linearise.cpp) finds the calls that the recursion would make and their
// order; a shared part of a DAG is computed once. The bodies' batched forms are
// batch_operators.cpp's work. The states have a row for every task, written in place.
//
// What is batched: a function, or several that call each other, each of which
//   matches on one parameter of a data type, which the recursion takes apart;
//   hands its other parameters on unchanged;
//   returns tensors of static shapes (a tensor, or a tuple of tensors);
//   computes straight on from the results of calls on fields and from tensors in fields, whose
//   shapes are static.
// Anything else stays as it is.
//
// Several inputs. A function that walks along a list of trees and calls a batched one on each is
// run behind the steps of all of them: it takes the rows that its elements' calls ended in. So the
// trees of a batch share their steps.
//
// Whether it is faster, the value decides: a list has as many steps as calls, so there is nothing
// to gain, and the plain recursion runs. It also stays for callers that hold the function's value.
#include <algorithm>
#include <map>
#include <set>

#include "compiler/ir/builder.h"
#include "compiler/ir/substitute.h"
#include "compiler/passes/analysis/batch_recursion_group.h"
#include "compiler/passes/batch_operators.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::BlockBuilder;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Type;
using ir::VarRef;
using Dims = std::vector<Dim>;

// Batching pays where calls outnumber steps by this much (in quarters).
constexpr int64_t kLeastGain = 6;

// The results of so many tasks, a row each.
Type state_type(const Type& result, const Dim& rows) {
  return ir::tensor_type(stacked_dims(result, rows), result->dtype);
}

// The result in a row of such a tensor.
VarRef result_in(const VarRef& states, const Atom& row, const Type& result, BlockBuilder& b,
                 const std::string& hint) {
  if (!can_merge(result)) return b.call("take_row", {states, row}, {}, hint);
  return b.call("take_rows", {states, row}, {{"count", Dim(1)}}, hint);
}

// Makes the two functions of a group.
class Generator {
 public:
  Generator(const ir::Module& m, const RecursionGroup& g) : module_(m), group_(g) {
    const Member& root = g.members()[0];
    batched_ = unused(root.name + ".batched");
    steps_ = unused(root.name + ".steps");
    rows_of_ = unused(root.name + ".rows");
    // Names of symbols that the root's parameters do not have.
    std::set<std::string> taken;
    for (const VarRef& p : root.f->parameters)
      for (const Dim& d : p->type->dims) taken.merge(d.symbols());
    const auto symbol = [&](std::string name) {
      while (taken.count(name)) name += ".";
      taken.insert(name);
      return name;
    };
    step_count_ = symbol("steps");
    visits_ = symbol("visits");
    for (size_t k = 0; k < g.cases().size(); ++k)
      counts_.push_back(symbol(fmt::format("tasks{}", k)));
    kind_ = symbol("kind");
    count_ = symbol("count");
    first_ = symbol("first");
    done_ = symbol("done");
    for (size_t i = 0; i < state_types().size(); ++i)
      rows_.push_back(symbol(fmt::format("rows{}", i)));
  }

  const std::string& name() const { return batched_; }

  void run(ir::Module* out) {
    const ir::FunctionRef steps = make_steps();
    out->set(batched_, make_batched());
    out->set(steps_, steps);
    if (group_.members()[0].collects) out->set(rows_of_, make_rows_of());
  }

 private:
  std::string unused(const std::string& wanted) const {
    std::string name = wanted;
    for (int i = 1; module_.find(name); ++i) name = wanted + std::to_string(i);
    return name;
  }

  Dims counts() const {
    Dims out;
    for (const std::string& s : counts_) out.push_back(Dim::symbol(s));
    return out;
  }
  // All results of all members: what the steps fill.
  std::vector<Type> state_types() const {
    std::vector<Type> out;
    for (const Member& m : group_.members())
      out.insert(out.end(), m.results.begin(), m.results.end());
    return out;
  }
  size_t first_state(size_t member) const {
    size_t n = 0;
    for (size_t i = 0; i < member; ++i) n += group_.members()[i].results.size();
    return n;
  }
  Type steps_result() const {
    std::vector<Type> out;
    for (const Type& t : state_types()) out.push_back(state_type(t, Dim::any()));
    return ir::tuple_type(std::move(out));
  }

  // Whether the steps read this parameter of the root.
  bool is_read(size_t parameter) const {
    for (const Member& m : group_.members())
      for (size_t i = 0; !m.collects && i < m.invariant.size(); ++i)
        if (i != m.data && m.invariant[i] == parameter) return true;
    return false;
  }
  // The case with which a collecting root goes on, and which part of the order its calls are.
  struct GoingOn {
    size_t kind = 0, part = 1;
  };
  GoingOn going_on() const {
    GoingOn out;
    while (group_.schema().kinds[out.kind].calls.empty()) ++out.kind;  // its cases come first
    return out;
  }

  ir::FunctionRef make_batched() const {
    const Member& root = group_.members()[0];
    std::vector<VarRef> parameters;
    std::vector<Atom> all;
    for (const VarRef& p : root.f->parameters) {
      parameters.push_back(ir::make_var(p->name, p->type, p->location));
      all.push_back(parameters.back());
    }
    const Atom value = all[root.data];
    const ir::Attrs schema = {{"schema", group_.schema().encode()}};
    BlockBuilder b;
    const VarRef counted = b.call("count.linearise", {value}, schema, "counts", root.f->location);
    std::vector<std::string> symbols = {step_count_, visits_};
    symbols.insert(symbols.end(), counts_.begin(), counts_.end());
    b.call("read_extents", {counted}, {{"symbols", symbols}, {"sizes", true}}, "counts");
    const VarRef visits = b.call("size", {}, {{"value", Dim(4) * Dim::symbol(visits_)}}, "visits");
    const VarRef steps =
        b.call("size", {}, {{"value", Dim(kLeastGain) * Dim::symbol(step_count_)}}, "steps");
    const VarRef pays = b.call("greater_equal", {visits, steps}, {}, "pays");
    BlockBuilder batched, plain;
    const VarRef result = b.bind(
        ir::make_if(pays, batched.finish(run_steps(value, all, schema, batched)),
                    plain.finish(plain.bind(
                        ir::make_call_function(Atom::of_global(root.name), all, root.f->location),
                        "plain"))),
        "result");
    return ir::make_function_of(std::move(parameters), b.finish(result), root.f->result_type,
                                root.f->attrs, root.f->location);
  }

  Atom run_steps(const Atom& value, const std::vector<Atom>& all, ir::Attrs attrs,
                 BlockBuilder& b) const {
    const Member& root = group_.members()[0];
    attrs["steps"] = Dim::symbol(step_count_);
    attrs["counts"] = counts();
    const VarRef order = b.call("linearise", {value}, attrs, "order", root.f->location);
    const size_t parts = ir::type_of_linearise(group_.schema(), 0, counts())->elements.size();
    std::vector<Atom> args = {Atom::of(ir::Tensor::scalar_i64(0))};
    for (size_t i = 0; i < parts; ++i)
      args.push_back(b.bind(ir::make_get_field(order, static_cast<int64_t>(i)), "part"));
    for (size_t m = 0; m < group_.members().size(); ++m) {
      Dim tasks = 0;
      for (size_t k = 0; k < group_.cases().size(); ++k)
        if (group_.cases()[k].member == m) tasks = tasks + Dim::symbol(counts_[k]);
      for (const Type& t : group_.members()[m].results)
        args.push_back(
            b.call("full", {},
                   {{"shape", state_type(t, tasks)->dims}, {"dtype", t->dtype}, {"value", 0.0}},
                   "states"));
    }
    for (size_t i = 0; i < all.size(); ++i)
      if (is_read(i)) args.push_back(all[i]);
    const VarRef states =
        b.bind(ir::make_call_function(Atom::of_global(steps_), args, root.f->location), "states");
    if (root.collects) return collect(all, order, states, b);
    // The root's row is the last of its function.
    Dim last = -1;
    for (size_t k = 0; k < group_.cases().size(); ++k)
      if (group_.cases()[k].member == 0) last = last + Dim::symbol(counts_[k]);
    const VarRef row = b.call("size", {}, {{"value", last}}, "row");
    std::vector<Atom> results;
    for (size_t i = 0; i < root.results.size(); ++i) {
      const VarRef state = b.bind(ir::make_get_field(states, static_cast<int64_t>(i)), "state");
      results.push_back(result_in(state, row, root.results[i], b, "result"));
    }
    if (!root.tuple) return results[0];
    return b.bind(ir::make_tuple(std::move(results)), "results");
  }

  // Runs the collecting root behind the steps, from the first element on.
  Atom collect(const std::vector<Atom>& all, const VarRef& order, const VarRef& states,
               BlockBuilder& b) const {
    const GoingOn on = going_on();
    std::vector<Atom> args = all;
    args.push_back(b.call("size", {}, {{"value", Dim::symbol(counts_[on.kind]) - 1}}, "element"));
    for (size_t i = 0; i < group_.schema().kinds[on.kind].calls.size(); ++i)
      args.push_back(b.bind(ir::make_get_field(order, static_cast<int64_t>(on.part + i)), "rows"));
    for (size_t i = 0; i < rows_.size(); ++i)
      args.push_back(b.bind(ir::make_get_field(states, static_cast<int64_t>(i)), "state"));
    return b.bind(ir::make_call_function(Atom::of_global(rows_of_), args), "results");
  }

  // The collecting root, told which element it is at, where its elements' results stand, and these.
  ir::FunctionRef make_rows_of() const {
    const Member& root = group_.members()[0];
    const GoingOn on = going_on();
    const RecursionSchema::Kind& kind = group_.schema().kinds[on.kind];
    auto f = std::make_shared<ir::Function>(*ir::substitute(*root.f, {}));
    const VarRef element = ir::make_var("element", ir::tensor_type({}, DType::kI64));
    std::vector<VarRef> rows, states;
    for (size_t i = 0; i < kind.calls.size(); ++i)
      rows.push_back(
          ir::make_var("rows", ir::tensor_type({Dim::symbol(counts_[on.kind])}, DType::kI64)));
    const std::vector<Type> types = state_types();
    for (size_t i = 0; i < types.size(); ++i)
      states.push_back(ir::make_var("states", state_type(types[i], Dim::symbol(rows_[i]))));
    f->parameters.push_back(element);
    f->parameters.insert(f->parameters.end(), rows.begin(), rows.end());
    f->parameters.insert(f->parameters.end(), states.begin(), states.end());
    // The fields of the case that goes on, by the copy's variables.
    std::map<const ir::Var*, size_t> field;
    const Expr& match = *f->body->bindings.back().value;
    for (const ir::MatchCase& c : match.cases)
      for (size_t i = 0; i < c.pattern.fields.size(); ++i)
        if (c.pattern.fields[i].var) field[c.pattern.fields[i].var.get()] = i;
    Rewriter rewriter([&](const Binding& b, BlockBuilder& to) -> std::optional<Atom> {
      const auto callee = group_.member_called(*b.value);
      if (!callee) return std::nullopt;
      const Member& called = group_.members()[*callee];
      const auto& location = b.value->location;
      if (called.collects) {
        std::vector<Atom> args = b.value->args;
        const Atom one = Atom::of(ir::Tensor::scalar_i64(1));
        args.push_back(to.call("sub", {element, one}, {}, "element", location));
        args.insert(args.end(), rows.begin(), rows.end());
        args.insert(args.end(), states.begin(), states.end());
        to.append({b.var, ir::make_call_function(Atom::of_global(rows_of_), args, location)});
        return Atom(b.var);
      }
      const size_t at = field.at(b.value->args[called.data].var.get());
      const VarRef row =
          to.call("take_row", {rows[group_.call_index(on.kind, at, *callee)], element}, {}, "row",
                  location);
      std::vector<Atom> results;
      for (size_t i = 0; i < called.results.size(); ++i)
        results.push_back(
            result_in(states[first_state(*callee) + i], row, called.results[i], to, b.var->name));
      if (!called.tuple) return results[0];
      to.append({b.var, ir::make_tuple(std::move(results), location)});
      return Atom(b.var);
    });
    f->body = rewriter.rewrite(f->body);
    return f;
  }

  ir::FunctionRef make_steps() {
    const Member& root = group_.members()[0];
    std::vector<VarRef> parameters;
    const auto parameter = [&](const std::string& name, Type t) {
      parameters.push_back(ir::make_var(name, std::move(t), root.f->location));
      return parameters.back();
    };
    const VarRef i = parameter("i", ir::tensor_type({}, DType::kI64));
    const Type order = ir::type_of_linearise(group_.schema(), Dim::symbol(step_count_), counts());
    order_.clear();
    for (const Type& t : order->elements) order_.push_back(parameter("order", t));
    states_.clear();
    const std::vector<Type> types = state_types();
    for (size_t s = 0; s < types.size(); ++s)
      states_.push_back(parameter("states", state_type(types[s], Dim::symbol(rows_[s]))));
    invariants_.assign(root.f->parameters.size(), nullptr);
    for (size_t p = 0; p < root.f->parameters.size(); ++p)
      if (is_read(p))
        invariants_[p] = parameter(root.f->parameters[p]->name, root.f->parameters[p]->type);

    BlockBuilder b, done, more;
    const VarRef steps = b.call("size", {}, {{"value", Dim::symbol(step_count_)}}, "steps");
    const VarRef goes_on = b.call("less", {i, steps}, {}, "more");
    const VarRef step = more.call("take_row", {order_[0], i}, {}, "step");
    more.call(
        "read_extents", {step},
        {{"symbols", std::vector<std::string>{kind_, count_, first_, done_}}, {"sizes", true}},
        "step");
    const VarRef kind = more.call("size", {}, {{"value", Dim::symbol(kind_)}}, "kind");
    const VarRef next = more.call("add", {i, Atom::of(ir::Tensor::scalar_i64(1))}, {}, "next");
    const Atom states = dispatch(0, kind, next, more);
    const ir::BlockRef go_on = more.finish(states);
    const VarRef result = b.bind(
        ir::make_if(
            goes_on, go_on,
            done.finish(done.bind(ir::make_tuple({states_.begin(), states_.end()}), "states"))),
        "result");
    return ir::make_function_of(std::move(parameters), b.finish(result), steps_result(), {},
                                root.f->location);
  }

  // if kind is k … else if … else the last one.
  Atom dispatch(size_t k, const VarRef& kind, const VarRef& next, BlockBuilder& b) {
    if (k + 1 == group_.cases().size()) return step_of(k, next, b);
    const VarRef is = b.call(
        "equal", {kind, Atom::of(ir::Tensor::scalar_i64(static_cast<int64_t>(k)))}, {}, "is");
    BlockBuilder yes, no;
    const Atom then = step_of(k, next, yes);
    const Atom otherwise = dispatch(k + 1, kind, next, no);
    return b.bind(ir::make_if(is, yes.finish(then), no.finish(otherwise)), "states");
  }

  // The tasks of one step, then the rest of the steps.
  Atom step_of(size_t k, const VarRef& next, BlockBuilder& b) {
    const Case& c = group_.cases()[k];
    const Member& m = group_.members()[c.member];
    if (m.collects) return go_on(next, {states_.begin(), states_.end()}, b);
    const RecursionSchema::Kind& kind = group_.schema().kinds[k];
    // What calls nothing is all of one height: its fields are read as they are.
    const bool one_step = kind.calls.empty() && !kind.data.empty();
    const Dim tasks = Dim::symbol(counts_[k]), first = Dim::symbol(first_);
    const Dim count = one_step ? tasks : Dim::symbol(count_);
    size_t part = 1;
    for (size_t j = 0; j < k; ++j)
      part += group_.schema().kinds[j].calls.size() + group_.schema().kinds[j].data.size();
    const VarRef from = b.call("size", {}, {{"value", first}}, "first");
    const VarRef row = b.call("size", {}, {{"value", Dim::symbol(done_)}}, "row");
    const auto of_step = [&](size_t at) -> Atom {
      const VarRef& whole = order_[part + at];
      if (one_step) return whole;
      return b.call("take_rows", {whole, from}, {{"count", count}}, whole->name);
    };

    std::vector<Atom> rows(kind.calls.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = of_step(i);
    Batcher batcher(module_, count, &b, [&](const Expr& e) -> std::optional<Batched> {
      const auto callee = group_.member_called(e);
      if (!callee) return std::nullopt;
      const Member& to = group_.members()[*callee];
      const size_t field = c.field.at(e.args[to.data].var.get());
      return gathered(*callee, c.member, rows[group_.call_index(k, field, *callee)], b);
    });
    for (size_t p = 0; p < m.f->parameters.size(); ++p)
      if (p != m.data && m.invariant[p] != SIZE_MAX)
        batcher.define(m.f->parameters[p], {invariants_[m.invariant[p]], m.f->parameters[p]->type});
    for (size_t d = 0; d < kind.data.size(); ++d)
      for (const auto& p : c.source->pattern.fields)
        if (p.var && c.field.at(p.var.get()) == static_cast<size_t>(kind.data[d].field))
          batcher.define(p.var, {of_step(kind.calls.size() + d), p.var->type, true});
    batcher.bindings(*m.f->body, /*except=*/1);
    const Batched result = batcher.block(*c.source->body);

    std::vector<Atom> states;
    for (size_t s = 0; s < states_.size(); ++s) {
      const size_t mine = s - first_state(c.member);
      if (s < first_state(c.member) || mine >= m.results.size()) {
        states.push_back(states_[s]);
        continue;
      }
      if (result.is_tuple != m.tuple) throw NotBatchable{"a result of another form"};
      const Batched& value = m.tuple ? result.fields.at(mine) : result;
      if (value.is_tuple) throw NotBatchable{"a tuple in a tuple"};
      states.push_back(
          b.call("write_row", {states_[s], row, batcher.stacked(value)}, {}, "states"));
    }
    return go_on(next, std::move(states), b);
  }

  // The rest of the steps.
  Atom go_on(const VarRef& next, std::vector<Atom> states, BlockBuilder& b) const {
    std::vector<Atom> args = {next};
    args.insert(args.end(), order_.begin(), order_.end());
    args.insert(args.end(), states.begin(), states.end());
    for (const VarRef& v : invariants_)
      if (v) args.push_back(v);
    return b.bind(ir::make_call_function(Atom::of_global(steps_), std::move(args),
                                         group_.members()[0].f->location),
                  "states");
  }

  // The results of earlier steps that a call of this one, in a case of `caller`, asks for. They are
  // looked for in the rows that those filled alone: what this step fills is then no part of what it
  // reads, and can be written in place (write_through.cpp).
  Batched gathered(size_t callee, size_t caller, const Atom& rows, BlockBuilder& b) const {
    const Member& m = group_.members()[callee];
    Batched out;
    out.type = m.f->result_type;
    out.is_tuple = m.tuple;
    for (size_t i = 0; i < m.results.size(); ++i) {
      Batched field;
      field.type = m.results[i];
      field.batched = true;
      field.merged = can_merge(field.type);
      Atom from = states_[first_state(callee) + i];
      if (callee == caller)
        from = b.call("prefix", {from}, {{"count", Dim::symbol(done_)}}, "known");
      field.atom = b.call("gather", {from, rows}, {{"axis", int64_t{0}}}, "called");
      if (!m.tuple) return field;
      out.fields.push_back(std::move(field));
    }
    return out;
  }

  const ir::Module& module_;
  const RecursionGroup& group_;
  std::string batched_, steps_, rows_of_;                          // functions
  std::string step_count_, visits_, kind_, count_, first_, done_;  // symbols
  std::vector<std::string> counts_, rows_;
  std::vector<VarRef> order_, states_, invariants_;  // parameters of the steps
};

}  // namespace

ir::Module batch_recursion(const ir::Module& m, PassContext& context) {
  if (m.data_types.empty()) return m;
  const Recursion recursion(m);
  ir::Module out = m;
  std::map<std::string, std::string> batched;  // by the function that it replaces
  for (const auto& function : m.functions) {
    const std::string& name = function.first;
    if (!recursion.calls(name, name)) continue;
    // Only what is called from outside of its recursion.
    const bool entered =
        std::any_of(m.functions.begin(), m.functions.end(), [&](const auto& caller) {
          if (recursion.calls(name, caller.first)) return false;
          bool calls = false;
          visit_bindings(*caller.second->body, [&](const Binding& b) {
            calls |= b.value->kind == ExprKind::kCall && b.value->callee &&
                     b.value->callee->is_global() && b.value->callee->global == name;
          });
          return calls;
        });
    if (!entered) continue;
    bool done = false;
    for (const bool collects : {false, true}) {
      if (done) break;
      try {
        const RecursionGroup group(m, recursion, name, collects);
        Generator generator(m, group);
        generator.run(&out);
        batched[name] = generator.name();
        context.count(collects ? "batch-recursion.collectors" : "batch-recursion.functions");
        done = true;
      } catch (const NotBatchable&) {
      }
    }
    if (!done) context.count("batch-recursion.refused");
  }
  if (batched.empty()) return m;
  for (auto& [name, f] : out.functions) {
    if (!m.find(name)) continue;
    Rewriter rewriter(
        [&, caller = name](const Binding& b, BlockBuilder& to) -> std::optional<Atom> {
          const Expr& e = *b.value;
          if (e.kind != ExprKind::kCall || !e.callee || !e.callee->is_global()) return std::nullopt;
          const auto it = batched.find(e.callee->global);
          if (it == batched.end() || caller == it->first || recursion.calls(it->first, caller))
            return std::nullopt;
          auto call = std::make_shared<Expr>(e);
          call->callee = Atom::of_global(it->second);
          to.append({b.var, std::move(call)});
          return Atom(b.var);
        });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
