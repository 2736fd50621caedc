// wgmma: four warps multiply tiles of shared memory together (compute capability 9.0). A group has
// tile_rows x tile_columns sums in its threads' registers, 64 rows of them in each product; neither
// factor goes through registers, so that what a group reads of shared memory is shared by its
// warps.
//
// A step's products are one batch. They go on while the next step's are begun: its barrier waits
// for all batches but the latest, so the stage that is filled next is that of two steps ago, and
// one stage less is on its way than with the other units. What copies and stores bring to shared
// memory has to be shown to the unit that reads it, by whoever wrote it and ahead of the barrier.
// Tiles may come as boxes instead (gpu_matmul_boxes.cpp).
#include "compiler/kernels/group_fragments.h"
#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/gpu_matmul.h"

namespace nimble::kernels::gpu {

namespace kb = kir::build;
using kir::BufferRef;
using kir::Dim;
using kir::kGroupRows;
using kir::kGroupThreads;
using kir::kWarpLanes;
using kir::LoopKind;
using kir::StmtRef;

namespace {

constexpr int kBehind = 1;  // batches that go on while the next step begins

class GroupUnit final : public Unit {
 public:
  GroupUnit(const Product& p, const Schedule& s, const SharedTile& lhs, const SharedTile& rhs)
      : s_(s),
        lhs_(lhs),
        rhs_(rhs),
        row_(kir::group_row_of(*p.group)),
        tall_(s.tile_rows / kGroupRows),
        each_(kir::GroupFragmentRow::sum_registers(s.tile_columns)),
        steps_(s.slice() / row_.k),
        sums_(kb::buffer("acc", kir::Scope::kRegister, row_.sum, tall_ * each_)) {}

  std::vector<BufferRef> registers() const override { return {sums_}; }

  std::vector<StmtRef> prologue() const override {
    const Dim group = ir::floordiv(ir::mod(thread(), s_.team()), kGroupThreads);
    const int across = s_.block_columns / s_.tile_columns;
    return {let_team(s_),
            let("group_row", ir::floordiv(group, across) * s_.tile_rows,
                {0, s_.block_rows - s_.tile_rows, s_.tile_rows}),
            let("group_column", ir::mod(group, across) * s_.tile_columns,
                {0, s_.block_columns - s_.tile_columns, s_.tile_columns})};
  }

  StmtRef zero() const override {
    return kb::seq({kb::loop(LoopKind::kUnroll, "z", 0, tall_ * each_,
                             kb::set_reg(sums_, Dim::symbol("z"), kb::number(row_.sum, 0))),
                    kb::group_fence()});
  }

  int behind() const override { return kBehind; }

  StmtRef ready() const override {
    // Boxes show themselves.
    if (lhs_.in_boxes() && rhs_.in_boxes()) return kb::group_wait(kBehind);
    return kb::seq({kb::proxy_fence(), kb::group_wait(kBehind)});
  }

  StmtRef step(const Dim& slot) const override {
    std::vector<StmtRef> all = {kb::group_fence()};
    for (int part = 0; part < steps_; ++part) {
      const Dim k = team_of(s_) * s_.slice() + part * row_.k;
      for (int i = 0; i < tall_; ++i)
        all.push_back(kb::group_dot(row_.id, s_.tile_columns, sums_, i * each_,
                                    lhs_.view(slot, Dim::symbol("group_row") + i * kGroupRows, k),
                                    rhs_.view(slot, Dim::symbol("group_column"), k)));
    }
    all.push_back(kb::group_commit());
    return kb::seq(std::move(all));
  }

  StmtRef keep(const SharedSums& sums) const override {
    std::vector<StmtRef> all = {kb::group_wait(0)};
    for (int i = 0; i < tall_; ++i)
      for (int number = 0; number < each_; number += 2) {
        // Two registers are neighbours in a row.
        const int first = i * each_ + number;
        const auto [row, column] = place(number);
        all.push_back(
            kb::store(sums.buffer,
                      sums.at(team_of(s_), Dim::symbol("group_row") + i * kGroupRows + row,
                              Dim::symbol("group_column") + column),
                      pair_of(kb::reg(sums_, first), kb::reg(sums_, first + 1))));
      }
    return kb::seq(std::move(all));
  }

 private:
  // Where this thread's register lies: its warp's number in the group, its number in four lanes,
  // and that of these, count along one axis each.
  static std::pair<Dim, Dim> place(int number) {
    const auto of = [&](int t) { return kir::group_sum_place(t, number); };
    const kir::WarpPlace origin = of(0);
    const Dim numbers[] = {ir::mod(thread(), 4), ir::floordiv(ir::mod(thread(), kWarpLanes), 4),
                           ir::floordiv(ir::mod(thread(), kGroupThreads), kWarpLanes)};
    const kir::WarpPlace next[] = {of(1), of(4), of(kWarpLanes)};
    Dim row = origin.row, column = origin.column;
    for (size_t i = 0; i < std::size(next); ++i) {
      row = row + numbers[i] * (next[i].row - origin.row);
      column = column + numbers[i] * (next[i].column - origin.column);
    }
    return {row, column};
  }

  Schedule s_;
  const SharedTile &lhs_, &rhs_;
  const kir::GroupFragmentRow& row_;
  int tall_;   // products of 64 rows in a group's tile
  int each_;   // registers of a thread for each of these
  int steps_;  // products along k of a team's part of a step
  BufferRef sums_;
};

}  // namespace

std::unique_ptr<Unit> group_unit(const Product& p, const Schedule& s, const SharedTile& lhs,
                                 const SharedTile& rhs) {
  return std::make_unique<GroupUnit>(p, s, lhs, rhs);
}

// Along k lines are parts of a step, across it parts of a group's rows or columns.
int group_span(const Product& p, const Schedule& s, bool rhs) {
  if (s.unit != UnitKind::kGroup) return 0;
  const DType t = rhs ? p.rhs->dtype : p.lhs->dtype;
  if (rhs ? p.rhs_along_k : p.lhs_along_k) return kir::widest_span(t, s.k_step);
  return kir::widest_span(t, rhs ? s.tile_columns : kGroupRows);
}

bool suits_group(const Product& p, const Schedule& s) {
  if (!p.group) return false;
  const kir::GroupFragmentRow& row = kir::group_row_of(*p.group);
  if (s.tile_rows % kGroupRows != 0 || s.tile_columns % 16 != 0 ||
      s.tile_columns > kir::kMostColumns || s.k_step % (row.k * s.k_split) != 0)
    return false;
  // A stage that is multiplied, one that still may be, and one that is on its way.
  if (s.stages < 2 + kBehind) return false;
  if (group_span(p, s, false) == 0 || group_span(p, s, true) == 0) return false;
  return has_registers(
      s, kOtherRegisters +
             s.tile_rows / kGroupRows * kir::GroupFragmentRow::sum_registers(s.tile_columns));
}

}  // namespace nimble::kernels::gpu
