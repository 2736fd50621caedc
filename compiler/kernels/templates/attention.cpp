// The template "attention": softmax(q k^T * scale + mask) v by head.
//
// Attention by head, without ever storing the matrix of scores.
//
// An item of work is one head of one batch entry and a block of its query rows; threads share the
// items. A thread first transposes the head's keys into panels of `vectors` vectors of columns
// (panel, d, column), so that the product q k^T reads consecutive cache lines and keeps a tile of
// rows x vectors accumulators in registers. For one tile of rows it then
//   1. computes all scores into its scratch (rows x m, in the first-level cache),
//   2. adds the mask, subtracts the row's maximum, exponentiates and sums (one row at a time),
//   3. multiplies by v, whose rows are read where they lie, and divides by the sums at the end,
//      d numbers a row instead of m.
// The softmax is exact, not an online one: a tile's scores fit the cache up to several thousand
// keys, and rescaling partial results would cost more than the second pass. A row of few keys, as
// windows of an image have, stays in registers from its scores to its weights. Weights too small
// for a normal number are zeros (math.h: exp_flushed): masks of -100 make many.
//
// The values of the head are copied too ("values": "packed"): rows of a matrix (b, n, 3*h*d) lie
// several KiB apart and fall into few sets of the first-level cache, which a hundred of them
// overflow, though their bytes would fit.
//
// A step of a decoding loop has one query row or a few: then each key would be used once for the
// cost of copying it. "values": "streamed" reads keys and values where they lie, once, in the order
// of the positions: a row's score is a sum over vectors of its key, folded at the end. A head's
// piece of a row is a few cache lines, with the other heads' between it and the next, a distance
// that no hardware prefetcher follows; so each key asks for the one kAhead rows behind it.
//
// q, k and v may be slices of one matrix (b, n, 3*heads*d): they are addressed by the strides that
// GroupEvaluator finds.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "compiler/kernels/math.h"
#include "compiler/kernels/templates/attention_operands.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/tile.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
namespace km = kir::math;
using kir::BinaryOp;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;
using Dims = std::vector<Dim>;

// Values of the knob "values".
constexpr const char* kPacked = "packed";      // copied to the thread's scratch
constexpr const char* kInPlace = "in_place";   // read where they lie
constexpr const char* kStreamed = "streamed";  // and the keys too

constexpr int64_t kFewRows = 4;       // so many query rows at most are streamed
constexpr int64_t kQueryVectors = 8;  // of a head: a query row stays in registers
constexpr int64_t kAhead = 24;        // rows between a key or value and its prefetch
constexpr int64_t kShortRow = 8;      // vectors of scores that a softmax keeps in registers

using Plan = AttentionOperands;

std::optional<Plan> analyse(const Workload& w) {
  std::optional<Plan> p = attention_operands(w);
  if (!p || (p->type != DType::kF32 && p->type != DType::kF64)) return std::nullopt;
  if (p->masked) {
    const Frame frame = make_frame(w);
    const ir::Atom& mask = frame.anchor->value->args[3];
    GroupEvaluator group(*w.group, frame.parameters);
    if (!mask.is_constant() && !group.vectorizable(mask)) return std::nullopt;
  }
  return p;
}

bool streams(const Plan& p, const TargetInfo& t) {
  const auto n = p.n.as_constant();
  return n && *n <= kFewRows && p.d <= kQueryVectors * lanes_of(t, p.type);
}

