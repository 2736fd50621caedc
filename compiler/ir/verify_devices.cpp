// Follows devices forwards from what states them: parameters by the function's attribute, storages
// by theirs, results of groups by the group's, copies by where they go. A value is the list of the
// devices of its leaves (the fields of tuples, in order), -1 where that is not known: scalars,
// constants (each device has its own), what is inside of data-type values and closures.
#include "compiler/ir/verify_devices.h"

#include <algorithm>
#include <unordered_map>

#include "compiler/ir/op.h"
#include "vm/base/device_number.h"

namespace nimble::ir {
namespace {

using Leaves = std::vector<int64_t>;
constexpr int64_t kUnknown = -1;

size_t leaf_count(const Type& t) {
  if (!t || t->kind != TypeKind::kTuple) return 1;
  size_t n = 0;
  for (const Type& e : t->elements) n += leaf_count(e);
  return n;
}

class DeviceVerifier {
 public:
  DeviceVerifier(const Module& m, std::vector<std::string>* faults) : module_(m), faults_(faults) {}

  void run() {
    for (const auto& [name, f] : module_.functions) {
      const auto* parameters = stated(*f, "parameters_on");
      const auto* results = stated(*f, "results_on");
      if (!parameters || !results) continue;
      function_ = "@" + name;
      values_.clear();
      size_t at = 0;
      for (const VarRef& p : f->parameters) {
        const size_t n = leaf_count(p->type);
        if (at + n > parameters->size()) break;
        values_[p.get()] = Leaves(parameters->begin() + static_cast<int64_t>(at),
                                  parameters->begin() + static_cast<int64_t>(at + n));
        at += n;
      }
      const Leaves result = block(*f->body);
      require(result, *results, function_ + ": the result");
    }
  }

 private:
  static const Leaves* stated(const Function& f, const char* name) {
    const auto it = f.attrs.find(name);
    return it == f.attrs.end() ? nullptr : std::get_if<Leaves>(&it->second);
  }

  void require(const Leaves& at, const Leaves& wanted, const std::string& what) {
    const size_t n = std::min(at.size(), wanted.size());
    for (size_t i = 0; i < n; ++i)
      if (at[i] != kUnknown && wanted[i] != kUnknown && at[i] != wanted[i] && faults_->size() < 100)
        faults_->push_back(fmt::format("{}: V15: it lies on device {} ({}) where {} ({}) is needed",
                                       what, at[i], device_name(at[i]), wanted[i],
                                       device_name(wanted[i])));
  }

  Leaves value(const Atom& a) const {
    if (a.is_var())
      if (const auto it = values_.find(a.var.get()); it != values_.end()) return it->second;
    return Leaves(leaf_count(a.is_var() ? a.var->type : nullptr), kUnknown);
  }

  Leaves block(const Block& b) {
    for (const Binding& x : b.bindings) values_[x.var.get()] = expression(x);
    return value(b.result);
  }

  std::string operand(const Binding& b, size_t i) const {
    return fmt::format("{}:%{}: operand {}", function_, b.var->name, i + 1);
  }
  void require_operand(const Binding& b, size_t i, int64_t device) {
    const Leaves at = value(b.value->args[i]);
    require(at, Leaves(at.size(), device), operand(b, i));
  }

  Leaves expression(const Binding& b) {
    const Expr& e = *b.value;
    const Leaves unknown(leaf_count(b.var->type), kUnknown);
    switch (e.kind) {
      case ExprKind::kAtom:
        return value(e.args[0]);
      case ExprKind::kTuple: {
        Leaves all;
        for (const Atom& a : e.args)
          for (int64_t d : value(a)) all.push_back(d);
        return all;
      }
      case ExprKind::kGetField: {
        const Type tuple = e.args[0].is_var() ? e.args[0].var->type : nullptr;
        if (!tuple || tuple->kind != TypeKind::kTuple) return unknown;
        size_t begin = 0;
        for (int64_t i = 0; i < e.index; ++i)
          begin += leaf_count(tuple->elements[static_cast<size_t>(i)]);
        const Leaves all = value(e.args[0]);
        if (begin + unknown.size() > all.size()) return unknown;
        return Leaves(all.begin() + static_cast<int64_t>(begin),
                      all.begin() + static_cast<int64_t>(begin + unknown.size()));
      }
      case ExprKind::kIf: {
        require_operand(b, 0, kCpuDevice);
        const Leaves yes = block(*e.then_block), no = block(*e.else_block);
        require(yes, no, fmt::format("{}:%{}: a branch", function_, b.var->name));
        Leaves both = unknown;
        for (size_t i = 0; i < std::min({both.size(), yes.size(), no.size()}); ++i)
          both[i] = yes[i] != kUnknown ? yes[i] : no[i];
        return both;
      }
      case ExprKind::kMatch:
        for (const MatchCase& c : e.cases) block(*c.body);
        return unknown;
      case ExprKind::kFunction:
      case ExprKind::kConstruct:
      case ExprKind::kClosure:
        return unknown;
      case ExprKind::kCall:
        if (e.callee) return call(b, unknown);
        if (e.primitive) return group(b);
        return operation(b, unknown);
    }
    return unknown;
  }

