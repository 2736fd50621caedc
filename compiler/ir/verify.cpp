// The IR verifier. It derives everything anew from the operator table and shares no code with
// inference. Its rules:
//   V1  function names are unique; every parameter and binding has a type without `?`
//   V2  a variable is bound exactly once in a module
//   V3  a variable is used only where its binding is visible
//   V4  a call names exactly one of operator, callee and group; what it names exists
//   V5  operand counts and attributes are those of the operator's row or the callee's type
//   V6  a binding's type is what the operator's relation, the callee, the tuple or the branches
//       give, dims provably equal
//   V7  what a relation demands is provable, or asserted before
//   V8  a condition is a bool scalar
//   V9  symbols of types and attributes are bound: by a parameter, or by the result of a branch
//       or call, whose extents only the run decides
//   V10 a function's result type is its body's
// Operators of the memory dialect have no relation: of V6 and V7 they are exempt.
#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"

namespace nimble::ir {
namespace {

using Dims = std::vector<Dim>;

class Verifier {
 public:
  explicit Verifier(const Module& m) : module_(m) {}

  std::vector<std::string> run() {
    std::set<std::string> names;
    for (const auto& [name, f] : module_.functions) {
      function_ = "@" + name;
      where_ = function_;
      if (!names.insert(name).second) fault("V1", "the function is defined twice");
      facts_ = dim_context(*f);
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

  // ----------------------------------------------------------------------------- types

  static bool complete(const Type& t) {
    if (!t) return false;
    for (const Dim& d : t->dims) {
      if (d.is_any()) return false;
    }
    for (const Type& e : t->elements) {
      if (!complete(e)) return false;
    }
    return true;
  }

  static void collect(const Type& t, std::set<std::string>& out) {
    if (!t) return;
    for (const Dim& d : t->dims) out.merge(d.symbols());
    for (const Type& e : t->elements) collect(e, out);
  }

  void require_known(const std::set<std::string>& used, const std::string& what) {
    for (const std::string& s : used) {
      if (!symbols_.contains(s)) fault("V9", fmt::format("{} uses the unbound symbol {}", what, s));
    }
  }

  // Whether `derived` describes `stated`. Symbols of `open` in `derived` stand for any extent.
  bool agrees(const Type& derived, const Type& stated, const std::set<std::string>& open) {
    if (!derived || !stated) return derived == stated;
    // After lowering a rank-0 integer constant stands for an unboxed scalar.
    if (derived->kind == TypeKind::kScalar && stated->kind == TypeKind::kTensor)
      return stated->dims.empty() && !is_float(stated->dtype);
    if (stated->kind == TypeKind::kScalar && derived->kind == TypeKind::kTensor)
      return agrees(stated, derived, open);
    if (derived->kind != stated->kind || derived->dtype != stated->dtype ||
        derived->name != stated->name || derived->dims.size() != stated->dims.size() ||
        derived->elements.size() != stated->elements.size()) {
      return false;
    }
    for (size_t i = 0; i < derived->dims.size(); ++i) {
      auto s = derived->dims[i].as_symbol();
      if (s && open.contains(*s)) continue;
      const Proof equal = facts_.equal(derived->dims[i], stated->dims[i]);
      if (equal == Proof::kNo || (equal == Proof::kUnknown && !lowered_)) return false;
    }
    for (size_t i = 0; i < derived->elements.size(); ++i) {
      if (!agrees(derived->elements[i], stated->elements[i], open)) return false;
    }
    return true;
  }

  // ----------------------------------------------------------------------------- scopes

  void bind(const VarRef& v) {
    if (!v) return fault("V2", "a binding without a variable");
    if (!bound_.insert(v.get()).second) fault("V2", fmt::format("%{} is bound twice", v->name));
    if (!complete(v->type)) fault("V1", fmt::format("%{} has the type {}", v->name, str(v->type)));
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
        if (!module_.find(a.global)) fault("V4", fmt::format("there is no function @{}", a.global));
        return type_of(a, &module_);
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
      collect(p->type, all);
      if (p->type) bare_symbols(p->type, bare);
    }
    if (closed) {
      for (const std::string& s : all) {
        if (!bare.contains(s)) fault("V9", fmt::format("no parameter binds the symbol {}", s));
      }
    }
    const std::set<std::string> outer = symbols_;
    symbols_.merge(all);
    block(*f.body, f.result_type, "V10");
    for (const VarRef& p : f.parameters) visible_.erase(p.get());
    symbols_ = outer;
  }

  static void bare_symbols(const Type& t, std::set<std::string>& out) {
    for (const Dim& d : t->dims) {
      if (auto s = d.as_symbol()) out.insert(*s);
    }
    for (const Type& e : t->elements) {
      if (e) bare_symbols(e, out);
    }
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
    const bool typed = complete(stated) && std::all_of(types.begin(), types.end(), complete);
    std::set<std::string> used;
    collect(stated, used);
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
        function(*e.primitive, /*closed=*/false);
        if (!complete(stated)) return;
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
      case ExprKind::kMatch:
      case ExprKind::kClosure:
        return fault("V4", "data types and converted closures are not part of the language yet");
    }
  }