class AttentionLowering {
 public:
  AttentionLowering(const Workload& w, const Plan& p, const Config& c, const TargetInfo& t)
      : w_(w),
        p_(p),
        frame_(make_frame(w)),
        group_(*w.group, frame_.parameters),
        call_(*frame_.anchor->value),
        lanes_(lanes_of(t, p.type)),
        rows_(static_cast<int>(knob_int(c, "rows"))),
        vectors_(static_cast<int>(knob_int(c, "vectors"))),
        block_(knob_int(c, "block")),
        tails_(knob_text(c, "tails")),
        pack_values_(knob_text(c, "values") == kPacked),
        streamed_(knob_text(c, "values") == kStreamed),
        width_(lanes_ * vectors_),
        tiles_(p.n, rows_, tails_, 0, "a") {
    const Dim padded = ir::ceildiv(p.m, width_) * width_;
    // A cache line more than the columns, lest rows a multiple of 4 KiB apart share cache sets.
    stride_ = padded + lanes_;
    keys_ = kb::buffer("keys", Scope::kThread, p.type, padded * p.d);
    scores_ = kb::buffer("scores", Scope::kThread, p.type, stride_ * rows_);
    scale_ = kb::buffer("scale", Scope::kThread, p.type, rows_);
    value_stride_ = (p.dv + lanes_ - 1) / lanes_ * lanes_;
    values_ = kb::buffer("values", Scope::kThread, p.type, p.m * value_stride_);
    // The second product's tile is as wide as the head allows.
    const int head_vectors = static_cast<int>((p.dv + lanes_ - 1) / lanes_);
    out_vectors_ = 1;
    for (int v = 2; v <= 4; ++v)
      if (head_vectors % v == 0 && rows_ <= max_tile_rows(t, v)) out_vectors_ = v;
    const int widest = std::max(vectors_, out_vectors_);
    accumulators_ = kb::buffer("acc", Scope::kRegister, p.type, rows_ * widest, lanes_);
    panel_ = kb::buffer("panel", Scope::kRegister, p.type, widest, lanes_);
    query_ = kb::buffer("query", Scope::kRegister, p.type, (p.d + lanes_ - 1) / lanes_, lanes_);
    maxima_ = kb::buffer("maxima", Scope::kRegister, p.type, kChains, lanes_);
    sums_ = kb::buffer("sums", Scope::kRegister, p.type, kChains, lanes_);
  }

  kir::Function run(const std::string& name) {
    const Dim blocks = ir::ceildiv(tiles_.count(), block_);
    std::vector<StmtRef> all = tiles_.prologue();
    if (!blocks.as_constant()) all.push_back(kb::let_index("blocks", kb::index(blocks)));
    const Dim block_count = blocks.as_constant() ? blocks : Dim::symbol("blocks");

    std::vector<StmtRef> body;
    const Dims item = {p_.batch, Dim(p_.heads), block_count};
    const Dims at = bind_coordinates("x", item, Dim::symbol("item"), body);
    b_ = at[0];
    h_ = at[1];
    if (!streamed_) body.push_back(pack_keys());
    if (pack_values_) body.push_back(pack_values());
    const Dim first = at[2] * block_;
    body.push_back(tiles_.for_each(
        first, ir::min(tiles_.count() - first, block_),
        [&](const RowTiles::Tile& t) { return streamed_ ? score_rows(t) : score_tile(t); },
        [&](const RowTiles::Tile& t) {
          return kb::seq({softmax(t), by_size(t)});
        }));
    all.push_back(kb::loop(LoopKind::kThread, "item", 0, p_.batch * p_.heads * block_count,
                           kb::seq(std::move(body))));
    std::vector<kir::BufferRef> scratch = {scores_, scale_};
    std::vector<kir::BufferRef> registers = {accumulators_, panel_, maxima_, sums_};
    if (streamed_) {
      registers.push_back(query_);
    } else {
      scratch.push_back(keys_);
    }
    if (pack_values_) scratch.push_back(values_);
    return make_function(w_, frame_, name, std::move(scratch), std::move(registers),
                         kb::seq(std::move(all)));
  }

 private:
  static constexpr int kChains = 4;  // independent maxima and sums of a row

  // Where an element of q, k or v lies.
  std::pair<kir::BufferRef, Dim> place(size_t operand, const Dim& row, const Dim& column) {
    const ValueRef v = group_.value(call_.args[operand], {b_, row, column}, 1);
    return {v->buffer, v->index};
  }

