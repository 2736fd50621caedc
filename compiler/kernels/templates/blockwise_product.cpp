#include "compiler/kernels/templates/blockwise_product.h"

#include <algorithm>

#include "compiler/kernels/templates/knobs.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::StmtRef;
using kir::ValueRef;

std::optional<BlockwiseProduct> analyse_blockwise(const Workload& w, const TargetInfo& t) {
  if (w.anchor != "blockwise_matmul") return {};
  BlockwiseProduct p;
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
  p.row_dims = row_dims(p.frame);
  p.m = count_of(p.row_dims);
  return p;
}

int max_blockwise_rows(const BlockwiseProduct& p, const TargetInfo& t) {
  const int vectors = p.words.vectors;
  if (!p.bytes) return max_tile_rows(t, vectors);
  return std::clamp((t.vector_registers - 6) / (2 * vectors), 1, 8);
}

BlockwiseLowering::BlockwiseLowering(const Workload& w, const BlockwiseProduct& p, const Config& c,
                                     int residue)
    : w_(w),
      p_(p),
      vectors_(p.words.vectors),
      lanes_(p.words.lanes),
      width_(p.words.width),
      words_of_block_(p.form.block / p.form.per_word()),
      rows_(static_cast<int>(knob_int(c, "rows"))),
      sharing_{.by_rows = knob_text(c, "split") == "rows",
               .block_tiles = std::max<int64_t>(1, knob_int(c, "block_rows") / rows_),
               .panels = p.words.panels()},
      tiles_(p.m, rows_, knob_text(c, "tails"), residue, "m_"),
      words_(knob_int(c, "words")) {}

int64_t BlockwiseLowering::words_of_body(int64_t words) const {
  int64_t n = std::clamp<int64_t>(words_, 1, words);
  while (words % n != 0) --n;
  return n;
}

StmtRef BlockwiseLowering::each_word(const std::string& prefix, const Dim& first, const Dim& words,
                                     int64_t of_body,
                                     const std::function<StmtRef(const Dim& word)>& body) {
  const Dim w = Dim::symbol(prefix + "w"), u = Dim::symbol(prefix + "u");
  return kb::loop(
      LoopKind::kSerial, prefix + "w", 0, ir::floordiv(words, of_body),
      kb::loop(LoopKind::kUnroll, prefix + "u", 0, of_body, body(first + w * of_body + u)));
}

ValueRef BlockwiseLowering::word_bytes(const Dim& word, int v) const {
  const Dim at = p_.words.row_of_panel(Dim::symbol("p"), word) + v * lanes_;
  return kb::load(p_.weights, at * 4, 4 * lanes_);
}

Dim BlockwiseLowering::scale_at(const Dim& block, int v) const {
  return p_.blocks.row_of_panel(Dim::symbol("p"), block) + v * lanes_;
}

StmtRef BlockwiseLowering::store_row(const Dim& row, const std::function<ValueRef(int v)>& value,
                                     const std::string& prefix) const {
  const Dim p = Dim::symbol("p"), first = p * width_;
  const auto stores = [&](bool last) {
    ColumnVectors columns{last ? p_.words.last_vectors() : vectors_, lanes_, first, {}, prefix};
    if (last) columns.valid = p_.form.n - first;
    return store_columns(w_, p_.frame, unflatten(row, p_.row_dims), columns,
                         [&](int v, const Dim&, const std::optional<Dim>&) { return value(v); });
  };
  const int64_t full = p_.form.n / width_;
  if (full == 0) return stores(true);
  if (full == p_.words.panels()) return stores(false);
  return kb::if_then(kb::lt(p, full), stores(false), stores(true));
}

// A tile of the last panel takes as long as any, for words are packed in whole panels: a unit of
// work is a panel. Threads are at different blocks at a time. None waits for another, and what is
// made of a block, rounded rows and unpacked weights, lies in scratch of each thread's own.
StmtRef BlockwiseLowering::tiled() const {
  std::vector<StmtRef> in_panel = RowTiles::own_tiles(sharing_, sharing_.units);
  in_panel.push_back(panel());
  return tiles_.shared(
      sharing_, [&] { return prepare(); }, kb::seq(std::move(in_panel)));
}

Dim BlockwiseLowering::sums_at(const RowTiles::Tile& t, const Dim& row, const Dim& column) const {
  const Dim first = all_wait_ ? t.row - RowTiles::block_row() : Dim(0);
  return (first + row) * width_ + column;
}

StmtRef BlockwiseLowering::store_tile(const RowTiles::Tile& t) const {
  const Dim r = Dim::symbol("e_r");
  return kb::loop(
      LoopKind::kSerial, "e_r", 0, t.valid,
      store_row(
          t.row + r, [&](int v) { return kb::load(sums_, sums_at(t, r, v * lanes_), lanes_); },
          "e"));
}

StmtRef BlockwiseLowering::keep_tile(const RowTiles::Tile& t, const BufferRef& registers) const {
  return keep_sums(registers, t.rows, vectors_, sums_,
                   [&](const Dim& r, const Dim& v) { return sums_at(t, r, v * lanes_); });
}

}  // namespace nimble::kernels
