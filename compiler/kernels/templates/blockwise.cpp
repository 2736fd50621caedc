// The template "blockwise": a matrix with any number of rows times packed constant weights of 4 or
// 8 bits with a scale for each block of rows (blockwise_matmul), with the element-wise operators
// that follow fused behind it.
//
// Few rows are bound by memory, whose traffic these weights make an eighth or a quarter of; then
// each weight must be unpacked with as few instructions as it takes to read it. A word of 32 bits
// holds 8 (or 4) rows of a column. A number q of it that stands at bit p becomes
//
//   bits of f32: exponent 23 - p, mantissa q << p        = 2^(23-p) + q
//
// by one mask and one or (a single instruction with AVX-512), and less 2^(23-p) + zero it is
// q - zero, exactly: an instruction fewer than shifting, masking and converting, and the zero point
// costs nothing. Bits up to 19 can be read so; the upper ones after one shift by 16 of the word.
// The sums of a block stay in registers and are multiplied by the block's scale once.
//
// Many rows are bound by arithmetic: each thread unpacks a piece of a panel, scale and all, into
// scratch of its own, once for a block of row tiles, and multiplies as the template "dense" does
// (tile.h, row_tiles.h), whose blocks, threads and tails are explained there. A panel that two
// threads share is unpacked by both.
//
// Where the product rounds its activations (activations = i8), a row's blocks become bytes with a
// scale and a sum each, in scratch, by each thread for itself: that is little beside the columns.
// Four rows of a word are then four bytes after one mask, and a fragment (Fragments.def) adds up
// their products exactly:
//
//   y = Σ over blocks  scale of x * scale of w * (Σ q x - zero Σ x)
#include "compiler/kernels/templates/blockwise.h"

#include <algorithm>

#include "compiler/kernels/templates/blockwise_product.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BinaryOp;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;

std::string blockwise_layout(const TargetInfo& t, int64_t bits, int64_t n) {
  const auto columns = ir::parse_layout(dense_layout(t, DType::kF32, n));
  return ir::Layout{ir::Layout::Kind::kPanel, columns->width, 32 / bits}.str();
}

namespace {

constexpr int kMantissa = 23;  // bits of f32's
// Rows whose weights are unpacked in registers, at most.
constexpr int64_t kMostFew = 8;
constexpr int64_t kMostWords = 64;  // in a straight stretch

class FloatLowering final : public BlockwiseLowering {
 public:
  FloatLowering(const Workload& w, const BlockwiseProduct& p, const Config& c, int residue)
      : BlockwiseLowering(w, p, c, residue),
        few_(static_cast<int>(knob_int(c, "few"))),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        ahead_(knob_int(c, "ahead")),
        pieces_(k_blocks(p.form.k, knob_int(c, "k_block"), p.form.block)) {
    int most = rows_ * vectors_;
    for (int r = 1; r <= few_; ++r) most = std::max(most, r * vectors_ * chains(r));
    accumulators_ = kb::buffer("acc", Scope::kRegister, DType::kF32, most, lanes_);
    totals_ =
        kb::buffer("totals", Scope::kRegister, DType::kF32, std::max(few_, 1) * vectors_, lanes_);
    panel_ = kb::buffer("panel", Scope::kRegister, DType::kF32, vectors_, lanes_);
    all_wait_ = pieces_.count > 1;
    sums_ = thread_scratch("sums", DType::kF32, (all_wait_ ? block_rows() : rows_) * width_);
    // A block may be far longer than k.
    const int64_t unpacked =
        std::min(blocks_of_piece() * p.form.block, p.form.words() * p.form.per_word());
    unpacked_ = thread_scratch("unpacked", DType::kF32, unpacked * width_);
  }

  kir::Function run(const std::string& name) const {
    std::vector<StmtRef> body = tiles_.prologue();
    const auto m = p_.m.as_constant();
    if (few_ == 0 || (m && *m > few_))
      body.push_back(tiled());
    else if (m)
      body.push_back(*m == 0 ? kb::seq({}) : few_rows(static_cast<int>(*m)));
    else
      body.push_back(kb::if_then(kb::le(p_.m, few_), any_few_rows(), tiled()));
    return make_function(w_, p_.frame, name, {sums_, unpacked_}, {accumulators_, totals_, panel_},
                         kb::seq(std::move(body)));
  }