  StmtRef pack_keys() {
    const Dim full = ir::floordiv(p_.m, width_);
    const Dim rest = p_.m - full * width_;
    std::vector<StmtRef> all = {
        kb::loop(LoopKind::kSerial, "kt", 0, full, pack_panel(Dim::symbol("kt"), std::nullopt))};
    if (!rest.is_constant(0)) all.push_back(kb::if_then(kb::lt(0, rest), pack_panel(full, rest)));
    return kb::seq(std::move(all));
  }

  // A panel of keys, `left` of them (nothing: all). Vectors of keys that all exist are copied in
  // square blocks, which codegen transposes in registers.
  StmtRef pack_panel(const Dim& tile, const std::optional<Dim>& left) {
    const Dim c = Dim::symbol("kc"), i = Dim::symbol("ki");
    const auto copy = [&](int v, const Dim& column) {
      const Dim row = tile * width_ + v * lanes_;
      const auto [buffer, index] = place(1, row, h_ * p_.d + column);
      const Dim next = place(1, row + 1, h_ * p_.d + column).second;
      auto valid = left ? std::optional<Dim>(*left - v * lanes_) : std::nullopt;
      if (is_full(valid)) valid.reset();
      return kb::store(keys_, (tile * p_.d + column) * width_ + v * lanes_,
                       kb::load_strided(buffer, index, next - index, lanes_, valid));
    };
    const int64_t squares = p_.d / lanes_ * lanes_;
    std::vector<StmtRef> blocks, columns, last;
    for (int v = 0; v < vectors_; ++v) {
      if (!left || is_full(*left - v * lanes_)) {
        blocks.push_back(kb::loop(LoopKind::kUnroll, "ki", 0, lanes_, copy(v, c + i)));
        last.push_back(copy(v, c));
      } else {
        columns.push_back(copy(v, c));
      }
    }
    const auto walk = [&](std::vector<StmtRef> body, int64_t from, int64_t to, int64_t step) {
      return body.empty() || from == to ? kb::seq({})
                                        : kb::loop(LoopKind::kSerial, "kc", from, to - from,
                                                   kb::seq(std::move(body)), step);
    };
    return kb::seq({walk(std::move(blocks), 0, squares, lanes_),
                    walk(std::move(last), squares, p_.d, 1), walk(std::move(columns), 0, p_.d, 1)});
  }

  // Whether all lanes of a vector exist, of which `valid` do.
  bool is_full(const std::optional<Dim>& valid) const {
    const auto known = valid ? valid->as_constant() : std::nullopt;
    return known && *known >= lanes_;
  }

  StmtRef pack_values() {
    const Dim row = Dim::symbol("vr");
    std::vector<StmtRef> body;
    for (int64_t c = 0; c < value_stride_; c += lanes_) {
      const auto [buffer, index] = place(2, row, h_ * p_.dv + c);
      const auto valid = c + lanes_ > p_.dv ? std::optional<Dim>(p_.dv - c) : std::nullopt;
      body.push_back(kb::store(values_, row * value_stride_ + c,
                               kb::load_strided(buffer, index, 1, lanes_, valid)));
    }
    return kb::loop(LoopKind::kSerial, "vr", 0, p_.m, kb::seq(std::move(body)));
  }

  RegisterTile product(int rows, int vectors) const {
    RegisterTile t;
    t.rows = rows;
    t.vectors = vectors;
    t.lanes = lanes_;
    t.dtype = p_.type;
    t.accumulators = accumulators_;
    t.panel = panel_;
    return t;
  }

