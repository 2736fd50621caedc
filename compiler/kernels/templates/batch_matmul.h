// The template "batch_matmul": numpy's matmul of any two tensors, either side transposed, batch
// axes broadcast, all extents constant or symbolic; the element-wise operators that follow are
// fused behind it. The right-hand side is packed into scratch at each call.
#pragma once

#include "compiler/kernels/template.h"

namespace nimble::kernels {

class BatchMatmulTemplate final : public Template {
 public:
  std::string_view name() const override { return "batch_matmul"; }
  int version() const override { return 1; }
  bool accepts(const Workload& w, const TargetInfo& t) const override;
  std::vector<Knob> knobs(const Workload& w, const TargetInfo& t) const override;
  bool valid(const Workload& w, const Config& c, const TargetInfo& t) const override;
  Config default_config(const Workload& w, const TargetInfo& t) const override;
  Lowered lower(const Workload& w, const Config& c, const TargetInfo& t,
                const std::string& name) const override;
};

}  // namespace nimble::kernels
