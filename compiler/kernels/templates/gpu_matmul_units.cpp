// What computes a block's tile from shared memory: lanes with multiply-adds of their own, or the
// lanes of a warp together. (Those of four warps: gpu_matmul_group.cpp.)
//
// simt: a thread has tile_rows x tile_columns sums. Its rows are those of its number modulo the
// threads across, and its columns vectors of four likewise, so that neighbours of a warp read
// neighbouring rows and vectors: 8 x 4 lanes read 4 rows, which the padding keeps in other banks,
// and 128 bytes of columns. Per four steps of k and 16 sums, 8 reads stand against 64
// multiply-adds.
//
// mma: a warp has tile_rows x tile_columns sums in fragments. Operands come to the registers by
// ldmatrix, or element by element where it can't turn them over (bytes and f32 across k).
#include <algorithm>
#include <functional>

#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/gpu_matmul.h"
#include "vm/base/checked.h"
#include "vm/base/error.h"

namespace nimble::kernels::gpu {

namespace kb = kir::build;
using kir::BufferRef;
using kir::Dim;
using kir::kWarpLanes;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;
using kir::WarpOperand;

namespace {

constexpr int kBankBytes = 16;  // that a lane reads at once

int bytes_of(DType t) {
  return static_cast<int>(size_of(t));
}

// The largest power of two up to `most` that divides n.
int power_in(int n, int most) {
  int p = 1;
  while (2 * p <= most && n % (2 * p) == 0) p *= 2;
  return p;
}

// `body` for each of `count` parts of a step, by their number `var`: a few of them unrolled, since
// what is assembled grows with them and the time of a round does not.
StmtRef in_rounds(const char* var, int count, const std::function<StmtRef(const Dim&)>& body) {
  constexpr int kUnrolled = 4;
  const int unrolled = power_in(count, kUnrolled), rounds = count / unrolled;
  const std::string round = std::string(var) + "_round";
  if (rounds == 1) return kb::loop(LoopKind::kUnroll, var, 0, count, body(Dim::symbol(var)));
  return kb::loop(LoopKind::kSerial, round, 0, rounds,
                  kb::loop(LoopKind::kUnroll, var, 0, unrolled,
                           body(Dim::symbol(round) * unrolled + Dim::symbol(var))));
}

// Sums of one thread that lie side by side; 1 where columns are strewn since the rhs lies along k.
int column_lanes(const Product& p, const Schedule& s) {
  return p.rhs_along_k ? 1 : power_in(s.tile_columns, std::min(4, kAccessBytes / bytes_of(p.sum)));
}

// The threads of a simt team: `across` x `down`, in warps of lanes_across x lanes_down.
struct Threads {
  int across = 1, down = 1, lanes_across = 1, lanes_down = 1;
  explicit Threads(const Schedule& s)
      : across(s.block_columns / s.tile_columns),
        down(s.block_rows / s.tile_rows),
        lanes_across(std::min(across, 8)),
        lanes_down(kWarpLanes / std::max(1, lanes_across)) {}
};

class ScalarUnit final : public Unit {
 public:
  ScalarUnit(const Product& p, const Schedule& s, const SharedTile& lhs, const SharedTile& rhs)
      : s_(s),
        lhs_(lhs),
        rhs_(rhs),
        sum_(p.sum),
        threads_(s),
        lanes_(column_lanes(p, s)),
        vectors_(s.tile_columns / lanes_),
        slice_(s.slice()),
        deep_(power_in(slice_, 4)) {
    const int lhs_lanes = lhs.form().along_k ? deep_ : 1;
    const int rhs_lanes = rhs.form().along_k ? deep_ : lanes_;
    sums_ = kb::buffer("acc", Scope::kRegister, sum_, s.tile_rows * vectors_, lanes_);
    lhs_registers_ = kb::buffer("a_reg", Scope::kRegister, sum_, s.tile_rows, lhs_lanes);
    rhs_registers_ = kb::buffer("b_reg", Scope::kRegister, sum_, vectors_, rhs_lanes);
  }

  std::vector<BufferRef> registers() const override {
    return {sums_, lhs_registers_, rhs_registers_};
  }

