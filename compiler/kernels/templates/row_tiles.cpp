#include "compiler/kernels/templates/row_tiles.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace nimble::kernels {

namespace kb = kir::build;
using kir::LoopKind;
using kir::StmtRef;

int residue_kernels(const std::string& tails, int64_t rows) {
  const std::string_view all = kTailsResidue;
  if (!tails.starts_with(all)) return 1;
  if (tails.size() == all.size()) return static_cast<int>(rows);
  int count = 0;
  const char *from = tails.data() + all.size(), *end = tails.data() + tails.size();
  if (*from != '/') return 0;
  const auto [rest, error] = std::from_chars(from + 1, end, count);
  const bool divides = error == std::errc() && rest == end && count > 1 && count < rows;
  return divides && rows % count == 0 ? count : 0;
}

int most_threads(const Dim& m, int64_t rows, int64_t units) {
  const auto known = m.as_constant();
  if (!known) return 0;
  const int64_t tiles = (*known + rows - 1) / rows;
  return static_cast<int>(std::clamp<int64_t>(tiles * units, 1, 1 << 20));
}

RowTiles::RowTiles(Dim m, int rows, std::string tails, int residue, std::string prefix)
    : m_(m),
      rows_(rows),
      tails_(std::move(tails)),
      kernels_(residue_kernels(tails_, rows)),
      residue_(residue),
      prefix_(std::move(prefix)) {
  if (m_.as_constant()) {
    count_ = ir::ceildiv(m_, rows_);
    const Dim at_least_one = ir::max(count_, 1);
    base_ = tails_ == kTailsEven ? ir::floordiv(m_, at_least_one) : ir::floordiv(m_, rows_);
    surplus_ = m_ - base_ * count_;
  } else {
    count_ = Dim::symbol(name("tiles"));
    base_ = Dim::symbol(name("base"));
    surplus_ = Dim::symbol(name("surplus"));
  }
}

std::vector<StmtRef> RowTiles::prologue() const {
  if (m_.as_constant()) return {};
  std::vector<StmtRef> all = {kb::let_index(name("tiles"), kb::index(ir::ceildiv(m_, rows_)))};
  if (tails_ == kTailsEven) {
    all.push_back(kb::let_index(name("base"), kb::index(ir::floordiv(m_, ir::max(count_, 1)))));
    all.push_back(kb::let_index(name("surplus"), kb::index(m_ - base_ * count_)));
  } else {
    all.push_back(kb::let_index(name("base"), kb::index(ir::floordiv(m_, rows_))));
  }
  return all;
}

Dim RowTiles::first_row(const Dim& tile) const {
  // Even split: the first `surplus` tiles have one row more than the others.
  if (tails_ == kTailsEven) return tile * base_ + ir::min(tile, surplus_);
  return tile * rows_;
}

StmtRef RowTiles::in_ranges(int64_t block_tiles,
                            const std::function<std::vector<StmtRef>()>& body) const {
  const Dim block = Dim::symbol("block"), begin = Dim::symbol("tile_begin");
  const Dim thread = Dim::symbol("thread"), threads = Dim::symbol("threads");
  const Dim first = ir::floordiv(count_ * thread, threads);
  const Dim last = ir::floordiv(count_ * (thread + 1), threads);
  std::vector<StmtRef> in_block = {
      kb::let_index("tile_begin", kb::index(first + block * block_tiles)),
      kb::let_index("tile_count", kb::index(ir::min(last - begin, block_tiles))),
      kb::let_index("block_row", kb::index(first_row(begin))),
  };
  for (StmtRef& s : body()) in_block.push_back(std::move(s));
  return kb::loop(LoopKind::kSerial, "block", 0, ir::ceildiv(last - first, block_tiles),
                  kb::seq(std::move(in_block)));
}

StmtRef RowTiles::in_even_shares(int64_t block_tiles, int64_t units,
                                 const std::function<std::vector<StmtRef>()>& body) const {
  const Dim thread = Dim::symbol("thread"), threads = Dim::symbol("threads");
  const Dim block = Dim::symbol("block"), begin = Dim::symbol("tile_begin"),
            count = Dim::symbol("tile_count");
  std::vector<StmtRef> all;
  const auto let = [](const char* symbol, const Dim& d, std::vector<StmtRef>& out) {
    out.push_back(kb::let_index(symbol, kb::index(d)));
    return Dim::symbol(symbol);
  };
  const Dim blocks = ir::ceildiv(count_, block_tiles);
  const Dim height = let("block_height", ir::max(ir::ceildiv(count_, ir::max(blocks, 1)), 1), all);
  const Dim first = let("share_begin", ir::floordiv(count_ * units * thread, threads), all);
  const Dim last = let("share_end", ir::floordiv(count_ * units * (thread + 1), threads), all);
  const Dim first_block = let("first_block", ir::floordiv(first, height * units), all);
  std::vector<StmtRef> in_block;
  let("tile_begin", (first_block + block) * height, in_block);
  let("tile_count", ir::min(count_ - begin, height), in_block);
  let("block_row", first_row(begin), in_block);
  let("own_begin", ir::max(first - begin * units, 0), in_block);
  let("own_end", ir::min(last - begin * units, count * units), in_block);
  for (StmtRef& s : body()) in_block.push_back(std::move(s));
  all.push_back(kb::loop(LoopKind::kSerial, "block", 0,
                         ir::min(ir::ceildiv(last, height * units) - first_block, last - first),
                         kb::seq(std::move(in_block))));
  return kb::seq(std::move(all));
}

