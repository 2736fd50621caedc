// Type inference.
//
// One forward pass per function computes each binding's type by its operator's relation (paper,
// section 3.1). Demands for equality of dims that relations make go one of four ways:
//   proved        nothing to do;
//   refuted       an Error at the operator's place;
//   refinable     at the top level of a function a symbol that was born from a parameter's `?`
//                 takes the other side's value, and the function is inferred anew: this is the
//                 backward direction. Each restart removes a symbol, so it ends;
//   else          an assert_shape node before the operator, and the equality is known from there.
// Inside a branch nothing refines (it may never run).
//
// A call matches argument types against parameter types, which binds the callee's symbols, and
// replaces them in the result type; so a function is polymorphic in its dims and a loop (a
// recursive function) may change them from step to step. A function without a declared result is
// inferred when first called; a recursive one must declare it. What a callee alone decides (a
// `?` or a symbol that no parameter binds) is a fresh symbol at each call.
//
// Next to types, inference carries the contents of small integer tensors as Dims: the chains
// Shape → Gather → Concat → Reshape of exported models keep every dim by it.
#include "compiler/ir/infer.h"

#include <algorithm>
#include <unordered_map>

#include "compiler/ir/builder.h"
#include "compiler/ir/infer_match.h"
#include "compiler/ir/op.h"

namespace nimble::ir {
namespace {

using Dims = std::vector<Dim>;

struct Refinement {  // thrown to restart a function
  std::string symbol;
  Dim value;
};

struct Demand {
  Dim left, right;
  std::string what;
};

struct Typed {
  ExprRef expr;
  Type type;
  std::optional<Dims> contents;
};

std::optional<Dims> constant_contents(const Tensor& t) {
  if (t.dtype != DType::kI64 && t.dtype != DType::kI32 && t.dtype != DType::kBool) return {};
  const int64_t n = t.elements();
  if (n > 64) return {};
  Dims out;
  for (int64_t i = 0; i < n; ++i) out.push_back(Dim(t.integer(i)));
  return out;
}

class ModuleInference {
 public:
  explicit ModuleInference(const Module& m) : module_(m) {
    for (const auto& [name, f] : m.functions) states_[name].original = f;
  }

  Module run() {
    Module out = module_;
    for (auto& [name, f] : out.functions) f = finished(name);
    return out;
  }

  struct Signature {
    std::vector<Type> parameters;
    Type result;
  };
  // What a call of the function sees; infers it first unless that is under way.
  Signature signature(const std::string& name, const Location& at) {
    auto it = states_.find(name);
    if (it == states_.end()) {
      throw Error(Status::kInvalidArgument, at.str(), fmt::format("there is no function @{}", name),
                  "define it in the module");
    }
    State& s = it->second;
    if (s.phase == Phase::kNew) finished(name);
    if (s.phase == Phase::kDone) {
      Signature sig;
      for (const VarRef& p : s.result->parameters) sig.parameters.push_back(p->type);
      sig.result = s.result->result_type;
      return sig;
    }
    if (!s.original->result_type) {
      throw Error(Status::kInvalidArgument, at.str(),
                  fmt::format("the recursive function @{} has no declared result type", name),
                  fmt::format("write fn @{}(…) -> TYPE", name));
    }
    return {s.parameter_types, substitute(s.original->result_type, s.refinements)};
  }

 private:
  enum class Phase { kNew, kBusy, kDone };
  struct State {
    FunctionRef original, result;
    Phase phase = Phase::kNew;
    std::vector<Type> parameter_types;  // as refined so far
    std::map<std::string, Dim> refinements;
  };
  FunctionRef finished(const std::string& name);

  const Module& module_;
  std::map<std::string, State> states_;
  std::vector<std::string> done_;  // in order of completion
};

class FunctionInference {
 public:
  FunctionInference(ModuleInference& module, std::string name, const Function& f,
                    const std::vector<Type>& parameter_types,
                    const std::map<std::string, Dim>& refinements)
      : module_(module), name_(std::move(name)), facts_(dim_context(f)), aliases_(refinements) {
    for (const Type& t : parameter_types) {
      symbols_of(t, known_);
      bare_symbols_of(t, bare_);
    }
  }

  FunctionRef run(const Function& f, const std::vector<Type>& parameter_types) {
    auto out = std::make_shared<Function>(f);
    for (size_t i = 0; i < f.parameters.size(); ++i) {
      out->parameters[i] = bind_parameter(f.parameters[i], parameter_types[i]);
    }
    auto [body, type] = infer_block(*f.body, f.result_type, "the result");
    out->body = body;
    out->result_type = type;
    return out;
  }

