// Stores the images between the operators of a convolutional network in the type in which
// convolutions read them, where the policy of precision says so (Precision.def).
//
// set-precision gives what a convolution reads a cast right behind its definition. What else reads
// the value, a residual's sum, a pooling, a concatenation, still reads it wide: its kernel writes
// it in both types, and residuals move twice the bytes. Here such a value is left to its cast:
//
//   n = cast(v) {dtype = bf16}      =>    n = cast(v) {dtype = bf16}
//   y = conv2d(n, W) {out = f32}          y = conv2d(n, W) {out = f32}
//   s = add(y, v)                         w = cast(n) {dtype = f32};  s = add(y, w)
//
// so that fuse gives its kernel one result. It is widened anew for each element-wise operator that
// reads it, right ahead of it, and the widening becomes a part of that operator's kernel; what
// eliminate-common makes one of them repeat-widening takes apart again.
//
// What picks or moves elements is done on narrow ones:
//
//   r = max_pool2d(v)                     q = max_pool2d(n)
//   m = cast(r) {dtype = bf16}      =>    … and q stands for m
//
// These give the same bits: rounding is monotone, so that the largest of rounded numbers is the
// largest number rounded (it may be the other zero where numbers of both signs round to zero), and
// NaN is passed over in either type. A concatenation is done so where all of its operands are
// narrow; those that had no cast get one, which goes into the kernels that make them. What adds up
// first, avg_pool2d, stays, and so does a value that anything else reads: a depthwise convolution
// in f32, a mean, a call, the function's caller.
//
// A convolution's result that is added to a later one's (ResNet's shortcuts) waits for that in
// memory, since fuse makes the sum a part of the later one's kernel: it is narrow, too, though no
// convolution reads it.
//
// Which values these are is the largest set in which each value's readers allow it, found by taking
// out those whose readers do not until nothing changes.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/ir/image_layout.h"
#include "compiler/ir/op.h"
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

constexpr DType kWide = DType::kF32;

class Storing {
 public:
  Storing(const StorageRule& rule, PassContext& context) : rule_(rule), context_(context) {}

  ir::FunctionRef run(const ir::FunctionRef& f) {
    bound_.clear();
    places_.clear();
    readers_.clear();
    carriers_.clear();
    narrow_.clear();
    carried_.clear();
    definitions_ = definitions_of(*f);
    look_at(*f->body);
    find_carriers(*f);
    find_narrow();
    if (narrow_.empty()) return f;
    name_narrow();
    Rewriter rewriter([&](const Binding& b, ir::BlockBuilder& out) { return visit(b, out); });
    return rewriter.rewrite(f);
  }

 private:
  // ---- what reads what
  static bool is_operator(const Expr& e) { return e.kind == ir::ExprKind::kCall && !e.op.empty(); }
  static bool is_of(const ir::Type& t, DType type) {
    return t && t->kind == ir::TypeKind::kTensor && t->dtype == type;
  }

  // Bindings in their order, so that readers of a value stand behind it; readers that are no
  // operators are null.
  void look_at(const ir::Block& block) {
    const auto read = [&](const Atom& a, const Binding* reader) {
      if (a.is_var()) readers_[a.var.get()].push_back(reader);
    };
    for (const Binding& b : block.bindings) {
      places_[b.var.get()] = bound_.size();
      bound_.push_back(&b);
      for (const Atom& a : b.value->args) read(a, is_operator(*b.value) ? &b : nullptr);
      if (b.value->callee) read(*b.value->callee, nullptr);
      for (const ir::BlockRef& nested : ir::blocks_of(*b.value)) look_at(*nested);
    }
    read(block.result, nullptr);
  }

  // Whether it rounds its operand to the type of the policy.
  bool is_cast(const Binding& b) const {
    return b.value->op == "cast" && is_of(b.var->type, rule_.type) &&
           is_of(ir::type_of(b.value->args[0]), kWide);
  }
  static bool is_elementwise(const Expr& e) {
    return is_operator(e) && ir::find_op(e.op)->fusion == ir::FusionKind::kElementwise;
  }
  // Whether a convolution will take its image ahead of a transposition, by a cast of its own.
  bool casts_again(const Expr& convolution) const {
    return context_.packs_weights() && convolution.args[1].is_constant() &&
           planes_of(convolution, definitions_);
  }
  bool is_convolved(const VarRef& cast) const {
    const auto readers = readers_.find(cast.get());
    return readers != readers_.end() && std::ranges::any_of(readers->second, [&](const Binding* r) {
             return r && ir::traits_of(*r->value).packs == rule_.packs &&
                    r->value->args[0].is_var() && r->value->args[0].var == cast &&
                    !casts_again(*r->value);
           });
  }

