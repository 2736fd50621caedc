// The template "conv2d": direct convolution of NCHW images, with an element-wise epilogue.
#pragma once

#include "compiler/kernels/template.h"

namespace nimble::kernels {

class Conv2dTemplate final : public Template {
 public:
  std::string_view name() const override { return "conv2d"; }
  int version() const override { return 1; }
  bool accepts(const Workload& w, const TargetInfo& t) const override;
  std::vector<Knob> knobs(const Workload& w, const TargetInfo& t) const override;
  bool valid(const Workload& w, const Config& c, const TargetInfo& t) const override;
  Config default_config(const Workload& w, const TargetInfo& t) const override;
  Lowered lower(const Workload& w, const Config& c, const TargetInfo& t,
                const std::string& name) const override;
};

}  // namespace nimble::kernels
