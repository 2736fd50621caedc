// The template "attention": softmax(q k^T * scale + mask) v by head.
//
// Attention by head, without ever storing the matrix of scores.
//
// An item of work is one head of one batch entry and a block of its query rows; threads share the
// items. A thread first transposes the head's keys into panels of `vectors` vectors of columns
// (panel, d, column), so that the product q k^T reads consecutive cache lines and keeps a tile of
// rows x vectors accumulators in registers. For one tile of rows it then
//   1. computes all scores into its scratch (rows x m, in the first-level cache),
//   2. adds the mask, subtracts the row's maximum, exponentiates and sums (one row at a time,
//      attention_softmax.h),
//   3. multiplies by v, whose rows are read where they lie, and divides by the sums at the end,
//      d numbers a row instead of m.
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
// q, k and v may be of bf16 or of f16, with scores and sums in f32. "factors": "narrow" multiplies
// them in pairs (Fragments.def): keys and values are packed for that on the way in
// (attention_pairs.h), query rows copied with zeros behind the last, and weights rounded to their
// type, as which they are also stored. "wide" converts what it reads, keys and values as they are
// copied: for targets without instructions for the pairs, and where few rows stream what is stored
// narrow, whose time is that of reading it.
//
// q, k and v may be slices of one matrix (b, n, 3*heads*d): they are addressed by the strides that
// GroupEvaluator finds.
#include <algorithm>

#include "compiler/kernels/fragments.h"
#include "compiler/kernels/templates/attention_operands.h"
#include "compiler/kernels/templates/attention_pairs.h"
#include "compiler/kernels/templates/attention_softmax.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/row_tiles.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/tile.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
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

// Values of the knob "factors", of operands of 16 bits.
constexpr const char* kNarrow = "narrow";  // as they are, in pairs
constexpr const char* kWide = "wide";      // converted to the type of the sums

constexpr int64_t kAhead = 24;  // rows between a key or value and its prefetch

using Plan = AttentionOperands;

bool is_narrow(const Config& c) {
  return c.contains("factors") && knob_text(c, "factors") == kNarrow;
}

