// The template "gpu_recurrent": one step of an LSTM or GRU cell on a GPU.
//
// A step reads all recurrent weights for a few rows of h, so time is bytes, and the weights stay in
// the second-level cache from step to step. A block takes some hidden units, with all of their
// gates, so that these are at hand where the state is updated, and a few rows of the batch. Its
// lanes stand over (part of k, gate, units): neighbours read neighbouring columns of the weights,
// 16 bytes each if the width allows it, and each lane sums its share of k. What the lanes of a warp
// have of one column is added by shuffles, what warps have through shared memory.
//
// There are four places for gates, as many as an LSTM has: where a GRU leaves one empty, its lanes
// wait, which costs no bytes.
//
// A GRU whose reset gate applies before the product (linear_before_reset = 0) needs r * h of all
// units before the candidate's product. No block knows of another's units, so each computes all of
// them for its rows: more products, though of weights that the cache has, instead of a second
// launch.
#include <fmt/format.h>

#include <functional>
#include <utility>

#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/gpu_cell_lanes.h"
#include "compiler/kernels/templates/gpu_loops.h"
#include "compiler/kernels/templates/recurrent.h"
#include "compiler/kernels/templates/recurrent_formulas.h"
#include "compiler/kernels/templates/templates.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;

namespace {

using Shape = GpuCellShape;
constexpr int64_t kPlaces = GpuCellLanes::kPlaces;

std::optional<RecurrentCell> analyse(const Workload& w) {
  auto cell = recurrent_cell(w, gpu::make_gpu_frame(w));
  if (!cell || cell->packed || cell->gate_count > kPlaces || cell->hidden <= 0) return {};
  return cell;
}

bool needs_all_resets(const RecurrentCell& cell) {
  return !cell.lstm && !cell.linear_before_reset;
}

class StepLowering : GpuCellLanes {
 public:
  StepLowering(const Workload& w, const RecurrentCell& cell, const Shape& s)
      : GpuCellLanes(cell, s), w_(w), cell_(cell), depth_(cell.hidden % 4 == 0 ? 4 : 1) {
    shared_ = {partial_};
    if (needs_all_resets(cell)) {
      reset_ = gpu::shared_buffer("reset", cell.dtype, s.rows * cell.hidden);
      update_ = gpu::shared_buffer("update", cell.dtype, s.rows * s.units);
      shared_.push_back(reset_);
      shared_.push_back(update_);
    }
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> all;
    // The rows that the product reads: those beyond the last one are the last one again.
    for (int r = 0; r < s_.rows; ++r)
      all.push_back(
          kb::let_index(row_name(r), kb::index(ir::min(first_row() + r, cell_.batch - 1))));

    const Dim unit = first_unit() + own(), gates = Dim(cell_.gate_count);
    if (!needs_all_resets(cell_)) {
      all.push_back(product("k", place() * cell_.hidden + unit,
                            {{place(), gates}, {unit, hidden()}}, cell_.h));
      all.push_back(of_each("e", s_.units, first_unit(), [&](const Item& i) {
        return cell_.lstm ? lstm_update(i) : gru_update(i);
      }));
    } else {
      // All places, one after the other, are columns of the reset gate.
      const int64_t chunk = kPlaces * s_.units;
      const Dim first = Dim::symbol("chunk") * chunk;
      const Dim column = first + place() * s_.units + own();
      std::vector<StmtRef> resets;
      resets.push_back(product("kr", column, {{column, hidden()}}, cell_.h));
      resets.push_back(of_each(
          "er", chunk, first, [&](const Item& i) { return gru_reset(i, first + i.u); },
          /*all_rows=*/true));
      resets.push_back(kb::barrier(kir::Together::kBlock));
      all.push_back(kb::loop(LoopKind::kSerial, "chunk", 0, (cell_.hidden + chunk - 1) / chunk,
                             kb::seq(std::move(resets))));
      const auto one_gate = [&](const std::string& var, int64_t gate, const BufferRef& lhs) {
        return product(var, gate * cell_.hidden + unit, {{place(), 1}, {unit, hidden()}}, lhs);
      };
      all.push_back(one_gate("ku", 1, cell_.h));
      all.push_back(
          of_each("eu", s_.units, first_unit(), [&](const Item& i) { return gru_keep(i); }));
      all.push_back(kb::barrier(kir::Together::kBlock));
      all.push_back(one_gate("kc", 2, reset_));
      all.push_back(
          of_each("ec", s_.units, first_unit(), [&](const Item& i) { return gru_after_reset(i); }));
    }
    const Dim blocks = ir::ceildiv(hidden(), s_.units), rows = ir::ceildiv(cell_.batch, s_.rows);
    return gpu::launched(make_function(w_, cell_.frame, name, {}, {sums_}, kb::seq(std::move(all))),
                         {rows, blocks, 1}, s_.threads, shared_);
  }

 private:
  struct Below {
    Dim a, b;
  };