 private:
  // ------------------------------------------------------------------ scopes and atoms

  VarRef bind_parameter(const VarRef& old, const Type& type) {
    VarRef v = make_var(old->name, type, old->location);
    vars_[old.get()] = v;
    return v;
  }

  [[noreturn]] void fail(const Location& at, const std::string& problem,
                         const std::string& remedy) const {
    throw Error(Status::kInvalidArgument, at.str().empty() ? "@" + name_ : at.str(), problem,
                remedy);
  }

  Atom map_atom(const Atom& a, const Location& at) const {
    if (!a.is_var()) return a;
    auto it = vars_.find(a.var.get());
    if (it == vars_.end()) {
      fail(at, fmt::format("%{} is not defined here", a.var->name), "bind it before its use");
    }
    return Atom(it->second);
  }

  Type atom_type(const Atom& a, const Location& at) {
    if (!a.is_global()) return type_of(a);
    auto sig = module_.signature(a.global, at);
    return function_type(sig.parameters, sig.result);
  }

  const Dims* contents_of(const Atom& a) {
    if (a.is_var()) {
      auto it = contents_.find(a.var.get());
      return it == contents_.end() ? nullptr : &it->second;
    }
    if (!a.is_constant()) return nullptr;
    auto [it, added] = constants_.try_emplace(a.constant.get());
    if (added) it->second = constant_contents(*a.constant);
    return it->second ? &*it->second : nullptr;
  }

  Dim fresh() {
    const std::string s = fresh_symbol();
    known_.insert(s);
    born_.push_back(s);
    return Dim::symbol(s);
  }

  // --------------------------------------------------------------------------- demands

  // Solves left == right for a symbol of this function's `?` parameters.
  void refine(const Dim& left, const Dim& right) {
    if (depth_ > 0) return;
    const Dim d = facts_.simplify(left - right);
    std::optional<Refinement> best;
    for (const Dim::Term& t : d.terms()) {
      if (t.atoms.size() != 1 || (t.coefficient != 1 && t.coefficient != -1)) continue;
      auto s = t.atoms[0].as_symbol();
      if (!s || (*s)[0] != '?' || !bare_.contains(*s)) continue;
      const Dim value = (d - Dim(t.coefficient) * t.atoms[0]) * Dim(-t.coefficient);
      const std::set<std::string> others = value.symbols();
      const bool bound_at_entry = std::all_of(others.begin(), others.end(), [&](const auto& o) {
        return o != *s && bare_.contains(o);
      });
      if (bound_at_entry) best = Refinement{*s, value};
    }
    if (best) throw *best;
  }

  void demand(const Dim& left, const Dim& right, const std::string& what, const Location& at,
              std::vector<Demand>& unproved) {
    switch (facts_.equal(left, right)) {
      case Proof::kYes:
        return;
      case Proof::kNo:
        fail(at, fmt::format("{}: {} and {} differ", what, left.str(), right.str()),
             "make the extents equal");
      case Proof::kUnknown:
        refine(left, right);
        unproved.push_back({left, right, what});
        facts_.assume_equal(left, right);
        return;
    }
  }

  // Binds `operand` anew behind the run-time check of the demands.
  void assert_demands(Atom& operand, const Type& type, std::vector<Demand>& unproved,
                      const Location& at, BlockBuilder& out) {
    if (!type || type->kind != TypeKind::kTensor) {
      fail(
          at,
          fmt::format("{}: cannot prove {} = {}, and a {} value cannot be checked at run time",
                      unproved[0].what, unproved[0].left.str(), unproved[0].right.str(), str(type)),
          "annotate the tensors it is made of");
    }
    Dims left, right;
    std::string what;
    for (const Demand& d : unproved) {
      left.push_back(d.left);
      right.push_back(d.right);
      if (what.find(d.what) == std::string::npos) what += (what.empty() ? "" : "; ") + d.what;
    }
    unproved.clear();
    const auto simplify = [&](const Dim& d) { return facts_.simplify(d); };
    VarRef v =
        make_var(operand.is_var() ? operand.var->name : "checked", map_dims(type, simplify), at);
    if (const Dims* known = contents_of(operand)) {
      Dims simpler = *known;
      std::transform(simpler.begin(), simpler.end(), simpler.begin(), simplify);
      contents_[v.get()] = std::move(simpler);
    }
    out.append({v, make_call("assert_shape", {operand},
                             {{"left", left}, {"right", right}, {"what", what}}, at)});
    operand = Atom(v);
  }

