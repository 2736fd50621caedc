// The template "recurrent_steps": all steps of an LSTM or GRU cell on a CPU.
//
// A CPU does better with the steps one by one ("recurrent"): weights packed, the walk over them
// turned round, a step's units shared out among threads. This is the portable form of what a GPU
// does in one kernel ("gpu_recurrent_steps"), and serves who writes the operator. Rows of the batch
// know nothing of each other, so threads share them out and never meet.
#include <algorithm>

#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/recurrent.h"
#include "compiler/kernels/templates/recurrent_formulas.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::StmtRef;
using kir::ValueRef;

namespace {

class RowLowering {
 public:
  RowLowering(const Workload& w, const RecurrentSteps& all, int lanes, int64_t unroll)
      : w_(w), all_(all), lanes_(lanes), unroll_(unroll) {
    sums_ = kb::buffer("sums", kir::Scope::kRegister, all.dtype, all.gate_count, lanes);
    state_ = thread_scratch("state", all.dtype, all.hidden);
    reset_ = thread_scratch("reset", all.dtype, all.hidden);
    update_ = thread_scratch("update", all.dtype, all.hidden);
  }

  kir::Function run(const std::string& name) const {
    std::vector<StmtRef> body = {copy("h0", state_, 0, all_.h, row() * hidden())};
    if (all_.lstm)
      body.push_back(copy("c0", all_.c_out[0], row() * hidden(), all_.c, row() * hidden()));
    body.push_back(kb::loop(LoopKind::kSerial, "step", 0, all_.count, step()));
    for (const BufferRef& b : all_.h_out)
      body.push_back(copy("h" + b->name, b, row() * hidden(), state_, 0));
    for (size_t i = 1; i < all_.c_out.size(); ++i)
      body.push_back(copy("c" + all_.c_out[i]->name, all_.c_out[i], row() * hidden(), all_.c_out[0],
                          row() * hidden()));
    std::vector<BufferRef> scratch = {state_};
    if (resets_first()) scratch.insert(scratch.end(), {reset_, update_});
    return make_function(
        w_, all_.frame, name, std::move(scratch), {sums_},
        kb::loop(LoopKind::kThread, "row", 0, all_.batch, kb::seq(std::move(body))));
  }

 private:
  static Dim row() { return Dim::symbol("row"); }
  static Dim unit() { return Dim::symbol("unit"); }
  Dim hidden() const { return all_.hidden; }
  bool resets_first() const { return !all_.lstm && !all_.linear_before_reset; }
  // The step's row of the batch, in gates and in y.
  Dim place() const { return all_.row_of(Dim::symbol("step")) * all_.batch + row(); }

  StmtRef each_unit(const std::string& var, StmtRef body) const {
    return kb::loop(LoopKind::kSerial, var, 0, hidden(), std::move(body), lanes_);
  }
  StmtRef copy(const std::string& var, const BufferRef& to, const Dim& to_first,
               const BufferRef& from, const Dim& from_first) const {
    const Dim i = Dim::symbol(var);
    return each_unit(var, kb::store(to, to_first + i, kb::load(from, from_first + i, lanes_)));
  }

  ValueRef local(const std::string& name) const { return kb::local(name, all_.dtype, lanes_); }
  ValueRef input(int gate) const {
    return kb::load(all_.gates, (place() * all_.gate_count + gate) * hidden() + unit(), lanes_);
  }
  ValueRef bias(int gate) const { return kb::load(all_.bias, gate * hidden() + unit(), lanes_); }
  ValueRef sum(int gate) const { return kb::reg(sums_, gate); }
  ValueRef recurrent(int gate) const { return kb::add(sum(gate), bias(gate)); }
  ValueRef sigmoid_of(int gate, const ValueRef& more) const {
    return sigmoid(kb::add(input(gate), more));
  }

