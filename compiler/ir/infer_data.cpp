// Inference of functions and data types: calls, closures, constructors, match.
#include <algorithm>

#include "compiler/ir/infer_function.h"
#include "compiler/ir/match_check.h"

namespace nimble::ir {

// The signature with its type variables replaced by flexible ones, which are put in `variables`.
FunctionSignature FunctionInference::instance(FunctionSignature s,
                                              std::set<std::string>& variables) {
  if (s.type_variables.empty()) return s;
  std::map<std::string, Type> replacement;
  for (const std::string& name : s.type_variables) {
    const Type v = types_.fresh();
    variables.insert(v->name);
    replacement[name] = v;
  }
  for (Type& t : s.parameters) t = substitute_types(t, replacement);
  s.result = substitute_types(s.result, replacement);
  return s;
}

Typed FunctionInference::infer_call(const Expr& e, BlockBuilder& out) {
  auto call = std::make_shared<Expr>(e);
  FunctionSignature callee;
  std::set<std::string> rigid, variables;
  call->callee = map_atom(*e.callee, e.location);
  std::string callee_name;
  if (e.callee->is_global()) {
    callee = instance(signatures_.signature(e.callee->global, e.location), variables);
    callee_name = "@" + e.callee->global;
  } else {
    const Type t = atom_type(*call->callee, e.location);
    callee_name = e.callee->is_var() ? "%" + e.callee->var->name : "a constant";
    if (!t || t->kind != TypeKind::kFunction) {
      fail(e.location, fmt::format("{} is {}, not a function", callee_name, types_.str(t)),
           "call a function");
    }
    callee.parameters.assign(t->elements.begin(), t->elements.end() - 1);
    callee.result = t->elements.back();
    rigid = known_;
  }
  if (callee.parameters.size() != e.args.size()) {
    fail(e.location,
         fmt::format("{} takes {} argument{}, not {}", callee_name, callee.parameters.size(),
                     callee.parameters.size() == 1 ? "" : "s", e.args.size()),
         "pass one argument per parameter");
  }
  const std::vector<Type> actual = operand_types(*call);
  if (!callee.result) throw Silent{};
  std::vector<Demand> unproved;
  const MatchContext context = match_context(e.location, unproved);
  // Plain symbols of all parameters bind before any dim is compared.
  std::map<std::string, Dim> bound;
  match_parameter(tuple_type(callee.parameters), tuple_type(actual), rigid, variables, bound,
                  fmt::format("argument {{}} of {}", callee_name), context);
  Type type = instantiate(callee.result, rigid, bound, context);
  assert_demands_of_call(*call, actual, unproved, out);
  return {std::move(call), std::move(type)};
}

Typed FunctionInference::infer_closure(const Expr& e) {
  auto literal = std::make_shared<Expr>(e);
  auto f = std::make_shared<Function>(*e.primitive);
  std::vector<Type> parameters;
  const std::set<std::string> outer = known_;
  std::set<std::string> bare;
  for (VarRef& p : f->parameters) {
    if (!p->type) {
      fail(e.location, fmt::format("parameter %{} has no type", p->name),
           fmt::format("annotate it: %{}: TYPE", p->name));
    }
    const Type named =
        map_dims(p->type, [&](const Dim& d) { return d.is_any() ? d : d.substitute(aliases_); });
    const Type t = map_direct_dims(named, [&](const Dim& d) { return d.is_any() ? fresh() : d; });
    symbols_of(t, known_);
    bare_symbols_of(t, bare);
    parameters.push_back(t);
    p = bind_parameter(p, t);
  }
  const std::set<std::string> inside = known_;
  for (const std::string& s : inside) {
    if (outer.contains(s) || bare.contains(s)) continue;
    known_ = outer;
    fail(e.location, fmt::format("no parameter of the closure binds the symbol {}", s),
         fmt::format("give some parameter the plain dim {}, or write ?", s));
  }
  Block_ body;
  try {
    body = infer_nested(*e.primitive->body, e.primitive->result_type);
  } catch (...) {
    known_ = outer;
    throw;
  }
  known_ = outer;
  f->body = body.first;
  f->result_type = body.second;
  closures_.push_back(f);
  literal->primitive = std::move(f);
  return {std::move(literal), function_type(std::move(parameters), body.second)};
}

// closure @f(%a): the captured values are the first arguments of @f.
Typed FunctionInference::infer_converted_closure(const Expr& e, BlockBuilder& out) {
  auto closure = std::make_shared<Expr>(e);
  std::set<std::string> variables;
  const FunctionSignature s =
      instance(signatures_.signature(e.callee->global, e.location), variables);
  const std::vector<Type> captured = operand_types(*closure);
  if (!s.result) throw Silent{};
  if (captured.size() > s.parameters.size()) {
    fail(e.location,
         fmt::format("the closure captures {} values, but @{} takes {} arguments", captured.size(),
                     e.callee->global, s.parameters.size()),
         "capture no more values than the function has parameters");
  }
  const auto split = s.parameters.begin() + static_cast<int64_t>(captured.size());
  std::vector<Demand> unproved;
  const MatchContext context = match_context(e.location, unproved);
  std::map<std::string, Dim> bound;
  match_parameter(tuple_type({s.parameters.begin(), split}), tuple_type(captured), {}, variables,
                  bound, fmt::format("captured value {{}} of @{}", e.callee->global), context);
  Type type = instantiate(function_type({split, s.parameters.end()}, s.result), {}, bound, context);
  assert_demands_of_call(*closure, captured, unproved, out);
  return {std::move(closure), std::move(type)};
}

Typed FunctionInference::infer_construct(const Expr& e, BlockBuilder& out) {
  auto value = std::make_shared<Expr>(e);
  const auto [data, tag] = signatures_.module().find_constructor(e.constructor);
  if (!data) {
    fail(e.location, fmt::format("there is no constructor {}", e.constructor),
         "define it in a data type");
  }
  const std::vector<Type>& fields = data->constructors[static_cast<size_t>(tag)].fields;
  if (fields.size() != e.args.size()) {
    fail(e.location,
         fmt::format("{} has {} field{}, not {}", e.constructor, fields.size(),
                     fields.size() == 1 ? "" : "s", e.args.size()),
         "give one value per field of its definition");
  }
  FunctionSignature s{data->variables, fields, nullptr};
  std::vector<Type> arguments;
  for (const std::string& v : data->variables) arguments.push_back(variable_type(v));
  s.result = data_type(data->name, std::move(arguments));
  std::set<std::string> variables;
  s = instance(std::move(s), variables);
  const std::vector<Type> actual = operand_types(*value);
  std::vector<Demand> unproved;
  const MatchContext context = match_context(e.location, unproved);
  std::map<std::string, Dim> bound;
  match_parameter(tuple_type(s.parameters), tuple_type(actual), {}, variables, bound,
                  fmt::format("field {{}} of {}", e.constructor), context);
  Type type = types_.resolve_all(s.result);
  assert_demands_of_call(*value, actual, unproved, out);
  return {std::move(value), std::move(type)};
}

// The pattern with new variables. What an annotation demands is checked in front of the body.
Pattern FunctionInference::bind_pattern(const Pattern& p, const Type& type, BlockBuilder& out) {
  Pattern bound = p;
  bound.fields.clear();
  const Type t = types_.resolve(type);
  switch (p.kind) {
    case Pattern::Kind::kWildcard:
      return bound;
    case Pattern::Kind::kVar: {
      const size_t first_born = born_.size();
      const Type direct =
          map_direct_dims(t, [&](const Dim& d) { return d.is_any() ? fresh() : d; });
      std::vector<Demand> unproved;
      const auto renamed =
          reconcile(p.var->type, direct, fmt::format("the annotation of %{}", p.var->name),
                    p.location, first_born, unproved);
      VarRef v =
          new_var(p.var->name, substitute(types_.resolve_all(direct), renamed), p.var->location);
      bound.var = v;
      if (!unproved.empty()) {
        Atom checked(v);
        assert_demands(checked, v->type, unproved, p.location, out);
        v = checked.var;
      }
      vars_[p.var.get()] = v;
      return bound;
    }
    case Pattern::Kind::kTuple:
      if (t->kind != TypeKind::kTuple || t->elements.size() != p.fields.size()) {
        fail(p.location,
             fmt::format("the pattern is a tuple of {}, the value is {}", p.fields.size(),
                         types_.str(t)),
             "write one pattern per field of the tuple");
      }
      for (size_t i = 0; i < p.fields.size(); ++i) {
        bound.fields.push_back(bind_pattern(p.fields[i], t->elements[i], out));
      }
      return bound;
    case Pattern::Kind::kConstructor:
      break;
  }
  const auto [data, tag] = signatures_.module().find_constructor(p.constructor);
  if (!data) {
    fail(p.location, fmt::format("there is no constructor {}", p.constructor),
         "define it in a data type");
  }
  std::map<std::string, Type> arguments;
  if (TypeSolutions::is_flexible(t)) {
    std::vector<Type> open;
    for (size_t i = 0; i < data->variables.size(); ++i) open.push_back(types_.fresh());
    types_.found[t->name] = data_type(data->name, open);
    return bind_pattern(p, t, out);
  }
  if (t->kind != TypeKind::kData || t->name != data->name) {
    fail(p.location,
         fmt::format("{} is a constructor of {}, the value is {}", p.constructor, data->name,
                     types_.str(t)),
         "match the constructors of the value's type");
  }
  for (size_t i = 0; i < data->variables.size() && i < t->elements.size(); ++i) {
    arguments[data->variables[i]] = t->elements[i];
  }
  const std::vector<Type>& fields = data->constructors[static_cast<size_t>(tag)].fields;
  if (fields.size() != p.fields.size()) {
    fail(p.location,
         fmt::format("{} has {} field{}, not {}", p.constructor, fields.size(),
                     fields.size() == 1 ? "" : "s", p.fields.size()),
         "write one pattern per field of its definition");
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    bound.fields.push_back(bind_pattern(p.fields[i], substitute_types(fields[i], arguments), out));
  }
  return bound;
}

Typed FunctionInference::infer_match(const Expr& e) {
  auto node = std::make_shared<Expr>(e);
  node->args[0] = map_atom(e.args[0], e.location);
  const Type value = atom_type(node->args[0], e.location);
  if (e.cases.empty()) {
    fail(e.location, "the match has no case", "write one case per constructor");
  }
  std::vector<Demand> none;
  Type type;
  bool faulty = false;
  for (MatchCase& c : node->cases) {
    const Location at = c.body->location.str().empty() ? e.location : c.body->location;
    const MatchContext context = match_context(at, none);
    const std::set<std::string> outside = known_;
    try {
      BlockBuilder out;
      ++depth_;  // what a pattern demands holds in its case only
      const DimContext facts = facts_;
      try {
        c.pattern = bind_pattern(c.pattern, value, out);
      } catch (...) {
        --depth_;
        facts_ = facts;
        throw;
      }
      --depth_;
      std::set<std::string> inner;
      auto [body, t] = infer_nested(*c.body, nullptr, &inner, std::move(out));
      facts_ = facts;
      std::set_difference(known_.begin(), known_.end(), outside.begin(), outside.end(),
                          std::inserter(inner, inner.end()));
      known_ = outside;
      c.body = body;
      const bool alone = node->cases.size() == 1;
      t = leave_block(t, inner, alone, context);
      type = type ? join(type, t, "a case", context) : t;
    } catch (const Silent&) {
      faulty = true;
    } catch (Fault& fault) {
      if (fault.at.str().empty()) fault.at = e.location;
      faults_.push_back(std::move(fault));
      faulty = true;
    }
    known_ = outside;
  }
  if (faulty) throw Silent{};
  const MatchFault fault =
      check_match(signatures_.module(), types_.resolve_all(value), node->cases);
  if (fault.too_complex) {
    fail(e.location, "the patterns are too complex to be checked", "split the match");
  }
  for (size_t i : fault.unreachable) {
    faults_.push_back({e.cases[i].pattern.location,
                       "the case is never reached: earlier cases take all its values",
                       "remove it, or move it up"});
  }
  if (fault.uncovered) {
    fail(e.location, fmt::format("no case for {}", *fault.uncovered),
         "add one, or a last case _ => { … }");
  }
  return {std::move(node), std::move(type)};
}

}  // namespace nimble::ir
