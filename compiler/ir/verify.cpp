// The IR verifier. It derives everything anew from the operator table and shares no code with
// inference. Its rules:
//   V1  function names are unique; every parameter and binding has a type without `?`
//   V2  a variable is bound exactly once in a module
//   V3  a variable is used only where its binding is visible
//   V4  a call names exactly one of operator, callee and group; what it names exists
//   V5  operand counts and attributes are those of the operator's row or the callee's type; axes
//       count from the front
//   V6  a binding's type is what the operator's relation, the callee, the tuple or the branches
//       give, dims provably equal
//   V7  what a relation demands is provable, or asserted before
//   V8  a condition is a bool scalar
//   V9  symbols of types and attributes are bound: by a parameter, or by the result of a branch
//       or call, whose extents only the run decides
//   V10 a function's result type is its body's
//   V11 a constructor exists and takes its fields, a more specific type or the same each
//   V12 the patterns of a match fit the value, and every value has a case
//   V13 a converted closure captures first arguments of its function, and leaves the rest
//   V14 type variables are those of the function or data type, data types exist and get their
//       arguments; constructors are unique; fields of data types name no symbols
//   V15 after device placement every value lies where it is read (verify_devices.cpp)
// Operators of the memory dialect have no relation: of V6 and V7 they are exempt. In a lowered
// module, one that has such operators, what an assert_shape promised has become code that nobody
// sees here: there dims must not be provably different.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ir/infer.h"
#include "compiler/ir/module_verifier.h"
#include "compiler/ir/verify_devices.h"

