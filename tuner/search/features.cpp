// Features of a loop nest, from its kernel IR and a shape.
//
// One walk over the statement tree counts how often each statement runs: trip counts are
// evaluated with loop variables at their first value, so a bound that depends on an outer loop is
// taken at its start, and a loop over threads counts a thread's share. On the way it keeps, for
// every access to memory, which loops around it move its address.
//
// From the accesses follow working sets: the bytes that all accesses inside a loop touch during
// one whole run of it, each buffer's counted once and never beyond its extent. The traffic
// between two levels of the hierarchy is then estimated as in Agrawal-Dongarra style blocking
// analysis: the outermost loop whose working set fits a cache loads it once per run; all loops
// outside it repeat that. These estimates need not be exact. They have to move when a knob moves
// what the hardware sees, and the trees learn the rest.
#include "tuner/search/features.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using kir::Stmt;
using kir::StmtKind;
using kir::Value;
using kir::ValueKind;

constexpr size_t kLevels = 8;  // loops described one by one, from the innermost
constexpr double kUnknownTrips = 4;

struct Loop {
  kir::LoopKind kind;
  std::string var;
  double trips = 1;  // of one run
  double runs = 1;   // of the whole loop in the kernel
  size_t depth = 0;
  bool innermost = true;
  // Per buffer: the bytes touched in one run of this loop.
  std::map<const kir::Buffer*, double> touched;
  double working_set() const {
    double sum = 0;
    for (const auto& [buffer, bytes] : touched) sum += bytes;
    return sum;
  }
};

class Walk {
 public:
  Walk(const kir::Function& f, std::span<const int64_t> symbols, int threads) : threads_(threads) {
    for (size_t i = 0; i < f.contract.symbols.size() && i < symbols.size(); ++i)
      values_[f.contract.symbols[i]] = symbols[i];
    values_["threads"] = threads;
    values_["thread"] = 0;
    for (const char* block : kir::kBlockSymbols) values_[block] = 0;
    statement(*f.body, 1);
  }

  double flops = 0, scalar_flops = 0, expensive = 0;
  std::map<kir::Fragment, double> dots;  // part of `flops`
  struct TileDots {
    double flops = 0, rows = 0;  // rows: of sums, all instructions together
  };
  std::map<kir::TileFragment, TileDots> tile_dots;  // part of `flops`
  double loads = 0, stores = 0, prefetches = 0, branches = 0, barriers = 0, masked = 0, gathers = 0;
  double load_bytes = 0, store_bytes = 0, statements = 0, unrolled = 1, lanes = 1, threaded = 0;
  std::vector<Loop> loops;  // in the order of the walk

 private:
  std::optional<int64_t> evaluate(const ir::Dim& d) const {
    try {
      return d.evaluate([&](const std::string& name) -> std::optional<int64_t> {
        const auto it = values_.find(name);
        if (it == values_.end()) return std::nullopt;
        return it->second;
      });
    } catch (const Error&) {
      return std::nullopt;  // depends on data, or divides by a symbol that is 0 here
    }
  }