 private:
  std::vector<StmtRef> prepare() const override { return {}; }

  // ---- numbers as f32

  // Where number i of a word stands: its bit, of the word or of its upper half.
  struct Bit {
    bool upper;
    int at;
  };
  Bit bit_of(int i) const {
    const int bits = static_cast<int>(p_.form.bits);
    const int at = 8 * (i % 4) + bits * (i / 4);
    return at + bits <= kMantissa ? Bit{false, at} : Bit{true, at - 16};
  }
  static double exponent(int bit) { return static_cast<double>(int64_t{1} << (kMantissa - bit)); }

  // Names what the numbers of a block take: z<v>_<bit> are 2^(23-bit) + zero by column. Without
  // zeros that is a number.
  void let_zeros(const Dim& block, const std::string& prefix, std::vector<StmtRef>& out) const {
    if (!p_.zeros) return;
    for (int v = 0; v < vectors_; ++v) {
      const std::string zero = prefix + numbered("z", v);
      out.push_back(
          kb::let(zero, kb::cast(DType::kF32, kb::load(p_.zeros, scale_at(block, v), lanes_))));
      std::vector<bool> seen(kMantissa, false);
      for (int i = 0; i < p_.form.per_word(); ++i) {
        const int bit = bit_of(i).at;
        if (seen[static_cast<size_t>(bit)]) continue;
        seen[static_cast<size_t>(bit)] = true;
        out.push_back(kb::let(zero + numbered("_", bit),
                              kb::add(kb::local(zero, DType::kF32, lanes_),
                                      kb::number(DType::kF32, exponent(bit), lanes_))));
      }
    }
  }

  // Names the words of all vectors and their upper halves: q<v>, h<v>.
  void let_words(const Dim& word, const std::string& prefix, std::vector<StmtRef>& out) const {
    for (int v = 0; v < vectors_; ++v) {
      const std::string whole = prefix + numbered("q", v);
      out.push_back(kb::let(whole, kb::bitcast(DType::kU32, word_bytes(word, v))));
      out.push_back(kb::let(prefix + numbered("h", v),
                            kb::binary(BinaryOp::kShr, kb::local(whole, DType::kU32, lanes_),
                                       kb::integer(DType::kU32, 16, lanes_))));
    }
  }

  // Number i of the words of vector v, less its zero.
  ValueRef number(int i, int v, const std::string& prefix, const std::string& of_block) const {
    const Bit bit = bit_of(i);
    const int64_t mask = ((int64_t{1} << p_.form.bits) - 1) << bit.at;
    const int64_t magic = int64_t{127 + kMantissa - bit.at} << kMantissa;
    ValueRef bits = kb::binary(
        BinaryOp::kAnd, kb::local(prefix + numbered(bit.upper ? "h" : "q", v), DType::kU32, lanes_),
        kb::integer(DType::kU32, mask, lanes_));
    bits = kb::binary(BinaryOp::kOr, std::move(bits), kb::integer(DType::kU32, magic, lanes_));
    ValueRef zero =
        p_.zeros
            ? kb::local(of_block + numbered("z", v) + numbered("_", bit.at), DType::kF32, lanes_)
            : kb::number(DType::kF32, exponent(bit.at) + static_cast<double>(p_.form.middle()),
                         lanes_);
    return kb::sub(kb::bitcast(DType::kF32, std::move(bits)), std::move(zero));
  }

  // ---- few rows: weights are unpacked in registers

  // Over how many sums each element of so many rows is spread: a multiply-add waits for the one
  // before it.
  int chains(int rows) const {
    int n = 1;
    while (n * rows * vectors_ < kBusySums && n < 4) n *= 2;
    return n;
  }

  StmtRef any_few_rows() const {
    StmtRef all;
    for (int r = few_; r >= 1; --r)
      all = all ? kb::if_then(kb::eq(p_.m, r), few_rows(r), std::move(all))
                : kb::if_then(kb::eq(p_.m, r), few_rows(r));
    return all;
  }

