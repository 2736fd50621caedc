// Canonical form of fused groups.
//
// Equal work must have an equal key, or tuning records would be found only by the model they were
// measured with. Three things differ between equal groups, and three steps remove them:
//
//  1. Leading axes. Where every operation of the group treats rows alike, the leading axes (b, n)
//     are one axis of b*n rows. `CollapsedRows` tries the largest number of axes first; each
//     operator either has a rule there or forbids it. The contract's collapse_leading tells the VM.
//  2. Symbols. They become s0, s1, … in order of appearance. A symbol must be bound by a bare dim
//     of a parameter, so a compound dim whose symbols nothing has bound before becomes a symbol of
//     its own, and those that nothing binds later either are solved for where it is linear
//     (t = 2*n + 1: n = floordiv(t-1, 2)). What is left unbound is passed by the caller as an
//     extra scalar.
//  3. Names of variables: p0, p1, … for parameters, t0, t1, … for bindings.
#include "compiler/kernels/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compiler/ir/op.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/collapse_rows.h"
#include "compiler/kernels/contract_symbols.h"
#include "compiler/kernels/group_text.h"
#include "compiler/kernels/host_ops.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

using ir::Atom;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Function;
using ir::Type;
using ir::VarRef;
using Ints = std::vector<int64_t>;

int weight(const Expr& e) {
  const ir::OpInfo* info = ir::find_op(e.op);
  if (info == nullptr || info->traits.in_out) return -1;
  switch (info->fusion) {
    case ir::FusionKind::kAnchor:
      return 3;
    case ir::FusionKind::kOpaque:
    case ir::FusionKind::kData:
    case ir::FusionKind::kOutside:
      return 3;
    case ir::FusionKind::kReduction:
      return 2;
    case ir::FusionKind::kInjective:
      return info->traits.anchors ? 1 : 0;
    case ir::FusionKind::kElementwise:
      return 0;
  }
  return 0;
}

const Expr* definition_in(const Function& group, const Atom& a) {
  for (const ir::Binding& b : group.body->bindings)
    if (a.is_var() && b.var == a.var) return b.value.get();
  return nullptr;
}

// The group's result, or the fields of the tuple that it makes.
std::vector<Atom> results_of(const Function& group) {
  const Expr* e = definition_in(group, group.body->result);
  if (e && e->kind == ExprKind::kTuple) return e->args;
  return {group.body->result};
}

void choose_anchor(Workload& w) {
  const ir::Binding* best = nullptr;
  int best_weight = -1;
  for (const ir::Binding& b : w.group->body->bindings) {
    if (b.value->kind != ExprKind::kCall) continue;
    const int x = weight(*b.value);
    if (x > best_weight) {
      best = &b;
      best_weight = x;
    }
  }
  w.anchor = best_weight > 0 ? best->value->op : "elementwise";
  if (best == nullptr) {
    w.anchor_key = w.anchor;
    return;
  }
  std::string operands;
  for (const Atom& a : best->value->args)
    operands += (operands.empty() ? "" : ", ") + ir::str(ir::type_of(a));
  std::string attrs;
  for (const auto& [name, value] : best->value->attrs)
    attrs += fmt::format(" {}={}", name, attr_text(value));
  w.anchor_key =
      fmt::format("{}({}){} -> {}", best->value->op, operands, attrs, ir::str(best->var->type));
}

}  // namespace

