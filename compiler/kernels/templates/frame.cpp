#include "compiler/kernels/templates/frame.h"

#include <algorithm>
#include <set>

#include "compiler/ir/op.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::Dim;

namespace {

bool is_scalar_parameter(const Workload& w, size_t i) {
  const auto scalars =
      ir::attr_or<std::vector<int64_t>>(w.group->attrs, "scalars", std::vector<int64_t>{});
  for (int64_t s : scalars)
    if (s == static_cast<int64_t>(i)) return true;
  return false;
}

std::optional<size_t> parameter_index(const Workload& w, const ir::Atom& a) {
  if (!a.is_var()) return {};
  for (size_t i = 0; i < w.group->parameters.size(); ++i)
    if (w.group->parameters[i] == a.var) return i;
  return {};
}

const ir::Expr* definition(const ir::Block& block, const ir::Atom& a) {
  if (!a.is_var()) return nullptr;
  for (const ir::Binding& b : block.bindings)
    if (b.var == a.var) return b.value.get();
  return nullptr;
}

BufferRef line_aligned(kir::Buffer b) {
  b.alignment = 64;
  return std::make_shared<const kir::Buffer>(std::move(b));
}

}  // namespace

Frame make_frame(const Workload& w) {
  Frame f;
  const ir::Function& group = *w.group;
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    if (is_scalar_parameter(w, i)) {
      f.parameters.push_back(nullptr);
      continue;
    }
    const ir::Type& type = group.parameters[i]->type;
    f.parameters.push_back(kb::buffer("p" + std::to_string(i), kir::Scope::kArgument, type->dtype,
                                      ir::element_count(type)));
  }
  const ir::Expr* result = definition(*group.body, group.body->result);
  if (result && result->kind == ir::ExprKind::kTuple) {
    f.result_atoms = result->args;
  } else {
    f.result_atoms = {group.body->result};
  }
  for (size_t i = 0; i < f.result_atoms.size(); ++i) {
    const ir::Type type = ir::type_of(f.result_atoms[i]);
    const ir::Expr* part = definition(*group.body, f.result_atoms[i]);
    if (part && ir::traits_of(*part).in_out) f.result_atoms[i] = part->args[0];
    f.result_types.push_back(ir::type_of(f.result_atoms[i]));
    if (type->kind == ir::TypeKind::kTuple) {  // an anchor with several results, returned whole
      NIMBLE_CHECK(f.result_atoms.size() == 1, "a tuple inside a tuple");
      f.result_types = type->elements;
      for (const ir::Type& t : type->elements) f.result_dims.push_back(t->dims);
      for (size_t j = 0; j < type->elements.size(); ++j) {
        auto b = std::make_shared<kir::Buffer>(
            *kb::buffer("r" + std::to_string(j), kir::Scope::kArgument, type->elements[j]->dtype,
                        ir::element_count(type->elements[j])));
        b->writable = true;
        f.results.push_back(b);
      }
      break;
    }
    f.result_dims.push_back(type->dims);
    auto b = std::make_shared<kir::Buffer>(*kb::buffer(
        "r" + std::to_string(i), kir::Scope::kArgument, type->dtype, ir::element_count(type)));
    b->writable = true;
    f.results.push_back(b);
  }
  for (const ir::Binding& b : group.body->bindings) {
    if (b.value->kind != ir::ExprKind::kCall || b.value->op != w.anchor) continue;
    if (f.anchor) {
      f.anchor = nullptr;
      break;
    }
    f.anchor = &b;
  }
  return f;
}

BufferRef parameter_buffer(const Workload& w, const Frame& f, const ir::Atom& a) {
  const auto i = parameter_index(w, a);
  return i ? f.parameters[*i] : nullptr;
}

std::optional<Dim> scalar_symbol(const Workload& w, const ir::Atom& a) {
  const auto i = parameter_index(w, a);
  if (!i || *i >= w.contract.arguments.size()) return {};
  const exec::KernelArgument& argument = w.contract.arguments[*i];
  if (argument.kind != exec::KernelArgument::Kind::kScalar) return {};
  return Dim::symbol(w.contract.symbols[argument.symbol]);
}

