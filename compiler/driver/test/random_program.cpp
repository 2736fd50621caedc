// How random programs are made (NNSmith, ASPLOS 2023, and Csmith, PLDI 2011, are the models).
//
// A program grows forwards: every step binds one more expression over what is visible. For an
// operator the row of Ops.def is all that is known: operands are drawn from the scope (or become
// new inputs of main), attributes by their kinds, and the operator's own type relation says
// whether they fit and what results. So a new row of the table is tested without a word here.
// Structure (if, loops, calls, closures, constructors, match) is made on purpose: a type is chosen
// first, then every branch is filled with steps and ends in a value of that type.
//
// Two kernels of one formula differ in the last bits, so a program must not turn such a
// difference into another branch or another index. A value is *rough* if rounding may have touched
// it; movements of exact values stay exact. Comparisons, casts to integers, rounding and indices
// take exact operands only. Functions with poles get their operand squared and shifted. What
// remains ill-conditioned is found by running the reference on perturbed inputs (differential.cpp).
#include "compiler/driver/test/random_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <unordered_set>

#include "compiler/driver/test/random_rules.h"
#include "compiler/ir/builder.h"

namespace nimble::driver::testing {
namespace {

using ir::Atom;
using ir::Attrs;
using ir::AttrSpec;
using ir::BlockBuilder;
using ir::BlockRef;
using ir::Dim;
using ir::OpInfo;
using ir::Type;
using ir::TypeKind;
using ir::VarRef;

bool is_tensor(const Type& t) {
  return t && t->kind == TypeKind::kTensor;
}
Type i64_scalar() {
  return ir::tensor_type({}, DType::kI64);
}
Type bool_scalar() {
  return ir::tensor_type({}, DType::kBool);
}

class Generator {
 public:
  Generator(uint64_t seed, const RandomProgramOptions& options) : options_(options), random_(seed) {
    for (const OpInfo& op : ir::all_ops())
      if (!is_internal(op) && (options.data_dependent || !needs_values(op))) ops_.push_back(&op);
  }

  ir::Module make() {
    if (options_.data_types) declare_data();
    Scope scope;
    const Dim n = Dim::symbol("n"), m = Dim::symbol("m");
    for (const Type& t : {tensor({n, m}), tensor({n, 1}), tensor({m}), tensor({m, 6})})
      scope.push_back(new_input(t));
    scope.push_back(new_input(i64_scalar()));
    // Extents that the caller must compute.
    const std::vector<std::vector<Dim>> expressions = {
        {2 * n, m}, {n + 1}, {n * m}, {ir::floordiv(m, 2), n}, {n, 2 * m + 1}, {3 * n, 2 * n}};
    for (int i = pick(3); i > 0; --i) scope.push_back(new_input(tensor(one_of(expressions))));
    BlockBuilder body;
    const int steps = options_.steps / 2 + pick(options_.steps);
    for (int i = 0; i < steps; ++i) step(body, scope, 0);
    std::vector<Atom> results;
    for (size_t i = scope.size(); i-- > 0 && results.size() < 4;)
      if (is_tensor(scope[i]->type) && (results.empty() || pick(2))) results.push_back(scope[i]);
    const VarRef result = body.bind(ir::make_tuple(std::move(results)), "results");
    module_.set("main", ir::make_function_of(inputs_, body.finish(result)));
    for (const auto& [name, f] : module_.functions) forget_types(*f->body, names_extents_);
    return std::move(module_);
  }

 private:
  using Scope = std::vector<VarRef>;

  // ------------------------------------------------------------------------------- dice

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <class T>
  const T& one_of(const std::vector<T>& v) {
    return v[static_cast<size_t>(pick(static_cast<int>(v.size())))];
  }
  // Recent values more often, so that graphs grow deep.
  const VarRef& recent(const Scope& scope) {
    const int n = static_cast<int>(scope.size());
    return scope[static_cast<size_t>(n - 1 - std::min(pick(n), pick(n)))];
  }
  const VarRef* find(const Scope& scope, const std::function<bool(const VarRef&)>& wanted) {
    std::vector<const VarRef*> found;
    for (const VarRef& v : scope)
      if (v->type && wanted(v)) found.push_back(&v);
    return found.empty() ? nullptr : one_of(found);
  }
  static Type tensor(std::vector<Dim> dims, DType t = DType::kF32) {
    return ir::tensor_type(std::move(dims), t);
  }
  Dim some_dim() {
    static const std::vector<Dim> kDims = {Dim::symbol("n"), Dim::symbol("m"), 1, 4, 6, 3};
    const Dim& d = one_of(kDims);
    const auto symbol = d.as_symbol();
    return symbol && !extents_.contains(*symbol) ? Dim(2) : d;
  }
  // While a function's body is made, the extents that can be named are those of its parameters.
  class ExtentsOf {
   public:
    ExtentsOf(Generator& g, const std::vector<VarRef>& parameters) : named_(g.extents_) {
      std::set<std::string> all;
      for (const VarRef& p : parameters) collect_symbols(p->type, all, inner_);
      named_.swap(inner_);
    }
    ~ExtentsOf() { named_.swap(inner_); }
    ExtentsOf(const ExtentsOf&) = delete;
    ExtentsOf& operator=(const ExtentsOf&) = delete;

