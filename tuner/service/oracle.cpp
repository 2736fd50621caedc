#include "tuner/service/oracle.h"

#include <algorithm>
#include <cmath>

#include "compiler/reference/reference.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::tuner {
namespace {

// The group with symbols replaced by their values: also those that no parameter's shape tells.
ir::FunctionRef specialised(const ir::Function& f, const std::map<std::string, ir::Dim>& values) {
  std::map<const ir::Var*, ir::VarRef> renamed;
  const auto fresh = [&](const ir::VarRef& v) {
    return renamed[v.get()] = ir::make_var(v->name, ir::substitute(v->type, values));
  };
  auto out = std::make_shared<ir::Function>(f);
  for (ir::VarRef& p : out->parameters) p = fresh(p);
  auto body = std::make_shared<ir::Block>();
  const auto atom = [&](const ir::Atom& a) {
    return a.is_var() ? ir::Atom(renamed.at(a.var.get())) : a;
  };
  for (const ir::Binding& b : f.body->bindings) {
    auto e = std::make_shared<ir::Expr>(*b.value);
    for (ir::Atom& a : e->args) a = atom(a);
    for (auto& [name, value] : e->attrs) {
      if (auto* d = std::get_if<ir::Dim>(&value)) *d = d->substitute(values);
      if (auto* all = std::get_if<std::vector<ir::Dim>>(&value))
        for (ir::Dim& d : *all) d = d.substitute(values);
    }
    body->bindings.push_back({fresh(b.var), std::move(e)});
  }
  body->result = atom(f.body->result);
  out->result_type = ir::substitute(f.result_type, values);
  out->body = std::move(body);
  out->attrs.clear();
  return out;
}

}  // namespace

uint64_t data_seed(const TuningTask& task, const WorkloadPoint& point) {
  return hash64(fmt::format("{} {}", task.workload().key, fmt::join(point.symbols, ",")));
}

Expectation expected_result(const TuningTask& task, const WorkloadPoint& point) {
  const kernels::Workload& w = task.workload();
  std::map<std::string, ir::Dim> values;
  for (size_t i = 0; i < w.contract.symbols.size(); ++i)
    values.emplace(w.contract.symbols[i], ir::Dim(point.symbols[i]));
  ir::Module module;
  module.set("main", specialised(*w.group, values));

  const uint64_t seed = data_seed(task, point);
  std::vector<ir::TensorRef> arguments;
  size_t next_fill = 0;
  for (uint32_t i = 0; i < w.group->parameters.size(); ++i) {
    const exec::KernelArgument& a = w.contract.arguments.at(i);
    if (a.kind == exec::KernelArgument::Kind::kScalar) {
      const DType t = w.group->parameters[i]->type->dtype;
      uint8_t* data = nullptr;
      auto scalar = ir::Tensor::make(t, {}, &data);
      const int64_t v = point.symbols[a.symbol];
      std::copy_n(reinterpret_cast<const uint8_t*>(&v), size_of(t), data);
      arguments.push_back(std::move(scalar));
      continue;
    }
    std::vector<int64_t> shape;
    for (const exec::DimProgram& d : a.dims) shape.push_back(d.evaluate1(point.symbols));
    uint8_t* data = nullptr;
    auto tensor = ir::Tensor::make(a.dtype, shape, &data);
    fill_tensor(task.fills.at(next_fill++), a.dtype, seed, i, {data, tensor->bytes.size()});
    arguments.push_back(std::move(tensor));
  }
  Expectation out;
  for (const ir::TensorRef& t : reference::Interpreter(module).run_tensors("main", arguments))
    out.outputs.emplace_back(t->bytes.begin(), t->bytes.end());
  // The reference rounds once per operator, a kernel in every step of a sum: the error of a sum
  // of L terms grows like sqrt(L) epsilon in practice and its terms exceed it by as much again.
  out.tolerance = 64 * 0x1p-24 * std::max(1.0, std::sqrt(task.reduction));
  const ir::Type& r = w.group->result_type;
  for (const ir::Type& t : r->kind == ir::TypeKind::kTuple ? r->elements : std::vector<ir::Type>{r})
    if (t->dtype == DType::kF16 || t->dtype == DType::kBF16) out.tolerance = 0x1p-6;
  return out;
}

}  // namespace nimble::tuner
