#include "compiler/kernels/templates/gpu_cell_template.h"

#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/gpu_cell_lanes.h"
#include "compiler/kernels/templates/knobs.h"
#include "vm/base/error.h"

namespace nimble::kernels {

bool GpuCellTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  if (!t.is_gpu()) return false;
  const auto cell = cell_of(w);
  return cell && cell->default_shape(t);
}

std::vector<Knob> GpuCellTemplate::knobs(const Workload&, const TargetInfo&) const {
  return GpuCellShape::knobs();
}

bool GpuCellTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto cell = cell_of(w);
  return cell && well_formed(knobs(w, t), c) && cell->fits(GpuCellShape::of(c), t);
}

Config GpuCellTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto cell = cell_of(w);
  const auto shape = cell ? cell->default_shape(t) : std::nullopt;
  NIMBLE_CHECK(shape, "workload {} is not for {}", w.key, name());
  return shape->config();
}

Lowered GpuCellTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                               const std::string& name) const {
  const auto cell = cell_of(w);
  NIMBLE_CHECK(cell && valid(w, c, t), "configuration {} of {}", to_json(c), this->name());
  return gpu::one_gpu_kernel(cell->lower(w, GpuCellShape::of(c), name));
}

}  // namespace nimble::kernels
