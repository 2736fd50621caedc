// The verifier's rules of statements, and of a thread's matrix registers.
#include <algorithm>

#include "compiler/kernels/verify_tiles.h"
#include "compiler/kernels/verify_walk.h"

namespace nimble::kir {

void Verification::statement(const Stmt& s) {
  const StmtRow& row = row_of(s.kind);
  if (row.device == StmtDevice::kGpu) gpu_only(row.what);
  require(row.device != StmtDevice::kCpu || !f_.launch, "{} in a function with a launch", row.what);
  switch (s.kind) {
    case StmtKind::kSeq:
      for (const StmtRef& b : s.body) {
        require(b != nullptr, "a statement is missing");
        statement(*b);
      }
      return;
    case StmtKind::kFor:
      return loop(s);
    case StmtKind::kIf: {
      require(s.body.size() == 1 || s.body.size() == 2, "an if needs one or two blocks");
      condition(s.condition);
      const Spread was = divergence_;
      divergence_ = std::max(divergence_, spreads_.of(s.condition));
      for (const StmtRef& b : s.body) scoped(b);
      divergence_ = was;
      return;
    }
    case StmtKind::kStore:
      check_memory(s.buffer, s.index, s.stride, s.valid, true);
      value(s.value);
      require(s.value->dtype == s.buffer->dtype, "a store of {} into {} of {}",
              nimble::name_of(s.value->dtype), s.buffer->name, nimble::name_of(s.buffer->dtype));
      return;
    case StmtKind::kSetRegister:
      check_buffer(s.buffer, true);
      check_register(*s.buffer, s.index);
      value(s.value);
      require(s.value->dtype == s.buffer->dtype && s.value->lanes == s.buffer->lanes,
              "register {} takes {}x{}", s.buffer->name, nimble::name_of(s.buffer->dtype),
              s.buffer->lanes);
      return;
    case StmtKind::kLet:
      value(s.value);
      require(locals_.emplace(s.var, s.value).second, "local {} is bound twice", s.var);
      if (f_.launch) spreads_.locals[s.var] = spreads_.of(*s.value);
      return;
    case StmtKind::kLetIndex:
      value(s.value);
      require(is_int(s.value->dtype) && s.value->lanes == 1, "index {} needs an integer scalar",
              s.var);
      require(symbols_.insert(s.var).second, "index {} hides another symbol", s.var);
      spreads_.symbols[s.var] =
          f_.launch ? std::max(divergence_, spreads_.of(*s.value)) : divergence_;
      facts_.set(s.var, s.facts.value_or(ir::SymbolFacts{INT64_MIN, INT64_MAX, 1}));
      return;
    case StmtKind::kPrefetch:
      check_buffer(s.buffer, false);
      require(s.buffer->scope != Scope::kRegister && s.buffer->scope != Scope::kTile,
              "prefetch of register buffer {}", s.buffer->name);
      require(s.locality >= 1 && s.locality <= 3, "prefetch locality {}", s.locality);
      return check_dim(s.index, s.buffer->name);
    case StmtKind::kBarrier:
      require(!region_, "a barrier among matrix registers, which do not live across it");
      require((s.together == Together::kRegion) != f_.launch.has_value(),
              "a barrier of a {} in a function {} a launch", name_of(s.together),
              f_.launch ? "with" : "without");
      if (s.together == Together::kWarp) return warp_meets("a barrier");
      require(divergence_ == Spread::kBlock, "a barrier that not all threads reach alike");
      return;
    case StmtKind::kCheck:
      require(!region_, "a check among matrix registers, which a failure would not release");
      condition(s.condition);
      check(std::max(divergence_, spreads_.of(s.condition)));
      return;
    case StmtKind::kTiles:
      return tiles(s);
    case StmtKind::kTileZero:
      require(s.tiles.size() == 1, "a statement of one matrix register has {}", s.tiles.size());
      return tile(s.tiles[0], true);
    case StmtKind::kTileLoad:
    case StmtKind::kTileStore: {
      const bool load = s.kind == StmtKind::kTileLoad;
      require(s.tiles.size() == 1, "a statement of one matrix register has {}", s.tiles.size());
      tile(s.tiles[0], load);
      check_memory(s.buffer, s.index, s.stride, std::nullopt, !load);
      require(s.buffer->dtype == s.tiles[0].buffer->dtype, "{} of {} and matrix register {} of {}",
              s.buffer->name, nimble::name_of(s.buffer->dtype), s.tiles[0].buffer->name,
              nimble::name_of(s.tiles[0].buffer->dtype));
      return;
    }
    case StmtKind::kTileDot:
      return tile_dot(s);
    case StmtKind::kWarpDot:
      return warp_dot(s);
    case StmtKind::kWarpLoad:
      return warp_load(s);
    case StmtKind::kAsyncCopy:
      return async_copy(s);
    case StmtKind::kAsyncWait:
      require(s.count >= 0, "a wait for all but {} groups", s.count);
      return;
    case StmtKind::kGroupDot:
      return group_dot(s);
    case StmtKind::kGroupFence:
    case StmtKind::kGroupCommit:
      return group_meets(row.what);
    case StmtKind::kGroupWait:
      require(s.count >= 0, "a wait for all but {} batches", s.count);
      return group_meets(row.what);
    case StmtKind::kAsyncCommit:
    case StmtKind::kProxyFence:
      return;
    case StmtKind::kSignalInit:
    case StmtKind::kSignalArrive:
    case StmtKind::kSignalWait:
      return signal(s);
    case StmtKind::kTensorCopy:
      return tensor_copy(s);
  }
}

void Verification::scoped(const StmtRef& s) {
  require(s != nullptr, "a block is missing");
  const auto symbols = symbols_;
  const auto locals = locals_;
  const Spreads spreads = spreads_;
  seen_.clear();
  statement(*s);
  symbols_ = symbols;
  locals_ = locals;
  spreads_ = spreads;
  seen_.clear();
}

void Verification::loop(const Stmt& s) {
  require(s.body.size() == 1, "loop {} needs one body", s.var);
  require(s.step > 0, "loop {} has step {}", s.var, s.step);
  check_dim(s.begin, "loop " + s.var);
  check_dim(s.extent, "loop " + s.var);
  require(!symbols_.contains(s.var), "loop variable {} hides another symbol", s.var);
  const bool parallel = s.loop == LoopKind::kThread;
  require(!parallel || !f_.launch, "thread loop {} in a function with a launch", s.var);
  require(!parallel || !region_, "thread loop {} among matrix registers", s.var);
  require(!parallel || !in_thread_loop_, "thread loop {} inside a thread loop", s.var);
  const Spread begins = spreads_.of(s.begin), trips = std::max(begins, spreads_.of(s.extent));
  require(!parallel || trips == Spread::kBlock,
          "the bounds of thread loop {} differ between threads", s.var);
  if (s.loop == LoopKind::kUnroll) {
    for (const std::string& x : s.extent.symbols())
      require(unrolled_.contains(x), "unrolled loop {} has extent {}", s.var, s.extent.str());
    bool constant_begin = true;
    for (const std::string& x : s.begin.symbols()) constant_begin &= unrolled_.contains(x);
    if (constant_begin) unrolled_.insert(s.var);
  }
  const bool was_parallel = in_thread_loop_;
  const Spread was = divergence_;
  in_thread_loop_ |= parallel;
  divergence_ = std::max(divergence_, parallel ? Spread::kLane : trips);
  symbols_.insert(s.var);
  spreads_.symbols[s.var] = parallel ? Spread::kLane : begins;
  const ir::SymbolFacts outer = facts_.facts(s.var);
  const auto low = facts_.range(s.begin), high = facts_.range(s.begin + s.extent);
  facts_.set(s.var, {low.low, high.high == INT64_MAX ? INT64_MAX : high.high - 1, 1});
  seen_.clear();
  scoped(s.body[0]);
  facts_.set(s.var, outer);
  symbols_.erase(s.var);
  spreads_.symbols.erase(s.var);
  unrolled_.erase(s.var);
  in_thread_loop_ = was_parallel;
  divergence_ = was;
}

void Verification::check(Spread s) const {
  require(!has_steps_, "a check in a function with steps, in which the other blocks would wait");
  require(!has_barrier_ || s == Spread::kBlock,
          "a check that differs between threads in a function with barriers");
  require(!warps_meet_ || s != Spread::kLane,
          "a check that differs between the lanes of a warp in a function where they meet");
}

void Verification::tiles(const Stmt& s) {
  require(s.body.size() == 1, "a region of matrix registers needs one body");
  require(!region_, "matrix registers are shaped inside a region that has shaped its own");
  require(!s.shapes.empty(), "a region of matrix registers without any");
  int64_t all = 0;
  int most = 0;
  for (const TileFragmentRow& row : all_tile_fragments()) most = std::max(most, row.registers);
  for (const TileShape& t : s.shapes) {
    check_buffer(t.tile, false);
    const Buffer& b = *t.tile;
    require(b.scope == Scope::kTile, "{} holds no matrix registers", b.name);
    check_dim(t.rows, b.name);
    require(
        facts_.less(t.rows, 1) != ir::Proof::kYes && facts_.less(b.rows, t.rows) != ir::Proof::kYes,
        "{} takes {} rows; it has 1 to {}", b.name, t.rows.str(), b.rows);
    require(shaped_.emplace(&b, Shaped{t.rows}).second, "{} is shaped twice", b.name);
    all += *b.extent.as_constant();
  }
  require(all <= most, "{} matrix registers in one region; a thread has {}", all, most);
  region_ = true;
  scoped(s.body[0]);
  region_ = false;
  for (const TileShape& t : s.shapes)
    require(!shaped_.at(t.tile.get()).read || shaped_.at(t.tile.get()).written,
            "matrix register {} is read in a region that never sets it", t.tile->name);
  shaped_.clear();
}

void Verification::tile(const TileRef& t, bool write) {
  check_buffer(t.buffer, write);
  require(t.buffer->scope == Scope::kTile, "{} holds no matrix registers", t.buffer->name);
  const auto it = shaped_.find(t.buffer.get());
  require(it != shaped_.end(), "matrix register {} is used where no region shapes it",
          t.buffer->name);
  check_number(*t.buffer, t.number);
  (write ? it->second.written : it->second.read) = true;
}

void Verification::tile_dot(const Stmt& s) {
  const TileFragmentRow& row = tile_row_of(s.tile_fragment);
  require(s.tiles.size() == 3, "{} takes three matrix registers, not {}", row.name, s.tiles.size());
  for (const TileRef& t : s.tiles) tile(t, false);
  const Buffer &sum = *s.tiles[0].buffer, &a = *s.tiles[1].buffer, &b = *s.tiles[2].buffer;
  check_tile_operands(row, sum, a, b);
  const Dim groups = a.lanes / row.group;
  require(shaped_.at(&b).rows == groups, "{} takes {} rows, but rows of {} have {} groups", b.name,
          shaped_.at(&b).rows.str(), a.name, groups.str());
  require(shaped_.at(&a).rows == shaped_.at(&sum).rows, "{} takes {} rows, but {} takes {}", a.name,
          shaped_.at(&a).rows.str(), sum.name, shaped_.at(&sum).rows.str());
}

}  // namespace nimble::kir