StmtRef RowTiles::shared(const Sharing& s, const std::function<std::vector<StmtRef>()>& ahead,
                         StmtRef panel) const {
  const auto block = [&](const Dim& begin, const Dim& end) {
    std::vector<StmtRef> in_block;
    if (ahead) in_block = ahead();
    in_block.push_back(kb::loop(LoopKind::kSerial, "p", begin, end - begin, panel));
    return in_block;
  };
  if (s.by_rows) return in_ranges(s.block_tiles, [&] { return block(0, s.panels); });
  return in_even_shares(s.block_tiles, (s.panels - 1) * s.units + s.of_last, [&] {
    const Dim of_panel = Dim::symbol("tile_count") * s.units;
    return block(ir::floordiv(Dim::symbol("own_begin"), of_panel),
                 ir::ceildiv(Dim::symbol("own_end"), of_panel));
  });
}

std::vector<StmtRef> RowTiles::own_tiles(const Sharing& s, int64_t units) {
  const Dim count = Dim::symbol("tile_count");
  Dim begin = 0, end = count;
  if (!s.by_rows) {
    const Dim before = Dim::symbol("p") * count * s.units;
    begin = ir::max(ir::ceildiv(Dim::symbol("own_begin") - before, units), 0);
    end = ir::min(ir::ceildiv(Dim::symbol("own_end") - before, units), count);
  }
  return {kb::let_index("first_tile", kb::index(Dim::symbol("tile_begin") + begin)),
          kb::let_index("own_tiles", kb::index(end - begin))};
}

std::vector<std::pair<int64_t, int64_t>> RowTiles::known_tiles() const {
  const int64_t rows = *m_.as_constant(), count = *count_.as_constant();
  std::vector<std::pair<int64_t, int64_t>> all;
  for (int64_t t = 0; t < count; ++t) {
    const int64_t first = *first_row(t).as_constant(), next = *first_row(t + 1).as_constant();
    all.emplace_back(first, std::min(next, rows) - first);
  }
  return all;
}

Dim RowTiles::row_of(const Tile& t, const Dim& r) const {
  return tails_ == kTailsMasked ? ir::min(t.row + r, m_ - 1) : t.row + r;
}

StmtRef RowTiles::by_size(Tile t, int low, int high, int step,
                          const std::function<StmtRef(const Tile&)>& body) const {
  // Largest first: it is the most frequent.
  StmtRef chain;
  for (int rows = low; rows <= high; rows += step) {
    Tile sized = t;
    sized.rows = rows;
    sized.valid = rows;
    StmtRef then = body(sized);
    chain = chain ? kb::if_then(kb::eq(t.valid, rows), std::move(then), std::move(chain))
                  : std::move(then);
  }
  return chain;
}

StmtRef RowTiles::for_each(const Dim& begin, const Dim& extent,
                           const std::function<StmtRef(const Tile&)>& body,
                           const std::function<StmtRef(const Tile&)>& after) const {
  const std::string t = name("t"), row = name("row"), valid = name("valid");
  const Dim number = Dim::symbol(t);
  auto one = [&](std::vector<StmtRef> lets, StmtRef work, const Tile& tile) {
    lets.push_back(std::move(work));
    if (after) lets.push_back(after(tile));
    return kb::seq(std::move(lets));
  };
  const Dim tile = begin + number;

  if (tails_ == kTailsEven) {
    Tile t0{number, Dim::symbol(row), 0, Dim::symbol(valid)};
    std::vector<StmtRef> lets = {
        kb::let_index(row, kb::index(first_row(tile))),
        kb::let_index(valid, kb::index(base_ + ir::min(ir::max(surplus_ - tile, 0), 1)))};
    int low = 1, high = rows_;
    if (auto m = m_.as_constant(); m && *m > 0) {
      const int64_t count = (*m + rows_ - 1) / rows_;
      low = static_cast<int>(*m / count);
      high = static_cast<int>((*m + count - 1) / count);
    }
    return kb::loop(LoopKind::kSerial, t, 0, extent,
                    one(std::move(lets), by_size(t0, low, high, 1, body), t0));
  }
  if (tails_ == kTailsMasked) {
    Tile full{number, Dim::symbol(row), rows_, Dim::symbol(valid)};
    std::vector<StmtRef> lets = {kb::let_index(row, kb::index(tile * rows_)),
                                 kb::let_index(valid, kb::index(ir::min(m_ - full.row, rows_)))};
    return kb::loop(LoopKind::kSerial, t, 0, extent, one(std::move(lets), body(full), full));
  }

  // Full tiles without any check, then at most one smaller tile at the end of the matrix.
  std::vector<StmtRef> all;
  const Dim full_here = ir::max(ir::min(begin + extent, base_) - begin, 0);
  Tile full{number, Dim::symbol(row), rows_, rows_};
  all.push_back(kb::loop(LoopKind::kSerial, t, 0, full_here,
                         one({kb::let_index(row, kb::index(tile * rows_))}, body(full), full)));
  // The remainders that this kernel may meet: residue, residue + kernels, …; none is the first.
  const int smallest = residue_ > 0 ? residue_ : kernels_;
  if (smallest >= rows_) return kb::seq(std::move(all));
  Tile rest{full_here, Dim::symbol(row), smallest, smallest};
  std::vector<StmtRef> lets = {kb::let_index(row, kb::index(base_ * rows_))};
  StmtRef work;
  if (kernels_ > 1 && smallest + kernels_ >= rows_) {
    work = body(rest);
  } else {
    rest.valid = Dim::symbol(valid);
    lets.push_back(kb::let_index(valid, kb::index(m_ - base_ * rows_)));
    work = by_size(rest, smallest, rows_ - 1, kernels_, body);
  }
  all.push_back(kb::if_then(kb::both(kb::lt(base_, begin + extent), kb::lt(base_ * rows_, m_)),
                            one(std::move(lets), std::move(work), rest)));
  return kb::seq(std::move(all));
}

}  // namespace nimble::kernels
