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
// Types of data are matched covariantly (infer_match.h); what a constructor such as Nil() leaves
// open is a flexible variable that its use settles, or an error at the end of the function. A
// symbol inside a data type's argument is one extent of all its values; `?` there is another for
// each, and only a match gives it a name.
//
// A fault does not end inference: its binding has no type, uses of it are silent, and all faults
// of a module come out together.
//
// Next to types, inference carries the contents of small integer tensors as Dims: the chains
// Shape → Gather → Concat → Reshape of exported models keep every dim by it.
#include "compiler/ir/infer.h"

#include <algorithm>

#include "compiler/ir/infer_function.h"
#include "vm/base/error.h"

namespace nimble::ir {
namespace {

class ModuleInference : public Signatures {
 public:
  explicit ModuleInference(const Module& m, bool reads_apart = false)
      : module_(m), reads_apart_(reads_apart) {
    for (const auto& [name, f] : m.functions) states_[name].original = f;
  }

  InferResult run() {
    for (const DataType& d : module_.data_types) check_data(d);
    InferResult out{module_, {}};
    for (auto& [name, f] : out.module.functions) {
      finish(name);
      f = states_.at(name).result;
    }
    Diagnostics diagnostics(module_.text);
    for (const Fault& f : faults_) diagnostics.add(f.at, f.problem, f.remedy);
    for (const auto& [name, s] : states_) {
      for (const Fault& f : s.faults) diagnostics.add(f.at, f.problem, f.remedy);
    }
    out.diagnostics = diagnostics.sorted();
    return out;
  }

  const Module& module() const override { return module_; }
  bool reads_apart() const override { return reads_apart_; }

  FunctionSignature signature(const std::string& name, const Location& at) override {
    auto it = states_.find(name);
    if (it == states_.end()) {
      throw Fault{at, fmt::format("there is no function @{}", name), "define it in the module"};
    }
    State& s = it->second;
    if (s.phase == Phase::kNew) finish(name);
    FunctionSignature out;
    out.type_variables = s.original->type_variables;
    out.parameters = s.parameter_types;
    if (s.phase == Phase::kDone) {
      if (s.faults.empty())
        out.result = s.result->result_type;
      else
        out.result = s.original->result_type;
      return out;
    }
    if (!s.original->result_type) {
      throw Fault{at, fmt::format("the recursive function @{} has no declared result type", name),
                  fmt::format("write fn @{}(…) -> TYPE", name)};
    }
    out.result = substitute(s.original->result_type, s.refinements);
    s.called_early = true;
    return out;
  }

 private:
  enum class Phase { kNew, kBusy, kDone };
  struct State {
    FunctionRef original, result;
    Phase phase = Phase::kNew;
    std::vector<Type> parameter_types;  // as refined so far
    std::map<std::string, Dim> refinements;
    std::vector<Fault> faults;
    bool called_early = false;  // while busy: callers saw the declared result
  };

  void forget_since(size_t done);
  void check_data(const DataType& d);
  bool enter(const std::string& name, State& s);
  void finish(const std::string& name);

