// The template "reduce": reductions over any axes (sum, mean, reduce_max, reduce_min, prod,
// argmax) and normalisations (softmax, log_softmax, l2_normalize, layer_norm), each with
// element-wise operators fused before and behind it.
#pragma once

#include "compiler/kernels/template.h"

namespace nimble::kernels {

class ReduceTemplate final : public Template {
 public:
  std::string_view name() const override { return "reduce"; }
  int version() const override { return 1; }
  bool accepts(const Workload& w, const TargetInfo& t) const override;
  std::vector<Knob> knobs(const Workload& w, const TargetInfo& t) const override;
  bool valid(const Workload& w, const Config& c, const TargetInfo& t) const override;
  Config default_config(const Workload& w, const TargetInfo& t) const override;
  Lowered lower(const Workload& w, const Config& c, const TargetInfo& t,
                const std::string& name) const override;
};

}  // namespace nimble::kernels
