// The template "recurrent": one step of an LSTM or GRU cell. The recurrent product and the gates
// are one kernel; the input's part of the gates comes ready (one product for the whole sequence,
// ahead of the loop).
#pragma once

#include "compiler/kernels/template.h"

namespace nimble::kernels {

class RecurrentTemplate final : public Template {
 public:
  std::string_view name() const override { return "recurrent"; }
  int version() const override { return 1; }
  bool accepts(const Workload& w, const TargetInfo& t) const override;
  std::vector<Knob> knobs(const Workload& w, const TargetInfo& t) const override;
  bool valid(const Workload& w, const Config& c, const TargetInfo& t) const override;
  Config default_config(const Workload& w, const TargetInfo& t) const override;
  Lowered lower(const Workload& w, const Config& c, const TargetInfo& t,
                const std::string& name) const override;
};

// The layout in which packed_lstm_cell's recurrent weights should be packed for `t`.
std::string recurrent_layout(const TargetInfo& t, DType dtype);

}  // namespace nimble::kernels
