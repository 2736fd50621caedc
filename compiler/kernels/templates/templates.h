// The templates of Templates.def, one class and one .cpp file each.
#pragma once

#include "compiler/kernels/template.h"
#include "compiler/kernels/templates/gpu_cell_template.h"

namespace nimble::kernels {

#define NIMBLE_DECLARE_TEMPLATE(class_name, text, is_for_gpu, pitches)                  \
  class class_name final : public Template {                                            \
   public:                                                                              \
    std::string_view name() const override { return text; }                             \
    bool for_gpu() const override { return is_for_gpu; }                                \
    bool writes_parts() const override { return pitches; }                              \
    bool accepts(const Workload& w, const TargetInfo& t) const override;                \
    std::vector<Knob> knobs(const Workload& w, const TargetInfo& t) const override;     \
    bool valid(const Workload& w, const Config& c, const TargetInfo& t) const override; \
    Config default_config(const Workload& w, const TargetInfo& t) const override;       \
    Lowered lower(const Workload& w, const Config& c, const TargetInfo& t,              \
                  const std::string& name) const override;                              \
  };
#define NIMBLE_TEMPLATE(class_name, text) NIMBLE_DECLARE_TEMPLATE(class_name, text, false, false)
#define NIMBLE_PITCH_TEMPLATE(class_name, text) \
  NIMBLE_DECLARE_TEMPLATE(class_name, text, false, true)
#define NIMBLE_GPU_TEMPLATE(class_name, text) NIMBLE_DECLARE_TEMPLATE(class_name, text, true, false)
#define NIMBLE_GPU_CELL_TEMPLATE(class_name, text)                            \
  class class_name final : public GpuCellTemplate {                           \
   public:                                                                    \
    std::string_view name() const override { return text; }                   \
                                                                              \
   private:                                                                   \
    std::unique_ptr<const GpuCell> cell_of(const Workload& w) const override; \
  };
#include "compiler/kernels/Templates.def"
#undef NIMBLE_TEMPLATE
#undef NIMBLE_DECLARE_TEMPLATE

}  // namespace nimble::kernels
