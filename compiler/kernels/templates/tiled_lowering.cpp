// Matrix product in matrix registers.
//
//   for each block of row tiles                  (left-hand rows that stay in the L2 cache)
//     for each panel of columns
//       for each few row tiles                   (their sums in matrix registers)
//         for each step of k                     (a tile's depth)
//           load the tiles of both sides, multiply each with each
//           a share of the epilogue of the product before
//         store the sums to a scratch of the thread
//
// Pairs of block and panel are numbered in this order and split over the threads. One region of
// matrix registers encloses all that a thread does: to shape them takes as long as a dozen
// products. Only where the epilogue checks something (an index, say), each product has its own.
//
// k is not cut into blocks. A step of 2 x 2 tiles takes 64 cycles of the unit that multiplies and
// 64 cache lines, which L2 delivers in 1.5 times as long. Blocks whose panel's part stays in L1
// would halve the lines, but their sums would be stored and loaded again, to and from L2 as well:
// measured, that loses more than it gains. Weights that come from L3 or memory arrive much slower
// still. The hardware's own prefetches of the forward stream do best; only where several groups of
// row tiles follow each other they also prefetch a share of the next panel each, as in "dense".
//
// What follows a product (bias, activation, stores) is work for the vectors, while its unit is
// idle; the next product is work for that unit, and waits for memory. So they are done together: a
// loop body of a product stores a few rows of the one before, whose sums wait in the scratch.
//
// Tiles of fewer rows take hardly less time, so rows are cut into as few as there can be: all of
// 16 rows, and the last begins 16 before the end, over rows of the tile before. It computes the
// same sums for them again. So all tiles have the same number of rows, the matrix's if these are
// less than 16, and one shape serves all.
//
// Where the rows are bytes of groups with scales (rounded_rows.h), each piece of k begins with
// zeros and its sums go through another scratch, from where they are added to those of the result.
//
// The elements of k behind the last full step are copied, of both sides, into scratch with zeros
// behind them: a row of the left-hand side must not be read beyond its end, and what stands behind
// it must not be multiplied, not even by zero. A block's are copied once for all panels, and not at
// all where zeros stand there already.
#include "compiler/kernels/templates/tiled_lowering.h"

#include <algorithm>

#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::StmtRef;

namespace {

// Prefetches are worth their places in the fill buffers if so many groups of row tiles share them.
constexpr int64_t kSharers = 4;

// A failed check leaves the function, which must not happen within a region.
bool has_check(const kir::Stmt& s) {
  return s.kind == kir::StmtKind::kCheck ||
         std::any_of(s.body.begin(), s.body.end(), [](const StmtRef& b) { return has_check(*b); });
}

class TiledLowering {
 public:
  TiledLowering(const Workload& w, const Frame& f, const TiledProduct& p, const Config& c)
      : w_(w),
        frame_(f),
        p_(p),
        panels_(tiled_panels(p, knob_int(c, "vectors"))),
        rows_(tile_rows(p.fragment)),
        depth_(tile_depth(p.fragment)),
        group_(kir::tile_row_of(p.fragment).group),
        row_tiles_(static_cast<int>(knob_int(c, "rows") / rows_)),
        unroll_(knob_int(c, "unroll")),
        prefetch_(knob_text(c, "prefetch") == "spread" && panels_.stored == panels_.width),
        block_tiles_(std::max<int64_t>(1, knob_int(c, "block_rows") / rows_)),
        full_steps_(p.depth / depth_),
        rest_(p.depth % depth_),
        operands_(*tile_operands_of(p.fragment, row_tiles_, panels_.vectors)) {
    const int64_t pieces = p.taps[0] * p.taps[1];
    NIMBLE_CHECK(rest_ == 0 || pieces == 1 || (p.filled && p.depth % group_ == 0),
                 "pieces of {} elements", p.depth);
    const kir::TileFragmentRow& f_row = kir::tile_row_of(p.fragment);
    acc_ = kb::tile_buffer("acc", f_row.sum, rows_, panels_.lanes, row_tiles_ * panels_.vectors);
    lhs_tiles_ = kb::tile_buffer("a", f_row.a, rows_, depth_, operands_.lhs);
    rhs_tiles_ =
        kb::tile_buffer("b", f_row.b, depth_ / group_, panels_.lanes * group_, operands_.rhs);
    sums_ = thread_scratch("sums", p.rounded ? DType::kF32 : f_row.sum, 2 * sums_of_job());
    if (p.rounded)
      piece_sums_ = thread_scratch("piece_sums", f_row.sum, row_tiles_ * rows_ * panels_.width);
    if (rest_ > 0) rhs_rest_ = thread_scratch("rhs_rest", f_row.b, pieces * depth_ * panels_.width);
    if (copies_lhs())
      lhs_rest_ = thread_scratch("lhs_rest", f_row.a, (block_tiles_ + 1) * rows_ * depth_);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> all = p_.ahead;
    const Dim thread = Dim::symbol("thread"), threads = Dim::symbol("threads");
    row_count_ = bind_dim("rows", p_.rows, all);
    tiles_ = bind_dim("tiles", ir::ceildiv(row_count_, rows_), all);
    blocks_ = bind_dim("blocks", ir::ceildiv(tiles_, block_tiles_), all);
    const Dim items = bind_dim("items", p_.images * blocks_ * items_of_block(), all);
    const Dim first = bind_dim("first_item", ir::floordiv(items * thread, threads), all);
    const Dim end = bind_dim("end_item", ir::floordiv(items * (thread + 1), threads), all);
    const Dim first_block = ir::floordiv(first, items_of_block());
    const auto blocks = [&] {
      return kb::loop(LoopKind::kSerial, "item_block", first_block,
                      ir::ceildiv(end, items_of_block()) - first_block, block(first, end));
    };
    StmtRef work = blocks();
    shaped_outside_ = !has_check(*work);
    all.push_back(shaped_outside_ ? shaped(std::move(work)) : blocks());
    std::vector<BufferRef> scratch = p_.scratch;
    scratch.push_back(sums_);
    if (rest_ > 0) scratch.push_back(rhs_rest_);
    if (copies_lhs()) scratch.push_back(lhs_rest_);
    std::vector<BufferRef> registers = {acc_, lhs_tiles_, rhs_tiles_};
    if (p_.rounded) {
      scratch.push_back(piece_sums_);
      registers.push_back(p_.rounded->extremes);
    }
    return make_function(w_, frame_, name, std::move(scratch), std::move(registers),
                         kb::seq(std::move(all)));
  }