  std::vector<StmtRef> prologue() const override {
    const Dim warp_of_team = ir::floordiv(ir::mod(thread(), s_.team()), kWarpLanes);
    const int warps_across = threads_.across / threads_.lanes_across;
    // Neighbours have the same columns, next neighbours the same rows: reads of 16 bytes by half a
    // warp of which every other lane wants what its neighbour does are one turn of shared memory.
    const int pair = std::min(2, threads_.lanes_down);
    const Dim x = ir::mod(warp_of_team, warps_across) * threads_.lanes_across +
                  ir::mod(ir::floordiv(lane(), pair), threads_.lanes_across);
    const Dim y = ir::floordiv(warp_of_team, warps_across) * threads_.lanes_down +
                  ir::mod(lane(), pair) + ir::floordiv(lane(), pair * threads_.lanes_across) * pair;
    return {let_team(s_), let("tx", x, {0, threads_.across - 1, 1}),
            let("ty", y, {0, threads_.down - 1, 1})};
  }

  StmtRef zero() const override {
    return kb::loop(LoopKind::kUnroll, "z", 0, s_.tile_rows * vectors_,
                    kb::set_reg(sums_, Dim::symbol("z"), kb::number(sum_, 0, lanes_)));
  }

  StmtRef step(const Dim& slot) const override {
    return in_rounds("kq", slice_ / deep_, [&](const Dim& part) {
      return products(slot, team_of(s_) * slice_ + part * deep_);
    });
  }

  StmtRef keep(const SharedSums& sums) const override {
    std::vector<StmtRef> all;
    for (int i = 0; i < s_.tile_rows; ++i)
      for (int v = 0; v < vectors_; ++v)
        all.push_back(kb::store(sums.buffer, sums.at(team_of(s_), row(i), column(v)),
                                kb::reg(sums_, i * vectors_ + v)));
    return kb::seq(std::move(all));
  }

 private:
  // Adds the products of `deep_` places of k.
  StmtRef products(const Dim& slot, const Dim& from) const {
    std::vector<StmtRef> all;
    const auto load = [&](const SharedTile& t, const Dim& x, const Dim& k, int lanes) {
      return kb::cast(sum_, kb::load(t.buffer(), t.at(slot, x, k), lanes));
    };
    const auto load_lhs = [&](const Dim& k, int lanes) {
      for (int i = 0; i < s_.tile_rows; ++i)
        all.push_back(kb::set_reg(lhs_registers_, i, load(lhs_, row(i), k, lanes)));
    };
    const auto load_rhs = [&](const Dim& k, int lanes) {
      for (int v = 0; v < vectors_; ++v)
        all.push_back(kb::set_reg(rhs_registers_, v, load(rhs_, column(v), k, lanes)));
    };
    const bool deep_lhs = lhs_.form().along_k, deep_rhs = rhs_.form().along_k;
    if (deep_lhs) load_lhs(from, deep_);
    if (deep_rhs) load_rhs(from, deep_);
    for (int k = 0; k < deep_; ++k) {
      if (!deep_lhs) load_lhs(from + k, 1);
      if (!deep_rhs) load_rhs(from + k, lanes_);
      for (int i = 0; i < s_.tile_rows; ++i)
        for (int v = 0; v < vectors_; ++v) {
          const ValueRef a =
              kb::broadcast(kb::extract(kb::reg(lhs_registers_, i), deep_lhs ? k : 0), lanes_);
          const ValueRef b =
              deep_rhs ? kb::extract(kb::reg(rhs_registers_, v), k) : kb::reg(rhs_registers_, v);
          const Dim element = i * vectors_ + v;
          const ValueRef sum = kb::reg(sums_, element);
          all.push_back(kb::set_reg(
              sums_, element, is_float(sum_) ? kb::fma(a, b, sum) : kb::add(kb::mul(a, b), sum)));
        }
    }
    return kb::seq(std::move(all));
  }

  Dim row(int i) const { return Dim::symbol("ty") + i * threads_.down; }
  Dim column(int v) const { return (Dim::symbol("tx") + v * threads_.across) * lanes_; }

