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
// costs nothing. Bits up to 19 can be read so; the upper ones after one shift by 16 of the word. The
// sums of a block stay in registers and are multiplied by the block's scale once.
//
// Many rows are bound by arithmetic: each thread unpacks a piece of a panel, scale and all, into
// scratch of its own, once for a block of row tiles, and multiplies as the template "dense" does
// (tile.h), whose blocks, threads and tails are explained there.
//
// Where the product rounds its activations (activations = i8), a row's blocks become bytes with a
// scale and a sum each, in scratch, by each thread for itself: that is little beside the columns.
// Four rows of a word are then four bytes after one mask, and a fragment (Fragments.def) adds up
// their products exactly:
//
//   y = Σ over blocks  scale of x * scale of w * (Σ q x - zero Σ x)
#include "compiler/kernels/templates/blockwise.h"

#include <algorithm>

#include "compiler/ir/blockwise.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/tile.h"
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
// Sums enough to keep the multiply-add units busy, of a tile that waits for its weights anyway.
constexpr int kBusy = 6;
// Rows whose weights are unpacked in registers, at most.
constexpr int64_t kMostFew = 8;

// The problem that a workload states.
struct Product {
  Frame frame;
  ir::Blockwise form;
  BufferRef lhs, weights, scales, zeros;  // zeros: null without
  bool bytes = false;                     // activations are rounded to bytes
  Panels words;                           // the weights; a step is a word of each column
  Panels blocks;                          // scales and zeros; a step is a block
  std::vector<Dim> row_dims;              // the result's axes but the last
  Dim m;                                  // rows: their product
};

std::optional<Product> analyse(const Workload& w, const TargetInfo& t) {
  if (w.anchor != "blockwise_matmul") return {};
  Product p;
  p.frame = make_frame(w);
  if (!has_elementwise_epilogue(w, p.frame)) return {};
  const ir::Expr& call = *p.frame.anchor->value;
  p.form = ir::blockwise_of(call.attrs);
  if (!p.form.layout) return {};
  p.bytes = call.attrs.contains("activations");
  p.lhs = parameter_buffer(w, p.frame, call.args[0]);
  p.weights = parameter_buffer(w, p.frame, call.args[1]);
  p.scales = parameter_buffer(w, p.frame, call.args[2]);
  if (!p.lhs || !p.weights || !p.scales) return {};
  if (call.args.size() > 3) {
    p.zeros = parameter_buffer(w, p.frame, call.args[3]);
    if (!p.zeros || p.zeros->dtype != DType::kU8) return {};
  }
  const ir::Layout columns{ir::Layout::Kind::kPanel, p.form.layout->width};
  const int lanes = lanes_of(t, DType::kF32), most = max_tile_vectors(t);
  const auto words = cut_panels(p.form.words(), p.form.n, columns, lanes, most);
  const auto blocks = cut_panels(p.form.blocks(), p.form.n, columns, lanes, most);
  if (!words || !blocks) return {};
  p.words = *words;
  p.blocks = *blocks;
  const auto& dims = p.frame.anchor->var->type->dims;
  p.row_dims.assign(dims.begin(), dims.end() - 1);
  p.m = 1;
  for (const Dim& d : p.row_dims) p.m = p.m * d;
  return p;
}

// The rows of a tile of bytes: it has a sum in i32 and one in f32 for each element.
int max_byte_rows(const TargetInfo& t, int64_t vectors) {
  return static_cast<int>(std::clamp<int64_t>((t.vector_registers - 6) / (2 * vectors), 1, 8));
}