 private:
  bool copies_lhs() const { return rest_ > 0 && !p_.filled; }
  int64_t items_of_block() const { return p_.groups * panels_.panels(); }

  Dim first_row(const Dim& tile) const {
    return ir::min(tile * rows_, ir::max(row_count_ - rows_, 0));
  }

  // A region of the matrix registers.
  StmtRef shaped(StmtRef body) const {
    const Dim rows = ir::max(ir::min(row_count_, rows_), 1);
    return kb::with_tiles({{acc_, rows}, {lhs_tiles_, rows}, {rhs_tiles_, depth_ / group_}},
                          std::move(body));
  }

  // The items [first, end) of block number "item_block".
  StmtRef block(const Dim& first, const Dim& end) {
    std::vector<StmtRef> body;
    const Dim number = Dim::symbol("item_block"), blocks = ir::max(blocks_, 1);
    const Dim block = blocks_.is_constant(1)     ? Dim(0)
                      : p_.images.is_constant(1) ? number
                                                 : ir::mod(number, blocks);
    image_ =
        p_.images.is_constant(1) ? Dim(0) : bind_dim("image", ir::floordiv(number, blocks), body);
    tile_begin_ = bind_dim("tile_begin", ir::floordiv(tiles_ * block, blocks), body);
    tile_count_ =
        bind_dim("tile_count", ir::floordiv(tiles_ * (block + 1), blocks) - tile_begin_, body);
    if (prefetch_ && full_steps_ > 0)
      share_ = bind_dim(
          "share", ir::ceildiv(lines_per_body(), ir::max(ir::ceildiv(tile_count_, row_tiles_), 1)),
          body);
    const Dim before = number * items_of_block();
    first_item_ = bind_dim("begin_here", ir::max(first - before, 0), body);
    const Dim count = ir::min(end - before, items_of_block()) - first_item_;
    row_groups_ = bind_dim("row_groups", ir::max(ir::ceildiv(tile_count_, row_tiles_), 1), body);
    const Dim jobs = bind_dim("jobs", ir::max(count, 0) * row_groups_, body);
    if (copies_lhs()) {
      // Groups of columns have one left-hand side where there is a rest, or each its own.
      rest_row_ = bind_dim("rest_row", first_row(tile_begin_), body);
      if (p_.groups == 1) body.push_back(copy_lhs_rest(0));
    }
    body.push_back(kb::loop(LoopKind::kSerial, "job", 0, jobs + 1, one_job(jobs)));
    return kb::seq(std::move(body));
  }

