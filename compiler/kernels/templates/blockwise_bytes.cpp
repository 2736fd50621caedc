// Products with rows that are rounded to bytes, block by block: see blockwise.cpp.
#include <algorithm>

#include "compiler/kernels/templates/blockwise_product.h"
#include "compiler/kernels/templates/knobs.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
using kir::BinaryOp;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;

class ByteLowering final : public BlockwiseLowering {
 public:
  ByteLowering(const Workload& w, const BlockwiseProduct& p, const Config& c, int residue)
      : BlockwiseLowering(w, p, c, residue) {
    const int64_t rows = block_rows();
    int most = rows_ * vectors_;
    for (int r = 1; r <= rows_; ++r) most = std::max(most, r * vectors_ * parts(r));
    accumulators_ = kb::buffer("acc", Scope::kRegister, DType::kI32, most, lanes_);
    totals_ = kb::buffer("totals", Scope::kRegister, DType::kF32, rows_ * vectors_, lanes_);
    extreme_ = kb::buffer("extreme", Scope::kRegister, DType::kF32, 1, lanes_);
    poison_ = kb::buffer("poison", Scope::kRegister, DType::kF32, 1, lanes_);
    count_ = kb::buffer("count", Scope::kRegister, DType::kI32, 1, lanes_);
    sums_ = thread_scratch("sums", DType::kF32, rows_ * width_);
    rounded_ = thread_scratch("rounded", DType::kI8, rows * padded());
    row_scales_ = thread_scratch("row_scales", DType::kF32, rows * p_.form.blocks());
    row_sums_ = thread_scratch("row_sums", DType::kI32, rows * p_.form.blocks());
  }

  kir::Function run(const std::string& name) const {
    std::vector<StmtRef> body = tiles_.prologue();
    body.push_back(tiled());
    return make_function(w_, p_.frame, name, {sums_, rounded_, row_scales_, row_sums_},
                         {accumulators_, totals_, extreme_, poison_, count_},
                         kb::seq(std::move(body)));
  }

 private:
  // Words of the last block where it is not whole.
  int64_t rest_words() const { return p_.form.words() - whole_blocks() * words_of_block_; }

  StmtRef panel() const override {
    return tiles_.for_each(
        RowTiles::first_own(), RowTiles::own_count(),
        [&](const RowTiles::Tile& t) { return tile(t); },
        [&](const RowTiles::Tile& t) { return store_tile(t); });
  }

  // Rows that a fragment takes at a time, and how many times it does of a word.
  static constexpr int kGroup = 4;
  int groups() const { return static_cast<int>(p_.form.per_word() / kGroup); }
  // Over how many sums each element of so many rows is spread: few rows wait for the sum before.
  int parts(int rows) const { return rows * vectors_ < kBusySums ? groups() : 1; }

  // From one rounded row to the next: its words, up to whole vectors, which divide a block. A block
  // may be far longer than k.
  int64_t padded() const {
    return std::min(p_.form.blocks() * p_.form.block, (k() + 63) / 64 * 64);
  }

  // Rounds all rows of a block of tiles, whichever are the thread's of one panel or another.
  std::vector<StmtRef> prepare() const override {
    const Dim b = Dim::symbol("x_b");
    std::vector<StmtRef> row;
    if (whole_blocks() > 0)
      row.push_back(kb::loop(LoopKind::kSerial, "x_b", 0, whole_blocks(),
                             round_block(b, p_.form.block, "x_")));
    if (const int64_t rest = k() % p_.form.block; rest > 0)
      row.push_back(round_block(whole_blocks(), rest, "y_"));
    return {kb::loop(LoopKind::kSerial, "x_r", 0, tiles_.block_rows(), kb::seq(std::move(row)))};
  }