  static std::string row_name(int r) { return fmt::format("row{}", r); }
  Dim first_row() const { return gpu::block(0) * s_.rows; }
  Dim first_unit() const { return gpu::block(1) * s_.units; }
  Dim hidden() const { return cell_.hidden; }

  // The block's products of `lhs` with the columns of the weights from `column` on, of lanes for
  // which all of `where` hold, into partial_[warp][row][place][unit]. All threads of the block have
  // it behind. A lhs that is not the state has a row for each of the block's.
  StmtRef product(const std::string& var, const Dim& column, const std::vector<Below>& where,
                  const BufferRef& lhs) {
    std::vector<StmtRef> all;
    const int lanes = static_cast<int>(columns_);
    for (int r = 0; r < s_.rows; ++r)
      all.push_back(kb::set_reg(sums_, r, kb::number(cell_.dtype, 0, lanes)));
    const int64_t parts = parts_ * warps_, groups = cell_.hidden / depth_;
    const Dim group = Dim::symbol(var) * parts + part(), k = group * depth_;
    std::vector<StmtRef> body;
    const auto named = [&](const std::string& name, ValueRef v) {
      return gpu::named(body, var + name, std::move(v));
    };
    std::vector<ValueRef> weights, state;
    for (int e = 0; e < depth_; ++e)
      weights.push_back(named(
          fmt::format("w{}", e),
          kb::load(cell_.weights, (k + e) * (cell_.gate_count * cell_.hidden) + column, lanes)));
    for (int r = 0; r < s_.rows; ++r) {
      const Dim row = lhs == cell_.h ? Dim::symbol(row_name(r)) : Dim(r);
      state.push_back(named(fmt::format("h{}", r),
                            kb::load(lhs, row * cell_.hidden + k, static_cast<int>(depth_))));
    }
    for (int e = 0; e < depth_; ++e)
      for (int r = 0; r < s_.rows; ++r)
        body.push_back(kb::set_reg(sums_, r,
                                   kb::fma(kb::broadcast(kb::extract(state[r], e), lanes),
                                           kb::cast(cell_.dtype, weights[e]), kb::reg(sums_, r))));
    // All parts have something in the whole steps, and then some of them once more.
    const StmtRef one = kb::seq(std::move(body));
    const int64_t whole = groups / parts;
    StmtRef loop = gpu::stretched_loop(var, whole, s_.rows > 2 ? 2 : 4, one);
    if (groups % parts != 0)
      loop =
          kb::seq({std::move(loop), kb::if_then(kb::lt(whole * parts + part(), groups),
                                                kb::loop(LoopKind::kUnroll, var, whole, 1, one))});
    kir::Condition active;
    for (const Below& b : where) active = kb::both(std::move(active), kb::lt(b.a, b.b));
    all.push_back(kb::if_then(std::move(active), std::move(loop)));

    fold(all);
    return kb::seq(std::move(all));
  }

  // A unit of a row, by its numbers in the block, and the row in the batch.
  struct Item {
    Dim r, row, u;
  };

  // `body` of each row and of `columns` units from `first` on, shared out among the threads: of
  // those that there are, or with `all_rows` of the last row in place of one beyond it.
  StmtRef of_each(const std::string& var, int64_t columns, const Dim& first,
                  const std::function<StmtRef(const Item&)>& body, bool all_rows = false) const {
    const int64_t items = s_.rows * columns;
    const Dim item = Dim::symbol(var) * s_.threads + gpu::thread();
    const std::string r = var + "_r", u = var + "_u", row = var + "_row";
    const Item one = {Dim::symbol(r), Dim::symbol(row), Dim::symbol(u)};
    kir::Condition exists = kb::lt(first + one.u, hidden());
    Dim of_batch = first_row() + one.r;
    if (all_rows)
      of_batch = ir::min(of_batch, cell_.batch - 1);
    else
      exists = kb::both(std::move(exists), kb::lt(one.row, cell_.batch));
    StmtRef all = kb::seq(
        {kb::let_index(r, kb::index(ir::floordiv(item, columns)), ir::SymbolFacts{0, s_.rows, 1}),
         kb::let_index(u, kb::index(ir::mod(item, columns)), ir::SymbolFacts{0, columns - 1, 1}),
         kb::let_index(row, kb::index(of_batch)), kb::if_then(std::move(exists), body(one))});
    if (items % s_.threads != 0) all = kb::if_then(kb::lt(item, items), std::move(all));
    return kb::loop(LoopKind::kSerial, var, 0, (items + s_.threads - 1) / s_.threads,
                    std::move(all));
  }

  // ---- one item

  ValueRef local(const std::string& name) const { return kb::local(name, cell_.dtype, 1); }
  // The product that stands at `place`.
  ValueRef sum(const Item& i, int64_t place) const { return sum_at(i.r, place, i.u); }
  ValueRef input(const Item& i, int gate, const Dim& unit) const {
    return kb::load(cell_.gates, (i.row * cell_.gate_count + gate) * hidden() + unit);
  }
  ValueRef bias(int gate, const Dim& unit) const {
    return kb::load(cell_.bias, gate * hidden() + unit);
  }
  Dim state(const Item& i, const Dim& unit) const { return i.row * hidden() + unit; }