  StmtRef score_tile(const RowTiles::Tile& tile) {
    RegisterTile t = product(tile.rows, vectors_);
    t.lhs = place(0, 0, 0).first;
    t.rhs = keys_;
    const Dim column = Dim::symbol("sc");  // number of the panel
    t.lhs_index = [&](const Dim& row, const Dim& k) {
      return place(0, tiles_.row_of(tile, row), h_ * p_.d + k).second;
    };
    t.rhs_index = [&](const Dim& vector, const Dim& k) {
      return (column * p_.d + k) * width_ + vector * lanes_;
    };
    t.k_extent = p_.d;
    const Dim r = Dim::symbol("sr"), v = Dim::symbol("sv");
    StmtRef store = kb::loop(LoopKind::kUnroll, "sr", 0, tile.rows,
                             kb::loop(LoopKind::kUnroll, "sv", 0, vectors_,
                                      kb::store(scores_, r * stride_ + column * width_ + v * lanes_,
                                                kb::reg(accumulators_, r * vectors_ + v))));
    return kb::loop(LoopKind::kSerial, "sc", 0, ir::ceildiv(p_.m, width_),
                    kb::seq({tile_zero(t, "q"), tile_product(t, "q"), std::move(store)}));
  }

  // Scores of a tile from the keys where they lie.
  StmtRef score_rows(const RowTiles::Tile& tile) {
    const Dim r = Dim::symbol("sr"), key = Dim::symbol("sk");
    const auto load = [&](size_t operand, const Dim& row, int64_t column) {
      const auto [buffer, index] = place(operand, row, h_ * p_.d + column);
      const bool whole = column + lanes_ <= p_.d;
      return whole ? kb::load(buffer, index, lanes_)
                   : kb::load_masked(buffer, index, lanes_, p_.d - column);
    };
    std::vector<StmtRef> row;
    for (int64_t c = 0; c < p_.d; c += lanes_)
      row.push_back(kb::set_reg(query_, c / lanes_, load(0, tiles_.row_of(tile, r), c)));
    // The softmax reads whole vectors: the last one's lanes behind the last key are zeros.
    const Dim last = ir::floordiv(p_.m, lanes_) * lanes_;
    row.push_back(kb::store(scores_, r * stride_ + last, kb::number(p_.type, 0, lanes_)));
    std::vector<StmtRef> one = prefetch_row(1, key, p_.d);
    ValueRef sum = kb::mul(kb::reg(query_, 0), load(1, key, 0));
    for (int64_t c = lanes_; c < p_.d; c += lanes_)
      sum = kb::fma(kb::reg(query_, c / lanes_), load(1, key, c), sum);
    one.push_back(kb::store(scores_, r * stride_ + key, kb::reduce(BinaryOp::kAdd, sum)));
    row.push_back(kb::loop(LoopKind::kSerial, "sk", 0, p_.m, kb::seq(std::move(one))));
    // A masked tile multiplies all of its rows by the values.
    const Dim rows = tails_ == kTailsMasked ? Dim(tile.rows) : tile.valid;
    return kb::loop(LoopKind::kSerial, "sr", 0, rows, kb::seq(std::move(row)));
  }

  // Asks for the head's part of the row kAhead behind `row` of the keys or values.
  std::vector<StmtRef> prefetch_row(size_t operand, const Dim& row, int64_t width) {
    const int64_t line = 64 / static_cast<int64_t>(size_of(p_.type));
    std::vector<StmtRef> all;
    for (int64_t c = 0; c < width; c += line) {
      const auto [buffer, index] = place(operand, row + kAhead, h_ * width + c);
      all.push_back(kb::prefetch(buffer, index, 3));
    }
    return all;
  }

  // The mask at keys from `column` on, as a number to add.
  ValueRef mask(const Dim& row, const Dim& column, const std::optional<Dim>& valid,
                std::vector<StmtRef>& out) {
    const ir::Atom& a = call_.args[3];
    const MaskPlace where = mask_place(p_, a, {b_, h_, row, column});
    const ValueRef v = group_.value_along(a, where.at, where.step, lanes_, valid);
    for (StmtRef& s : group_.take_statements()) out.push_back(std::move(s));
    return mask_number(v, p_.type);
  }

