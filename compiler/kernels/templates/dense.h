// The template "dense": a matrix with any number of rows times a packed constant matrix
// (packed_matmul), with the element-wise operators that follow fused behind it.
#pragma once

#include "compiler/kernels/template.h"

namespace nimble::kernels {

class DenseTemplate final : public Template {
 public:
  std::string_view name() const override { return "dense"; }
  int version() const override { return 1; }
  bool accepts(const Workload& w, const TargetInfo& t) const override;
  std::vector<Knob> knobs(const Workload& w, const TargetInfo& t) const override;
  bool valid(const Workload& w, const Config& c, const TargetInfo& t) const override;
  Config default_config(const Workload& w, const TargetInfo& t) const override;
  Lowered lower(const Workload& w, const Config& c, const TargetInfo& t,
                const std::string& name) const override;
};

// The layout (compiler/ir/layout.h) in which a constant (k, n) matrix should be packed for `t`.
std::string dense_layout(const TargetInfo& t, DType dtype, int64_t n);

}  // namespace nimble::kernels
