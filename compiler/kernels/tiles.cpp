// Method: a tile buffer becomes one of scratch memory, register after register, each row-major with
// its full number of rows. Rows are walked by a loop up to the number that takes part; a row is
// taken in vectors, the widest that fit first, so that rows of any length need no masks. A product
// holds one vector of sums in a register while it walks the groups of a row of a, which it
// broadcasts.
#include "compiler/kernels/tiles.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>

#include "compiler/kernels/fragments.h"
#include "vm/base/error.h"

namespace nimble::kir {
namespace {

using namespace build;

constexpr int kMostLanes = 64;

void visit(const Stmt& s, const std::function<void(const Stmt&)>& see) {
  see(s);
  for (const StmtRef& b : s.body) visit(*b, see);
}

Fragment vector_fragment(const TileFragmentRow& tile) {
  for (const FragmentRow& row : all_fragments())
    if (row.a == tile.a && row.b == tile.b && row.sum == tile.sum && row.group == tile.group &&
        keep_bound(row, kAnyWeight))
      return row.id;
  NIMBLE_UNREACHABLE("no fragment of vectors is like {}", tile.name);
}

class Expansion {
 public:
  explicit Expansion(const Function& f) : out_(f) {
    std::erase_if(out_.registers, [](const BufferRef& b) { return b->scope == Scope::kTile; });
    for (const BufferRef& b : f.registers) {
      if (b->scope != Scope::kTile) continue;
      memory_[b.get()] =
          buffer(b->name, Scope::kThread, b->dtype, b->extent * int64_t{b->rows} * b->lanes);
      out_.scratch.push_back(memory_[b.get()]);
    }
  }

  Function run() {
    out_.body = statement(out_.body);
    return std::move(out_);
  }

 private:
  // One register of a buffer that became memory.
  struct Tile {
    const Buffer& shape;
    BufferRef memory;
    Dim number, rows;
    Dim at(const Dim& row, const Dim& column) const {
      return (number * shape.rows + row) * shape.lanes + column;
    }
  };

  Tile tile(const TileRef& t) const {
    return {*t.buffer, memory_.at(t.buffer.get()), t.number, rows_.at(t.buffer.get())};
  }

  // A name that no template gives.
  Dim fresh(const char* what) { return Dim::symbol(fmt::format("tile.{}{}", what, next_++)); }

  StmtRef statement(const StmtRef& s) {
    switch (s->kind) {
      case StmtKind::kTiles: {
        for (const TileShape& t : s->shapes) rows_.insert_or_assign(t.tile.get(), t.rows);
        // Names bound inside end there, as in any block.
        return if_then({}, statement(s->body[0]));
      }
      case StmtKind::kTileZero: {
        const Tile t = tile(s->tiles[0]);
        return each_vector(t, [&](const Dim& row, int column, int lanes) {
          return store(t.memory, t.at(row, column), number(t.shape.dtype, 0, lanes));
        });
      }
      case StmtKind::kTileLoad: {
        const Tile t = tile(s->tiles[0]);
        return each_vector(t, [&](const Dim& row, int column, int lanes) {
          return store(t.memory, t.at(row, column),
                       load(s->buffer, s->index + row * s->stride + column, lanes));
        });
      }
      case StmtKind::kTileStore: {
        const Tile t = tile(s->tiles[0]);
        return each_vector(t, [&](const Dim& row, int column, int lanes) {
          return store(s->buffer, s->index + row * s->stride + column,
                       load(t.memory, t.at(row, column), lanes));
        });
      }
      case StmtKind::kTileDot:
        return tile_dot(*s);
      default:
        break;
    }
    if (s->body.empty()) return s;
    auto copy = std::make_shared<Stmt>(*s);
    for (StmtRef& b : copy->body) b = statement(b);
    return copy;
  }

  // The vectors of each row, of at most `most` lanes.
  template <class Body>
  StmtRef each_vector(const Tile& t, const Body& body, int most = kMostLanes) {
    const Dim row = fresh("row");
    std::vector<StmtRef> vectors;
    for (int column = 0; column < t.shape.lanes;) {
      const int lanes = static_cast<int>(
          std::bit_floor(static_cast<unsigned>(std::min(t.shape.lanes - column, most))));
      vectors.push_back(body(row, column, lanes));
      column += lanes;
    }
    return loop(LoopKind::kSerial, *row.as_symbol(), 0, t.rows, seq(std::move(vectors)));
  }

  StmtRef tile_dot(const Stmt& s) {
    const TileFragmentRow& fragment = tile_row_of(s.tile_fragment);
    const Tile sum = tile(s.tiles[0]), a = tile(s.tiles[1]), b = tile(s.tiles[2]);
    const int group = fragment.group;
    return each_vector(
        sum,
        [&](const Dim& row, int column, int lanes) {
          const BufferRef total = total_of(fragment.sum, lanes);
          const Dim g = fresh("group");
          const ValueRef left = load(a.memory, a.at(row, g * group), group);
          const ValueRef right = load(b.memory, b.at(g, column * group), lanes * group);
          return seq({set_reg(total, 0, load(sum.memory, sum.at(row, column), lanes)),
                      loop(LoopKind::kSerial, *g.as_symbol(), 0, a.shape.lanes / group,
                           set_reg(total, 0,
                                   dot(vector_fragment(fragment), broadcast(left, lanes * group),
                                       right, reg(total, 0)))),
                      store(sum.memory, sum.at(row, column), reg(total, 0))});
        },
        kMostLanes / group);
  }

  // The register that sums are kept in; one for each type.
  BufferRef total_of(DType t, int lanes) {
    BufferRef& b = totals_[{t, lanes}];
    if (!b) {
      b = buffer(fmt::format("tile.{}x{}", nimble::name_of(t), lanes), Scope::kRegister, t, 1,
                 lanes);
      out_.registers.push_back(b);
    }
    return b;
  }

  Function out_;
  std::map<const Buffer*, BufferRef> memory_;
  std::map<const Buffer*, Dim> rows_;
  std::map<std::pair<DType, int>, BufferRef> totals_;
  int next_ = 0;
};

}  // namespace

bool has_tiles(const kernels::TargetInfo& target, const Function& f) {
  const auto has = [&](const TileFragmentRow& row) { return target.has(std::string(row.feature)); };
  const auto all = all_tile_fragments();
  bool uses = false, lacks = false;
  visit(*f.body, [&](const Stmt& s) {
    uses |= s.kind == StmtKind::kTiles;
    lacks |= s.kind == StmtKind::kTileDot && !has(tile_row_of(s.tile_fragment));
  });
  return !uses || (!lacks && std::any_of(all.begin(), all.end(), has));
}

Function expand_tiles(const Function& f) {
  return Expansion(f).run();
}

}  // namespace nimble::kir
