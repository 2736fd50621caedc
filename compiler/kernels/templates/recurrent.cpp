// The template "recurrent": one step of an LSTM or GRU cell. The recurrent product and the gates
// are one kernel; the input's part of the gates comes ready (one product for the whole sequence,
// ahead of the loop).
//
// A recurrent cell, bound by where its weights sit.
//
// One step reads all weights (4 MB for 512 hidden units) for one row of h, so time is bytes. Two
// means against it:
//  - A panel holds all gates of a few hidden units (layout "gate16"), so the gates, c and h of
//    these units are updated while their sums are at hand, and a thread keeps to its own units.
//  - Zig-zag: the panels are walked forwards in even steps and backwards in odd ones. A cache of
//    2 MB that is walked in one direction only over 4 MB has always just evicted what comes
//    next; turning round finds the last-used half again. On one thread 87 -> 61 us a step, on
//    two 29 -> 20. Software prefetch on top of it made it slower in every variant tried.
// Several rows (a batch) share each panel by row tiles (tile.h). Weights of f16 or bf16, which are
// converted as they are loaded, are half the bytes.
//
// A GRU whose reset gate applies before the product (linear_before_reset = 0) needs r * h of all
// units before the candidate's product: two phases with a barrier between.
#include "compiler/kernels/templates/recurrent.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "compiler/ir/layout.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/recurrent_formulas.h"
#include "compiler/kernels/templates/row_tiles.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/tile.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;

std::string recurrent_layout(const TargetInfo& t, DType dtype) {
  return ir::Layout{ir::Layout::Kind::kGate, lanes_of(t, dtype)}.str();
}

namespace {

struct Cell : RecurrentCell {
  std::optional<Dim> step;  // the step's number, if the operator knows it
  int64_t stored = 0;  // hidden units of a panel as it is packed: `lanes`, or a multiple of them
  int lanes = 0;

  int64_t panels() const { return (hidden + lanes - 1) / lanes; }
  bool partial() const { return hidden % lanes != 0; }
};

// Which of the cell's so many results each result of the group is, by its number. Nothing if the
// group does more than hand them out, once or more often.
std::optional<std::vector<int64_t>> handed_out(const Workload& w, const Frame& frame,
                                               int64_t results) {
  std::map<const ir::Var*, int64_t> field;
  for (const ir::Binding& b : w.group->body->bindings) {
    const bool of_cell = b.value->kind == ir::ExprKind::kGetField && b.value->args[0].is_var() &&
                         b.value->args[0].var == frame.anchor->var;
    if (of_cell)
      field[b.var.get()] = b.value->index;
    else if (&b != frame.anchor && b.value->kind != ir::ExprKind::kTuple)
      return {};
  }
  if (results == 1) field[frame.anchor->var.get()] = 0;
  std::vector<int64_t> all;
  for (const ir::Atom& a : frame.result_atoms) {
    if (results > 1 && a.is_var() && a.var == frame.anchor->var) {
      all.resize(static_cast<size_t>(results));
      std::iota(all.begin(), all.end(), 0);
      return all;
    }
    const auto it = a.is_var() ? field.find(a.var.get()) : field.end();
    if (it == field.end()) return {};
    all.push_back(it->second);
  }
  return all;
}

std::optional<Cell> analyse(const Workload& w, const TargetInfo& t) {
  auto known = recurrent_cell(w, make_frame(w));
  if (!known) return {};
  Cell cell;
  static_cast<RecurrentCell&>(cell) = std::move(*known);
  cell.lanes = lanes_of(t, cell.dtype);
  if (cell.packed) {
    const ir::Expr& call = *cell.frame.anchor->value;
    const auto layout = ir::parse_layout(ir::attr<std::string>(call.attrs, "layout"));
    if (!layout || layout->kind != ir::Layout::Kind::kGate || layout->width % cell.lanes != 0)
      return {};
    cell.stored = layout->width;
    cell.step = scalar_symbol(w, call.args[*ir::find_op(w.anchor)->traits.cell->step]);
  }
  return cell;
}

class CellLowering {
 public:
  CellLowering(const Workload& w, const Cell& cell, const Config& c)
      : w_(w),
        cell_(cell),
        rows_(static_cast<int>(knob_int(c, "rows"))),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        chains_(static_cast<int>(knob_int(c, "chains"))),
        zigzag_(knob_text(c, "walk") == "zigzag"),
        tiles_(cell.batch, rows_, knob_text(c, "tails"), 0, "b_") {
    const int gates = cell.gate_count;
    accumulators_ = kb::buffer("acc", Scope::kRegister, cell.dtype,
                               std::max(rows_ * gates, chains_ * gates), cell.lanes);
    panel_ = kb::buffer("panel", Scope::kRegister, cell.dtype, gates, cell.lanes);
    sums_ = thread_scratch("sums", cell.dtype, rows_ * gates * cell.lanes);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> body = tiles_.prologue();
    std::vector<BufferRef> scratch = {sums_};
    if (cell_.lstm || cell_.linear_before_reset) {
      body.push_back(phase("q", 0, cell_.gate_count, cell_.h, [&](const Dim& row, const Dim& r) {
        return cell_.lstm ? lstm_update(row, r) : gru_update(row, r);
      }));
    } else {
      reset_ = kb::buffer("reset", Scope::kScratch, cell_.dtype, cell_.batch * cell_.hidden);
      update_ = kb::buffer("update", Scope::kScratch, cell_.dtype, cell_.batch * cell_.hidden);
      scratch.push_back(reset_);
      scratch.push_back(update_);
      body.push_back(phase("q", 0, 2, cell_.h,
                           [&](const Dim& row, const Dim& r) { return gru_reset(row, r); }));
      body.push_back(kb::barrier());
      body.push_back(phase("q2", 2, 1, reset_,
                           [&](const Dim& row, const Dim& r) { return gru_after_reset(row, r); }));
    }
    return make_function(w_, cell_.frame, name, std::move(scratch), {accumulators_, panel_},
                         kb::seq(std::move(body)));
  }

