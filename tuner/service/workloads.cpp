#include "tuner/service/workloads.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "compiler/ir/entry.h"
#include "compiler/ir/op.h"
#include "compiler/passes/support/rewrite.h"
#include "tuner/service/workload_fills.h"
#include "vm/base/device_number.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using exec::KernelArgument;

constexpr double kMostWork = 9e18;  // flops or bytes: a product of sizes may be any

int64_t evaluate(const ir::Dim& d, const ModelPoint& at, int64_t otherwise) {
  return d.evaluate([&](const std::string& name) -> std::optional<int64_t> {
    const auto it = at.find(name);
    return it == at.end() ? otherwise : it->second;
  });
}

int64_t value(const ir::Dim& d, const kernels::Workload& w, const std::vector<int64_t>& symbols) {
  return d.evaluate([&](const std::string& name) -> std::optional<int64_t> {
    const auto& names = w.contract.symbols;
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) return std::nullopt;
    return symbols[static_cast<size_t>(it - names.begin())];
  });
}

// A call of the group at one shape.
ir::CallExtents extents_of(const ir::Binding& b, const kernels::Workload& w,
                           const std::vector<int64_t>& s) {
  const auto extents = [&](const ir::Type& t) {
    std::vector<double> out;
    for (const ir::Dim& d : t->dims) out.push_back(static_cast<double>(value(d, w, s)));
    return out;
  };
  ir::CallExtents call{b.value->attrs, {}, 0};
  for (const ir::Atom& a : b.value->args) call.operands.push_back(extents(ir::type_of(a)));
  const ir::Type& t = b.var->type;
  for (const ir::Type& part :
       t->kind == ir::TypeKind::kTuple ? t->elements : std::vector<ir::Type>{t}) {
    const std::vector<double> e = extents(part);
    call.results += std::accumulate(e.begin(), e.end(), 1.0, std::multiplies<>());
  }
  return call;
}

// The group's calls at one shape, with the operators that they call.
void visit_calls(const kernels::Workload& w, const std::vector<int64_t>& s,
                 const std::function<void(const ir::OpInfo&, const ir::CallExtents&)>& visit) {
  for (const ir::Binding& b : w.group->body->bindings)
    if (const ir::OpInfo* op =
            b.value->kind == ir::ExprKind::kCall ? ir::find_op(b.value->op) : nullptr)
      visit(*op, extents_of(b, w, s));
}

// The longest sum behind an element that the group computes.
double reduction_of(const kernels::Workload& w, const std::vector<int64_t>& s) {
  double most = 1;
  visit_calls(w, s, [&](const ir::OpInfo& op, const ir::CallExtents& call) {
    if (op.traits.sums) most = std::max(most, op.traits.sums(call));
  });
  return most;
}

int64_t flops_of(const kernels::Workload& w, const std::vector<int64_t>& s) {
  double sum = 0;
  visit_calls(w, s, [&](const ir::OpInfo& op, const ir::CallExtents& call) {
    sum += op.traits.flops ? op.traits.flops(call) : call.results;
  });
  return static_cast<int64_t>(std::min(sum, kMostWork));
}

int64_t bytes_of(const kernels::Workload& w, const std::vector<int64_t>& s) {
  double sum = 0;
  for (const KernelArgument& a : w.contract.arguments) {
    if (a.kind != KernelArgument::Kind::kTensor) continue;
    auto n = static_cast<double>(size_of(a.dtype));
    for (const exec::DimProgram& d : a.dims) n *= static_cast<double>(d.evaluate1(s));
    sum += n;
  }
  return static_cast<int64_t>(std::min(sum, kMostWork));
}

std::string label_of(const driver::WorkloadUse& use) {
  std::string out = use.source.empty() ? use.workload.anchor : use.source;
  if (out.size() > 48) out = out.substr(0, 45) + "...";
  for (const ir::Binding& b : use.workload.group->body->bindings)
    if (const ir::OpInfo* op = ir::find_op(b.value->op);
        op && op->rows() == ir::Rows::kPackedProduct)
      return fmt::format("{} k={} n={}", out, ir::attr<int64_t>(b.value->attrs, "k"),
                         ir::attr<int64_t>(b.value->attrs, "n"));
  return out;
}

