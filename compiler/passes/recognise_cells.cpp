// Recognises an LSTM or GRU step that is written out in operators and makes it one lstm_cell or
// gru_cell, which have a template of their own (gates computed while the recurrent weights stream
// past). An LSTM:
//
//   gates = x + matmul(h, R)          (either order; x already holds the biases)
//   i, f, g, o = slices of gates, each as wide as h
//   c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
//   h' = sigmoid(o) * tanh(c')
//
// A GRU, whose reset gate applies after the product or before it (cell_steps.h matches it):
//
//   p = matmul(h, R) + b              (with b or without; x as above)
//   r, z = sigmoid(slices of x + p)   (summed before they are sliced, or after)
//   n = tanh(slice of x + r * slice of p)
//   n = tanh(slice of x + matmul(r * h, R_n) + b_n)    (then p has r and z alone)
//   h' = (1 - z) * n + z * h          (or n + z * (h - n))

#include <algorithm>

#include "compiler/passes/passes.h"
#include "compiler/passes/support/cell_steps.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Dim;
using ir::Expr;

class LstmMatcher {
 public:
  explicit LstmMatcher(const Definitions& d) : d_(d) {}

  struct Cell {
    Atom input, c;
    RecurrentProduct product;
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
      if (!f || !i || !g || !same_variable(f->gates, *i) || !same_variable(*i, *g)) continue;
      if (auto cell = match_gates(f->gates, f->other)) return cell;
    }
    return std::nullopt;
  }

  // Matches the definition of h' given its gates and c'.
  bool match_h(const Expr& mul, const Atom& c_new, const Atom& gates) const {
    if (mul.op != "mul") return false;
    auto o = activation(mul, "sigmoid", 3);
    if (!o || !same_variable(*o, gates)) return false;
    for (const Atom& a : mul.args)
      if (const Expr* t = definition(d_, a, "tanh"))
        if (same_variable(t->args[0], c_new)) return true;
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
    const ir::Type part = ir::type_of(a);
    if (!part || part->dims.size() != 2) return std::nullopt;
    const auto width = part->dims[1].as_constant();
    const Columns columns = columns_of(d_, a);
    const ir::Type whole = ir::type_of(columns.of);
    if (!width || *width < 1 || columns.first != gate * *width || whole->dims.size() != 2 ||
        !whole->dims[1].is_constant(4 * *width))
      return std::nullopt;
    return columns.of;
  }

  std::optional<Cell> match_gates(const Atom& gates, const Atom& c) const {
    const Expr* add = definition(d_, gates, "add");
    if (!add) return std::nullopt;
    const ir::Type g = ir::type_of(gates), c_type = ir::type_of(c);
    for (size_t side : {size_t{0}, size_t{1}}) {
      const Atom& input = add->args[1 - side];
      auto product = match_product(d_, add->args[side], *g->dims[1].as_constant(), false);
      if (!product || !ir::equal(ir::type_of(product->state), c_type) ||
          !ir::equal(ir::type_of(input), g))
        continue;
      return Cell{input, c, *product};
    }
    return std::nullopt;
  }

  const Definitions& d_;
};

// The calls that a cell in place of written-out operators needs.
class Emitter {
 public:
  Emitter(ir::BlockBuilder& out, const ir::Location& location) : out_(out), location_(location) {}

  // The weights of products beside each other, (h, columns of all).
  Atom weights(const std::vector<RecurrentProduct>& products) {
    std::vector<Atom> parts;
    for (const RecurrentProduct& p : products) parts.push_back(upright(p));
    if (parts.size() == 1) return parts[0];
    const ir::Type first = ir::type_of(parts[0]);
    return call("concat", parts, {{"axis", int64_t{1}}}, "weights",
                {first->dims[0], Dim(columns_of_all(products))}, first->dtype);
  }

  // Their biases, zeros where one has none: (columns of all).
  Atom bias(const std::vector<RecurrentProduct>& products, DType dtype) {
    const bool any = std::any_of(products.begin(), products.end(),
                                 [](const RecurrentProduct& p) { return p.bias.has_value(); });
    if (!any) return zeros(columns_of_all(products), dtype);
    std::vector<Atom> parts;
    for (const RecurrentProduct& p : products)
      parts.push_back(p.bias ? *p.bias : zeros(p.columns, dtype));
    if (parts.size() == 1) return parts[0];
    return call("concat", parts, {{"axis", int64_t{0}}}, "bias", {Dim(columns_of_all(products))},
                dtype);
  }

 private:
  static int64_t columns_of_all(const std::vector<RecurrentProduct>& products) {
    int64_t all = 0;
    for (const RecurrentProduct& p : products) all += p.columns;
    return all;
  }
  static Atom zeros(int64_t count, DType dtype) {
    uint8_t* data = nullptr;
    return Atom::of(ir::Tensor::make(dtype, {count}, &data));
  }
  Atom upright(const RecurrentProduct& p) {
    if (!p.transposed) return p.weights;
    const ir::Type stored = ir::type_of(p.weights);
    return call("transpose", {p.weights}, {{"axes", std::vector<int64_t>{1, 0}}}, "weights",
                {stored->dims[1], stored->dims[0]}, stored->dtype);
  }
  // The next match asks for types.
  Atom call(const char* op, std::vector<Atom> args, ir::Attrs attrs, const char* hint,
            std::vector<Dim> dims, DType dtype) {
    const ir::VarRef v = out_.call(op, std::move(args), std::move(attrs), hint, location_);
    v->type = ir::tensor_type(std::move(dims), dtype);
    return v;
  }

  ir::BlockBuilder& out_;
  const ir::Location& location_;
};

}  // namespace

ir::Module recognise_cells(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    Definitions definitions = definitions_of(*f);
    LstmMatcher matcher(definitions);
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
        const Atom weights = Emitter(o, e.location).weights({cell->product});
        ir::VarRef both = o.call("lstm_cell", {cell->input, cell->product.state, cell->c, weights},
                                 {}, "cell", e.location);
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
      if (auto step = match_gru(definitions, e, b.var->type)) {
        Emitter emit(o, e.location);
        const Atom weights = emit.weights(step->products);
        const Atom bias = emit.bias(step->products, b.var->type->dtype);
        o.append({b.var, ir::make_call("gru_cell", {step->input, step->h, weights, bias},
                                       {{"linear_before_reset", step->linear_before_reset()}},
                                       e.location)});
        context.count("recognise-cells.gru");
        return Atom(b.var);
      }
      return std::nullopt;
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