  // Finds the operators whose result on rounded operands is their rounded result.
  void find_carriers(const ir::Function& f) {
    const kernels::TargetInfo& target = context_.target_in(f);
    for (const Binding* b : bound_) {
      const Expr& e = *b->value;
      if (!is_operator(e) || !is_of(b->var->type, kWide) || e.args.empty()) continue;
      const ir::OpInfo* op = ir::find_op(e.op);
      const bool selects =
          op->traits.selects && has_kernel(e, {narrow_type(ir::type_of(e.args[0]))},
                                           narrow_type(b->var->type), target, context_);
      if (selects || op->moves_elements() ||
          (op->traits.memory == ir::Memory::kOperand && e.args.size() == 1))
        carriers_.insert(b);
    }
  }

  // ---- which values are narrow
  bool is_narrow(const Atom& a) const { return a.is_var() && narrow_.contains(a.var.get()); }

  // Whether it is computed from narrow values alone.
  bool is_carried(const Binding& b) const {
    return narrow_.contains(b.var.get()) && carriers_.contains(&b) &&
           std::ranges::all_of(b.value->args, [&](const Atom& a) {
             return is_narrow(a) || (a.is_constant() && a.constant->dtype == kWide);
           });
  }

  // Whether it is a convolution that reads narrow operands.
  bool is_convolution(const Binding& b) const {
    const Expr& e = *b.value;
    return is_operator(e) && ir::traits_of(e).packs == rule_.packs &&
           is_of(ir::type_of(e.args[0]), rule_.type);
  }
  // Whether it is one whose result is added to that of a later one, and nothing else.
  bool waits_for_sum(const Binding& b) const {
    const std::vector<const Binding*>& readers = readers_.at(b.var.get());
    if (!is_convolution(b) || readers.size() != 1 || readers[0]->value->op != "add") return false;
    return std::ranges::any_of(readers[0]->value->args, [&](const Atom& a) {
      const auto at = a.is_var() ? places_.find(a.var.get()) : places_.end();
      if (at == places_.end() || at->second <= places_.at(b.var.get())) return false;
      const Binding& later = *bound_[at->second];
      return is_convolution(later) && readers_.at(a.var.get()) == readers &&
             later.var->type->dims == b.var->type->dims;
    });
  }

  // Whether a convolution reads the value rounded, or what is carried from it, or a later one's
  // result is added to it; `read`: those of which that is known.
  bool is_read(const Binding& b, const std::unordered_set<const Var*>& read) const {
    return waits_for_sum(b) || std::ranges::any_of(readers_.at(b.var.get()), [&](const Binding* r) {
             return is_cast(*r) ? is_convolved(r->var)
                                : is_carried(*r) && read.contains(r->var.get());
           });
  }

  void find_narrow() {
    const auto is_operators = [](const Binding* r) { return r != nullptr; };
    for (const Binding* b : bound_) {
      const auto readers = readers_.find(b->var.get());
      if (is_of(b->var->type, kWide) && readers != readers_.end() &&
          std::ranges::all_of(readers->second, is_operators))
        narrow_.insert(b->var.get());
    }
    for (bool changed = true; changed;) {
      changed = false;
      std::unordered_set<const Var*> read;
      for (size_t i = bound_.size(); i-- > 0;) {
        const Binding& b = *bound_[i];
        if (!narrow_.contains(b.var.get())) continue;
        const bool allowed = std::ranges::all_of(readers_.at(b.var.get()), [&](const Binding* r) {
          return is_cast(*r) || is_elementwise(*r->value) || is_carried(*r);
        });
        const bool image = b.var->type->dims.size() == ir::kImageRank || is_carried(b);
        if (allowed && image && is_read(b, read)) {
          read.insert(b.var.get());
        } else {
          narrow_.erase(b.var.get());
          changed = true;
        }
      }
    }
    for (const Binding* b : bound_)
      if (is_carried(*b)) carried_.insert(b->var.get());
    // What only its casts read is as it should be.
    for (const Binding* b : bound_)
      if (narrow_.contains(b->var.get()) && !carried_.contains(b->var.get()) &&
          std::ranges::all_of(readers_.at(b->var.get()),
                              [&](const Binding* r) { return is_cast(*r); }))
        narrow_.erase(b->var.get());
  }