  Schedule s_;
  const SharedTile &lhs_, &rhs_;
  DType sum_;
  Threads threads_;
  int lanes_, vectors_;  // of a thread's columns
  int slice_;            // a team's part of a step
  int deep_;             // elements that are read at once along k
  BufferRef sums_, lhs_registers_, rhs_registers_;
};

// How a fragment's operand comes from shared memory.
enum class FragmentLoad { kMatrices, kTransposed, kElements };
FragmentLoad load_of(DType t, bool along_k) {
  if (along_k) return FragmentLoad::kMatrices;
  return size_of(t) == 2 ? FragmentLoad::kTransposed : FragmentLoad::kElements;
}

class MatrixUnit final : public Unit {
 public:
  MatrixUnit(const Product& p, const Schedule& s, const SharedTile& lhs, const SharedTile& rhs)
      : s_(s),
        lhs_(lhs),
        rhs_(rhs),
        row_(kir::warp_row_of(*p.fragment)),
        tall_(s.tile_rows / row_.m),
        wide_(s.tile_columns / row_.n),
        steps_(s.k_step / row_.k / s.k_split) {
    const auto registers = [&](const char* name, DType t, int count) {
      return kb::buffer(name, Scope::kRegister, t, count, row_.per_register(t));
    };
    sums_ = registers("acc", row_.sum, tall_ * wide_ * row_.sum_registers());
    lhs_registers_ = registers("a_reg", row_.a, tall_ * row_.a_registers());
    rhs_registers_ = registers("b_reg", row_.b, wide_ * row_.b_registers());
  }

  std::vector<BufferRef> registers() const override {
    return {sums_, lhs_registers_, rhs_registers_};
  }

  std::vector<StmtRef> prologue() const override {
    const Dim warp_of_team = ir::mod(warp(), s_.team() / kWarpLanes);
    const int across = s_.block_columns / s_.tile_columns;
    return {let_team(s_), let("lane", gpu::lane(), {0, kWarpLanes - 1, 1}),
            let("warp_row", ir::floordiv(warp_of_team, across) * s_.tile_rows,
                {0, s_.block_rows - s_.tile_rows, s_.tile_rows}),
            let("warp_column", ir::mod(warp_of_team, across) * s_.tile_columns,
                {0, s_.block_columns - s_.tile_columns, s_.tile_columns})};
  }

  StmtRef zero() const override {
    return kb::loop(LoopKind::kUnroll, "z", 0, tall_ * wide_ * row_.sum_registers(),
                    kb::set_reg(sums_, Dim::symbol("z"), kb::number(row_.sum, 0)));
  }

  StmtRef step(const Dim& slot) const override {
    return in_rounds("ks", steps_, [&](const Dim& part) {
      return products(slot, (team_of(s_) * steps_ + part) * row_.k);
    });
  }

  StmtRef keep(const SharedSums& sums) const override {
    std::vector<StmtRef> all;
    for (int i = 0; i < tall_; ++i)
      for (int j = 0; j < wide_; ++j)
        for (int number = 0; number < row_.sum_registers(); number += 2) {
          // Two registers are neighbours in a row.
          const Place at = place(WarpOperand::kSum, number);
          const int first = (i * wide_ + j) * row_.sum_registers() + number;
          all.push_back(kb::store(sums.buffer,
                                  sums.at(team_of(s_), warp_row() + i * row_.m + at.row,
                                          warp_column() + j * row_.n + at.column),
                                  pair_of(kb::reg(sums_, first), kb::reg(sums_, first + 1))));
        }
    return kb::seq(std::move(all));
  }

 private:
  struct Place {
    Dim row, column;
  };
  static Dim lane() { return Dim::symbol("lane"); }
  static Dim warp_row() { return Dim::symbol("warp_row"); }
  static Dim warp_column() { return Dim::symbol("warp_column"); }

  // Where the first element of this lane's register lies: a lane's number in its group of four, and
  // the group's, count along one axis each.
  Place place(WarpOperand operand, int number) const {
    const auto of = [&](int l) { return kir::warp_place(row_, operand, l, number, 0); };
    const kir::WarpPlace origin = of(0), next = of(1), group = of(4);
    const Dim in_group = ir::mod(lane(), 4), groups = ir::floordiv(lane(), 4);
    return {origin.row + in_group * (next.row - origin.row) + groups * (group.row - origin.row),
            origin.column + in_group * (next.column - origin.column) +
                groups * (group.column - origin.column)};
  }