   private:
    std::set<std::string>& named_;
    std::set<std::string> inner_;  // then those outside
  };
  std::string name(const char* kind) { return fmt::format("{}{}", kind, next_++); }

  // An extent that arises in a body: of a tensor that grew, or as values decide.
  Dim born_extent() { return Dim::symbol(fmt::format("{}{}", kBornExtent, born_++)); }

  bool is_rough(const Atom& a) const { return a.is_var() && rough_.contains(a.var); }

  VarRef bind(BlockBuilder& out, Scope& scope, ir::ExprRef e, Type type, bool rough,
              const char* hint = "v") {
    VarRef v = ir::make_var(name(hint), std::move(type));
    out.append({v, std::move(e)});
    if (rough) rough_.insert(v);
    alive_.push_back(v);
    scope.push_back(v);
    return v;
  }

  VarRef new_input(const Type& type) {
    inputs_.push_back(ir::make_var(fmt::format("p{}", inputs_.size()), type));
    return inputs_.back();
  }

  // -------------------------------------------------------------------------- operators

  // An operand: something visible, or, within main, a new input.
  std::optional<Atom> operand(Scope& scope, bool at_main) {
    if (at_main && chance(12) && inputs_.size() < 14) {
      std::vector<Dim> dims;
      for (int rank = pick(5); rank > 0; --rank) dims.push_back(some_dim());
      const DType t = chance(75) ? DType::kF32 : one_of(kTypes);
      const VarRef v = new_input(tensor(std::move(dims), t));
      scope.push_back(v);
      return Atom(v);
    }
    for (int tries = 0; tries < 8; ++tries)
      if (const VarRef& v = recent(scope); is_tensor(v->type)) return Atom(v);
    return std::nullopt;
  }

  std::optional<ir::AttrValue> attribute(const OpInfo& op, const AttrSpec& spec,
                                         const std::vector<Type>& inputs) {
    const int rank = inputs.empty() ? 2 : static_cast<int>(inputs[0]->dims.size());
    switch (spec.kind) {
      case AttrSpec::Kind::kBool:
        return chance(50);
      case AttrSpec::Kind::kInt:
        if (spec.name == "axis") return int64_t{rank ? pick(2 * rank) - rank : 0};
        if (spec.name == "heads" || spec.name == "groups") return int64_t{1 + pick(2)};
        return int64_t{pick(4)};
      case AttrSpec::Kind::kFloat:
        if (spec.name == "epsilon") return 1e-3;
        return one_of(std::vector<double>{0.5, 1.0, -0.25, 0.125});
      case AttrSpec::Kind::kString:
        return std::nullopt;
      case AttrSpec::Kind::kInts:
        return integers(op, spec, rank);
      case AttrSpec::Kind::kFloats:
        return std::vector<double>{0.5};
      case AttrSpec::Kind::kStrings:
        return std::nullopt;
      case AttrSpec::Kind::kDType:
        // Products are made in the type of their operands, or in f32 of narrower ones.
        if (spec.name == "out") {
          const DType t = inputs[0]->dtype;
          if (!is_narrow_float(t)) return std::nullopt;
          return DType::kF32;
        }
        return one_of(kTypes);
      case AttrSpec::Kind::kDim:
        // Steps, counts and limits; extents that inference decides are not ours to give.
        if (spec.name == "count" && op.shape_mode != ir::ShapeMode::kDataIndependent)
          return std::nullopt;
        return chance(50) ? Dim(1 + pick(3)) : some_dim();
      case AttrSpec::Kind::kDims:
        return dims(spec, inputs, rank);
    }
    return std::nullopt;
  }