bool has_index(const Workload& w) {
  const auto& calls = w.group->body->bindings;
  return std::any_of(calls.begin(), calls.end(), [](const ir::Binding& b) {
    return b.value->kind == ir::ExprKind::kCall && ir::traits_of(*b.value).indexes;
  });
}

bool has_elementwise_epilogue(const Workload& w, const Frame& f) {
  if (!f.anchor) return false;
  const ir::Type& shape = f.anchor->var->type;
  if (!shape || shape->kind != ir::TypeKind::kTensor) return false;
  std::set<const ir::Var*> dependent = {f.anchor->var.get()};
  for (const ir::Binding& b : w.group->body->bindings) {
    if (&b == f.anchor || b.value->kind == ir::ExprKind::kTuple) continue;
    bool depends = false;
    for (const ir::Atom& a : b.value->args)
      depends |= a.is_var() && dependent.contains(a.var.get());
    if (!depends || ir::traits_of(*b.value).in_out) continue;
    const bool copy = b.value->kind == ir::ExprKind::kAtom;
    if (!copy) {
      if (b.value->kind != ir::ExprKind::kCall) return false;
      const ir::OpInfo* op = ir::find_op(b.value->op);
      if (!op || op->fusion != ir::FusionKind::kElementwise) return false;
    }
    if (b.var->type->kind != ir::TypeKind::kTensor || b.var->type->dims != shape->dims)
      return false;
    dependent.insert(b.var.get());
  }
  for (const ir::Atom& a : f.result_atoms)
    if (!a.is_var() || !dependent.contains(a.var.get())) return false;
  // The anchor's value comes in vectors. What joins it must be had in vectors too, which a gather
  // by indices of the lanes, say, is not.
  GroupEvaluator group(*w.group, f.parameters);
  const DType dtype = compute_type(shape->dtype);
  group.give(f.anchor->var,
             [dtype](const std::vector<Dim>&, int lanes) { return kb::number(dtype, 0, lanes); });
  return std::all_of(f.result_atoms.begin(), f.result_atoms.end(),
                     [&](const ir::Atom& a) { return group.vectorizable(a); });
}

std::vector<BufferRef> epilogue_operands(const Workload& w, const Frame& f) {
  std::vector<BufferRef> out;
  for (const ir::Binding& b : w.group->body->bindings) {
    const ir::OpInfo* op =
        b.value->kind == ir::ExprKind::kCall ? ir::find_op(b.value->op) : nullptr;
    if (!op || op->fusion != ir::FusionKind::kElementwise) continue;
    for (const ir::Atom& a : b.value->args) {
      const BufferRef buffer = parameter_buffer(w, f, a);
      if (buffer && ir::type_of(a)->dims == f.anchor->var->type->dims &&
          std::find(out.begin(), out.end(), buffer) == out.end())
        out.push_back(buffer);
    }
  }
  return out;
}

kir::StmtRef store_results(const Workload& w, const Frame& f, kir::ValueRef value,
                           const std::vector<Dim>& coordinates, int lanes,
                           const std::optional<Dim>& valid, const std::string& prefix) {
  const std::string name = prefix + "x";
  const DType dtype = value->dtype;
  std::vector<kir::StmtRef> all = {kb::let(name, std::move(value))};
  GroupEvaluator evaluator(*w.group, f.parameters, prefix);
  evaluator.give(f.anchor->var,
                 [&](const std::vector<Dim>&, int) { return kb::local(name, dtype, lanes); });
  std::vector<kir::StmtRef> stores;
  for (size_t i = 0; i < f.results.size(); ++i) {
    kir::ValueRef v = evaluator.value(f.result_atoms[i], coordinates, lanes, valid);
    v = kb::broadcast(kb::cast(f.result_types[i]->dtype, std::move(v)), lanes);
    const Dim offset = flat_offset(f.result_dims[i], coordinates);
    stores.push_back(valid ? kb::store_masked(f.results[i], offset, std::move(v), *valid)
                           : kb::store(f.results[i], offset, std::move(v)));
  }
  for (kir::StmtRef& s : evaluator.take_statements()) all.push_back(std::move(s));
  for (kir::StmtRef& s : stores) all.push_back(std::move(s));
  return kb::seq(std::move(all));
}