  // The same for a call: on its first tensor argument.
  void assert_demands_of_call(Expr& call, const std::vector<Type>& types,
                              std::vector<Demand>& unproved, BlockBuilder& out) {
    if (unproved.empty()) return;
    std::optional<size_t> chosen;  // the first variable, or else a constant
    for (size_t i = 0; i < types.size(); ++i) {
      if (!types[i] || types[i]->kind != TypeKind::kTensor) continue;
      if (!chosen || (call.args[i].is_var() && !call.args[*chosen].is_var())) chosen = i;
    }
    const size_t i = chosen.value_or(0);
    NIMBLE_CHECK(i < types.size(), "a call without arguments demands nothing");
    assert_demands(call.args[i], types[i], unproved, call.location, out);
  }

  MatchContext match_context(const Location& at, std::vector<Demand>& unproved) {
    return {facts_,
            [this, &at, &unproved](const Dim& a, const Dim& b, const std::string& what) {
              demand(a, b, what, at, unproved);
            },
            [this] { return fresh(); },
            [this, &at](const std::string& problem, const std::string& remedy) {
              fail(at, problem, remedy);
            }};
  }

  // ------------------------------------------------------------------------ expressions

  // Of an assert_shape, the sides stay as written: simplified by what it asserts itself, a
  // second inference would find it trivial.
  Attrs map_attrs(const Attrs& attrs, bool simplify, const Location& at) {
    auto map = [&](const Dim& d) {
      if (d.is_any()) return d;
      Dim mapped = d.substitute(aliases_);
      if (simplify) mapped = facts_.simplify(mapped);
      for (const std::string& s : mapped.symbols()) {
        if (!known_.contains(s)) {
          fail(at, fmt::format("unknown symbol {} in an attribute", s),
               "use symbols of the parameters' types");
        }
      }
      return mapped;
    };
    Attrs out = attrs;
    for (auto& [name, value] : out) {
      if (auto* d = std::get_if<Dim>(&value)) *d = map(*d);
      if (auto* ds = std::get_if<Dims>(&value))
        std::transform(ds->begin(), ds->end(), ds->begin(), map);
    }
    return out;
  }

  Typed infer_op(const Expr& e, BlockBuilder& out) {
    const OpInfo* op = find_op(e.op);
    if (!op) fail(e.location, fmt::format("there is no operator {}", e.op), "see Ops.def");
    auto call = std::make_shared<Expr>(e);
    call->attrs = map_attrs(e.attrs, e.op != "assert_shape", e.location);
    if (std::string fault = check_call(*op, *call); !fault.empty()) fail(e.location, fault, "");
    std::vector<Type> inputs;
    for (Atom& a : call->args) {
      a = map_atom(a, e.location);
      inputs.push_back(atom_type(a, e.location));
      if (!inputs.back() || inputs.back()->kind != TypeKind::kTensor) {
        fail(e.location,
             fmt::format("operand {} of {} is {}, not a tensor", inputs.size(), e.op,
                         str(inputs.back())),
             "take a field of the tuple, or call the function");
      }
    }
    std::vector<Demand> unproved;
    RelationContext context{*call,
                            inputs,
                            facts_,
                            [&](size_t i) { return contents_of(call->args[i]); },
                            [&](const Dim& a, const Dim& b, const std::string& what) {
                              demand(a, b, fmt::format("{}: {}", e.op, what), e.location, unproved);
                            },
                            [this] { return fresh(); }};
    RelationResult r = op->relation(context);
    assert_demands_of_call(*call, inputs, unproved, out);
    Type type = map_dims(r.type, [&](const Dim& d) { return facts_.simplify(d); });
    if (r.contents) {
      for (Dim& d : *r.contents) d = facts_.simplify(d);
    }
    return {std::move(call), std::move(type), std::move(r.contents)};
  }

