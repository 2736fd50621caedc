// The templates of Templates.def, one class and one .cpp file each.
#pragma once

#include "compiler/kernels/template.h"

namespace nimble::kernels {

#define NIMBLE_TEMPLATE(class_name, text)                                               \
  class class_name final : public Template {                                            \
   public:                                                                              \
    std::string_view name() const override { return text; }                             \
    bool accepts(const Workload& w, const TargetInfo& t) const override;                \
    std::vector<Knob> knobs(const Workload& w, const TargetInfo& t) const override;     \
    bool valid(const Workload& w, const Config& c, const TargetInfo& t) const override; \
    Config default_config(const Workload& w, const TargetInfo& t) const override;       \
    Lowered lower(const Workload& w, const Config& c, const TargetInfo& t,              \
                  const std::string& name) const override;                              \
  };
#include "compiler/kernels/Templates.def"
#undef NIMBLE_TEMPLATE

}  // namespace nimble::kernels