  // Turns a tile's scores into exp(score - maximum) and keeps 1 / sum of each row.
  StmtRef softmax(const RowTiles::Tile& tile) {
    const auto keys = p_.m.as_constant();
    const bool is_short = keys && *keys > 0 && *keys <= kShortRow * lanes_;
    return kb::loop(LoopKind::kSerial, "xr", 0, tile.valid,
                    kb::seq(is_short ? softmax_short(tile, *keys) : softmax_long(tile)));
  }

  // Without a mask scaling keeps the order of the scores, so it is done last.
  bool masked() const { return call_.args.size() == 4; }
  bool fold_scale() const { return !masked() && p_.scale > 0; }

  ValueRef let(std::vector<StmtRef>& out, ValueRef v) {
    const std::string name = fmt::format("x{}", names_++);
    out.push_back(kb::let(name, v));
    return kb::local(name, v->dtype, v->lanes);
  }
  ValueRef lowest() const {
    return kb::number(p_.type, -std::numeric_limits<double>::infinity(), lanes_);
  }
  Dim score(const Dim& column) const { return Dim::symbol("xr") * stride_ + column; }

  // The scores of a row at a slice, scaled and masked, the lowest where no key is: their weights
  // are zeros then, and a row's sum needs no mask. The buffer has room for whole vectors.
  ValueRef scored(const RowTiles::Tile& tile, const Slice& s, std::vector<StmtRef>& out) {
    ValueRef x = kb::load(scores_, score(s.at), lanes_);
    const ValueRef scale = kb::number(p_.type, p_.scale, lanes_);
    if (masked()) {
      const ValueRef bias = mask(tile.row + Dim::symbol("xr"), s.at, s.valid, out);
      x = kb::fma(x, scale, bias);
    } else if (!fold_scale()) {
      x = kb::mul(x, scale);
    }
    if (s.valid) x = kb::select(lane_mask(*s.valid, lanes_), x, lowest());
    return let(out, x);
  }

  // exp(score - maximum) from what scored() gave; `shift` is the maximum, scaled.
  ValueRef weight(ValueRef x, const ValueRef& shift, std::vector<StmtRef>& out) {
    const ValueRef maximum = kb::broadcast(shift, lanes_);
    const ValueRef scale = kb::number(p_.type, p_.scale, lanes_);
    x = fold_scale() ? kb::fma(x, scale, kb::unary(kir::UnaryOp::kNeg, maximum))
                     : kb::sub(x, maximum);
    return let(out, km::exp_flushed(let(out, x)));
  }

  ValueRef shift_of(const ValueRef& maximum, std::vector<StmtRef>& out) {
    const ValueRef all = let(out, kb::reduce(BinaryOp::kMax, maximum));
    return fold_scale() ? let(out, kb::mul(all, kb::number(p_.type, p_.scale))) : all;
  }