  // ---- jobs

  // A product of a few row tiles by a panel. The jobs of a block are numbered, panel by panel.
  struct Job {
    Dim group, panel;         // of columns
    Dim number, tile, tiles;  // of the block's groups of row tiles; the first tile; how many
    Dim row, count;           // rows that are to be stored
    Dim sums;                 // their place in the scratch
  };

  Job job_of(std::vector<StmtRef>& out, const std::string& prefix, const Dim& number) const {
    const auto name = [&](const char* symbol, const Dim& d) {
      return bind_dim(prefix + symbol, d, out);
    };
    Job j;
    const Dim item = name("item", first_item_ + ir::floordiv(number, row_groups_));
    j.group = p_.groups == 1 ? Dim(0) : name("group", ir::floordiv(item, panels_.panels()));
    j.panel = p_.groups == 1 ? item : name("panel", ir::mod(item, panels_.panels()));
    j.number = name("q", ir::mod(number, row_groups_));
    j.tile = name("tile", tile_begin_ + j.number * row_tiles_);
    j.tiles = name("tiles_here", ir::min(tile_count_ - j.number * row_tiles_, row_tiles_));
    j.row = name("row", j.tile * rows_);
    j.count = name("count", ir::min(row_count_ - j.row, j.tiles * rows_));
    j.sums = name("sums", ir::mod(number, 2) * sums_of_job());
    return j;
  }

  // The product of job number "job", and what follows of the job before it, if there are these.
  StmtRef one_job(const Dim& jobs) {
    std::vector<StmtRef> body, work;
    const Dim number = Dim::symbol("job");
    const Job now = job_of(body, "", number);
    Job last = job_of(body, "last_", ir::max(number - 1, 0));
    last.count = bind_dim("last_stored", last.count * ir::min(number, 1), body);
    if (copies_lhs() && p_.groups > 1) {
      // For the panels of a group, the first of which a thread may enter anywhere.
      const auto first = kb::both(kb::eq(now.number, 0), kb::eq(now.panel, 0));
      work.push_back(kb::if_then(first, copy_lhs_rest(now.group)));
      work.push_back(
          kb::if_then(kb::both(kb::eq(number, 0), kb::lt(0, now.panel)), copy_lhs_rest(now.group)));
    }
    if (rest_ > 0) work.push_back(kb::if_then(kb::eq(now.number, 0), copy_rhs_rest(now)));
    StmtRef chain;
    for (int t = 1; t <= row_tiles_; ++t) {
      if (!occurs(t)) continue;
      StmtRef some = product(t, now, last);
      chain = chain ? kb::if_then(kb::eq(now.tiles, t), std::move(some), std::move(chain))
                    : std::move(some);
    }
    work.push_back(std::move(chain));
    StmtRef alone = epilogue(last, 0, last.count);
    if (shaped_outside_) {
      body.push_back(kb::if_then(kb::lt(number, jobs), kb::seq(std::move(work)), std::move(alone)));
    } else {
      body.push_back(std::move(alone));
      body.push_back(kb::if_then(kb::lt(number, jobs), kb::seq(std::move(work))));
    }
    return kb::seq(std::move(body));
  }

  // Whether so many row tiles may be multiplied at a time.
  bool occurs(int row_tiles) const {
    const auto all = tiles_.as_constant();
    if (!all || *all == 0 || !blocks_.is_constant(1)) return true;
    return row_tiles == row_tiles_ ? *all >= row_tiles_ : *all % row_tiles_ == row_tiles;
  }

  // ---- one product

  // Where the tiles of a side begin.
  struct Side {
    BufferRef from;
    std::function<Dim(int tile)> at;
    Dim pitch;
  };