  Typed infer_call(const Expr& e, BlockBuilder& out) {
    auto call = std::make_shared<Expr>(e);
    std::vector<Type> parameters;
    Type result;
    std::set<std::string> rigid;
    call->callee = map_atom(*e.callee, e.location);
    std::string callee_name;
    if (e.callee->is_global()) {
      auto sig = module_.signature(e.callee->global, e.location);
      parameters = sig.parameters;
      result = sig.result;
      callee_name = "@" + e.callee->global;
    } else {
      const Type t = atom_type(*call->callee, e.location);
      callee_name = e.callee->is_var() ? "%" + e.callee->var->name : "a constant";
      if (!t || t->kind != TypeKind::kFunction) {
        fail(e.location, fmt::format("{} is {}, not a function", callee_name, str(t)),
             "call a function");
      }
      parameters.assign(t->elements.begin(), t->elements.end() - 1);
      result = t->elements.back();
      rigid = known_;
    }
    if (parameters.size() != e.args.size()) {
      fail(e.location,
           fmt::format("{} takes {} arguments, not {}", callee_name, parameters.size(),
                       e.args.size()),
           "pass one argument per parameter");
    }
    std::vector<Demand> unproved;
    const MatchContext context = match_context(e.location, unproved);
    // Plain symbols of all parameters bind before any dim is compared.
    std::map<std::string, Dim> bound;
    std::vector<Type> actual;
    for (size_t i = 0; i < parameters.size(); ++i) {
      call->args[i] = map_atom(e.args[i], e.location);
      actual.push_back(atom_type(call->args[i], e.location));
    }
    match_parameter(tuple_type(parameters), tuple_type(actual), rigid, bound,
                    fmt::format("the arguments of {}", callee_name), context);
    Type type = instantiate(result, rigid, bound, context);
    assert_demands_of_call(*call, actual, unproved, out);
    return {std::move(call), std::move(type), {}};
  }

  // A fused group: its parameters are the arguments, its symbols are ours.
  Typed infer_primitive(const Expr& e) {
    auto call = std::make_shared<Expr>(e);
    auto group = std::make_shared<Function>(*e.primitive);
    if (group->parameters.size() != e.args.size()) {
      fail(e.location, "a fused group has another number of arguments than parameters", "");
    }
    for (size_t i = 0; i < e.args.size(); ++i) {
      call->args[i] = map_atom(e.args[i], e.location);
      group->parameters[i] =
          bind_parameter(e.primitive->parameters[i], atom_type(call->args[i], e.location));
      if (const Dims* known = contents_of(call->args[i])) {
        contents_[group->parameters[i].get()] = Dims(*known);
      }
    }
    auto [body, type] = infer_nested(*e.primitive->body, nullptr);
    group->body = body;
    group->result_type = type;
    call->primitive = std::move(group);
    return {std::move(call), type, {}};
  }

  Typed infer_closure(const Expr& e) {
    auto literal = std::make_shared<Expr>(e);
    auto f = std::make_shared<Function>(*e.primitive);
    std::vector<Type> parameters;
    const std::set<std::string> outer = known_;
    for (VarRef& p : f->parameters) {
      if (!p->type)
        fail(e.location, fmt::format("parameter %{} has no type", p->name), "annotate it");
      const Type t = map_dims(
          p->type, [&](const Dim& d) { return d.is_any() ? fresh() : d.substitute(aliases_); });
      symbols_of(t, known_);
      parameters.push_back(t);
      p = bind_parameter(p, t);
    }
    auto [body, type] = infer_nested(*e.primitive->body, e.primitive->result_type);
    known_ = outer;
    f->body = body;
    f->result_type = type;
    literal->primitive = std::move(f);
    return {std::move(literal), function_type(std::move(parameters), type), {}};
  }

  Typed infer_if(const Expr& e) {
    auto node = std::make_shared<Expr>(e);
    node->args[0] = map_atom(e.args[0], e.location);
    const Type condition = atom_type(node->args[0], e.location);
    if (!condition || condition->kind != TypeKind::kTensor || condition->dtype != DType::kBool ||
        !condition->dims.empty()) {
      fail(e.location, fmt::format("the condition is {}, not Tensor[(), bool]", str(condition)),
           "compare scalars, or reduce the tensor");
    }
    auto [then_block, then_type] = infer_nested(*e.then_block, nullptr);
    auto [else_block, else_type] = infer_nested(*e.else_block, nullptr);
    node->then_block = then_block;
    node->else_block = else_block;
    std::vector<Demand> none;
    Type type = join(then_type, else_type, match_context(e.location, none));
    return {std::move(node), std::move(type), {}};
  }

  // A block that may not run: nothing refines in it, and what it asserts holds in it only.
  std::pair<BlockRef, Type> infer_nested(const Block& b, const Type& declared) {
    const DimContext outer = facts_;
    ++depth_;
    auto result = infer_block(b, declared, "the result");
    --depth_;
    facts_ = outer;
    return result;
  }