  // Adds the products of one fragment's depth of k.
  StmtRef products(const Dim& slot, const Dim& from) const {
    std::vector<StmtRef> all;
    for (int i = 0; i < tall_; ++i) load_lhs(slot, from, i, all);
    for (int j = 0; j < wide_; j += 2) load_rhs(slot, from, j, std::min(2, wide_ - j), all);
    for (int i = 0; i < tall_; ++i)
      for (int j = 0; j < wide_; ++j)
        all.push_back(kb::warp_dot(row_.id, sums_, (i * wide_ + j) * row_.sum_registers(),
                                   lhs_registers_, i * row_.a_registers(), rhs_registers_,
                                   j * row_.b_registers()));
    return kb::seq(std::move(all));
  }

  void load_lhs(const Dim& slot, const Dim& from, int i, std::vector<StmtRef>& all) const {
    const Dim x = warp_row() + i * row_.m;
    const int first = i * row_.a_registers();
    const FragmentLoad how = load_of(row_.a, lhs_.form().along_k);
    if (how == FragmentLoad::kElements) {
      for (int number = 0; number < row_.a_registers(); ++number) {
        const Place at = place(WarpOperand::kA, number);
        all.push_back(
            element(lhs_, lhs_registers_, first + number, slot, x + at.row, from + at.column));
      }
      return;
    }
    // Matrices 0 and 1 are the upper and the lower rows, 2 and 3 those of the further half of k.
    const bool transposed = how == FragmentLoad::kTransposed;
    const Dim second = ir::floordiv(lane(), 16);
    const Dim index = transposed
                          ? lhs_.at(slot, x + 8 * ir::mod(ir::floordiv(lane(), 8), 2),
                                    from + 8 * second + ir::mod(lane(), 8))
                          : lhs_.at(slot, x + ir::mod(lane(), 16), from + row_.k / 2 * second);
    all.push_back(
        kb::warp_load(lhs_registers_, first, row_.a_registers(), lhs_.buffer(), index, transposed));
  }

  // Fragments j, …, j + count - 1.
  void load_rhs(const Dim& slot, const Dim& from, int j, int count,
                std::vector<StmtRef>& all) const {
    const Dim x = warp_column() + j * row_.n;
    const FragmentLoad how = load_of(row_.b, rhs_.form().along_k);
    if (how == FragmentLoad::kElements) {
      for (int c = 0; c < count; ++c)
        for (int number = 0; number < row_.b_registers(); ++number) {
          const Place at = place(WarpOperand::kB, number);
          all.push_back(element(rhs_, rhs_registers_, (j + c) * row_.b_registers() + number, slot,
                                x + c * row_.n + at.column, from + at.row));
        }
      return;
    }
    // Matrices 0 and 1 are the halves of k of the first fragment, 2 and 3 those of the second.
    const bool transposed = how == FragmentLoad::kTransposed;
    const Dim second = count == 2 ? 8 * ir::floordiv(lane(), 16) : Dim(0);
    const Dim index = transposed ? rhs_.at(slot, x + second, from + ir::mod(lane(), 16))
                                 : rhs_.at(slot, x + second + ir::mod(lane(), 8),
                                           from + row_.k / 2 * ir::mod(ir::floordiv(lane(), 8), 2));
    all.push_back(kb::warp_load(rhs_registers_, j * row_.b_registers(), count * row_.b_registers(),
                                rhs_.buffer(), index, transposed));
  }

  // A register's elements, which are neighbours along k.
  StmtRef element(const SharedTile& t, const BufferRef& registers, int number, const Dim& slot,
                  const Dim& x, const Dim& k) const {
    return kb::set_reg(registers, number,
                       kb::load_strided(t.buffer(), t.at(slot, x, k), t.k_distance(),
                                        row_.per_register(registers->dtype)));
  }

