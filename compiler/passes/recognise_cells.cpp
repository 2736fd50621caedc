// Recognises an LSTM step that is written out in operators and makes it one lstm_cell, which has a
// template of its own (gates computed while the recurrent weights stream past):
//
//   gates = x + matmul(h, R)          (either order; x already holds the biases)
//   i, f, g, o = slices of gates, each as wide as h
//   c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
//   h' = sigmoid(o) * tanh(c')

#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Dim;
using ir::Expr;

bool same(const Atom& a, const Atom& b) {
  return a.is_var() && b.is_var() && a.var == b.var;
}

class CellMatcher {
 public:
  explicit CellMatcher(const Definitions& d) : d_(d) {}

  struct Cell {
    Atom input, h, c, weights;
    bool transposed = false;  // the weights are stored as (4h, h)
  };

  // Matches the definition of c'.
  std::optional<Cell> match_c(const Expr& add) const {
    if (add.op != "add") return std::nullopt;
    for (size_t side : {size_t{0}, size_t{1}}) {
      const Expr* keep = definition(d_, add.args[side], "mul");
      const Expr* enter = definition(d_, add.args[1 - side], "mul");
      if (!keep || !enter) continue;
      auto f = gated(*keep, "sigmoid", 1);
      auto i = activation(*enter, "sigmoid", 0);
      auto g = activation(*enter, "tanh", 2);
      if (!f || !i || !g || !same(f->gates, *i) || !same(*i, *g)) continue;
      if (auto cell = match_gates(f->gates, f->other)) return cell;
    }
    return std::nullopt;
  }

  // Matches the definition of h' given its gates and c'.
  bool match_h(const Expr& mul, const Atom& c_new, const Atom& gates) const {
    if (mul.op != "mul") return false;
    auto o = activation(mul, "sigmoid", 3);
    if (!o || !same(*o, gates)) return false;
    for (const Atom& a : mul.args)
      if (const Expr* t = definition(d_, a, "tanh"))
        if (same(t->args[0], c_new)) return true;
    return false;
  }

  std::optional<Atom> gates_of(const Expr& add) const {
    for (const Atom& a : add.args)
      if (const Expr* mul = definition(d_, a, "mul"))
        if (auto f = gated(*mul, "sigmoid", 1)) return f->gates;
    return std::nullopt;
  }

 private:
  struct Gated {
    Atom gates, other;
  };

  // The tensor whose gate number `gate` stands under `function` in one operand of `mul`.
  std::optional<Atom> activation(const Expr& mul, std::string_view function, int64_t gate) const {
    for (const Atom& a : mul.args)
      if (const Expr* f = definition(d_, a, function))
        if (auto gates = slice_of(f->args[0], gate)) return gates;
    return std::nullopt;
  }

  std::optional<Gated> gated(const Expr& mul, std::string_view function, int64_t gate) const {
    for (size_t side : {size_t{0}, size_t{1}})
      if (const Expr* f = definition(d_, mul.args[side], function))
        if (auto gates = slice_of(f->args[0], gate)) return Gated{*gates, mul.args[1 - side]};
    return std::nullopt;
  }

  std::optional<Atom> slice_of(const Atom& a, int64_t gate) const {
    const Expr* s = definition(d_, a, "slice");
    if (!s) return std::nullopt;
    const auto& axes = ir::attr<std::vector<int64_t>>(s->attrs, "axes");
    ir::Type whole = ir::type_of(s->args[0]), part = ir::type_of(a);
    if (!whole || whole->dims.size() != 2 || axes.size() != 1 || (axes[0] != 1 && axes[0] != -1))
      return std::nullopt;
    auto width = part->dims[1].as_constant();
    const auto& starts = ir::attr<std::vector<Dim>>(s->attrs, "starts");
    if (!width || !(whole->dims[1] == Dim(4 * *width)) || !(starts[0] == Dim(gate * *width)))
      return std::nullopt;
    for (const Dim& step : ir::attr_or<std::vector<Dim>>(s->attrs, "steps", {}))
      if (!step.is_constant(1)) return std::nullopt;
    return s->args[0];
  }

  std::optional<Cell> match_gates(const Atom& gates, const Atom& c) const {
    const Expr* add = definition(d_, gates, "add");
    if (!add) return std::nullopt;
    for (size_t side : {size_t{0}, size_t{1}}) {
      const Expr* product = definition(d_, add->args[side], "matmul");
      if (!product || ir::attr_or(product->attrs, "transpose_a", false)) continue;
      ir::Type h = ir::type_of(product->args[0]), c_type = ir::type_of(c);
      ir::Type x = ir::type_of(add->args[1 - side]), g = ir::type_of(gates);
      if (!ir::equal(h, c_type) || !ir::equal(x, g)) continue;
      return Cell{add->args[1 - side], product->args[0], c, product->args[1],
                  ir::attr_or(product->attrs, "transpose_b", false)};
    }
    return std::nullopt;
  }

  const Definitions& d_;
};

}  // namespace

ir::Module recognise_cells(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    Definitions definitions = definitions_of(*f);
    CellMatcher matcher(definitions);
    struct Found {
      ir::VarRef cell, c_new;
      Atom gates;
    };
    std::vector<Found> found;
    Rewriter rewriter([&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
      // Match the original expression: operands inside of it are the variables of `definitions`.
      auto original = definitions.find(b.var.get());
      if (original == definitions.end()) return std::nullopt;
      const Expr& e = *original->second;
      if (e.kind != ir::ExprKind::kCall || !b.var->type) return std::nullopt;
      if (auto cell = matcher.match_c(e)) {
        Atom weights = cell->weights;
        if (cell->transposed) {
          ir::Type stored = ir::type_of(weights);
          ir::VarRef t = o.call("transpose", {weights}, {{"axes", std::vector<int64_t>{1, 0}}},
                                "weights", e.location);
          t->type = ir::tensor_type({stored->dims[1], stored->dims[0]}, stored->dtype);
          weights = t;
        }
        ir::VarRef both =
            o.call("lstm_cell", {cell->input, cell->h, cell->c, weights}, {}, "cell", e.location);
        both->type = ir::tuple_type({b.var->type, b.var->type});
        o.append({b.var, ir::make_get_field(both, 1, e.location)});
        found.push_back({both, b.var, *matcher.gates_of(e)});
        context.count("recognise-cells.lstm");
        return Atom(b.var);
      }
      for (const Found& c : found)
        if (matcher.match_h(e, c.c_new, c.gates)) {
          o.append({b.var, ir::make_get_field(c.cell, 0, e.location)});
          return Atom(b.var);
        }
      return std::nullopt;
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
