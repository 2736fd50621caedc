// Writes recurrent cells with products and element-wise operators where no template of the GPU
// takes them, by their definition (gates i, f, g, o of an LSTM; r, z, n of a GRU):
//
//   lstm_cell(x, h, c, R)   s = x + matmul(h, R)
//                           c' = sigmoid(s.f) * c + sigmoid(s.i) * tanh(s.g)
//                           h' = sigmoid(s.o) * tanh(c')
//   gru_cell(x, h, R, b)    p = matmul(h, R) + b
//                           r, z = sigmoid(x.r + p.r), sigmoid(x.z + p.z)
//                           n = tanh(x.n + r * p.n), or where the reset gate applies ahead of the
//                               product tanh(x.n + matmul(r * h, R.n) + b.n)
//                           h' = (1 - z) * n + z * h
//
// A CPU's template reads any weights, packed or not. The pass runs behind recognise-cells, which
// would put the cells back.
#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/has_kernel.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Dim;
using ir::Expr;
using ir::Type;
using Dims = std::vector<Dim>;

class Cell {
 public:
  Cell(const Expr& e, ir::BlockBuilder& out)
      : e_(e),
        out_(out),
        operands_(*ir::traits_of(e).cell),
        batch_(ir::type_of(e.args[1])->dims[0]),
        width_(ir::type_of(e.args[1])->dims[1]),
        dtype_(ir::type_of(e.args[1])->dtype) {}

  Atom lstm(const Type& result) {
    const Atom c = e_.args[*operands_.c];
    const Atom s = binary("add", e_.args[0], product(e_.args[1], e_.args[operands_.weights]));
    const Atom kept = binary("mul", sigmoid(gate(s, 1)), c);
    const Atom entered = binary("mul", sigmoid(gate(s, 0)), tanh(gate(s, 2)));
    const Atom next = binary("add", kept, entered);
    const Atom h = binary("mul", sigmoid(gate(s, 3)), tanh(next));
    const ir::VarRef both = out_.bind(ir::make_tuple({h, next}, e_.location), "cell");
    both->type = result;
    return both;
  }

  Atom gru() {
    const Atom &x = e_.args[0], &h = e_.args[1];
    const Atom &weights = e_.args[operands_.weights], &bias = e_.args[*operands_.bias];
    const bool linear = ir::attr<bool>(e_.attrs, "linear_before_reset");
    const Atom p = binary("add", product(h, weights), bias);
    const Atom r = sigmoid(binary("add", gate(x, 0), gate(p, 0)));
    const Atom z = sigmoid(binary("add", gate(x, 1), gate(p, 1)));
    Atom inner = linear ? binary("mul", r, gate(p, 2))
                        : binary("add", product(binary("mul", r, h), gate(weights, 2)),
                                 part(bias, 0, {width_}, 2));
    const Atom n = tanh(binary("add", gate(x, 2), inner));
    const Atom one = Atom::of(dtype_ == DType::kF64 ? ir::Tensor::of<double>(DType::kF64, {}, {1})
                                                    : ir::Tensor::scalar_f32(1));
    return binary("add", binary("mul", binary("sub", one, z), n), binary("mul", z, h));
  }

 private:
  Atom call(const char* op, std::vector<Atom> args, ir::Attrs attrs, Dims dims) {
    const ir::VarRef v = out_.call(op, std::move(args), std::move(attrs), "cell", e_.location);
    v->type = ir::tensor_type(std::move(dims), dtype_);
    return v;
  }
  Atom sigmoid(const Atom& a) { return call("sigmoid", {a}, {}, ir::type_of(a)->dims); }
  Atom tanh(const Atom& a) { return call("tanh", {a}, {}, ir::type_of(a)->dims); }
  // Of operands one of which has the result's extents.
  Atom binary(const char* op, const Atom& a, const Atom& b) {
    const Dims &x = ir::type_of(a)->dims, &y = ir::type_of(b)->dims;
    return call(op, {a, b}, {}, x.size() >= y.size() ? x : y);
  }
  Atom product(const Atom& rows, const Atom& weights) {
    return call("matmul", {rows, weights}, {}, {batch_, ir::type_of(weights)->dims[1]});
  }
  // The columns of one gate.
  Atom gate(const Atom& a, int64_t number) {
    Dims dims = ir::type_of(a)->dims;
    dims[1] = width_;
    return part(a, 1, std::move(dims), number);
  }
  Atom part(const Atom& a, int64_t axis, Dims dims, int64_t number) {
    return call("slice", {a},
                {{"axes", std::vector<int64_t>{axis}},
                 {"starts", Dims{number * width_}},
                 {"ends", Dims{(number + 1) * width_}},
                 {"steps", Dims{1}}},
                std::move(dims));
  }

  const Expr& e_;
  ir::BlockBuilder& out_;
  const ir::CellOperands& operands_;
  const Dim batch_, width_;
  const DType dtype_;
};

// Whether all operands are matrices and vectors of f32, or of f64.
bool is_plain(const std::vector<Type>& operands) {
  const DType type = operands[0] ? operands[0]->dtype : DType::kF16;
  if (type != DType::kF32 && type != DType::kF64) return false;
  for (const Type& t : operands)
    if (!t || t->kind != ir::TypeKind::kTensor || t->dims.empty() || t->dims.size() > 2 ||
        t->dtype != type)
      return false;
  return true;
}

}  // namespace

ir::Module expand_cells(const ir::Module& m, PassContext& context) {
  if (!context.gpu) return m;
  const auto expand = [&](const ir::Function& f, const ir::Binding& b,
                          ir::BlockBuilder& out) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall || ir::traits_of(e).packs != ir::Packs::kGates ||
        !b.var->type)
      return std::nullopt;
    std::vector<Type> operands;
    for (const Atom& a : e.args) operands.push_back(ir::type_of(a));
    if (!is_plain(operands) || has_kernel(e, operands, b.var->type, context.target_in(f), context))
      return std::nullopt;
    context.count("expand-cells.expanded");
    Cell cell(e, out);
    return ir::traits_of(e).cell->c ? cell.lstm(b.var->type) : cell.gru();
  };
  return rewrite_module(m, expand);
}

}  // namespace nimble::passes