  StmtRef few_rows(int rows) const {
    const Dim z = Dim::symbol("z"), b = Dim::symbol("b");
    std::vector<StmtRef> body = {
        kb::loop(LoopKind::kUnroll, "z", 0, rows * vectors_,
                 kb::set_reg(totals_, z, kb::number(DType::kF32, 0, lanes_)))};
    if (whole_blocks() > 0)
      body.push_back(kb::loop(LoopKind::kSerial, "b", 0, whole_blocks(),
                              block_product(rows, b, words_of_block_, 0, "f_")));
    if (const int64_t rest = k() % p_.form.block; rest > 0)
      body.push_back(block_product(rows, whole_blocks(), rest / p_.form.per_word(),
                                   static_cast<int>(rest % p_.form.per_word()), "g_"));
    for (int r = 0; r < rows; ++r)
      body.push_back(store_row(
          r, [&](int v) { return kb::reg(totals_, r * vectors_ + v); }, numbered("s", r) + "_"));
    return kb::loop(LoopKind::kThread, "p", 0, p_.words.panels(), kb::seq(std::move(body)));
  }

  // Adds the product of a block of `words` words and the first `rest` numbers of another one to the
  // totals.
  StmtRef block_product(int rows, const Dim& block, int64_t words, int rest,
                        const std::string& prefix) const {
    const int sums = rows * vectors_, parts = chains(rows);
    const Dim z = Dim::symbol(prefix + "z");
    std::vector<StmtRef> all = {
        kb::loop(LoopKind::kUnroll, prefix + "z", 0, parts * sums,
                 kb::set_reg(accumulators_, z, kb::number(DType::kF32, 0, lanes_)))};
    let_zeros(block, prefix, all);
    const Dim first = block * words_of_block_;
    const auto whole_word = [&](const Dim& word) {
      return word_product(rows, word, static_cast<int>(p_.form.per_word()), prefix);
    };
    if (words > 0) all.push_back(each_word(prefix, first, words, words_of_body(words), whole_word));
    if (rest > 0)  // a loop of its own, so that its names are
      all.push_back(kb::loop(LoopKind::kUnroll, prefix + "r", 0, 1,
                             word_product(rows, first + words, rest, prefix)));
    for (int v = 0; v < vectors_; ++v) {
      const std::string scale = prefix + numbered("s", v);
      all.push_back(kb::let(scale, kb::load(p_.scales, scale_at(block, v), lanes_)));
      for (int r = 0; r < rows; ++r) {
        const int element = r * vectors_ + v;
        ValueRef sum = kb::reg(accumulators_, element);
        for (int part = 1; part < parts; ++part)
          sum = kb::add(std::move(sum), kb::reg(accumulators_, part * sums + element));
        all.push_back(kb::set_reg(totals_, element,
                                  kb::fma(std::move(sum), kb::local(scale, DType::kF32, lanes_),
                                          kb::reg(totals_, element))));
      }
    }
    return kb::seq(std::move(all));
  }

  StmtRef word_product(int rows, const Dim& word, int numbers, const std::string& prefix) const {
    const int parts = chains(rows);
    std::vector<StmtRef> all;
    if (ahead_ > 0)
      for (int v = 0; v < vectors_; ++v)
        all.push_back(kb::prefetch(
            p_.weights, (p_.words.row_of_panel(Dim::symbol("p"), word) + v * lanes_) * 4 + ahead_,
            2));
    let_words(word, prefix, all);
    for (int i = 0; i < numbers; ++i) {
      const std::string of = "_" + std::to_string(i);
      for (int r = 0; r < rows; ++r)
        all.push_back(kb::let(
            prefix + numbered("x", r) + of,
            kb::broadcast(kb::load(p_.lhs, r * k() + word * p_.form.per_word() + i), lanes_)));
      for (int v = 0; v < vectors_; ++v) {
        const std::string w = prefix + numbered("w", v) + of;
        all.push_back(kb::let(w, number(i, v, prefix, prefix)));
        for (int r = 0; r < rows; ++r) {
          const int element = ((i % parts) * rows + r) * vectors_ + v;
          all.push_back(kb::set_reg(
              accumulators_, element,
              kb::fma(kb::local(prefix + numbered("x", r) + of, DType::kF32, lanes_),
                      kb::local(w, DType::kF32, lanes_), kb::reg(accumulators_, element))));
        }
      }
    }
    return kb::seq(std::move(all));
  }

  // ---- many rows: pieces of a panel are unpacked

  int64_t blocks_of_piece() const { return (pieces_.size + p_.form.block - 1) / p_.form.block; }

