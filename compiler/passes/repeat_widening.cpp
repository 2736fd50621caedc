// Bytes that several operators read widened are widened anew for each of them:
//
//   let %w = mul(cast(%q) {dtype = f32}, s)        let %w1 = mul(cast(%q) {dtype = f32}, s)
//   let %a = f(%w)                            =>   let %a = f(%w1)
//   let %b = g(%w)                                 let %w2 = mul(cast(%q) {dtype = f32}, s)
//                                                  let %b = g(%w2)
//
// Fusion makes each copy part of its reader's kernel, so that bytes alone pass through memory, a
// quarter of what floats take; the arithmetic is a few operations for an element. This is what a
// tensor in QDQ form (DequantizeLinear) is read by: a residual's sum and the next convolution, or
// the two products of a gate. So it is with an image that the policy of precision stores in 16 bits
// (store-images) and element-wise operators read widened. The last inference and eliminate-common
// stand ahead.
#include "compiler/ir/image_layout.h"
#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Expr;

bool is_byte(DType t) {
  return t == DType::kU8 || t == DType::kI8;
}

const ir::Type* tensor(const Atom& a) {
  return a.is_var() && a.var->type && a.var->type->kind == ir::TypeKind::kTensor ? &a.var->type
                                                                                 : nullptr;
}

class Widening {
 public:
  // `images`: how images are stored, or null.
  Widening(const ir::Function& f, const StorageRule* images)
      : definitions_(definitions_of(f)), uses_(count_uses(*f.body)), images_(images) {}

  // Whether an operand is made of bytes by few operations with constants, or is an image that an
  // element-wise operator reads widened; and read more than once.
  bool is_repeated(const Expr& reader, const Atom& a) const {
    return a.is_var() && (is_widened(a, 0) || (is_elementwise(reader) && is_widened_image(a))) &&
           uses_.at(a.var.get()) > 1;
  }

  // The value, computed once more.
  Atom copy(const Atom& a, ir::BlockBuilder& out) const {
    const Expr* e = definition(definitions_, a);
    std::vector<Atom> args;
    for (const Atom& x : e->args) args.push_back(x.is_var() && is_widened(x, 0) ? copy(x, out) : x);
    const ir::VarRef v = out.call(e->op, std::move(args), e->attrs, a.var->name, e->location);
    v->type = a.var->type;
    return v;
  }

 private:
  static constexpr int kMostOperations = 6;

  static bool is_elementwise(const Expr& e) {
    const ir::OpInfo* op = ir::find_op(e.op);
    return op && op->fusion == ir::FusionKind::kElementwise;
  }

  bool is_widened_image(const Atom& a) const {
    const Expr* e = images_ && tensor(a) ? definition(definitions_, a, "cast") : nullptr;
    const ir::Type* stored = e ? tensor(e->args[0]) : nullptr;
    return stored && (*stored)->dtype == images_->type &&
           (*stored)->dims.size() == ir::kImageRank &&
           size_of((*tensor(a))->dtype) > size_of((*stored)->dtype);
  }

  bool is_widened(const Atom& a, int depth) const {
    const ir::Type* type = tensor(a);
    const Expr* e = type ? definition(definitions_, a) : nullptr;
    if (!e || e->op.empty() || depth == kMostOperations || size_of((*type)->dtype) < 4)
      return false;
    const ir::OpInfo* op = ir::find_op(e->op);
    if (!op || op->fusion != ir::FusionKind::kElementwise || !op->traits.cheap) return false;
    const Atom* operand = nullptr;
    for (const Atom& x : e->args) {
      if (x.is_constant()) continue;
      if (operand || !tensor(x)) return false;
      operand = &x;
    }
    if (!operand || (*tensor(*operand))->dims != (*type)->dims) return false;
    return is_byte((*tensor(*operand))->dtype) ? op->traits.identity
                                               : is_widened(*operand, depth + 1);
  }

  const Definitions definitions_;
  const UseCounts uses_;
  const StorageRule* images_;
};

}  // namespace

ir::Module repeat_widening(const ir::Module& m, PassContext& context) {
  const StorageRule* images = storage_rule_of(context.precision);
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    const Widening widening(*f, context.target_in(*f).is_gpu() ? nullptr : images);
    Rewriter rewriter([&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
      if (b.value->kind != ir::ExprKind::kCall) return std::nullopt;
      std::shared_ptr<Expr> made;
      for (size_t i = 0; i < b.value->args.size(); ++i) {
        if (!widening.is_repeated(*b.value, b.value->args[i])) continue;
        if (!made) made = std::make_shared<Expr>(*b.value);
        made->args[i] = widening.copy(b.value->args[i], o);
        context.count("repeat-widening.copies");
      }
      if (!made) return std::nullopt;
      o.append({b.var, made});
      return Atom(b.var);
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