  // A row of so few keys that it stays in registers, without a loop.
  std::vector<StmtRef> softmax_short(const RowTiles::Tile& tile, int64_t keys) {
    std::vector<StmtRef> out;
    std::vector<ValueRef> row;
    for (int64_t c = 0; c < keys; c += lanes_) {
      const auto valid = c + lanes_ > keys ? std::optional<Dim>(keys - c) : std::nullopt;
      row.push_back(scored(tile, {c, valid, 0}, out));
    }
    const auto total = [](std::vector<ValueRef> v, BinaryOp op) {
      for (; v.size() > 1; v.resize((v.size() + 1) / 2))
        for (size_t i = 0; i < v.size() / 2; ++i) v[i] = kb::binary(op, v[i], v[v.size() - 1 - i]);
      return v[0];
    };
    const ValueRef shift = shift_of(total(row, BinaryOp::kMax), out);
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = weight(row[i], shift, out);
      out.push_back(kb::store(scores_, score(static_cast<int64_t>(i) * lanes_), row[i]));
    }
    // At least 1: the largest score's weight.
    const ValueRef sum = kb::reduce(BinaryOp::kAdd, total(row, BinaryOp::kAdd));
    out.push_back(kb::store(scale_, Dim::symbol("xr"), kb::div(kb::number(p_.type, 1), sum)));
    return out;
  }

  std::vector<StmtRef> softmax_long(const RowTiles::Tile& tile) {
    const ValueRef zero = kb::number(p_.type, 0, lanes_);
    std::vector<StmtRef> body;
    const auto fill = [&](const kir::BufferRef& b, const ValueRef& v) {
      for (int u = 0; u < kChains; ++u) body.push_back(kb::set_reg(b, u, v));
    };
    const auto total = [&](const kir::BufferRef& b, BinaryOp op) {
      ValueRef v = kb::reg(b, 0);
      for (int u = 1; u < kChains; ++u) v = kb::binary(op, v, kb::reg(b, u));
      return v;
    };
    fill(maxima_, lowest());
    body.push_back(vector_loop("xc", 0, p_.m, lanes_, kChains, [&](const Slice& s) {
      std::vector<StmtRef> all;
      const ValueRef x = scored(tile, s, all);
      if (!fold_scale() || s.valid) all.push_back(kb::store(scores_, score(s.at), x));
      all.push_back(kb::set_reg(maxima_, s.slot, kb::max(kb::reg(maxima_, s.slot), x)));
      return all;
    }));
    const ValueRef shift = shift_of(total(maxima_, BinaryOp::kMax), body);
    fill(sums_, zero);
    body.push_back(vector_loop("xc", 0, p_.m, lanes_, kChains, [&](const Slice& s) {
      std::vector<StmtRef> all;
      const ValueRef x = weight(kb::load(scores_, score(s.at), lanes_), shift, all);
      all.push_back(kb::store(scores_, score(s.at), x));
      all.push_back(kb::set_reg(sums_, s.slot, kb::add(kb::reg(sums_, s.slot), x)));
      return all;
    }));
    // Without any key the sum is empty, and so is the one that it scales: 0, not NaN.
    const ValueRef sum = let(body, kb::reduce(BinaryOp::kAdd, total(sums_, BinaryOp::kAdd)));
    const ValueRef none = kb::compare(kir::CompareOp::kEq, sum, kb::number(p_.type, 0));
    body.push_back(
        kb::store(scale_, Dim::symbol("xr"),
                  kb::select(none, kb::number(p_.type, 0), kb::div(kb::number(p_.type, 1), sum))));
    return body;
  }

  // The second product, for each number of rows that a tile may have.
  StmtRef by_size(const RowTiles::Tile& tile) {
    if (tails_ == kTailsMasked) return value_tile(tile, rows_);
    if (const auto rows = tile.valid.as_constant())
      return value_tile(tile, static_cast<int>(*rows));
    StmtRef chain;
    for (int rows = 1; rows <= rows_; ++rows) {
      StmtRef then = value_tile(tile, rows);
      chain = chain ? kb::if_then(kb::eq(tile.valid, rows), std::move(then), std::move(chain))
                    : std::move(then);
    }
    return chain;
  }

  StmtRef value_tile(const RowTiles::Tile& tile, int rows) {
    RegisterTile t = product(rows, out_vectors_);
    const bool whole = p_.dv % lanes_ == 0;
    const Dim group = Dim::symbol("og");
    const auto column = [&](const Dim& vector) { return (group * out_vectors_ + vector) * lanes_; };
    const auto valid = [&](const Dim& vector) {
      return whole ? std::nullopt : std::optional<Dim>(p_.dv - column(vector));
    };
    t.lhs = scores_;
    t.lhs_index = [&](const Dim& row, const Dim& k) { return row * stride_ + k; };
    t.rhs = pack_values_ ? values_ : place(2, 0, 0).first;
    t.rhs_index = [&](const Dim& vector, const Dim& k) {
      return pack_values_ ? k * value_stride_ + column(vector)
                          : place(2, k, h_ * p_.dv + column(vector)).second;
    };
    if (!whole && !pack_values_) t.rhs_valid = valid;
    if (streamed_)
      t.at_body = [&](const Dim& body) {
        std::vector<StmtRef> rows;
        for (int u = 0; u < t.unroll; ++u)
          for (StmtRef& s : prefetch_row(2, body * t.unroll + u, p_.dv))
            rows.push_back(std::move(s));
        return kb::seq(std::move(rows));
      };
    t.k_extent = p_.m;
    const Dim r = Dim::symbol("or"), v = Dim::symbol("ov");
    const ValueRef value = kb::mul(kb::reg(accumulators_, r * out_vectors_ + v),
                                   kb::broadcast(kb::load(scale_, r), lanes_));
    StmtRef store = store_results(w_, frame_, value, {b_, tile.row + r, h_ * p_.dv + column(v)},
                                  lanes_, valid(v), "o");
    if (tails_ == kTailsMasked) store = kb::if_then(kb::lt(r, tile.valid), std::move(store));
    StmtRef stores = kb::loop(LoopKind::kUnroll, "or", 0, rows,
                              kb::loop(LoopKind::kUnroll, "ov", 0, out_vectors_, std::move(store)));
    const int64_t groups = ((p_.dv + lanes_ - 1) / lanes_ + out_vectors_ - 1) / out_vectors_;
    return kb::loop(LoopKind::kSerial, "og", 0, groups,
                    kb::seq({tile_zero(t, "w"), tile_product(t, "w"), std::move(stores)}));
  }

  const Workload& w_;
  const Plan& p_;
  Frame frame_;
  GroupEvaluator group_;
  const ir::Expr& call_;
  int lanes_, rows_, vectors_;
  int64_t block_;
  std::string tails_;
  bool pack_values_, streamed_;
  int64_t value_stride_ = 0;
  int width_, out_vectors_ = 1;
  int names_ = 0;
  RowTiles tiles_;
  Dim stride_, b_, h_;
  kir::BufferRef keys_, values_, scores_, scale_, accumulators_, panel_, query_, maxima_, sums_;
};

}  // namespace

