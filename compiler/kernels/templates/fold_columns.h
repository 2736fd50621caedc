// Plain reductions whose lanes are neighbouring results ("across", see reduce.cpp).
//
// An item takes a block of columns, several neighbouring vectors at a time: rows of an image with
// its channels last are then read in whole cache lines, and so many accumulators hide the latency
// of additions.
//
// Threads share the blocks. Where there are few of these and much to fold (a whole image with few
// channels becomes one pixel), each fold is cut into parts that threads share; behind a barrier one
// of them puts a block's parts together. Whether it is cut depends on the extents alone, so results
// do not depend on the number of threads.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/workload.h"

namespace nimble::kernels {

// By what a reduction folds, and whether one NaN makes its result NaN; the machine's maximum and
// minimum forget it.
struct Fold {
  kir::BinaryOp op = kir::BinaryOp::kAdd;
  bool keep_nan = false;

  // What it begins with: the neutral element.
  kir::ValueRef start(DType t, int lanes) const;
  // `accumulated` with `v`, which may be named twice.
  kir::ValueRef combine(const kir::ValueRef& accumulated, const kir::ValueRef& v) const;
};

struct ColumnFold {
  using Dims = std::vector<kir::Dim>;
  using Statements = std::vector<kir::StmtRef>;
  using Valid = std::optional<kir::Dim>;  // lanes that exist, if not all

  Fold fold;
  Dims dims;                  // of the operand, at least two lanes' worth along the last axis
  std::vector<bool> reduced;  // by axis; the last is not
  DType type{};
  int lanes = 1, unroll = 1;  // accumulators: at least one for each vector of a block
  bool may_cut = true;        // nothing in a share checks indices, which barriers forbid
  const ir::DimContext* facts = nullptr;

  // A vector of the operand at some coordinates, and what becomes of a vector of results at those
  // (0 along reduced axes).
  std::function<kir::ValueRef(const Dims& at, const Valid&, Statements& out)> element;
  std::function<void(const kir::ValueRef& total, const Dims& at, const Valid&, Statements& out)>
      finish;

  // What lower() makes needs these buffers.
  std::vector<kir::BufferRef> scratch, registers;

  kir::StmtRef lower();

 private:
  struct Part {  // the steps along one reduced axis that an item folds
    size_t axis;
    kir::Dim begin, extent;
  };
  struct Block {
    Dims at;     // of its first column
    Valid left;  // columns from there on, if fewer than the block has room for
    int vectors;
  };
  using BlockBody = std::function<Statements(const Block&)>;

  int64_t width() const { return int64_t{vectors_} * lanes; }
  kir::StmtRef whole(const Dims& items, const kir::Dim& count);
  kir::StmtRef cut(const Dims& items, const kir::Dim& count);
  kir::StmtRef block(Dims at, const BlockBody& body) const;
  kir::BufferRef accumulate(const Block& b, const std::optional<Part>& part, Statements& out);
  void finish_all(const Block& b, const kir::BufferRef& sums, Statements& out);
  void each_vector(
      const Block& b,
      const std::function<void(int v, const Dims& at, const Valid& valid)>& body) const;
  kir::BufferRef accumulators(int count);
  kir::ValueRef named(const char* what, kir::ValueRef v, Statements& out);

  int vectors_ = 1;  // of a block
  int next_ = 0;
};

}  // namespace nimble::kernels