  // ---- the function
  ir::Type narrow_type(const ir::Type& wide) const {
    return ir::tensor_type(wide->dims, rule_.type);
  }

  // The variable of a value's first cast is what holds it.
  void name_narrow() {
    casts_.clear();
    for (const Binding* b : bound_) {
      if (!narrow_.contains(b->var.get())) continue;
      context_.count("store-images.values");
      const std::vector<const Binding*>& readers = readers_.at(b->var.get());
      const auto cast =
          std::ranges::find_if(readers, [&](const Binding* r) { return is_cast(*r); });
      casts_[b->var.get()] =
          cast != readers.end()
              ? (*cast)->var
              : ir::make_var(b->var->name + "." + std::string(name_of(rule_.type)),
                             narrow_type(b->var->type));
    }
  }
  const VarRef& cast_of(const Atom& a) const { return casts_.at(a.var.get()); }

  std::optional<Atom> visit(const Binding& b, ir::BlockBuilder& out) {
    if (is_cast(b) && is_narrow(b.value->args[0])) return Atom(cast_of(b.value->args[0]));
    if (carried_.contains(b.var.get())) {
      auto copy = std::make_shared<Expr>(*b.value);
      for (Atom& a : copy->args)
        a = a.is_var() ? Atom(cast_of(a))
                       : Atom::of(rounded_.as(a.constant, rule_.type, b.value->location));
      out.append({cast_of(b.var), std::move(copy)});
      return Atom(b.var);  // which nobody reads
    }
    const ir::ExprRef widened = is_elementwise(*b.value) ? reading_widened(*b.value, out) : nullptr;
    if (!widened && !is_narrow(b.var)) return std::nullopt;
    out.append(widened ? Binding{b.var, widened} : b);
    if (is_narrow(b.var))
      out.append({cast_of(b.var),
                  ir::make_call("cast", {b.var}, {{"dtype", rule_.type}}, b.value->location)});
    return Atom(b.var);
  }

  // The operator with its narrow operands widened; null if it has none.
  ir::ExprRef reading_widened(const Expr& e, ir::BlockBuilder& out) const {
    if (std::ranges::none_of(e.args, [&](const Atom& a) { return is_narrow(a); })) return nullptr;
    std::unordered_map<const Var*, VarRef> wide;
    auto copy = std::make_shared<Expr>(e);
    for (Atom& a : copy->args) {
      if (!is_narrow(a)) continue;
      VarRef& w = wide[a.var.get()];
      if (!w) {
        w = out.call("cast", {cast_of(a)}, {{"dtype", kWide}}, a.var->name, e.location);
        w->type = a.var->type;
      }
      a = w;
    }
    return copy;
  }

  const StorageRule& rule_;
  PassContext& context_;
  // Of the function:
  Definitions definitions_;
  std::vector<const Binding*> bound_;
  std::unordered_map<const Var*, size_t> places_;  // in bound_
  std::unordered_map<const Var*, std::vector<const Binding*>> readers_;
  std::unordered_set<const Binding*> carriers_;
  std::unordered_set<const Var*> narrow_, carried_;
  std::unordered_map<const Var*, VarRef> casts_;  // of what is narrow
  RoundedConstants rounded_;                      // of the module
};

}  // namespace

ir::Module store_images(const ir::Module& m, PassContext& context) {
  const StorageRule* rule = storage_rule_of(context.precision);
  if (!rule) return m;
  Storing storing(*rule, context);
  ir::Module out = m;
  for (auto& [name, f] : out.functions)
    if (!context.target_in(*f).is_gpu()) f = storing.run(f);
  return out;
}

}  // namespace nimble::passes