  void statement(const Stmt& s, double times) {
    statements += 1;
    switch (s.kind) {
      case StmtKind::kSeq:
        for (const auto& b : s.body) statement(*b, times);
        return;
      case StmtKind::kFor:
        return loop(s, times);
      case StmtKind::kIf:
        return branch(s, times);
      case StmtKind::kStore:
        stores += times;
        store_bytes += times * s.value->lanes * size(s.buffer->dtype);
        if (s.valid) masked += times;
        touch(*s.buffer, s.index, s.value->lanes);
        return value(*s.value, times);
      case StmtKind::kSetRegister:
      case StmtKind::kLet:
        return value(*s.value, times);
      case StmtKind::kLetIndex: {
        if (s.value->kind == ValueKind::kIndex) {
          if (auto v = evaluate(s.value->index)) values_[s.var] = *v;
          for (const std::string& name : s.value->index.symbols()) moved_by(name, moves_[s.var]);
        }
        return value(*s.value, times);
      }
      case StmtKind::kPrefetch:
        prefetches += times;
        return;
      case StmtKind::kBarrier:
        barriers += times;
        return;
      case StmtKind::kCheck:
        branches += times;
        return;
      case StmtKind::kTiles:
        for (const kir::TileShape& t : s.shapes) {
          const auto rows = evaluate(t.rows);
          tile_rows_[t.tile.get()] = static_cast<double>(rows.value_or(t.tile->rows));
        }
        return statement(*s.body[0], times);
      case StmtKind::kTileZero:
        return;
      case StmtKind::kTileLoad:
      case StmtKind::kTileStore:
        return tile_move(s, times);
      case StmtKind::kTileDot: {
        const kir::Buffer &sum = *s.tiles[0].buffer, &a = *s.tiles[1].buffer;
        const double rows = tile_rows_[&sum], all = 2.0 * rows * sum.lanes * a.lanes * times;
        flops += all;
        TileDots& dots = tile_dots[s.tile_fragment];
        dots.flops += all;
        dots.rows += rows * times;
        return;
      }
      // One lane's part of what a warp does.
      case StmtKind::kWarpDot: {
        const kir::WarpFragmentRow& row = kir::warp_row_of(s.warp_fragment);
        flops += 2.0 * row.m * row.n * row.k / kir::kWarpLanes * times;
        return;
      }
      case StmtKind::kWarpLoad:
        loads += s.count * times;
        load_bytes += 4.0 * s.count * times;
        return;
      case StmtKind::kAsyncCopy:
        loads += times;
        stores += times;
        load_bytes += times * s.lanes * size(s.buffer->dtype);
        store_bytes += times * s.lanes * size(s.buffer->dtype);
        if (s.valid) masked += times;
        touch(*s.buffer, s.index, s.lanes);
        return;
      case StmtKind::kAsyncCommit:
      case StmtKind::kAsyncWait:
      case StmtKind::kGroupFence:
      case StmtKind::kGroupCommit:
      case StmtKind::kGroupWait:
      case StmtKind::kProxyFence:
      case StmtKind::kSignalInit:
      case StmtKind::kSignalArrive:
        return;
      case StmtKind::kSignalWait:
        barriers += times;
        return;
      // Whole, whoever of the block asks for it.
      case StmtKind::kTensorCopy: {
        const double bytes = s.map->box_bytes() * times;
        loads += times;
        stores += times;
        load_bytes += bytes;
        store_bytes += bytes;
        return;
      }
      case StmtKind::kGroupDot: {
        const kir::GroupFragmentRow& row = kir::group_row_of(s.group_fragment);
        flops += 2.0 * kir::kGroupRows * s.columns * row.k / kir::kGroupThreads * times;
        // Its factors come from shared memory, once for the group: in words as a warp's loads are.
        const double bytes = (kir::kGroupRows * size(row.a) + s.columns * size(row.b)) * row.k /
                             kir::kGroupThreads * times;
        loads += bytes / 4;
        load_bytes += bytes;
        return;
      }
    }
  }

  // Each row is an access of its own.
  void tile_move(const Stmt& s, double times) {
    const kir::Buffer& b = *s.tiles[0].buffer;
    const double rows = tile_rows_[&b], bytes = rows * b.lanes * size(b.dtype) * times;
    (s.kind == StmtKind::kTileLoad ? loads : stores) += rows * times;
    (s.kind == StmtKind::kTileLoad ? load_bytes : store_bytes) += bytes;
    touch(*s.buffer, s.index, static_cast<int>(rows) * b.lanes);
  }

  void branch(const Stmt& s, double times) {
    branches += times;
    // A condition that is known here takes its side; an unknown one takes both half the time.
    std::optional<bool> taken = true;
    for (const kir::Condition::Term& t : s.condition.terms) {
      const auto a = evaluate(t.a), b = evaluate(t.b);
      if (!a || !b) {
        taken = std::nullopt;
        break;
      }
      using Op = kir::Condition::Op;
      const bool holds = t.op == Op::kLt   ? *a < *b
                         : t.op == Op::kLe ? *a <= *b
                         : t.op == Op::kEq ? *a == *b
                                           : *a != *b;
      taken = *taken && holds;
    }
    // What depends on a loop is decided anew in each of its runs.
    for (const kir::Condition::Term& t : s.condition.terms)
      for (const ir::Dim* d : {&t.a, &t.b})
        for (const std::string& name : d->symbols())
          if (moves_.contains(name)) taken = std::nullopt;
    if (taken.value_or(true)) statement(*s.body[0], taken ? times : times / 2);
    if (s.body.size() > 1 && !taken.value_or(false))
      statement(*s.body[1], taken ? times : times / 2);
  }