// Functions that can reach themselves: loops.
std::set<std::string> recursive_functions(const ir::Module& m) {
  std::map<std::string, std::set<std::string>> reaches;
  for (const auto& [name, f] : m.functions) {
    std::set<std::string>& reached = reaches[name];
    passes::visit_bindings(*f->body, [&](const ir::Binding& b) {
      if (b.value->callee && b.value->callee->is_global()) reached.insert(b.value->callee->global);
      for (const ir::Atom& a : b.value->args)
        if (a.is_global()) reached.insert(a.global);
    });
  }
  for (bool grows = true; grows;) {
    grows = false;
    for (auto& [name, others] : reaches) {
      std::set<std::string> more = others;
      for (const std::string& o : others) more.insert(reaches[o].begin(), reaches[o].end());
      if (more.size() > others.size()) others = std::move(more), grows = true;
    }
  }
  std::set<std::string> out;
  for (const auto& [name, others] : reaches)
    if (others.contains(name)) out.insert(name);
  return out;
}

// Sizes of the model that leave nothing to compute here (a sound that is shorter than a window)
// tell nothing, and would all be one.
void drop_empty(std::vector<WorkloadPoint>& points) {
  const auto empty = [](const WorkloadPoint& p) { return p.flops == 0; };
  if (std::all_of(points.begin(), points.end(), empty)) return;
  std::erase_if(points, empty);
  double mass = 0;
  for (const WorkloadPoint& p : points) mass += p.weight;
  if (mass > 0)
    for (WorkloadPoint& p : points) p.weight /= mass, p.exact /= mass;
}

}  // namespace

std::optional<std::vector<int64_t>> workload_symbols(const driver::WorkloadUse& use,
                                                     const ModelPoint& at, int64_t otherwise) {
  const kernels::Workload& w = use.workload;
  std::vector<int64_t> out(w.contract.symbols.size(), -1);
  size_t extra = 0;
  for (size_t i = 0; i < w.contract.arguments.size(); ++i) {
    const KernelArgument& a = w.contract.arguments[i];
    const bool parameter = i < use.primitive->parameters.size();
    if (a.kind == KernelArgument::Kind::kScalar) {
      // A loop counter of the caller begins at 0; other scalars are dims that the caller knows.
      out[a.symbol] = parameter ? 0 : evaluate(w.extra_scalars.at(extra++), at, otherwise);
      continue;
    }
    if (!parameter) break;  // results bind nothing
    std::vector<int64_t> shape;
    for (const ir::Dim& d : use.primitive->parameters[i]->type->dims)
      shape.push_back(evaluate(d, at, otherwise));
    while (shape.size() > a.dims.size()) {
      if (!a.collapse_leading || __builtin_mul_overflow(shape[0], shape[1], &shape[1]))
        return std::nullopt;
      shape.erase(shape.begin());
    }
    if (shape.size() != a.dims.size()) return std::nullopt;
    for (size_t d = 0; d < shape.size(); ++d) {
      uint32_t symbol = 0;
      if (a.dims[d].is_argument(&symbol) && out[symbol] < 0)
        out[symbol] = shape[d];
      else if (std::find(out.begin(), out.end(), -1) == out.end() &&
               a.dims[d].evaluate1(out) != shape[d])
        return std::nullopt;
    }
  }
  for (int64_t v : out)
    if (v < 0) return std::nullopt;
  return out;
}

PossibleSizes::PossibleSizes(const kernels::Workload& w)
    : workload_(w), requirements_(kernels::requirements_of(w, true)) {}

bool PossibleSizes::contains(const std::vector<int64_t>& symbols) const {
  const auto below_zero = [&](const ir::Type& t) {
    return t->kind == ir::TypeKind::kTensor && std::ranges::any_of(t->dims, [&](const ir::Dim& d) {
             return value(d, workload_, symbols) < 0;
           });
  };
  const auto any_below_zero = [&](const ir::Type& t) {
    return t->kind == ir::TypeKind::kTuple ? std::ranges::any_of(t->elements, below_zero)
                                           : below_zero(t);
  };
  const ir::Function& group = *workload_.group;
  return std::ranges::all_of(requirements_,
                             [&](const auto& r) { return r.evaluate1(symbols) != 0; }) &&
         std::ranges::none_of(group.parameters,
                              [&](const ir::VarRef& p) { return any_below_zero(p->type); }) &&
         std::ranges::none_of(group.body->bindings,
                              [&](const ir::Binding& b) { return any_below_zero(b.var->type); });
}

std::string at_text(const WorkloadPoint& point) {
  return point.symbols.empty() ? "" : fmt::format(" at {}", fmt::join(point.symbols, ", "));
}

size_t TuningTask::representative() const {
  for (size_t i = 0; i < points.size(); ++i)
    if (points[i].representative) return i;
  return 0;
}

