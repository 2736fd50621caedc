// Steps of a random program that are an operator's call: its row of Ops.def is all that is known.
#include <map>

#include "compiler/driver/test/random_generator.h"

namespace nimble::driver::testing {

using ir::Atom;
using ir::Attrs;
using ir::AttrSpec;
using ir::BlockBuilder;
using ir::Dim;
using ir::OpInfo;
using ir::Type;
using ir::TypeKind;
using ir::VarRef;

std::optional<Atom> RandomGenerator::operand(Scope& scope, bool at_main) {
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

std::optional<ir::AttrValue> RandomGenerator::attribute(const OpInfo& op, const AttrSpec& spec,
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

std::vector<int64_t> RandomGenerator::integers(const OpInfo& op, const AttrSpec& spec, int rank) {
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

std::vector<Dim> RandomGenerator::dims(const AttrSpec& spec, const std::vector<Type>& inputs,
                                       int rank) {
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

Type RandomGenerator::relate(const OpInfo& op, const ir::Expr& call,
                             const std::vector<Type>& inputs) {
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

bool RandomGenerator::operator_step(BlockBuilder& out, Scope& scope, bool at_main) {
  const OpInfo& op = *one_of(ops_);
  const size_t visible = scope.size(), inputs = inputs_.size();
  for (int tries = 0; tries < 20; ++tries) {
    if (call_of(op, out, scope, at_main)) return true;
    scope.resize(visible);  // new inputs that did not fit
    inputs_.resize(inputs);
  }
  return false;
}

bool RandomGenerator::call_of(const OpInfo& op, BlockBuilder& out, Scope& scope, bool at_main) {
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

}  // namespace nimble::driver::testing
