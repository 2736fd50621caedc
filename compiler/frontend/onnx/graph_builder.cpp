#include "compiler/frontend/onnx/graph_builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <set>
#include <unordered_set>

#include "compiler/ir/op.h"
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"
#include "vm/base/checked.h"
#include "vm/base/half.h"

namespace nimble::frontend::onnx {
namespace {

constexpr int64_t kMostContents = 64;  // as inference tracks

std::optional<Dims> contents_of(const ir::Tensor& t) {
  if (t.dtype != DType::kI64 && t.dtype != DType::kI32 && t.dtype != DType::kBool) return {};
  const int64_t n = t.elements();
  if (n > kMostContents) return {};
  Dims out;
  for (int64_t i = 0; i < n; ++i) out.emplace_back(t.integer(i));
  return out;
}

void store(DType type, double real, int64_t integer, uint8_t* to) {
  auto put = [&](auto v) { std::memcpy(to, &v, sizeof v); };
  switch (type) {
    case DType::kF32:
      return put(static_cast<float>(real));
    case DType::kF64:
      return put(real);
    case DType::kF16:
      return put(f16_from_f32(static_cast<float>(real)));
    case DType::kBF16:
      return put(bf16_from_f32(static_cast<float>(real)));
    case DType::kBool:
      return put(static_cast<uint8_t>(integer != 0));
    case DType::kI8:
    case DType::kU8:
      return put(static_cast<uint8_t>(integer));
    case DType::kI16:
    case DType::kU16:
      return put(static_cast<uint16_t>(integer));
    case DType::kI32:
    case DType::kU32:
      return put(static_cast<uint32_t>(integer));
    case DType::kI64:
    case DType::kU64:
      return put(integer);
  }
  NIMBLE_UNREACHABLE("dtype {}", static_cast<int>(type));
}

// The tensor with these contents, if all are constants.
ir::TensorRef tensor_of(const ir::Type& type, const Dims& contents) {
  std::vector<int64_t> shape;
  for (const ir::Dim& d : type->dims) {
    auto c = d.as_constant();
    if (!c) return nullptr;
    shape.push_back(*c);
  }
  for (const ir::Dim& d : contents)
    if (!d.as_constant()) return nullptr;
  uint8_t* data = nullptr;
  auto out = ir::Tensor::make(type->dtype, shape, &data);
  if (static_cast<size_t>(out->elements()) != contents.size()) return nullptr;
  for (size_t i = 0; i < contents.size(); ++i)
    store(type->dtype, 0, *contents[i].as_constant(), data + i * size_of(type->dtype));
  return out;
}

// What define_data() defines, for texts that use it.
const std::string kDataText =
    "data Sequence[A] { SequenceEmpty; SequenceOf(Sequence[A], A) }\n"
    "data Optional[A] { OptionalEmpty; OptionalOf(A) }\n";

// Calls visit for an expression and all in its blocks, and result for the blocks' results.
void visit_expressions(const ir::Expr& e, const std::function<void(const ir::Expr&)>& visit,
                       const std::function<void(const ir::Atom&)>& result) {
  visit(e);
  for (const ir::BlockRef& block : ir::blocks_of(e)) {
    for (const ir::Binding& b : block->bindings) visit_expressions(*b.value, visit, result);
    result(block->result);
  }
}

}  // namespace

void Value::lacks_axis(int64_t axis) const {
  throw Error(Status::kCorrupt, "",
              fmt::format("an operand of rank {} has no axis {}", rank(), axis),
              "export the model again");
}

Value GraphBuilder::parameter(const std::string& name, ir::Type type) {
  parameters_.push_back(ir::make_var(name, type, location_));
  return {parameters_.back(), std::move(type), std::nullopt};
}

Value GraphBuilder::constant(ir::TensorRef t) {
  movable_ += 4 * static_cast<int64_t>(t->bytes.size());
  return value_of(std::move(t));
}

Value GraphBuilder::value_of(ir::TensorRef t) {
  Dims dims;
  for (int64_t d : t->shape) dims.emplace_back(d);
  ir::Type type = ir::tensor_type(std::move(dims), t->dtype);
  std::optional<Dims> contents = contents_of(*t);
  return {ir::Atom::of(std::move(t)), std::move(type), std::move(contents)};
}

Value GraphBuilder::scalar(double v, DType type) {
  uint8_t* data = nullptr;
  auto t = ir::Tensor::make(type, {}, &data);
  // Where the double is no int64 (an alpha of a file may be anything) the nearest one.
  const int64_t integer = std::isnan(v) ? 0
                          : v >= 0x1p63 ? INT64_MAX
                          : v < -0x1p63 ? INT64_MIN
                                        : static_cast<int64_t>(v);
  store(type, v, integer, data);
  return constant(std::move(t));
}

Value GraphBuilder::bound(ir::ExprRef expr, ir::Type type, std::optional<Dims> contents) {
  ir::VarRef v = ir::make_var(hint_, nullptr, location_);
  bindings_.push_back({v, std::move(expr)});
  return {std::move(v), std::move(type), std::move(contents)};
}

// Exporters cut and join weights with operators (PyTorch reorders an LSTM's gates so) where ONNX's
// operators want constants: movements of constants are done here and now.
ir::TensorRef GraphBuilder::moved(const ir::Expr& call, const ir::TypeNode& result) {
  static const std::set<std::string> kMovements = {"slice",   "concat",    "transpose",
                                                   "squeeze", "unsqueeze", "reshape"};
  if (!kMovements.contains(call.op)) return nullptr;
  std::vector<int64_t> shape;
  for (const ir::Dim& d : result.dims) {
    if (!d.as_constant()) return nullptr;
    shape.push_back(*d.as_constant());
  }
  std::vector<ir::TensorRef> args;
  for (const ir::Atom& a : call.args) {
    if (!a.is_constant()) return nullptr;
    args.push_back(a.constant);
  }
  const std::optional<int64_t> bytes = try_byte_size(result.dtype, shape);
  if (!bytes || *bytes > movable_) return nullptr;
  movable_ -= *bytes;
  return reference::evaluate_op(call, args, {})[0];
}

Value GraphBuilder::call(const std::string& op, const std::vector<Value>& args, ir::Attrs attrs) {
  const ir::OpInfo* info = ir::find_op(op);
  NIMBLE_CHECK(info, "no operator {}", op);
  std::vector<ir::Atom> atoms;
  std::vector<ir::Type> types;
  for (const Value& a : args) {
    if (a.type->kind != ir::TypeKind::kTensor)
      throw Error(Status::kInvalidArgument, location_.str(), "an operand is not a tensor");
    atoms.push_back(a.atom);
    types.push_back(a.type);
  }
  ir::ExprRef expr = ir::make_call(op, std::move(atoms), std::move(attrs), location_);
  if (std::string fault = ir::check_call(*info, *expr); !fault.empty())
    throw Error(Status::kInvalidArgument, location_.str(), fault, "correct the model");
  std::deque<std::optional<Dims>> read;
  ir::RelationContext context{
      *expr,
      types,
      facts_,
      [&](size_t i) { return args[i].contents ? &*args[i].contents : nullptr; },
      [&](const ir::Dim& a, const ir::Dim& b, const std::string& what) {
        if (facts_.equal(a, b) == ir::Proof::kNo)
          throw Error(Status::kInvalidArgument, location_.str(),
                      fmt::format("{}: {} and {} differ", what, a.str(), b.str()),
                      "make the extents equal");
        facts_.assume_equal(a, b);  // inference puts the check into the program
      },
      [] { return ir::Dim::symbol(ir::fresh_symbol()); },
      [&](size_t i) {
        read.push_back(read_contents(args[i]));
        return read.back() ? &*read.back() : nullptr;
      }};
  ir::RelationResult r = info->relation(context);
  if (r.type->kind == ir::TypeKind::kTensor) {
    auto type = std::make_shared<ir::TypeNode>(*r.type);
    for (ir::Dim& d : type->dims) d = facts_.simplify(d);
    r.type = std::move(type);
  }
  if (r.contents) {
    for (ir::Dim& d : *r.contents) d = facts_.simplify(d);
    if (ir::TensorRef t = tensor_of(r.type, *r.contents)) return value_of(std::move(t));
  }
  if (ir::TensorRef t = moved(*expr, *r.type)) return value_of(std::move(t));
  Value out = bound(std::move(expr), std::move(r.type), std::move(r.contents));
  // Inference takes over the names of extents that only the run knows.
  if (info->shape_mode != ir::ShapeMode::kDataIndependent) out.atom.var->type = out.type;
  const bool settled =
      !args.empty() && info->shape_mode == ir::ShapeMode::kDataIndependent &&
      out.type->kind == ir::TypeKind::kTensor && !info->traits.effect &&
      !info->traits.names_symbols &&
      std::all_of(args.begin(), args.end(), [&](const Value& a) { return is_settled(a); }) &&
      std::all_of(out.dims().begin(), out.dims().end(),
                  [](const ir::Dim& d) { return d.as_constant().has_value(); });
  if (settled) settled_.insert(out.atom.var);
  return out;
}

void GraphBuilder::note_quantised(const Value& v, Quantised q) {
  if (v.atom.is_var()) quantised_.insert_or_assign(v.atom.var, std::move(q));
}

std::optional<GraphBuilder::Quantised> GraphBuilder::quantised(const Value& v) const {
  const auto it = v.atom.is_var() ? quantised_.find(v.atom.var) : quantised_.end();
  return it == quantised_.end() ? std::nullopt : std::optional(it->second);
}

bool GraphBuilder::is_settled(const Value& v) const {
  return v.is_constant() || (v.atom.is_var() && settled_.contains(v.atom.var));
}

std::vector<Value> GraphBuilder::fields(const Value& tuple) {
  std::vector<Value> out;
  for (size_t i = 0; i < tuple.type->elements.size(); ++i)
    out.push_back(bound(ir::make_get_field(tuple.atom, static_cast<int64_t>(i), location_),
                        tuple.type->elements[i], std::nullopt));
  return out;
}

std::optional<Dims> GraphBuilder::read_contents(const Value& v) {
  if (v.contents || !v.atom.is_var()) return v.contents;
  const auto n = ir::element_count(v.type).as_constant();
  const bool integers = v.dtype() == DType::kI64 || v.dtype() == DType::kI32;
  if (!n || *n > kMostContents || !integers) return std::nullopt;
  auto [it, is_new] = elements_.try_emplace(v.atom.var.get());
  if (!is_new) return it->second;
  std::vector<std::string> symbols;
  for (int64_t i = 0; i < *n; ++i) {
    symbols.push_back(ir::fresh_symbol());
    facts_.set(symbols.back(), {INT64_MIN, INT64_MAX, 1});
    it->second.push_back(ir::Dim::symbol(symbols.back()));
  }
  bound(ir::make_call("read_extents", {v.atom}, {{"symbols", symbols}}, location_), v.type,
        it->second);
  return it->second;
}

std::vector<Value> GraphBuilder::call_function(const std::string& function,
                                               const std::vector<Value>& args,
                                               const std::vector<ir::Type>& results) {
  std::vector<ir::Atom> atoms;
  for (const Value& a : args) atoms.push_back(a.atom);
  Value tuple =
      bound(ir::make_call_function(ir::Atom::of_global(function), std::move(atoms), location_),
            ir::tuple_type(results), std::nullopt);
  std::vector<Value> out;
  for (size_t i = 0; i < results.size(); ++i)
    out.push_back(bound(ir::make_get_field(tuple.atom, static_cast<int64_t>(i), location_),
                        results[i], std::nullopt));
  return out;
}

Value GraphBuilder::call_any(const std::string& function, const std::vector<Value>& args,
                             ir::Type result) {
  std::vector<ir::Atom> atoms;
  for (const Value& a : args) atoms.push_back(a.atom);
  Value out =
      bound(ir::make_call_function(ir::Atom::of_global(function), std::move(atoms), location_),
            std::move(result), std::nullopt);
  out.atom.var->type = out.type;
  return out;
}

Value GraphBuilder::construct(const std::string& constructor, const std::vector<Value>& fields,
                              ir::Type type) {
  std::vector<ir::Atom> atoms;
  for (const Value& f : fields) atoms.push_back(f.atom);
  Value out = bound(ir::make_construct(constructor, std::move(atoms), location_), std::move(type),
                    std::nullopt);
  out.atom.var->type = out.type;
  return out;
}

void GraphBuilder::define_data(const std::string& name) {
  if (module_.find_data(name)) return;
  const ir::Type element = ir::variable_type("A");
  std::vector<ir::Type> fields = {element};
  if (name == "Sequence") fields.insert(fields.begin(), ir::data_type(name, {element}));
  module_.data_types.push_back(
      {name, {"A"}, {{name + "Empty", {}, {}}, {name + "Of", std::move(fields), {}}}, {}});
}

void GraphBuilder::define_functions(const std::string& text) {
  for (auto& [name, function] : ir::parse_module(kDataText + text).functions)
    if (!module_.find(name)) module_.set(name, std::move(function));
}

Value GraphBuilder::reshape(const Value& x, Dims shape) {
  if (x.dims() == shape) return x;
  return call("reshape", {x}, {{"shape", std::move(shape)}, {"allow_zero", true}});
}

Value GraphBuilder::slice(const Value& x, int64_t axis, ir::Dim from, ir::Dim to) {
  return call("slice", {x}, {{"axes", Axes{axis}}, {"starts", Dims{from}}, {"ends", Dims{to}}});
}

Value GraphBuilder::full(Dims shape, double value, DType type) {
  return call("full", {}, {{"shape", std::move(shape)}, {"dtype", type}, {"value", value}});
}

Value GraphBuilder::size(const ir::Dim& d) {
  return call("size", {}, {{"value", d}});
}

// A table sliced to n rows has min(n, rows) of them. Where such a dim meets n itself, numpy's rule
// leaves one possibility (a dim of 2 or more never stretches): n is at most `rows`. Said at the
// entry of the function, that keeps n's name where broadcasting would leave an expression in all
// later dims.
void GraphBuilder::demand_bounds(const Value& x, const Value& other) const {
  for (size_t back = 1; back <= std::min(x.dims().size(), other.dims().size()); ++back) {
    const ir::Dim& d = x.dim(x.dims().size() - back);
    const ir::Dim& wide = other.dim(other.dims().size() - back);
    auto application = d.as_application();
    if (!application || application->function != ir::Dim::Function::kMin) continue;
    const Dims& of = application->operands;
    if (of.size() != 2 || !(of[0] == wide || of[1] == wide)) continue;
    const int64_t bound = of[of[0] == wide ? 1 : 0].as_constant().value_or(0);
    if (bound >= 2 && parameter_with(wide)) throw BoundNeeded{wide, bound};
  }
}

std::optional<size_t> GraphBuilder::parameter_with(const ir::Dim& d) const {
  const std::set<std::string> symbols = d.symbols();
  std::set<std::string> found;
  std::optional<size_t> out;
  for (size_t i = 0; i < parameters_.size(); ++i)
    for (const ir::Dim& extent : parameters_[i]->type->dims)
      for (const std::string& s : extent.symbols())
        if (symbols.contains(s)) {
          found.insert(s);
          if (!out) out = i;
        }
  return found == symbols ? out : std::nullopt;
}

Value GraphBuilder::assert_bound(const Value& x, const BoundNeeded& b) {
  return call("assert_shape", {x},
              {{"left", Dims{ir::max(b.dim, ir::Dim(b.bound))}},
               {"right", Dims{ir::Dim(b.bound)}},
               {"what", fmt::format("{} is at most {}: a table of the model has no more rows",
                                    b.dim.str(), b.bound)}});
}

Value GraphBuilder::broadcast_call(const std::string& op, const Value& a, const Value& b) {
  demand_bounds(a, b);
  demand_bounds(b, a);
  return call(op, {a, b});
}

ir::FunctionRef GraphBuilder::finish(const std::vector<Value>& results) {
  std::unordered_set<const ir::Var*> needed;
  auto need = [&](const ir::Atom& a) {
    if (a.is_var()) needed.insert(a.var.get());
  };
  ir::Atom result = results[0].atom;
  if (results.size() > 1) {
    std::vector<ir::Atom> fields;
    for (const Value& v : results) fields.push_back(v.atom);
    location_ = {};
    hint_ = "results";
    result = bound(ir::make_tuple(std::move(fields)), nullptr, std::nullopt).atom;
  }
  need(result);
  // What names an extent that an attribute mentions is needed too.
  std::set<std::string> mentioned;
  auto mention = [&](const ir::Expr& e) {
    for (const auto& [name, value] : e.attrs) {
      if (const auto* d = std::get_if<ir::Dim>(&value)) mentioned.merge(d->symbols());
      if (const auto* all = std::get_if<Dims>(&value))
        for (const ir::Dim& d : *all) mentioned.merge(d.symbols());
    }
  };
  auto names_mentioned = [&](const ir::Binding& b) {
    if (b.value->op == "read_extents") {
      const auto& symbols = ir::attr<std::vector<std::string>>(b.value->attrs, "symbols");
      return std::any_of(symbols.begin(), symbols.end(),
                         [&](const std::string& s) { return mentioned.contains(s); });
    }
    if (!b.var->type) return false;
    const std::string type = ir::str(b.var->type);
    return std::any_of(mentioned.begin(), mentioned.end(), [&](const std::string& s) {
      return s[0] == '?' && type.find(s) != std::string::npos;
    });
  };
  auto block = std::make_shared<ir::Block>();
  for (auto b = bindings_.rbegin(); b != bindings_.rend(); ++b) {
    if (!needed.contains(b->var.get()) && !names_mentioned(*b)) continue;
    visit_expressions(
        *b->value,
        [&](const ir::Expr& e) {
          mention(e);
          for (const ir::Atom& a : e.args) need(a);
        },
        need);
    block->bindings.push_back(*b);
  }
  std::reverse(block->bindings.begin(), block->bindings.end());
  block->result = std::move(result);
  return ir::make_function_of(parameters_, std::move(block));
}

}  // namespace nimble::frontend::onnx
