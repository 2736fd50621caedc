#include "compiler/passes/support/operator_devices.h"

#include <algorithm>
#include <unordered_set>

#include "compiler/ir/op.h"
#include "compiler/kernels/host_ops.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/device_number.h"

namespace nimble::passes {

using ir::Atom;
using ir::Binding;
using ir::Expr;
using ir::ExprKind;
using ir::FusionKind;
using ir::Type;
using ir::Var;

namespace {

// As many integers as typing follows (ir::RelationContext::contents).
constexpr int64_t kFew = 64;

bool is_few_integers(const Type& t) {
  if (!t || t->kind != ir::TypeKind::kTensor || !(is_int(t->dtype) || t->dtype == DType::kBool))
    return false;
  const auto count = ir::element_count(t).as_constant();
  return count && *count <= kFew;
}

bool is_floats(const Type& t) {
  return t && t->kind == ir::TypeKind::kTensor && is_float(t->dtype);
}

}  // namespace

OperatorDevices::OperatorDevices(const ir::Function& f, bool entry, TakenBy taken)
    : taken_(std::move(taken)) {
  for (const ir::VarRef& p : f.parameters)
    if (is_scalar(p->type) || (entry && is_few_integers(p->type))) makers_[p.get()] = Maker::kHost;
  visit_bindings(*f.body, [&](const Binding& b) {
    const Var* v = b.var.get();
    const Expr& e = *b.value;
    const ir::OpInfo* op = e.kind == ExprKind::kCall ? ir::find_op(e.op) : nullptr;
    if (!op || op->fusion == FusionKind::kOutside || is_scalar_op(e)) {
      makers_[v] = outside(b);
      return;
    }
    const bool view = op->traits.memory != ir::Memory::kOwn;
    operators_.push_back({&b, view, op->fusion <= FusionKind::kReduction});
    if (view) {
      makers_[v] = maker(e.args[0]);
    } else if (decides_shapes(e) || kernels::find_host_op(e.op)) {
      makers_[v] = Maker::kHost;
    } else if (is_few_host_integers(b)) {
      makers_[v] = unless_gpu_alone(b, Maker::kHost);
    } else if (operators_.back().movable && follows_cpu(b)) {
      makers_[v] = unless_gpu_alone(b, Maker::kCpu);
    } else {
      makers_[v] = is_taken(b, kCudaDevice) ? Maker::kGpu : Maker::kCpu;
    }
  });
  pull_back(f);
  for (const Operator& o : operators_)
    if (!o.view)
      devices_[o.binding->var.get()] =
          makers_.at(o.binding->var.get()) == Maker::kGpu ? kCudaDevice : kCpuDevice;
}

std::optional<int32_t> OperatorDevices::of(const Var* v) const {
  const auto it = devices_.find(v);
  return it == devices_.end() ? std::nullopt : std::optional(it->second);
}

bool OperatorDevices::is_taken(const Binding& b, int32_t device) {
  const auto [it, is_new] = known_.try_emplace({b.var.get(), device});
  if (is_new) it->second = taken_(b, device);
  return it->second;
}

OperatorDevices::Maker OperatorDevices::unless_gpu_alone(const Binding& b, Maker otherwise) {
  return is_taken(b, kCpuDevice) || !is_taken(b, kCudaDevice) ? otherwise : Maker::kGpu;
}

OperatorDevices::Maker OperatorDevices::maker(const Atom& a) const {
  const auto it = a.is_var() ? makers_.find(a.var.get()) : makers_.end();
  return it == makers_.end() ? Maker::kOpen : it->second;
}

OperatorDevices::Maker OperatorDevices::outside(const Binding& b) const {
  const Expr& e = *b.value;
  if (e.kind == ExprKind::kAtom || e.kind == ExprKind::kGetField) return maker(e.args[0]);
  const ir::OpInfo* op = e.kind == ExprKind::kCall ? ir::find_op(e.op) : nullptr;
  if (is_scalar(b.var->type)) return Maker::kHost;
  if (!op || op->traits.placement) return Maker::kOpen;
  if (op->traits.memory != ir::Memory::kOwn) return maker(e.args[0]);
  // Shape code; what rows are written to lies where they are made.
  return is_few_integers(b.var->type) ? Maker::kHost : Maker::kOpen;
}

bool OperatorDevices::is_few_host_integers(const Binding& b) const {
  const std::vector<Atom>& args = b.value->args;
  return is_few_integers(b.var->type) && std::all_of(args.begin(), args.end(), [&](const Atom& a) {
           return a.is_constant() || (maker(a) == Maker::kHost && is_few_integers(a.var->type));
         });
}

bool OperatorDevices::follows_cpu(const Binding& b) const {
  bool from_cpu = false;
  for (const Atom& a : b.value->args) {
    if (!a.is_var()) continue;
    const Maker m = maker(a);
    if (m == Maker::kGpu) return false;
    from_cpu |= (m == Maker::kCpu || m == Maker::kHost) && is_floats(a.var->type);
  }
  return from_cpu;
}

// From the last operator to the first: what the CPU alone reads, and nothing of the GPU's made.
void OperatorDevices::pull_back(const ir::Function& f) {
  std::unordered_map<const Var*, std::vector<const Var*>> readers;  // null: no operator
  const auto read = [&](const Var* by) {
    return [&readers, by](const Atom& a) {
      if (a.is_var()) readers[a.var.get()].push_back(by);
    };
  };
  std::unordered_set<const Var*> operators;
  for (const Operator& o : operators_) operators.insert(o.binding->var.get());
  const std::function<void(const ir::Block&)> walk = [&](const ir::Block& block) {
    for (const Binding& b : block.bindings) {
      const Var* by = operators.contains(b.var.get()) ? b.var.get() : nullptr;
      for (const Atom& a : b.value->args) read(by)(a);
      if (b.value->callee) read(nullptr)(*b.value->callee);
      for (const ir::BlockRef& nested : ir::blocks_of(*b.value)) walk(*nested);
    }
    read(nullptr)(block.result);
  };
  walk(*f.body);
  std::unordered_set<const Var*> for_cpu;  // operators on the CPU, and views that these alone read
  for (auto o = operators_.rbegin(); o != operators_.rend(); ++o) {
    const Var* v = o->binding->var.get();
    const auto by = readers.find(v);
    const bool pulled = by != readers.end() &&
                        std::all_of(by->second.begin(), by->second.end(), [&](const Var* reader) {
                          return reader && for_cpu.contains(reader);
                        });
    if (o->view) {
      if (pulled) for_cpu.insert(v);
      continue;
    }
    Maker& m = makers_.at(v);
    const auto& args = o->binding->value->args;
    if (m == Maker::kGpu && o->movable && pulled && is_floats(v->type) &&
        std::none_of(args.begin(), args.end(),
                     [&](const Atom& a) { return maker(a) == Maker::kGpu; }))
      m = unless_gpu_alone(*o->binding, Maker::kCpu);
    if (m != Maker::kGpu) for_cpu.insert(v);
  }
}

}  // namespace nimble::passes
