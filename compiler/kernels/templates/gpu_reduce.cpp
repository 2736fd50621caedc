// The template "gpu_reduce": reductions and normalisations on a GPU, those that "reduce" takes, by
// the same passes (reduce.cpp).
//
// A team of threads (gpu.h) has an item. Where the last axis is reduced ("along") that is a row:
// neighbouring threads take its neighbouring vectors, each folds its own, and then lanes and warps
// put theirs together; short rows have a few lanes each, long ones a block. Where the last axis is
// kept ("across") an item is a vector of columns: neighbouring threads have neighbouring ones, and
// a team's, a block's width of columns apart, take turns over the reduced axes.
//
// Rows of known length that come out of a normalisation's first pass stay in registers for the
// others; longer or unknown ones are computed again from the operands, which are in the cache.
//
// Threads meet in uniform control alone, so no thread leaves early: one without an item works on
// the last one as well, and stores nothing. Where checks of indices differ from thread to thread,
// nobody may wait for others: there a thread has a row for itself.
//
// A single long row is one block's work: what would split it between blocks is a second kernel.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/reduce_lowering.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/checked.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;

constexpr int64_t kMostHeld = 32;        // elements of a row in a thread's registers
constexpr int64_t kMostUnrolled = 8;     // steps of a pass
constexpr int kMostThreadsAcross = 512;  // whose accumulators fit the memory of any block

// Lanes of which one access holds the widest elements that vectors are made of.
int most_lanes(const Workload& w, const ReducePlan& plan) {
  const Frame frame = make_frame(w);
  std::vector<ir::Type> types = gpu::types_in_vectors(w, frame);
  if (!plan.along || plan.normalises || plan.spreads)
    types.insert(types.end(), frame.result_types.begin(), frame.result_types.end());
  return gpu::access_lanes(types);
}

int vector_of(const Workload& w, const ReducePlan& plan, const Config& c) {
  const auto most = std::min<int64_t>(knob_int(c, "vector"), most_lanes(w, plan));
  return gpu::dividing_lanes(w, plan.dims.back(), static_cast<int>(most));
}

class GpuReduceLowering final : public ReduceLowering {
 public:
  GpuReduceLowering(const Workload& w, const ReducePlan& plan, const Config& c)
      : ReduceLowering(w, plan, gpu::make_gpu_frame(w), static_cast<int>(knob_int(c, "unroll")),
                       vector_of(w, plan, c)),
        threads_(static_cast<int>(knob_int(c, "threads"))),
        teams_(threads_ / static_cast<int>(knob_int(c, "team"))) {
    team_.size = static_cast<int>(knob_int(c, "team"));
    steps_of_row_ = ir::floordiv(row_length(), step_lanes());
    const auto all = steps_of_row_.as_constant();
    if (!all) return;
    const int64_t mine = std::max<int64_t>(1, (*all + team_.size - 1) / team_.size);
    held_ = plan_.normalises && mine * lanes_ <= kMostHeld;
    if (held_ || mine <= kMostUnrolled) {
      steps_ = mine;
      unroll_ = static_cast<int>(std::min<int64_t>(unroll_, mine));
    }
  }

  int lanes() const { return lanes_; }

  // Whether the configuration can be had.
  bool fits() {
    const int size = team_.size;
    if (threads_ % size != 0) return false;
    // Of a row of one element each thread wants that; and only the first would hold it.
    if (size > 1 && row_length().is_constant(1)) return false;
    if (plan_.along ? size != threads_ && (size > kir::kWarpLanes || !is_power_of_two(size))
                    : size > kir::kWarpLanes || (size > 1 && threads_ > kMostThreadsAcross))
      return false;
    if (plan_.normalises && !plan_.more.empty() && !held_) return false;
    return size == 1 || !has_index(w_) || (plan_.along && teams_ == 1 && !checks_differ());
  }