 private:
  // Products of `vectors` gates from `first_gate` on with `lhs`, for all rows and this thread's
  // units; `update` then consumes sums_[r][gate][lane] of one row.
  StmtRef phase(const std::string& var, int first_gate, int vectors, const BufferRef& lhs,
                const std::function<StmtRef(const Dim& row, const Dim& r)>& update) {
    const Dim q = Dim::symbol(var), p = Dim::symbol("p");
    Dim panel = q;
    if (zigzag_ && cell_.step) {
      // This thread's panels are [begin, end); odd steps mirror them.
      const Dim thread = Dim::symbol("thread"), threads = Dim::symbol("threads");
      const Dim begin = ir::floordiv(thread * cell_.panels(), threads);
      const Dim end = ir::floordiv((thread + 1) * cell_.panels(), threads);
      panel = q + ir::mod(*cell_.step, 2) * (begin + end - 1 - q - q);
    }
    StmtRef tiles = tiles_.for_each(
        0, tiles_.count(),
        [&](const RowTiles::Tile& t) { return tile(t, p, first_gate, vectors, lhs); },
        [&](const RowTiles::Tile& t) {
          const Dim r = Dim::symbol("e_r");
          return kb::loop(LoopKind::kSerial, "e_r", 0, t.valid, update(t.row + r, r));
        });
    return kb::loop(LoopKind::kThread, var, 0, cell_.panels(),
                    kb::seq({kb::let_index("p", kb::index(panel)), std::move(tiles)}));
  }

  StmtRef tile(const RowTiles::Tile& t, const Dim& p, int first_gate, int vectors,
               const BufferRef& lhs) {
    RegisterTile product;
    product.rows = t.rows;
    product.vectors = vectors;
    product.lanes = cell_.lanes;
    product.dtype = cell_.dtype;
    product.unroll = unroll_;
    // A single row has too few sums to hide the latency of a multiply-add.
    product.chains = t.rows == 1 ? chains_ : 1;
    product.accumulators = accumulators_;
    product.panel = panel_;
    product.lhs = lhs;
    product.rhs = cell_.weights;
    product.lhs_index = [&](const Dim& r, const Dim& k) {
      return tiles_.row_of(t, r) * cell_.hidden + k;
    };
    const int64_t gates = cell_.gate_count, h = cell_.hidden, lanes = cell_.lanes;
    product.rhs_index = [=, this](const Dim& v, const Dim& k) {
      if (cell_.packed && cell_.stored == lanes)
        return ((p * h + k) * gates + first_gate + v) * lanes;
      if (cell_.packed) {
        const int64_t parts = cell_.stored / lanes;
        return ((ir::floordiv(p, parts) * h + k) * gates + first_gate + v) * cell_.stored +
               ir::mod(p, parts) * lanes;
      }
      return k * (gates * h) + (v + first_gate) * h + p * lanes;
    };
    if (!cell_.packed && cell_.partial())
      product.rhs_valid = [=](const Dim&) -> std::optional<Dim> { return h - p * lanes; };
    product.k_extent = h;
    return kb::seq(
        {tile_zero(product, "i_"), tile_product(product, "i_"),
         keep_sums(accumulators_, t.rows, vectors, sums_, [&](const Dim& r, const Dim& v) {
           return (r * gates + v + first_gate) * lanes;
         })});
  }

  // ---- one row of one panel's units