  // The unit's products of `lhs` with the weights of some gates.
  StmtRef products(const std::string& var, int first, int gates, const BufferRef& lhs) const {
    std::vector<StmtRef> all, terms;
    const std::string copy = var + "_copy";
    const Dim k = Dim::symbol(var) + Dim::symbol(copy);
    for (int g = first; g < first + gates; ++g) {
      all.push_back(kb::set_reg(sums_, g, kb::number(all_.dtype, 0, lanes_)));
      const ValueRef w =
          kb::load(all_.weights, (k * all_.gate_count + g) * hidden() + unit(), lanes_);
      terms.push_back(kb::set_reg(
          sums_, g,
          kb::fma(kb::broadcast(kb::load(lhs, k), lanes_), kb::cast(all_.dtype, w), sum(g))));
    }
    StmtRef some = kb::loop(LoopKind::kUnroll, copy, 0, unroll_, kb::seq(std::move(terms)));
    all.push_back(kb::loop(LoopKind::kSerial, var, 0, hidden(), std::move(some), unroll_));
    return kb::seq(std::move(all));
  }

  StmtRef step() const {
    std::vector<StmtRef> all;
    if (!resets_first()) {
      all.push_back(each_unit("unit", kb::seq({products("k", 0, all_.gate_count, state_),
                                               all_.lstm ? lstm() : gru()})));
    } else {
      // The candidate's product takes r * h of all units.
      all.push_back(each_unit(
          "unit",
          kb::seq({products("k", 0, 2, state_),
                   kb::store(reset_, unit(), kb::mul(sigmoid_of(0, recurrent(0)), old_state())),
                   kb::store(update_, unit(), sigmoid_of(1, recurrent(1)))})));
      all.push_back(each_unit(
          "unit",
          kb::seq({products("k", 2, 1, reset_), kb::let("g_z", kb::load(update_, unit(), lanes_)),
                   kb::let("g_n", tanh_of(kb::add(input(2), recurrent(2)))), blend()})));
    }
    all.push_back(copy("n", state_, 0, all_.y_out[0], place() * hidden()));
    return kb::seq(std::move(all));
  }

  ValueRef old_state() const { return kb::load(state_, unit(), lanes_); }
  StmtRef store_h(ValueRef v) const {
    std::vector<StmtRef> all = {kb::let("g_h", std::move(v))};
    for (const BufferRef& b : all_.y_out)
      all.push_back(kb::store(b, place() * hidden() + unit(), local("g_h")));
    return kb::seq(std::move(all));
  }
  StmtRef lstm() const {
    const BufferRef& c = all_.c_out[0];
    const Dim at = row() * hidden() + unit();
    const ValueRef entering = tanh_of(kb::add(input(2), sum(2)));
    return kb::seq({kb::let("g_c", lstm_state(sigmoid_of(1, sum(1)), kb::load(c, at, lanes_),
                                              sigmoid_of(0, sum(0)), entering)),
                    kb::store(c, at, local("g_c")),
                    store_h(lstm_output(sigmoid_of(3, sum(3)), local("g_c")))});
  }
  StmtRef blend() const { return store_h(gru_blend(local("g_z"), local("g_n"), old_state())); }
  StmtRef gru() const {
    return kb::seq(
        {kb::let("g_z", sigmoid_of(1, recurrent(1))),
         kb::let("g_n", gru_candidate(sigmoid_of(0, recurrent(0)), recurrent(2), input(2))),
         blend()});
  }

  const Workload& w_;
  const RecurrentSteps& all_;
  int lanes_;
  int64_t unroll_;  // rows of the weights at a time
  BufferRef sums_, state_, reset_, update_;
};

}  // namespace

bool RecurrentStepsTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return recurrent_steps(w, make_frame(w)).has_value();
}

std::vector<Knob> RecurrentStepsTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("unroll", {1, 2, 4})};
}

bool RecurrentStepsTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto all = recurrent_steps(w, make_frame(w));
  return all && within(knobs(w, t), c) && all->hidden % knob_int(c, "unroll") == 0;
}

Config RecurrentStepsTemplate::default_config(const Workload& w, const TargetInfo&) const {
  const auto all = recurrent_steps(w, make_frame(w));
  NIMBLE_CHECK(all, "workload {} is not for recurrent_steps", w.key);
  return {{"unroll", int64_t{all->hidden % 4 == 0 ? 4 : 1}}};
}

Lowered RecurrentStepsTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                      const std::string& name) const {
  const auto all = recurrent_steps(w, make_frame(w));
  NIMBLE_CHECK(all && valid(w, c, t), "configuration {} of recurrent_steps", to_json(c));
  const int lanes = lanes_of(t, all->dtype);
  return one_kernel(
      RowLowering(w, *all, all->hidden % lanes == 0 ? lanes : 1, knob_int(c, "unroll")).run(name));
}

}  // namespace nimble::kernels
