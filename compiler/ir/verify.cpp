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
#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/infer.h"
#include "compiler/ir/match_check.h"
#include "compiler/ir/op.h"
#include "compiler/ir/verify_devices.h"
#include "compiler/ir/verify_types.h"

namespace nimble::ir {
namespace {

using Dims = std::vector<Dim>;

class Verifier {
 public:
  explicit Verifier(const Module& m) : module_(m) {}

  std::vector<std::string> run() {
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

 private:
  void fault(const char* rule, const std::string& problem) {
    if (faults_.size() < 100) faults_.push_back(fmt::format("{}: {}: {}", where_, rule, problem));
  }

  static bool is_lowered(const Block& b) {
    return std::any_of(b.bindings.begin(), b.bindings.end(), [](const Binding& x) {
      if (x.value->op.starts_with("memory.")) return true;
      const auto inner = blocks_of(*x.value);
      return std::any_of(inner.begin(), inner.end(),
                         [](const BlockRef& i) { return is_lowered(*i); });
    });
  }

  // ----------------------------------------------------------------------------- types

  void data_types() {
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

  void well_formed(const Type& t, const std::vector<std::string>& variables) {
    if (const std::string problem = type_fault(t, module_, variables); !problem.empty())
      fault("V14", problem);
  }

  void require_known(const std::set<std::string>& used, const std::string& what) {
    for (const std::string& s : used) {
      if (!symbols_.contains(s)) fault("V9", fmt::format("{} uses the unbound symbol {}", what, s));
    }
  }

  // Whether a value of type `derived` may stand where `stated` is written. Symbols of `open`
  // stand for any extent.
  bool agrees(const Type& derived, const Type& stated, const std::set<std::string>& open) {
    return TypeRules{module_, facts_, symbols_, lowered_}.fits(derived, stated, open);
  }

  // ----------------------------------------------------------------------------- scopes

  void bind(const VarRef& v) {
    if (!v) return fault("V2", "a binding without a variable");
    if (!bound_.insert(v.get()).second) fault("V2", fmt::format("%{} is bound twice", v->name));
    well_formed(v->type, variables_);
    if (!is_complete(v->type))
      fault("V1", fmt::format("%{} has the type {}", v->name, str(v->type)));
    visible_.insert(v.get());
  }

  Type use(const Atom& a) {
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

  const Dims* contents(const Atom& a) {
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

  void function(const Function& f, bool closed) {
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

  // Returns the type of the block's result; compares it with `stated` unless that is null.
  Type block(const Block& b, const Type& stated, const char* rule) {
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

  void nested(const Block& b, const Type& stated, const char* rule) {
    const DimContext facts = facts_;
    const std::set<std::string> symbols = symbols_;
    block(b, stated, rule);
    facts_ = facts;
    symbols_ = symbols;
  }

  // ------------------------------------------------------------------------ expressions

  void expression(const Binding& binding) {
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

  void compare(const Type& derived, const Type& stated) {
    if (!agrees(derived, stated, {})) {
      fault("V6", fmt::format("its type is {} but {} is stated", str(derived), str(stated)));
    }
  }

  // A branch that stops the run agrees with any type.
  static bool stops(const Block& b) {
    return std::any_of(b.bindings.begin(), b.bindings.end(),
                       [](const Binding& x) { return x.value->op == "memory.fatal"; });
  }

  // A branch's dim may differ from the stated one only where that is a symbol of its own.
  void branches(const Expr& e, const Type& stated, const std::vector<Type>& types,
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

  void call(const Expr& e, const Type& stated, const std::vector<Type>& types,
            const std::set<std::string>& used) {
    const Type callee = use(*e.callee);
    if (!callee) return;
    if (callee->kind != TypeKind::kFunction) {
      return fault("V4", fmt::format("the callee is {}", str(callee)));
    }
    if (callee->elements.size() != types.size() + 1) {
      return fault("V5", fmt::format("{} arguments for {}", types.size(), str(callee)));
    }
    const Type instance = instantiated(e, callee, types, stated);
    // Bare dims of the parameters bind the callee's symbols. A closure's symbols may be ours.
    std::map<std::string, Dim> bound;
    if (!e.callee->is_global()) {
      for (const std::string& s : symbols_) bound.emplace(s, Dim::symbol(s));
    }
    const std::vector<Type> parameters(instance->elements.begin(), instance->elements.end() - 1);
    bind_symbols(tuple_type(parameters), tuple_type(types), bound);
    for (size_t i = 0; i < types.size(); ++i) {
      const Type parameter = substitute(parameters[i], bound);
      if (is_complete(types[i]) && !agrees(types[i], parameter, {})) {
        fault("V6", fmt::format("argument {} is {} where {} is expected", i + 1, str(types[i]),
                                str(parameter)));
      }
    }
    std::set<std::string> open;
    collect_symbols(instance->elements.back(), open);
    std::erase_if(open,
                  [&](const std::string& s) { return bound.contains(s) || symbols_.contains(s); });
    // Names that the callee alone decides must not be taken for ours.
    std::map<std::string, Dim> renamed = bound;
    std::set<std::string> wild;
    for (const std::string& s : open) {
      renamed[s] = Dim::symbol("callee's " + s);
      wild.insert("callee's " + s);
    }
    for (const std::string& s : used) {
      if (!symbols_.contains(s)) wild.insert(s);
    }
    if (!agrees(substitute(instance->elements.back(), renamed), stated, wild)) {
      fault("V6", fmt::format("the callee gives {} but {} is stated",
                              str(instance->elements.back()), str(stated)));
    }
    symbols_.insert(used.begin(), used.end());
  }

  // The callee's type with its type variables replaced by what arguments and result make them.
  Type instantiated(const Expr& e, const Type& callee, const std::vector<Type>& types,
                    const Type& stated) {
    const FunctionRef f = e.callee->is_global() ? module_.find(e.callee->global) : nullptr;
    if (!f || f->type_variables.empty()) return callee;
    std::map<std::string, Type> bound;
    std::set<std::string> names;
    for (const std::string& v : f->type_variables) names.insert(foreign_name(v));
    std::vector<Type> parameters(callee->elements.begin(), callee->elements.end() - 1);
    parameters.resize(types.size());
    bind_variables(tuple_type(parameters), tuple_type(types), names, bound);
    bind_rest(callee->elements.back(), stated, names, symbols_, bound);
    bind_rest(tuple_type(parameters), tuple_type(types), names, symbols_, bound);
    return substitute_types(callee, bound);
  }

  void construct(const Expr& e, const Type& stated, const std::vector<Type>& types) {
    const auto [data, tag] = module_.find_constructor(e.constructor);
    if (!data) return fault("V11", fmt::format("there is no constructor {}", e.constructor));
    const std::vector<Type>& fields = data->constructors[static_cast<size_t>(tag)].fields;
    if (fields.size() != types.size()) {
      return fault("V11", fmt::format("{} has {} fields, not {}", e.constructor, fields.size(),
                                      types.size()));
    }
    if (!stated || stated->kind != TypeKind::kData || stated->name != data->name ||
        stated->elements.size() != data->variables.size()) {
      return fault("V6", fmt::format("{} gives a {} but {} is stated", e.constructor, data->name,
                                     str(stated)));
    }
    for (size_t i = 0; i < fields.size(); ++i) {
      const Type field = substitute_types(fields[i], arguments_of(*data, stated));
      if (is_complete(types[i]) && !agrees(types[i], field, {})) {
        fault("V11", fmt::format("field {} of {} is {} where {} is expected", i + 1, e.constructor,
                                 str(types[i]), str(field)));
      }
    }
  }

  static std::map<std::string, Type> arguments_of(const DataType& d, const Type& t) {
    std::map<std::string, Type> out;
    for (size_t i = 0; i < d.variables.size(); ++i) out[d.variables[i]] = t->elements[i];
    return out;
  }

  // False after a fault.
  bool pattern(const Pattern& p, const Type& t) {
    const auto wrong = [&](const std::string& problem) {
      fault("V12", problem);
      return false;
    };
    switch (p.kind) {
      case Pattern::Kind::kWildcard:
        return true;
      case Pattern::Kind::kVar: {
        bind(p.var);
        if (!p.var || !is_complete(p.var->type)) return true;
        std::set<std::string> used, open;
        collect_symbols(p.var->type, used);
        for (const std::string& s : used) {
          if (!symbols_.contains(s)) open.insert(s);
        }
        if (!agrees(t, p.var->type, open)) {
          return wrong(fmt::format("%{} is {} where the value has {}", p.var->name,
                                   str(p.var->type), str(t)));
        }
        symbols_.insert(open.begin(), open.end());
        return true;
      }
      case Pattern::Kind::kTuple:
        if (t->kind != TypeKind::kTuple || t->elements.size() != p.fields.size())
          return wrong(fmt::format("a tuple pattern for a value of type {}", str(t)));
        for (size_t i = 0; i < p.fields.size(); ++i) {
          if (!pattern(p.fields[i], t->elements[i])) return false;
        }
        return true;
      case Pattern::Kind::kConstructor: {
        const auto [data, tag] = module_.find_constructor(p.constructor);
        if (!data || t->kind != TypeKind::kData || t->name != data->name)
          return wrong(fmt::format("the pattern {} for a value of type {}", p.constructor, str(t)));
        const std::vector<Type>& fields = data->constructors[static_cast<size_t>(tag)].fields;
        if (fields.size() != p.fields.size() || t->elements.size() != data->variables.size())
          return wrong(fmt::format("{} has {} fields", p.constructor, fields.size()));
        for (size_t i = 0; i < fields.size(); ++i) {
          if (!pattern(p.fields[i], substitute_types(fields[i], arguments_of(*data, t))))
            return false;
        }
        return true;
      }
    }
    return true;
  }

  void match(const Expr& e, const Type& stated, const std::vector<Type>& types,
             const std::set<std::string>& used) {
    if (types.size() != 1 || e.cases.empty()) return fault("V12", "a match without value or cases");
    if (!types[0]) return;
    std::set<std::string> open;
    for (const std::string& s : used) {
      if (!symbols_.contains(s)) open.insert(s);
    }
    bool sound = true;
    for (const MatchCase& c : e.cases) {
      const DimContext facts = facts_;
      const std::set<std::string> symbols = symbols_;
      sound &= pattern(c.pattern, types[0]);
      const Type t = block(*c.body, nullptr, "V6");
      if (is_complete(t) && is_complete(stated) && !stops(*c.body) && !agrees(t, stated, open))
        fault("V6", fmt::format("a case gives {} but {} is stated", str(t), str(stated)));
      for (const VarRef& v : variables_of(c.pattern)) visible_.erase(v.get());
      facts_ = facts;
      symbols_ = symbols;
    }
    symbols_.insert(open.begin(), open.end());
    if (!sound) return;
    const MatchFault found = check_match(module_, types[0], e.cases);
    if (found.uncovered) fault("V12", fmt::format("no case for {}", *found.uncovered));
  }

  void closure(const Expr& e, const Type& stated, const std::vector<Type>& types) {
    if (!e.callee || !e.callee->is_global())
      return fault("V13", "a closure of other than a function of the module");
    const Type callee = use(*e.callee);
    if (!callee) return;
    if (callee->elements.size() < types.size() + 1) {
      return fault("V13", fmt::format("{} captured values for {}", types.size(), str(callee)));
    }
    if (!is_complete(stated) || stated->kind != TypeKind::kFunction) {
      return fault("V13", fmt::format("a closure of type {}", str(stated)));
    }
    std::vector<Type> all = types;  // with what the closure will be called with
    all.insert(all.end(), stated->elements.begin(), stated->elements.end() - 1);
    const Type instance = instantiated(e, callee, all, stated->elements.back());
    std::map<std::string, Dim> bound;
    for (size_t i = 0; i < types.size(); ++i) {
      bind_symbols(instance->elements[i], types[i], bound);
    }
    const auto split = instance->elements.begin() + static_cast<int64_t>(types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      const Type parameter = substitute(instance->elements[i], bound);
      if (is_complete(types[i]) && !agrees(types[i], parameter, {})) {
        fault("V13", fmt::format("captured value {} is {} where {} is expected", i + 1,
                                 str(types[i]), str(parameter)));
      }
    }
    const Type rest = substitute(
        function_type({split, instance->elements.end() - 1}, instance->elements.back()), bound);
    if (!agrees(rest, stated, {})) {
      fault("V13", fmt::format("the closure is {} but {} is stated", str(rest), str(stated)));
    }
  }

  void group(const Expr& e, const Type& stated, const std::vector<Type>& types,
             const std::set<std::string>& used) {
    const Function& f = *e.primitive;
    if (f.parameters.size() != types.size()) {
      return fault("V5", "a group has another number of arguments than parameters");
    }
    for (size_t i = 0; i < types.size(); ++i) {
      bind(f.parameters[i]);
      if (const Dims* known = contents(e.args[i])) contents_[f.parameters[i].get()] = Dims(*known);
      if (is_complete(types[i]) && is_complete(f.parameters[i]->type))
        compare(types[i], f.parameters[i]->type);
    }
    require_known(used, "the type");
    nested(*f.body, stated, "V6");
    for (const VarRef& p : f.parameters) visible_.erase(p.get());
  }

  // A group's call after lowering: its arguments are inputs (scalars among them), then outputs.
  void lowered_group(const Expr& e, const std::set<std::string>& used) {
    symbols_.insert(used.begin(), used.end());
    const auto inputs = attr_or<int64_t>(e.attrs, "inputs", -1);
    if (inputs < static_cast<int64_t>(e.primitive->parameters.size()) ||
        inputs > static_cast<int64_t>(e.args.size())) {
      return fault("V5", fmt::format("{} inputs of a group of {} parameters", inputs,
                                     e.primitive->parameters.size()));
    }
    function(*e.primitive, /*closed=*/false);
  }

  static bool counts_from_end(const Expr& e) {
    const auto axes = attr_or<std::vector<int64_t>>(e.attrs, "axes", {});
    return attr_or<int64_t>(e.attrs, "axis", 0) < 0 ||
           std::any_of(axes.begin(), axes.end(), [](int64_t a) { return a < 0; });
  }

  void name_elements(const Expr& e) {
    for (const std::string& s : attr<std::vector<std::string>>(e.attrs, "symbols"))
      symbols_.insert(s);
  }

  void operation(const Binding& binding, const std::vector<Type>& types, bool typed,
                 const std::set<std::string>& used) {
    const Expr& e = *binding.value;
    const OpInfo* op = find_op(e.op);
    if (!op) return fault("V4", fmt::format("there is no operator {}", e.op));
    if (const std::string problem = check_call(*op, e); !problem.empty())
      return fault("V5", problem);
    if (counts_from_end(e)) return fault("V5", fmt::format("{} counts an axis from the end", e.op));
    // Scalar code after lowering has no relation: its operands and result are registers.
    const Type& result = binding.var->type;
    if (e.op.starts_with("memory.") || (result && result->kind == TypeKind::kScalar)) {
      symbols_.insert(used.begin(), used.end());
      if (op->traits.names_symbols) name_elements(e);
      if (auto s = attr_or<std::string>(e.attrs, "symbol", ""); !s.empty()) symbols_.insert(s);
      return;
    }
    if (op->traits.names_symbols) name_elements(e);
    // What the values of tensors decide is a symbol of the result.
    if (op->shape_mode != ShapeMode::kDataIndependent) symbols_.insert(used.begin(), used.end());
    std::set<std::string> attr_symbols;
    for (const auto& [name, value] : e.attrs) {
      if (const auto* d = std::get_if<Dim>(&value)) attr_symbols.merge(d->symbols());
      if (const auto* ds = std::get_if<Dims>(&value)) {
        for (const Dim& d : *ds) attr_symbols.merge(d.symbols());
      }
    }
    require_known(attr_symbols, "an attribute");
    require_known(used, "the type");
    if (!typed) return;
    const TypeKind wanted = op->fusion == FusionKind::kData ? TypeKind::kData : TypeKind::kTensor;
    for (const Type& t : types) {
      if (t->kind != wanted) return fault("V6", fmt::format("an operand is {}", str(t)));
    }
    // More facts simplify more, and what they simplify may ask for more than the type that was
    // found before they held: a group stands where its last member does, behind assertions that
    // came after its first. Any facts that hold will do.
    auto [problems, known] = typing_faults(binding, *op, types, facts_);
    if (!problems.empty()) {
      DimContext given = given_;
      if (auto [remaining, elements] = typing_faults(binding, *op, types, given);
          remaining.empty()) {
        problems.clear();
        known = std::move(elements);
      }
    }
    for (const auto& [rule, problem] : problems) fault(rule, problem);
    if (known) contents_[binding.var.get()] = std::move(*known);
  }

  // Why the relation of an operator does not give the stated type, and the elements that it knows.
  std::pair<std::vector<std::pair<const char*, std::string>>, std::optional<Dims>> typing_faults(
      const Binding& binding, const OpInfo& op, const std::vector<Type>& types, DimContext& facts) {
    const Expr& e = *binding.value;
    std::vector<std::pair<const char*, std::string>> problems;
    std::set<std::string> open;
    RelationContext context{e,
                            types,
                            facts,
                            [&](size_t i) { return contents(e.args[i]); },
                            [&](const Dim& a, const Dim& b, const std::string& what) {
                              const Proof equal = facts.equal(a, b);
                              if (equal == Proof::kYes) return;
                              if (equal == Proof::kUnknown && lowered_) return;
                              problems.emplace_back(
                                  "V7", fmt::format("{}: {} = {} is neither provable nor asserted",
                                                    what, a.str(), b.str()));
                            },
                            [&] {
                              const std::string s = fresh_symbol();
                              open.insert(s);
                              return Dim::symbol(s);
                            }};
    std::optional<Dims> known;
    try {
      RelationResult r = op.relation(context);
      if (!TypeRules{module_, facts, symbols_, lowered_}.fits(r.type, binding.var->type, open))
        problems.emplace_back("V6", fmt::format("its type is {} but {} is stated", str(r.type),
                                                str(binding.var->type)));
      known = std::move(r.contents);
    } catch (const Error& error) {
      problems.emplace_back("V6", error.problem());
    }
    return {std::move(problems), std::move(known)};
  }

  const Module& module_;
  std::vector<std::string> variables_;  // type variables of the function
  std::string function_, where_;
  std::vector<std::string> faults_;
  std::unordered_set<const Var*> bound_, visible_;
  std::set<std::string> symbols_;
  DimContext facts_, given_;  // given: by the function's declaration alone
  bool lowered_ = false;
  std::unordered_map<const Var*, Dims> contents_;
  std::unordered_map<const Tensor*, Dims> constants_;
};

}  // namespace

std::vector<std::string> verify(const Module& m) {
  std::vector<std::string> faults = Verifier(m).run();
  verify_devices(m, &faults);
  return faults;
}

}  // namespace nimble::ir