class BlockwiseLowering {
 public:
  BlockwiseLowering(const Workload& w, const Product& p, const Config& c, int residue)
      : w_(w),
        p_(p),
        vectors_(p.words.vectors),
        lanes_(p.words.lanes),
        width_(p.words.width),
        words_of_block_(p.form.block / p.form.per_word()),
        rows_(static_cast<int>(knob_int(c, "rows"))),
        words_(knob_int(c, "words")),
        split_rows_(knob_text(c, "split") == "rows"),
        block_tiles_(std::max<int64_t>(1, knob_int(c, "block_rows") / rows_)),
        tiles_(p.m, rows_, knob_text(c, "tails"), residue, "m_") {
    if (p_.bytes) {
      make_byte_buffers();
      return;
    }
    few_ = static_cast<int>(knob_int(c, "few"));
    unroll_ = static_cast<int>(knob_int(c, "unroll"));
    ahead_ = knob_int(c, "ahead");
    pieces_ = k_blocks(p.form.k, knob_int(c, "k_block"), p.form.block);
    const int sums = std::max(rows_ * vectors_, few_ * vectors_ * chains(std::max(few_, 1)));
    int most = sums;
    for (int r = 1; r <= few_; ++r) most = std::max(most, r * vectors_ * chains(r));
    accumulators_ = kb::buffer("acc", Scope::kRegister, DType::kF32, most, lanes_);
    totals_ = kb::buffer("totals", Scope::kRegister, DType::kF32,
                         std::max(few_, 1) * vectors_, lanes_);
    panel_ = kb::buffer("panel", Scope::kRegister, DType::kF32, vectors_, lanes_);
    const int64_t waiting = pieces_.count > 1 ? block_tiles_ * rows_ : rows_;
    sums_ = thread_scratch("sums", DType::kF32, waiting * width_);
    unpacked_ =
        thread_scratch("unpacked", DType::kF32, blocks_of_piece() * p.form.block * width_);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> body = tiles_.prologue();
    const auto m = p_.m.as_constant();
    if (few_ == 0 || (m && *m > few_))
      body.push_back(tiled());
    else if (m)
      body.push_back(*m == 0 ? kb::seq({}) : few_rows(static_cast<int>(*m)));
    else
      body.push_back(kb::if_then(kb::le(p_.m, few_), any_few_rows(), tiled()));
    std::vector<BufferRef> scratch = {sums_}, registers = {accumulators_, totals_};
    if (p_.bytes) {
      scratch.insert(scratch.end(), {rounded_, row_scales_, row_sums_});
      registers.insert(registers.end(), {extreme_, poison_, count_});
    } else {
      scratch.push_back(unpacked_);
      registers.push_back(panel_);
    }
    return make_function(w_, p_.frame, name, std::move(scratch), std::move(registers),
                         kb::seq(std::move(body)));
  }

 private:
  // ---- what all ways share

  int64_t k() const { return p_.form.k; }
  int64_t whole_blocks() const { return k() / p_.form.block; }
  // Words of the last block where it is not whole.
  int64_t rest_words() const { return p_.form.words() - whole_blocks() * words_of_block_; }
  static std::string numbered(const std::string& name, int i) { return name + std::to_string(i); }

  // Words of a loop body: the knob, or what divides a block's words.
  int64_t words_of_body(int64_t words) const {
    int64_t n = std::clamp<int64_t>(words_, 1, words);
    while (words % n != 0) --n;
    return n;
  }
  // A loop over `words` words from `first` on.
  StmtRef each_word(const std::string& prefix, const Dim& first, const Dim& words, int64_t of_body,
                    const std::function<StmtRef(const Dim& word)>& body) const {
    const Dim w = Dim::symbol(prefix + "w"), u = Dim::symbol(prefix + "u");
    return kb::loop(
        LoopKind::kSerial, prefix + "w", 0, ir::floordiv(words, of_body),
        kb::loop(LoopKind::kUnroll, prefix + "u", 0, of_body, body(first + w * of_body + u)));
  }

  // Column vector v of panel p: the word's bytes, the block's scales.
  ValueRef word_bytes(const Dim& word, int v) const {
    const Dim at = p_.words.row_of_panel(Dim::symbol("p"), word) + v * lanes_;
    return kb::load(p_.weights, at * 4, 4 * lanes_);
  }
  Dim scale_at(const Dim& block, int v) const {
    return p_.blocks.row_of_panel(Dim::symbol("p"), block) + v * lanes_;
  }

