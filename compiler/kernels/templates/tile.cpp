#include "compiler/kernels/templates/tile.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "compiler/kernels/fragments.h"
#include "compiler/kernels/templates/knobs.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::LoopKind;
using kir::StmtRef;

// ---------------------------------------------------------------- one tile's product

namespace {

// Multiply-add in the element type: fused for floats, wrapping for integers; a fragment's own way.
kir::ValueRef multiply_add(const RegisterTile& t, kir::ValueRef a, kir::ValueRef b,
                           kir::ValueRef c) {
  if (t.fragment) return kb::dot(*t.fragment, std::move(a), std::move(b), std::move(c));
  return is_float(a->dtype) ? kb::fma(a, b, c) : kb::add(kb::mul(a, b), c);
}

// The types in which rows and columns are multiplied.
DType row_type(std::optional<kir::Fragment> fragment, DType sum) {
  return fragment ? kir::row_of(*fragment).a : sum;
}
DType column_type(std::optional<kir::Fragment> fragment, DType sum) {
  return fragment ? kir::row_of(*fragment).b : sum;
}

template <typename Predicate>
std::optional<kir::Fragment> find_fragment(Predicate is_wanted) {
  for (const kir::FragmentRow& row : kir::all_fragments())
    if (is_wanted(row)) return row.id;
  return {};
}

// Whether a type has each value of another one.
bool has_values(DType wide, DType narrow) {
  if (wide == narrow) return true;
  return is_int(wide) && is_int(narrow) && size_of(narrow) < size_of(wide) &&
         (is_signed_int(wide) || is_unsigned_int(narrow));
}

// Whether a fragment can multiply operands of these types into such sums, where no element of the
// right-hand side exceeds `most` in size.
bool can_multiply(const kir::FragmentRow& f, DType lhs, DType rhs, DType sum,
                  int64_t most = kir::kAnyWeight) {
  return f.sum == sum && has_values(f.a, lhs) && has_values(f.b, rhs) && kir::keep_bound(f, most);
}

}  // namespace

std::optional<kir::Fragment> fragment_of(DType lhs, DType rhs, DType sum) {
  return find_fragment([&](const kir::FragmentRow& f) {
    return f.a == lhs && f.b == rhs && f.sum == sum && kir::keep_bound(f, kir::kAnyWeight);
  });
}

int group_of(std::optional<kir::Fragment> fragment) {
  return fragment ? kir::row_of(*fragment).group : 1;
}

int RegisterTile::operand_lanes() const {
  return lanes * group_of(fragment);
}

std::optional<kir::Fragment> fragment_of(DType rhs) {
  return find_fragment(
      [&](const kir::FragmentRow& f) { return f.b == rhs && kir::keep_bound(f, kir::kAnyWeight); });
}

std::optional<kir::Fragment> fragment_of_groups(DType lhs, DType rhs, DType sum, int64_t group) {
  return find_fragment([&](const kir::FragmentRow& f) {
    return f.group == group && can_multiply(f, lhs, rhs, sum);
  });
}

std::vector<kir::Fragment> fragments_for(kir::Fragment own, int64_t most) {
  const kir::FragmentRow& row = kir::row_of(own);
  std::vector<kir::Fragment> all = {own};
  for (const kir::FragmentRow& f : kir::all_fragments())
    if (f.id != own && can_multiply(f, row.a, row.b, row.sum, most)) all.push_back(f.id);
  return all;
}

std::optional<kir::Fragment> multiplying_fragment(const TargetInfo& t, kir::Fragment own,
                                                  int64_t most) {
  for (const kir::Fragment f : fragments_for(own, most))
    if (kir::multiplies(kir::row_of(f), t)) return f;
  return {};
}

std::optional<kir::Fragment> packing_fragment(const TargetInfo& t, DType weights, int64_t most) {
  const auto own = fragment_of(weights);
  if (!own) return {};
  if (const auto multiplies = multiplying_fragment(t, *own, most)) return multiplies;
  return kir::is_taken(kir::row_of(*own), t) ? own : std::nullopt;
}