std::vector<Fill> TuningTask::fills_at(const WorkloadPoint& point) const {
  std::vector<Fill> out = fills;
  for (const auto& [i, extent] : indexed)
    out[i].high =
        static_cast<double>(std::max<int64_t>(0, value(extent, workload(), point.symbols) - 1));
  return out;
}

void complete(TuningTask& t) {
  t.label = label_of(t.use);
  for (WorkloadPoint& p : t.points) {
    p.flops = flops_of(t.workload(), p.symbols);
    p.bytes = bytes_of(t.workload(), p.symbols);
  }
  t.indexed.clear();
  const std::vector<int64_t>& usual = t.points.at(t.representative()).symbols;
  const auto terms = [&](const ir::Binding& b) {
    return ir::traits_of(*b.value).sums(extents_of(b, t.workload(), usual));
  };
  t.fills = fills_of(t.workload(), terms, &t.indexed);
  t.stepping.clear();
  for (const KernelArgument& a : t.workload().contract.arguments)
    if (a.kind == KernelArgument::Kind::kScalar)
      t.stepping.push_back(
          t.stepping.size() <
          ir::attr_or<std::vector<int64_t>>(t.workload().group->attrs, "scalars", {}).size());
  // A step must not walk out of a tensor.
  const std::vector<ir::Binding>& members = t.workload().group->body->bindings;
  if (std::any_of(members.begin(), members.end(),
                  [](const ir::Binding& b) { return ir::traits_of(*b.value).indexes; }))
    std::fill(t.stepping.begin(), t.stepping.end(), uint8_t{0});
  t.reduction = 1;
  for (const WorkloadPoint& p : t.points)
    t.reduction = std::max(t.reduction, reduction_of(t.workload(), p.symbols));
}

std::vector<TuningTask> tuning_tasks(const ir::Module& lowered,
                                     const std::vector<WeightedPoint>& points,
                                     const kernels::TargetInfo& target,
                                     std::vector<std::string>* skipped) {
  const std::set<std::string> loops = recursive_functions(lowered);
  double mean_size = 0;  // how often a loop over the varying symbol turns
  for (const WeightedPoint& p : points) {
    int64_t most = 0;
    for (const auto& [s, v] : p.at) most = std::max(most, v);
    mean_size += p.weight * static_cast<double>(most);
  }

  std::vector<TuningTask> out;
  std::map<std::string, size_t> by_key;
  for (const auto& [name, f] : lowered.functions) {
    ir::Module alone;
    alone.set(name, f);
    for (driver::WorkloadUse& use : driver::workloads_of(alone)) {
      if (is_gpu(use.device) != target.is_gpu()) continue;
      const double calls = static_cast<double>(use.calls) * (loops.contains(name) ? mean_size : 1);
      const auto [it, fresh] = by_key.emplace(use.workload.identity(), out.size());
      if (!fresh) {
        out[it->second].calls += calls;
        continue;
      }
      TuningTask t;
      t.calls = calls;
      t.use = std::move(use);
      if (!kernels::template_for(t.workload(), target)) {
        if (skipped) skipped->push_back(label_of(t.use) + ": no kernel template serves it");
        by_key.erase(it);
        continue;
      }
      const PossibleSizes possible(t.workload());
      std::map<std::vector<int64_t>, size_t> seen;
      for (const WeightedPoint& p : points) {
        int64_t size = 1;
        for (const auto& [s, v] : p.at) size = std::max(size, v);
        const auto symbols = workload_symbols(t.use, p.at, size);
        if (!symbols || !possible.contains(*symbols)) continue;
        const auto [at, added] = seen.emplace(*symbols, t.points.size());
        if (added) t.points.push_back({*symbols, 0, 0, false, false, true});
        WorkloadPoint& wp = t.points[at->second];
        wp.weight += p.weight;
        wp.exact += p.exact;
        wp.power_of_two |= p.power_of_two;
        wp.representative |= p.representative;
        wp.held_out &= p.held_out;
      }
      if (t.points.empty()) {
        if (skipped)
          skipped->push_back(label_of(t.use) + ": its shapes do not follow from the model's");
        by_key.erase(it);
        continue;
      }
      complete(t);
      drop_empty(t.points);
      complete(t);  // of what is left
      // Where the other sizes do not fit, nothing is held out.
      if (std::all_of(t.points.begin(), t.points.end(), [](const auto& p) { return p.held_out; }))
        for (WorkloadPoint& p : t.points) p.held_out = false;
      out.push_back(std::move(t));
    }
  }
  return out;
}

}  // namespace nimble::tuner
