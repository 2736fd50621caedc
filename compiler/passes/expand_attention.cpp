// Writes attention with products and softmax where its kernel does not take it, by its definition:
//
//   attention(q, k, v, mask) {heads = h, scale}
//     ->  q' = transpose(reshape(q, (b, n, h, d)), 0 2 1 3)       likewise k' and v'
//         p  = softmax(matmul(q', k'^T) * scale + mask, -1)
//         reshape(transpose(matmul(p, v'), 0 2 1 3), (b, n, h*e))
//
// The kernel (kernels/templates/attention.cpp) keeps a head's rows in registers and scratch, so it
// wants to know the widths. Of the narrower float types only the operands and the result are: the
// middle is f32 here as there (set-precision says so to the kernel). On a GPU its templates say
// what they take.
//
// It runs behind fuse-attention, which would put the operator back.
#include <algorithm>
#include <limits>

#include "compiler/passes/passes.h"
#include "compiler/passes/support/has_kernel.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Dim;
using ir::Expr;
using ir::Type;

using Axes = std::vector<int64_t>;

bool is_typed(const Expr& e) {
  return std::all_of(e.args.begin(), e.args.end(), [](const Atom& a) { return ir::type_of(a); });
}

bool has_kernel_here(const ir::Function& f, const Binding& b, PassContext& context) {
  const Expr& e = *b.value;
  if (const kernels::TargetInfo& target = context.target_in(f); target.is_gpu()) {
    std::vector<Type> operands;
    for (const Atom& a : e.args) operands.push_back(ir::type_of(a));
    return has_kernel(e, operands, b.var->type, target, context);
  }
  const Type q = ir::type_of(e.args[0]), v = ir::type_of(e.args[2]);
  if (!is_float(q->dtype)) return false;
  const auto width = q->dims[2].as_constant(), value_width = v->dims[2].as_constant();
  return width && value_width && *width > 0 && *value_width > 0;
}

class Expansion {
 public:
  Expansion(const Expr& e, ir::BlockBuilder& out)
      : e_(e), out_(out), heads_(ir::attr<int64_t>(e.attrs, "heads")) {
    const DType t = ir::type_of(e.args[0])->dtype;
    compute_ = t == DType::kF64 ? t : DType::kF32;
  }

  Atom run() {
    const DType result = ir::attr_or(e_.attrs, "out", ir::type_of(e_.args[0])->dtype);
    const Type q = ir::type_of(e_.args[0]), v = ir::type_of(e_.args[2]);
    // The batch, the queries and the keys as q and k say them.
    const Dim b = q->dims[0], n = q->dims[1], m = ir::type_of(e_.args[1])->dims[1];
    Atom scores = call("matmul", {split(0), split(1)}, {{"transpose_b", true}}, {b, heads_, n, m});
    scores =
        call("mul", {scores, number(ir::attr<double>(e_.attrs, "scale"))}, {}, {b, heads_, n, m});
    if (e_.args.size() == 4) scores = call("add", {scores, mask()}, {}, {b, heads_, n, m});
    const Atom p = call("softmax", {scores}, {{"axis", int64_t{3}}}, {b, heads_, n, m});
    const Dim width = ir::floordiv(v->dims[2], Dim(heads_));
    Atom y = call("matmul", {p, split(2)}, {}, {b, heads_, n, width});
    y = call("transpose", {y}, {{"axes", Axes{0, 2, 1, 3}}}, {b, n, heads_, width});
    const std::vector<Dim> flat = {b, n, v->dims[2]};
    y = call("reshape", {y}, {{"shape", flat}, {"allow_zero", true}}, flat);
    return cast(y, result);
  }

 private:
  Atom call(const char* op, std::vector<Atom> args, ir::Attrs attrs, std::vector<Dim> dims) {
    return typed(op, std::move(args), std::move(attrs), ir::tensor_type(std::move(dims), compute_));
  }
  Atom typed(const char* op, std::vector<Atom> args, ir::Attrs attrs, Type type) {
    const ir::VarRef v = out_.call(op, std::move(args), std::move(attrs), "attention", e_.location);
    v->type = std::move(type);
    return v;
  }
  Atom number(double x) const {
    return Atom::of(compute_ == DType::kF64 ? ir::Tensor::of<double>(DType::kF64, {}, {x})
                                            : ir::Tensor::scalar_f32(static_cast<float>(x)));
  }
  Atom cast(const Atom& a, DType to) {
    const Type t = ir::type_of(a);
    if (t->dtype == to) return a;
    return typed("cast", {a}, {{"dtype", to}}, ir::tensor_type(t->dims, to));
  }

  // Operand i as (b, h, rows, width of a head).
  Atom split(size_t i) {
    const std::vector<Dim> d = ir::type_of(e_.args[i])->dims;
    const Dim width = ir::floordiv(d[2], Dim(heads_));
    const std::vector<Dim> parts = {d[0], d[1], heads_, width};
    const Atom x = call("reshape", {cast(e_.args[i], compute_)},
                        {{"shape", parts}, {"allow_zero", true}}, parts);
    return call("transpose", {x}, {{"axes", Axes{0, 2, 1, 3}}}, {d[0], heads_, d[1], width});
  }

  // What is added to the scores; a bool mask is false where a key does not count.
  Atom mask() {
    const Type t = ir::type_of(e_.args[3]);
    if (t->dtype != DType::kBool) return cast(e_.args[3], compute_);
    return call("where", {e_.args[3], number(0), number(-std::numeric_limits<double>::infinity())},
                {}, t->dims);
  }

  const Expr& e_;
  ir::BlockBuilder& out_;
  Dim heads_;
  DType compute_;
};

}  // namespace

ir::Module expand_attention(const ir::Module& m, PassContext& context) {
  const auto expand = [&](const ir::Function& f, const ir::Binding& b,
                          ir::BlockBuilder& out) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall || e.op != "attention" || !is_typed(e) || !b.var->type ||
        has_kernel_here(f, b, context))
      return std::nullopt;
    context.count("expand-attention.expanded");
    return Expansion(e, out).run();
  };
  return rewrite_module(m, expand);
}

}  // namespace nimble::passes