  StmtRef lstm_update(const Item& i) const {
    const Dim unit = first_unit() + i.u, at = state(i, unit);
    const auto gate = [&](int g) { return kb::add(input(i, g, unit), sum(i, g)); };
    std::vector<StmtRef> all = {kb::let("g_i", sigmoid(gate(0))), kb::let("g_f", sigmoid(gate(1))),
                                kb::let("g_g", tanh_of(gate(2))), kb::let("g_o", sigmoid(gate(3))),
                                kb::let("g_c", lstm_state(local("g_f"), kb::load(cell_.c, at),
                                                          local("g_i"), local("g_g")))};
    store_all(all, cell_.c_out, at, local("g_c"));
    all.push_back(kb::let("g_h", lstm_output(local("g_o"), local("g_c"))));
    store_all(all, cell_.h_out, at, local("g_h"));
    return kb::seq(std::move(all));
  }

  StmtRef gru_result(const Dim& at, ValueRef z) const {
    std::vector<StmtRef> all = {
        kb::let("g_h", gru_blend(std::move(z), local("g_n"), kb::load(cell_.h, at)))};
    store_all(all, cell_.h_out, at, local("g_h"));
    return kb::seq(std::move(all));
  }
  ValueRef recurrent(const Item& i, int64_t place, int gate, const Dim& unit) const {
    return kb::add(sum(i, place), bias(gate, unit));
  }
  ValueRef gate(const Item& i, int64_t place, int gate, const Dim& unit) const {
    return sigmoid(kb::add(input(i, gate, unit), recurrent(i, place, gate, unit)));
  }

  StmtRef gru_update(const Item& i) const {
    const Dim unit = first_unit() + i.u;
    return kb::seq(
        {kb::let("g_r", gate(i, 0, 0, unit)), kb::let("g_z", gate(i, 1, 1, unit)),
         kb::let("g_n", gru_candidate(local("g_r"), recurrent(i, 2, 2, unit), input(i, 2, unit))),
         gru_result(state(i, unit), local("g_z"))});
  }

  StmtRef gru_reset(const Item& i, const Dim& unit) const {
    const ValueRef h = kb::load(cell_.h, state(i, unit));
    // All of the chunk's units are neighbours: the places' numbers count on.
    return kb::store(reset_, i.r * hidden() + unit, kb::mul(gate(i, 0, 0, unit), h));
  }
  StmtRef gru_keep(const Item& i) const {
    return kb::store(update_, i.r * s_.units + i.u, gate(i, 0, 1, first_unit() + i.u));
  }
  StmtRef gru_after_reset(const Item& i) const {
    const Dim unit = first_unit() + i.u;
    const ValueRef x = kb::add(input(i, 2, unit), recurrent(i, 0, 2, unit));
    return kb::seq({kb::let("g_n", tanh_of(x)),
                    gru_result(state(i, unit), kb::load(update_, i.r * s_.units + i.u))});
  }

  const Workload& w_;
  const RecurrentCell& cell_;
  int64_t depth_;  // rows of the weights, of a lane at once
  BufferRef reset_, update_;
  std::vector<BufferRef> shared_;
};

class Step final : public GpuCell {
 public:
  explicit Step(RecurrentCell cell) : cell_(std::move(cell)) {}

  bool fits(const Shape& s, const TargetInfo& t) const override {
    if (!s.well_formed()) return false;
    const int64_t columns = GpuCellLanes::columns_of(cell_, s.units);
    if (kPlaces * s.units / columns > kir::kWarpLanes || columns * s.rows > 64 ||
        cell_.hidden / s.units >= gpu::kMaxBlocksAcross)
      return false;
    std::vector<gpu::SharedPart> shared = {{cell_.dtype, GpuCellLanes::partial_elements(s)}};
    if (needs_all_resets(cell_)) {
      shared.push_back({cell_.dtype, s.rows * cell_.hidden});
      shared.push_back({cell_.dtype, s.rows * s.units});
    }
    return gpu::shared_bytes(shared) <= t.shared_bytes;
  }

  // Eight units are a sector of 32 bytes of f32 in each row of the weights: as many blocks as can
  // be without reading more than they need.
  std::optional<Shape> default_shape(const TargetInfo& t) const override {
    for (int64_t rows = Shape::default_rows(cell_.batch); rows >= 1; rows /= 2)
      if (const Shape s{8, rows, 256}; fits(s, t)) return s;
    return {};
  }

  kir::Function lower(const Workload& w, const Shape& s, const std::string& name) const override {
    return StepLowering(w, cell_, s).run(name);
  }

 private:
  RecurrentCell cell_;
};

}  // namespace

std::unique_ptr<const GpuCell> GpuRecurrentTemplate::cell_of(const Workload& w) const {
  auto cell = analyse(w);
  return cell ? std::make_unique<const Step>(std::move(*cell)) : nullptr;
}

}  // namespace nimble::kernels