Workload make_workload(const Function& primitive, std::vector<bool> constant_parameter) {
  require_inferred(primitive);
  std::set<int64_t> scalars;
  for (int64_t i : ir::attr_or<Ints>(primitive.attrs, "scalars", {})) scalars.insert(i);

  // 1. Leading axes.
  std::optional<CollapsedRows> collapse;
  const Type result = ir::type_of(primitive.body->result);
  const Type& first = result->kind == ir::TypeKind::kTuple ? result->elements.at(0) : result;
  for (size_t k = first->dims.size(); k >= 2; --k) {
    CollapsedRows attempt(primitive, k);
    if (!attempt.run()) continue;
    collapse.emplace(std::move(attempt));
    break;
  }
  const auto type_of = [&](const VarRef& v) { return collapse ? collapse->type(v) : v->type; };

  // 2. Symbols.
  ContractSymbols symbols;
  std::vector<Type> parameter_types;
  for (const VarRef& p : primitive.parameters) parameter_types.push_back(type_of(p));
  symbols.bind(parameter_types, scalars);

  // 3. Names; the new function.
  Workload w;
  auto group = std::make_shared<Function>();
  std::map<const ir::Var*, VarRef> renamed;
  const auto atom = [&](const Atom& a) { return a.is_var() ? Atom(renamed.at(a.var.get())) : a; };
  for (size_t i = 0; i < primitive.parameters.size(); ++i) {
    VarRef p = ir::make_var(fmt::format("p{}", i), symbols.rewrite(parameter_types[i]));
    renamed.emplace(primitive.parameters[i].get(), p);
    group->parameters.push_back(std::move(p));
  }
  auto body = std::make_shared<ir::Block>();
  for (const ir::Binding& b : primitive.body->bindings) {
    auto e = std::make_shared<Expr>(*b.value);
    e->attrs = symbols.rewrite(*b.value, collapse ? collapse->attrs(*b.value) : b.value->attrs);
    e->location = {};
    for (Atom& a : e->args) a = atom(a);
    VarRef v =
        ir::make_var(fmt::format("t{}", body->bindings.size()), symbols.rewrite(type_of(b.var)));
    renamed.emplace(b.var.get(), v);
    body->bindings.push_back({std::move(v), std::move(e)});
  }
  body->result = atom(primitive.body->result);
  group->result_type = ir::type_of(body->result);
  group->body = std::move(body);
  if (!scalars.empty()) {
    group->attrs["scalars"] = Ints(scalars.begin(), scalars.end());
    group->attrs["scalar_symbols"] = symbols.scalar_symbols();
  }

  // A host operator is told its parameters by scalars.
  std::vector<std::pair<Dim, std::string>> host;
  if (const HostOp* op = host_op_of(primitive))
    for (const Dim& value : op->parameters(*primitive.body->bindings[0].value))
      host.emplace_back(value, symbols.next());

  // The contract.
  w.contract.symbols = symbols.names();
  const auto symbol_number = [&](const std::string& name) {
    const auto it = std::find(symbols.names().begin(), symbols.names().end(), name);
    return static_cast<uint32_t>(it - symbols.names().begin());
  };
  const auto tensor = [&](const Type& t, exec::Access access, bool collapsed) {
    exec::KernelArgument a;
    a.dtype = t->dtype;
    a.access = access;
    for (const Dim& d : t->dims) a.dims.push_back(d.to_program(symbols.names()));
    a.collapse_leading = collapsed;
    w.contract.arguments.push_back(std::move(a));
  };
  const auto scalar = [&](const std::string& symbol) {
    exec::KernelArgument a;
    a.kind = exec::KernelArgument::Kind::kScalar;
    a.dtype = DType::kI64;
    a.symbol = symbol_number(symbol);
    w.contract.arguments.push_back(std::move(a));
  };
  size_t next_scalar = 0;
  for (size_t i = 0; i < group->parameters.size(); ++i) {
    if (scalars.contains(static_cast<int64_t>(i))) {
      scalar(symbols.scalar_symbols()[next_scalar++]);
      continue;
    }
    if (group->parameters[i]->type->kind == ir::TypeKind::kData) {
      w.contract.arguments.emplace_back().kind = exec::KernelArgument::Kind::kData;
      continue;
    }
    tensor(group->parameters[i]->type, exec::Access::kIn,
           collapse && collapse->rowful(primitive.parameters[i]));
  }
  for (const auto& [value, name] : host) {
    scalar(name);
    w.extra_scalars.push_back(value);
  }
  for (const auto& [value, name] : symbols.extra()) {
    scalar(name);
    w.extra_scalars.push_back(value);
  }
  for (const Atom& a : results_of(*group)) {
    const Expr* part = definition_in(*group, a);
    const exec::Access access =
        part && ir::traits_of(*part).in_out ? exec::Access::kInOut : exec::Access::kOut;
    const Type& r = ir::type_of(a);
    for (const Type& t : r->kind == ir::TypeKind::kTuple ? r->elements : std::vector<Type>{r})
      tensor(t, access, collapse.has_value());
  }

  w.group = std::move(group);
  w.constant_parameter = std::move(constant_parameter);
  w.constant_parameter.resize(w.group->parameters.size(), false);
  w.key = ir::print(*w.group, "group");
  for (const auto* names : {&symbols.offsets(), &symbols.scalar_symbols()})
    for (const std::string& s : *names) w.facts.set(s, {INT64_MIN, INT64_MAX, 1});
  choose_anchor(w);
  return w;
}

std::string source_of(const ir::Function& group) {
  std::string s;
  for (const ir::Binding& b : group.body->bindings)
    if (!b.value->op.empty()) s += (s.empty() ? "" : "+") + b.value->op;
  return s;
}

bool Workload::writes_part() const {
  return std::any_of(
      contract.arguments.begin(), contract.arguments.end(),
      [](const exec::KernelArgument& a) { return a.access == exec::Access::kInOut; });
}

std::string Workload::identity() const {
  std::string out = key;
  for (bool c : constant_parameter) out += c ? 'c' : 'v';
  return out;
}

}  // namespace nimble::kernels