  // Each of the row tiles with each vector of columns, by one step of k.
  StmtRef step(int row_tiles, const Side& lhs, const Side& rhs) const {
    std::vector<StmtRef> all;
    const int vectors = panels_.vectors;
    const auto load_lhs = [&](int i) {
      all.push_back(kb::tile_load(lhs_tiles_, i % operands_.lhs, lhs.from, lhs.at(i), lhs.pitch));
    };
    const auto load_rhs = [&](int v) {
      all.push_back(kb::tile_load(rhs_tiles_, v % operands_.rhs, rhs.from, rhs.at(v), rhs.pitch));
    };
    const auto dot = [&](int i, int v) {
      all.push_back(kb::tile_dot(p_.fragment, acc_, i * vectors + v, lhs_tiles_, i % operands_.lhs,
                                 rhs_tiles_, v % operands_.rhs));
    };
    // Products with the same right-hand tile follow each other, as far as that goes.
    if (row_tiles_ <= vectors) {
      for (int i = 0; i < row_tiles; ++i) load_lhs(i);
      for (int v = 0; v < vectors; ++v) {
        load_rhs(v);
        for (int i = 0; i < row_tiles; ++i) dot(i, v);
      }
    } else {
      for (int v = 0; v < vectors; ++v) load_rhs(v);
      for (int i = 0; i < row_tiles; ++i) {
        load_lhs(i);
        for (int v = 0; v < vectors; ++v) dot(i, v);
      }
    }
    return kb::seq(std::move(all));
  }

  // The sums of a job with so many row tiles, to the scratch; beside it, what follows of `last`.
  StmtRef product(int row_tiles, const Job& now, const Job& last) const {
    std::vector<StmtRef> all;
    std::vector<Dim> rows;
    for (int i = 0; i < row_tiles; ++i)
      rows.push_back(bind_dim("row" + std::to_string(i), first_row(now.tile + i), all));
    all.push_back(p_.rounded ? zero_totals(now) : zero_tiles(row_tiles));
    if (full_steps_ > 0 || p_.filled) all.push_back(pieces(row_tiles, rows, now, last));
    if (shaped_outside_ && bodies() == 0) all.push_back(epilogue(last, 0, last.count));
    if (copies_lhs()) {
      const Side lhs{lhs_rest_, [&](int i) { return (rows[i] - rest_row_) * depth_; }, depth_};
      all.push_back(step(row_tiles, lhs, rhs_rest(0)));
    }
    for (int i = 0; !p_.rounded && i < row_tiles; ++i)
      for (int v = 0; v < panels_.vectors; ++v)
        all.push_back(kb::tile_store(sums_, sum_at(now, rows[i] - now.row, v), panels_.width, acc_,
                                     i * panels_.vectors + v));
    StmtRef whole = kb::seq(std::move(all));
    return shaped_outside_ ? whole : shaped(std::move(whole));
  }

  // Loop bodies of a product: those of each piece of k, and of all.
  int64_t bodies_of_piece() const { return full_steps_ / unroll_; }
  int64_t bodies() const { return bodies_of_piece() * p_.taps[0] * p_.taps[1]; }

  // The full steps of all pieces of k.
  StmtRef pieces(int row_tiles, const std::vector<Dim>& rows, const Job& now,
                 const Job& last) const {
    const Dim i = p_.taps[0] == 1 ? Dim(0) : Dim::symbol("i");
    const Dim j = p_.taps[1] == 1 ? Dim(0) : Dim::symbol("j");
    const Dim piece = i * p_.taps[1] + j;
    std::vector<StmtRef> all;
    if (p_.rounded) all.push_back(zero_tiles(row_tiles));
    std::vector<Dim> lhs_rows;
    const Dim left = bind_dim("left", p_.lhs_at(image_, now.group, i, j), all);
    for (int r = 0; r < row_tiles; ++r)
      lhs_rows.push_back(bind_dim("left" + std::to_string(r), left + rows[r] * p_.pitch, all));
    const Dim right = bind_dim("right", rhs_at(now, piece * (p_.depth / group_)), all);
    const auto one = [&](const Dim& s) {
      const Side lhs{p_.lhs, [&](int r) { return lhs_rows[r] + s * depth_; }, p_.pitch};
      const Side rhs{
          p_.rhs,
          [&](int v) { return right + panels_.distance(s * (depth_ / group_), v * panels_.lanes); },
          panels_.stored * group_};
      return step(row_tiles, lhs, rhs);
    };
    const int64_t bodies = bodies_of_piece();
    if (bodies > 0) {
      const Dim at = Dim::symbol("s"), number = piece * bodies + at;
      std::vector<StmtRef> body;
      if (prefetch_) body.push_back(prefetches(now, number));
      for (int64_t u = 0; u < unroll_; ++u) body.push_back(one(at * unroll_ + u));
      if (shaped_outside_) body.push_back(slice(last, number));
      all.push_back(kb::loop(LoopKind::kSerial, "s", 0, bodies, kb::seq(std::move(body))));
    }
    for (int64_t s = bodies * unroll_; s < full_steps_; ++s) all.push_back(one(s));
    if (p_.filled && rest_ > 0) {
      const Side lhs{p_.lhs, [&](int r) { return lhs_rows[r] + full_steps_ * depth_; }, p_.pitch};
      all.push_back(step(row_tiles, lhs, rhs_rest(piece)));
    }
    if (p_.rounded) all.push_back(add_piece(row_tiles, rows, now, piece));
    StmtRef loop = kb::seq(std::move(all));
    if (p_.taps[1] > 1) loop = kb::loop(LoopKind::kSerial, "j", 0, p_.taps[1], std::move(loop));
    if (p_.taps[0] > 1) loop = kb::loop(LoopKind::kSerial, "i", 0, p_.taps[0], std::move(loop));
    return loop;
  }