  // Stores the results of row `row`, `value` giving vector v of them.
  StmtRef store_row(const Dim& row, const std::function<ValueRef(int v)>& value,
                    const std::string& prefix) const {
    const Dim p = Dim::symbol("p");
    const int64_t n = p_.form.n, full = n / width_;
    const auto stores = [&](bool masked) {
      std::vector<StmtRef> all;
      std::vector<Dim> coordinates = unflatten(row, p_.row_dims);
      coordinates.emplace_back(0);
      for (int v = 0; v < vectors_; ++v) {
        const Dim column = p * width_ + v * lanes_;
        coordinates.back() = column;
        const std::optional<Dim> valid = masked ? std::optional<Dim>(n - column) : std::nullopt;
        StmtRef one = store_results(w_, p_.frame, value(v), coordinates, lanes_, valid,
                                    prefix + numbered("", v) + "_");
        const bool may_be_beyond = masked && v > 0;
        all.push_back(may_be_beyond ? kb::if_then(kb::lt(column, n), std::move(one))
                                    : std::move(one));
      }
      return kb::seq(std::move(all));
    };
    if (full == 0) return stores(true);
    if (full == p_.words.panels()) return stores(false);
    return kb::if_then(kb::lt(p, full), stores(false), stores(true));
  }

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
      out.push_back(kb::let(
          zero, kb::cast(DType::kF32, kb::load(p_.zeros, scale_at(block, v), lanes_))));
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
        p_.zeros ? kb::local(of_block + numbered("z", v) + numbered("_", bit.at), DType::kF32,
                             lanes_)
                 : kb::number(DType::kF32,
                              exponent(bit.at) + static_cast<double>(p_.form.middle()), lanes_);
    return kb::sub(kb::bitcast(DType::kF32, std::move(bits)), std::move(zero));
  }

  // ---- few rows: weights are unpacked in registers

  // Over how many sums each element of so many rows is spread: a multiply-add waits for the one
  // before it.
  int chains(int rows) const {
    int n = 1;
    while (n * rows * vectors_ < kBusy && n < 4) n *= 2;
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
        all.push_back(
            kb::set_reg(totals_, element,
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
            p_.weights,
            (p_.words.row_of_panel(Dim::symbol("p"), word) + v * lanes_) * 4 + ahead_, 2));
    let_words(word, prefix, all);
    for (int i = 0; i < numbers; ++i) {
      const std::string of = "_" + std::to_string(i);
      for (int r = 0; r < rows; ++r)
        all.push_back(
            kb::let(prefix + numbered("x", r) + of,
                    kb::broadcast(kb::load(p_.lhs, r * k() + word * p_.form.per_word() + i),
                                  lanes_)));
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

  // ---- many rows, and all rows of bytes: blocks of row tiles

  StmtRef tiled() const {
    const Dim block = Dim::symbol("block"), begin = Dim::symbol("tile_begin"),
              extent = Dim::symbol("tile_count");
    // With rows split over the threads each has its own range of tiles, else all have all.
    const Dim thread = Dim::symbol("thread"), threads = Dim::symbol("threads");
    const Dim first = split_rows_ ? ir::floordiv(tiles_.count() * thread, threads) : Dim(0);
    const Dim last =
        split_rows_ ? ir::floordiv(tiles_.count() * (thread + 1), threads) : tiles_.count();
    std::vector<StmtRef> in_block = {
        kb::let_index("tile_begin", kb::index(first + block * block_tiles_)),
        kb::let_index("tile_count", kb::index(ir::min(last - begin, block_tiles_))),
        kb::let_index("block_row", kb::index(tiles_.first_row(begin))),
    };
    if (p_.bytes) in_block.push_back(round_rows(begin + extent));
    StmtRef panel = p_.bytes ? tiles_.for_each(
                                   begin, extent,
                                   [&](const RowTiles::Tile& t) { return byte_tile(t); },
                                   [&](const RowTiles::Tile& t) { return store_tile(t); })
                             : pieces();
    in_block.push_back(kb::loop(split_rows_ ? LoopKind::kSerial : LoopKind::kThread, "p", 0,
                                p_.words.panels(), std::move(panel)));
    return kb::loop(LoopKind::kSerial, "block", 0, ir::ceildiv(last - first, block_tiles_),
                    kb::seq(std::move(in_block)));
  }

  // First element of a tile's sums in the scratch.
  Dim sums_at(const RowTiles::Tile& t, const Dim& row, const Dim& column) const {
    const Dim first = !p_.bytes && pieces_.count > 1 ? t.row - Dim::symbol("block_row") : Dim(0);
    return (first + row) * width_ + column;
  }

  StmtRef store_tile(const RowTiles::Tile& t) const {
    const Dim r = Dim::symbol("e_r");
    return kb::loop(
        LoopKind::kSerial, "e_r", 0, t.valid,
        store_row(
            t.row + r,
            [&](int v) { return kb::load(sums_, sums_at(t, r, v * lanes_), lanes_); }, "e"));
  }

  // Keeps `registers`, a tile's, as its sums.
  StmtRef keep(const RowTiles::Tile& t, const BufferRef& registers) const {
    const Dim r = Dim::symbol("c_r"), v = Dim::symbol("c_v");
    return kb::loop(LoopKind::kUnroll, "c_r", 0, t.rows,
                    kb::loop(LoopKind::kUnroll, "c_v", 0, vectors_,
                             kb::store(sums_, sums_at(t, r, v * lanes_),
                                       kb::reg(registers, r * vectors_ + v))));
  }

  // ---- many rows: pieces of a panel are unpacked

  int64_t blocks_of_piece() const { return (pieces_.size + p_.form.block - 1) / p_.form.block; }

  StmtRef pieces() const {
    const Dim piece = Dim::symbol("kb"), extent = Dim::symbol("tile_count");
    const bool even = pieces_.size * pieces_.count == k();
    const Dim rows = even ? Dim(pieces_.size) : ir::min(k() - piece * pieces_.size, pieces_.size);
    StmtRef all_tiles = tiles_.for_each(
        Dim::symbol("tile_begin"), extent,
        [&](const RowTiles::Tile& t) { return tile(t, piece * pieces_.size, rows); },
        [&](const RowTiles::Tile& t) {
          return pieces_.count == 1
                     ? store_tile(t)
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
      body.push_back(
          kb::let(numbered("u_s", v), kb::load(p_.scales, scale_at(block, v), lanes_)));
    let_zeros(block, "u_", body);
    const Dim first = block * words_of_block_;
    const bool even = p_.form.words() % words_of_block_ == 0;
    const Dim words = even ? Dim(words_of_block_)
                           : ir::min(p_.form.words() - first, words_of_block_);
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
    TileProduct product;
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
    if (pieces_.count > 1) {
      const Dim r = Dim::symbol("c_r"), v = Dim::symbol("c_v");
      all.push_back(kb::if_then(
          kb::lt(0, Dim::symbol("kb")),
          kb::loop(LoopKind::kUnroll, "c_r", 0, t.rows,
                   kb::loop(LoopKind::kUnroll, "c_v", 0, vectors_,
                            kb::set_reg(accumulators_, r * vectors_ + v,
                                        kb::load(sums_, sums_at(t, r, v * lanes_), lanes_))))));
    }
    all.push_back(tile_product(product, "i_"));
    all.push_back(keep(t, accumulators_));
    return kb::seq(std::move(all));
  }

  // ---- activations as bytes

  void make_byte_buffers() {
    const int64_t rows = block_tiles_ * rows_;
    accumulators_ = kb::buffer("acc", Scope::kRegister, DType::kI32, rows_ * vectors_, lanes_);
    totals_ = kb::buffer("totals", Scope::kRegister, DType::kF32, rows_ * vectors_, lanes_);
    extreme_ = kb::buffer("extreme", Scope::kRegister, DType::kF32, 1, lanes_);
    poison_ = kb::buffer("poison", Scope::kRegister, DType::kF32, 1, lanes_);
    count_ = kb::buffer("count", Scope::kRegister, DType::kI32, 1, lanes_);
    sums_ = thread_scratch("sums", DType::kF32, rows_ * width_);
    rounded_ = thread_scratch("rounded", DType::kI8, rows * padded());
    row_scales_ = thread_scratch("row_scales", DType::kF32, rows * p_.form.blocks());
    row_sums_ = thread_scratch("row_sums", DType::kI32, rows * p_.form.blocks());
  }
  int64_t padded() const { return p_.form.blocks() * p_.form.block; }

  // Rounds the rows of a block of tiles that ends before tile `end`.
  StmtRef round_rows(const Dim& end) const {
    const Dim first = Dim::symbol("block_row"), b = Dim::symbol("x_b");
    std::vector<StmtRef> row;
    if (whole_blocks() > 0)
      row.push_back(kb::loop(LoopKind::kSerial, "x_b", 0, whole_blocks(),
                             round_block(b, p_.form.block, "x_")));
    if (const int64_t rest = k() % p_.form.block; rest > 0)
      row.push_back(round_block(whole_blocks(), rest, "y_"));
    return kb::loop(LoopKind::kSerial, "x_r", 0,
                    ir::min(tiles_.first_row(end), p_.m) - first, kb::seq(std::move(row)));
  }

  // `count` elements of a row, and zeros up to a whole word.
  StmtRef round_block(const Dim& block, int64_t count, const std::string& prefix) const {
    const Dim row = Dim::symbol("x_r"), i = Dim::symbol(prefix + "i");
    const Dim from = (Dim::symbol("block_row") + row) * k() + block * p_.form.block;
    const Dim to = row * padded() + block * p_.form.block;
    const Dim of_block = row * p_.form.blocks() + block;
    const int64_t per_word = p_.form.per_word();
    const int64_t stored = (count + per_word - 1) / per_word * per_word;
    // Vectors that are whole, then those that are not.
    const auto each = [&](const std::string& var, const std::function<StmtRef(const Dim& at,
                                                                              ValueRef x)>& body) {
      std::vector<StmtRef> all;
      const Dim at = Dim::symbol(var);
      if (count >= lanes_)
        all.push_back(kb::loop(LoopKind::kSerial, var, 0, count / lanes_ * lanes_,
                               body(at, kb::load(p_.lhs, from + at, lanes_)), lanes_));
      for (int64_t rest = count / lanes_ * lanes_; rest < stored; rest += lanes_)
        all.push_back(
            body(rest, rest < count ? kb::load_masked(p_.lhs, from + rest, lanes_, count - rest)
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
                   {kb::set_reg(extreme_, 0, kb::max(kb::unary(kir::UnaryOp::kAbs, x),
                                                     kb::reg(extreme_, 0))),
                    kb::set_reg(poison_, 0, kb::fma(x, kb::number(DType::kF32, 0, lanes_),
                                                    kb::reg(poison_, 0)))});
             }),
    };
    const std::string scale = prefix + "scale";
    all.push_back(kb::let(
        scale, kb::add(kb::div(kb::reduce(BinaryOp::kMax, kb::reg(extreme_, 0)),
                               kb::number(DType::kF32, 127)),
                       kb::reduce(BinaryOp::kAdd, kb::reg(poison_, 0)))));
    const ValueRef by = kb::local(scale, DType::kF32, 1);
    all.push_back(kb::store(row_scales_, of_block, by));
    all.push_back(each(prefix + "j", [&](const Dim& at, const ValueRef& x) {
      // A scale of zero makes NaNs, which are bytes of zero.
      const ValueRef byte = kb::cast(
          DType::kI8, kb::unary(kir::UnaryOp::kRound, kb::div(x, kb::broadcast(by, lanes_))));
      return kb::seq({kb::store(rounded_, to + at, byte),
                      kb::set_reg(count_, 0, kb::add(kb::reg(count_, 0),
                                                     kb::cast(DType::kI32, byte)))});
    }));
    all.push_back(
        kb::store(row_sums_, of_block, kb::reduce(BinaryOp::kAdd, kb::reg(count_, 0))));
    return kb::seq(std::move(all));
  }

  StmtRef byte_tile(const RowTiles::Tile& t) const {
    const Dim z = Dim::symbol("i_z"), b = Dim::symbol("i_b");
    std::vector<StmtRef> all = {
        kb::loop(LoopKind::kUnroll, "i_z", 0, t.rows * vectors_,
                 kb::set_reg(totals_, z, kb::number(DType::kF32, 0, lanes_)))};
    if (whole_blocks() > 0)
      all.push_back(kb::loop(LoopKind::kSerial, "i_b", 0, whole_blocks(),
                             byte_block(t, b, words_of_block_, "f_")));
    if (rest_words() > 0) all.push_back(byte_block(t, whole_blocks(), rest_words(), "g_"));
    all.push_back(keep(t, totals_));
    return kb::seq(std::move(all));
  }

  // The row of the rounded ones that is row r of a tile.
  Dim rounded_row(const RowTiles::Tile& t, int r) const {
    return tiles_.row_of(t, r) - Dim::symbol("block_row");
  }

  StmtRef byte_block(const RowTiles::Tile& t, const Dim& block, int64_t words,
                     const std::string& prefix) const {
    const Dim z = Dim::symbol(prefix + "z");
    std::vector<StmtRef> all = {
        kb::loop(LoopKind::kUnroll, prefix + "z", 0, t.rows * vectors_,
                 kb::set_reg(accumulators_, z, kb::integer(DType::kI32, 0, lanes_))),
        each_word(prefix, block * words_of_block_, words, words_of_body(words),
                  [&](const Dim& word) { return byte_word(t, word, prefix); })};
    for (int r = 0; r < t.rows; ++r) {
      const Dim of_block = rounded_row(t, r) * p_.form.blocks() + block;
      all.push_back(kb::let(prefix + numbered("x", r),
                            kb::broadcast(kb::load(row_scales_, of_block), lanes_)));
      all.push_back(kb::let(prefix + numbered("c", r),
                            kb::broadcast(kb::load(row_sums_, of_block), lanes_)));
    }
    for (int v = 0; v < vectors_; ++v) {
      const std::string scale = prefix + numbered("s", v), zero = prefix + numbered("z", v);
      all.push_back(kb::let(scale, kb::load(p_.scales, scale_at(block, v), lanes_)));
      all.push_back(kb::let(
          zero, p_.zeros ? kb::cast(DType::kI32, kb::load(p_.zeros, scale_at(block, v), lanes_))
                         : kb::integer(DType::kI32, p_.form.middle(), lanes_)));
      for (int r = 0; r < t.rows; ++r) {
        const int element = r * vectors_ + v;
        const ValueRef excess = kb::mul(kb::local(zero, DType::kI32, lanes_),
                                        kb::local(prefix + numbered("c", r), DType::kI32, lanes_));
        const ValueRef sum =
            kb::cast(DType::kF32, kb::sub(kb::reg(accumulators_, element), excess));
        all.push_back(kb::set_reg(
            totals_, element,
            kb::fma(kb::mul(sum, kb::local(prefix + numbered("x", r), DType::kF32, lanes_)),
                    kb::local(scale, DType::kF32, lanes_), kb::reg(totals_, element))));
      }
    }
    return kb::seq(std::move(all));
  }

  StmtRef byte_word(const RowTiles::Tile& t, const Dim& word, const std::string& prefix) const {
    constexpr int kGroup = 4;  // rows that a fragment takes at a time
    const int bytes = kGroup * lanes_;
    const auto groups = static_cast<int>(p_.form.per_word() / kGroup);
    std::vector<StmtRef> all;
    // q<v>_<group>: four rows of each column as bytes.
    for (int v = 0; v < vectors_; ++v) {
      const std::string name = prefix + numbered("q", v);
      all.push_back(kb::let(name, word_bytes(word, v)));
      const ValueRef whole = kb::local(name, DType::kU8, bytes);
      if (groups == 1) continue;
      const ValueRef mask = kb::integer(DType::kU8, 15, bytes);
      const ValueRef upper =
          kb::bitcast(DType::kU8, kb::binary(BinaryOp::kShr, kb::bitcast(DType::kU32, whole),
                                             kb::integer(DType::kU32, 4, lanes_)));
      all.push_back(kb::let(name + "_0", kb::binary(BinaryOp::kAnd, whole, mask)));
      all.push_back(kb::let(name + "_1", kb::binary(BinaryOp::kAnd, upper, mask)));
    }
    for (int g = 0; g < groups; ++g)
      for (int r = 0; r < t.rows; ++r) {
        const std::string x = prefix + numbered("a", r) + numbered("_", g);
        const Dim at =
            rounded_row(t, r) * padded() + word * p_.form.per_word() + g * kGroup;
        all.push_back(
            kb::let(x, kb::broadcast(kb::load(rounded_, at, kGroup), bytes)));
        for (int v = 0; v < vectors_; ++v) {
          const std::string q =
              prefix + numbered("q", v) + (groups == 1 ? "" : numbered("_", g));
          const int element = r * vectors_ + v;
          all.push_back(kb::set_reg(
              accumulators_, element,
              kb::dot(kir::Fragment::kU8S8Quads, kb::local(q, DType::kU8, bytes),
                      kb::local(x, DType::kI8, bytes), kb::reg(accumulators_, element))));
        }
      }
    return kb::seq(std::move(all));
  }

  const Workload& w_;
  const Product& p_;
  int vectors_, lanes_;
  int64_t width_;           // columns of a panel as tiles take it
  int64_t words_of_block_;  // of a column
  int rows_;
  int64_t words_;
  bool split_rows_;
  int64_t block_tiles_;
  RowTiles tiles_;
  int few_ = 0, unroll_ = 1;  // few_: up to so many rows are computed without tiles
  int64_t ahead_ = 0;         // bytes of weights to prefetch ahead
  KBlocks pieces_;            // of k, each unpacked at once
  BufferRef accumulators_, totals_, panel_, sums_, unpacked_;
  BufferRef extreme_, poison_, count_, rounded_, row_scales_, row_sums_;
};

}  // namespace

bool BlockwiseTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return analyse(w, t).has_value();
}