  std::vector<int64_t> integers(const OpInfo& op, const AttrSpec& spec, int rank) {
    std::vector<int64_t> out;
    if (spec.name == "axes" && op.name == "transpose") {
      for (int i = 0; i < rank; ++i) out.push_back(i);
      std::shuffle(out.begin(), out.end(), random_);
    } else if (spec.name == "axes") {
      const int last = op.name == "unsqueeze" ? rank + 1 : rank;
      for (int i = 0; i < last; ++i)
        if (chance(40)) out.push_back(i);
      if (out.empty() && last > 0) out.push_back(pick(last));
    } else {
      // Of windows: two axes, or four sides.
      const bool sides = spec.name == "pads";
      const int count = sides ? 4 : 2;
      const int low = sides ? 0 : 1;
      for (int i = 0; i < count; ++i) out.push_back(low + pick(2));
    }
    return out;
  }

  std::vector<Dim> dims(const AttrSpec& spec, const std::vector<Type>& inputs, int rank) {
    if (spec.name == "starts") return {Dim(pick(3) - 1)};
    if (spec.name == "steps") return {one_of(std::vector<Dim>{1, 1, 2, -1})};
    if (spec.name == "before" || spec.name == "after" || spec.name == "repeats") {
      std::vector<Dim> each;
      for (int i = 0; i < rank; ++i) each.push_back(pick(2) + (spec.name == "repeats"));
      return each;
    }
    if (spec.name == "ends") return {one_of(std::vector<Dim>{2, -1, INT64_MAX, some_dim()})};
    std::vector<Dim> out;
    if (!inputs.empty() && chance(70)) {  // the operand's own, in another order or arrangement
      out = inputs[0]->dims;
      switch (pick(4)) {
        case 0:
          std::shuffle(out.begin(), out.end(), random_);
          break;
        case 1:
          out.insert(out.begin() + pick(rank + 1), Dim(1));
          break;
        case 2:
          if (rank >= 2) {
            out[0] = out[0] * out[1];
            out.erase(out.begin() + 1);
          }
          break;
        default:
          if (rank >= 1) out[static_cast<size_t>(pick(rank))] = -1;
      }
      return out;
    }
    for (int i = pick(4); i > 0; --i) out.push_back(some_dim());
    return out;
  }

  // The type that the operator's relation gives, or null.
  Type relate(const OpInfo& op, const ir::Expr& call, const std::vector<Type>& inputs) {
    ir::DimContext facts;
    bool refused = false;
    ir::RelationContext context{
        call,
        inputs,
        facts,
        [](size_t) { return nullptr; },
        [&](const Dim& a, const Dim& b, const std::string&) {
          const ir::Proof equal = facts.equal(a, b);
          if (equal == ir::Proof::kNo || (equal == ir::Proof::kUnknown && !chance(15)))
            refused = true;
        },
        [this] { return born_extent(); }};
    std::map<size_t, std::vector<Dim>> read;  // elements that extents are read from
    if (options_.data_dependent)
      context.read_contents = [&](size_t i) -> const std::vector<Dim>* {
        const auto n = ir::element_count(inputs[i]).as_constant();
        if (!n || *n > 4) return nullptr;
        std::vector<Dim>& elements = read[i];
        while (elements.size() < static_cast<size_t>(*n)) {
          elements.push_back(born_extent());
          facts.set(*elements.back().as_symbol(), {INT64_MIN, INT64_MAX, 1});
        }
        return &elements;
      };
    try {
      const ir::RelationResult r = op.relation(context);
      return refused ? nullptr : r.type;
    } catch (const Error&) {
      return nullptr;
    }
  }

  // Another operator, with operands that it takes. Some take few of those there are, and each gets
  // several tries, or the easy ones would make up nearly all of a program.
  bool operator_step(BlockBuilder& out, Scope& scope, bool at_main) {
    const OpInfo& op = *one_of(ops_);
    const size_t visible = scope.size(), inputs = inputs_.size();
    for (int tries = 0; tries < 20; ++tries) {
      if (call_of(op, out, scope, at_main)) return true;
      scope.resize(visible);  // new inputs that did not fit
      inputs_.resize(inputs);
    }
    return false;
  }

