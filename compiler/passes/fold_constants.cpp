// Evaluates operators whose operands are constants, with the reference interpreter: what it
// computes is right by definition. A fold that would make a constant larger than both a page and
// four times its operands (a broadcast) is left to run time, and so is anything above the limits
// (FoldLimits): a program of a few lines can make products of large constants, one after another,
// that take the interpreter hours and a kernel seconds. Packing is folded whatever it costs, since
// no kernel packs at run time: it is one pass over a constant that is there.
//
// What is folded may become a fact of typing: a count that extents are read from, the rows that a
// prefix takes. A fact that contradicts an operator in a place that never runs must not end the
// compilation of a program that runs, so if the folded module is no longer well typed, integers
// stay computed: the operator fails where it runs.
#include <numeric>

#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/reference/reference.h"
#include "vm/base/error.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Expr;
using ir::ExprKind;

bool static_type(const ir::Type& t) {
  if (!t || t->kind != ir::TypeKind::kTensor) return false;
  for (const ir::Dim& d : t->dims)
    if (!d.as_constant()) return false;
  return true;
}

// An extent, start or step that only the run knows.
bool has_symbolic_attribute(const Expr& e) {
  for (const auto& [name, value] : e.attrs) {
    if (const auto* d = std::get_if<ir::Dim>(&value); d && !d->as_constant()) return true;
    if (const auto* dims = std::get_if<std::vector<ir::Dim>>(&value))
      for (const ir::Dim& d : *dims)
        if (!d.as_constant()) return true;
  }
  return false;
}

// What a call on constants costs.
struct Cost {
  double flops = 0;     // what `flops` counts of operators that have such a rule
  double elements = 0;  // of operands and result
};
Cost cost_of(const ir::Binding& b) {
  ir::CallExtents call{b.value->attrs, {}, 1};
  Cost out;
  const auto count = [](double n, double extent) { return n * extent; };
  for (const Atom& a : b.value->args) {
    call.operands.emplace_back(a.constant->shape.begin(), a.constant->shape.end());
    const std::vector<double>& extents = call.operands.back();
    out.elements += std::accumulate(extents.begin(), extents.end(), 1.0, count);
  }
  for (const ir::Dim& d : b.var->type->dims) call.results *= static_cast<double>(*d.as_constant());
  out.elements += call.results;
  if (const ir::WorkRule flops = ir::traits_of(*b.value).flops) out.flops = flops(call);
  return out;
}

// Whether the limits have room for a call; takes from what is left.
bool affordable(const ir::Binding& b, PassContext& context) {
  const Cost cost = cost_of(b);
  const double all = cost.flops + cost.elements;
  if (all <= context.fold.free) return true;
  if (cost.flops > context.fold.flops || all > *context.fold_left) return false;
  *context.fold_left -= all;
  return true;
}

// The value of an operator whose extents and operands are constant; null where none is to be had.
ir::TensorRef evaluated(const ir::Binding& b, PassContext& context) {
  const Expr& e = *b.value;
  if (has_symbolic_attribute(e)) return nullptr;
  std::vector<ir::TensorRef> args;
  int64_t operand_bytes = 0;
  for (const Atom& a : e.args) {
    if (!a.is_constant()) return nullptr;
    args.push_back(a.constant);
    operand_bytes += static_cast<int64_t>(a.constant->bytes.size());
  }
  int64_t bytes = *ir::byte_size(b.var->type).as_constant();
  // Packing pads to whole panels, and no kernel packs at run time.
  const bool must = ir::find_op(e.op)->fusion == ir::FusionKind::kOutside &&
                    ir::traits_of(e).memory == ir::Memory::kOwn;
  bool grows = !must && bytes > 4096 && bytes > 4 * operand_bytes;
  if (grows || bytes > context.fold.bytes) return nullptr;
  if (!must && !affordable(b, context)) {
    context.count("fold-constants.too-dear");
    return nullptr;
  }
  try {
    const std::vector<ir::TensorRef> result = reference::evaluate_op(e, args, {});
    return result.size() == 1 ? result[0] : nullptr;
  } catch (const Error&) {
    return nullptr;  // it fails when it runs, if it ever does
  }
}

struct Folding {
  ir::Module module;
  int64_t folded = 0;
  bool facts = false;  // integers among it: inference looks into them
};

Folding fold(const ir::Module& m, PassContext& context, bool with_facts) {
  Folding out;
  const auto fold_one = [&](const ir::Binding& b, ir::BlockBuilder&) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (e.kind != ExprKind::kCall || e.op.empty() || e.op.rfind("memory.", 0) == 0)
      return std::nullopt;
    if (!static_type(b.var->type) || !reference::has_reference(e.op)) return std::nullopt;
    // What names symbols gives them their values, whatever becomes of its result: inference puts
    // what is known in their place, and only then may it go.
    const ir::Traits& traits = ir::traits_of(e);
    if (traits.effect || traits.names_symbols || traits.placement) return std::nullopt;
    if (e.op == "size") {
      auto value = ir::attr<ir::Dim>(e.attrs, "value").as_constant();
      if (!value) return std::nullopt;
      return Atom::of(ir::Tensor::scalar_i64(*value));
    }
    if (e.op == "shape_of") {
      ir::Type operand = ir::type_of(e.args[0]);
      std::vector<int64_t> extents;
      for (const ir::Dim& d : operand->dims) {
        if (!d.as_constant()) return std::nullopt;
        extents.push_back(*d.as_constant());
      }
      auto rank = static_cast<int64_t>(extents.size());
      return Atom::of(ir::Tensor::of<int64_t>(DType::kI64, {rank}, extents));
    }
    const ir::TensorRef value = evaluated(b, context);
    const bool fact = value && !is_float(value->dtype);
    if (!value || (fact && !with_facts)) return std::nullopt;
    out.facts |= fact;
    ++out.folded;
    return Atom::of(value);
  };
  out.module = rewrite_module(m, fold_one);
  return out;
}

}  // namespace

ir::Module fold_constants(const ir::Module& m, PassContext& context) {
  const FoldLimits& limits = context.fold;
  if (!context.fold_left)
    context.fold_left =
        limits.operations + limits.per_constant_byte * static_cast<double>(constant_bytes(m));
  const double left = *context.fold_left;
  Folding out = fold(m, context, true);
  if (out.facts && !ir::infer_module(out.module).diagnostics.empty()) {
    context.fold_left = left;
    out = fold(m, context, false);
  }
  context.count("fold-constants.folded", out.folded);
  return std::move(out.module);
}

}  // namespace nimble::passes