  void compare(const Type& derived, const Type& stated) {
    if (!agrees(derived, stated, {})) {
      fault("V6", fmt::format("its type is {} but {} is stated", str(derived), str(stated)));
    }
  }

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
      // A lowered assert_shape: where its other branch stops the run, the check has been made.
      lowered_ = stops(*e.then_block) || stops(*e.else_block);
      const bool agreed = !complete(t) || !complete(stated) || agrees(stated, t, open);
      lowered_ = false;
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
    // Bare dims of the parameters bind the callee's symbols. A closure's symbols may be ours.
    std::map<std::string, Dim> bound;
    if (!e.callee->is_global()) {
      for (const std::string& s : symbols_) bound.emplace(s, Dim::symbol(s));
    }
    for (size_t i = 0; i < types.size(); ++i) bind_symbols(callee->elements[i], types[i], bound);
    for (size_t i = 0; i < types.size(); ++i) {
      const Type parameter = substitute(callee->elements[i], bound);
      if (complete(types[i]) && !agrees(parameter, types[i], {})) {
        fault("V6", fmt::format("argument {} is {} where {} is expected", i + 1, str(types[i]),
                                str(parameter)));
      }
    }
    std::set<std::string> open;
    collect(callee->elements.back(), open);
    std::erase_if(open, [&](const std::string& s) { return bound.contains(s); });
    // Names that the callee alone decides must not be taken for ours.
    std::map<std::string, Dim> renamed = bound;
    std::set<std::string> wild;
    for (const std::string& s : open) {
      renamed[s] = Dim::symbol("callee's " + s);
      wild.insert("callee's " + s);
    }
    if (!agrees(substitute(callee->elements.back(), renamed), stated, wild)) {
      fault("V6", fmt::format("the callee gives {} but {} is stated", str(callee->elements.back()),
                              str(stated)));
    }
    symbols_.insert(used.begin(), used.end());
  }

  static void bind_symbols(const Type& pattern, const Type& actual,
                           std::map<std::string, Dim>& bound) {
    if (!pattern || !actual || pattern->dims.size() != actual->dims.size() ||
        pattern->elements.size() != actual->elements.size()) {
      return;
    }
    for (size_t i = 0; i < pattern->dims.size(); ++i) {
      if (auto s = pattern->dims[i].as_symbol()) bound.try_emplace(*s, actual->dims[i]);
    }
    for (size_t i = 0; i < pattern->elements.size(); ++i) {
      bind_symbols(pattern->elements[i], actual->elements[i], bound);
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
      if (complete(types[i]) && complete(f.parameters[i]->type))
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
    // What an assert_shape had promised about symbols has become code that nobody sees here.
    lowered_ = true;
    function(*e.primitive, /*closed=*/false);
    lowered_ = false;
  }

  void operation(const Binding& binding, const std::vector<Type>& types, bool typed,
                 const std::set<std::string>& used) {
    const Expr& e = *binding.value;
    const OpInfo* op = find_op(e.op);
    if (!op) return fault("V4", fmt::format("there is no operator {}", e.op));
    if (const std::string problem = check_call(*op, e); !problem.empty())
      return fault("V5", problem);
    // Scalar code after lowering has no relation: its operands and result are registers.
    const Type& result = binding.var->type;
    if (e.op.starts_with("memory.") || (result && result->kind == TypeKind::kScalar)) {
      symbols_.insert(used.begin(), used.end());
      return;
    }
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
    for (const Type& t : types) {
      if (t->kind != TypeKind::kTensor) return fault("V6", fmt::format("an operand is {}", str(t)));
    }
    std::set<std::string> open;
    RelationContext context{e,
                            types,
                            facts_,
                            [&](size_t i) { return contents(e.args[i]); },
                            [&](const Dim& a, const Dim& b, const std::string& what) {
                              const Proof equal = facts_.equal(a, b);
                              if (equal == Proof::kYes) return;
                              if (equal == Proof::kUnknown && lowered_) return;
                              fault("V7",
                                    fmt::format("{}: {} = {} is neither provable nor asserted",
                                                what, a.str(), b.str()));
                              facts_.assume_equal(a, b);
                            },
                            [&] {
                              const std::string s = fresh_symbol();
                              open.insert(s);
                              return Dim::symbol(s);
                            }};
    try {
      RelationResult r = op->relation(context);
      if (!agrees(r.type, binding.var->type, open)) {
        fault("V6",
              fmt::format("its type is {} but {} is stated", str(r.type), str(binding.var->type)));
      }
      if (r.contents) contents_[binding.var.get()] = std::move(*r.contents);
    } catch (const Error& error) {
      fault("V6", error.problem());
    }
  }

  const Module& module_;
  std::string function_, where_;
  std::vector<std::string> faults_;
  std::unordered_set<const Var*> bound_, visible_;
  std::set<std::string> symbols_;
  DimContext facts_;
  bool lowered_ = false;  // inside a group whose surroundings are lowered
  std::unordered_map<const Var*, Dims> contents_;
  std::unordered_map<const Tensor*, Dims> constants_;
};

}  // namespace

std::vector<std::string> verify(const Module& m) {
  return Verifier(m).run();
}

}  // namespace nimble::ir