  Dim unit() const { return Dim::symbol("p") * cell_.lanes; }
  ValueRef load(const BufferRef& b, const Dim& index) const {
    return cell_.partial() ? kb::load_masked(b, index, cell_.lanes, cell_.hidden - unit())
                           : kb::load(b, index, cell_.lanes);
  }
  StmtRef store(const BufferRef& b, const Dim& index, ValueRef v) const {
    return cell_.partial() ? kb::store_masked(b, index, std::move(v), cell_.hidden - unit())
                           : kb::store(b, index, std::move(v));
  }
  void store_all(std::vector<StmtRef>& to, const std::vector<BufferRef>& buffers, const Dim& index,
                 const ValueRef& v) const {
    for (const BufferRef& b : buffers) to.push_back(store(b, index, v));
  }
  ValueRef local(const std::string& name) const {
    return kb::local(name, cell_.dtype, cell_.lanes);
  }
  ValueRef input(const Dim& row, int gate) const {
    return load(cell_.gates,
                row * (cell_.gate_count * cell_.hidden) + gate * cell_.hidden + unit());
  }
  ValueRef sum(const Dim& r, int gate) const {
    return kb::load(sums_, (r * cell_.gate_count + gate) * cell_.lanes, cell_.lanes);
  }
  ValueRef bias(int gate) const { return load(cell_.bias, gate * cell_.hidden + unit()); }
  ValueRef state(const BufferRef& b, const Dim& row) const {
    return load(b, row * cell_.hidden + unit());
  }

  StmtRef lstm_update(const Dim& row, const Dim& r) const {
    auto gate = [&](int g) { return kb::add(input(row, g), sum(r, g)); };
    std::vector<StmtRef> all = {
        kb::let("g_i", sigmoid(gate(0))), kb::let("g_f", sigmoid(gate(1))),
        kb::let("g_g", tanh_of(gate(2))), kb::let("g_o", sigmoid(gate(3))),
        kb::let("g_c", lstm_state(local("g_f"), state(cell_.c, row), local("g_i"), local("g_g")))};
    const Dim at = row * cell_.hidden + unit();
    store_all(all, cell_.c_out, at, local("g_c"));
    all.push_back(kb::let("g_h", lstm_output(local("g_o"), local("g_c"))));
    store_all(all, cell_.h_out, at, local("g_h"));
    return kb::seq(std::move(all));
  }

  StmtRef gru_result(const Dim& row, ValueRef z) const {
    ValueRef h = gru_blend(std::move(z), local("g_n"), state(cell_.h, row));
    std::vector<StmtRef> all = {kb::let("g_h", std::move(h))};
    store_all(all, cell_.h_out, row * cell_.hidden + unit(), local("g_h"));
    return kb::seq(std::move(all));
  }
  ValueRef recurrent(const Dim& r, int gate) const { return kb::add(sum(r, gate), bias(gate)); }

  StmtRef gru_update(const Dim& row, const Dim& r) const {
    return kb::seq({kb::let("g_r", sigmoid(kb::add(input(row, 0), recurrent(r, 0)))),
                    kb::let("g_z", sigmoid(kb::add(input(row, 1), recurrent(r, 1)))),
                    kb::let("g_n", gru_candidate(local("g_r"), recurrent(r, 2), input(row, 2))),
                    gru_result(row, local("g_z"))});
  }

  StmtRef gru_reset(const Dim& row, const Dim& r) const {
    const Dim at = row * cell_.hidden + unit();
    return kb::seq({kb::let("g_r", sigmoid(kb::add(input(row, 0), recurrent(r, 0)))),
                    kb::let("g_z", sigmoid(kb::add(input(row, 1), recurrent(r, 1)))),
                    store(reset_, at, kb::mul(local("g_r"), state(cell_.h, row))),
                    store(update_, at, local("g_z"))});
  }

  StmtRef gru_after_reset(const Dim& row, const Dim& r) const {
    return kb::seq({kb::let("g_n", tanh_of(kb::add(input(row, 2), recurrent(r, 2)))),
                    gru_result(row, state(update_, row))});
  }