  Leaves call(const Binding& b, const Leaves& unknown) {
    const Expr& e = *b.value;
    const FunctionRef f = e.callee->is_global() ? module_.find(e.callee->global) : nullptr;
    const Leaves* parameters = f ? stated(*f, "parameters_on") : nullptr;
    const Leaves* results = f ? stated(*f, "results_on") : nullptr;
    if (!parameters || !results) return unknown;
    size_t begin = 0;
    for (size_t i = 0; i < e.args.size() && i < f->parameters.size(); ++i) {
      const size_t n = leaf_count(f->parameters[i]->type);
      if (begin + n > parameters->size()) break;
      if (!in_register(e.args[i]))
        require(value(e.args[i]),
                Leaves(parameters->begin() + static_cast<int64_t>(begin),
                       parameters->begin() + static_cast<int64_t>(begin + n)),
                operand(b, i));
      begin += n;
    }
    return is_scalar(b.var->type) ? unknown : *results;
  }
  // A polymorphic function's parameter states a device, but takes a scalar in a register.
  static bool in_register(const Atom& a) { return a.is_var() && is_scalar(a.var->type); }

  // A fused group, or the kernel call it became.
  Leaves group(const Binding& b) {
    const Expr& e = *b.value;
    const auto device = attr_or<int64_t>(e.primitive->attrs, "device", kCpuDevice);
    const auto scalars = attr_or<std::vector<int64_t>>(e.primitive->attrs, "scalars", {});
    for (size_t i = 0; i < e.args.size(); ++i) {
      const bool scalar =
          std::find(scalars.begin(), scalars.end(), static_cast<int64_t>(i)) != scalars.end();
      require_operand(b, i, scalar ? int64_t{kCpuDevice} : device);
    }
    return Leaves(leaf_count(b.var->type), device);
  }

  Leaves operation(const Binding& b, const Leaves& unknown) {
    const Expr& e = *b.value;
    const Traits& traits = traits_of(e);
    if (e.op == "memory.alloc_storage" || e.op == "write_row") {
      const auto device = attr_or<int64_t>(e.attrs, "device", kCpuDevice);
      if (e.op == "write_row")
        for (size_t i : {0, 2}) require_operand(b, i, device);
      return {device};
    }
    if (e.op == "append") {
      const auto device = attr_or<int64_t>(e.attrs, "device", kCpuDevice);
      for (size_t i = 0; i < e.args.size(); ++i) require_operand(b, i, device);
      return {device};
    }
    if (e.op == "device_copy") {
      if (e.attrs.contains("from")) require_operand(b, 0, attr<int64_t>(e.attrs, "from"));
      return {attr_or<int64_t>(e.attrs, "device", kCpuDevice)};
    }
    if (e.op == "on_device") faults_->push_back(function_ + ": V15: on_device after placement");
    if (traits.names_symbols && !in_register(e.args[0])) require_operand(b, 0, kCpuDevice);
    if (traits.memory != Memory::kOwn) return value(e.args[0]);
    if (e.op == "memory.read_scalar") require_operand(b, 0, kCpuDevice);
    return unknown;
  }

  const Module& module_;
  std::vector<std::string>* faults_;
  std::string function_;
  std::unordered_map<const Var*, Leaves> values_;
};

}  // namespace

void verify_devices(const Module& m, std::vector<std::string>* faults) {
  DeviceVerifier(m, faults).run();
}

}  // namespace nimble::ir
