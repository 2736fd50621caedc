// Evaluates one operator: its type relation, applied to the operands' concrete shapes and
// contents, gives the result's shape and the run-time checks; its reference function the values.
#include "compiler/ir/op.h"
#include "compiler/reference/operand.h"
#include "compiler/reference/reference.h"

namespace nimble::reference {
namespace {

using ir::Dim;

ReferenceFunction find_function(const std::string& op) {
  for (auto find : {find_elementwise, find_rearrangement, find_product, find_reduction,
                    find_network, find_dynamic})
    if (ReferenceFunction f = find(op)) return f;
  return nullptr;
}

Dim concrete(const Dim& d, const Symbols& symbols) {
  if (d.as_constant()) return d;
  return d.evaluate([&](const std::string& name) -> std::optional<int64_t> {
    auto it = symbols.find(name);
    if (it == symbols.end()) return std::nullopt;
    return it->second;
  });
}

// A literal 0 in reshape's shape copies a dim; a symbol that is 0 in this run means 0.
void resolve_copied_dims(ir::Expr& reshape, const ir::TensorRef& x) {
  auto it = reshape.attrs.find("shape");
  if (it == reshape.attrs.end() || ir::attr_or(reshape.attrs, "allow_zero", false)) return;
  auto& shape = std::get<std::vector<Dim>>(it->second);
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i].is_constant(0) && i < x->shape.size()) shape[i] = x->shape[i];
  reshape.attrs["allow_zero"] = true;
}

ir::Expr with_concrete_attributes(const ir::Expr& call, const std::vector<ir::TensorRef>& args,
                                  const Symbols& symbols) {
  ir::Expr out = call;
  if (call.op == "reshape") resolve_copied_dims(out, args[0]);
  for (auto& [name, value] : out.attrs) {
    if (auto* d = std::get_if<Dim>(&value)) *d = concrete(*d, symbols);
    if (auto* dims = std::get_if<std::vector<Dim>>(&value))
      for (Dim& d : *dims) d = concrete(d, symbols);
  }
  return out;
}

std::vector<ir::Type> result_types(const ir::OpInfo& op, const ir::Expr& call,
                                   const std::vector<ir::TensorRef>& args) {
  std::vector<ir::Type> inputs;
  std::vector<std::optional<std::vector<Dim>>> contents(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    inputs.push_back(
        ir::tensor_type({args[i]->shape.begin(), args[i]->shape.end()}, args[i]->dtype));
    bool integers = args[i]->dtype == DType::kI64 || args[i]->dtype == DType::kI32;
    if (!integers || args[i]->elements() > 64) continue;
    contents[i].emplace();
    for (int64_t k = 0; k < args[i]->elements(); ++k) contents[i]->push_back(args[i]->integer(k));
  }
  ir::DimContext dims;
  ir::RelationContext context{
      call, inputs, dims, [&](size_t i) { return contents[i] ? &*contents[i] : nullptr; },
      [&](const Dim& a, const Dim& b, const std::string& what) {
        if (!(a == b))
          throw Error(Status::kFatal, call.location.str(),
                      fmt::format("{}: {} differ: {} and {}", call.op, what, a.str(), b.str()));
      },
      // The reference function makes such results itself.
      [] { return Dim(0); }};
  ir::RelationResult result = op.relation(context);
  return result.type->kind == ir::TypeKind::kTuple ? result.type->elements
                                                   : std::vector<ir::Type>{result.type};
}

// On the bytes: as a double a signalling NaN would lose its bit.
ir::TensorRef bitcast(const ir::Type& result, const ir::Tensor& x) {
  uint8_t* data = nullptr;
  auto out = ir::Tensor::make(result->dtype, x.shape, &data);
  for (size_t i = 0; i < x.bytes.size(); ++i)
    data[i] = result->dtype == DType::kBool ? x.bytes[i] != 0 : x.bytes[i];
  return out;
}

}  // namespace

bool has_reference(const std::string& op) {
  return op == "bitcast" || find_function(op) != nullptr;
}

std::vector<ir::TensorRef> evaluate_op(const ir::Expr& call, const std::vector<ir::TensorRef>& args,
                                       const Symbols& symbols) {
  const ir::OpInfo* op = ir::find_op(call.op);
  ReferenceFunction f = find_function(call.op);
  if (!op || !has_reference(call.op))
    throw Error(Status::kUnsupported, call.location.str(),
                fmt::format("the reference interpreter has no operator {}", call.op),
                "see compiler/ir/Ops.def for what there is");
  ir::Expr concrete_call = with_concrete_attributes(call, args, symbols);
  OpCall c{concrete_call, {}, result_types(*op, concrete_call, args)};
  if (call.op == "bitcast") return {bitcast(c.results[0], *args[0])};
  for (const ir::TensorRef& a : args) c.in.push_back(Array::from(*a));
  std::vector<ir::TensorRef> out;
  for (const Array& a : f(c)) out.push_back(a.tensor());
  return out;
}

}  // namespace nimble::reference