  Typed infer_expr(const Expr& e, const Type& previous, BlockBuilder& out) {
    switch (e.kind) {
      case ExprKind::kAtom: {
        Atom a = map_atom(e.args[0], e.location);
        const Dims* known = contents_of(a);
        Type t = atom_type(a, e.location);
        return {make_atom(a, e.location), std::move(t),
                known ? std::optional(*known) : std::nullopt};
      }
      case ExprKind::kCall:
        if (e.callee) return infer_call(e, out);
        if (e.primitive) return infer_primitive(e);
        if (e.op.starts_with("memory.")) return keep_lowered(e, previous);
        return infer_op(e, out);
      case ExprKind::kTuple: {
        auto tuple = std::make_shared<Expr>(e);
        std::vector<Type> types;
        for (Atom& a : tuple->args) {
          a = map_atom(a, e.location);
          types.push_back(atom_type(a, e.location));
        }
        return {std::move(tuple), tuple_type(std::move(types)), {}};
      }
      case ExprKind::kGetField: {
        Atom a = map_atom(e.args[0], e.location);
        const Type t = atom_type(a, e.location);
        if (!t || t->kind != TypeKind::kTuple) {
          fail(e.location, fmt::format("field {} of {}, which is no tuple", e.index, str(t)),
               "take fields of tuples only");
        }
        if (e.index < 0 || e.index >= static_cast<int64_t>(t->elements.size())) {
          fail(e.location, fmt::format("field {} of a tuple of {}", e.index, t->elements.size()),
               "fields count from 0");
        }
        return {
            make_get_field(a, e.index, e.location), t->elements[static_cast<size_t>(e.index)], {}};
      }
      case ExprKind::kIf:
        return infer_if(e);
      case ExprKind::kFunction:
        return infer_closure(e);
      case ExprKind::kConstruct:
      case ExprKind::kMatch:
      case ExprKind::kClosure:
        fail(e.location, "data types are not supported yet", "use tuples and if");
    }
    NIMBLE_UNREACHABLE("expression kind");
  }

  Typed keep_lowered(const Expr& e, const Type& previous) {
    auto call = std::make_shared<Expr>(e);
    for (Atom& a : call->args) a = map_atom(a, e.location);
    if (!previous) fail(e.location, fmt::format("{} has no type", e.op), "lowering must set it");
    return {std::move(call), previous, {}};
  }

  // ----------------------------------------------------------------------------- blocks

  // Reconciles what was inferred with what is declared: an unbound symbol of the declaration
  // names the dim; everything else is a demand. Returns the names for symbols that were born
  // since `first_born`, so that a second inference of a printed program gives the same text.
  std::map<std::string, Dim> reconcile(const Type& declared, const Type& inferred,
                                       const std::string& what, const Location& at,
                                       size_t first_born, std::vector<Demand>& unproved) {
    std::map<std::string, Dim> renamed;
    if (!declared) return renamed;
    std::map<std::string, Dim> bound;
    const std::set<std::string> rigid = known_;
    const Type target =
        map_dims(declared, [&](const Dim& d) { return d.is_any() ? d : d.substitute(aliases_); });
    match_parameter(target, inferred, rigid, bound, what, match_context(at, unproved));
    for (const auto& [name, dim] : bound) {
      auto s = dim.as_symbol();
      const bool born_here = s && std::find(born_.begin() + static_cast<int64_t>(first_born),
                                            born_.end(), *s) != born_.end();
      if (born_here && !renamed.contains(*s)) {
        renamed[*s] = Dim::symbol(name);
        facts_.set(name, facts_.facts(*s));
        known_.insert(name);
      } else {
        aliases_[name] = s && renamed.contains(*s) ? renamed[*s] : dim;
      }
    }
    return renamed;
  }