ColumnVectors ColumnVectors::in_pairs() const {
  ColumnVectors out = *this;
  if (valid || vectors % 2 != 0) return out;
  out.vectors /= 2;
  out.lanes *= 2;
  return out;
}

kir::StmtRef store_columns(const Workload& w, const Frame& f, const std::vector<Dim>& row,
                           const ColumnVectors& columns, const ColumnValue& value) {
  std::vector<kir::StmtRef> all;
  std::vector<Dim> coordinates = row;
  coordinates.emplace_back(0);
  for (int v = 0; v < columns.vectors; ++v) {
    const Dim ahead = v * columns.lanes;
    coordinates.back() = columns.first + ahead;
    const auto valid = columns.valid ? std::optional<Dim>(*columns.valid - ahead) : std::nullopt;
    all.push_back(store_results(w, f, value(v, coordinates.back(), valid), coordinates,
                                columns.lanes, valid, columns.prefix + std::to_string(v) + "_"));
  }
  return kb::seq(std::move(all));
}

BufferRef thread_scratch(const std::string& name, DType dtype, const Dim& extent) {
  return line_aligned(*kb::buffer(name, kir::Scope::kThread, dtype, extent));
}

BufferRef shared_scratch(const std::string& name, DType dtype, const Dim& extent) {
  return line_aligned(*kb::buffer(name, kir::Scope::kScratch, dtype, extent));
}

std::vector<std::vector<size_t>> results_together(
    const Frame& f, const std::function<bool(const ir::Atom&)>& is_plain) {
  std::vector<std::vector<size_t>> out;
  std::vector<bool> done(f.result_atoms.size(), false);
  for (size_t i = 0; i < done.size(); ++i) {
    if (done[i]) continue;
    std::vector<size_t> together = {i};
    if (is_plain(f.result_atoms[i]))
      for (size_t j = i + 1; j < done.size(); ++j)
        if (f.result_types[j]->dims == f.result_types[i]->dims && is_plain(f.result_atoms[j]))
          together.push_back(j);
    for (const size_t j : together) done[j] = true;
    out.push_back(std::move(together));
  }
  return out;
}

kir::Function make_function(const Workload& w, const Frame& f, const std::string& name,
                            std::vector<BufferRef> scratch, std::vector<BufferRef> registers,
                            kir::StmtRef body) {
  kir::Function function;
  function.name = name;
  function.contract = w.contract;
  function.facts = w.facts;
  for (const BufferRef& p : f.parameters)
    if (p) function.arguments.push_back(p);
  for (const BufferRef& r : f.results) function.arguments.push_back(r);
  function.scratch = std::move(scratch);
  function.registers = std::move(registers);
  function.body = std::move(body);
  return function;
}

std::vector<Dim> row_dims(const Frame& f) {
  const auto& dims = f.anchor->var->type->dims;
  return {dims.begin(), dims.end() - 1};
}

Dim count_of(const std::vector<Dim>& dims) {
  Dim count = 1;
  for (const Dim& d : dims) count = count * d;
  return count;
}

std::vector<Dim> unflatten(const Dim& flat, const std::vector<Dim>& dims) {
  std::vector<Dim> coordinates(dims.size());
  Dim rest = flat;
  for (size_t i = dims.size(); i-- > 0;) {
    // An extent of 0 leaves no element to have coordinates, but the division must be defined.
    const Dim extent = ir::max(dims[i], 1);
    coordinates[i] = i == 0 ? rest : ir::mod(rest, extent);
    if (i > 0) rest = ir::floordiv(rest, extent);
  }
  return coordinates;
}

}  // namespace nimble::kernels
