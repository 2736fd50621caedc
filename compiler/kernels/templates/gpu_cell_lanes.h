// How blocks of a GPU share out a recurrent cell: what gpu_recurrent and gpu_recurrent_steps have
// in common. A block has some hidden units and takes some rows of the batch; its lanes stand over
// (part of k, place of a gate, units), and what they sum of one column is added up here.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/templates/recurrent.h"

namespace nimble::kernels {

struct GpuCellShape {
  int64_t units, rows;  // of a block, and of the batch at a time
  int threads;

  static std::vector<Knob> knobs();
  // Of a batch: four, or less if it is known to be less.
  static int64_t default_rows(const Dim& batch);
  static GpuCellShape of(const Config& c);
  Config config() const;
  // Powers of two, rows at most 16, and a block's threads.
  bool well_formed() const;
};

class GpuCellLanes {
 public:
  static constexpr int64_t kPlaces = 4;  // for a unit's gates

  // Columns of the weights that a lane has at once: 16 bytes of them, if all rows allow it.
  static int64_t columns_of(const RecurrentCell& cell, int64_t units);
  // Elements of shared memory where the warps' sums meet.
  static int64_t partial_elements(const GpuCellShape& s);

 protected:
  GpuCellLanes(const RecurrentCell& cell, const GpuCellShape& s);

  // The lane's first unit of the block's, its place for a gate, and its part of k.
  Dim own() const;
  Dim place() const;
  Dim part() const;
  // Appends what adds the lanes' sums_ of a column up and stores them in partial_, and a barrier.
  void fold(std::vector<kir::StmtRef>& all) const;
  // What that column's sum is afterwards, of all warps.
  kir::ValueRef sum_at(const Dim& row, const Dim& place, const Dim& unit) const;
  static void store_all(std::vector<kir::StmtRef>& to, const std::vector<kir::BufferRef>& buffers,
                        const Dim& index, const kir::ValueRef& v);

  GpuCellShape s_;
  int64_t columns_;     // of the weights, of a lane at once
  int64_t unit_lanes_;  // lanes beside each other, of one gate
  int64_t parts_;       // of k, in a warp
  int64_t warps_;
  kir::BufferRef sums_, partial_;
};

}  // namespace nimble::kernels