  // `count` elements of a row, and zeros up to a whole word.
  StmtRef round_block(const Dim& block, int64_t count, const std::string& prefix) const {
    const Dim row = Dim::symbol("x_r");
    const Dim from = (RowTiles::block_row() + row) * k() + block * p_.form.block;
    const Dim to = row * padded() + block * p_.form.block;
    const Dim of_block = row * p_.form.blocks() + block;
    const int64_t per_word = p_.form.per_word();
    const int64_t stored = (count + per_word - 1) / per_word * per_word;
    // Vectors that are whole, then those that are not.
    const auto each = [&](const std::string& var,
                          const std::function<StmtRef(const Dim& at, ValueRef x)>& body) {
      std::vector<StmtRef> all;
      const Dim at = Dim::symbol(var);
      if (count >= lanes_)
        all.push_back(kb::loop(LoopKind::kSerial, var, 0, count / lanes_ * lanes_,
                               body(at, kb::load(p_.lhs, from + at, lanes_)), lanes_));
      for (int64_t rest = count / lanes_ * lanes_; rest < stored; rest += lanes_)
        all.push_back(body(rest, rest < count
                                     ? kb::load_masked(p_.lhs, from + rest, lanes_, count - rest)
                                     : kb::number(DType::kF32, 0, lanes_)));
      return kb::seq(std::move(all));
    };
    std::vector<StmtRef> all = {
        kb::set_reg(extreme_, 0, kb::number(DType::kF32, 0, lanes_)),
        kb::set_reg(poison_, 0, kb::number(DType::kF32, 0, lanes_)),
        kb::set_reg(count_, 0, kb::integer(DType::kI32, 0, lanes_)),
        each(prefix + "i",
             [&](const Dim&, const ValueRef& x) {
               // The maximum passes NaNs over; x times zero is one for whatever is not finite.
               return kb::seq(
                   {kb::set_reg(extreme_, 0,
                                kb::max(kb::unary(kir::UnaryOp::kAbs, x), kb::reg(extreme_, 0))),
                    kb::set_reg(
                        poison_, 0,
                        kb::fma(x, kb::number(DType::kF32, 0, lanes_), kb::reg(poison_, 0)))});
             }),
    };
    const std::string scale = prefix + "scale";
    all.push_back(kb::let(scale, kb::add(kb::div(kb::reduce(BinaryOp::kMax, kb::reg(extreme_, 0)),
                                                 kb::number(DType::kF32, 127)),
                                         kb::reduce(BinaryOp::kAdd, kb::reg(poison_, 0)))));
    const ValueRef by = kb::local(scale, DType::kF32, 1);
    all.push_back(kb::store(row_scales_, of_block, by));
    all.push_back(each(prefix + "j", [&](const Dim& at, const ValueRef& x) {
      // A scale of zero makes NaNs, which are bytes of zero.
      const ValueRef byte = kb::cast(
          DType::kI8, kb::unary(kir::UnaryOp::kRound, kb::div(x, kb::broadcast(by, lanes_))));
      return kb::seq(
          {kb::store(rounded_, to + at, byte),
           kb::set_reg(count_, 0, kb::add(kb::reg(count_, 0), kb::cast(DType::kI32, byte)))});
    }));
    all.push_back(kb::store(row_sums_, of_block, kb::reduce(BinaryOp::kAdd, kb::reg(count_, 0))));
    return kb::seq(std::move(all));
  }

  StmtRef tile(const RowTiles::Tile& t) const {
    const Dim z = Dim::symbol("i_z"), b = Dim::symbol("i_b");
    std::vector<StmtRef> all = {
        kb::loop(LoopKind::kUnroll, "i_z", 0, t.rows * vectors_,
                 kb::set_reg(totals_, z, kb::number(DType::kF32, 0, lanes_)))};
    if (whole_blocks() > 0)
      all.push_back(kb::loop(LoopKind::kSerial, "i_b", 0, whole_blocks(),
                             block_product(t, b, words_of_block_, "f_")));
    if (rest_words() > 0) all.push_back(block_product(t, whole_blocks(), rest_words(), "g_"));
    all.push_back(keep_tile(t, totals_));
    return kb::seq(std::move(all));
  }

  // The row of the rounded ones that is row r of a tile.
  Dim rounded_row(const RowTiles::Tile& t, int r) const {
    return tiles_.row_of(t, r) - RowTiles::block_row();
  }