class AttentionLowering {
 public:
  AttentionLowering(const Workload& w, const Plan& p, const Config& c, const TargetInfo& t)
      : w_(w),
        p_(p),
        frame_(make_frame(w)),
        group_(*w.group, frame_.parameters),
        call_(*frame_.anchor->value),
        lanes_(lanes_of(t, p.result)),
        rows_(static_cast<int>(knob_int(c, "rows"))),
        vectors_(static_cast<int>(knob_int(c, "vectors"))),
        block_(knob_int(c, "block")),
        tails_(knob_text(c, "tails")),
        pack_values_(knob_text(c, "values") == kPacked),
        streamed_(knob_text(c, "values") == kStreamed),
        fragment_(is_narrow(c) ? fragment_of(p.type, p.type, p.result) : std::nullopt),
        width_(lanes_ * vectors_),
        panels_(ir::ceildiv(p.m, width_)),
        tiles_(p.n, rows_, tails_, 0, "a"),
        softmax_(p, lanes_, rows_, panels_ * width_, mask()) {
    const DType packed = fragment_ ? p.type : p.result;
    value_stride_ = (p.dv + lanes_ - 1) / lanes_ * lanes_;
    // The second product's tile is as wide as the head allows.
    const int head_vectors = static_cast<int>(value_stride_ / lanes_);
    if (fragment_) {
      softmax_.round_weights(lanes_);
      query_pitch_ = whole_row(p.d, lanes_);
      queries_ = kb::buffer("queries", Scope::kThread, packed, query_pitch_ * rows_);
      square_ = turning_square(lanes_);
      key_pairs_ = {nullptr, (p.d + kPair - 1) / kPair, vectors_, lanes_};
      value_pairs_ = {nullptr, ir::ceildiv(p.m, kPair), head_vectors, lanes_};
    }
    // Keys of a panel, and values, by whole groups of k.
    const Dim depth = fragment_ ? key_pairs_.pairs * kPair : Dim(p.d);
    const Dim length = fragment_ ? value_pairs_.pairs * kPair : p.m;
    keys_ = kb::buffer("keys", Scope::kThread, packed, panels_ * width_ * depth);
    values_ = kb::buffer("values", Scope::kThread, packed, length * value_stride_);
    key_pairs_.buffer = keys_;
    value_pairs_.buffer = values_;
    out_vectors_ = 1;
    for (int v = 2; v <= 4; ++v)
      if (head_vectors % v == 0 && rows_ <= max_tile_rows(t, v)) out_vectors_ = v;
    const int widest = std::max(vectors_, out_vectors_);
    accumulators_ = kb::buffer("acc", Scope::kRegister, p.result, rows_ * widest, lanes_);
    panel_ = panel_registers(p.result, widest, lanes_, fragment_);
    query_ = kb::buffer("query", Scope::kRegister, p.result, (p.d + lanes_ - 1) / lanes_, lanes_);
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
    if (!streamed_) body.push_back(fragment_ ? pack_key_pairs() : pack_keys());
    if (pack_values_) body.push_back(fragment_ ? pack_value_pairs() : pack_values());
    const Dim first = at[2] * block_;
    body.push_back(tiles_.for_each(
        first, ir::min(tiles_.count() - first, block_),
        [&](const RowTiles::Tile& t) { return streamed_ ? score_rows(t) : score_tile(t); },
        [&](const RowTiles::Tile& t) {
          return kb::seq({softmax_.rows(0, t.valid, t.row), by_size(t)});
        }));
    all.push_back(kb::loop(LoopKind::kThread, "item", 0, p_.batch * p_.heads * block_count,
                           kb::seq(std::move(body))));
    std::vector<kir::BufferRef> scratch = softmax_.scratch();
    std::vector<kir::BufferRef> registers = {accumulators_, panel_};
    for (const kir::BufferRef& b : softmax_.registers()) registers.push_back(b);
    if (streamed_) {
      registers.push_back(query_);
    } else {
      scratch.push_back(keys_);
    }
    if (pack_values_) scratch.push_back(values_);
    if (fragment_) scratch.insert(scratch.end(), {queries_, square_});
    return make_function(w_, frame_, name, std::move(scratch), std::move(registers),
                         kb::seq(std::move(all)));
  }

 private:
  // Where an element of q, k or v lies.
  std::pair<kir::BufferRef, Dim> place(size_t operand, const Dim& row, const Dim& column) {
    const ValueRef v = group_.value(call_.args[operand], {b_, row, column}, 1);
    const kir::Value* load = loaded(v);
    NIMBLE_CHECK(load, "operand {} of attention is computed", operand);
    return {load->buffer, load->index};
  }
  // The same of the head's part.
  HeadPlace place_in_head(size_t operand) {
    const int64_t width = operand == 2 ? p_.dv : p_.d;
    return [this, operand, width](const Dim& row, const Dim& column) {
      return place(operand, row, h_ * width + column);
    };
  }

