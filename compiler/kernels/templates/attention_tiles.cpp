// The template "attention_tiles": "attention" (attention.cpp) for targets with matrix registers, of
// operands of bf16 or f16.
//
//   for each head and block of its query rows               (split over the threads)
//     pack the head's keys and values as tiles              (attention_pairs.h)
//     for each few tiles of query rows
//       copy the rows, with zeros up to a tile's depth
//       scores = rows x keys                                (sums stored to scratch, f32)
//       softmax, weights rounded to the operands' type      (attention_softmax.h)
//       result = weights x values                           (stored to scratch, then scaled)
//
// Keys are columns of the first product, whose k runs along a head, values those of the second,
// whose k runs over the keys: both are packed so that a tile of the second factor is 16 rows one
// behind the other, a KiB. Zeros stand behind a head's last element, behind the last key, in its
// weights and in the values, since a matrix register's products have no masks.
//
// As in a product (tiled_lowering.cpp) one region of matrix registers encloses all that a thread
// does, and rows are cut into tiles of 16 of which the last begins 16 before the end: all have the
// same number of rows, the matrix's if these are less. It computes the rows of the tile before
// again, and stores them not.
//
// Few known query rows are the other template's, which streams what would be packed for them.
#include <algorithm>
#include <array>

#include "compiler/kernels/templates/attention_operands.h"
#include "compiler/kernels/templates/attention_pairs.h"
#include "compiler/kernels/templates/attention_softmax.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/tiled_lowering.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;
using Dims = std::vector<Dim>;

struct Plan : AttentionOperands {
  kir::TileFragment fragment{};
};

std::optional<Plan> analyse(const Workload& w, const TargetInfo& t) {
  const auto operands = cpu_attention_of(w);
  // A check leaves the function, which must not happen within a region.
  if (!operands || has_index(w) || streams_keys(*operands, t)) return std::nullopt;
  const auto fragment = tile_fragment_of(t, operands->type, operands->type, operands->result);
  if (!fragment) return std::nullopt;
  Plan p{*operands, *fragment};
  return p;
}

// Whether the sums of so many row tiles by so many vectors leave registers for a tile of each row
// tile and of each vector.
bool fits(kir::TileFragment f, int64_t row_tiles, int64_t vectors) {
  const auto operands = tile_operands_of(f, row_tiles, vectors);
  return operands && operands->lhs == row_tiles && operands->rhs == vectors;
}

class AttentionTilesLowering {
 public:
  AttentionTilesLowering(const Workload& w, const Plan& p, const Config& c)
      : w_(w),
        p_(p),
        frame_(make_frame(w)),
        group_(*w.group, frame_.parameters),
        call_(*frame_.anchor->value),
        names_(w),
        height_(tile_rows(p.fragment)),
        lanes_(tile_columns(p.fragment)),
        depth_(tile_depth(p.fragment)),
        row_tiles_(static_cast<int>(knob_int(c, "rows")) / height_),
        vectors_(static_cast<int>(knob_int(c, "vectors"))),
        block_(knob_int(c, "block")),
        width_(whole_row(p.d, lanes_)),
        value_vectors_(static_cast<int>((p.dv + lanes_ - 1) / lanes_)),
        key_panels_(ir::ceildiv(p.m, lanes_ * vectors_) * vectors_),
        steps_(ir::ceildiv(p.m, depth_)),
        softmax_(p, lanes_, row_tiles_ * height_, key_panels_ * lanes_, mask()) {
    softmax_.round_weights(depth_);
    // Panels of values are multiplied by as many as divide them.
    out_vectors_ = vectors_;
    while (value_vectors_ % out_vectors_ != 0) --out_vectors_;
    const int64_t panel = int64_t{depth_} * lanes_;  // elements of a tile of the second factor
    queries_ = thread_scratch("queries", p.type, int64_t{row_tiles_} * height_ * width_);
    keys_ = {thread_scratch("keys", p.type, key_panels_ * (width_ * lanes_)), width_ / kPair, 1,
             lanes_};
    values_ = {thread_scratch("values", p.type, steps_ * (value_vectors_ * panel)),
               steps_ * (depth_ / kPair), 1, lanes_};
    square_ = turning_square(lanes_);
    sums_ =
        thread_scratch("totals", p.result, int64_t{row_tiles_} * height_ * out_vectors_ * lanes_);
    acc_ = kb::tile_buffer("acc", p.result, height_, lanes_, row_tiles_ * vectors_);
    lhs_ = kb::tile_buffer("a", p.type, height_, depth_, row_tiles_);
    rhs_ = kb::tile_buffer("b", p.type, depth_ / static_cast<int>(kPair),
                           lanes_ * static_cast<int>(kPair), vectors_);
  }