  void loop(const Stmt& s, double times) {
    const auto extent = evaluate(s.extent);
    double trips = extent ? std::max<double>(0, static_cast<double>(*extent)) : kUnknownTrips;
    trips = std::ceil(trips / static_cast<double>(s.step));
    if (s.loop == kir::LoopKind::kThread) {
      threaded = std::max(threaded, trips);
      trips = std::ceil(trips / threads_);
    }
    if (s.loop == kir::LoopKind::kUnroll) unrolled = std::max(unrolled, trips);
    if (auto begin = evaluate(s.begin)) values_[s.var] = *begin;
    moves_[s.var] = {s.var};
    for (size_t i : open_) loops[i].innermost = false;
    open_.push_back(loops.size());
    loops.push_back({s.loop, s.var, trips, times, open_.size(), true, {}});
    statement(*s.body[0], times * trips);
    open_.pop_back();
  }

  void value(const Value& v, double times) {
    lanes = std::max<double>(lanes, v.lanes);
    const bool number = is_float(v.dtype);
    switch (v.kind) {
      case ValueKind::kLoad:
        loads += times;
        load_bytes += times * v.lanes * size(v.dtype);
        if (v.valid) masked += times;
        if (!v.stride.is_constant(1) && v.lanes > 1) gathers += times;
        touch(*v.buffer, v.index, v.lanes);
        break;
      case ValueKind::kFma:
        flops += 2 * times * v.lanes;
        if (v.lanes == 1) scalar_flops += 2 * times;
        break;
      case ValueKind::kDot: {
        const double all = 2.0 * kir::row_of(v.fragment).group * v.lanes * times;
        flops += all;
        dots[v.fragment] += all;
        break;
      }
      case ValueKind::kUnary:
      case ValueKind::kBinary:
        if (number) flops += times * v.lanes;
        if (number && v.lanes == 1) scalar_flops += times;
        if ((v.kind == ValueKind::kBinary && v.binary == kir::BinaryOp::kDiv) ||
            (v.kind == ValueKind::kUnary &&
             (v.unary == kir::UnaryOp::kSqrt || v.unary == kir::UnaryOp::kRsqrt)))
          expensive += times * v.lanes;
        break;
      case ValueKind::kReduce:
        flops += times * v.operands[0]->lanes;
        break;
      default:
        break;
    }
    for (const auto& operand : v.operands) value(*operand, times);
    if (v.passthrough) value(*v.passthrough, times);
  }

  static double size(DType t) { return static_cast<double>(size_of(t)); }

  // The loops that a symbol follows.
  void moved_by(const std::string& name, std::set<std::string>& out) const {
    const auto it = moves_.find(name);
    if (it != moves_.end()) out.insert(it->second.begin(), it->second.end());
  }

  void touch(const kir::Buffer& b, const ir::Dim& index, int lanes_of_access) {
    if (b.scope == kir::Scope::kRegister || b.scope == kir::Scope::kTile) return;
    std::set<std::string> movers;
    for (const std::string& name : index.symbols()) moved_by(name, movers);
    const auto extent = evaluate(b.extent);
    const double most =
        extent ? std::max<double>(1, static_cast<double>(*extent)) * size(b.dtype) : HUGE_VAL;
    double bytes = lanes_of_access * size(b.dtype);
    // Even one element brings a line with it.
    for (size_t i = open_.size(); i-- > 0;) {
      Loop& l = loops[open_[i]];
      if (movers.contains(l.var)) bytes *= std::max(1.0, l.trips);
      double& touched = l.touched[&b];
      touched = std::max(touched, std::min(most, std::max(bytes, 64.0)));
    }
  }

  int threads_;
  std::map<std::string, int64_t> values_;
  std::map<std::string, std::set<std::string>> moves_;
  std::vector<size_t> open_;
  std::map<const kir::Buffer*, double> tile_rows_;
};

float lg(double x) {
  return static_cast<float>(std::log2(std::max(0.0, x) + 1));
}

// Bytes that cross into a cache of `bytes`: each outermost loop whose working set fits loads it
// once per run.
double traffic(const std::vector<Loop>& loops, double bytes) {
  double sum = 0;
  size_t skip_deeper_than = SIZE_MAX;
  for (const Loop& l : loops) {
    if (l.depth > skip_deeper_than) continue;
    skip_deeper_than = SIZE_MAX;
    const double set = l.working_set();
    if (set <= bytes || l.innermost) {
      sum += l.runs * set;
      skip_deeper_than = l.depth;
    }
  }
  return sum;
}

}  // namespace