  std::pair<BlockRef, Type> infer_block(const Block& b, const Type& declared,
                                        const std::string& what) {
    BlockBuilder out;
    for (const Binding& binding : b.bindings) {
      const Location& at = binding.value->location;
      const size_t first_born = born_.size();
      Typed t;
      try {
        t = infer_expr(*binding.value, binding.var->type, out);
      } catch (const Error& e) {
        if (!e.place().empty()) throw;
        throw Error(e.status(), fmt::format("@{}:%{}", name_, binding.var->name), e.problem(),
                    e.remedy());
      }
      std::vector<Demand> unproved;
      const auto renamed = reconcile(binding.var->type, t.type,
                                     fmt::format("the annotation of %{}", binding.var->name), at,
                                     first_born, unproved);
      VarRef v = make_var(binding.var->name, substitute(t.type, renamed), binding.var->location);
      out.append({v, t.expr});
      if (t.contents) {
        for (Dim& d : *t.contents) d = d.substitute(renamed);
        contents_[v.get()] = std::move(*t.contents);
      }
      if (!unproved.empty()) {
        Atom checked(v);
        assert_demands(checked, v->type, unproved, at, out);
        v = checked.var;
      }
      vars_[binding.var.get()] = v;
    }
    Location at;
    if (!b.bindings.empty()) at = b.bindings.back().value->location;
    Atom result = map_atom(b.result, at);
    Type type = atom_type(result, at);
    std::vector<Demand> unproved;
    reconcile(declared, type, what, at, born_.size(), unproved);
    if (!unproved.empty()) {
      assert_demands(result, type, unproved, at, out);
      type = result.var->type;
    }
    return {out.finish(result), type};
  }

  ModuleInference& module_;
  std::string name_;
  DimContext facts_;
  std::map<std::string, Dim> aliases_;           // refinements, and symbols that annotations named
  std::set<std::string> known_;                  // symbols with a meaning here
  std::set<std::string> bare_;                   // of them, those that a parameter's dim binds
  std::unordered_map<const Var*, VarRef> vars_;  // of the input module → of the result
  std::unordered_map<const Var*, Dims> contents_;
  std::unordered_map<const Tensor*, std::optional<Dims>> constants_;
  std::vector<std::string> born_;  // fresh symbols in order of birth
  int depth_ = 0;                  // of blocks that may not run
};

FunctionRef ModuleInference::finished(const std::string& name) {
  State& s = states_.at(name);
  if (s.phase == Phase::kDone) return s.result;
  s.phase = Phase::kBusy;
  const Function& f = *s.original;
  std::set<std::string> all, bare;
  for (const VarRef& p : f.parameters) {
    if (!p->type) {
      throw Error(Status::kInvalidArgument, f.location.str(),
                  fmt::format("parameter %{} of @{} has no type", p->name, name), "annotate it");
    }
    s.parameter_types.push_back(map_dims(
        p->type, [](const Dim& d) { return d.is_any() ? Dim::symbol(fresh_symbol()) : d; }));
    symbols_of(s.parameter_types.back(), all);
    bare_symbols_of(s.parameter_types.back(), bare);
  }
  for (const std::string& symbol : all) {
    if (bare.contains(symbol)) continue;
    throw Error(Status::kInvalidArgument, f.location.str(),
                fmt::format("no parameter of @{} binds the symbol {}", name, symbol),
                fmt::format("give some parameter the plain dim {}", symbol));
  }
  const size_t done_before = done_.size();
  while (true) {
    try {
      FunctionInference inference(*this, name, f, s.parameter_types, s.refinements);
      s.result = inference.run(f, s.parameter_types);
      break;
    } catch (const Refinement& r) {
      const std::map<std::string, Dim> step = {{r.symbol, r.value}};
      for (Type& t : s.parameter_types) t = substitute(t, step);
      for (auto& [symbol, value] : s.refinements) value = value.substitute(step);
      s.refinements[r.symbol] = r.value;
      // Functions that were inferred meanwhile may call this one: they saw its old signature.
      for (; done_.size() > done_before; done_.pop_back()) {
        states_[done_.back()].phase = Phase::kNew;
        states_[done_.back()].parameter_types.clear();
        states_[done_.back()].refinements.clear();
      }
    }
  }
  s.phase = Phase::kDone;
  done_.push_back(name);
  return s.result;
}

}  // namespace

Module infer_types(const Module& m) {
  return ModuleInference(m).run();
}

DimContext dim_context(const Function& f) {
  DimContext facts;
  static constexpr std::string_view kPrefix = "range.";
  for (const auto& [name, value] : f.attrs) {
    const auto* v = std::get_if<std::vector<int64_t>>(&value);
    if (!name.starts_with(kPrefix) || !v || v->size() < 2) continue;
    facts.set(name.substr(kPrefix.size()), {(*v)[0], (*v)[1], v->size() > 2 ? (*v)[2] : 1});
  }
  return facts;
}

}  // namespace nimble::ir
