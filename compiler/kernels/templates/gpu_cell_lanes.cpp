#include "compiler/kernels/templates/gpu_cell_lanes.h"

#include <algorithm>
#include <utility>

#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/knobs.h"
#include "vm/base/checked.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::StmtRef;
using kir::ValueRef;

std::vector<Knob> GpuCellShape::knobs() {
  Knob rows = int_knob("rows", {1, 2, 4, 8});
  rows.tile = true;
  return {int_knob("units", {4, 8, 16, 32}), std::move(rows), int_knob("threads", {128, 256, 512})};
}

int64_t GpuCellShape::default_rows(const Dim& batch) {
  const auto known = batch.as_constant();
  return known && *known <= 1 ? 1 : known && *known <= 2 ? 2 : 4;
}

GpuCellShape GpuCellShape::of(const Config& c) {
  return {knob_int(c, "units"), knob_int(c, "rows"), static_cast<int>(knob_int(c, "threads"))};
}

Config GpuCellShape::config() const {
  return {{"units", units}, {"rows", rows}, {"threads", int64_t{threads}}};
}

bool GpuCellShape::well_formed() const {
  return is_power_of_two(units) && is_power_of_two(rows) && rows <= 16 && gpu::is_block(threads);
}

int64_t GpuCellLanes::columns_of(const RecurrentCell& cell, int64_t units) {
  int64_t columns = std::min<int64_t>(
      units, gpu::kAccessBytes / static_cast<int64_t>(size_of(cell.weights->dtype)));
  while (cell.hidden % columns != 0) columns /= 2;
  return columns;
}

int64_t GpuCellLanes::partial_elements(const GpuCellShape& s) {
  return s.threads / kir::kWarpLanes * s.rows * kPlaces * s.units;
}

GpuCellLanes::GpuCellLanes(const RecurrentCell& cell, const GpuCellShape& s)
    : s_(s),
      columns_(columns_of(cell, s.units)),
      unit_lanes_(s.units / columns_),
      parts_(kir::kWarpLanes / (kPlaces * unit_lanes_)),
      warps_(s.threads / kir::kWarpLanes),
      sums_(kb::buffer("sums", kir::Scope::kRegister, cell.dtype, s.rows,
                       static_cast<int>(columns_))),
      partial_(gpu::shared_buffer("partial", cell.dtype, partial_elements(s))) {}

Dim GpuCellLanes::own() const {
  return ir::mod(gpu::thread(), unit_lanes_) * columns_;
}
Dim GpuCellLanes::place() const {
  return ir::mod(ir::floordiv(gpu::thread(), unit_lanes_), kPlaces);
}
Dim GpuCellLanes::part() const {
  return ir::floordiv(gpu::thread(), unit_lanes_ * kPlaces);
}

void GpuCellLanes::fold(std::vector<StmtRef>& all) const {
  // Lanes a multiple of `distance` apart have the same columns.
  for (int64_t distance = unit_lanes_ * kPlaces; distance < kir::kWarpLanes; distance *= 2)
    for (int r = 0; r < s_.rows; ++r) {
      const Dim other = ir::mod(gpu::lane() + distance, kir::kWarpLanes);
      all.push_back(
          kb::set_reg(sums_, r, kb::add(kb::reg(sums_, r), kb::shuffle(kb::reg(sums_, r), other))));
    }
  std::vector<StmtRef> stores;
  for (int r = 0; r < s_.rows; ++r)
    stores.push_back(kb::store(
        partial_, (gpu::warp() * s_.rows + r) * (kPlaces * s_.units) + place() * s_.units + own(),
        kb::reg(sums_, r)));
  StmtRef store = kb::seq(std::move(stores));
  if (parts_ > 1) store = kb::if_then(kb::lt(gpu::lane(), unit_lanes_ * kPlaces), std::move(store));
  all.push_back(std::move(store));
  all.push_back(kb::barrier(kir::Together::kBlock));
}

ValueRef GpuCellLanes::sum_at(const Dim& row, const Dim& place, const Dim& unit) const {
  ValueRef v;
  for (int64_t warp = 0; warp < warps_; ++warp) {
    const ValueRef x =
        kb::load(partial_, (warp * s_.rows + row) * (kPlaces * s_.units) + place * s_.units + unit);
    v = v ? kb::add(v, x) : x;
  }
  return v;
}

void GpuCellLanes::store_all(std::vector<StmtRef>& to, const std::vector<BufferRef>& buffers,
                             const Dim& index, const ValueRef& v) {
  for (const BufferRef& b : buffers) to.push_back(kb::store(b, index, v));
}

}  // namespace nimble::kernels