  kir::Function run(const std::string& name) override {
    Dims items = plan_.dims;
    for (size_t i = 0; i < items.size(); ++i)
      if (plan_.reduced[i]) items[i] = 1;
    if (!plan_.along) items.back() = ir::floordiv(items.back(), lanes_);
    const Dim count = count_of(items);
    std::vector<StmtRef> body;
    bind_team(count, body);
    base_ = bind_coordinates("x", items, Dim::symbol("item"), body);
    if (!plan_.along) base_.back() = base_.back() * lanes_;
    body.push_back(item(std::nullopt));
    kir::Function f = make_function(w_, frame_, name, {}, registers_, kb::seq(std::move(body)));
    return gpu::launched(std::move(f), {ir::ceildiv(count, teams_), 1, 1}, threads_,
                         std::move(shared_));
  }

 protected:
  StmtRef walk(const std::optional<Dim>&,
               const std::function<std::vector<StmtRef>(const Step&)>& body) override {
    const auto step = [&](const Dim& at, const Dim& place, int slot) {
      std::vector<StmtRef> all;
      now_ = step_at(at, place, slot, all);
      walking_ = true;
      for (StmtRef& s : body(now_)) all.push_back(std::move(s));
      walking_ = false;
      return all;
    };
    if (!steps_)
      return gpu::team_loop(fresh("c"), row_length(), step_lanes(), unroll_, team_,
                            [&](const Slice& s) { return step(s.at, 0, s.slot); });
    std::vector<StmtRef> all;
    for (int64_t k = 0; k < *steps_; ++k) {
      const Dim number = k * team_.size + team_.rank;
      std::vector<StmtRef> one = step(number * step_lanes(), k, static_cast<int>(k % unroll_));
      if (*steps_of_row_.as_constant() < (k + 1) * team_.size)
        one = {gpu::where_below(number, steps_of_row_, team_.rank.symbols(), std::move(one))};
      for (StmtRef& s : one) all.push_back(std::move(s));
    }
    return kb::seq(std::move(all));
  }

  ValueRef together(std::vector<StmtRef>& out, const char* name, const ValueRef& v,
                    const Fold& f) override {
    const Fold fold{f.op, f.keep_nan && is_float(v->dtype)};
    const auto combine = [fold](const ValueRef& a, const ValueRef& b) {
      return fold.combine(a, b);
    };
    const std::string locals = fresh(name);
    if (!plan_.along)
      return gpu::all_of_column(out, locals, v, teams_, team_.size, combine, shared_);
    const ValueRef mine = let(out, name, v);
    ValueRef one = lanes_ == 1 ? mine : kb::extract(mine, 0);
    for (int l = 1; l < lanes_; ++l) one = combine(one, kb::extract(mine, l));
    return team_.size > kir::kWarpLanes
               ? gpu::all_of_block(out, locals, one, threads_, combine, shared_)
               : gpu::all_of_lanes(out, locals, one, team_.size, combine);
  }

  StmtRef by_its_thread(StmtRef store) override {
    kir::Condition who;
    if (exists_) who = *exists_;
    if (!walking_ && team_.size > 1) who = kb::both(kb::eq(team_.rank, 0), who);
    return who.terms.empty() ? store : kb::if_then(who, std::move(store));
  }

  bool keeps_row(bool) const override { return held_; }
  StmtRef keep(const Step& s, const ValueRef& v) override {
    return kb::set_reg(held_row(), s.place, v);
  }
  ValueRef kept(const Step& s) override { return kb::reg(held_row(), s.place); }
  GroupEvaluator::Given kept_row() override {
    return [this](const Dims&, int) { return kept(now_); };
  }

 private:
  int step_lanes() const { return plan_.along ? lanes_ : 1; }