  StmtRef panel() const override {
    const Dim piece = Dim::symbol("kb");
    const bool even = pieces_.size * pieces_.count == k();
    const Dim rows = even ? Dim(pieces_.size) : ir::min(k() - piece * pieces_.size, pieces_.size);
    StmtRef all_tiles = tiles_.for_each(
        RowTiles::first_own(), RowTiles::own_count(),
        [&](const RowTiles::Tile& t) { return tile(t, piece * pieces_.size, rows); },
        [&](const RowTiles::Tile& t) {
          return pieces_.count == 1 ? store_tile(t)
                                    : kb::if_then(kb::eq(piece, pieces_.count - 1), store_tile(t));
        });
    return kb::loop(LoopKind::kSerial, "kb", 0, pieces_.count,
                    kb::seq({unpack(piece), std::move(all_tiles)}));
  }

  // The weights of a piece as f32, rows of `width_` columns.
  StmtRef unpack(const Dim& piece) const {
    const Dim b = Dim::symbol("ub"), all_blocks = p_.form.blocks();
    const Dim block = piece * blocks_of_piece() + b;
    const Dim blocks = pieces_.count == 1
                           ? all_blocks
                           : ir::min(all_blocks - piece * blocks_of_piece(), blocks_of_piece());
    std::vector<StmtRef> body;
    for (int v = 0; v < vectors_; ++v)
      body.push_back(kb::let(numbered("u_s", v), kb::load(p_.scales, scale_at(block, v), lanes_)));
    let_zeros(block, "u_", body);
    const Dim first = block * words_of_block_;
    const bool even = p_.form.words() % words_of_block_ == 0;
    const Dim words =
        even ? Dim(words_of_block_) : ir::min(p_.form.words() - first, words_of_block_);
    const int64_t of_body = even ? words_of_body(words_of_block_) : 1;
    body.push_back(each_word("u_", first, words, of_body, [&](const Dim& word) {
      std::vector<StmtRef> all;
      let_words(word, "u_", all);
      const Dim row = (word - piece * (blocks_of_piece() * words_of_block_)) * p_.form.per_word();
      for (int i = 0; i < p_.form.per_word(); ++i)
        for (int v = 0; v < vectors_; ++v)
          all.push_back(kb::store(unpacked_, (row + i) * width_ + v * lanes_,
                                  kb::mul(number(i, v, "u_", "u_"),
                                          kb::local(numbered("u_s", v), DType::kF32, lanes_))));
      return kb::seq(std::move(all));
    }));
    return kb::loop(LoopKind::kSerial, "ub", 0, blocks, kb::seq(std::move(body)));
  }

  StmtRef tile(const RowTiles::Tile& t, const Dim& first, const Dim& rows) const {
    RegisterTile product;
    product.rows = t.rows;
    product.vectors = vectors_;
    product.lanes = lanes_;
    product.unroll = unroll_;
    product.accumulators = accumulators_;
    product.panel = panel_;
    product.lhs = p_.lhs;
    product.rhs = unpacked_;
    product.lhs_index = [&](const Dim& r, const Dim& q) {
      return tiles_.row_of(t, r) * k() + first + q;
    };
    product.rhs_index = [&](const Dim& v, const Dim& q) { return q * width_ + v * lanes_; };
    product.k_extent = rows;
    std::vector<StmtRef> all = {tile_zero(product, "i_")};
    if (pieces_.count > 1)
      all.push_back(kb::if_then(
          kb::lt(0, Dim::symbol("kb")),
          resume_sums(accumulators_, t.rows, vectors_, sums_,
                      [&](const Dim& r, const Dim& v) { return sums_at(t, r, v * lanes_); })));
    all.push_back(tile_product(product, "i_"));
    all.push_back(keep_tile(t, accumulators_));
    return kb::seq(std::move(all));
  }

  int few_;         // up to so many rows are computed without tiles
  int unroll_;      // steps of k in a tile's loop body
  int64_t ahead_;   // bytes of weights to prefetch ahead
  KBlocks pieces_;  // of k, each unpacked at once
  BufferRef accumulators_, totals_, panel_, unpacked_;
};

}  // namespace

bool BlockwiseTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return analyse_blockwise(w, t).has_value();
}

