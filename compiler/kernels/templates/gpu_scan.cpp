// The template "gpu_scan": running sums and products on a GPU, those that "scan" takes.
//
// A thread takes a row in order, so the result is the sequential one. Where the last axis is not
// the scanned one, neighbouring threads have neighbouring elements at every step. Where it is, each
// goes through a line of memory of its own; few and long rows leave most of the machine idle.
#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/scan.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::Dim;

bool GpuScanTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return t.is_gpu() && is_scan(w);
}

std::vector<Knob> GpuScanTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("threads", {32, 64, 128, 256}), int_knob("unroll", {1, 2, 4})};
}

bool GpuScanTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  return within(knobs(w, t), c);
}

Config GpuScanTemplate::default_config(const Workload&, const TargetInfo&) const {
  return {{"threads", int64_t{32}}, {"unroll", int64_t{4}}};
}

Lowered GpuScanTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                               const std::string& name) const {
  NIMBLE_CHECK(accepts(w, t) && valid(w, c, t), "configuration {} of gpu_scan", to_json(c));
  const Frame frame = gpu::make_gpu_frame(w);
  const int64_t threads = knob_int(c, "threads");
  const ScanItems items = scan_items(w, frame, 1, static_cast<int>(knob_int(c, "unroll")));
  kir::StmtRef body = kb::seq(
      {kb::let_index("item", kb::index(gpu::block() * threads + gpu::thread()), ir::SymbolFacts{}),
       kb::if_then(kb::lt(Dim::symbol("item"), items.count), items.body)});
  kir::Function f = make_function(w, frame, name, {}, items.registers, std::move(body));
  return gpu::one_gpu_kernel(gpu::launched(std::move(f), {ir::ceildiv(items.count, threads), 1, 1},
                                           static_cast<int>(threads)));
}

}  // namespace nimble::kernels