kir::Fragment fragment_of_call(const TargetInfo& t, kir::Fragment own, const ir::Expr& call) {
  return fragment_within(t, own, ir::attr_or<int64_t>(call.attrs, "max_weight", kir::kAnyWeight));
}

kir::Fragment fragment_within(const TargetInfo& t, kir::Fragment own, int64_t most) {
  const kir::FragmentRow& row = kir::row_of(own);
  for (const kir::Fragment f : fragments_for(own, most)) {
    const kir::FragmentRow& other = kir::row_of(f);
    if (other.a == row.a && other.b == row.b && other.group == row.group &&
        kir::multiplies(other, t))
      return f;
  }
  return own;
}

int64_t rows_with_room(const TargetInfo& t, std::optional<kir::Fragment> fragment, int64_t vectors,
                       int64_t rows) {
  const int held = fragment ? kir::row_of(*fragment).held : 0;
  if (held == 0) return rows;
  // Of kU8S7Quads with 16 registers and two vectors that is 5 rows: no sum is moved, and as many
  // products a cycle are made as with 6, of which some are.
  TargetInfo rest = t;
  rest.vector_registers -= held;
  return std::min<int64_t>(rows, max_tile_rows(rest, vectors));
}

int group_for(const TargetInfo& t, DType lhs, DType rhs, DType sum, int64_t most) {
  return fragment_of(lhs, rhs, sum) ? group_of(packing_fragment(t, rhs, most)) : 1;
}

bool is_converted(DType operand, DType sum) {
  return operand == sum || (is_narrow_float(operand) && sum == DType::kF32);
}

DType sum_of(DType rhs) {
  if (const auto fragment = fragment_of(rhs)) return kir::row_of(*fragment).sum;
  return is_converted(rhs, DType::kF32) ? DType::kF32 : rhs;
}

kir::BufferRef panel_registers(DType sum, int vectors, int lanes,
                               std::optional<kir::Fragment> fragment) {
  return kb::buffer("panel", kir::Scope::kRegister, column_type(fragment, sum), vectors,
                    lanes * group_of(fragment));
}

StmtRef tile_zero(const RegisterTile& t, const std::string& prefix) {
  const Dim i = Dim::symbol(prefix + "z");
  return kb::loop(LoopKind::kUnroll, prefix + "z", 0, t.chains * t.rows * t.vectors,
                  kb::set_reg(t.accumulators, i, kb::number(t.dtype, 0, t.lanes)));
}