  bool call_of(const OpInfo& op, BlockBuilder& out, Scope& scope, bool at_main) {
    const int most = op.max_args < 0 ? op.min_args + 2 : op.max_args;
    const int count = op.min_args + (most > op.min_args ? pick(most - op.min_args + 1) : 0);
    std::vector<Atom> args;
    for (int i = 0; i < count; ++i) {
      // Operands of one type fit together most often.
      const VarRef* same = nullptr;
      if (i > 0 && chance(50))
        same = find(scope, [&](const VarRef& v) { return ir::equal(v->type, type_of(args[0])); });
      std::optional<Atom> a = same ? Atom(*same) : operand(scope, at_main);
      if (!a) return false;
      args.push_back(*a);
    }
    std::vector<Type> inputs;
    for (const Atom& a : args) inputs.push_back(type_of(a));
    Attrs attrs;
    for (const AttrSpec& spec : op.attrs) {
      if (!spec.required && chance(50)) continue;
      std::optional<ir::AttrValue> v = attribute(op, spec, inputs);
      if (v)
        attrs[spec.name] = std::move(*v);
      else if (spec.required)
        return false;
    }
    if (auto it = attrs.find("axes"); it != attrs.end() && op.name == "slice") {
      auto& axes = std::get<std::vector<int64_t>>(it->second);
      if (axes.empty()) return false;
      axes.erase(axes.begin() + 1, axes.end());
    }
    ir::ExprRef call = ir::make_call(op.name, args, attrs);
    if (!ir::check_call(op, *call).empty()) return false;
    const Type type = relate(op, *call, inputs);
    if (!type || (is_tensor(type) && type->dims.size() > 5)) return false;

    bool rough = false, floats = false, integers = false;
    for (size_t i = 0; i < args.size(); ++i) {
      rough |= is_rough(args[i]);
      floats |= is_float(inputs[i]->dtype);
      integers |= !is_float(inputs[i]->dtype) && inputs[i]->dtype != DType::kBool;
      // An index or a condition that rounding decided.
      if (!is_float(inputs[i]->dtype) && is_rough(args[i])) return false;
    }
    const bool discrete = is_tensor(type) && !is_float(type->dtype);
    if (rough && (discrete || jumps(op.name))) return false;
    // Integers that grow are soon extents beyond any memory.
    static const std::set<std::string> kGrows = {"mul", "pow", "prod", "matmul", "cumsum", "sum"};
    if (integers && !floats && kGrows.count(op.name)) return false;
    auto naming = variables_that_name(attrs, scope);
    if (!naming) return false;
    names_extents_.merge(*naming);
    if (op.name == "exp" || op.name == "prod" || op.name == "cumsum") {  // keeps numbers small
      if (!is_float(inputs[0]->dtype)) return false;
      args[0] = bind(out, scope, ir::make_call("tanh", {args[0]}), inputs[0], true);
    }
    if (const int g = guarded_operand(op.name); g >= 0 && floats) {
      const auto at = static_cast<size_t>(g);
      if (!is_float(inputs[at]->dtype)) return false;
      const VarRef square =
          bind(out, scope, ir::make_call("mul", {args[at], args[at]}), inputs[at], true);
      const VarRef shift =
          bind(out, scope,
               ir::make_call(
                   "full", {},
                   {{"shape", std::vector<Dim>{}}, {"dtype", inputs[at]->dtype}, {"value", 0.5}}),
               tensor({}, inputs[at]->dtype), false);
      args[at] = bind(out, scope, ir::make_call("add", {square, shift}), inputs[at], true);
    }
    const bool exact = moves_values(op) || (!floats && discrete);
    call = ir::make_call(op.name, std::move(args), std::move(attrs));
    const VarRef v = bind(out, scope, std::move(call), type, rough || !exact);
    if (type->kind == TypeKind::kTuple)
      for (size_t i = 0; i < type->elements.size(); ++i)
        bind(out, scope, ir::make_get_field(v, static_cast<int64_t>(i)), type->elements[i],
             rough || !exact);
    return true;
  }

  // -------------------------------------------------------------------------- structure

  static Type type_of(const Atom& a) { return ir::type_of(a); }

  void step(BlockBuilder& out, Scope& scope, int depth) {
    const int dice = pick(100);
    bool done = false;
    if (depth < 3) {
      if (options_.control && dice < 7) done = if_step(out, scope, depth);
      if (options_.control && dice >= 7 && dice < 13) done = loop_step(out, scope, depth);
      if (options_.control && dice >= 13 && dice < 18) done = call_step(out, scope, depth);
      if (options_.closures && dice >= 18 && dice < 24) done = closure_step(out, scope, depth);
      if (options_.data_types && dice >= 24 && dice < 32) done = data_step(out, scope, depth);
    }
    for (int tries = 0; tries < 60 && !done; ++tries) done = operator_step(out, scope, depth == 0);
  }

