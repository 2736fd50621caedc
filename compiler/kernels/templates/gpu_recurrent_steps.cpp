// The template "gpu_recurrent_steps": all steps of an LSTM or GRU cell on a GPU, whose recurrent
// weights stay on chip from the first step to the last.
//
// A block has some hidden units, with all of their gates, and keeps the columns of the weights that
// make these in shared memory, in the type that they are stored in. Each step takes h of all units,
// which the blocks hand each other by way of y in global memory: the grid does its work in steps
// (LoopKind::kSteps). Where all blocks are on the GPU at once that is one launch, whose steps read
// a few rows of h from the second-level cache and nothing else of size; else it is a launch for
// each step, which reads the weights as a single cell's does (gpu_recurrent.cpp).
//
// In a step a block takes a few rows of the batch at a time: their h into shared memory, then the
// products, then the gates. Lanes of the product stand over (part of k, gate, units): those of a
// warp read neighbouring bytes of the weights, 16 each if the units allow it, and the sums of a
// column are added by shuffles within a warp and through shared memory between warps. There are
// four places for gates, as many as an LSTM has; a GRU's lanes at the fourth wait.
//
// A GRU whose reset gate applies before the product would meet twice a step, and stays a loop of
// cells.
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

std::optional<RecurrentSteps> analyse(const Workload& w) {
  auto all = recurrent_steps(w, gpu::make_gpu_frame(w));
  if (!all || all->gate_count > kPlaces || all->hidden <= 0) return {};
  if (!all->lstm && !all->linear_before_reset) return {};
  return all;
}

class StepsLowering : GpuCellLanes {
 public:
  StepsLowering(const Workload& w, const RecurrentSteps& all, const Shape& s)
      : GpuCellLanes(all, s), w_(w), all_(all) {
    cell_ = kb::buffer("cell", Scope::kRegister, all.dtype, 1);
    weights_ =
        gpu::shared_buffer("weights", all.weights->dtype, all.hidden * all.gate_count * s.units);
    state_ = gpu::shared_buffer("state", all.dtype, s.rows * all.hidden);
  }

  kir::Function run(const std::string& name) {
    // Without steps the states are what they were: that is one, too.
    const Dim steps = ir::max(all_.count, 1);
    StmtRef one =
        kb::loop(LoopKind::kSerial, "group", 0, ir::ceildiv(all_.batch, s_.rows), rows_of_batch());
    one = kb::if_then(kb::lt(step(), all_.count), std::move(one), hand_on());
    std::vector<StmtRef> body = {keep_weights(), kb::barrier(kir::Together::kBlock),
                                 kb::loop(LoopKind::kSteps, "step", 0, steps, std::move(one))};
    return gpu::launched(
        make_function(w_, all_.frame, name, {}, {sums_, cell_}, kb::seq(std::move(body))),
        {ir::ceildiv(hidden(), s_.units), 1, 1}, s_.threads, {weights_, state_, partial_});
  }

 private:
  static Dim step() { return Dim::symbol("step"); }
  Dim first_row() const { return Dim::symbol("group") * s_.rows; }  // of the batch
  Dim hidden() const { return all_.hidden; }
  Dim first_unit() const { return gpu::block() * s_.units; }
  // Where a row of the batch lies in y, at this step and at the one before.
  Dim now(const Dim& row) const { return all_.row_of(step()) * all_.batch + row; }
  Dim before(const Dim& row) const { return all_.row_of(step() - 1) * all_.batch + row; }

  // `body` of `count` items, shared out among the threads.
  StmtRef each_item(const std::string& var, const Dim& count, const Dim& item, StmtRef body) const {
    const auto known = count.as_constant();
    if (!known || *known % s_.threads != 0)
      body = kb::if_then(kb::lt(item, count), std::move(body));
    return kb::loop(LoopKind::kSerial, var, 0, ir::ceildiv(count, s_.threads), std::move(body));
  }
  Dim item_of(const std::string& var) const {
    return Dim::symbol(var) * s_.threads + gpu::thread();
  }

  // The block's columns of the weights: [k][gate][unit], zeros for units beyond the last one.
  StmtRef keep_weights() const {
    const int64_t vectors = s_.units / columns_;
    const int lanes = static_cast<int>(columns_);
    const Dim item = item_of("w"), row = Dim::symbol("w_row"), unit = Dim::symbol("w_unit");
    const Dim to = row * s_.units + unit;
    const int64_t rows = all_.hidden * all_.gate_count;  // of the model's too
    const StmtRef load = kb::store(
        weights_, to, kb::load(all_.weights, row * hidden() + first_unit() + unit, lanes));
    StmtRef one = load;
    if (all_.hidden % s_.units != 0)
      one = kb::if_then(kb::lt(first_unit() + unit, hidden()), load,
                        kb::store(weights_, to, kb::number(all_.weights->dtype, 0, lanes)));
    one = kb::seq({kb::let_index("w_row", kb::index(ir::floordiv(item, vectors)),
                                 ir::SymbolFacts{0, rows - 1, 1}),
                   kb::let_index("w_unit", kb::index(ir::mod(item, vectors) * columns_),
                                 ir::SymbolFacts{0, s_.units - columns_, columns_}),
                   std::move(one)});
    return each_item("w", rows * vectors, item, std::move(one));
  }