  Schedule s_;
  const SharedTile &lhs_, &rhs_;
  const kir::WarpFragmentRow& row_;
  int tall_, wide_;  // fragments of a warp's tile
  int steps_;        // fragments along k of a team's part of a step
  BufferRef sums_, lhs_registers_, rhs_registers_;
};

}  // namespace

StmtRef let_team(const Schedule& s) {
  return s.k_split == 1 ? kb::seq({})
                        : let("team", ir::floordiv(thread(), s.team()), {0, s.k_split - 1, 1});
}

Dim team_of(const Schedule& s) {
  return s.k_split == 1 ? Dim(0) : Dim::symbol("team");
}

std::unique_ptr<Unit> scalar_unit(const Product& p, const Schedule& s, const SharedTile& lhs,
                                  const SharedTile& rhs) {
  return std::make_unique<ScalarUnit>(p, s, lhs, rhs);
}

std::unique_ptr<Unit> matrix_unit(const Product& p, const Schedule& s, const SharedTile& lhs,
                                  const SharedTile& rhs) {
  return std::make_unique<MatrixUnit>(p, s, lhs, rhs);
}

int tile_pad(const Product& p, const Schedule& s, bool rhs) {
  if (s.unit == UnitKind::kGroup) return 0;  // its swizzle does that
  const DType t = rhs ? p.rhs->dtype : p.lhs->dtype;
  const bool along_k = rhs ? p.rhs_along_k : p.lhs_along_k;
  // A step of 16 bytes from row to row goes through all banks in eight rows.
  if (along_k) return kBankBytes / bytes_of(t);
  if (s.unit == UnitKind::kScalar) return 0;  // lanes read neighbours
  // Single elements of four bytes: four rows of eight neighbours.
  return (bytes_of(t) == 4 ? 2 : 1) * kBankBytes / bytes_of(t);
}

int sums_pad(const Product& p, const Schedule& s) {
  // What a warp writes at once are four or eight rows of 32 bytes, or of vectors two of 64.
  if (s.unit != UnitKind::kScalar || column_lanes(p, s) == 1) return 8;
  return s.block_columns % 32 == 0 ? 16 : 0;
}

bool has_registers(const Schedule& s, int registers) {
  constexpr int kRegisters = 1 << 16, kMostOfThread = 224;
  return registers <= kMostOfThread && registers * s.threads() <= kRegisters;
}

bool suits_unit(const Product& p, const Schedule& s) {
  const auto positive = {s.block_rows, s.block_columns, s.tile_rows, s.tile_columns,
                         s.k_step,     s.k_split,       s.stages};
  if (!std::all_of(positive.begin(), positive.end(), [](int x) { return x > 0; })) return false;
  if (s.block_rows % s.tile_rows != 0 || s.block_columns % s.tile_columns != 0) return false;
  // An int holds a team's threads whatever a configuration says, and need not hold all teams'.
  if (s.k_step % s.k_split != 0 || s.team() > kMaxThreads / s.k_split || s.stages < 2) return false;
  if (s.unit == UnitKind::kGroup) return suits_group(p, s);
  if (s.tile_columns > kWidestTile) return false;
  int registers = kOtherRegisters + (p.implicit ? kGatherRegisters : 0);
  if (s.unit == UnitKind::kMatrix) {
    if (!p.fragment) return false;
    const kir::WarpFragmentRow& row = kir::warp_row_of(*p.fragment);
    if (s.tile_rows % row.m != 0 || s.tile_columns % row.n != 0) return false;
    if (s.k_step % (row.k * s.k_split) != 0) return false;
    registers += s.tile_rows / row.m * row.a_registers() +
                 s.tile_columns / row.n * row.b_registers() +
                 s.tile_rows * s.tile_columns / kWarpLanes;
  } else {
    const Threads t(s);
    if (s.team() % kWarpLanes != 0 || !is_power_of_two(t.lanes_across) ||
        t.across % t.lanes_across != 0 || t.down % t.lanes_down != 0)
      return false;
    const int words = std::max(1, bytes_of(p.sum) / 4);
    registers += words * (s.tile_rows * s.tile_columns + 4 * s.tile_rows +
                          (p.rhs_along_k ? 4 : 1) * s.tile_columns);
  }
  return has_registers(s, registers);
}

}  // namespace nimble::kernels::gpu