  BlockRef block(Scope scope, const Type& type, int depth, int steps) {
    BlockBuilder out;
    for (int i = 0; i < steps; ++i) step(out, scope, depth + 1);
    return out.finish(value_of(type, out, scope, depth + 1));
  }

  Atom value_of(const Type& type, BlockBuilder& out, Scope& scope, int depth) {
    const VarRef* found = find(scope, [&](const VarRef& v) { return ir::equal(v->type, type); });
    if (found && chance(85)) return *found;
    switch (type->kind) {
      case TypeKind::kTuple: {
        std::vector<Atom> fields;
        for (const Type& e : type->elements) fields.push_back(value_of(e, out, scope, depth));
        return bind(out, scope, ir::make_tuple(std::move(fields)), type, true);
      }
      case TypeKind::kData:
        return data_value(type, out, scope, depth);
      case TypeKind::kTensor: {
        if (type->dtype == DType::kI64 && type->dims.empty())
          return Atom::of(ir::Tensor::scalar_i64(pick(4)));
        std::vector<Dim> dims = type->dims;
        for (Dim& d : dims)
          if (d.is_any()) d = Dim(1 + pick(3));
        const double value = is_float(type->dtype) ? 0.25 * (pick(9) - 4) : pick(2);
        return bind(
            out, scope,
            ir::make_call("full", {}, {{"shape", dims}, {"dtype", type->dtype}, {"value", value}}),
            tensor(dims, type->dtype), false);
      }
      default:
        NIMBLE_UNREACHABLE("a value of {}", ir::str(type));
    }
  }

  // The type of something visible: a tensor, or two of them as a tuple.
  Type some_type(const Scope& scope) {
    for (int tries = 0; tries < 8; ++tries) {
      const VarRef& v = recent(scope);
      if (!is_tensor(v->type) || v->type->dims.size() > 4 || !is_stated(v->type)) continue;
      if (chance(20)) return ir::tuple_type({v->type, tensor({2})});
      return v->type;
    }
    return tensor({3});
  }

  // An exact bool scalar.
  Atom condition(BlockBuilder& out, Scope& scope) {
    static const std::vector<std::string> kCompare = {"less", "equal", "greater_equal"};
    return bind(
        out, scope,
        ir::make_call(one_of(kCompare), {exact_scalar(out, scope), exact_scalar(out, scope)}),
        bool_scalar(), false, "c");
  }
  Atom exact_scalar(BlockBuilder&, Scope& scope) {
    const VarRef* v = find(
        scope, [&](const VarRef& x) { return ir::equal(x->type, i64_scalar()) && !is_rough(x); });
    if (v && chance(60)) return *v;
    return Atom::of(ir::Tensor::scalar_i64(pick(3)));
  }

  bool if_step(BlockBuilder& out, Scope& scope, int depth) {
    const Type type = some_type(scope);
    const Atom c = condition(out, scope);
    BlockRef yes = block(scope, type, depth, 1 + pick(3));
    BlockRef no = block(scope, type, depth, pick(3));
    bind(out, scope, ir::make_if(c, std::move(yes), std::move(no)), type, true);
    return true;
  }

  // Parameters for a function over some visible tensors, all extents of which they bind.
  std::vector<VarRef> choose_arguments(const Scope& scope, int most) {
    for (int tries = 0; tries < 10; ++tries) {
      std::vector<VarRef> chosen;
      std::vector<Type> types;
      for (int i = 1 + pick(most); i > 0; --i) {
        const VarRef& v = recent(scope);
        if (!is_tensor(v->type) || v->type->dims.size() > 4 || !is_stated(v->type)) continue;
        chosen.push_back(v);
        types.push_back(v->type);
      }
      if (!chosen.empty() && closed(types)) return chosen;
    }
    return {};
  }

  // Parameters of those types, as rough as the arguments.
  Scope parameters_for(const std::vector<VarRef>& arguments) {
    Scope out;
    for (const VarRef& a : arguments) {
      out.push_back(ir::make_var(name("a"), a->type));
      if (is_rough(a)) rough_.insert(out.back());
    }
    return out;
  }

  bool call_step(BlockBuilder& out, Scope& scope, int depth) {
    const std::vector<VarRef> arguments = choose_arguments(scope, 3);
    if (arguments.empty()) return false;
    Scope parameters = parameters_for(arguments);
    const Type result = some_type(parameters);
    const std::string f = name("f");
    const ExtentsOf inside(*this, parameters);
    BlockRef body = block(parameters, result, depth, 2 + pick(3));
    module_.set(f, ir::make_function_of(parameters, std::move(body), result));
    std::vector<Atom> args(arguments.begin(), arguments.end());
    bind(out, scope, ir::make_call_function(Atom::of_global(f), std::move(args)), result, true);
    return true;
  }

