// Writes into the module what the policy of the compilation computes in narrower numbers
// (Precision.def): such a product gets its constant weights in the narrow type, its other operand
// through a cast, and `out`, the type that it had and in which it goes on adding up.
//
//   y = matmul(x, W)    =>    n = cast(x) {dtype = bf16};  y = matmul(n, W') {out = f32}
//
// The other operand stays as it is where the target has no instruction that multiplies the narrow
// type: such weights are storage, converted as they are loaded (f16, but on few targets). Weights
// that are finite stay so, else the product stays wide.
//
// Under every policy a product of f16 or bf16 is made in f32 and rounded at the end, which is what
// it means; of f16 that no instruction multiplies the other operand is cast up once, where it is
// made, instead of at each load:
//
//   y = matmul(x, W)    =>    v = cast(x) {dtype = f32};  z = matmul(v, W) {out = f32};
//                             y = cast(z) {dtype = f16}
//
// A value is cast once, right behind the operator that makes it, whatever number of products read
// it: there the cast goes into that operator's kernel (fuse). A value that was cast up from the
// narrow type is taken as it was before.
//
// Attention takes both factors of its products so, on a CPU: all three operands are computed at run
// time. These are mostly parts of one product's result, whose cast is then the parts', too:
//
//   q = slice(x); … y = attention(q, k, v)    =>    n = cast(x) {dtype = bf16};
//                                                   q' = slice(n); … y = attention(q', k', v')
//                                                                        {out = f32}
//
// so that the product's kernel gives it, and nothing else passes through memory. That of f16 or
// bf16 is made in f32 as products are, from the operands as they stand.
//
// A policy may also do no more than allow a GPU's kernels to take fewer bits of their factors than
// these have (tf32): then the operators that have the attribute get it, and nothing else changes.
//
//   y = matmul(x, W)    =>    y = matmul(x, W) {tf32 = true}
//
// Only what pack-weights can lay out is narrowed, since the kernels of narrow products read packed
// weights; a GPU's read them as they lie, and convolutions are narrowed where one takes them. These
// have whole groups of rows (ir::Layout): a product over a number of terms that is no multiple of
// the group stays wide, since a row of the other operand would end within a group and the kernel
// read over its end. Of f16 only its other operand does. A photograph of three channels that a
// network's first convolution reads is put into groups by the kernel (grouped_planes.h).
#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/layout.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/templates/attention_operands.h"
#include "compiler/kernels/templates/conv2d_nhwc.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/operand_types.h"
#include "compiler/passes/pack_weights.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/has_kernel.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/passes/support/rounded_constants.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Expr;
using ir::Var;
using ir::VarRef;

constexpr size_t kFactors = 3;  // of attention: q, k and v

class Narrowing {
 public:
  explicit Narrowing(PassContext& context) : context_(context) {}

  ir::FunctionRef run(const ir::FunctionRef& f) {
    definitions_ = definitions_of(*f);
    target_ = &context_.target_in(*f);
    plan(*f);
    Rewriter rewriter([&](const Binding& b, ir::BlockBuilder& out) { return visit(b, out); });
    ir::FunctionRef made = rewriter.rewrite(f);
    ir::BlockBuilder first;
    for (const VarRef& p : f->parameters) append_casts(p, p->location, first);
    if (first.bindings().empty()) return made;
    auto body = std::make_shared<ir::Block>(*made->body);
    body->bindings.insert(body->bindings.begin(), first.bindings().begin(), first.bindings().end());
    auto copy = std::make_shared<ir::Function>(*made);
    copy->body = std::move(body);
    return copy;
  }

 private:
  // Names the casts of what bindings and callers make. Variables of patterns are neither: those are
  // cast where they are read.
  void plan(const ir::Function& f) {
    casts_.clear();
    std::unordered_set<const Var*> made;
    for (const VarRef& p : f.parameters) made.insert(p.get());
    visit_bindings(*f.body, [&](const Binding& b) {
      made.insert(b.var.get());
      const auto name_cast = [&](const Atom& x, DType type) {
        if (x.is_var() && made.contains(x.var.get()) && x.var->type->dtype != type &&
            !cast_of(x.var, type))
          casts_[x.var.get()].push_back(cast_variable(x.var, type));
      };
      if (const std::optional<Types> types = types_for(b))
        name_cast(source(b.value->args[0], types->rows), types->rows);
      if (const std::optional<DType> type = factors_for(b))
        for (size_t i = 0; i < kFactors; ++i) {
          Atom x = b.value->args[i];
          while (const Expr* moved = moves(x)) x = moved->args[0];
          name_cast(source(x, *type), *type);
        }
    });
  }