  const Module& module_;
  const bool reads_apart_;
  std::map<std::string, State> states_;
  std::vector<std::string> done_;  // in order of completion
  std::vector<Fault> faults_;      // of data types
};

// A field's extents differ from value to value: symbols have no meaning there.
void ModuleInference::check_data(const DataType& d) {
  for (const Constructor& c : d.constructors) {
    for (const Type& t : c.fields) {
      std::set<std::string> symbols;
      symbols_of(t, symbols);
      if (symbols.empty()) continue;
      faults_.push_back({c.location,
                         fmt::format("the field {} of {} uses the symbol {}, which no value of {} "
                                     "binds",
                                     str(t), c.name, *symbols.begin(), d.name),
                         "write ?: any extent, another for each value"});
    }
  }
}

// What `range.n` and `equal` say of symbols must be possible: the prover relies on it.
void check_facts(const Function& f, std::vector<Fault>& faults) {
  for (const auto& [name, value] : f.attrs) {
    const auto* pairs = std::get_if<std::vector<Dim>>(&value);
    if (name == "equal" && (!pairs || pairs->size() % 2 != 0))
      faults.push_back({f.location, "the attribute equal is not a list of pairs of extents",
                        "write equal = (n, 4*m) for n = 4*m"});
    if (!name.starts_with("range.")) continue;
    const auto* v = std::get_if<std::vector<int64_t>>(&value);
    const bool sound = v && (v->size() == 2 || v->size() == 3) && (*v)[0] <= (*v)[1] &&
                       (*v)[0] >= 0 && (v->size() == 2 || (*v)[2] >= 1);
    if (sound) continue;
    faults.push_back({f.location, fmt::format("the attribute {} is not a range", name),
                      "write [low, high] or [low, high, divisor] with 0 <= low <= high and a "
                      "positive divisor"});
  }
}

// The types of the parameters; false after a fault.
bool ModuleInference::enter(const std::string& name, State& s) {
  const Function& f = *s.original;
  check_facts(f, s.faults);
  std::set<std::string> all, bare;
  for (const VarRef& p : f.parameters) {
    const Location& at = p->location.str().empty() ? f.location : p->location;
    if (!p->type) {
      s.faults.push_back({at, fmt::format("parameter %{} of @{} has no type", p->name, name),
                          fmt::format("annotate it: %{}: TYPE", p->name)});
      s.parameter_types.push_back(nullptr);  // matches anything
      continue;
    }
    s.parameter_types.push_back(map_direct_dims(
        p->type, [](const Dim& d) { return d.is_any() ? Dim::symbol(fresh_symbol()) : d; }));
    symbols_of(s.parameter_types.back(), all);
    bare_symbols_of(s.parameter_types.back(), bare);
  }
  for (const std::string& symbol : all) {
    if (bare.contains(symbol)) continue;
    s.faults.push_back(
        {f.location, fmt::format("no parameter of @{} binds the symbol {}", name, symbol),
         fmt::format("give some parameter the plain dim {} (an argument of a data type binds "
                     "nothing: write ? there)",
                     symbol)});
  }
  return s.faults.empty();
}

// Functions that were inferred meanwhile may call one that is busy: they saw its old signature.
void ModuleInference::forget_since(size_t done) {
  for (; done_.size() > done; done_.pop_back()) {
    State& stale = states_[done_.back()];
    const FunctionRef original = stale.original;
    stale = State{};
    stale.original = original;
  }
}

// `declared` with what was inferred in place of each dim that it leaves open, a `?` or a symbol
// that no parameter binds, if parameters alone decide that.
Type without_open(const Type& declared, const Type& inferred, const std::set<std::string>& bound) {
  if (!declared || !inferred || declared->kind != TypeKind::kTensor ||
      inferred->kind != TypeKind::kTensor || declared->dims.size() != inferred->dims.size())
    return declared;
  const auto is_open = [&](const Dim& d) {
    const std::set<std::string> own = d.symbols();
    return d.is_any() || !std::includes(bound.begin(), bound.end(), own.begin(), own.end());
  };
  auto node = std::make_shared<TypeNode>(*declared);
  for (size_t i = 0; i < node->dims.size(); ++i)
    if (is_open(node->dims[i]) && !is_open(inferred->dims[i])) node->dims[i] = inferred->dims[i];
  return node;
}

void ModuleInference::finish(const std::string& name) {
  State& s = states_.at(name);
  if (s.phase == Phase::kDone) return;
  s.phase = Phase::kBusy;
  s.result = s.original;
  const size_t done_before = done_.size();
  bool sound = enter(name, s);
  while (sound) {
    FunctionInference inference(*this, name, *s.original, s.parameter_types, s.refinements);
    try {
      s.result = inference.run(*s.original, s.parameter_types);
      s.faults = inference.faults();
      if (!s.called_early || !s.faults.empty()) break;
      // Its own calls saw open dims that are none: they see what these are. Each round leaves
      // fewer.
      std::set<std::string> symbols;
      for (const Type& t : s.parameter_types) symbols_of(t, symbols);
      const Type& declared = s.original->result_type;
      const Type known = without_open(declared, s.result->result_type, symbols);
      if (str(known) == str(declared)) break;
      auto original = std::make_shared<Function>(*s.original);
      original->result_type = known;
      s.original = std::move(original);
      forget_since(done_before);
    } catch (const Refinement& r) {
      const std::map<std::string, Dim> step = {{r.symbol, r.value}};
      for (Type& t : s.parameter_types) t = substitute(t, step);
      for (auto& [symbol, value] : s.refinements) value = value.substitute(step);
      s.refinements[r.symbol] = r.value;
      forget_since(done_before);
    }
  }
  s.phase = Phase::kDone;
  done_.push_back(name);
}

}  // namespace

InferResult infer_module(const Module& m) {
  return ModuleInference(m).run();
}

Module infer_types(const Module& m) {
  InferResult r = infer_module(m);
  if (r.diagnostics.empty()) return std::move(r.module);
  // A pass may have found what a read_extents reads, or that the operands of two are one.
  InferResult apart = ModuleInference(m, /*reads_apart=*/true).run();
  if (!apart.diagnostics.empty()) raise(r.diagnostics);
  return std::move(apart.module);
}

// Symbols that name elements of tensors may be negative, unless these are sizes.
static void read_symbols(const Block& b, DimContext& facts) {
  for (const Binding& binding : b.bindings) {
    if (binding.value->op == "read_extents" || binding.value->op == "memory.read_extents") {
      const bool sizes = attr_or<bool>(binding.value->attrs, "sizes", false);
      for (const std::string& s : attr<std::vector<std::string>>(binding.value->attrs, "symbols"))
        facts.set(s, {sizes ? 0 : INT64_MIN, INT64_MAX, 1});
    }
    for (const BlockRef& inner : blocks_of(*binding.value)) read_symbols(*inner, facts);
  }
}

DimContext dim_context(const Function& f) {
  DimContext facts;
  static constexpr std::string_view kPrefix = "range.";
  for (const auto& [name, value] : f.attrs) {
    const auto* v = std::get_if<std::vector<int64_t>>(&value);
    if (!name.starts_with(kPrefix) || !v || v->size() < 2) continue;
    facts.set(name.substr(kPrefix.size()), {(*v)[0], (*v)[1], v->size() > 2 ? (*v)[2] : 1});
  }
  const auto equal = attr_or<std::vector<Dim>>(f.attrs, "equal", {});
  for (size_t i = 0; i + 1 < equal.size(); i += 2) facts.assume_equal(equal[i], equal[i + 1]);
  if (f.body) read_symbols(*f.body, facts);
  return facts;
}

}  // namespace nimble::ir