const std::vector<std::string>& feature_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> n = {
        "flops",       "scalar share", "expensive",     "loads",       "stores",     "load bytes",
        "store bytes", "prefetches",   "branches",      "barriers",    "masked",     "gathers",
        "statements",  "unrolled",     "lanes",         "threaded",    "imbalance",  "registers",
        "scratch",     "intensity",    "L1 traffic",    "L2 traffic",  "L3 traffic", "flops/load",
        "loops",       "depth",        "bound compute", "bound memory"};
    for (size_t i = 0; i < kLevels; ++i)
      for (const char* what : {"kind", "trips", "runs", "set/L1", "set/L2"})
        n.push_back(fmt::format("loop {} {}", i, what));
    return n;
  }();
  return names;
}

std::vector<float> features_of(const kir::Function& f, std::span<const int64_t> symbols,
                               int threads, const kernels::TargetInfo& target) {
  if (f.launch) threads = f.launch->threads;
  const Walk w(f, symbols, threads);
  double registers = 0, scratch = 0, depth = 0;
  for (const auto& b : f.registers)
    if (auto n = b->extent.as_constant()) registers += static_cast<double>(*n);
  for (const auto& b : f.scratch)
    if (auto n = b->extent.as_constant())
      scratch += static_cast<double>(*n) * static_cast<double>(size_of(b->dtype));
  for (const Loop& l : w.loops) depth = std::max(depth, static_cast<double>(l.depth));
  const auto l1 = static_cast<double>(target.l1_bytes), l2 = static_cast<double>(target.l2_bytes),
             l3 = static_cast<double>(target.l3_bytes);
  const double to_l1 = traffic(w.loops, l1), to_l2 = traffic(w.loops, l2);
  const double share = std::ceil(std::max(1.0, w.threaded) / threads) * threads;
  // Cycles if arithmetic, or if L2 alone, were the limit: 2 FMAs and 32 bytes a cycle. An
  // instruction for a group takes the time of one for an element.
  double steps = w.flops;
  for (const auto& [fragment, flops] : w.dots)
    if (const kir::FragmentRow& row = kir::row_of(fragment); target.has(std::string(row.feature)))
      steps -= flops - flops / row.group;
  // One for matrix registers takes a cycle for a row of the sum.
  double cycles = 0;
  for (const auto& [fragment, dots] : w.tile_dots) {
    if (!target.has(std::string(kir::tile_row_of(fragment).feature))) continue;
    steps -= dots.flops;
    cycles += dots.rows;
  }
  const double compute = steps / (4.0 * target.lanes_f32()) + w.scalar_flops + cycles;
  const double memory = to_l1 / 32 + to_l2 / 8;
  std::vector<float> out = {lg(w.flops),
                            static_cast<float>(w.flops > 0 ? w.scalar_flops / w.flops : 0),
                            lg(w.expensive),
                            lg(w.loads),
                            lg(w.stores),
                            lg(w.load_bytes),
                            lg(w.store_bytes),
                            lg(w.prefetches),
                            lg(w.branches),
                            lg(w.barriers),
                            lg(w.masked),
                            lg(w.gathers),
                            lg(w.statements),
                            lg(w.unrolled),
                            static_cast<float>(w.lanes),
                            lg(w.threaded),
                            static_cast<float>(w.threaded > 0 ? share / w.threaded : threads),
                            static_cast<float>(registers),
                            lg(scratch),
                            lg(w.flops / std::max(1.0, w.load_bytes + w.store_bytes)),
                            lg(to_l1),
                            lg(to_l2),
                            lg(traffic(w.loops, l3)),
                            lg(w.flops / std::max(1.0, w.loads)),
                            static_cast<float>(w.loops.size()),
                            static_cast<float>(depth),
                            lg(compute),
                            lg(memory)};
  // The loops that matter, by how often their bodies run.
  std::vector<const Loop*> order;
  for (const Loop& l : w.loops) order.push_back(&l);
  std::stable_sort(order.begin(), order.end(), [](const Loop* a, const Loop* b) {
    return a->runs * a->trips > b->runs * b->trips;
  });
  for (size_t i = 0; i < kLevels; ++i) {
    if (i >= order.size()) {
      out.insert(out.end(), {-1, 0, 0, 0, 0});
      continue;
    }
    const Loop& l = *order[i];
    out.push_back(static_cast<float>(l.kind));
    out.push_back(lg(l.trips));
    out.push_back(lg(l.runs));
    out.push_back(lg(l.working_set() / l1));
    out.push_back(lg(l.working_set() / l2));
  }
  NIMBLE_CHECK(out.size() == feature_names().size(), "{} features", out.size());
  return out;
}

}  // namespace nimble::tuner
