// Finds GELU as exporters write it out and makes it one operator:
//
//   x * (1 + erf(x / √2)) * 0.5  ->  gelu(x)
//
// in any order of the factors, the division also as a multiplication with √½. Written out x has two
// uses, so that a product cannot take the activation as its epilogue (fuse.cpp joins along values
// with one use) and the widest tensor of a transformer goes through memory once more.
//
// Whatever else used the intermediates keeps them; eliminate-dead sweeps the rest.
#include <cmath>

#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Expr;

class Matcher {
 public:
  explicit Matcher(const Definitions& d) : d_(d) {}

  // x of a product that is GELU of x.
  std::optional<Atom> gelu(const Expr& product) const {
    for (size_t side : {size_t{0}, size_t{1}}) {
      const Atom &a = product.args[side], &b = product.args[1 - side];
      // x * ((1 + erf) * 0.5)
      if (const auto sum = scaled(b, 0.5))
        if (is_one_plus_erf(*sum, a)) return a;
      // (x * 0.5) * (1 + erf)
      if (const auto x = scaled(a, 0.5))
        if (is_one_plus_erf(b, *x)) return x;
    }
    // (x * (1 + erf)) * 0.5
    const auto both = scaled(product, 0.5);
    const Expr* inner = both ? definition(d_, *both, "mul") : nullptr;
    if (!inner) return std::nullopt;
    for (size_t side : {size_t{0}, size_t{1}})
      if (is_one_plus_erf(inner->args[side], inner->args[1 - side])) return inner->args[1 - side];
    return std::nullopt;
  }

 private:
  static bool is_about(const Atom& a, double value) {
    const auto found = constant_value(a);
    return found && std::fabs(*found - value) <= 1e-6 * value;
  }

  // y of y * factor.
  static std::optional<Atom> scaled(const Expr& product, double factor) {
    for (size_t side : {size_t{0}, size_t{1}})
      if (is_about(product.args[side], factor)) return product.args[1 - side];
    return std::nullopt;
  }
  std::optional<Atom> scaled(const Atom& a, double factor) const {
    const Expr* product = definition(d_, a, "mul");
    return product ? scaled(*product, factor) : std::nullopt;
  }

  // Whether `a` is 1 + erf(x / √2), x a variable.
  bool is_one_plus_erf(const Atom& a, const Atom& x) const {
    const Expr* sum = definition(d_, a, "add");
    if (!sum || !x.is_var()) return false;
    for (size_t side : {size_t{0}, size_t{1}}) {
      const Expr* erf = definition(d_, sum->args[1 - side], "erf");
      if (!erf || !is_about(sum->args[side], 1)) continue;
      auto inside = scaled(erf->args[0], std::sqrt(0.5));
      const Expr* quotient = definition(d_, erf->args[0], "div");
      if (quotient && is_about(quotient->args[1], std::sqrt(2.0))) inside = quotient->args[0];
      if (inside && inside->is_var() && inside->var == x.var) return true;
    }
    return false;
  }

  const Definitions& d_;
};

}  // namespace

ir::Module recognise_activations(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    const Definitions definitions = definitions_of(*f);
    const Matcher matcher(definitions);
    Rewriter rewriter([&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
      // The original expression: operands inside of it are the variables of `definitions`.
      const Expr* product = definition(definitions, b.var, "mul");
      const auto x = product ? matcher.gelu(*product) : std::nullopt;
      // A constant of one element may have a higher rank than x.
      if (!x || !b.var->type || !ir::equal(ir::type_of(*x), b.var->type)) return std::nullopt;
      ir::VarRef v = o.call("gelu", {rewriter.resolve(*x)}, {}, b.var->name, b.value->location);
      v->type = b.var->type;
      context.count("recognise-activations.gelu");
      return Atom(v);
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