  // acc = body(i, acc, …) a few times; sometimes the accumulator grows.
  bool loop_step(BlockBuilder& out, Scope& scope, int depth) {
    const std::vector<VarRef> arguments = choose_arguments(scope, 3);
    if (arguments.empty()) return false;
    const Type type = arguments[0]->type;
    const bool grows = !type->dims.empty() && chance(25);
    Scope parameters = parameters_for(arguments);
    const Scope invariant(parameters.begin() + 1, parameters.end());
    Type open = type;
    if (grows) {
      std::vector<Dim> dims = type->dims;
      dims[0] = Dim::any();
      open = tensor(dims, type->dtype);
      // The other parameters must bind what its first extent no longer does.
      std::vector<Type> types = {open};
      for (const VarRef& p : invariant) types.push_back(p->type);
      if (!closed(types)) return false;
    }
    const VarRef acc = ir::make_var(name("acc"), open);
    rough_.insert(acc);
    const VarRef i = ir::make_var(name("i"), i64_scalar());
    const VarRef limit = ir::make_var(name("limit"), i64_scalar());
    const std::string f = name("loop");

    BlockBuilder head, again;
    Scope visible = invariant;
    visible.push_back(i);
    if (!grows) visible.push_back(acc);
    const VarRef more = head.call("less", {i, limit}, {}, "more");
    Scope bound = invariant;
    bound.push_back(acc);
    const ExtentsOf inside(*this, bound);
    for (int s = pick(3); s >= 0; --s) step(again, visible, depth + 1);
    Atom next;
    if (grows) {
      std::vector<Dim> row = type->dims;
      row[0] = 1;
      next = again.call("concat", {acc, value_of(tensor(row, type->dtype), again, visible, depth)},
                        {{"axis", int64_t{0}}}, "grown");
    } else {
      next = value_of(type, again, visible, depth);
    }
    const VarRef following = again.call("add", {i, Atom::of(ir::Tensor::scalar_i64(1))}, {}, "j");
    std::vector<Atom> args = {following, limit, next};
    args.insert(args.end(), invariant.begin(), invariant.end());
    const VarRef rest = again.bind(ir::make_call_function(Atom::of_global(f), args), "rest");
    BlockBuilder stop;
    const VarRef r = head.bind(ir::make_if(more, again.finish(rest), stop.finish(acc)), "r");
    std::vector<VarRef> all = {i, limit, acc};
    all.insert(all.end(), invariant.begin(), invariant.end());
    module_.set(f, ir::make_function_of(all, head.finish(r), open));

    args = {Atom::of(ir::Tensor::scalar_i64(0)), Atom::of(ir::Tensor::scalar_i64(pick(4))),
            arguments[0]};
    args.insert(args.end(), arguments.begin() + 1, arguments.end());
    Type result = type;
    if (grows) {
      std::vector<Dim> dims = type->dims;
      dims[0] = born_extent();
      result = tensor(dims, type->dtype);
    }
    bind(out, scope, ir::make_call_function(Atom::of_global(f), std::move(args)), result, true);
    return true;
  }

  // A function value that captures what its body reads, called here, perhaps through a helper.
  bool closure_step(BlockBuilder& out, Scope& scope, int depth) {
    const VarRef* argument = find(scope, [](const VarRef& v) {
      return is_tensor(v->type) && v->type->dims.size() < 5 && is_stated(v->type);
    });
    if (!argument) return false;
    const Type from = (*argument)->type, to = some_type(scope);
    const VarRef p = ir::make_var(name("x"), from);
    if (is_rough(*argument)) rough_.insert(p);
    Scope inside = scope;
    inside.push_back(p);
    BlockRef body = block(inside, to, depth, 1 + pick(3));
    const Type type = ir::function_type({from}, to);
    Scope hidden;  // function values are not operands
    const VarRef f =
        bind(out, hidden, ir::make_function(ir::make_function_of({p}, body, to)), type, true, "g");
    const VarRef called =
        bind(out, scope, ir::make_call_function(Atom(f), {Atom(*argument)}), to, true);
    if (chance(30) && ir::equal(from, to) && is_tensor(to))
      bind(out, scope, ir::make_call_function(Atom(f), {Atom(called)}), to, true);
    return true;
  }

  // ------------------------------------------------------------------------- data types

