// Constant matrices are laid out as the templates read them (design: one layout per constant and
// target; the entries of a dispatch table vary the schedule only). The packing itself is an
// operator on a constant, so the next fold-constants does it at compile time.
//
// The templates know the widths that suit their register tiles and the number of columns; a
// recurrent cell takes one vector of units with all its gates.
#include "compiler/ir/layout.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/recurrent.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Expr;

bool is_matrix(const Atom& a) {
  return a.is_constant() && a.constant->dtype == DType::kF32 && a.constant->shape.size() == 2 &&
         a.constant->shape[0] > 0 && a.constant->shape[1] > 0;
}

// The step number of the loop around a cell: the index with which its input row is taken, through
// element-wise operators, else the first scalar integer parameter, else 0. It only sets the
// direction of the walk over the weights, so any value is right.
Atom step_of(const ir::Function& f, const Definitions& definitions, const Expr& cell) {
  Atom input = cell.args[0];
  for (int hops = 0; hops < 8; ++hops) {
    const Expr* e = definition(definitions, input);
    if (!e || e->args.empty()) break;
    if (e->op == "take_row") return e->args[1];
    input = e->args[0];
  }
  for (const ir::VarRef& p : f.parameters)
    if (is_scalar(p->type) && p->type->kind == ir::TypeKind::kTensor &&
        p->type->dtype == DType::kI64)
      return p;
  return Atom::of(ir::Tensor::scalar_i64(0));
}

}  // namespace

ir::Module pack_weights(const ir::Module& m, PassContext& context) {
  const ir::Layout gates =
      *ir::parse_layout(kernels::recurrent_layout(context.target, DType::kF32));
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    Definitions definitions = definitions_of(*f);
    Rewriter rewriter([&, function = f](const ir::Binding& b,
                                        ir::BlockBuilder& o) -> std::optional<Atom> {
      const Expr& e = *b.value;
      auto pack = [&](const Atom& w, const ir::Layout& layout, bool transpose) {
        context.count("pack-weights.packed");
        return o.call("pack", {w}, {{"layout", layout.str()}, {"transpose", transpose}}, "packed",
                      e.location);
      };
      if (e.op == "matmul" && is_matrix(e.args[1]) && !ir::attr_or(e.attrs, "transpose_a", false) &&
          ir::type_of(e.args[0])->dtype == DType::kF32 &&
          ir::type_of(e.args[0])->dims.size() >= 2) {
        bool transpose = ir::attr_or(e.attrs, "transpose_b", false);
        const std::vector<int64_t>& shape = e.args[1].constant->shape;
        const ir::Layout panel = *ir::parse_layout(
            kernels::dense_layout(context.target, DType::kF32, shape[transpose ? 0 : 1]));
        ir::VarRef w = pack(e.args[1], panel, transpose);
        ir::VarRef y = o.call("packed_matmul", {e.args[0], w},
                              {{"k", shape[transpose ? 1 : 0]},
                               {"n", shape[transpose ? 0 : 1]},
                               {"layout", panel.str()}},
                              b.var->name, e.location);
        y->type = b.var->type;  // the next product in a row asks for it
        return Atom(y);
      }
      if (e.op == "lstm_cell" && is_matrix(e.args[3])) {
        Atom step = step_of(*function, definitions, e);
        ir::VarRef w = pack(e.args[3], gates, false);
        ir::VarRef y = o.call("packed_lstm_cell", {e.args[0], e.args[1], e.args[2], w, step},
                              {{"hidden", e.args[3].constant->shape[0]}, {"layout", gates.str()}},
                              b.var->name, e.location);
        y->type = b.var->type;
        return Atom(y);
      }
      return std::nullopt;
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