  // What a product is to be made of and in. `rows` are those of its other operand.
  struct Types {
    DType rows{}, weights{}, sums{};
  };
  // Nothing for what stays as it is.
  std::optional<Types> types_for(const Binding& b) {
    const Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall) return {};
    const ir::Packs packs = ir::traits_of(e).packs;
    if (packs != ir::Packs::kMatrix && packs != ir::Packs::kFilters) return {};
    if (const DType type = b.var->type->dtype; is_narrow_float(type))
      return Types{rows_for(e, type, type), type, DType::kF32};
    const PrecisionRule* rule = rule_for(b);
    if (!rule) return {};
    return Types{rows_for(e, rule->sums, rule->operands), rule->operands, rule->sums};
  }

  // The type of the factors of an operator whose kernel packs them (attention): what its operands
  // are, or what the policy narrows them to. Nothing if it stays as it is, as on a GPU, whose
  // kernels take what there is.
  std::optional<DType> factors_for(const Binding& b) const {
    const Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall || ir::traits_of(e).packs != ir::Packs::kInKernel ||
        target_->is_gpu() || e.attrs.contains("out"))
      return {};
    if (const DType type = b.var->type->dtype; is_narrow_float(type)) return type;
    const PrecisionRule* rule = rule_of(context_.precision, ir::Packs::kInKernel);
    if (!rule || b.var->type->dtype != rule->sums ||
        !kernels::multiplies_factors(*target_, rule->operands) ||
        kernels::has_few_rows(ir::type_of(e.args[0])->dims[1]))
      return {};
    return rule->operands;
  }

  // The operator that gives an operand's elements from others' places, every one as it was and
  // whatever their type; null if none does.
  const Expr* moves(const Atom& a) const {
    const Expr* e = definition(definitions_, a);
    if (!e || e->args.size() != 1) return nullptr;
    return ir::find_op(e->op)->moves_elements() ? e : nullptr;
  }

  // The constant matrix that pack-weights lays out: `k` elements lie in a row of the other operand,
  // or in a pixel of a group of it.
  struct Matrix {
    bool filters = false;
    int64_t k = 0, n = 0;
  };
  // Of a call whose operands are `given`; nothing if it has none.
  static std::optional<Matrix> matrix_of(const Expr& e, DType given) {
    const ir::Packs packs = ir::traits_of(e).packs;
    if (packs == ir::Packs::kMatrix && is_packable_product(e, given, given)) {
      const auto& shape = e.args[1].constant->shape;
      const bool transposed = ir::attr_or(e.attrs, "transpose_b", false);
      return Matrix{false, shape[transposed ? 1 : 0], shape[transposed ? 0 : 1]};
    }
    if (packs == ir::Packs::kFilters && is_packable_convolution(e, given, given)) {
      const auto& shape = e.args[1].constant->shape;
      return Matrix{true, shape[2], shape[3] / ir::attr<int64_t>(e.attrs, "groups")};
    }
    return {};
  }
  // How many neighbours of a row the target multiplies at a time.
  int64_t group_of(const Matrix& m, DType rows, DType weights) const {
    const kernels::TargetInfo& t = context_.target;
    return ir::parse_layout(m.filters ? kernels::conv2d_nhwc_layout(t, rows, weights, m.n)
                                      : kernels::dense_layout(t, rows, weights, m.n))
        ->group;
  }
  // The type of the other operand of a call whose operands are `given`, beside weights of a type.
  DType rows_for(const Expr& e, DType given, DType weights) const {
    const kernels::TargetInfo& t = context_.kernel_target();
    const DType rows = kernels::rows_type(t, weights),
                alone = kernels::rows_type(t, weights, false);
    if (rows == alone) return rows;
    const std::optional<Matrix> m = matrix_of(e, given);
    if (!m) return alone;
    const int64_t group = group_of(*m, rows, weights);
    return group > 1 && m->k % group == 0 ? rows : alone;
  }

  // The rule by which a call is narrowed; null if by none.
  const PrecisionRule* rule_for(const Binding& b) {
    const Expr& e = *b.value;
    const ir::Packs packs = ir::traits_of(e).packs;
    const PrecisionRule* rule = rule_of(context_.precision, packs);
    if (!rule) return nullptr;
    if (packs == ir::Packs::kFilters && !context_.packs_weights())
      return is_convolved(b, *rule) ? rule : nullptr;
    const std::optional<Matrix> m = matrix_of(e, rule->sums);
    if (!m) return nullptr;
    const DType rows = rows_for(e, rule->sums, rule->operands);
    const bool fits = !context_.packs_weights() || m->k % group_of(*m, rows, rule->operands) == 0 ||
                      (m->filters && definition(definitions_, e.args[0], "transpose") &&
                       planes_of(e, definitions_));
    return fits && stays_finite(e.args[1].constant, rule->operands) ? rule : nullptr;
  }

  // Whether a kernel takes a convolution's images and weights as they lie in the types of a rule.
  bool is_convolved(const Binding& b, const PrecisionRule& rule) {
    const Expr& e = *b.value;
    std::vector<ir::Type> operands;
    for (const Atom& a : e.args) operands.push_back(ir::type_of(a));
    if (!e.args[1].is_constant() || b.var->type->dtype != rule.sums) return false;
    for (size_t i = 0; i < 2; ++i)
      if (operands[i]->dtype != rule.sums) return false;
    operands[0] = ir::tensor_type(operands[0]->dims, rows_for(e, rule.sums, rule.operands));
    operands[1] = ir::tensor_type(operands[1]->dims, rule.operands);
    Expr narrow = e;
    narrow.attrs["out"] = rule.sums;
    return stays_finite(e.args[1].constant, rule.operands) &&
           has_kernel(narrow, operands, b.var->type, *target_, context_);
  }

  // Whether the finite elements of a constant are so as `type`, too.
  bool stays_finite(const ir::TensorRef& wide, DType type) {
    const auto [known, is_new] = finite_.try_emplace({wide.get(), type}, true);
    if (!is_new) return known->second;
    const ir::TensorRef narrow = rounded_.as(wide, type, {});
    for (int64_t i = 0; i < wide->elements() && known->second; ++i)
      known->second = std::isfinite(narrow->value(i)) || !std::isfinite(wide->value(i));
    return known->second;
  }

  // The operand of a product, or what it was before it was cast from the type that is wanted.
  Atom source(const Atom& x, DType rows) const {
    const Expr* e = definition(definitions_, x, "cast");
    const bool widens = e && size_of(rows) < size_of(ir::type_of(x)->dtype);
    return widens && ir::type_of(e->args[0])->dtype == rows ? e->args[0] : x;
  }

  VarRef cast_of(const VarRef& v, DType type) const {
    if (const auto it = casts_.find(v.get()); it != casts_.end())
      for (const VarRef& c : it->second)
        if (c->type->dtype == type) return c;
    return nullptr;
  }
  static VarRef cast_variable(const VarRef& v, DType type) {
    return ir::make_var(v->name + "." + std::string(name_of(type)),
                        ir::tensor_type(v->type->dims, type));
  }
  void append_cast(const VarRef& cast, const Atom& of, const ir::Location& location,
                   ir::BlockBuilder& out) {
    context_.count("set-precision.casts");
    out.append({cast, ir::make_call("cast", {of}, {{"dtype", cast->type->dtype}}, location)});
  }
  void append_casts(const VarRef& v, const ir::Location& location, ir::BlockBuilder& out) {
    if (const auto it = casts_.find(v.get()); it != casts_.end())
      for (const VarRef& c : it->second) append_cast(c, v, location, out);
  }

  // A recurrent cell with its weights as the policy stores them; null if they stay as they are.
  ir::ExprRef narrowed_cell(const Binding& b) {
    const Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall || ir::traits_of(e).packs != ir::Packs::kGates)
      return nullptr;
    const PrecisionRule* rule = rule_of(context_.precision, ir::Packs::kGates);
    const size_t at = ir::traits_of(e).cell->weights;
    if (!rule || !is_packable_cell(e, rule->sums)) return nullptr;
    if (!stays_finite(e.args[at].constant, rule->operands)) return nullptr;
    auto copy = std::make_shared<Expr>(e);
    copy->args[at] = Atom::of(rounded_.as(e.args[at].constant, rule->operands, e.location));
    if (!context_.packs_weights()) {  // the kernel is chosen by what it is then
      std::vector<ir::Type> operands;
      for (const Atom& a : copy->args) operands.push_back(ir::type_of(a));
      if (!has_kernel(*copy, operands, b.var->type, *target_, context_)) return nullptr;
    }
    context_.count("set-precision.cells");
    return copy;
  }

  // An operator of f32 on a GPU with what the policy allows its kernels; null if nothing.
  ir::ExprRef allowed(const Binding& b) {
    const std::string attribute(attribute_of(context_.precision));
    const Expr& e = *b.value;
    if (attribute.empty() || !target_->is_gpu() || e.kind != ir::ExprKind::kCall) return nullptr;
    const ir::OpInfo* op = ir::find_op(e.op);
    if (!op || std::ranges::none_of(op->attrs, [&](const auto& a) { return a.name == attribute; }))
      return nullptr;
    std::vector<ir::Type> operands;
    for (const Atom& a : e.args) operands.push_back(ir::type_of(a));
    const auto is_of_other_floats = [](const ir::Type& t) {
      return is_float(t->dtype) && t->dtype != DType::kF32;
    };
    if (b.var->type->dtype != DType::kF32 || std::ranges::any_of(operands, is_of_other_floats))
      return nullptr;
    auto copy = std::make_shared<Expr>(e);
    copy->attrs[attribute] = true;
    if (!has_kernel(*copy, operands, b.var->type, *target_, context_)) return nullptr;
    context_.count("set-precision.allowed");
    return copy;
  }

  std::optional<Atom> visit(const Binding& b, ir::BlockBuilder& out) {
    const std::optional<Types> types = types_for(b);
    const std::optional<DType> factors = factors_for(b);
    ir::ExprRef instead = narrowed_cell(b);
    if (!instead) instead = allowed(b);
    if (!types && !factors && !instead && !casts_.contains(b.var.get())) return std::nullopt;
    if (types) {
      append_product(b, *types, out);
    } else if (factors) {
      append_attention(b, *factors, out);
    } else {
      out.append(instead ? Binding{b.var, instead} : b);
    }
    append_casts(b.var, b.value->location, out);
    return Atom(b.var);
  }

  void append_product(const Binding& b, const Types& types, ir::BlockBuilder& out) {
    context_.count("set-precision.products");
    const Expr& product = *b.value;
    auto copy = std::make_shared<Expr>(product);
    const auto as = [&](const Atom& a, DType type) {
      return operand_as(a, type, product.location, out);
    };
    copy->args[0] = as(source(product.args[0], types.rows), types.rows);
    copy->args[1] = as(product.args[1], types.weights);
    for (size_t i = 2; i < copy->args.size(); ++i)  // a bias
      copy->args[i] = as(product.args[i], types.sums);
    append_sums(b, std::move(copy), types.sums, out);
  }

  void append_attention(const Binding& b, DType factors, ir::BlockBuilder& out) {
    context_.count("set-precision.attentions");
    const Expr& attention = *b.value;
    auto copy = std::make_shared<Expr>(attention);
    for (size_t i = 0; i < kFactors; ++i) copy->args[i] = moved_as(attention.args[i], factors, out);
    for (size_t i = kFactors; i < copy->args.size(); ++i)  // a mask
      if (ir::type_of(copy->args[i])->dtype != DType::kBool)
        copy->args[i] = operand_as(attention.args[i], DType::kF32, attention.location, out);
    append_sums(b, std::move(copy), DType::kF32, out);
  }

  // The call with its sums and result of the type `out`, and the binding's value of its own.
  void append_sums(const Binding& b, std::shared_ptr<Expr> call, DType type,
                   ir::BlockBuilder& out) {
    const ir::Location location = call->location;
    call->attrs["out"] = type;
    if (b.var->type->dtype == type) return out.append({b.var, std::move(call)});
    const VarRef sums = cast_variable(b.var, type);
    out.append({sums, std::move(call)});
    append_cast(b.var, sums, location, out);
  }

  // An operand in another type, by what moved its elements, from a cast of where these come from.
  Atom moved_as(const Atom& a, DType type, ir::BlockBuilder& out) {
    if (ir::type_of(a)->dtype == type) return a;
    const Expr* e = moves(a);
    if (!e) {
      const ir::Location location = a.is_var() ? a.var->location : ir::Location();
      return operand_as(source(a, type), type, location, out);
    }
    auto copy = std::make_shared<Expr>(*e);
    copy->args[0] = moved_as(e->args[0], type, out);
    const VarRef moved = cast_variable(a.var, type);
    out.append({moved, std::move(copy)});
    return moved;
  }

  Atom operand_as(const Atom& a, DType type, const ir::Location& location, ir::BlockBuilder& out) {
    if (ir::type_of(a)->dtype == type) return a;
    if (a.is_constant()) return Atom::of(rounded_.as(a.constant, type, location));
    if (VarRef cast = cast_of(a.var, type)) return cast;
    const VarRef cast = cast_variable(a.var, type);
    append_cast(cast, a, location, out);
    return cast;
  }

  PassContext& context_;
  const kernels::TargetInfo* target_ = nullptr;  // of the function
  Definitions definitions_;
  std::unordered_map<const Var*, std::vector<VarRef>> casts_;  // of the function
  // Of the module:
  RoundedConstants rounded_;
  std::map<std::pair<const ir::Tensor*, DType>, bool> finite_;
};

}  // namespace

ir::Module set_precision(const ir::Module& m, PassContext& context) {
  Narrowing narrowing(context);
  ir::Module out = m;
  for (auto& [name, f] : out.functions) f = narrowing.run(f);
  return out;
}

}  // namespace nimble::passes