bool AttentionTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return analyse(w).has_value();
}

std::vector<Knob> AttentionTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto plan = analyse(w);
  NIMBLE_CHECK(plan, "workload {} is not for attention", w.key);
  Knob values{"values", {kPacked, kInPlace}};
  if (streams(*plan, t)) values.choices.emplace_back(kStreamed);
  return {int_knob("rows", {1, 2, 4, 6, 8, 10, 12, 13}), int_knob("vectors", {1, 2, 3, 4}),
          int_knob("block", {4, 16, 64}), tails_knob(/*residues=*/false), std::move(values)};
}

bool AttentionTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  return within(knobs(w, t), c) && knob_int(c, "rows") <= max_tile_rows(t, knob_int(c, "vectors"));
}

Config AttentionTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto plan = analyse(w);
  if (plan && streams(*plan, t))
    return {{"rows", std::max<int64_t>(1, *plan->n.as_constant() / 2 * 2)},
            {"vectors", int64_t{1}},
            {"block", int64_t{4}},
            {"tails", kTailsEven},
            {"values", kStreamed}};
  // Two vectors of keys, unless a row of few fills one or three.
  const int lanes = lanes_of(t, plan->type);
  const auto keys = plan->m.as_constant();
  const int64_t filled = keys ? (*keys + lanes - 1) / lanes : 0;
  const int64_t vectors = filled == 1 || filled == 3 ? filled : 2;
  const bool many = t.vector_registers >= 32;
  const int64_t rows = vectors > 2 ? (many ? 8 : 4) : (many ? 10 : 6);
  return {{"rows", rows},
          {"vectors", vectors},
          {"block", int64_t{64}},
          {"tails", kTailsEven},
          {"values", kPacked}};
}

Lowered AttentionTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                 const std::string& name) const {
  const auto plan = analyse(w);
  NIMBLE_CHECK(plan && valid(w, c, t), "configuration {} of attention", to_json(c));
  return one_kernel(AttentionLowering(w, *plan, c, t).run(name));
}

}  // namespace nimble::kernels
