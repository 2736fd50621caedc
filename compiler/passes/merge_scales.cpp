// Merges the scale of a quantised product's sums with that of the next quantisation:
//
//   relu(f32(sums) * k + b) / s    =>    relu(f32(sums) * (k / s) + b / s)
//
// where k, b and s are constants, s one positive number; without b or relu too. A model in QDQ form
// has that behind each of its products (DequantizeLinear, QuantizeLinear), and a division for each
// element costs as much as a short sum. The quotient may differ in its last bits from the one that
// was written, so a number halfway between two bytes may be rounded the other way. Of other floats
// the pass changes nothing: it asks for integers below.
//
// What else reads an intermediate keeps all of it, since the sums would have two readers then and
// leave their kernel.
#include <cmath>

#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/reference/reference.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Expr;

// The parts of relu(f32(sums) * factor + bias).
struct Scaled {
  Atom sums, factor;
  std::optional<Atom> bias;
  bool relu = false;
};

class Matcher {
 public:
  explicit Matcher(const ir::Function& f)
      : definitions_(definitions_of(f)), uses_(count_uses(*f.body)) {}

  // The quotient that a binding is, if it is one, and nobody else reads what is divided.
  const Expr* quotient(const ir::VarRef& v) const {
    const Expr* e = definition(definitions_, v, "div");
    const auto divisor = e ? constant_value(e->args[1]) : std::nullopt;
    return divisor && *divisor > 0 && std::isfinite(*divisor) && is_f32(e->args[1]) ? e : nullptr;
  }

  std::optional<Scaled> scaled(Atom a) const {
    Scaled out;
    if (const Expr* relu = read_once(a, definition(definitions_, a, "relu"))) {
      out.relu = true;
      a = relu->args[0];
    }
    if (const Expr* sum = read_once(a, definition(definitions_, a, "add")))
      if (const auto side = constant_side(*sum)) {
        out.bias = sum->args[*side];
        a = sum->args[1 - *side];
      }
    const Expr* product = read_once(a, definition(definitions_, a, "mul"));
    const auto side = product ? constant_side(*product) : std::nullopt;
    if (!side) return std::nullopt;
    out.factor = product->args[*side];
    const Expr* cast = read_once(product->args[1 - *side],
                                 definition(definitions_, product->args[1 - *side], "cast"));
    if (!cast || !cast->args[0].is_var() || uses_.at(cast->args[0].var.get()) != 1)
      return std::nullopt;
    const ir::Type sums = ir::type_of(cast->args[0]);
    if (!sums || sums->kind != ir::TypeKind::kTensor || sums->dtype != DType::kI32)
      return std::nullopt;
    out.sums = cast->args[0];
    return out;
  }

 private:
  static bool is_f32(const Atom& a) { return a.is_constant() && a.constant->dtype == DType::kF32; }
  // The definition `e` of a value that one place reads, or null.
  const Expr* read_once(const Atom& a, const Expr* e) const {
    return e && uses_.at(a.var.get()) == 1 ? e : nullptr;
  }
  // The operand that is a constant.
  static std::optional<size_t> constant_side(const Expr& e) {
    for (const size_t side : {size_t{1}, size_t{0}})
      if (is_f32(e.args[side]) && !e.args[1 - side].is_constant()) return side;
    return std::nullopt;
  }

  const Definitions definitions_;
  const UseCounts uses_;
};

// a / divisor; nothing where an element is not finite.
std::optional<Atom> divided(const Atom& a, const Atom& divisor) {
  const ir::ExprRef call = ir::make_call("div", {a, divisor}, {});
  const ir::TensorRef made =
      reference::evaluate_op(*call, {a.constant, divisor.constant}, {}).at(0);
  if (!made->all_finite()) return std::nullopt;
  return Atom::of(made);
}

}  // namespace

ir::Module merge_scales(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    const Matcher matcher(*f);
    Rewriter rewriter([&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
      // The original expression: operands inside of it are the variables of the matcher.
      const Expr* quotient = matcher.quotient(b.var);
      const auto scaled = quotient ? matcher.scaled(quotient->args[0]) : std::nullopt;
      const ir::Type& type = b.var->type;
      // A constant of one element may have a higher rank than what it divides.
      if (!scaled || !type || ir::type_of(scaled->sums)->dims != type->dims) return std::nullopt;
      const auto factor = divided(scaled->factor, quotient->args[1]);
      const auto bias = scaled->bias ? divided(*scaled->bias, quotient->args[1]) : std::nullopt;
      if (!factor || scaled->bias.has_value() != bias.has_value()) return std::nullopt;
      const auto call = [&](const char* op, std::vector<Atom> args, ir::Attrs attrs) -> Atom {
        const ir::VarRef v =
            o.call(op, std::move(args), std::move(attrs), b.var->name, b.value->location);
        v->type = type;
        return v;
      };
      Atom y = call("cast", {rewriter.resolve(scaled->sums)}, {{"dtype", DType::kF32}});
      y = call("mul", {y, *factor}, {});
      if (bias) y = call("add", {y, *bias}, {});
      if (scaled->relu) y = call("relu", {y}, {});
      context.count("merge-scales.merged");
      return y;
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
