// Collects the constraints of a module, in one walk, and solves them. place_devices.cpp says which
// rule stands where.
#include "compiler/passes/analysis/device_analysis.h"

#include <algorithm>

#include "compiler/ir/entry.h"
#include "compiler/ir/op.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/device_number.h"

namespace nimble::passes {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Expr;
using ir::ExprKind;
using ir::Type;

int32_t device_attribute(const ir::Attrs& attrs, const std::string& name,
                         const ir::Location& location, int32_t otherwise) {
  const auto it = attrs.find(name);
  if (it == attrs.end()) return otherwise;
  const auto* number = std::get_if<int64_t>(&it->second);
  if (number && is_device(*number)) return static_cast<int32_t>(*number);
  std::string known;
  for (int32_t d = 0; d < kDeviceCount; ++d)
    known += fmt::format("{}{} ({})", d ? ", " : "", d, device_name(d));
  throw Error(Status::kInvalidArgument, location.str(),
              number ? fmt::format("there is no device {}", *number)
                     : fmt::format("the attribute {} must be a device's number", name),
              "the devices are " + known);
}

DeviceAnalysis::DeviceAnalysis(const ir::Module& m, int32_t target) : module_(m), target_(target) {
  for (const auto& [name, f] : m.functions) declare(name, *f);
  for (const auto& [name, f] : m.functions) function(name, *f);
  settle(target);
}

bool DeviceAnalysis::is_entry(const std::string& function) const {
  return ir::is_entry(module_, function);
}

int32_t DeviceAnalysis::kernel_device(const ir::Var* v) const {
  const auto it = kernels_.find(v);
  return it == kernels_.end() ? kCpuDevice : domains_.device(it->second).value_or(kCpuDevice);
}

namespace {

// Whether all of a value can be copied between devices.
bool is_copyable(const Type& t) {
  if (t->kind == ir::TypeKind::kTuple)
    return std::all_of(t->elements.begin(), t->elements.end(), is_copyable);
  return t->kind == ir::TypeKind::kTensor || t->kind == ir::TypeKind::kScalar;
}

// Beyond a border a tensor may be copied. What cannot be copied is on both of its sides the CPU's.
void anchor(const Type& t, const Place& a, const Place& b, DeviceDomains* domains) {
  if (t->kind == ir::TypeKind::kTuple) {
    for (size_t i = 0; a.is_tuple && b.is_tuple && i < t->elements.size(); ++i)
      anchor(t->elements[i], a.fields[i], b.fields[i], domains);
    return;
  }
  if (t->kind == ir::TypeKind::kTensor || t->kind == ir::TypeKind::kScalar) return;
  if (a.domain == kHost) pin(b, kCpuDevice, domains);
  if (b.domain == kHost) pin(a, kCpuDevice, domains);
}

}  // namespace

void DeviceAnalysis::settle(int32_t target) {
  for (const DeviceUse& u : uses_)
    if (u.atom.is_var()) anchor(u.atom.var->type, u.at, u.wanted, &domains_);
  for (size_t i : first_) unite(uses_[i].at, uses_[i].wanted, &domains_);
  // What cannot be copied is of one class before tensors in it fix that to a device.
  for (const bool copyable : {false, true})
    for (const DeviceUse& u : uses_)
      if (u.atom.is_var() && is_copyable(u.atom.var->type) == copyable)
        unite(u.at, u.wanted, &domains_);
  domains_.settle(target);
}

// ------------------------------------------------------------------------ functions, blocks

void DeviceAnalysis::declare(const std::string& name, const ir::Function& f) {
  // A user's tensors come and go on the CPU.
  const bool entry = is_entry(name);
  for (const ir::VarRef& p : f.parameters)
    places_[p.get()] = entry ? place_in(p->type, kHost) : fresh_place(p->type, &domains_);
  NIMBLE_CHECK(f.result_type, "@{} has no result type", name);
  results_[name] = entry ? place_in(f.result_type, kHost) : fresh_place(f.result_type, &domains_);
}

void DeviceAnalysis::function(const std::string& name, const ir::Function& f) {
  function_ = &f;
  device_attribute(f.attrs, "device", f.location, kCpuDevice);
  scopes_.push_back(std::make_unique<BlockScope>(BlockScope{f.body.get(), nullptr, 0, name}));
  const BlockScope* scope = scopes_.back().get();
  block(*f.body, scope);
  result_use(*f.body, scope, results_.at(name), f.location);
}

const BlockScope* DeviceAnalysis::nested(const Block& b) {
  scopes_.push_back(std::make_unique<BlockScope>(BlockScope{&b, scope_, index_, scope_->function}));
  return scopes_.back().get();
}

void DeviceAnalysis::block(const Block& b, const BlockScope* scope) {
  const BlockScope* outer = scope_;
  const size_t outer_index = index_;
  for (size_t i = 0; i < b.bindings.size(); ++i) {
    scope_ = scope;
    index_ = i;
    expression(b.bindings[i]);
  }
  scope_ = outer;
  index_ = outer_index;
}

// ------------------------------------------------------------------------ uses

Place DeviceAnalysis::place_of(const Atom& a) const {
  if (!a.is_var()) return {};
  const auto it = places_.find(a.var.get());
  NIMBLE_CHECK(it != places_.end(), "%{} has no place", a.var->name);
  return it->second;
}

void DeviceAnalysis::use(const Expr& e, size_t operand, Place wanted) {
  const Atom& a = e.args[operand];
  if (a.is_global()) return function_value(a.global, 0, wanted.domain);
  uses_.push_back({var_, operand, scope_, index_, a, place_of(a), std::move(wanted), e.location});
}

void DeviceAnalysis::use_on_host(const Expr& e, size_t operand) {
  Place host;
  host.domain = kHost;
  use(e, operand, host);
}

void DeviceAnalysis::result_use(const Block& b, const BlockScope* scope, const Place& wanted,
                                const ir::Location& location) {
  if (b.result.is_global()) return function_value(b.result.global, 0, wanted.domain);
  Place want = wanted;
  if (want.domain == kNowhere && !want.is_tuple) want.domain = kHost;  // into a register
  // The result of a loop is that of its last call: apart, every step would leave a copy to make
  // after its call, which then could not reuse the step's frame.
  if (!b.bindings.empty() && b.result.is_var() && b.result.var == b.bindings.back().var)
    first_.push_back(uses_.size());
  uses_.push_back({nullptr, 0, scope, b.bindings.size(), b.result, place_of(b.result),
                   std::move(want), location});
}

Domain DeviceAnalysis::domain_of(const Atom& a) {
  if (a.is_var()) {
    const Place& p = places_.at(a.var.get());
    NIMBLE_CHECK(!p.is_tuple, "a data-type value or a closure has one place");
    return p.domain;
  }
  const Domain d = domains_.fresh();
  if (a.is_global()) function_value(a.global, 0, d);
  return d;
}

void DeviceAnalysis::function_value(const std::string& name, size_t captured, Domain domain) {
  const ir::FunctionRef f = module_.find(name);
  NIMBLE_CHECK(f, "there is no function @{}", name);
  Place all;
  all.domain = domain;
  for (size_t i = captured; i < f->parameters.size(); ++i)
    unite(places_.at(f->parameters[i].get()), all, &domains_);
  unite(results_.at(name), all, &domains_);
}

Domain DeviceAnalysis::kernel(const ir::Attrs& attrs) {
  const Domain d = domains_.fresh();
  domains_.set_kernel(d);
  for (const ir::Attrs* from : {&function_->attrs, &attrs})
    if (const auto it = from->find("device"); it != from->end())
      domains_.pin(d, static_cast<int32_t>(std::get<int64_t>(it->second)));
  kernels_[var_] = d;
  return d;
}

// ------------------------------------------------------------------------ expressions

void DeviceAnalysis::expression(const Binding& b) {
  const Expr& e = *b.value;
  var_ = b.var.get();
  const Type& type = b.var->type;
  switch (e.kind) {
    case ExprKind::kAtom:
    case ExprKind::kTuple: {
      // A copy or a tuple only points at what its operands are; of constants there are as many
      // as there are devices that read them, and scalars go into registers.
      auto named = [&](size_t i, const Type& t) {
        if (is_scalar(t)) {
          use_on_host(e, i);
          return Place();
        }
        if (e.args[i].is_var()) return place_of(e.args[i]);
        Place p = fresh_place(t, &domains_);
        use(e, i, p);
        return p;
      };
      if (e.kind == ExprKind::kAtom) return define(b, named(0, type));
      Place p;
      p.is_tuple = true;
      for (size_t i = 0; i < e.args.size(); ++i) p.fields.push_back(named(i, type->elements[i]));
      return define(b, std::move(p));
    }
    case ExprKind::kGetField:
      if (const Place p = place_of(e.args[0]); p.is_tuple)
        return define(b, p.fields.at(static_cast<size_t>(e.index)));
      else
        return define(b, place_in(type, p.domain));
    case ExprKind::kIf: {
      use_on_host(e, 0);
      const Place p = fresh_place(type, &domains_);
      for (const ir::BlockRef& side : {e.then_block, e.else_block}) {
        const BlockScope* scope = nested(*side);
        block(*side, scope);
        result_use(*side, scope, p, e.location);
      }
      return define(b, p);
    }
    case ExprKind::kMatch:
      return match(b);
    case ExprKind::kConstruct: {
      const Domain d = domains_.fresh();
      for (size_t i = 0; i < e.args.size(); ++i)
        use(e, i, place_in(ir::type_of(e.args[i], &module_), d));
      Place p;
      p.domain = d;
      return define(b, p);
    }
    case ExprKind::kClosure: {
      const Domain d = domains_.fresh();
      const ir::FunctionRef f = module_.find(e.callee->global);
      NIMBLE_CHECK(f, "there is no function @{}", e.callee->global);
      for (size_t i = 0; i < e.args.size(); ++i) use(e, i, places_.at(f->parameters[i].get()));
      function_value(e.callee->global, e.args.size(), d);
      Place p;
      p.domain = d;
      return define(b, p);
    }
    case ExprKind::kFunction: {
      const Domain d = domains_.fresh();
      for (const ir::VarRef& v : e.primitive->parameters) places_[v.get()] = place_in(v->type, d);
      const BlockScope* scope = nested(*e.primitive->body);
      block(*e.primitive->body, scope);
      result_use(*e.primitive->body, scope, place_in(ir::type_of(e.primitive->body->result), d),
                 e.location);
      Place p;
      p.domain = d;
      return define(b, p);
    }
    case ExprKind::kCall:
      if (e.callee) return call(b);
      if (e.primitive) return group(b);
      return operation(b);
  }
}

void DeviceAnalysis::match(const Binding& b) {
  const Expr& e = *b.value;
  const Place at = place_of(e.args[0]);
  const Place p = fresh_place(b.var->type, &domains_);
  for (const ir::MatchCase& c : e.cases) {
    pattern(c.pattern, at);
    const BlockScope* scope = nested(*c.body);
    block(*c.body, scope);
    result_use(*c.body, scope, p, e.location);
  }
  define(b, p);
}

void DeviceAnalysis::pattern(const ir::Pattern& p, const Place& at) {
  switch (p.kind) {
    case ir::Pattern::Kind::kWildcard:
      return;
    case ir::Pattern::Kind::kVar:
      places_[p.var.get()] = at.is_tuple ? at : place_in(p.var->type, at.domain);
      return;
    case ir::Pattern::Kind::kConstructor:
      for (const ir::Pattern& f : p.fields) pattern(f, at);
      return;
    case ir::Pattern::Kind::kTuple:
      for (size_t i = 0; i < p.fields.size(); ++i)
        pattern(p.fields[i], at.is_tuple ? at.fields[i] : at);
      return;
  }
}

namespace {

// What a polymorphic function returns has one place whatever it is; of a scalar, which came in a
// register and leaves in one, it has none.
Place of_type(const Type& t, const Place& p) {
  if (!p.is_tuple) return p.domain == kNowhere ? p : place_in(t, p.domain);
  Place out = p;
  for (size_t i = 0; i < p.fields.size(); ++i) out.fields[i] = of_type(t->elements[i], p.fields[i]);
  return out;
}

}  // namespace

void DeviceAnalysis::call(const Binding& b) {
  const Expr& e = *b.value;
  if (!e.callee->is_global()) {
    const Domain d = domain_of(*e.callee);
    for (size_t i = 0; i < e.args.size(); ++i)
      use(e, i, place_in(ir::type_of(e.args[i], &module_), d));
    return define(b, place_in(b.var->type, d));
  }
  const ir::FunctionRef f = module_.find(e.callee->global);
  NIMBLE_CHECK(f, "there is no function @{}", e.callee->global);
  for (size_t i = 0; i < e.args.size(); ++i) {
    if (is_scalar(ir::type_of(e.args[i], &module_)))
      use_on_host(e, i);
    else
      use(e, i, places_.at(f->parameters[i].get()));
  }
  define(b, of_type(b.var->type, results_.at(e.callee->global)));
}

void DeviceAnalysis::group(const Binding& b) {
  const Expr& e = *b.value;
  // What decides shapes from contents, and so is read by shape code, stays with the host.
  const bool host =
      std::any_of(e.primitive->body->bindings.begin(), e.primitive->body->bindings.end(),
                  [](const Binding& x) { return decides_shapes(*x.value); });
  const Domain d = host ? kHost : kernel(e.primitive->attrs);
  for (size_t i = 0; i < e.args.size(); ++i) {
    if (!e.args[i].is_var()) continue;  // read where the kernel runs
    Place p;
    p.domain = is_scalar(e.args[i].var->type) ? kHost : d;
    use(e, i, p);
  }
  // Even a scalar comes out in the kernel's memory.
  Place result;
  result.domain = d;
  if (b.var->type->kind == ir::TypeKind::kTuple) {
    result = {};
    result.is_tuple = true;
    for (size_t i = 0; i < b.var->type->elements.size(); ++i) {
      result.fields.emplace_back();
      result.fields.back().domain = d;
    }
  }
  define(b, std::move(result));
}

void DeviceAnalysis::operation(const Binding& b) {
  const Expr& e = *b.value;
  const Type& type = b.var->type;
  const ir::Traits& traits = ir::traits_of(e);
  if (traits.placement) return annotation(b);
  if (e.op == "shape_of") return define(b, place_in(type, kHost));  // of any device's tensor
  if (e.op == "write_row") {
    const Domain d = kernel();
    Place p;
    p.domain = d;
    use(e, 0, p);
    use_on_host(e, 1);
    if (is_scalar(ir::type_of(e.args[2])))
      use_on_host(e, 2);
    else
      use(e, 2, p);
    return define(b, p);
  }
  if (e.op == "append") {  // copies behind the first operand, where that lies
    Place p;
    p.domain = kernel();
    for (size_t i = 0; i < e.args.size(); ++i) use(e, i, p);
    return define(b, p);
  }
  // Only the host reads elements as symbols.
  const bool view = traits.memory != ir::Memory::kOwn && !traits.names_symbols;
  const bool scalar = view && is_scalar(ir::type_of(e.args[0]));
  if (view && !scalar) {
    Place p = place_of(e.args[0]);
    if (!e.args[0].is_var()) {
      p = fresh_place(ir::type_of(e.args[0]), &domains_);
      use(e, 0, p);
    }
    for (size_t i = 1; i < e.args.size(); ++i) use_on_host(e, i);
    return define(b, std::move(p));
  }
  // Scalar code, and operators that only the host has.
  for (size_t i = 0; i < e.args.size(); ++i) use_on_host(e, i);
  define(b, place_in(type, kHost));
}

// device_copy fixes both of its sides, on_device makes one of them and fixes that.
void DeviceAnalysis::annotation(const Binding& b) {
  const Expr& e = *b.value;
  const int32_t to = device_attribute(e.attrs, "device", e.location, kCpuDevice);
  const Place at = place_of(e.args[0]);
  if (is_scalar(b.var->type) && at.domain == kNowhere) return define(b, at);
  Place result;
  result.domain = domains_.fresh();
  pin(result, to, &domains_);
  if (e.op == "on_device") {
    first_.push_back(uses_.size());
  } else if (e.args[0].is_var()) {
    // Without `from`: the other one of CPU and compilation target.
    const int32_t other = to == target_ ? kCpuDevice : target_;
    pin(at, device_attribute(e.attrs, "from", e.location, other), &domains_);
  }
  use(e, 0, result);
  define(b, result);
}

}  // namespace nimble::passes
