// Joins the products that make an attention's q, k and v: three products of one operand with
// constant matrices become one with the matrices side by side, and q, k, v become column slices
// that the attention kernel reads in place. One wide product keeps the registers busier and reads
// its left operand once. Either each has a bias or none has (T5).
#include <array>
#include <optional>

#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Expr;

struct Projection {
  Atom input, weight;        // input * weight …
  std::optional<Atom> bias;  // … + bias
  bool transposed = false;   // the weight is stored as (columns, rows)
  int64_t columns() const { return weight.constant->shape[transposed ? 0 : 1]; }
};

// Matches matmul(x, W) with constant W (k, n), stored either way.
std::optional<Projection> match_product(const Definitions& d, const Atom& a) {
  const Expr* product = definition(d, a, "matmul");
  if (!product || !product->args[0].is_var() || !product->args[1].is_constant() ||
      ir::attr_or(product->attrs, "transpose_a", false))
    return std::nullopt;
  const ir::Tensor& w = *product->args[1].constant;
  if (w.dtype != DType::kF32 || w.shape.size() != 2) return std::nullopt;
  return Projection{product->args[0], product->args[1], std::nullopt,
                    ir::attr_or(product->attrs, "transpose_b", false)};
}

// The same, or add(matmul(x, W), b) with b (n).
std::optional<Projection> match(const Definitions& d, const Atom& a) {
  const Expr* add = definition(d, a, "add");
  if (!add) return match_product(d, a);
  for (size_t side : {size_t{0}, size_t{1}}) {
    const Atom& bias = add->args[1 - side];
    auto p = match_product(d, add->args[side]);
    if (!p || !bias.is_constant() || bias.constant->shape.size() != 1 ||
        bias.constant->shape[0] != p->columns())
      continue;
    p->bias = bias;
    return p;
  }
  return std::nullopt;
}

// Constants side by side along their columns: row by row, unless they are stored transposed.
ir::TensorRef join_columns(const std::array<Projection, 3>& parts, bool weights) {
  auto of = [&](const Projection& p) -> const ir::Tensor& {
    return *(weights ? p.weight : *p.bias).constant;
  };
  bool transposed = weights && parts[0].transposed;
  int64_t columns = 0;
  for (const Projection& p : parts) columns += p.columns();
  int64_t depth = weights ? of(parts[0]).shape[transposed ? 1 : 0] : 1;
  std::vector<int64_t> shape = {columns};
  if (weights) shape.insert(transposed ? shape.end() : shape.begin(), depth);
  // Rows of every part in turn; transposed, each part is one run.
  int64_t rows = transposed ? 1 : depth;
  uint8_t* data = nullptr;
  auto joined = ir::Tensor::make(DType::kF32, shape, &data);
  auto* to = reinterpret_cast<float*>(data);
  for (int64_t r = 0; r < rows; ++r)
    for (const Projection& p : parts) {
      auto run = static_cast<size_t>(of(p).elements() / rows);
      auto from = of(p).as<float>().subspan(static_cast<size_t>(r) * run, run);
      to = std::copy(from.begin(), from.end(), to);
    }
  return joined;
}

}  // namespace

ir::Module merge_products(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    Definitions definitions = definitions_of(*f);
    Rewriter rewriter([&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
      const Expr& e = *b.value;
      if (e.op != "attention") return std::nullopt;
      std::array<Projection, 3> parts;
      for (size_t i = 0; i < 3; ++i) {
        auto p = match(definitions, e.args[i]);
        if (!p) return std::nullopt;
        parts[i] = *p;
        if (p->input.var != parts[0].input.var || p->transposed != parts[0].transposed ||
            p->bias.has_value() != parts[0].bias.has_value())
          return std::nullopt;
      }
      ir::VarRef product = o.call("matmul", {parts[0].input, Atom::of(join_columns(parts, true))},
                                  {{"transpose_b", parts[0].transposed}}, "qkv", e.location);
      if (parts[0].bias)
        product =
            o.call("add", {product, Atom::of(join_columns(parts, false))}, {}, "qkv", e.location);
      auto rank = static_cast<int64_t>(ir::type_of(e.args[0])->dims.size());
      std::vector<Atom> args = e.args;
      int64_t begin = 0;
      for (size_t i = 0; i < 3; ++i) {
        int64_t end = begin + parts[i].columns();
        args[i] = o.call("slice", {product},
                         {{"axes", std::vector<int64_t>{rank - 1}},
                          {"starts", std::vector<ir::Dim>{begin}},
                          {"ends", std::vector<ir::Dim>{end}},
                          {"steps", std::vector<ir::Dim>{1}}},
                         std::string(1, "qkv"[i]), e.location);
        begin = end;
      }
      context.count("merge-products.merged");
      ir::VarRef y = o.call("attention", std::move(args), e.attrs, b.var->name, e.location);
      y->type = b.var->type;
      return Atom(y);
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
