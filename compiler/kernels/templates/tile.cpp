#include "compiler/kernels/templates/tile.h"

#include <algorithm>

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

}  // namespace

int RegisterTile::operand_lanes() const {
  return lanes * group_of(fragment);
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

namespace {

StmtRef each_sum(int rows, int vectors, StmtRef one) {
  return kb::loop(LoopKind::kUnroll, "c_r", 0, rows,
                  kb::loop(LoopKind::kUnroll, "c_v", 0, vectors, std::move(one)));
}

}  // namespace

StmtRef keep_sums(const kir::BufferRef& accumulators, int rows, int vectors,
                  const kir::BufferRef& sums, const SumPlace& place) {
  const Dim r = Dim::symbol("c_r"), v = Dim::symbol("c_v");
  return each_sum(rows, vectors,
                  kb::store(sums, place(r, v), kb::reg(accumulators, r * vectors + v)));
}

StmtRef resume_sums(const kir::BufferRef& accumulators, int rows, int vectors,
                    const kir::BufferRef& sums, const SumPlace& place) {
  const Dim r = Dim::symbol("c_r"), v = Dim::symbol("c_v");
  return each_sum(
      rows, vectors,
      kb::set_reg(accumulators, r * vectors + v, kb::load(sums, place(r, v), accumulators->lanes)));
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

StmtRef Panels::last_apart(const Dim& panel,
                           const std::function<StmtRef(int vectors)>& body) const {
  const int64_t last = panels() - 1;
  if (last_vectors() == vectors) return body(vectors);
  if (last == 0) return body(last_vectors());
  StmtRef whole = body(vectors);
  return kb::if_then(kb::lt(panel, last), std::move(whole), body(last_vectors()));
}

StmtRef Panels::by_fullness(const Dim& panel, int of_vectors,
                            const std::function<StmtRef(bool may_end)>& stores) const {
  const int64_t full = n / width;
  if (of_vectors < vectors || full == 0) return stores(true);
  if (full == panels() || last_vectors() < vectors) return stores(false);
  return kb::if_then(kb::lt(panel, full), stores(false), stores(true));
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

}  // namespace nimble::kernels
