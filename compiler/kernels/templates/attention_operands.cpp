#include "compiler/kernels/templates/attention_operands.h"

#include <fmt/format.h>

#include <limits>

#include "compiler/kernels/fragments.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/tile.h"
#include "compiler/kernels/templates/tiled_product.h"

namespace nimble::kernels {
namespace {

// Whether an operand is a part of a parameter, addressed without arithmetic on its elements.
bool is_view(GroupEvaluator& group, const ir::Atom& a) {
  const ir::Type t = ir::type_of(a);
  if (t->kind != ir::TypeKind::kTensor || a.is_constant() || !group.vectorizable(a)) return false;
  std::vector<kir::Dim> at;
  for (size_t i = 0; i < t->dims.size(); ++i) at.push_back(kir::Dim::symbol(fmt::format("v{}", i)));
  const kir::ValueRef v = group.value(a, at, 2);
  if (!group.take_statements().empty()) return false;
  const kir::Value* load = loaded(v);
  return load && load->dtype == t->dtype && load->stride.is_constant(1);
}

}  // namespace

const kir::Value* loaded(const kir::ValueRef& v) {
  const kir::Value* x = v->kind == kir::ValueKind::kCast ? v->operands[0].get() : v.get();
  return x->kind == kir::ValueKind::kLoad ? x : nullptr;
}

MaskPlace mask_place(const AttentionOperands& p, const ir::Atom& mask,
                     const std::vector<kir::Dim>& at) {
  const std::vector<kir::Dim> scores = {p.batch, kir::Dim(p.heads), p.n, p.m};
  const std::vector<kir::Dim> dims =
      mask.is_constant() ? std::vector<kir::Dim>() : ir::type_of(mask)->dims;
  MaskPlace place;
  for (size_t i = 0; i < dims.size(); ++i) {
    const size_t axis = scores.size() - dims.size() + i;
    kir::Dim factor = 1;
    if (dims[i].is_constant(1)) {
      factor = 0;
    } else if (!(dims[i] == scores[axis]) && !dims[i].as_constant()) {
      factor = ir::min(dims[i] - 1, 1);
    }
    place.at.push_back(at[axis] * factor);
    place.step.push_back(axis + 1 == scores.size() ? factor : kir::Dim(0));
  }
  return place;
}

kir::ValueRef mask_number(const kir::ValueRef& element, DType type) {
  namespace kb = kir::build;
  if (element->dtype != DType::kBool) return kb::cast(type, element);
  return kb::select(element, kb::number(type, 0, element->lanes),
                    kb::number(type, -std::numeric_limits<double>::infinity(), element->lanes));
}

std::optional<AttentionOperands> attention_operands(const Workload& w) {
  if (w.anchor != "attention") return std::nullopt;
  const Frame frame = make_frame(w);
  if (frame.anchor == nullptr || !has_elementwise_epilogue(w, frame)) return std::nullopt;
  const ir::Expr& e = *frame.anchor->value;
  GroupEvaluator group(*w.group, frame.parameters);
  for (const ir::Binding& b : w.group->body->bindings)
    if (&b != frame.anchor && b.value->kind == ir::ExprKind::kCall && !is_pullable(*b.value))
      return std::nullopt;
  for (size_t i = 0; i < 3; ++i)
    if (!is_view(group, e.args[i])) return std::nullopt;
  AttentionOperands p;
  const ir::Type q = ir::type_of(e.args[0]), k = ir::type_of(e.args[1]), v = ir::type_of(e.args[2]);
  p.type = q->dtype;
  p.result = frame.anchor->var->type->dtype;
  p.heads = ir::attr<int64_t>(e.attrs, "heads");
  p.scale = ir::attr<double>(e.attrs, "scale");
  const auto width = q->dims[2].as_constant(), value_width = v->dims[2].as_constant();
  if (!width || !value_width || *width == 0 || *value_width == 0) return std::nullopt;
  p.d = *width / p.heads;
  p.dv = *value_width / p.heads;
  p.batch = q->dims[0];
  p.n = q->dims[1];
  p.m = k->dims[1];
  p.masked = e.args.size() == 4;
  if (p.masked && !e.args[3].is_constant()) {
    const std::vector<kir::Dim>& dims = ir::type_of(e.args[3])->dims;
    p.mask_has_rows = dims.size() >= 2 && !dims[dims.size() - 2].is_constant(1);
  }
  p.tf32 = p.type == DType::kF32 && ir::attr_or(e.attrs, "tf32", false);
  return p;
}

std::optional<AttentionOperands> cpu_attention_of(const Workload& w) {
  std::optional<AttentionOperands> p = attention_operands(w);
  if (!p) return std::nullopt;
  const bool wide = p->type == p->result && (p->type == DType::kF32 || p->type == DType::kF64);
  if (!wide && !(is_narrow_float(p->type) && p->result == DType::kF32)) return std::nullopt;
  if (p->masked) {
    const Frame frame = make_frame(w);
    const ir::Atom& mask = frame.anchor->value->args[3];
    GroupEvaluator group(*w.group, frame.parameters);
    if (!mask.is_constant() && !group.vectorizable(mask)) return std::nullopt;
  }
  return p;
}

bool has_few_rows(const kir::Dim& queries) {
  constexpr int64_t kFew = 4;
  const auto n = queries.as_constant();
  return n && *n <= kFew;
}

bool streams_keys(const AttentionOperands& p, const TargetInfo& t) {
  constexpr int64_t kQueryVectors = 8;  // of a head: a query row stays in registers
  return has_few_rows(p.n) && p.d <= kQueryVectors * lanes_of(t, p.result);
}

bool multiplies_factors(const TargetInfo& t, DType type) {
  const auto fragment = fragment_of(type, type, DType::kF32);
  return tile_fragment_of(t, type, type, DType::kF32) ||
         (fragment && kir::multiplies(kir::row_of(*fragment), t));
}

}  // namespace nimble::kernels
