#include <algorithm>

#include "compiler/kernels/group_text.h"
#include "compiler/kernels/workload.h"

namespace nimble::kernels {

using ir::Function;

WorkloadRef WorkloadCache::find_or_make(const Function& primitive, const std::string& text) {
  WorkloadRef& known = known_[text];
  if (!known) {
    known = std::make_shared<const Workload>(make_workload(primitive));
    ++made_;
  }
  return known;
}

const std::vector<exec::DimProgram>& WorkloadCache::requirements(const Workload& w) {
  const auto [it, fresh] = requirements_.try_emplace(w.key);
  if (fresh) it->second = requirements_of(w);
  return it->second;
}

WorkloadRef WorkloadCache::of(const Function& primitive,
                              const std::vector<bool>& constant_parameter) {
  require_inferred(primitive);
  ++asked_;
  const std::string text = text_of(primitive);
  WorkloadRef plain = find_or_make(primitive, text);
  if (std::find(constant_parameter.begin(), constant_parameter.end(), true) ==
      constant_parameter.end())
    return plain;
  std::string with_constants = text + '\n';
  for (bool c : constant_parameter) with_constants += c ? 'c' : 'v';
  WorkloadRef& known = known_[with_constants];
  if (!known) {
    auto w = std::make_shared<Workload>(*plain);
    w->constant_parameter = constant_parameter;
    w->constant_parameter.resize(w->group->parameters.size(), false);
    known = std::move(w);
  }
  return known;
}

}  // namespace nimble::kernels