  // h and c of the block's units as they came.
  StmtRef hand_on() const {
    const Dim item = item_of("z");
    const Dim unit = first_unit() + Dim::symbol("z_unit");
    const Dim at = Dim::symbol("z_row") * hidden() + unit;
    std::vector<StmtRef> stores;
    store_all(stores, all_.h_out, at, kb::load(all_.h, at));
    if (all_.lstm) store_all(stores, all_.c_out, at, kb::load(all_.c, at));
    StmtRef one = kb::seq({kb::let_index("z_unit", kb::index(ir::mod(item, s_.units)),
                                         ir::SymbolFacts{0, s_.units - 1, 1}),
                           kb::let_index("z_row", kb::index(ir::floordiv(item, s_.units))),
                           kb::if_then(kb::lt(unit, hidden()), kb::seq(std::move(stores)))});
    return each_item("z", all_.batch * s_.units, item, std::move(one));
  }

  // A few rows of the batch. Those beyond the last one are the last one again.
  StmtRef rows_of_batch() const {
    return kb::seq(
        {kb::if_then(kb::eq(step(), 0), stage(all_.h, [](const Dim& row) { return row; }),
                     stage(all_.y_out[0], [&](const Dim& row) { return before(row); })),
         kb::barrier(kir::Together::kBlock), products(), update(),
         // What this group read makes room for the next one's.
         kb::barrier(kir::Together::kBlock)});
  }

  // The rows' h, all units of it.
  template <class Place>
  StmtRef stage(const BufferRef& from, const Place& place) const {
    const int64_t lanes = all_.hidden % 4 == 0 ? 4 : 1, vectors = all_.hidden / lanes;
    const Dim item = item_of("s"), row = Dim::symbol("s_row"), unit = Dim::symbol("s_unit");
    StmtRef one = kb::store(
        state_, row * hidden() + unit,
        kb::load(from, place(ir::min(first_row() + row, all_.batch - 1)) * hidden() + unit,
                 static_cast<int>(lanes)));
    one = kb::seq({kb::let_index("s_row", kb::index(ir::floordiv(item, vectors)),
                                 ir::SymbolFacts{0, s_.rows - 1, 1}),
                   kb::let_index("s_unit", kb::index(ir::mod(item, vectors) * lanes),
                                 ir::SymbolFacts{0, all_.hidden - lanes, lanes}),
                   std::move(one)});
    return each_item("s", s_.rows * vectors, item, std::move(one));
  }

  // Of the rows with the block's columns, into partial_[warp][row][place][unit]; all threads have
  // it behind.
  StmtRef products() const {
    std::vector<StmtRef> all;
    const int lanes = static_cast<int>(columns_);
    for (int r = 0; r < s_.rows; ++r)
      all.push_back(kb::set_reg(sums_, r, kb::number(all_.dtype, 0, lanes)));
    const int64_t parts = parts_ * warps_, whole = all_.hidden / parts;
    const Dim k = Dim::symbol("k") * parts + part();
    std::vector<StmtRef> body;
    const ValueRef weight = gpu::named(
        body, "kw",
        kb::cast(all_.dtype,
                 kb::load(weights_, (k * all_.gate_count + place()) * s_.units + own(), lanes)));
    for (int r = 0; r < s_.rows; ++r)
      body.push_back(kb::set_reg(sums_, r,
                                 kb::fma(kb::broadcast(kb::load(state_, r * hidden() + k), lanes),
                                         weight, kb::reg(sums_, r))));
    // All parts have something in the whole steps, and then some of them once more.
    const StmtRef one = kb::seq(std::move(body));
    StmtRef loop = gpu::stretched_loop("k", whole, 4, one);
    if (all_.hidden % parts != 0)
      loop =
          kb::seq({std::move(loop), kb::if_then(kb::lt(whole * parts + part(), hidden()),
                                                kb::loop(LoopKind::kUnroll, "k", whole, 1, one))});
    if (all_.gate_count < kPlaces)
      loop = kb::if_then(kb::lt(place(), all_.gate_count), std::move(loop));
    all.push_back(std::move(loop));

    fold(all);
    return kb::seq(std::move(all));
  }

  // ---- one unit of one row

  static Dim row() { return Dim::symbol("u_row"); }    // of the group's
  static Dim unit() { return Dim::symbol("u_unit"); }  // of the block's
  Dim batch_row() const { return first_row() + row(); }
  Dim hidden_unit() const { return first_unit() + unit(); }
  // In a state.
  Dim at() const { return batch_row() * hidden() + hidden_unit(); }