std::vector<Knob> BlockwiseTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for blockwise", w.key);
  const int vectors = p->words.vectors;
  const int most = p->bytes ? max_byte_rows(t, vectors) : max_tile_rows(t, vectors);
  Knob rows{"rows", {}, /*tile=*/true};
  for (int64_t r : {1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 20, 24})
    if (r <= most && r * 4 >= most) rows.choices.emplace_back(r);
  std::vector<Knob> all = {std::move(rows),
                           int_knob("words", {1, 2, 4}),
                           int_knob("block_rows", {32, 64, 128}),
                           {"split", {"columns", "rows"}},
                           tails_knob(/*residues=*/true)};
  if (p->bytes) return all;
  Knob k_block{"k_block", {}};
  for (int64_t k : {64, 128, 256, 512})
    if (k >= p->form.block && k < p->form.k) k_block.choices.emplace_back(k);
  k_block.choices.emplace_back(int64_t{0});
  all.push_back(std::move(k_block));
  all.push_back(int_knob("unroll", {1, 2, 4, 8}));
  all.push_back(int_knob("few", {0, 1, 2, 4}));
  all.push_back(int_knob("ahead", {0, 1024, 4096}));
  return all;
}

bool BlockwiseTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  if (!p || !well_formed(knobs(w, t), c)) return false;
  const int vectors = p->words.vectors;
  const int64_t rows = knob_int(c, "rows");
  const int most = p->bytes ? max_byte_rows(t, vectors) : max_tile_rows(t, vectors);
  if (rows < 1 || rows > most || knob_int(c, "words") < 1) return false;
  if (knob_int(c, "block_rows") < rows || knob_int(c, "block_rows") > 4096) return false;
  if (!has_tails(c, p->m)) return false;
  if (p->bytes) return true;
  const int64_t few = knob_int(c, "few");
  return knob_int(c, "k_block") >= 0 && knob_int(c, "unroll") >= 1 && few >= 0 && few <= kMostFew &&
         few * vectors * 2 <= t.vector_registers && knob_int(c, "ahead") >= 0 &&
         knob_int(c, "ahead") <= 1 << 20;
}