  kir::Function run(const std::string& name) {
    const Dim tiles = names_("tiles", ir::ceildiv(p_.n, height_));
    const Dim groups = names_("groups", ir::ceildiv(tiles, row_tiles_));
    const Dim blocks = names_("blocks", ir::ceildiv(groups, block_));
    const Dim items = names_("items", p_.batch * p_.heads * blocks);
    rows_ = names_("rows", ir::max(ir::min(p_.n, height_), 1));
    // Of the last tile: those that it has in common with the tile before begin ahead of its own.
    last_row_ = names_("last_row", ir::max(p_.n - height_, 0));
    std::vector<StmtRef> all = names_.statements();
    const Dim thread = Dim::symbol("thread"), threads = Dim::symbol("threads");
    const Dim first = bind_dim("first_item", ir::floordiv(items * thread, threads), all);
    const Dim end = bind_dim("end_item", ir::floordiv(items * (thread + 1), threads), all);

    std::vector<StmtRef> body;
    const Dims at =
        bind_coordinates("x", {p_.batch, Dim(p_.heads), blocks}, Dim::symbol("item"), body);
    b_ = at[0];
    h_ = at[1];
    body.push_back(pack_keys(head_of(1), p_.d, p_.m, key_panels_, keys_, square_));
    body.push_back(pack_values(head_of(2), p_.dv, p_.m, values_));
    const Dim begin = bind_dim("first_group", at[2] * block_, body);
    body.push_back(kb::loop(LoopKind::kSerial, "q", begin, ir::min(groups - begin, block_),
                            group_of_tiles(tiles)));
    all.push_back(kb::with_tiles(
        {{acc_, rows_}, {lhs_, rows_}, {rhs_, depth_ / kPair}},
        kb::loop(LoopKind::kSerial, "item", first, end - first, kb::seq(std::move(body)))));

    std::vector<BufferRef> scratch = softmax_.scratch();
    scratch.insert(scratch.end(), {queries_, keys_.buffer, values_.buffer, square_, sums_});
    std::vector<BufferRef> registers = {acc_, lhs_, rhs_};
    for (const BufferRef& b : softmax_.registers()) registers.push_back(b);
    return make_function(w_, frame_, name, std::move(scratch), std::move(registers),
                         kb::seq(std::move(all)));
  }

 private:
  // Where the head's part of q, k or v lies.
  HeadPlace head_of(size_t operand) {
    const int64_t width = operand == 2 ? p_.dv : p_.d;
    return [this, operand, width](const Dim& row, const Dim& column) {
      const ValueRef v = group_.value(call_.args[operand], {b_, row, h_ * width + column}, 1);
      const kir::Value* load = loaded(v);
      NIMBLE_CHECK(load, "operand {} of attention is computed", operand);
      return std::pair(load->buffer, load->index);
    };
  }

  AttentionSoftmax::Mask mask() {
    if (!p_.masked) return nullptr;
    return [this](const Dim& row, const Dim& key, const std::optional<Dim>& valid,
                  std::vector<StmtRef>& out) {
      const ir::Atom& a = call_.args[3];
      const MaskPlace where = mask_place(p_, a, {b_, h_, row, key});
      const ValueRef v = group_.value_along(a, where.at, where.step, lanes_, valid);
      for (StmtRef& s : group_.take_statements()) out.push_back(std::move(s));
      return mask_number(v, p_.result);
    };
  }

