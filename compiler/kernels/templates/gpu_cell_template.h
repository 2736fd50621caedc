// The base of templates whose blocks share out a recurrent cell (gpu_cell_lanes.h). What tells them
// apart is a GpuCell.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/template.h"

namespace nimble::kernels {

struct GpuCellShape;

// A workload as one of these templates sees it.
class GpuCell {
 public:
  virtual ~GpuCell() = default;
  virtual bool fits(const GpuCellShape& s, const TargetInfo& t) const = 0;
  // Nothing if the target is not to have such a kernel.
  virtual std::optional<GpuCellShape> default_shape(const TargetInfo& t) const = 0;
  virtual kir::Function lower(const Workload& w, const GpuCellShape& s,
                              const std::string& name) const = 0;
};

class GpuCellTemplate : public Template {
 public:
  bool for_gpu() const final { return true; }
  bool accepts(const Workload& w, const TargetInfo& t) const final;
  std::vector<Knob> knobs(const Workload& w, const TargetInfo& t) const final;
  bool valid(const Workload& w, const Config& c, const TargetInfo& t) const final;
  Config default_config(const Workload& w, const TargetInfo& t) const final;
  Lowered lower(const Workload& w, const Config& c, const TargetInfo& t,
                const std::string& name) const final;

 private:
  // Null if the template does not serve it.
  virtual std::unique_ptr<const GpuCell> cell_of(const Workload& w) const = 0;
};

}  // namespace nimble::kernels
