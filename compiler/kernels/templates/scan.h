// The template "scan": running sums and products along an axis (cumsum, cumprod).
#pragma once

#include "compiler/kernels/template.h"

namespace nimble::kernels {

class ScanTemplate final : public Template {
 public:
  std::string_view name() const override { return "scan"; }
  int version() const override { return 1; }
  bool accepts(const Workload& w, const TargetInfo& t) const override;
  std::vector<Knob> knobs(const Workload& w, const TargetInfo& t) const override;
  bool valid(const Workload& w, const Config& c, const TargetInfo& t) const override;
  Config default_config(const Workload& w, const TargetInfo& t) const override;
  Lowered lower(const Workload& w, const Config& c, const TargetInfo& t,
                const std::string& name) const override;
};

}  // namespace nimble::kernels