  StmtRef pack_key_pairs() {
    return kernels::pack_keys(place_in_head(1), p_.d, p_.m, panels_, key_pairs_, square_);
  }
  StmtRef pack_value_pairs() {
    return kernels::pack_values(place_in_head(2), p_.dv, p_.m, value_pairs_);
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
      return kb::store(
          keys_, (tile * p_.d + column) * width_ + v * lanes_,
          kb::cast(p_.result, kb::load_strided(buffer, index, next - index, lanes_, valid)));
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
      body.push_back(
          kb::store(values_, row * value_stride_ + c,
                    kb::cast(p_.result, kb::load_strided(buffer, index, 1, lanes_, valid))));
    }
    return kb::loop(LoopKind::kSerial, "vr", 0, p_.m, kb::seq(std::move(body)));
  }

  RegisterTile product(int rows, int vectors) const {
    RegisterTile t;
    t.rows = rows;
    t.vectors = vectors;
    t.lanes = lanes_;
    t.dtype = p_.result;
    t.fragment = fragment_;
    t.accumulators = accumulators_;
    t.panel = panel_;
    return t;
  }

  StmtRef score_tile(const RowTiles::Tile& tile) {
    RegisterTile t = product(tile.rows, vectors_);
    const Dim column = Dim::symbol("sc");  // number of the panel
    const auto query = [&](const Dim& row) { return tiles_.row_of(tile, row); };
    std::vector<StmtRef> all;
    t.rhs = keys_;
    if (fragment_) {
      const auto copied = [&](const Dim& row) { return row * query_pitch_; };
      all.push_back(
          copy_rows(place_in_head(0), query, p_.d, tile.rows, queries_, copied, lanes_, "qr"));
      t.lhs = queries_;
      t.lhs_index = [&](const Dim& row, const Dim& k) { return row * query_pitch_ + k * kPair; };
      t.rhs_index = [&](const Dim& vector, const Dim& k) {
        return key_pairs_.at(column, k, vector);
      };
      t.k_extent = key_pairs_.pairs;
    } else {
      t.lhs = place(0, 0, 0).first;
      t.lhs_index = [&](const Dim& row, const Dim& k) {
        return place(0, query(row), h_ * p_.d + k).second;
      };
      t.rhs_index = [&](const Dim& vector, const Dim& k) {
        return (column * p_.d + k) * width_ + vector * lanes_;
      };
      t.k_extent = p_.d;
    }
    const Dim r = Dim::symbol("sr"), v = Dim::symbol("sv");
    StmtRef store = kb::loop(
        LoopKind::kUnroll, "sr", 0, tile.rows,
        kb::loop(LoopKind::kUnroll, "sv", 0, vectors_,
                 kb::store(softmax_.scores(), softmax_.score(r, column * width_ + v * lanes_),
                           kb::reg(accumulators_, r * vectors_ + v))));
    all.push_back(kb::loop(LoopKind::kSerial, "sc", 0, panels_,
                           kb::seq({tile_zero(t, "q"), tile_product(t, "q"), std::move(store)})));
    return all.size() == 1 ? all[0] : kb::seq(std::move(all));
  }

  // Scores of a tile from the keys where they lie.
  StmtRef score_rows(const RowTiles::Tile& tile) {
    const Dim r = Dim::symbol("sr"), key = Dim::symbol("sk");
    const auto load = [&](size_t operand, const Dim& row, int64_t column) {
      const auto [buffer, index] = place(operand, row, h_ * p_.d + column);
      const bool whole = column + lanes_ <= p_.d;
      return kb::cast(p_.result, whole ? kb::load(buffer, index, lanes_)
                                       : kb::load_masked(buffer, index, lanes_, p_.d - column));
    };
    std::vector<StmtRef> row;
    for (int64_t c = 0; c < p_.d; c += lanes_)
      row.push_back(kb::set_reg(query_, c / lanes_, load(0, tiles_.row_of(tile, r), c)));
    // The softmax reads whole vectors: the last one's lanes behind the last key are zeros.
    const Dim last = ir::floordiv(p_.m, lanes_) * lanes_;
    row.push_back(
        kb::store(softmax_.scores(), softmax_.score(r, last), kb::number(p_.result, 0, lanes_)));
    std::vector<StmtRef> one = prefetch_row(1, key, p_.d);
    ValueRef sum = kb::mul(kb::reg(query_, 0), load(1, key, 0));
    for (int64_t c = lanes_; c < p_.d; c += lanes_)
      sum = kb::fma(kb::reg(query_, c / lanes_), load(1, key, c), sum);
    one.push_back(
        kb::store(softmax_.scores(), softmax_.score(r, key), kb::reduce(BinaryOp::kAdd, sum)));
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

  // The mask at keys from `column` on, as a number to add; null if there is none.
  AttentionSoftmax::Mask mask() {
    if (!p_.masked) return nullptr;
    return [this](const Dim& row, const Dim& column, const std::optional<Dim>& valid,
                  std::vector<StmtRef>& out) {
      const ir::Atom& a = call_.args[3];
      const MaskPlace where = mask_place(p_, a, {b_, h_, row, column});
      const ValueRef v = group_.value_along(a, where.at, where.step, lanes_, valid);
      for (StmtRef& s : group_.take_statements()) out.push_back(std::move(s));
      return mask_number(v, p_.result);
    };
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
    t.lhs = softmax_.weights();
    t.lhs_index = [&](const Dim& row, const Dim& k) {
      return softmax_.weight(row, fragment_ ? k * kPair : k);
    };
    t.rhs = pack_values_ ? values_ : place(2, 0, 0).first;
    t.rhs_index = [&](const Dim& vector, const Dim& k) {
      if (fragment_) return value_pairs_.at(0, k, group * out_vectors_ + vector);
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
    t.k_extent = fragment_ ? value_pairs_.pairs : p_.m;
    const Dim r = Dim::symbol("or"), v = Dim::symbol("ov");
    const ValueRef value =
        kb::mul(kb::reg(accumulators_, r * out_vectors_ + v), softmax_.factor(r, lanes_));
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
  std::optional<kir::Fragment> fragment_;  // of narrow factors
  int width_;
  Dim panels_;  // of keys
  RowTiles tiles_;
  AttentionSoftmax softmax_;
  int out_vectors_ = 1;
  int64_t value_stride_ = 0, query_pitch_ = 0;
  Dim b_, h_;
  kir::BufferRef keys_, values_, queries_, square_, accumulators_, panel_, query_;
  PairPanels key_pairs_, value_pairs_;
};

}  // namespace

bool AttentionTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return cpu_attention_of(w).has_value();
}