  // data List[A] { Nil; Cons(A, List[A]) }, data Option[A] { None; Some(A) },
  // data Tree { Leaf(Tensor[(?, 4), f32]); Node(Tree, Tree) }
  void declare_data() {
    const Type a = ir::variable_type("A");
    module_.data_types.push_back(
        {"List", {"A"}, {{"Nil", {}, {}}, {"Cons", {a, ir::data_type("List", {a})}, {}}}, {}});
    module_.data_types.push_back({"Option", {"A"}, {{"None", {}, {}}, {"Some", {a}, {}}}, {}});
    const Type tree = ir::data_type("Tree");
    module_.data_types.push_back(
        {"Tree", {}, {{"Leaf", {tensor({Dim::any(), 4})}, {}}, {"Node", {tree, tree}, {}}}, {}});
  }

  Atom construct(const char* constructor, std::vector<Atom> fields, const Type& type,
                 BlockBuilder& out, Scope& scope) {
    VarRef v = ir::make_var(name("d"), type);
    out.append({v, ir::make_construct(constructor, std::move(fields))});
    rough_.insert(v);
    scope.push_back(v);
    return v;
  }

  Atom data_value(const Type& type, BlockBuilder& out, Scope& scope, int depth) {
    if (type->name == "Tree") {
      if (depth > 3 || chance(40)) {
        const VarRef* leaf = find(scope, [](const VarRef& v) {
          return is_tensor(v->type) && v->type->dtype == DType::kF32 && v->type->dims.size() == 2 &&
                 v->type->dims[1].is_constant(4);
        });
        const Atom x = leaf ? Atom(*leaf) : value_of(tensor({1 + pick(3), 4}), out, scope, depth);
        return construct("Leaf", {x}, type, out, scope);
      }
      const Atom left = data_value(type, out, scope, depth + 1);
      const Atom right = data_value(type, out, scope, depth + 1);
      return construct("Node", {left, right}, type, out, scope);
    }
    const Type& element = type->elements[0];
    if (type->name == "Option") {
      if (chance(30)) return construct("None", {}, type, out, scope);
      return construct("Some", {value_of(element, out, scope, depth)}, type, out, scope);
    }
    Atom list = construct("Nil", {}, type, out, scope);
    for (int i = pick(4); i > 0; --i)
      list = construct("Cons", {value_of(element, out, scope, depth), list}, type, out, scope);
    return list;
  }

  static ir::Pattern any() { return {}; }
  static ir::Pattern variable(const VarRef& v) {
    ir::Pattern p;
    p.kind = ir::Pattern::Kind::kVar;
    p.var = v;
    return p;
  }
  static ir::Pattern constructor(const char* name, std::vector<ir::Pattern> fields) {
    ir::Pattern p;
    p.kind = ir::Pattern::Kind::kConstructor;
    p.constructor = name;
    p.fields = std::move(fields);
    return p;
  }
  VarRef bound(const Type& type, Scope& scope) {
    VarRef v = ir::make_var(name("b"), type);
    rough_.insert(v);
    scope.push_back(v);
    return v;
  }

  bool data_step(BlockBuilder& out, Scope& scope, int depth) {
    switch (pick(4)) {
      case 0: {  // an option, taken apart
        const Type element = some_type(scope), result = some_type(scope);
        const Atom o = value_of(ir::data_type("Option", {element}), out, scope, depth);
        Scope some = scope;
        const VarRef x = bound(element, some);
        std::vector<ir::MatchCase> cases = {
            {constructor("Some", {variable(x)}), block(some, result, depth, pick(3))},
            {chance(50) ? any() : constructor("None", {}), block(scope, result, depth, pick(2))}};
        bind(out, scope, ir::make_match(o, std::move(cases)), result, true);
        return true;
      }
      case 1: {  // a list by nested patterns
        const Type element = some_type(scope), result = some_type(scope);
        const Type list = ir::data_type("List", {element});
        const Atom l = value_of(list, out, scope, depth);
        Scope one = scope, two = scope;
        const VarRef x = bound(element, one), y = bound(element, two), z = bound(element, two);
        std::vector<ir::MatchCase> cases = {
            {constructor("Cons", {variable(x), constructor("Nil", {})}),
             block(one, result, depth, pick(2))},
            {constructor("Cons", {variable(y), constructor("Cons", {variable(z), any()})}),
             block(two, result, depth, pick(3))},
            {any(), block(scope, result, depth, pick(2))}};
        bind(out, scope, ir::make_match(l, std::move(cases)), result, true);
        return true;
      }
      case 2:
        return fold_step(out, scope, depth);
      default:
        return tree_step(out, scope, depth);
    }
  }

