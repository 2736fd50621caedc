// Constant matrices are laid out as the templates read them (design: one layout per constant and
// target; the entries of a dispatch table vary the schedule only). The packing itself is an
// operator on a constant, so the next fold-constants does it at compile time.
//
// The templates know the widths that suit their register tiles and the number of columns; a
// recurrent cell takes one vector of units with all its gates. The weights of a convolution of
// channels-last images are a matrix as they stand, (kh * kw * c_in, c_out); where its windows are
// single pixels side by side, it is a product of the pixels' rows with that matrix.
#include <algorithm>

#include "compiler/ir/image_layout.h"
#include "compiler/ir/layout.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/templates/conv2d_nhwc.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/recurrent.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Expr;
using Ints = std::vector<int64_t>;

// A constant that can be laid out anew, of so many axes.
bool is_packable(const Atom& a, size_t rank) {
  return a.is_constant() && a.constant->dtype == DType::kF32 && a.constant->shape.size() == rank &&
         std::all_of(a.constant->shape.begin(), a.constant->shape.end(),
                     [](int64_t extent) { return extent > 0; });
}

bool is_packable_product(const Expr& e) {
  return is_packable(e.args[1], 2) && !ir::attr_or(e.attrs, "transpose_a", false) &&
         ir::type_of(e.args[0])->dtype == DType::kF32 && ir::type_of(e.args[0])->dims.size() >= 2;
}

bool is_packable_convolution(const Expr& e) {
  return is_packable(e.args[1], 4) && ir::image_layout_of(e.attrs).channels_last() &&
         ir::attr<int64_t>(e.attrs, "groups") == 1 && ir::type_of(e.args[0])->dtype == DType::kF32;
}

// Whether each pixel of the result is made from the pixel in its place alone.
bool is_product_of_pixels(const Expr& e) {
  const auto all = [&](const char* name, int64_t v) {
    const auto& values = ir::attr<Ints>(e.attrs, name);
    return std::all_of(values.begin(), values.end(), [&](int64_t x) { return x == v; });
  };
  const Ints& weights = e.args[1].constant->shape;
  return weights[0] == 1 && weights[1] == 1 && all("strides", 1) && all("pads", 0);
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
    Rewriter rewriter(
        [&, function = f](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
          const Expr& e = *b.value;
          const auto pack = [&](const Atom& w, const ir::Layout& layout, bool transpose) {
            context.count("pack-weights.packed");
            return o.call("pack", {w}, {{"layout", layout.str()}, {"transpose", transpose}},
                          "packed", e.location);
          };
          const auto panels = [&](const std::string& layout) { return *ir::parse_layout(layout); };
          // The value in place of the binding's. The next product in a row asks for its type.
          const auto call = [&](const char* op, std::vector<Atom> args, ir::Attrs attrs) -> Atom {
            ir::VarRef y = o.call(op, std::move(args), std::move(attrs), b.var->name, e.location);
            y->type = b.var->type;
            return y;
          };
          const auto product = [&](const Atom& x, const Atom& w, int64_t k, int64_t n,
                                   bool transpose) -> Atom {
            const ir::Layout layout = panels(kernels::dense_layout(context.target, DType::kF32, n));
            return call("packed_matmul", {x, pack(w, layout, transpose)},
                        {{"k", k}, {"n", n}, {"layout", layout.str()}});
          };
          switch (ir::traits_of(e).packs) {
            case ir::Packs::kNothing:
              return std::nullopt;
            case ir::Packs::kMatrix: {
              if (!is_packable_product(e)) return std::nullopt;
              const bool transpose = ir::attr_or(e.attrs, "transpose_b", false);
              const Ints& shape = e.args[1].constant->shape;
              return product(e.args[0], e.args[1], shape[transpose ? 1 : 0],
                             shape[transpose ? 0 : 1], transpose);
            }
            case ir::Packs::kFilters: {
              if (!is_packable_convolution(e)) return std::nullopt;
              const Ints& shape = e.args[1].constant->shape;
              const int64_t k = shape[0] * shape[1] * shape[2], n = shape[3];
              const Atom matrix =
                  o.call("reshape", {e.args[1]}, {{"shape", std::vector<ir::Dim>{k, n}}}, "filters",
                         e.location);
              if (is_product_of_pixels(e)) {
                const Atom y = product(e.args[0], matrix, k, n, false);
                return e.args.size() == 3 ? call("add", {y, e.args[2]}, {}) : y;
              }
              const ir::Layout layout =
                  panels(kernels::conv2d_nhwc_layout(context.target, DType::kF32, n));
              ir::Attrs attrs = {
                  {"kernel", Ints{shape[0], shape[1]}}, {"filters", n}, {"layout", layout.str()}};
              for (const char* same : {"strides", "pads", "dilations"})
                attrs[same] = e.attrs.at(same);
              std::vector<Atom> args = e.args;
              args[1] = pack(matrix, layout, false);
              return call("packed_conv2d", std::move(args), std::move(attrs));
            }
            case ir::Packs::kGates: {
              const ir::CellOperands& cell = *ir::traits_of(e).cell;
              const Atom& weights = e.args[cell.weights];
              if (!is_packable(weights, 2)) return std::nullopt;
              std::vector<Atom> args = e.args;
              args[cell.weights] = pack(weights, gates, false);
              args.push_back(step_of(*function, definitions, e));
              ir::Attrs attrs = e.attrs;
              attrs["hidden"] = weights.constant->shape[0];
              attrs["layout"] = gates.str();
              return call(cell.packed, std::move(args), std::move(attrs));
            }
          }
          return std::nullopt;
        });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