StmtRef tile_product(const RegisterTile& t, const std::string& prefix) {
  NIMBLE_CHECK(t.unroll % t.chains == 0, "{} chains, {} steps", t.chains, t.unroll);
  NIMBLE_CHECK(t.first_row == 0 || t.chains == 1, "{} chains of a part of a tile", t.chains);
  const Dim v = Dim::symbol(prefix + "v");
  const DType lhs_type = row_type(t.fragment, t.dtype);
  const DType rhs_type = column_type(t.fragment, t.dtype);
  // One k step; `chain` chooses the set of accumulators, `masked` says that its groups may end
  // early.
  auto step = [&](const Dim& k, const Dim& chain, bool masked = false) {
    auto rhs = [&] {
      const Dim index = t.rhs_index(v, k);
      const auto valid = t.rhs_valid ? t.rhs_valid(v) : std::nullopt;
      return kb::cast(rhs_type, valid ? kb::load_masked(t.rhs, index, t.operand_lanes(), *valid)
                                      : kb::load(t.rhs, index, t.operand_lanes()));
    };
    auto row = [&](const Dim& r) {
      const Dim element = (chain * t.rows + r) * t.vectors + v, index = t.lhs_index(r, k);
      const int of_row = group_of(t.fragment);
      kir::ValueRef group = masked ? kb::load_masked(t.lhs, index, of_row, t.lhs_valid(k))
                                   : kb::load(t.lhs, index, of_row);
      kir::ValueRef lhs = kb::broadcast(kb::cast(lhs_type, std::move(group)), t.operand_lanes());
      const std::string a = prefix + "a" + (t.rows_apart ? r.str() : "");
      auto columns = kb::loop(
          LoopKind::kUnroll, prefix + "v", 0, t.vectors,
          kb::set_reg(t.accumulators, element,
                      multiply_add(t, kb::local(a, lhs_type, t.operand_lanes()),
                                   kb::reg(t.panel, v), kb::reg(t.accumulators, element))));
      return kb::seq({kb::let(a, std::move(lhs)), std::move(columns)});
    };
    std::vector<StmtRef> all = {
        kb::loop(LoopKind::kUnroll, prefix + "v", 0, t.vectors, kb::set_reg(t.panel, v, rhs()))};
    if (t.rows_apart) {
      for (int r = 0; r < t.rows; ++r) all.push_back(row(t.first_row + r));
    } else {
      all.push_back(kb::loop(LoopKind::kUnroll, prefix + "r", 0, t.rows,
                             row(Dim::symbol(prefix + "r") + t.first_row)));
    }
    return kb::seq(std::move(all));
  };
  std::vector<StmtRef> all;
  const Dim k = Dim::symbol(prefix + "k"), u = Dim::symbol(prefix + "u");
  const Dim whole = t.lhs_valid ? t.whole : t.k_extent;
  const Dim bodies = ir::floordiv(whole, t.unroll);
  {
    std::vector<StmtRef> body;
    if (t.at_body) body.push_back(t.at_body(k));
    body.push_back(kb::loop(LoopKind::kUnroll, prefix + "u", 0, t.unroll,
                            step(k * t.unroll + u, ir::mod(u, t.chains))));
    all.push_back(kb::loop(LoopKind::kSerial, prefix + "k", 0, bodies, kb::seq(std::move(body))));
  }
  const Dim rest = whole - bodies * t.unroll;
  if (!rest.is_constant(0))
    all.push_back(kb::loop(LoopKind::kSerial, prefix + "k", bodies * t.unroll, rest, step(k, 0)));
  if (t.lhs_valid)
    all.push_back(kb::loop(LoopKind::kSerial, prefix + "k", whole, t.k_extent - whole,
                           step(k, 0, /*masked=*/true)));
  for (int chain = 1; chain < t.chains; ++chain) {
    const Dim i = Dim::symbol(prefix + "s");
    const Dim other = i + chain * t.rows * t.vectors;
    all.push_back(
        kb::loop(LoopKind::kUnroll, prefix + "s", 0, t.rows * t.vectors,
                 kb::set_reg(t.accumulators, i,
                             kb::add(kb::reg(t.accumulators, i), kb::reg(t.accumulators, other)))));
  }
  return kb::seq(std::move(all));
}

int64_t line_elements(DType dtype) {
  return 64 / static_cast<int64_t>(size_of(dtype));
}

int64_t lines_of(int64_t elements, DType dtype) {
  const int64_t line = line_elements(dtype);
  return (elements + line - 1) / line;
}

StmtRef prefetch_tile(const kir::BufferRef& b, const Dim& first, int rows, const Dim& pitch,
                      int64_t columns, bool for_write) {
  const Dim r = Dim::symbol("f_r"), line = Dim::symbol("f_l");
  StmtRef one = kb::prefetch(b, first + r * pitch + line * line_elements(b->dtype), 3, for_write);
  return kb::loop(
      LoopKind::kUnroll, "f_r", 0, rows,
      kb::loop(LoopKind::kUnroll, "f_l", 0, lines_of(columns, b->dtype), std::move(one)));
}

