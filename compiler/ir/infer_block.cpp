// Inference of blocks: variables, demands, annotations.
#include <algorithm>

#include "compiler/ir/infer.h"
#include "compiler/ir/infer_function.h"
#include "vm/base/error.h"

namespace nimble::ir {
namespace {

std::optional<Dims> constant_contents(const Tensor& t) {
  if (t.dtype != DType::kI64 && t.dtype != DType::kI32 && t.dtype != DType::kBool) return {};
  const int64_t n = t.elements();
  if (n > 64) return {};
  Dims out;
  for (int64_t i = 0; i < n; ++i) out.push_back(Dim(t.integer(i)));
  return out;
}

// Tuples of tuples share their types, but all that walks over types does so as if they did not:
// thirty pairs of the pair before would be a type of a billion parts.
constexpr size_t kMaxTypeParts = 8192;

// Tensors, tuples and data types of which `t` is made, counted up to `most` + 1.
size_t type_parts(const Type& t, size_t most) {
  size_t parts = 1;
  if (!t) return parts;
  for (const Type& e : t->elements) {
    if (parts > most) break;
    parts += type_parts(e, most - parts);
  }
  return parts;
}

// Sizes that a call or an attribute gives may turn out to be impossible together: n - 5 for n = 3.
std::optional<int64_t> negative_extent(const Type& t) {
  if (!t) return std::nullopt;
  for (const Dim& d : t->dims)
    if (const auto c = d.as_constant(); c && *c < 0) return c;
  for (const Type& e : t->elements)
    if (const auto c = negative_extent(e)) return c;
  return std::nullopt;
}

}  // namespace

FunctionInference::FunctionInference(Signatures& signatures, std::string name, const Function& f,
                                     const std::vector<Type>& parameter_types,
                                     const std::map<std::string, Dim>& refinements)
    : signatures_(signatures),
      name_(std::move(name)),
      facts_(dim_context(f)),
      aliases_(refinements) {
  for (const Type& t : parameter_types) {
    symbols_of(t, known_);
    bare_symbols_of(t, bare_);
  }
  entry_ = known_;
}

FunctionRef FunctionInference::run(const Function& f, const std::vector<Type>& parameter_types) {
  auto out = std::make_shared<Function>(f);
  for (size_t i = 0; i < f.parameters.size(); ++i) {
    out->parameters[i] = bind_parameter(f.parameters[i], parameter_types[i]);
  }
  try {
    auto [body, type] = infer_block(*f.body, f.result_type, "the result");
    out->body = body;
    out->result_type = types_.resolve_all(type);
    settle(*out);
  } catch (const Fault& fault) {
    faults_.push_back(fault);
  } catch (const Silent&) {
  }
  return out;
}

// Every type is found by now, or the program does not say it.
void FunctionInference::settle(const Function& f) {
  std::function<bool(const Type&)> open = [&](const Type& t) {
    return t && (TypeSolutions::is_flexible(t) ||
                 std::any_of(t->elements.begin(), t->elements.end(), open));
  };
  for (const auto& c : closures_) c->result_type = types_.resolve_all(c->result_type);
  for (const VarRef& v : created_) {
    v->type = types_.resolve_all(v->type);
    if (!open(v->type) || !faults_.empty()) continue;
    faults_.push_back({v->location,
                       fmt::format("the type {} of %{} stays open", types_.str(v->type), v->name),
                       fmt::format("annotate it: let %{}: TYPE = …", v->name)});
  }
  if (open(f.result_type) && faults_.empty()) {
    faults_.push_back(
        {f.location,
         fmt::format("the result type {} of @{} stays open", types_.str(f.result_type), name_),
         "declare the result type: -> TYPE"});
  }
}

// ---------------------------------------------------------------------- scopes and atoms

VarRef FunctionInference::new_var(const std::string& name, Type type, const Location& at) {
  VarRef v = make_var(name, std::move(type), at);
  created_.push_back(v);
  return v;
}

VarRef FunctionInference::bind_parameter(const VarRef& old, const Type& type) {
  VarRef v = new_var(old->name, type, old->location);
  vars_[old.get()] = v;
  return v;
}

void FunctionInference::fail(const Location& at, const std::string& problem,
                             const std::string& remedy) const {
  throw Fault{at, problem, remedy};
}

Atom FunctionInference::map_atom(const Atom& a, const Location& at) const {
  if (!a.is_var()) return a;
  if (faulty_.contains(a.var.get())) throw Silent{};
  auto it = vars_.find(a.var.get());
  if (it == vars_.end()) {
    fail(at, fmt::format("%{} is not defined here", a.var->name), "bind it before its use");
  }
  return Atom(it->second);
}

Type FunctionInference::atom_type(const Atom& a, const Location& at) {
  if (!a.is_global()) return types_.resolve(type_of(a));
  std::set<std::string> variables;
  const FunctionSignature s = instance(signatures_.signature(a.global, at), variables);
  if (!s.result) throw Silent{};
  std::vector<Demand> none;
  std::map<std::string, Dim> bound;
  return instantiate(function_type(s.parameters, s.result), {}, bound, match_context(at, none));
}

const Dims* FunctionInference::contents_of(const Atom& a) {
  if (a.is_var()) {
    auto it = contents_.find(a.var.get());
    return it == contents_.end() ? nullptr : &it->second;
  }
  if (!a.is_constant()) return nullptr;
  auto [it, added] = constants_.try_emplace(a.constant.get());
  if (added) it->second = constant_contents(*a.constant);
  return it->second ? &*it->second : nullptr;
}

Dim FunctionInference::fresh() {
  const std::string s = fresh_symbol();
  known_.insert(s);
  born_.push_back(s);
  return Dim::symbol(s);
}

// ------------------------------------------------------------------------------- demands

// Solves left == right for a symbol of this function's `?` parameters.
void FunctionInference::refine(const Dim& left, const Dim& right) {
  if (depth_ > 0) return;
  const Dim d = facts_.simplify(left - right);
  std::optional<Refinement> best;
  for (const Dim::Term& t : d.terms()) {
    if (t.atoms.size() != 1 || (t.coefficient != 1 && t.coefficient != -1)) continue;
    auto s = t.atoms[0].as_symbol();
    if (!s || (*s)[0] != '?' || !bare_.contains(*s)) continue;
    const Dim value = (d - Dim(t.coefficient) * t.atoms[0]) * Dim(-t.coefficient);
    const std::set<std::string> others = value.symbols();
    const bool bound_at_entry = std::all_of(
        others.begin(), others.end(), [&](const auto& o) { return o != *s && bare_.contains(o); });
    if (bound_at_entry) best = Refinement{*s, value};
  }
  if (best) throw *best;
}

void FunctionInference::demand(const Dim& left, const Dim& right, const std::string& what,
                               const Location& at, std::vector<Demand>& unproved) {
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
void FunctionInference::assert_demands(Atom& operand, const Type& type,
                                       std::vector<Demand>& unproved, const Location& at,
                                       BlockBuilder& out) {
  if (!type || type->kind != TypeKind::kTensor) {
    // The demand is about symbols alone: what carries it does not matter.
    Atom nothing = Atom::of(Tensor::of<uint8_t>(DType::kBool, {}, {1}));
    return assert_demands(nothing, type_of(nothing), unproved, at, out);
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
      new_var(operand.is_var() ? operand.var->name : "checked", map_dims(type, simplify), at);
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
void FunctionInference::assert_demands_of_call(Expr& call, const std::vector<Type>& types,
                                               std::vector<Demand>& unproved, BlockBuilder& out) {
  if (unproved.empty()) return;
  std::optional<size_t> chosen;  // the first variable, or else a constant
  for (size_t i = 0; i < types.size(); ++i) {
    if (!types[i] || types[i]->kind != TypeKind::kTensor) continue;
    if (!chosen || (call.args[i].is_var() && !call.args[*chosen].is_var())) chosen = i;
  }
  if (!chosen) {
    Atom nothing = Atom::of(Tensor::of<uint8_t>(DType::kBool, {}, {1}));
    return assert_demands(nothing, type_of(nothing), unproved, call.location, out);
  }
  assert_demands(call.args[*chosen], types[*chosen], unproved, call.location, out);
}

MatchContext FunctionInference::match_context(const Location& at, std::vector<Demand>& unproved) {
  return {signatures_.module(),
          facts_,
          types_,
          known_,
          entry_,
          [this, &at, &unproved](const Dim& a, const Dim& b, const std::string& what) {
            demand(a, b, what, at, unproved);
          },
          [this] { return fresh(); },
          [this, &at](const std::string& problem, const std::string& remedy) {
            fail(at, problem, remedy);
          }};
}

// -------------------------------------------------------------------------------- blocks

// Reconciles what was inferred with what is declared: an unbound symbol of the declaration
// names the dim; everything else is a demand. Returns the names for symbols that were born
// since `first_born`, so that a second inference of a printed program gives the same text.
std::map<std::string, Dim> FunctionInference::reconcile(const Type& declared, const Type& inferred,
                                                        const std::string& what, const Location& at,
                                                        size_t first_born,
                                                        std::vector<Demand>& unproved) {
  std::map<std::string, Dim> renamed;
  if (!declared) return renamed;
  std::map<std::string, Dim> bound;
  const std::set<std::string> rigid = known_;
  // An earlier inference may have left expressions of symbols that it bore itself (those with a
  // `?`). What names none of ours and stands nowhere alone says nothing any more.
  std::set<std::string> alone;
  bare_symbols_of(declared, alone);
  const Type target = map_dims(declared, [&](const Dim& d) {
    if (d.is_any()) return d;
    const Dim mapped = d.substitute(aliases_);
    for (const std::string& s : mapped.symbols())
      if (s[0] == '?' && !known_.contains(s) && !alone.contains(s)) return Dim::any();
    return mapped;
  });
  match_parameter(target, inferred, rigid, {}, bound, what, match_context(at, unproved));
  for (const auto& [name, dim] : bound) {
    if (dim.is_any()) continue;
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

void FunctionInference::infer_binding(const Binding& binding, BlockBuilder& out) {
  const Location& at = binding.value->location;
  const size_t first_born = born_.size();
  Typed t = infer_expr(*binding.value, binding.var->type, out);
  if (type_parts(t.type, kMaxTypeParts) > kMaxTypeParts)
    fail(at,
         fmt::format("the type of %{} has more than {} parts", binding.var->name, kMaxTypeParts),
         "nest tuples less deeply, or use a data type");
  if (const auto extent = negative_extent(t.type))
    fail(at, fmt::format("%{} would have the extent {}", binding.var->name, *extent),
         "correct the sizes that it is computed from");
  std::vector<Demand> unproved;
  const auto renamed =
      reconcile(binding.var->type, t.type, fmt::format("the annotation of %{}", binding.var->name),
                at, first_born, unproved);
  VarRef v = new_var(binding.var->name, substitute(types_.resolve_all(t.type), renamed),
                     binding.var->location);
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

FunctionInference::Block_ FunctionInference::infer_block(const Block& b, const Type& declared,
                                                         const std::string& what,
                                                         BlockBuilder out) {
  for (const Binding& binding : b.bindings) {
    Location at = binding.value->location;
    if (at.str().empty()) at.file = fmt::format("@{}:%{}", name_, binding.var->name);
    try {
      infer_binding(binding, out);
      continue;
    } catch (Fault& fault) {
      if (fault.at.str().empty()) fault.at = at;
      faults_.push_back(std::move(fault));
    } catch (const Error& e) {  // of a relation or of arithmetic on dims
      faults_.push_back({at, e.problem(), e.remedy()});
    } catch (const Silent&) {
    }
    faulty_.insert(binding.var.get());  // its uses add no faults of their own
  }
  Location at = b.location;
  if (at.str().empty() && !b.bindings.empty()) at = b.bindings.back().value->location;
  if (at.str().empty()) at.file = "@" + name_;
  Atom result = map_atom(b.result, at);
  Type type = atom_type(result, at);
  std::vector<Demand> unproved;
  const std::set<std::string> known = declared ? known_ : std::set<std::string>();
  reconcile(declared, type, what, at, born_.size(), unproved);
  if (!unproved.empty()) {
    const bool tensor = type->kind == TypeKind::kTensor;
    assert_demands(result, type, unproved, at, out);
    if (tensor) type = result.var->type;
  }
  return {out.finish(result, b.location), declared_dims(declared, types_.resolve_all(type), known)};
}

// What is declared of a result is what its callers have seen, also those that were inferred while
// this function was: where it says an extent, proved by now or asserted, it stands.
Type FunctionInference::declared_dims(const Type& declared, const Type& inferred,
                                      const std::set<std::string>& known) const {
  if (!declared || declared->kind != inferred->kind || declared->kind == TypeKind::kFunction ||
      declared->dims.size() != inferred->dims.size() ||
      declared->elements.size() != inferred->elements.size())
    return inferred;
  auto node = std::make_shared<TypeNode>(*inferred);
  for (size_t i = 0; i < node->dims.size(); ++i) {
    if (declared->dims[i].is_any()) continue;
    const Dim d = declared->dims[i].substitute(aliases_);
    const std::set<std::string> symbols = d.symbols();
    if (std::includes(known.begin(), known.end(), symbols.begin(), symbols.end()))
      node->dims[i] = d;
  }
  for (size_t i = 0; i < node->elements.size(); ++i)
    node->elements[i] = declared_dims(declared->elements[i], inferred->elements[i], known);
  return node;
}

FunctionInference::Block_ FunctionInference::infer_nested(const Block& b, const Type& declared,
                                                          std::set<std::string>* inner,
                                                          BlockBuilder out) {
  const DimContext outer = facts_;
  const std::set<std::string> outside = known_;
  ++depth_;
  struct Leave {
    FunctionInference& self;
    const DimContext& facts;
    const size_t read = self.read_.size();
    ~Leave() {
      --self.depth_;
      self.facts_ = facts;
      for (; self.read_.size() > read; self.read_.pop_back())
        self.contents_.erase(self.read_.back().get());
    }
  } leave{*this, outer};
  Block_ result;
  try {
    result = infer_block(b, declared, "the result", std::move(out));
  } catch (...) {
    if (inner) known_ = outside;
    throw;
  }
  if (inner) {
    std::set_difference(known_.begin(), known_.end(), outside.begin(), outside.end(),
                        std::inserter(*inner, inner->end()));
    known_ = outside;
  }
  return result;
}

}  // namespace nimble::ir
