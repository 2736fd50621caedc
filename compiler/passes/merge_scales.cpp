// Merges the scale of a quantised product's sums with that of the next quantisation:
//
//   relu(f32(sums) * k + b) / s    =>    relu(f32(sums) * (k / s) + b / s)
//
// where k, b and s are constants, s one positive number; without b or relu too, and of sums of such
// products. A model in QDQ form has that behind each of its products and sums (DequantizeLinear,
// QuantizeLinear), and a division for each element costs as much as a short sum. The quotient may
// differ in its last bits from the one that was written, so a number halfway between two bytes may
// be rounded the other way. Of other floats the pass changes nothing: it asks for integers below.
// Sums of two tensors of bytes are left as they are where that would meet more than one pair in a
// thousand.
//
// What else reads an intermediate keeps all of it, since the sums would have two readers then and
// leave their kernel.
#include <cmath>
#include <utility>

#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/reference/reference.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Expr;

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

  // What computes a value that one place reads, of these dims; null if others read it.
  const Expr* read_once(const Atom& a, std::string_view op,
                        const std::vector<ir::Dim>& dims) const {
    const Expr* e = definition(definitions_, a, op);
    const ir::Type type = e ? ir::type_of(a) : nullptr;
    return type && type->kind == ir::TypeKind::kTensor && type->dims == dims &&
                   uses_.at(a.var.get()) == 1
               ? e
               : nullptr;
  }
  // Whether a value is a tensor of i32 of these dims, and one place reads it.
  bool is_integer_read_once(const Atom& a, const std::vector<ir::Dim>& dims) const {
    const ir::Type type = a.is_var() ? ir::type_of(a) : nullptr;
    return type && type->kind == ir::TypeKind::kTensor && type->dtype == DType::kI32 &&
           type->dims == dims && uses_.at(a.var.get()) == 1;
  }
  static bool is_f32(const Atom& a) { return a.is_constant() && a.constant->dtype == DType::kF32; }
  // The operand that is a constant.
  static std::optional<size_t> constant_side(const Expr& e) {
    for (const size_t side : {size_t{1}, size_t{0}})
      if (is_f32(e.args[side]) && !e.args[1 - side].is_constant()) return side;
    return std::nullopt;
  }

 private:
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

// One operation of a quotient.
struct Part {
  const char* op;
  std::vector<Atom> args;  // the program's, but for constants
  std::vector<int> made;   // for each the part that stands for it, or -1
  ir::Attrs attrs;
};

class Division {
 public:
  Division(const Matcher& matcher, Atom divisor, const std::vector<ir::Dim>& dims)
      : matcher_(matcher), divisor_(std::move(divisor)), dims_(dims) {}

  // The number of the part that is a / divisor; nothing if `a` is no such value.
  std::optional<int> of(const Atom& a, int depth = 0) {
    if (depth == kDeepest) return std::nullopt;
    if (const Expr* relu = matcher_.read_once(a, "relu", dims_)) {
      const auto x = of(relu->args[0], depth + 1);
      return x ? std::optional(add({"relu", {relu->args[0]}, {*x}, {}})) : std::nullopt;
    }
    if (const Expr* sum = matcher_.read_once(a, "add", dims_)) {
      Part part{"add", sum->args, {-1, -1}, {}};
      if (Matcher::is_f32(part.args[0])) std::swap(part.args[0], part.args[1]);
      for (size_t i = 0; i < 2; ++i) {
        if (Matcher::is_f32(part.args[i])) {
          const auto constant = divided(part.args[i], divisor_);
          if (!constant) return std::nullopt;
          part.args[i] = *constant;
          continue;
        }
        const auto x = of(part.args[i], depth + 1);
        if (!x) return std::nullopt;
        part.made[i] = *x;
      }
      if (part.made[0] >= 0 && part.made[1] >= 0 && !rounds_alike(part.args)) return std::nullopt;
      return add(std::move(part));
    }
    const Expr* product = matcher_.read_once(a, "mul", dims_);
    const auto side = product ? Matcher::constant_side(*product) : std::nullopt;
    if (!side) return std::nullopt;
    const Expr* cast = matcher_.read_once(product->args[1 - *side], "cast", dims_);
    if (!cast || !matcher_.is_integer_read_once(cast->args[0], dims_)) return std::nullopt;
    const auto factor = divided(product->args[*side], divisor_);
    if (!factor) return std::nullopt;
    const int numbers = add({"cast", {cast->args[0]}, {-1}, {{"dtype", DType::kF32}}});
    return add({"mul", {cast->args[0], *factor}, {numbers, -1}, {}});
  }

  const std::vector<Part>& parts() const { return parts_; }

 private:
  static constexpr int kDeepest = 8;

  // The factor of f32(integers) * factor, if it is one number.
  std::optional<float> factor_of(const Atom& a) const {
    const Expr* product = matcher_.read_once(a, "mul", dims_);
    const auto side = product ? Matcher::constant_side(*product) : std::nullopt;
    if (!side || product->args[*side].constant->elements() != 1) return std::nullopt;
    return static_cast<float>(product->args[*side].constant->value(0));
  }

  // Whether a sum of two tensors of bytes, less their zero points, is rounded the other way for one
  // pair of bytes in a thousand at most. Scales like 0.08, 0.09 and 0.1 put many sums in the middle
  // of two bytes, where the last bit decides.
  bool rounds_alike(const std::vector<Atom>& sides) const {
    const auto a = factor_of(sides[0]), b = factor_of(sides[1]);
    if (!a || !b) return false;
    const auto s = static_cast<float>(divisor_.constant->value(0));
    const float as = *a / s, bs = *b / s;
    constexpr int kMost = 255;
    int64_t pairs = 0, apart = 0;
    for (int x = -kMost; x <= kMost; ++x)
      for (int y = -kMost; y <= kMost; ++y) {
        const auto u = static_cast<float>(x), v = static_cast<float>(y);
        const float written = (u * *a + v * *b) / s, merged = u * as + v * bs;
        if (!(std::fabs(written) <= 2 * kMost)) continue;  // far beyond all bytes
        ++pairs;
        apart += std::lrint(written) != std::lrint(merged);
      }
    return apart * 1000 <= pairs;
  }

  int add(Part part) {
    parts_.push_back(std::move(part));
    return static_cast<int>(parts_.size()) - 1;
  }

  const Matcher& matcher_;
  const Atom divisor_;
  const std::vector<ir::Dim>& dims_;
  std::vector<Part> parts_;
};

}  // namespace

ir::Module merge_scales(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    const Matcher matcher(*f);
    Rewriter rewriter([&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
      // The original expression: operands inside of it are the variables of the matcher.
      const Expr* quotient = matcher.quotient(b.var);
      const ir::Type& type = b.var->type;
      if (!quotient || !type || type->kind != ir::TypeKind::kTensor) return std::nullopt;
      Division division(matcher, quotient->args[1], type->dims);
      if (!division.of(quotient->args[0])) return std::nullopt;
      std::vector<Atom> made;
      for (const Part& part : division.parts()) {
        std::vector<Atom> args;
        for (size_t i = 0; i < part.args.size(); ++i)
          args.push_back(part.made[i] >= 0 ? made[static_cast<size_t>(part.made[i])]
                                           : rewriter.resolve(part.args[i]));
        const ir::VarRef v =
            o.call(part.op, std::move(args), part.attrs, b.var->name, b.value->location);
        v->type = type;
        made.emplace_back(v);
      }
      context.count("merge-scales.merged");
      return made.back();
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
