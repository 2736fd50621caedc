// The template "pool2d": maximum and average pooling of NCHW images.
#pragma once

#include "compiler/kernels/template.h"

namespace nimble::kernels {

class Pool2dTemplate final : public Template {
 public:
  std::string_view name() const override { return "pool2d"; }
  int version() const override { return 1; }
  bool accepts(const Workload& w, const TargetInfo& t) const override;
  std::vector<Knob> knobs(const Workload& w, const TargetInfo& t) const override;
  bool valid(const Workload& w, const Config& c, const TargetInfo& t) const override;
  Config default_config(const Workload& w, const TargetInfo& t) const override;
  Lowered lower(const Workload& w, const Config& c, const TargetInfo& t,
                const std::string& name) const override;
};

}  // namespace nimble::kernels