  StmtRef zero_tiles(int row_tiles) const {
    std::vector<StmtRef> all;
    for (int s = 0; s < row_tiles * panels_.vectors; ++s) all.push_back(kb::tile_zero(acc_, s));
    return kb::seq(std::move(all));
  }

  // ---- pieces with scales of their own

  // The result's sums of a job, of no piece yet.
  StmtRef zero_totals(const Job& now) const {
    std::vector<StmtRef> row;
    for (int v = 0; v < panels_.vectors; ++v)
      row.push_back(kb::store(sums_, sum_at(now, Dim::symbol("z_r"), v),
                              kb::number(DType::kF32, 0, panels_.lanes)));
    return kb::loop(LoopKind::kSerial, "z_r", 0, now.count, kb::seq(std::move(row)));
  }

  // Adds the sums of a piece to those of the result. The rows that the last tile computes again
  // (its first ones) were added with the tile before.
  StmtRef add_piece(int row_tiles, const std::vector<Dim>& rows, const Job& now,
                    const Dim& piece) const {
    const Dim r = Dim::symbol("a_r");
    const auto place = [&](const Dim& row, int v) {
      return row * panels_.width + v * panels_.lanes;
    };
    std::vector<StmtRef> all;
    p_.rounded->name_columns(piece, now.panel * panels_.width, panels_.vectors, panels_.lanes, "a_",
                             all);
    for (int i = 0; i < row_tiles; ++i)
      for (int v = 0; v < panels_.vectors; ++v)
        all.push_back(kb::tile_store(piece_sums_, place(i * rows_, v), panels_.width, acc_,
                                     i * panels_.vectors + v));
    for (int i = 0; i < row_tiles; ++i) {
      const Dim first = now.row + i * rows_;
      std::vector<StmtRef> row;
      p_.rounded->name_row(piece, first + r, panels_.lanes, "a_", row);
      for (int v = 0; v < panels_.vectors; ++v) {
        const Dim to = sum_at(now, i * rows_ + r, v);
        row.push_back(kb::store(
            sums_, to,
            RoundedRows::added(
                kb::load(piece_sums_, place(i * rows_ + first - rows[i] + r, v), panels_.lanes),
                kb::load(sums_, to, panels_.lanes), v, panels_.lanes, "a_", "a_")));
      }
      all.push_back(kb::loop(LoopKind::kSerial, "a_r", 0, ir::min(row_count_ - first, rows_),
                             kb::seq(std::move(row))));
    }
    return kb::seq(std::move(all));
  }

  // First element of a step of the panel. Each group of columns begins a panel.
  Dim rhs_at(const Job& now, const Dim& step) const {
    const int64_t parts = panels_.stored / panels_.width;
    const int64_t of_group = (panels_.n + panels_.stored - 1) / panels_.stored * parts;
    return panels_.row_of_panel(now.group * of_group + now.panel, step);
  }

  int64_t lines_per_body() const {
    return lines_of(unroll_ * depth_ * panels_.width, p_.rhs->dtype);
  }
  // The job's share of the lines that one loop body's part of the next panel holds: panels lie one
  // behind the other.
  StmtRef prefetches(const Job& now, const Dim& body) const {
    const Dim next = rhs_at(now, 0) + panels_.steps() * panels_.width * group_;
    const Dim first = next + (now.number * bodies() + body) * share_ * line_elements(p_.rhs->dtype);
    return kb::if_then(kb::le(share_ * kSharers, lines_per_body()),
                       prefetch_share(p_.rhs, first, now.number, share_, lines_per_body()));
  }

  // ---- what is left of k

