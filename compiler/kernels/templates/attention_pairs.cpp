// Method. A pair fills a word, so keys are turned as blocks of words: `lanes` keys' pieces of as
// many words are copied to a square, row by row, whose columns are then the panel's vectors; code
// generation does that in registers (emit_transpose.cpp). Values are columns as they lie; two rows
// of them are joined lane by lane, the second one in the upper halves of the words.
#include "compiler/kernels/templates/attention_pairs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::Dim;
using kir::LoopKind;
using kir::StmtRef;
using kir::ValueRef;

namespace {

// `lanes` neighbours of a row from `column` on, zeros from `width` on. The first exists.
ValueRef piece_of_row(const HeadPlace& from, const Dim& row, int64_t column, int64_t width,
                      int lanes) {
  const auto [buffer, index] = from(row, column);
  return column + lanes <= width ? kb::load(buffer, index, lanes)
                                 : kb::load_masked(buffer, index, lanes, width - column);
}

// Lane i of each vector of 16-bit elements side by side; without the second, zeros.
ValueRef side_by_side(const ValueRef& first, const ValueRef& second) {
  const auto words = [](const ValueRef& v) {
    return kb::cast(DType::kU32, kb::bitcast(DType::kU16, v));
  };
  ValueRef all = words(first);
  if (second)
    all = kb::binary(
        kir::BinaryOp::kOr, std::move(all),
        kb::binary(kir::BinaryOp::kShl, words(second), kb::integer(DType::kU32, 16, first->lanes)));
  return kb::bitcast(first->dtype, std::move(all));
}

}  // namespace

int64_t whole_row(int64_t width, int lanes) {
  const int64_t step = kPair * lanes;
  return (width + step - 1) / step * step;
}

StmtRef copy_rows(const HeadPlace& from, const std::function<Dim(const Dim&)>& from_row,
                  int64_t width, const Dim& count, const BufferRef& to,
                  const std::function<Dim(const Dim&)>& to_row, int lanes, const std::string& var) {
  const Dim r = Dim::symbol(var);
  const int step = static_cast<int>(kPair) * lanes;
  std::vector<StmtRef> row;
  for (int64_t c = 0; c < width; c += step)
    row.push_back(kb::store(to, to_row(r) + c, piece_of_row(from, from_row(r), c, width, step)));
  return kb::loop(LoopKind::kSerial, var, 0, count, kb::seq(std::move(row)));
}

BufferRef turning_square(int lanes) {
  return kb::buffer("square", kir::Scope::kThread, DType::kU32, int64_t{lanes} * lanes);
}

StmtRef pack_keys(const HeadPlace& from, int64_t width, const Dim& m, const Dim& panels,
                  const PairPanels& to, const BufferRef& square) {
  const int lanes = to.lanes, step = static_cast<int>(kPair) * lanes;
  const int64_t pairs = *to.pairs.as_constant();
  const Dim v = Dim::symbol("kv"), r = Dim::symbol("kr"), i = Dim::symbol("ki");
  const Dim first = v * lanes, there = Dim::symbol("k_there");
  const Dim panel = to.vectors == 1 ? v : ir::floordiv(v, to.vectors);
  const Dim vector = to.vectors == 1 ? Dim(0) : ir::mod(v, to.vectors);
  std::vector<StmtRef> body = {kb::let_index(
      "k_there", kb::index(ir::max(ir::min(m - first, lanes), 0)), ir::SymbolFacts{0, lanes, 1})};
  for (int64_t p = 0; p < pairs; p += lanes) {
    const int64_t columns = std::min<int64_t>(pairs - p, lanes), c = kPair * p;
    NIMBLE_CHECK(c < width, "{} pairs of keys of {} elements", pairs, width);
    body.push_back(kb::loop(
        LoopKind::kSerial, "kr", 0, there,
        kb::store(square, r * lanes,
                  kb::bitcast(DType::kU32, piece_of_row(from, first + r, c, width, step)))));
    body.push_back(kb::loop(LoopKind::kSerial, "kr", there, lanes - there,
                            kb::store(square, r * lanes, kb::integer(DType::kU32, 0, lanes))));
    const ValueRef column = kb::load_strided(square, i, lanes, lanes);
    body.push_back(kb::loop(
        LoopKind::kUnroll, "ki", 0, columns,
        kb::store(to.buffer, to.at(panel, p + i, vector), kb::bitcast(to.buffer->dtype, column))));
  }
  return kb::loop(LoopKind::kSerial, "kv", 0, panels * to.vectors, kb::seq(std::move(body)));
}

StmtRef pack_values(const HeadPlace& from, int64_t width, const Dim& m, const PairPanels& to) {
  const int lanes = to.lanes;
  const Dim g = Dim::symbol("vg");
  // Each vector of columns of step `g`; `rows`: how many of its two values there are.
  const auto step = [&](int rows) {
    std::vector<StmtRef> all;
    for (int64_t c = 0; c < width; c += lanes) {
      const int64_t v = c / lanes;
      const auto value = [&](int row) {
        return piece_of_row(from, g * kPair + row, c, width, lanes);
      };
      all.push_back(kb::store(to.buffer, to.at(v / to.vectors, g, v % to.vectors),
                              rows == 0 ? kb::number(to.buffer->dtype, 0, lanes * kPair)
                                        : side_by_side(value(0), rows == 2 ? value(1) : nullptr)));
    }
    return kb::seq(std::move(all));
  };
  const Dim full = ir::floordiv(m, kPair), some = ir::ceildiv(m, kPair);
  std::vector<StmtRef> all = {kb::loop(LoopKind::kSerial, "vg", 0, full, step(2))};
  if (!(some - full).is_constant(0))
    all.push_back(kb::loop(LoopKind::kSerial, "vg", full, some - full, step(1)));
  if (!(to.pairs - some).is_constant(0))
    all.push_back(kb::loop(LoopKind::kSerial, "vg", some, to.pairs - some, step(0)));
  return kb::seq(std::move(all));
}

}  // namespace nimble::kernels
