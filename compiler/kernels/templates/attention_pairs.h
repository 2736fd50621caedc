// A head's operands as products of narrow factors take them (Fragments.def): the second factor's
// neighbours along k side by side for each column, which is how constant weights are packed, but at
// run time and for one head at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kernels {

inline constexpr int64_t kPair = 2;  // elements of 16 bits that fragments sum at once

// Where an element of an operand's rows lies; along a row they are neighbours.
using HeadPlace =
    std::function<std::pair<kir::BufferRef, kir::Dim>(const kir::Dim& row, const kir::Dim& column)>;

// Columns in panels of `vectors` vectors of `lanes`, each of `pairs` steps of k.
struct PairPanels {
  kir::BufferRef buffer;
  kir::Dim pairs;
  int vectors = 1, lanes = 1;
  kir::Dim at(const kir::Dim& panel, const kir::Dim& pair, const kir::Dim& vector) const {
    return ((panel * pairs + pair) * vectors + vector) * (lanes * kPair);
  }
};

// How many elements a copied row of `width` has: whole vectors of pairs.
int64_t whole_row(int64_t width, int lanes);

// Copies rows of `width` elements, row r of `count` to element `to_row(r)` of `to`: whole_row() of
// them each, zeros behind the last. `from_row` gives the operand's row. `var` names loops.
kir::StmtRef copy_rows(const HeadPlace& from,
                       const std::function<kir::Dim(const kir::Dim&)>& from_row, int64_t width,
                       const kir::Dim& count, const kir::BufferRef& to,
                       const std::function<kir::Dim(const kir::Dim&)>& to_row, int lanes,
                       const std::string& var);

// The buffer that pack_keys() turns blocks in.
kir::BufferRef turning_square(int lanes);
// Packs `m` keys of `width` elements, which are columns, into `panels` panels; k runs along a key,
// with zeros up to `to.pairs`, a constant. Columns that are no keys are zeros.
kir::StmtRef pack_keys(const HeadPlace& from, int64_t width, const kir::Dim& m,
                       const kir::Dim& panels, const PairPanels& to, const kir::BufferRef& square);

// Packs `m` values of `width` elements; k runs over the values, with zeros up to `to.pairs`.
// Columns behind the last, up to whole vectors, are zeros; their number decides the panels.
kir::StmtRef pack_values(const HeadPlace& from, int64_t width, const kir::Dim& m,
                         const PairPanels& to);

}  // namespace nimble::kernels