StmtRef prefetch_share(const kir::BufferRef& b, const Dim& first, const Dim& number,
                       const Dim& share, int64_t lines) {
  const int64_t elements = line_elements(b->dtype);
  std::vector<int64_t> steps;  // the values that a share takes
  for (int64_t tiles = lines; tiles >= 1; --tiles) {
    const int64_t s = (lines + tiles - 1) / tiles;
    if (steps.empty() || steps.back() != s) steps.push_back(s);
  }
  StmtRef nested;
  for (size_t i = steps.size(); i-- > 0;) {
    std::vector<StmtRef> group;
    for (int64_t line = i == 0 ? 0 : steps[i - 1]; line < steps[i]; ++line)
      group.push_back(kb::prefetch(b, first + line * elements, 2));
    if (nested) group.push_back(std::move(nested));
    nested = kb::if_then(kb::le(steps[i], share), kb::seq(std::move(group)));
  }
  return kb::if_then(kb::lt(number * share, lines), std::move(nested));
}

StmtRef prefetch_burst(const kir::BufferRef& b, const Dim& first, const Dim& number,
                       const Dim& share, int64_t lines) {
  const Dim line = number * share + Dim::symbol("f_l");
  const Dim count = ir::max(ir::min(share, lines - number * share), 0);
  return kb::loop(LoopKind::kSerial, "f_l", 0, count,
                  kb::prefetch(b, first + line * line_elements(b->dtype), 2));
}

KBlocks k_blocks(int64_t k, int64_t block, int64_t unroll) {
  if (block <= 0 || block >= k) return {k, 1};
  const int64_t count = (k + block - 1) / block;
  const int64_t size = ((k + count - 1) / count + unroll - 1) / unroll * unroll;
  return {size, (k + size - 1) / size};
}

// ---------------------------------------------------------------- columns into panels

int panel_vectors(int64_t all, std::span<const double> cost) {
  size_t best = 0;
  double least = 1e300;
  for (size_t i = 0; i < cost.size(); ++i) {
    const int64_t vectors = static_cast<int64_t>(i) + 1, rest = all % vectors;
    const double total = static_cast<double>(all - rest) * cost[i] +
                         (rest > 0 ? static_cast<double>(rest) * cost[rest - 1] : 0);
    if (total < least) least = total, best = i;
  }
  return static_cast<int>(best) + 1;
}

Dim Panels::row_of_panel(const Dim& panel, const Dim& step) const {
  if (stored == width) return (panel * steps() + step) * (width * group);
  const int64_t parts = stored / width;
  return (ir::floordiv(panel, parts) * steps() + step) * (stored * group) +
         ir::mod(panel, parts) * (width * group);
}

std::optional<Panels> cut_panels(int64_t k, int64_t n, const ir::Layout& layout, int lanes,
                                 int most) {
  if (layout.width % lanes != 0) return {};
  const int64_t all = layout.width / lanes;
  auto vectors = static_cast<int>(std::min<int64_t>(all, most));
  while (all % vectors != 0) --vectors;
  return Panels{k, n, layout.width, int64_t{vectors} * lanes, lanes, vectors, layout.group};
}

// ---------------------------------------------------------------- rows into tiles

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

StmtRef RowTiles::in_blocks(int64_t block_tiles,
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

RowTiles::Range RowTiles::own_panels(int64_t units) {
  const Dim panel = Dim::symbol("tile_count") * units;
  return {ir::floordiv(Dim::symbol("own_begin"), panel),
          ir::ceildiv(Dim::symbol("own_end"), panel)};
}

namespace {

std::vector<StmtRef> name_tiles(const Dim& begin, const Dim& end) {
  return {kb::let_index("first_tile", kb::index(Dim::symbol("tile_begin") + begin)),
          kb::let_index("own_tiles", kb::index(end - begin))};
}

}  // namespace

std::vector<StmtRef> RowTiles::own_tiles(int64_t units, int64_t of_panel) {
  const Dim count = Dim::symbol("tile_count"), before = Dim::symbol("p") * count * units;
  return name_tiles(ir::max(ir::ceildiv(Dim::symbol("own_begin") - before, of_panel), 0),
                    ir::min(ir::ceildiv(Dim::symbol("own_end") - before, of_panel), count));
}

std::vector<StmtRef> RowTiles::all_tiles() {
  return name_tiles(0, Dim::symbol("tile_count"));
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