  // Group number "q" of row tiles.
  StmtRef group_of_tiles(const Dim& tiles) {
    const Dim first = Dim::symbol("q") * row_tiles_;
    std::vector<StmtRef> body;
    const Dim here = bind_dim("tiles_here", ir::min(tiles - first, row_tiles_), body);
    const auto each_tile = [&](const std::string& var, const auto& statement) {
      const Dim i = Dim::symbol(var);
      std::vector<StmtRef> one;
      const Dim row = bind_dim(var + "_row", ir::min((first + i) * height_, last_row_), one);
      one.push_back(statement(i, row));
      return kb::loop(LoopKind::kSerial, var, 0, here, kb::seq(std::move(one)));
    };
    body.push_back(each_tile("qi", [&](const Dim& i, const Dim& row) {
      return copy_rows(
          head_of(0), [&](const Dim& r) { return row + r; }, p_.d, rows_, queries_,
          [&](const Dim& r) { return (i * height_ + r) * width_; }, lanes_, "qr");
    }));
    body.push_back(by_number(here, [&](int row_tiles) { return scores(row_tiles); }));
    body.push_back(each_tile("xi", [&](const Dim& i, const Dim& row) {
      return softmax_.rows(i * height_, rows_, row);
    }));
    body.push_back(by_number(here, [&](int row_tiles) { return results(row_tiles, first); }));
    return kb::seq(std::move(body));
  }

  // Code for each number of row tiles that may be multiplied at a time.
  StmtRef by_number(const Dim& here, const std::function<StmtRef(int)>& code) const {
    if (const auto known = here.as_constant()) return code(static_cast<int>(*known));
    StmtRef chain;
    for (int n = 1; n <= row_tiles_; ++n) {
      StmtRef some = code(n);
      chain =
          chain ? kb::if_then(kb::eq(here, n), std::move(some), std::move(chain)) : std::move(some);
    }
    return chain;
  }

  // The sums of so many row tiles by so many vectors: `steps` steps of k, from where the factors of
  // step "k" begin.
  StmtRef product(int row_tiles, int vectors, const Dim& steps, const BufferRef& lhs,
                  const std::function<Dim(int tile)>& lhs_at, const Dim& pitch,
                  const PairPanels& rhs, const Dim& panel) const {
    std::vector<StmtRef> all, step;
    for (int s = 0; s < row_tiles * vectors; ++s) all.push_back(kb::tile_zero(acc_, s));
    const Dim k = Dim::symbol("k");
    for (int i = 0; i < row_tiles; ++i)
      step.push_back(kb::tile_load(lhs_, i, lhs, lhs_at(i) + k * depth_, pitch));
    for (int v = 0; v < vectors; ++v) {
      step.push_back(kb::tile_load(rhs_, v, rhs.buffer, rhs.at(panel + v, k * (depth_ / kPair), 0),
                                   lanes_ * kPair));
      for (int i = 0; i < row_tiles; ++i)
        step.push_back(kb::tile_dot(p_.fragment, acc_, i * vectors + v, lhs_, i, rhs_, v));
    }
    all.push_back(kb::loop(LoopKind::kSerial, "k", 0, steps, kb::seq(std::move(step))));
    return kb::seq(std::move(all));
  }

  StmtRef scores(int row_tiles) const {
    const Dim panel = Dim::symbol("sc") * vectors_;
    std::vector<StmtRef> all = {product(
        row_tiles, vectors_, width_ / depth_, queries_,
        [&](int i) { return Dim(int64_t{i} * height_ * width_); }, width_, keys_, panel)};
    for (int i = 0; i < row_tiles; ++i)
      for (int v = 0; v < vectors_; ++v)
        all.push_back(kb::tile_store(softmax_.scores(),
                                     softmax_.score(i * height_, (panel + v) * lanes_),
                                     softmax_.stride(), acc_, i * vectors_ + v));
    return kb::loop(LoopKind::kSerial, "sc", 0, ir::floordiv(key_panels_, vectors_),
                    kb::seq(std::move(all)));
  }