  // Who this thread is in its team, and its item: the symbols `rank` and `item`.
  void bind_team(const Dim& count, std::vector<StmtRef>& body) {
    const Dim rank =
        plan_.along ? ir::mod(gpu::thread(), team_.size) : ir::floordiv(gpu::thread(), teams_);
    if (team_.size == 1) {
      team_.rank = 0;
    } else {
      team_.rank = Dim::symbol("rank");
      body.push_back(kb::let_index("rank", kb::index(team_.size == threads_ ? gpu::thread() : rank),
                                   ir::SymbolFacts{0, team_.size - 1, 1}));
    }
    if (teams_ == 1) {
      body.push_back(kb::let_index("item", kb::index(gpu::block()), ir::SymbolFacts{}));
      return;
    }
    const Dim team = team_.size == 1 ? gpu::thread()
                     : plan_.along   ? ir::floordiv(gpu::thread(), team_.size)
                                     : ir::mod(gpu::thread(), teams_);
    body.push_back(
        kb::let_index("own", kb::index(gpu::block() * teams_ + team), ir::SymbolFacts{}));
    const Dim own = Dim::symbol("own");
    body.push_back(kb::let_index("item", kb::index(ir::min(own, count - 1)), ir::SymbolFacts{}));
    exists_ = kb::lt(own, count);
  }

  // At position `at` of the row, whose reduced axes are one axis to the team.
  Step step_at(const Dim& at, const Dim& place, int slot, std::vector<StmtRef>& out) {
    Step s{base_, std::nullopt, std::nullopt, place, slot};
    std::vector<size_t> axes;
    Dims extents;
    for (size_t i = 0; i < plan_.dims.size(); ++i) {
      if (!plan_.reduced[i]) continue;
      axes.push_back(i);
      extents.push_back(plan_.dims[i]);
    }
    extents.back() = ir::floordiv(extents.back(), step_lanes());
    const Dims places = axes.size() == 1 ? Dims{ir::floordiv(at, step_lanes())}
                                         : bind_coordinates(fresh("r"), extents,
                                                            ir::floordiv(at, step_lanes()), out);
    for (size_t k = 0; k < axes.size(); ++k) s.at[axes[k]] = places[k];
    s.at[axes.back()] = s.at[axes.back()] * step_lanes();
    return s;
  }

  const kir::BufferRef& held_row() {
    if (!row_) {
      row_ = kb::buffer("row", kir::Scope::kRegister, type_, *steps_, lanes_);
      registers_.push_back(row_);
    }
    return row_;
  }

  // Whether a check of an index depends on the place in a row.
  bool checks_differ() {
    const std::string place = "place";
    const auto differs = [&](const ir::Atom& a) {
      const ir::Atom inner = stripped(a);
      if (!inner.is_var()) return false;
      const size_t rank = ir::type_of(inner)->dims.size();
      Dims at(rank, 0);
      for (size_t i = 0; i < rank; ++i) {
        // Axes count from the last one, as a layer_norm's factors have these alone.
        const size_t axis = i + plan_.dims.size() - std::min(rank, plan_.dims.size());
        at[i] = Dim::symbol(rank > plan_.dims.size() || plan_.reduced[axis] ? place : fresh("any"));
      }
      group_.value(inner, at, 1);
      return has_varying_check({place}, group_.take_statements());
    };
    std::vector<ir::Atom> atoms = {x_};
    for (const ir::Binding* b : plan_.more) atoms.push_back(b->value->args[0]);
    if (plan_.normalises || plan_.spreads) {
      atoms.insert(atoms.end(), frame_.result_atoms.begin(), frame_.result_atoms.end());
      atoms.insert(atoms.end(), call_.args.begin() + 1, call_.args.end());
    }
    return std::any_of(atoms.begin(), atoms.end(), differs);
  }

  gpu::Team team_;
  int threads_, teams_;           // of a block
  Dim steps_of_row_;              // of the whole team
  std::optional<int64_t> steps_;  // of a thread, where each is written out
  bool held_ = false;             // the row stays in registers
  bool walking_ = false;
  Step now_;
  std::optional<kir::Condition> exists_;  // the thread's item; always if not given
  std::vector<kir::BufferRef> shared_;
};

constexpr int64_t kTeams[] = {1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024};