std::vector<Knob> AttentionTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto plan = cpu_attention_of(w);
  NIMBLE_CHECK(plan, "workload {} is not for attention", w.key);
  Knob values{"values", {kPacked, kInPlace}};
  if (streams_keys(*plan, t)) values.choices.emplace_back(kStreamed);
  std::vector<Knob> all = {int_knob("rows", {1, 2, 4, 6, 8, 10, 12, 13}),
                           int_knob("vectors", {1, 2, 3, 4}), int_knob("block", {4, 16, 64}),
                           tails_knob(/*residues=*/false), std::move(values)};
  if (is_narrow_float(plan->type)) all.push_back({"factors", {kNarrow, kWide}});
  return all;
}

bool AttentionTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  if (!within(knobs(w, t), c) || knob_int(c, "rows") > max_tile_rows(t, knob_int(c, "vectors")))
    return false;
  // Pairs of values are joined as they are copied, and surplus rows have no weights.
  return !is_narrow(c) ||
         (knob_text(c, "values") == kPacked && knob_text(c, "tails") != kTailsMasked);
}

Config AttentionTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto plan = cpu_attention_of(w);
  NIMBLE_CHECK(plan, "workload {} is not for attention", w.key);
  const bool streams = streams_keys(*plan, t);
  Config c;
  if (streams) {
    c = {{"rows", std::max<int64_t>(1, *plan->n.as_constant() / 2 * 2)},
         {"vectors", int64_t{1}},
         {"block", int64_t{4}},
         {"tails", kTailsEven},
         {"values", kStreamed}};
  } else {
    // Two vectors of keys, unless a row of few fills one or three.
    const int lanes = lanes_of(t, plan->result);
    const auto keys = plan->m.as_constant();
    const int64_t filled = keys ? (*keys + lanes - 1) / lanes : 0;
    const int64_t vectors = filled == 1 || filled == 3 ? filled : 2;
    const bool many = t.vector_registers >= 32;
    const int64_t rows = vectors > 2 ? (many ? 8 : 4) : (many ? 10 : 6);
    c = {{"rows", rows},
         {"vectors", vectors},
         {"block", int64_t{64}},
         {"tails", kTailsEven},
         {"values", kPacked}};
  }
  if (is_narrow_float(plan->type)) {
    const auto pairs = fragment_of(plan->type, plan->type, plan->result);
    const bool multiplied = pairs && kir::multiplies(kir::row_of(*pairs), t);
    c["factors"] = multiplied && !streams ? kNarrow : kWide;
  }
  return c;
}

Lowered AttentionTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                 const std::string& name) const {
  const auto plan = cpu_attention_of(w);
  NIMBLE_CHECK(plan && valid(w, c, t), "configuration {} of attention", to_json(c));
  return one_kernel(AttentionLowering(w, *plan, c, t).run(name));
}

}  // namespace nimble::kernels