  StmtRef results(int row_tiles, const Dim& first) const {
    const Dim panel = Dim::symbol("og") * out_vectors_;
    const int64_t width = int64_t{out_vectors_} * lanes_;
    std::vector<StmtRef> all = {product(
        row_tiles, out_vectors_, steps_, softmax_.weights(),
        [&](int i) { return softmax_.weight(i * height_, 0); }, softmax_.weight_stride(), values_,
        panel)};
    for (int i = 0; i < row_tiles; ++i)
      for (int v = 0; v < out_vectors_; ++v)
        all.push_back(kb::tile_store(sums_, i * height_ * width + v * lanes_, width, acc_,
                                     i * out_vectors_ + v));
    // Rows of the last tile that the one before has stored begin ahead of its own.
    const Dim i = Dim::symbol("oi"), r = Dim::symbol("or");
    std::vector<StmtRef> tile;
    const Dim own = (first + i) * height_;
    const Dim from = bind_dim("o_row", ir::min(own, last_row_), tile);
    const Dim shared = bind_dim("o_shared", own - from, tile);
    ColumnVectors columns{out_vectors_, lanes_, h_ * p_.dv + panel * lanes_, {}};
    if (p_.dv % lanes_ != 0) columns.valid = p_.dv - panel * lanes_;
    const Dim row = i * height_ + r;
    tile.push_back(kb::loop(LoopKind::kSerial, "or", shared, rows_ - shared,
                            store_columns(w_, frame_, {b_, from + r}, columns,
                                          [&](int v, const Dim&, const std::optional<Dim>&) {
                                            return kb::mul(
                                                kb::load(sums_, row * width + v * lanes_, lanes_),
                                                softmax_.factor(row, lanes_));
                                          })));
    all.push_back(kb::loop(LoopKind::kSerial, "oi", 0, row_tiles, kb::seq(std::move(tile))));
    return kb::loop(LoopKind::kSerial, "og", 0, value_vectors_ / out_vectors_,
                    kb::seq(std::move(all)));
  }

  const Workload& w_;
  const Plan& p_;
  Frame frame_;
  GroupEvaluator group_;
  const ir::Expr& call_;
  NamedExtents names_;
  int height_, lanes_, depth_;  // of a tile: rows, columns of its sums, elements of k
  int row_tiles_, vectors_;     // multiplied at a time
  int64_t block_;
  int64_t width_;      // of a copied query row
  int value_vectors_;  // of a head
  Dim key_panels_;     // one vector of keys each; `vectors_` divides their number
  Dim steps_;          // of the second product
  AttentionSoftmax softmax_;
  int out_vectors_ = 1;
  Dim rows_, last_row_, b_, h_;
  BufferRef queries_, square_, sums_, acc_, lhs_, rhs_;
  PairPanels keys_, values_;
};

}  // namespace

bool AttentionTilesTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return analyse(w, t).has_value();
}

std::vector<Knob> AttentionTilesTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for attention_tiles", w.key);
  const int64_t height = tile_rows(p->fragment);
  Knob rows = int_knob("rows", {height, 2 * height, 3 * height});
  rows.tile = true;
  return {std::move(rows), int_knob("vectors", {1, 2, 3}), int_knob("block", {1, 4, 16, 64})};
}

bool AttentionTilesTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  return p && within(knobs(w, t), c) &&
         fits(p->fragment, knob_int(c, "rows") / tile_rows(p->fragment), knob_int(c, "vectors"));
}

Config AttentionTilesTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for attention_tiles", w.key);
  // Two by two load least for a product; what is known to be less is not filled up to that.
  const int64_t height = tile_rows(p->fragment), lanes = tile_columns(p->fragment);
  const auto n = p->n.as_constant(), m = p->m.as_constant();
  return {{"rows", n && *n <= height ? height : 2 * height},
          {"vectors", m && *m <= lanes ? int64_t{1} : int64_t{2}},
          {"block", int64_t{16}}};
}

Lowered AttentionTilesTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                      const std::string& name) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p && valid(w, c, t), "configuration {} of attention_tiles", to_json(c));
  return one_kernel(AttentionTilesLowering(w, *p, c).run(name));
}

}  // namespace nimble::kernels