  // fn @fold(%l: List[T], %acc: U) -> U, over elements of constant extents.
  bool fold_step(BlockBuilder& out, Scope& scope, int depth) {
    const Type element = tensor({1 + pick(3), 4});
    const Type list = ir::data_type("List", {element});
    const Type result = tensor({4});
    const Atom l = value_of(list, out, scope, depth);
    const std::string f = name("fold");
    const VarRef p = ir::make_var(name("l"), list), acc = ir::make_var(name("acc"), result);
    rough_.insert(acc);
    Scope cons = {acc};
    const VarRef head = bound(element, cons);
    const VarRef tail = ir::make_var(name("tail"), list);
    BlockBuilder again;
    const ExtentsOf inside(*this, {});
    for (int s = pick(3); s >= 0; --s) step(again, cons, depth + 1);
    const VarRef sum = again.call("mean", {head},
                                  {{"axes", std::vector<int64_t>{0}}, {"keepdims", false}}, "mean");
    const VarRef next = again.call("add", {sum, value_of(result, again, cons, depth)}, {}, "next");
    const VarRef rest =
        again.bind(ir::make_call_function(Atom::of_global(f), {tail, next}), "rest");
    BlockBuilder nil, body;
    std::vector<ir::MatchCase> cases = {
        {constructor("Cons", {variable(head), variable(tail)}), again.finish(rest)},
        {constructor("Nil", {}), nil.finish(acc)}};
    const VarRef r = body.bind(ir::make_match(p, std::move(cases)), "r");
    module_.set(f, ir::make_function_of({p, acc}, body.finish(r), result));
    bind(out, scope,
         ir::make_call_function(Atom::of_global(f), {l, value_of(result, out, scope, depth)}),
         result, true);
    return true;
  }

  // fn @walk(%t: Tree) -> Tensor[(1, 4), f32]
  bool tree_step(BlockBuilder& out, Scope& scope, int depth) {
    const Type tree = ir::data_type("Tree"), result = tensor({1, 4});
    const Atom t = value_of(tree, out, scope, depth);
    const std::string f = name("walk");
    const VarRef p = ir::make_var(name("t"), tree);
    const VarRef x = ir::make_var(name("leaf"), tensor({Dim::any(), 4}));
    const VarRef left = ir::make_var(name("left"), tree), right = ir::make_var(name("right"), tree);
    BlockBuilder leaf, node, body;
    const VarRef mean = leaf.call("reduce_max", {x},
                                  {{"axes", std::vector<int64_t>{0}}, {"keepdims", true}}, "top");
    const VarRef a = node.bind(ir::make_call_function(Atom::of_global(f), {left}), "a");
    const VarRef b = node.bind(ir::make_call_function(Atom::of_global(f), {right}), "b");
    const VarRef sum = node.call("sub", {a, b}, {}, "difference");
    sum->type = result;
    rough_.insert(sum);
    Scope visible = {sum};
    const ExtentsOf inside(*this, {});
    for (int s = pick(3); s > 0; --s) step(node, visible, depth + 1);
    const Atom combined = value_of(result, node, visible, depth);
    std::vector<ir::MatchCase> cases = {
        {constructor("Leaf", {variable(x)}), leaf.finish(mean)},
        {constructor("Node", {variable(left), variable(right)}), node.finish(combined)}};
    const VarRef r = body.bind(ir::make_match(p, std::move(cases)), "r");
    module_.set(f, ir::make_function_of({p}, body.finish(r), result));
    bind(out, scope, ir::make_call_function(Atom::of_global(f), {t}), result, true);
    return true;
  }

  static inline const std::vector<DType> kTypes = {DType::kF32, DType::kI64, DType::kBool,
                                                   DType::kI32, DType::kF64};
  RandomProgramOptions options_;
  std::mt19937_64 random_;
  std::vector<const OpInfo*> ops_;
  ir::Module module_;
  std::vector<VarRef> inputs_;
  std::unordered_set<VarRef> rough_;
  // Of blocks that were given up, too: another variable at the same address would take their place
  // in names_extents_.
  std::vector<VarRef> alive_;
  std::set<std::string> extents_ = {"n", "m"};  // that an attribute may name here
  std::set<const ir::Var*> names_extents_;      // whose annotations name extents
  int next_ = 0, born_ = 0;
};

}  // namespace

ir::Module random_module(uint64_t seed, const RandomProgramOptions& options) {
  return Generator(seed, options).make();
}

}  // namespace nimble::driver::testing