// Threads for a row of so many vectors: the fewest steps by a block of up to `most` threads whose
// last step leaves the fewest idle.
int64_t block_for(int64_t vectors, int64_t most) {
  int64_t best = 0, least = 0;
  for (int64_t threads : kTeams) {
    if (threads <= kir::kWarpLanes || threads > most) continue;
    const int64_t taken = (vectors + threads - 1) / threads * threads;
    if (best == 0 || taken <= least) {
      best = threads;
      least = taken;
    }
  }
  return best;
}

Config config_of(int64_t team, int64_t threads, int64_t vector) {
  return {{"team", team}, {"threads", threads}, {"vector", vector}, {"unroll", int64_t{4}}};
}

}  // namespace

bool GpuReduceTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  if (!t.is_gpu()) return false;
  const auto plan = plan_reduction(w);
  // Rows that are reduced again lie in the registers of a team, whose threads may not fail alone.
  return plan && !(plan->normalises && !plan->more.empty() && has_index(w));
}

std::vector<Knob> GpuReduceTemplate::knobs(const Workload& w, const TargetInfo&) const {
  const auto plan = plan_reduction(w);
  Knob team{"team", {}}, vector{"vector", {}};
  for (int64_t t : kTeams) team.choices.emplace_back(t);
  for (int64_t lanes = 1; plan && lanes <= most_lanes(w, *plan); lanes *= 2)
    vector.choices.emplace_back(lanes);
  return {team, int_knob("threads", {32, 64, 96, 128, 192, 256, 384, 512, 768, 1024}), vector,
          int_knob("unroll", {1, 2, 4})};
}

bool GpuReduceTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto plan = plan_reduction(w);
  return plan && within(knobs(w, t), c) && knob_int(c, "threads") >= knob_int(c, "team") &&
         GpuReduceLowering(w, *plan, c).fits();
}

Config GpuReduceTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  constexpr int64_t kThreads = 128, kUsualBlock = 256;
  const auto plan = plan_reduction(w);
  NIMBLE_CHECK(plan, "a configuration of gpu_reduce for another workload");
  const int64_t vector = most_lanes(w, *plan);
  const Config alone = config_of(1, kThreads, vector);
  const int64_t lanes = GpuReduceLowering(w, *plan, alone).lanes();
  kir::Dim length = 1;
  for (size_t i = 0; i < plan->dims.size(); ++i)
    if (plan->reduced[i]) length = length * plan->dims[i];
  const auto known = length.as_constant();
  std::vector<Config> choices;
  if (!plan->along) {
    // A warp's width of columns; more threads for each where there is much to fold.
    const int64_t team = known && *known <= kMostUnrolled ? 1 : known && *known >= 256 ? 16 : 8;
    if (team > 1) choices.push_back(config_of(team, team * kir::kWarpLanes, vector));
  } else if (!known) {
    choices.push_back(config_of(kThreads, kThreads, vector));
  } else {
    const int64_t vectors = (*known + lanes - 1) / lanes;
    if (vectors <= 2 * kir::kWarpLanes) {
      int64_t team = 1;
      while (team < std::min<int64_t>(vectors, kir::kWarpLanes)) team *= 2;
      choices.push_back(config_of(team, kThreads, vector));
      choices.push_back(config_of(kir::kWarpLanes, kir::kWarpLanes, vector));
    }
    // Longer ones than a usual block's registers hold have a larger one.
    for (const int64_t most : {kUsualBlock, 2 * kUsualBlock, 4 * kUsualBlock}) {
      const int64_t block = block_for(vectors, most);
      if (most < 4 * kUsualBlock && (vectors + block - 1) / block * lanes > kMostHeld) continue;
      choices.push_back(config_of(block, block, vector));
    }
  }
  for (const Config& c : choices)
    if (valid(w, c, t)) return c;
  return alone;
}

Lowered GpuReduceTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                 const std::string& name) const {
  const auto plan = plan_reduction(w);
  NIMBLE_CHECK(plan && valid(w, c, t), "configuration {} of gpu_reduce", to_json(c));
  return gpu::one_gpu_kernel(GpuReduceLowering(w, *plan, c).run(name));
}

}  // namespace nimble::kernels
