// Rows that a product rounds to whole numbers of a byte, group by group of k, before it multiplies
// them (compiler/ir/groupwise.h): what the templates that serve such products share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/groupwise.h"
#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"

namespace nimble::kernels {

struct RoundedRows {
  ir::Groupwise form;
  kir::Dim rows;
  kir::BufferRef x, scales, sums;  // operands
  // Scratch of all threads: the rows in bytes, or in i16 (fragment_of), and of each group of a
  // row its step and its least element. A group's rows stand one behind the other, and its steps:
  // a product goes through all rows of a group before the next, and what is read in its order is
  // fetched ahead; rows as they come are powers of two apart, or nearly, and share a few sets of
  // L1.
  kir::BufferRef values, steps, least;
  kir::BufferRef extremes;  // registers of a group: what is largest, what is least, any NaN
  int lanes = 1;            // that are rounded at a time

  // What multiplies the rows on a target with weights as they lie: bytes with groups of four, or
  // i16 with pairs, which the weights become as they are loaded. Nothing if the layout has other
  // groups. A fragment with a bound takes bytes that both do not fill (Groupwise::steps, most).
  static std::optional<kir::Fragment> fragment_of(const TargetInfo& t, const ir::Groupwise& form);
  // For the operands of so many rows, on vectors of the target.
  static RoundedRows of(const ir::Groupwise& form, const kir::Dim& rows, kir::BufferRef x,
                        kir::BufferRef scales, kir::BufferRef sums, const TargetInfo& t);
  // Where a group of a row stands in `values`; the distance of two rows is form.group.
  kir::Dim place(const kir::Dim& row, const kir::Dim& group) const {
    return item(row, group) * form.group;
  }
  std::vector<kir::BufferRef> scratch() const { return {values, steps, least}; }

  // Rounds all rows, each thread a share of their groups, and waits for the others. Nothing else of
  // the kernel may check an index: a failed check leaves it.
  std::vector<kir::StmtRef> round() const;

  // Statements that name the scales of group `group` of some vectors of columns from `column` on,
  // and what that group of a row has; the prefixes keep names apart.
  void name_columns(const kir::Dim& group, const kir::Dim& column, int vectors, int width,
                    const std::string& prefix, std::vector<kir::StmtRef>& out) const;
  void name_row(const kir::Dim& group, const kir::Dim& row, int width, const std::string& prefix,
                std::vector<kir::StmtRef>& out) const;
  // `total` and what a group adds to it, whose sums of products in vector `v` are `sum` (i32), by
  // the names of these prefixes.
  static kir::ValueRef added(kir::ValueRef sum, kir::ValueRef total, int v, int width,
                             const std::string& columns, const std::string& row);

 private:
  // Where a group of a row stands in `steps` and `least`.
  kir::Dim item(const kir::Dim& row, const kir::Dim& group) const { return group * rows + row; }
};

}  // namespace nimble::kernels
