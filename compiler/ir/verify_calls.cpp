// The IR verifier's rules of calls: functions, closures, groups and operators.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ir/module_verifier.h"

namespace nimble::ir {
namespace {

bool counts_from_end(const Expr& e) {
  const auto axes = attr_or<std::vector<int64_t>>(e.attrs, "axes", {});
  return attr_or<int64_t>(e.attrs, "axis", 0) < 0 ||
         std::any_of(axes.begin(), axes.end(), [](int64_t a) { return a < 0; });
}

}  // namespace

void ModuleVerifier::call(const Expr& e, const Type& stated, const std::vector<Type>& types,
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
    fault("V6", fmt::format("the callee gives {} but {} is stated", str(instance->elements.back()),
                            str(stated)));
  }
  symbols_.insert(used.begin(), used.end());
}

Type ModuleVerifier::instantiated(const Expr& e, const Type& callee, const std::vector<Type>& types,
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

void ModuleVerifier::closure(const Expr& e, const Type& stated, const std::vector<Type>& types) {
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
      fault("V13", fmt::format("captured value {} is {} where {} is expected", i + 1, str(types[i]),
                               str(parameter)));
    }
  }
  const Type rest = substitute(
      function_type({split, instance->elements.end() - 1}, instance->elements.back()), bound);
  if (!agrees(rest, stated, {})) {
    fault("V13", fmt::format("the closure is {} but {} is stated", str(rest), str(stated)));
  }
}

void ModuleVerifier::group(const Expr& e, const Type& stated, const std::vector<Type>& types,
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

void ModuleVerifier::lowered_group(const Expr& e, const std::set<std::string>& used) {
  symbols_.insert(used.begin(), used.end());
  const auto inputs = attr_or<int64_t>(e.attrs, "inputs", -1);
  if (inputs < static_cast<int64_t>(e.primitive->parameters.size()) ||
      inputs > static_cast<int64_t>(e.args.size())) {
    return fault("V5", fmt::format("{} inputs of a group of {} parameters", inputs,
                                   e.primitive->parameters.size()));
  }
  function(*e.primitive, /*closed=*/false);
}

void ModuleVerifier::name_elements(const Expr& e) {
  for (const std::string& s : attr<std::vector<std::string>>(e.attrs, "symbols"))
    symbols_.insert(s);
}

void ModuleVerifier::operation(const Binding& binding, const std::vector<Type>& types, bool typed,
                               const std::set<std::string>& used) {
  const Expr& e = *binding.value;
  const OpInfo* op = find_op(e.op);
  if (!op) return fault("V4", fmt::format("there is no operator {}", e.op));
  if (const std::string problem = check_call(*op, e); !problem.empty()) return fault("V5", problem);
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
    if (auto [remaining, elements] = typing_faults(binding, *op, types, given); remaining.empty()) {
      problems.clear();
      known = std::move(elements);
    }
  }
  for (const auto& [rule, problem] : problems) fault(rule, problem);
  if (known) contents_[binding.var.get()] = std::move(*known);
}

std::pair<std::vector<std::pair<const char*, std::string>>, std::optional<std::vector<Dim>>>
ModuleVerifier::typing_faults(const Binding& binding, const OpInfo& op,
                              const std::vector<Type>& types, DimContext& facts) {
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

}  // namespace nimble::ir