Config BlockwiseTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for blockwise", w.key);
  const int64_t vectors = p->words.vectors;
  Config c = {{"words", int64_t{2}},
              {"block_rows", p->bytes ? int64_t{32} : int64_t{128}},
              {"split", p->words.panels() >= 4 ? "columns" : "rows"},
              {"tails", kTailsEven}};
  if (p->bytes) {
    c["rows"] = int64_t{std::min(max_byte_rows(t, vectors), 4)};
    return c;
  }
  c["rows"] = int64_t{default_tile_rows(t, vectors)};
  // A piece of the unpacked panel takes at most three quarters of L1.
  const int64_t fits = std::max<int64_t>(64, t.l1_bytes * 3 / 4 / (p->words.width * 4) / 64 * 64);
  c["k_block"] = p->form.k > 2 * fits ? fits : int64_t{0};
  c["unroll"] = int64_t{4};
  c["few"] = std::clamp<int64_t>((t.vector_registers - 8) / (2 * vectors), 1, 4);
  c["ahead"] = int64_t{0};
  return c;
}

Lowered BlockwiseTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                 const std::string& name) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p && valid(w, c, t), "configuration {} of blockwise", to_json(c));
  return kernels_of_tails(w, c, p->m, name, [&](int residue, const std::string& one) {
    return BlockwiseLowering(w, *p, c, residue).run(one);
  });
}

}  // namespace nimble::kernels
