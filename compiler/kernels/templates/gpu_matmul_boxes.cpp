// Tiles of a "gpu_matmul" that come as boxes: one thread asks the GPU's copy engine for a whole
// stage, whose bytes arrive at a signal; no thread reckons addresses or takes part in moving them.
// A box is one line of all rows, swizzled on its way as a group of warps reads it, and what it has
// beyond the matrix is zeros.
#include "compiler/kernels/group_fragments.h"
#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/gpu_matmul.h"

namespace nimble::kernels::gpu {

namespace kb = kir::build;
using kir::BufferRef;
using kir::Dim;
using kir::StmtRef;

bool has_boxes(const Workload& w, DType t, const Dim& pitch) {
  return copy_elements(w, t, pitch) * static_cast<int>(size_of(t)) == kir::kPieceBytes;
}

bool comes_in_boxes(const Workload& w, const Product& p, const Schedule& s,
                    const SharedTile::Form& form, bool rhs) {
  return s.boxes && form.span != 0 && form.outer() <= static_cast<int>(exec::TensorMap::kMaxBox) &&
         has_boxes(w, rhs ? p.rhs->dtype : p.lhs->dtype, rhs ? p.rhs_pitch() : p.lhs_pitch());
}

// Axes of the operand, innermost first: along lines, from line to line, from matrix to matrix.
kir::TensorMapRef SharedTile::use_boxes(const Dim& matrices, const Dim& matrix, BufferRef signals) {
  kir::TensorMap m;
  m.name = name_ + "map";
  m.buffer = global_;
  m.extents = form_.along_k ? std::vector<Dim>{k_, extent_} : std::vector<Dim>{extent_, k_};
  m.box = {form_.span, form_.outer()};
  if (!matrices.is_constant(1)) {
    m.extents.push_back(matrices);
    m.box.push_back(1);
  }
  signals_ = std::move(signals);
  matrix_number_ = matrix;
  return map_ = std::make_shared<const kir::TensorMap>(std::move(m));
}

// A box for each line of a row.
StmtRef SharedTile::fill_boxes(const Dim& slot, const Dim& step) const {
  const Dim done = step * form_.k_step;
  const Dim outer = form_.along_k ? first_ : done, inner = form_.along_k ? done : first_;
  std::vector<StmtRef> all;
  for (int line = 0; line < form_.inner() / form_.span; ++line) {
    std::vector<Dim> coordinates = {inner + line * form_.span, outer};
    if (map_->box.size() > 2) coordinates.push_back(matrix_number_);
    all.push_back(kb::tensor_copy(shared_,
                                  base_ + slot * form_.stage() + line * form_.outer() * form_.span,
                                  map_, std::move(coordinates), signals_, slot));
  }
  return kb::seq(std::move(all));
}

}  // namespace nimble::kernels::gpu