std::vector<Knob> BlockwiseTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse_blockwise(w, t);
  NIMBLE_CHECK(p, "workload {} is not for blockwise", w.key);
  std::vector<Knob> all = {product_rows_knob(max_blockwise_rows(*p, t)),
                           int_knob("words", {1, 2, 4}),
                           int_knob("block_rows", {32, 64, 128}),
                           {"split", {"columns", "rows"}},
                           tails_knob(/*residues=*/true)};
  if (p->bytes) return all;
  Knob k_block{"k_block", {}};
  for (int64_t k : {64, 128, 192, 256, 384, 512})
    if (k >= p->form.block && k < p->form.k) k_block.choices.emplace_back(k);
  k_block.choices.emplace_back(int64_t{0});
  all.push_back(std::move(k_block));
  all.push_back(int_knob("unroll", {1, 2, 4, 8}));
  all.push_back(int_knob("few", {0, 1, 2, 3, 4}));
  all.push_back(int_knob("ahead", {0, 1024, 4096}));
  return all;
}

bool BlockwiseTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse_blockwise(w, t);
  if (!p || !well_formed(knobs(w, t), c)) return false;
  const int64_t rows = knob_int(c, "rows");
  if (rows < 1 || rows > max_blockwise_rows(*p, t)) return false;
  if (knob_int(c, "words") < 1 || knob_int(c, "words") > kMostWords) return false;
  if (knob_int(c, "block_rows") < rows || knob_int(c, "block_rows") > 4096) return false;
  if (!has_tails(c, p->m)) return false;
  if (p->bytes) return true;
  const int64_t few = knob_int(c, "few");
  return knob_int(c, "k_block") >= 0 && knob_int(c, "unroll") >= 1 && few >= 0 && few <= kMostFew &&
         few * p->words.vectors * 2 <= t.vector_registers && knob_int(c, "ahead") >= 0 &&
         knob_int(c, "ahead") <= 1 << 20;
}

Config BlockwiseTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse_blockwise(w, t);
  NIMBLE_CHECK(p, "workload {} is not for blockwise", w.key);
  const int64_t vectors = p->words.vectors;
  Config c = {{"words", int64_t{2}},
              {"block_rows", p->bytes ? int64_t{32} : int64_t{128}},
              {"split", p->words.panels() >= 4 ? "columns" : "rows"},
              {"tails", kTailsEven}};
  if (p->bytes) {
    c["rows"] = int64_t{std::min(max_blockwise_rows(*p, t), 4)};
    return c;
  }
  c["rows"] = int64_t{default_tile_rows(t, vectors)};
  // A piece of the unpacked panel takes at most three quarters of L1.
  const int64_t rows_of_piece = t.l1_bytes * 3 / 4 / (p->words.width * 4) / 64 * 64;
  const int64_t fits = std::max<int64_t>({64, rows_of_piece, p->form.block});
  c["k_block"] = p->form.k > 2 * fits ? fits : int64_t{0};
  c["unroll"] = int64_t{4};
  c["few"] = std::clamp<int64_t>((t.vector_registers - 8) / (2 * vectors), 1, 4);
  c["ahead"] = int64_t{0};
  return c;
}

Lowered BlockwiseTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                 const std::string& name) const {
  const auto p = analyse_blockwise(w, t);
  NIMBLE_CHECK(p && valid(w, c, t), "configuration {} of blockwise", to_json(c));
  Lowered out = kernels_of_tails(w, c, p->m, name, [&](int residue, const std::string& one) {
    return p->bytes ? lower_blockwise_bytes(w, *p, c, residue, one)
                    : FloatLowering(w, *p, c, residue).run(one);
  });
  // Few rows are shared by panels alone, as one_kernel counts them, and unpacked in registers.
  const auto rows = p->m.as_constant();
  if (!p->bytes && rows && *rows <= knob_int(c, "few")) return out;
  const bool by_rows = knob_text(c, "split") == "rows";
  const int64_t panels = p->words.panels();
  out.max_threads = most_threads(p->m, knob_int(c, "rows"), by_rows ? 1 : panels);
  // By rows a share unpacks all weights; of bytes it rounds all rows of each block that it has a
  // part of. A panel that lies in two shares is unpacked by both, which is little beside many rows.
  out.divisible = !by_rows && !p->bytes;
  return out;
}

}  // namespace nimble::kernels
