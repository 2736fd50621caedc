// What the kernels of the template "blockwise" share: the product that a workload states, words of
// its weights, blocks of row tiles. blockwise.cpp has the method.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/blockwise.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/row_tiles.h"
#include "compiler/kernels/templates/tile.h"

namespace nimble::kernels {

struct BlockwiseProduct {
  Frame frame;
  ir::Blockwise form;
  kir::BufferRef lhs, weights, scales, zeros;  // zeros: null without
  bool bytes = false;                          // activations are rounded to bytes
  Panels words;                                // the weights; a step is a word of each column
  Panels blocks;                               // scales and zeros; a step is a block
  std::vector<Dim> row_dims;                   // the result's axes but the last
  Dim m;                                       // rows: their product
};

// Nothing if the template does not serve the workload.
std::optional<BlockwiseProduct> analyse_blockwise(const Workload& w, const TargetInfo& t);

// The rows of a tile: by registers of f32, or of bytes, where each element has two sums.
int max_blockwise_rows(const BlockwiseProduct& p, const TargetInfo& t);

// The kernel on activations that are rounded to bytes (blockwise_bytes.cpp).
kir::Function lower_blockwise_bytes(const Workload& w, const BlockwiseProduct& p, const Config& c,
                                    int residue, const std::string& name);

// Blocks of row tiles by panels of columns, in even shares for the threads or a range of the rows
// for each.
class BlockwiseLowering {
 public:
  BlockwiseLowering(const Workload& w, const BlockwiseProduct& p, const Config& c, int residue);
  virtual ~BlockwiseLowering() = default;

 protected:
  // What a thread does ahead for the rows of a block of tiles, in memory of its own.
  virtual std::vector<kir::StmtRef> prepare() const = 0;
  // The thread's tiles of a block (RowTiles::own_tiles) by the panel "p".
  virtual kir::StmtRef panel() const = 0;
  kir::StmtRef tiled() const;

  int64_t k() const { return p_.form.k; }
  int64_t block_rows() const { return sharing_.block_tiles * rows_; }
  int64_t whole_blocks() const { return k() / p_.form.block; }
  // "name3".
  static std::string numbered(const std::string& name, int64_t i) {
    return name + std::to_string(i);
  }

  // Words of a loop body: the knob, or less that divides a block's words.
  int64_t words_of_body(int64_t words) const;
  // A loop over `words` words, a multiple of `of_body`, from `first` on.
  static kir::StmtRef each_word(const std::string& prefix, const Dim& first, const Dim& words,
                                int64_t of_body,
                                const std::function<kir::StmtRef(const Dim& word)>& body);

  // Column vector v of panel "p": the word's bytes, and where the block's scales stand.
  kir::ValueRef word_bytes(const Dim& word, int v) const;
  Dim scale_at(const Dim& block, int v) const;

  // Stores the results of row `row`, `value` giving vector v of them.
  kir::StmtRef store_row(const Dim& row, const std::function<kir::ValueRef(int v)>& value,
                         const std::string& prefix) const;

  // The sums of a tile wait in a scratch, from where its results are stored: those of one tile, or
  // (all_wait_) of all tiles of a block.
  Dim sums_at(const RowTiles::Tile& t, const Dim& row, const Dim& column) const;
  kir::StmtRef keep_tile(const RowTiles::Tile& t, const kir::BufferRef& registers) const;
  kir::StmtRef store_tile(const RowTiles::Tile& t) const;

  const Workload& w_;
  const BlockwiseProduct& p_;
  int vectors_, lanes_;
  int64_t width_;           // columns of a panel as tiles take it
  int64_t words_of_block_;  // of a column
  int rows_;                // of a tile
  RowTiles::Sharing sharing_;
  RowTiles tiles_;
  bool all_wait_ = false;
  kir::BufferRef sums_;

 private:
  int64_t words_;
};

}  // namespace nimble::kernels