namespace nimble::ir {
namespace {

bool is_lowered(const Block& b) {
  return std::any_of(b.bindings.begin(), b.bindings.end(), [](const Binding& x) {
    if (x.value->op.starts_with("memory.")) return true;
    const auto inner = blocks_of(*x.value);
    return std::any_of(inner.begin(), inner.end(),
                       [](const BlockRef& i) { return is_lowered(*i); });
  });
}

}  // namespace

std::vector<std::string> ModuleVerifier::run() {
  data_types();
  lowered_ = std::any_of(module_.functions.begin(), module_.functions.end(),
                         [](const auto& f) { return is_lowered(*f.second->body); });
  std::set<std::string> names;
  for (const auto& [name, f] : module_.functions) {
    variables_ = f->type_variables;
    function_ = "@" + name;
    where_ = function_;
    if (!names.insert(name).second) fault("V1", "the function is defined twice");
    facts_ = given_ = dim_context(*f);
    symbols_.clear();
    visible_.clear();
    contents_.clear();
    function(*f, /*closed=*/true);
  }
  return std::move(faults_);
}

void ModuleVerifier::fault(const char* rule, const std::string& problem) {
  if (faults_.size() < 100) faults_.push_back(fmt::format("{}: {}: {}", where_, rule, problem));
}

void ModuleVerifier::data_types() {
  std::set<std::string> types, constructors;
  for (const DataType& d : module_.data_types) {
    where_ = "data " + d.name;
    if (!types.insert(d.name).second) fault("V14", "the data type is defined twice");
    for (const Constructor& c : d.constructors) {
      if (!constructors.insert(c.name).second)
        fault("V14", fmt::format("the constructor {} is defined twice", c.name));
      std::set<std::string> symbols;
      for (const Type& t : c.fields) {
        collect_symbols(t, symbols);
        well_formed(t, d.variables);
      }
      if (!symbols.empty())
        fault("V14", fmt::format("a field of {} names the symbol {}", c.name, *symbols.begin()));
    }
  }
}

void ModuleVerifier::well_formed(const Type& t, const std::vector<std::string>& variables) {
  if (const std::string problem = type_fault(t, module_, variables); !problem.empty())
    fault("V14", problem);
}

void ModuleVerifier::require_known(const std::set<std::string>& used, const std::string& what) {
  for (const std::string& s : used) {
    if (!symbols_.contains(s)) fault("V9", fmt::format("{} uses the unbound symbol {}", what, s));
  }
}

bool ModuleVerifier::agrees(const Type& derived, const Type& stated,
                            const std::set<std::string>& open) {
  return TypeRules{module_, facts_, symbols_, lowered_}.fits(derived, stated, open);
}

void ModuleVerifier::bind(const VarRef& v) {
  if (!v) return fault("V2", "a binding without a variable");
  if (!bound_.insert(v.get()).second) fault("V2", fmt::format("%{} is bound twice", v->name));
  well_formed(v->type, variables_);
  if (!is_complete(v->type)) fault("V1", fmt::format("%{} has the type {}", v->name, str(v->type)));
  visible_.insert(v.get());
}

Type ModuleVerifier::use(const Atom& a) {
  switch (a.kind) {
    case Atom::Kind::kVar:
      if (!a.var || !visible_.contains(a.var.get())) {
        fault("V3", fmt::format("%{} is not visible", a.var ? a.var->name : "?"));
        return nullptr;
      }
      return a.var->type;
    case Atom::Kind::kGlobal:
      if (const FunctionRef f = module_.find(a.global)) return foreign_type(*f);
      fault("V4", fmt::format("there is no function @{}", a.global));
      return nullptr;
    case Atom::Kind::kConstant:
      if (!a.constant) fault("V4", "a constant without a value");
      return a.constant ? type_of(a) : nullptr;
  }
  return nullptr;
}

const std::vector<Dim>* ModuleVerifier::contents(const Atom& a) {
  if (a.is_var()) {
    auto it = contents_.find(a.var.get());
    return it == contents_.end() ? nullptr : &it->second;
  }
  if (!a.is_constant() || is_float(a.constant->dtype) || a.constant->elements() > 64)
    return nullptr;
  auto& values = constants_[a.constant.get()];
  if (values.empty()) {
    for (int64_t i = 0; i < a.constant->elements(); ++i) values.push_back(a.constant->integer(i));
  }
  return &values;
}

void ModuleVerifier::function(const Function& f, bool closed) {
  std::set<std::string> bare, all;
  for (const VarRef& p : f.parameters) {
    bind(p);
    collect_symbols(p->type, all);
    collect_bare_symbols(p->type, bare);
  }
  if (closed) {
    for (const std::string& s : all) {
      if (!bare.contains(s)) fault("V9", fmt::format("no parameter binds the symbol {}", s));
    }
  }
  const std::set<std::string> outer = symbols_;
  symbols_.merge(all);
  well_formed(f.result_type, variables_);
  block(*f.body, f.result_type, "V10");
  for (const VarRef& p : f.parameters) visible_.erase(p.get());
  symbols_ = outer;
}

Type ModuleVerifier::block(const Block& b, const Type& stated, const char* rule) {
  const std::string outer_place = where_;
  std::vector<const Var*> mine;
  for (const Binding& binding : b.bindings) {
    where_ = fmt::format("{}:%{}", function_, binding.var ? binding.var->name : "?");
    if (const std::string at = binding.value->location.str(); !at.empty())
      where_ += " (" + at + ")";
    expression(binding);
    bind(binding.var);
    if (binding.var) mine.push_back(binding.var.get());
  }
  where_ = outer_place;
  const Type result = use(b.result);
  if (stated && result && !agrees(result, stated, {})) {
    fault(rule, fmt::format("the block gives {} where {} is stated", str(result), str(stated)));
  }
  for (const Var* v : mine) visible_.erase(v);
  return result;
}

void ModuleVerifier::nested(const Block& b, const Type& stated, const char* rule) {
  const DimContext facts = facts_;
  const std::set<std::string> symbols = symbols_;
  block(b, stated, rule);
  facts_ = facts;
  symbols_ = symbols;
}

void ModuleVerifier::expression(const Binding& binding) {
  const Expr& e = *binding.value;
  const Type& stated = binding.var ? binding.var->type : nullptr;
  std::vector<Type> types;
  for (const Atom& a : e.args) types.push_back(use(a));
  const bool typed = is_complete(stated) && std::all_of(types.begin(), types.end(), is_complete);
  std::set<std::string> used;
  collect_symbols(stated, used);
  switch (e.kind) {
    case ExprKind::kAtom:
      if (e.args.size() != 1) return fault("V4", "a copy of other than one atom");
      if (contents(e.args[0])) contents_[binding.var.get()] = Dims(*contents(e.args[0]));
      require_known(used, "the type");
      if (typed) compare(types[0], stated);
      return;
    case ExprKind::kTuple:
      require_known(used, "the type");
      if (typed) compare(tuple_type(types), stated);
      return;
    case ExprKind::kGetField:
      require_known(used, "the type");
      if (!typed) return;
      if (types[0]->kind != TypeKind::kTuple || e.index < 0 ||
          e.index >= static_cast<int64_t>(types[0]->elements.size())) {
        return fault("V6", fmt::format("field {} of {}", e.index, str(types[0])));
      }
      return compare(types[0]->elements[static_cast<size_t>(e.index)], stated);
    case ExprKind::kIf:
      return branches(e, stated, types, used);
    case ExprKind::kFunction: {
      // What its body asserts holds where it runs, not here.
      const DimContext facts = facts_;
      const std::set<std::string> symbols = symbols_;
      function(*e.primitive, /*closed=*/false);
      facts_ = facts;
      symbols_ = symbols;
      if (!is_complete(stated)) return;
      std::vector<Type> parameters;
      for (const VarRef& p : e.primitive->parameters) parameters.push_back(p->type);
      return compare(function_type(parameters, e.primitive->result_type), stated);
    }
    case ExprKind::kCall:
      if (e.op == "memory.invoke_mut" && e.primitive) return lowered_group(e, used);
      if (!e.op.empty() + e.callee.has_value() + (e.primitive != nullptr) != 1) {
        return fault("V4", "a call must name one of operator, callee and group");
      }
      if (e.callee) return call(e, stated, types, used);
      if (e.primitive) return group(e, stated, types, used);
      return operation(binding, types, typed, used);
    case ExprKind::kConstruct:
      require_known(used, "the type");
      return construct(e, stated, types);
    case ExprKind::kMatch:
      return match(e, stated, types, used);
    case ExprKind::kClosure:
      return closure(e, stated, types);
  }
}

void ModuleVerifier::compare(const Type& derived, const Type& stated) {
  if (!agrees(derived, stated, {})) {
    fault("V6", fmt::format("its type is {} but {} is stated", str(derived), str(stated)));
  }
}

bool ModuleVerifier::stops(const Block& b) {
  return std::any_of(b.bindings.begin(), b.bindings.end(),
                     [](const Binding& x) { return x.value->op == "memory.fatal"; });
}

void ModuleVerifier::branches(const Expr& e, const Type& stated, const std::vector<Type>& types,
                              const std::set<std::string>& used) {
  if (types.size() != 1) return fault("V4", "an if without one condition");
  if (types[0] && types[0]->kind != TypeKind::kScalar &&
      (types[0]->kind != TypeKind::kTensor || types[0]->dtype != DType::kBool ||
       !types[0]->dims.empty())) {
    fault("V8", fmt::format("the condition is {}", str(types[0])));
  }
  std::set<std::string> open;
  for (const std::string& s : used) {
    if (!symbols_.contains(s)) open.insert(s);
  }
  for (const BlockRef& b : {e.then_block, e.else_block}) {
    const DimContext facts = facts_;
    const std::set<std::string> symbols = symbols_;
    const Type t = block(*b, nullptr, "V6");
    const bool agreed = !is_complete(t) || !is_complete(stated) || agrees(t, stated, open);
    if (!agreed && !stops(*b)) {
      fault("V6", fmt::format("a branch gives {} but {} is stated", str(t), str(stated)));
    }
    facts_ = facts;
    symbols_ = symbols;
  }
  symbols_.insert(open.begin(), open.end());
}

std::vector<std::string> verify(const Module& m) {
  std::vector<std::string> faults = ModuleVerifier(m).run();
  verify_devices(m, &faults);
  return faults;
}

}  // namespace nimble::ir