  const Workload& w_;
  const Cell& cell_;
  int rows_, unroll_, chains_;
  bool zigzag_;
  RowTiles tiles_;
  BufferRef accumulators_, panel_, sums_, reset_, update_;
};

// The operands of a call of a cell, or of all its steps; whether they are what templates take.
bool bind_operands(const Workload& w, const ir::CellOperands& operands, RecurrentCell* cell) {
  cell->packed = operands.step.has_value();
  cell->lstm = operands.c.has_value();
  cell->gate_count = static_cast<int>(operands.gates);
  if (!cell->frame.anchor) return false;
  const ir::Expr& call = *cell->frame.anchor->value;
  auto argument = [&](size_t i) { return parameter_buffer(w, cell->frame, call.args[i]); };
  cell->gates = argument(0);
  cell->h = argument(1);
  cell->c = operands.c ? argument(*operands.c) : nullptr;
  cell->weights = argument(operands.weights);
  cell->bias = operands.bias ? argument(*operands.bias) : nullptr;
  if (!cell->gates || !cell->h || !cell->weights || (cell->lstm ? !cell->c : !cell->bias))
    return false;
  cell->dtype = cell->h->dtype;
  if (cell->dtype != DType::kF32 || !is_converted(cell->weights->dtype, cell->dtype)) return false;
  const ir::Type state = ir::type_of(call.args[1]);
  if (state->dims.size() != 2 || !state->dims[1].as_constant()) return false;
  cell->batch = state->dims[0];
  cell->hidden = *state->dims[1].as_constant();
  if (!cell->lstm) cell->linear_before_reset = ir::attr<bool>(call.attrs, "linear_before_reset");
  return true;
}

}  // namespace

std::optional<RecurrentCell> recurrent_cell(const Workload& w, Frame frame) {
  RecurrentCell cell;
  const ir::OpInfo* op = ir::find_op(w.anchor);
  if (!op || !op->traits.cell) return {};
  cell.frame = std::move(frame);
  if (!bind_operands(w, *op->traits.cell, &cell)) return {};
  const auto results = handed_out(w, cell.frame, cell.lstm ? 2 : 1);
  if (!results || results->size() != cell.frame.results.size()) return {};
  for (size_t i = 0; i < results->size(); ++i)
    ((*results)[i] == 0 ? cell.h_out : cell.c_out).push_back(cell.frame.results[i]);
  return cell;
}

std::optional<RecurrentSteps> recurrent_steps(const Workload& w, Frame frame) {
  RecurrentSteps all;
  const ir::OpInfo* op = ir::find_op(w.anchor);
  if (!op || !op->traits.steps_of) return {};
  all.frame = std::move(frame);
  if (!bind_operands(w, *ir::find_op(op->traits.steps_of)->traits.cell, &all)) return {};
  const ir::Expr& call = *all.frame.anchor->value;
  all.count = ir::type_of(call.args[0])->dims[0];
  all.reverse = ir::attr<bool>(call.attrs, "reverse");
  const auto results = handed_out(w, all.frame, all.lstm ? 3 : 2);
  if (!results || results->size() != all.frame.results.size()) return {};
  std::vector<BufferRef>* const of_result[] = {&all.y_out, &all.h_out, &all.c_out};
  for (size_t i = 0; i < results->size(); ++i)
    of_result[(*results)[i]]->push_back(all.frame.results[i]);
  if (all.y_out.empty() || all.h_out.empty() || (all.lstm && all.c_out.empty())) return {};
  return all;
}

bool RecurrentTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return analyse(w, t).has_value();
}

std::vector<Knob> RecurrentTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto cell = analyse(w, t);
  NIMBLE_CHECK(cell, "workload {} is not for recurrent", w.key);
  Knob rows{"rows", {}, /*tile=*/true};
  const int most = max_tile_rows(t, cell->gate_count);
  for (int64_t r : {1, 2, 3, 4, 6, 8})
    if (r <= most) rows.choices.emplace_back(r);
  Knob walk{"walk", {"forward"}};
  if (cell->step) walk.choices.emplace_back("zigzag");
  return {std::move(rows), int_knob("unroll", {2, 4, 8}), int_knob("chains", {1, 2}),
          std::move(walk), tails_knob(/*residues=*/false)};
}

bool RecurrentTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto cell = analyse(w, t);
  if (!cell || !well_formed(knobs(w, t), c)) return false;
  const int64_t rows = knob_int(c, "rows"), chains = knob_int(c, "chains");
  const int64_t unroll = knob_int(c, "unroll");
  return rows >= 1 && rows <= max_tile_rows(t, cell->gate_count) && chains >= 1 && unroll >= 1 &&
         unroll % chains == 0;
}

Config RecurrentTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto cell = analyse(w, t);
  NIMBLE_CHECK(cell, "workload {} is not for recurrent", w.key);
  return {{"rows", int64_t{std::min(4, max_tile_rows(t, cell->gate_count))}},
          {"unroll", int64_t{4}},
          {"chains", int64_t{2}},
          {"walk", cell->step ? "zigzag" : "forward"},
          {"tails", kTailsEven}};
}

Lowered RecurrentTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                 const std::string& name) const {
  const auto cell = analyse(w, t);
  NIMBLE_CHECK(cell && valid(w, c, t), "configuration {} of recurrent", to_json(c));
  Lowered out = one_kernel(CellLowering(w, *cell, c).run(name));
  out.divisible = knob_text(c, "walk") != "zigzag";
  return out;
}

}  // namespace nimble::kernels