  // The last elements of the block's rows, and zeros.
  StmtRef copy_lhs_rest(const Dim& group) const {
    const Dim r = Dim::symbol("rest_r");
    const Dim end = ir::min((tile_begin_ + tile_count_) * rows_, row_count_);
    const Dim from =
        p_.lhs_at(image_, group, 0, 0) + (rest_row_ + r) * p_.pitch + full_steps_ * depth_;
    return kb::loop(LoopKind::kSerial, "rest_r", 0, end - rest_row_,
                    kb::store(lhs_rest_, r * depth_, kb::load_masked(p_.lhs, from, depth_, rest_)));
  }

  // The copy of the panel's last groups of rows of a piece.
  Side rhs_rest(const Dim& piece) const {
    const Dim first = piece * (depth_ * panels_.width);
    return {rhs_rest_, [=, this](int v) { return first + v * panels_.lanes * group_; },
            panels_.width * group_};
  }

  // The last groups of rows of each piece of the panel, and zeros.
  StmtRef copy_rhs_rest(const Job& now) const {
    const int64_t first = full_steps_ * (depth_ / group_), steps = (p_.depth + group_ - 1) / group_;
    const int width = panels_.lanes * static_cast<int>(group_);
    const DType dtype = p_.rhs->dtype;
    const Dim piece = Dim::symbol("rest_piece");
    const Side to = rhs_rest(piece);
    std::vector<StmtRef> all;
    for (int64_t r = 0; r < depth_ / group_; ++r)
      for (int v = 0; v < panels_.vectors; ++v) {
        const Dim from = rhs_at(now, piece * steps + first + r) + v * width;
        kir::ValueRef value =
            first + r < steps ? kb::load(p_.rhs, from, width) : kb::number(dtype, 0, width);
        all.push_back(kb::store(rhs_rest_, to.at(v) + r * to.pitch, std::move(value)));
      }
    return kb::loop(LoopKind::kSerial, "rest_piece", 0, p_.taps[0] * p_.taps[1],
                    kb::seq(std::move(all)));
  }

  // ---- what follows

  // Elements of a job's sums. As many rows as a tile has may stand ahead of the first.
  int64_t sums_of_job() const { return (row_tiles_ + 1) * rows_ * panels_.width; }
  Dim sum_at(const Job& j, const Dim& row, int v) const {
    return j.sums + (row + rows_) * panels_.width + v * panels_.lanes;
  }

  // A loop body's share of the epilogue.
  StmtRef slice(const Job& last, const Dim& body) const {
    const int64_t all = int64_t{row_tiles_} * rows_, share = (all + bodies() - 1) / bodies();
    const Dim from = body * share;
    return kb::if_then(kb::lt(from, last.count),
                       epilogue(last, from, ir::min(last.count - from, share)));
  }

  // Stores `count` rows of a job from its row `from` on.
  StmtRef epilogue(const Job& j, const Dim& from, const Dim& count) const {
    const auto rows = [&](bool masked) {
      TiledRows r;
      r.image = image_;
      r.row = j.row + from;
      r.count = count;
      r.group = j.group;
      r.column = j.panel * panels_.width;
      r.vectors = panels_.vectors;
      r.lanes = panels_.lanes;
      r.masked = masked;
      r.sum = [&](const Dim& at, int v) {
        return kb::load(sums_, sum_at(j, from + at, v), panels_.lanes);
      };
      return p_.store(r);
    };
    const int64_t full = panels_.n / panels_.width;
    if (full == panels_.panels()) return rows(false);
    if (full == 0) return rows(true);
    StmtRef whole = rows(false);
    return kb::if_then(kb::lt(j.panel, full), std::move(whole), rows(true));
  }

  const Workload& w_;
  const Frame& frame_;
  const TiledProduct& p_;
  Panels panels_;
  int rows_, depth_;  // of a tile
  int64_t group_;
  int row_tiles_;
  int64_t unroll_;
  bool prefetch_;
  int64_t block_tiles_;
  int64_t full_steps_, rest_;  // of a piece of k; the rest in elements
  TileOperands operands_;
  bool shaped_outside_ = true;  // by a region around all work, not by one for each product
  BufferRef acc_, lhs_tiles_, rhs_tiles_, sums_, lhs_rest_, rhs_rest_;
  BufferRef piece_sums_;  // null unless pieces have scales of their own
  Dim row_count_, tiles_, blocks_;
  // Of a block.
  Dim image_, tile_begin_, tile_count_, share_, rest_row_, first_item_, row_groups_;
};

}  // namespace

kir::Function lower_tiled_product(const Workload& w, const Frame& f, const TiledProduct& p,
                                  const Config& c, const std::string& name) {
  return TiledLowering(w, f, p, c).run(name);
}

}  // namespace nimble::kernels