  StmtRef update() const {
    const Dim item = item_of("u");
    const kir::Condition exists =
        kb::both(kb::lt(batch_row(), all_.batch), kb::lt(hidden_unit(), hidden()));
    StmtRef one = kb::seq({kb::let_index("u_row", kb::index(ir::floordiv(item, s_.units)),
                                         ir::SymbolFacts{0, s_.rows - 1, 1}),
                           kb::let_index("u_unit", kb::index(ir::mod(item, s_.units)),
                                         ir::SymbolFacts{0, s_.units - 1, 1}),
                           kb::if_then(exists, all_.lstm ? lstm() : gru())});
    return each_item("u", s_.rows * s_.units, item, std::move(one));
  }

  ValueRef local(const std::string& name) const { return kb::local(name, all_.dtype, 1); }
  ValueRef sum(int gate) const { return sum_at(row(), gate, unit()); }
  ValueRef input(int gate) const {
    return kb::load(all_.gates,
                    (now(batch_row()) * all_.gate_count + gate) * hidden() + hidden_unit());
  }
  ValueRef recurrent(int gate) const {
    return kb::add(sum(gate), kb::load(all_.bias, gate * hidden() + hidden_unit()));
  }

  void store_h(std::vector<StmtRef>& to, ValueRef h) const {
    to.push_back(kb::let("g_h", std::move(h)));
    store_all(to, all_.y_out, now(batch_row()) * hidden() + hidden_unit(), local("g_h"));
    std::vector<StmtRef> last;
    store_all(last, all_.h_out, at(), local("g_h"));
    to.push_back(kb::if_then(kb::eq(step(), all_.count - 1), kb::seq(std::move(last))));
  }

  StmtRef lstm() const {
    const auto gate = [&](int g) { return kb::add(input(g), sum(g)); };
    std::vector<StmtRef> all = {
        kb::if_then(kb::eq(step(), 0), kb::set_reg(cell_, 0, kb::load(all_.c, at())),
                    kb::set_reg(cell_, 0, kb::load(all_.c_out[0], at()))),
        kb::let("g_i", sigmoid(gate(0))),
        kb::let("g_f", sigmoid(gate(1))),
        kb::let("g_g", tanh_of(gate(2))),
        kb::let("g_o", sigmoid(gate(3))),
        kb::let("g_c", lstm_state(local("g_f"), kb::reg(cell_, 0), local("g_i"), local("g_g")))};
    store_all(all, all_.c_out, at(), local("g_c"));
    store_h(all, lstm_output(local("g_o"), local("g_c")));
    return kb::seq(std::move(all));
  }

  StmtRef gru() const {
    const auto gate = [&](int g) { return sigmoid(kb::add(input(g), recurrent(g))); };
    std::vector<StmtRef> all = {
        kb::let("g_r", gate(0)), kb::let("g_z", gate(1)),
        kb::let("g_n", gru_candidate(local("g_r"), recurrent(2), input(2)))};
    const ValueRef h = kb::load(state_, row() * hidden() + hidden_unit());
    store_h(all, gru_blend(local("g_z"), local("g_n"), h));
    return kb::seq(std::move(all));
  }

  const Workload& w_;
  const RecurrentSteps& all_;
  BufferRef cell_, weights_, state_;
};

class Steps final : public GpuCell {
 public:
  explicit Steps(RecurrentSteps all) : all_(std::move(all)) {}

  bool fits(const Shape& s, const TargetInfo& t) const override {
    if (!s.well_formed() || s.units > 64) return false;
    const int64_t columns = GpuCellLanes::columns_of(all_, s.units);
    return kPlaces * s.units / columns <= kir::kWarpLanes && columns * s.rows <= 64 &&
           shared_bytes(s) <= t.shared_bytes;
  }

  // The fewest units a block that leave no more blocks than the target has multiprocessors, so that
  // all are sure to be there at once: the more of them share out the weights, the sooner a step is
  // done. Nothing if so many do not hold the weights: a loop of cells then reads them from the
  // cache.
  std::optional<Shape> default_shape(const TargetInfo& t) const override {
    for (int64_t rows = Shape::default_rows(all_.batch); rows >= 1; rows /= 2)
      for (const int64_t units : {4, 8, 16, 32})
        if (const Shape s{units, rows, 256};
            fits(s, t) && (all_.hidden + units - 1) / units <= t.multiprocessors)
          return s;
    return {};
  }

  kir::Function lower(const Workload& w, const Shape& s, const std::string& name) const override {
    return StepsLowering(w, all_, s).run(name);
  }

 private:
  // Of a block; more than any has where it is too much to count.
  int64_t shared_bytes(const Shape& s) const {
    constexpr int64_t kMost = 1 << 20;
    if (all_.hidden > kMost / (s.rows + kPlaces * s.units)) return kMost;
    return gpu::shared_bytes({{all_.weights->dtype, all_.hidden * all_.gate_count * s.units},
                              {all_.dtype, s.rows * all_.hidden},
                              {all_.dtype, GpuCellLanes::partial_elements(s)}});
  }

  RecurrentSteps all_;
};

}  // namespace

std::unique_ptr<const GpuCell> GpuRecurrentStepsTemplate::cell_of(const Workload& w) const {
  auto all = analyse(w);
  return all ? std::make_unique<const Steps>(std::move(*all)) : nullptr;
}

}  // namespace nimble::kernels