  StmtRef block_product(const RowTiles::Tile& t, const Dim& block, int64_t words,
                        const std::string& prefix) const {
    const Dim z = Dim::symbol(prefix + "z");
    const int sums = t.rows * vectors_;
    std::vector<StmtRef> all = {
        kb::loop(LoopKind::kUnroll, prefix + "z", 0, parts(t.rows) * sums,
                 kb::set_reg(accumulators_, z, kb::integer(DType::kI32, 0, lanes_))),
        each_word(prefix, block * words_of_block_, words, words_of_body(words),
                  [&](const Dim& word) { return word_product(t, word, prefix); })};
    // x<r>: the scale of the row's block; c<r>: its sum, times the zero that all columns have.
    for (int r = 0; r < t.rows; ++r) {
      const Dim of_block = rounded_row(t, r) * p_.form.blocks() + block;
      all.push_back(kb::let(prefix + numbered("x", r),
                            kb::broadcast(kb::load(row_scales_, of_block), lanes_)));
      ValueRef sum = kb::load(row_sums_, of_block);
      if (!p_.zeros) sum = kb::mul(std::move(sum), kb::integer(DType::kI32, p_.form.middle()));
      all.push_back(kb::let(prefix + numbered("c", r), kb::broadcast(std::move(sum), lanes_)));
    }
    for (int v = 0; v < vectors_; ++v) {
      const std::string scale = prefix + numbered("s", v), zero = prefix + numbered("z", v);
      all.push_back(kb::let(scale, kb::load(p_.scales, scale_at(block, v), lanes_)));
      if (p_.zeros)
        all.push_back(
            kb::let(zero, kb::cast(DType::kI32, kb::load(p_.zeros, scale_at(block, v), lanes_))));
      for (int r = 0; r < t.rows; ++r) {
        const int element = r * vectors_ + v;
        ValueRef sum = kb::reg(accumulators_, element);
        for (int part = 1; part < parts(t.rows); ++part)
          sum = kb::add(std::move(sum), kb::reg(accumulators_, part * sums + element));
        ValueRef excess = kb::local(prefix + numbered("c", r), DType::kI32, lanes_);
        if (p_.zeros) excess = kb::mul(kb::local(zero, DType::kI32, lanes_), std::move(excess));
        sum = kb::cast(DType::kF32, kb::sub(std::move(sum), std::move(excess)));
        all.push_back(kb::set_reg(
            totals_, element,
            kb::fma(
                kb::mul(std::move(sum), kb::local(prefix + numbered("x", r), DType::kF32, lanes_)),
                kb::local(scale, DType::kF32, lanes_), kb::reg(totals_, element))));
      }
    }
    return kb::seq(std::move(all));
  }

  StmtRef word_product(const RowTiles::Tile& t, const Dim& word, const std::string& prefix) const {
    const int bytes = kGroup * lanes_, sums = t.rows * vectors_;
    std::vector<StmtRef> all;
    // q<v>_<group>: four rows of each column as bytes.
    for (int v = 0; v < vectors_; ++v) {
      const std::string name = prefix + numbered("q", v);
      all.push_back(kb::let(name, word_bytes(word, v)));
      const ValueRef whole = kb::local(name, DType::kU8, bytes);
      if (groups() == 1) continue;
      const ValueRef mask = kb::integer(DType::kU8, 15, bytes);
      const ValueRef upper =
          kb::bitcast(DType::kU8, kb::binary(BinaryOp::kShr, kb::bitcast(DType::kU32, whole),
                                             kb::integer(DType::kU32, 4, lanes_)));
      all.push_back(kb::let(name + "_0", kb::binary(BinaryOp::kAnd, whole, mask)));
      all.push_back(kb::let(name + "_1", kb::binary(BinaryOp::kAnd, upper, mask)));
    }
    for (int g = 0; g < groups(); ++g)
      for (int r = 0; r < t.rows; ++r) {
        const std::string x = prefix + numbered("a", r) + numbered("_", g);
        const Dim at = rounded_row(t, r) * padded() + word * p_.form.per_word() + g * kGroup;
        all.push_back(kb::let(x, kb::broadcast(kb::load(rounded_, at, kGroup), bytes)));
        for (int v = 0; v < vectors_; ++v) {
          const std::string q = prefix + numbered("q", v) + (groups() == 1 ? "" : numbered("_", g));
          const int element = g % parts(t.rows) * sums + r * vectors_ + v;
          all.push_back(kb::set_reg(
              accumulators_, element,
              kb::dot(kir::Fragment::kU8S8Quads, kb::local(q, DType::kU8, bytes),
                      kb::local(x, DType::kI8, bytes), kb::reg(accumulators_, element))));
        }
      }
    return kb::seq(std::move(all));
  }

  BufferRef accumulators_, totals_, extreme_, poison_, count_;  // registers
  BufferRef rounded_, row_scales_, row_sums_;
};

}  // namespace

kir::Function lower_blockwise_bytes(const Workload& w, const BlockwiseProduct& p, const Config& c,
                                    int residue, const std::string& name) {
  return ByteLowering(w, p, c, residue).run(name);
}

}  // namespace nimble::kernels
