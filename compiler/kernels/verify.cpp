// Well-formedness of a kernel. The walk carries what is in scope (symbols, locals), which
// symbols become constants by unrolling, and which differ between threads (of a GPU, by how far
// they are the same: spread.h). Rules that need numbers (extents, alignment, races) are the
// interpreter's.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "compiler/kernels/group_fragments.h"
#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/spread.h"
#include "compiler/kernels/verify_fault.h"
#include "compiler/kernels/verify_group.h"
#include "compiler/kernels/verify_rules.h"
#include "compiler/kernels/verify_steps.h"
#include "compiler/kernels/verify_tiles.h"
#include "compiler/kernels/verify_values.h"
#include "vm/base/error.h"
#include "vm/executable/executable.h"

namespace nimble::kir {
namespace {

// What verify_group.h and verify_rules.h found.
void sound(const std::string& fault) {
  require(fault.empty(), "{}", fault);
}

class Verifier {
 public:
  explicit Verifier(const Function& f) : f_(f), facts_(f.facts) { spreads_.facts = &facts_; }

  void run() {
    require(!f_.name.empty(), "a function needs a name");
    require(f_.body != nullptr, "{} has no body", f_.name);
    for (const char* s : {"thread", "threads"}) symbols_.insert(s);
    if (f_.launch)
      for (const char* s : kBlockSymbols) symbols_.insert(s);
    for (const std::string& s : f_.contract.symbols)
      require(symbols_.insert(s).second, "symbol {} is bound twice", s);
    spreads_.symbols["thread"] = Spread::kLane;
    header();
    if (f_.launch) launch(*f_.launch);
    sound(steps_fault(f_));
    has_steps_ = steps_of(f_) != nullptr;
    find_meetings(*f_.body);
    statement(*f_.body);
    sound(f_.launch ? group_order_fault(f_) : "");
  }

 private:
  void header() {
    size_t tensors = 0;
    for (const exec::KernelArgument& a : f_.contract.arguments) {
      if (a.kind != exec::KernelArgument::Kind::kTensor) continue;
      require(tensors < f_.arguments.size(), "the contract has more tensors than the function");
      const Buffer& b = *f_.arguments[tensors++];
      require(b.dtype == a.dtype, "{} is {}, but {} in the contract", b.name,
              nimble::name_of(b.dtype), nimble::name_of(a.dtype));
      require(b.writable == (a.access != exec::Access::kIn),
              "{} and the contract disagree on whether it is written", b.name);
    }
    require(tensors == f_.arguments.size(), "the function has more tensors than the contract");
    for (const BufferRef& b : f_.arguments) add_buffer(b, b->scope == Scope::kArgument);
    for (const BufferRef& b : f_.scratch)
      add_buffer(b, b->scope == Scope::kScratch || b->scope == Scope::kThread);
    for (const BufferRef& b : f_.shared) {
      gpu_only("shared memory");
      add_buffer(b, b->scope == Scope::kShared);
    }
    for (const BufferRef& b : f_.registers) {
      add_buffer(b, b->scope == Scope::kRegister || b->scope == Scope::kTile);
      const auto extent = b->extent.as_constant();
      require(extent && *extent > 0 && *extent <= 1024,
              "register buffer {} needs a constant extent in [1, 1024]", b->name);
      if (b->scope == Scope::kTile)
        check_tile_buffer(*b);
      else
        check_lanes(b->lanes, b->name);
    }
    for (const TensorMapRef& m : f_.maps) tensor_map(m);
  }

  static constexpr const char* kBlockSymbols[] = {"block_x", "block_y", "block_z"};

  static constexpr int kMostThreads = exec::Launch::kMaxThreads;
  static constexpr int kMostSharedAlignment = 1024;  // of the widest swizzle

  // What is a GPU's alone, or a CPU's.
  void launch(const Launch& l) {
    require(l.threads > 0 && l.threads % kWarpLanes == 0 && l.threads <= kMostThreads,
            "a block of {} threads; a multiple of {} up to {} is needed", l.threads, kWarpLanes,
            kMostThreads);
    const std::vector<std::string>& symbols = f_.contract.symbols;
    for (size_t i = 0; i < l.grid.size(); ++i) {
      require(!l.grid[i].is_any(), "a grid of `?`");
      for (const std::string& s : l.grid[i].symbols())
        require(std::find(symbols.begin(), symbols.end(), s) != symbols.end(),
                "the grid's extent {} depends on {}, which is no symbol of the contract",
                l.grid[i].str(), s);
      const int64_t most = facts_.range(l.grid[i]).high;
      facts_.set(kBlockSymbols[i], {0, most == INT64_MAX ? most : std::max<int64_t>(most - 1, 0)});
    }
    facts_.set("thread", {0, l.threads - 1});
    facts_.set("threads", {l.threads, l.threads});
    for (const BufferRef& b : f_.shared)
      require(b->extent.as_constant() && *b->extent.as_constant() > 0,
              "shared buffer {} needs a constant extent, not {}", b->name, b->extent.str());
    require(shared_bytes(f_) <= exec::Launch::kMaxSharedBytes,
            "{} bytes of shared memory; a block has {}", shared_bytes(f_),
            exec::Launch::kMaxSharedBytes);
    for (const auto* list : {&f_.scratch, &f_.registers})
      for (const BufferRef& b : *list)
        require(b->scope != Scope::kThread && b->scope != Scope::kTile,
                "buffer {} of scope {} in a GPU's function", b->name, name_of(b->scope));
  }

  void gpu_only(std::string_view what) const {
    require(f_.launch.has_value(), "{} in a function without a launch", what);
  }

  // Whoever meets within a warp needs all its lanes.
  void warp_meets(std::string_view what) const {
    require(divergence_ != Spread::kLane, "{} that not all lanes of a warp reach alike", what);
  }

  // The same of a group.
  void group_meets(std::string_view what) const {
    require(f_.launch->threads % kGroupThreads == 0,
            "{} in blocks of {} threads; groups of warps have {}", what, f_.launch->threads,
            kGroupThreads);
    require(divergence_ <= Spread::kGroup, "{} that not all warps of a group reach alike", what);
    require(!has_steps_, "{} in a function with steps of the whole grid", what);
  }

  void add_buffer(const BufferRef& b, bool right_scope) {
    require(right_scope, "buffer {} of scope {} stands in the wrong list", b->name,
            name_of(b->scope));
    require(buffers_.insert(b.get()).second, "buffer {} is listed twice", b->name);
    require(names_.insert(b->name).second, "two buffers are named {}", b->name);
    require((b->alignment & (b->alignment - 1)) == 0, "alignment of {} is not a power of two",
            b->name);
    if (b->scope == Scope::kShared)
      require(b->alignment <= kMostSharedAlignment,
              "shared buffer {} has up to {}-byte alignment, not {}", b->name, kMostSharedAlignment,
              b->alignment);
    else if (b->scope != Scope::kArgument && b->scope != Scope::kRegister)
      require(b->alignment <= 64, "scratch buffer {} has 64-byte alignment, not {}", b->name,
              b->alignment);
    check_dim(b->extent, b->name);
    for (const std::string& s : b->extent.symbols())
      require(s != "thread" && !is_block_symbol(s), "the extent of {} depends on `{}`", b->name, s);
  }

  bool is_block_symbol(const std::string& s) const {
    return f_.launch && std::find(std::begin(kBlockSymbols), std::end(kBlockSymbols), s) !=
                            std::end(kBlockSymbols);
  }

  void check_dim(const Dim& d, const std::string& where) {
    require(!d.is_any(), "{}: `?` is not a kernel dim", where);
    for (const std::string& s : d.symbols())
      require(symbols_.contains(s), "{}: symbol {} is not bound", where, s);
  }

  void check_buffer(const BufferRef& b, bool write) {
    require(b != nullptr, "an access without a buffer");
    require(buffers_.contains(b.get()), "buffer {} is not the function's", b->name);
    require(!write || b->writable, "buffer {} is written but not writable", b->name);
  }

  void check_register(const Buffer& b, const Dim& index) {
    require(b.scope == Scope::kRegister, "{} is not a register buffer", b.name);
    check_number(b, index);
  }

  // The number of one register of a buffer.
  void check_number(const Buffer& b, const Dim& index) {
    check_dim(index, b.name);
    for (const std::string& s : index.symbols())
      require(unrolled_.contains(s), "register {}[{}]: {} is not a constant after unrolling",
              b.name, index.str(), s);
    require(facts_.less(index, 0) != ir::Proof::kYes &&
                facts_.less_equal(b.extent, index) != ir::Proof::kYes,
            "register {}[{}] is out of range", b.name, index.str());
  }

  void check_memory(const BufferRef& b, const Dim& index, const Dim& stride,
                    const std::optional<Dim>& valid, bool write) {
    check_buffer(b, write);
    require(b->scope != Scope::kRegister && b->scope != Scope::kTile,
            "register buffer {} is accessed as memory", b->name);
    require(!signals_.contains(b.get()), "{} holds signals, and is accessed as memory", b->name);
    check_dim(index, b->name);
    check_dim(stride, b->name);
    if (valid) check_dim(*valid, b->name);
  }

  void value(const ValueRef& ref) {
    require(ref != nullptr, "an operand is missing");
    const Value& v = *ref;
    if (!seen_.insert(&v).second) return;
    check_lanes(v.lanes, "a value");
    const bool was_rare = rare_;
    for (const ValueRef& o : v.operands) {
      value(o);
      rare_ |= v.kind == ValueKind::kSelect && v.rare;  // the condition is always computed
    }
    rare_ = was_rare;
    const auto arity = [&](size_t n) { check_arity(v, n); };
    const auto same = [&](const Value& o) { check_same(v, o); };
    switch (v.kind) {
      case ValueKind::kIndex:
        arity(0);
        require(v.dtype == DType::kI64 && v.lanes == 1, "an index value is an i64 scalar");
        return check_dim(v.index, "index value");
      case ValueKind::kLoad:
        arity(0);
        check_memory(v.buffer, v.index, v.stride, v.valid, false);
        require(v.dtype == v.buffer->dtype, "a load from {} as {}", v.buffer->name,
                nimble::name_of(v.dtype));
        require(!v.passthrough || v.valid, "a load with a passthrough but no mask");
        if (v.passthrough) {
          value(v.passthrough);
          same(*v.passthrough);
        }
        return;
      case ValueKind::kRegister:
        arity(0);
        check_buffer(v.buffer, false);
        check_register(*v.buffer, v.index);
        return same(Value{v.kind, v.buffer->dtype, v.buffer->lanes});
      case ValueKind::kLocal: {
        arity(0);
        const auto it = locals_.find(v.name);
        require(it != locals_.end(), "local {} is not bound", v.name);
        return same(*it->second);
      }
      case ValueKind::kConst:
      case ValueKind::kIota:
      case ValueKind::kUnary:
      case ValueKind::kBinary:
      case ValueKind::kFma:
      case ValueKind::kCompare:
      case ValueKind::kSelect:
      case ValueKind::kCast:
      case ValueKind::kBitcast:
      case ValueKind::kBroadcast:
      case ValueKind::kReduce:
      case ValueKind::kExtract:
        return check_computed(v);
      case ValueKind::kDot:
        arity(3);
        return sound(dot_fault(v));
      case ValueKind::kShuffle:
        arity(1);
        gpu_only("a shuffle");
        warp_meets("a shuffle");
        require(!rare_, "a shuffle in a value that select_rare may pass over");
        same(*v.operands[0]);
        return check_dim(v.index, "a shuffle's lane");
    }
  }

  void condition(const Condition& c) {
    for (const Condition::Term& t : c.terms) {
      check_dim(t.a, "condition");
      check_dim(t.b, "condition");
    }
  }

  static bool shuffles(const Value& v, std::unordered_set<const Value*>& seen) {
    if (!seen.insert(&v).second) return false;
    if (v.kind == ValueKind::kShuffle || (v.passthrough && shuffles(*v.passthrough, seen)))
      return true;
    return std::any_of(v.operands.begin(), v.operands.end(),
                       [&](const ValueRef& o) { return o && shuffles(*o, seen); });
  }

  // Who meets somewhere in the function, and where its signals are.
  void find_meetings(const Stmt& s) {
    if (s.kind == StmtKind::kBarrier)
      (s.together == Together::kWarp ? warps_meet_ : has_barrier_) = true;
    std::unordered_set<const Value*> seen;
    if (is_of_signal(s.kind)) signals_.insert(s.buffer.get());
    has_barrier_ |= s.kind == StmtKind::kSignalWait;
    warps_meet_ |= s.kind == StmtKind::kWarpDot || s.kind == StmtKind::kWarpLoad ||
                   s.kind == StmtKind::kGroupDot ||
                   (f_.launch && s.value && shuffles(*s.value, seen));
    for (const StmtRef& b : s.body)
      if (b) find_meetings(*b);
  }

  // Names bound inside a nested block end with it.
  void scoped(const StmtRef& s) {
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

  void loop(const Stmt& s) {
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

  void statement(const Stmt& s) {
    const StmtRow& row = row_of(s.kind);
    if (row.device == StmtDevice::kGpu) gpu_only(row.what);
    require(row.device != StmtDevice::kCpu || !f_.launch, "{} in a function with a launch",
            row.what);
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
        require(s.buffer->dtype == s.tiles[0].buffer->dtype,
                "{} of {} and matrix register {} of {}", s.buffer->name,
                nimble::name_of(s.buffer->dtype), s.tiles[0].buffer->name,
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

  // A failed check leaves the function, and then does not meet the others.
  void check(Spread s) const {
    require(!has_steps_, "a check in a function with steps, in which the other blocks would wait");
    require(!has_barrier_ || s == Spread::kBlock,
            "a check that differs between threads in a function with barriers");
    require(!warps_meet_ || s != Spread::kLane,
            "a check that differs between the lanes of a warp in a function where they meet");
  }

  // --- Warps

  // `count` neighbours of 32 bits each.
  void warp_registers(const TileRef& t, int count, bool write, std::string_view of) {
    check_buffer(t.buffer, write);
    const Buffer& b = *t.buffer;
    check_register(b, t.number);
    check_number(b, t.number + (count - 1));
    require(size_of(b.dtype) * static_cast<size_t>(b.lanes) == 4,
            "{} takes registers of 4 bytes; those of {} are {}x{}", of, b.name,
            nimble::name_of(b.dtype), b.lanes);
  }

  void warp_dot(const Stmt& s) {
    warp_meets(row_of(s.kind).what);
    const WarpFragmentRow& row = warp_row_of(s.warp_fragment);
    require(s.tiles.size() == 3, "{} takes three operands, not {}", row.name, s.tiles.size());
    const DType types[] = {row.sum, row.a, row.b};
    const int counts[] = {row.sum_registers(), row.a_registers(), row.b_registers()};
    for (size_t i = 0; i < 3; ++i) {
      warp_registers(s.tiles[i], counts[i], i == 0, row.name);
      const Buffer& b = *s.tiles[i].buffer;
      require(b.dtype == types[i], "{} takes {} for {}, which is {}", row.name,
              nimble::name_of(types[i]), b.name, nimble::name_of(b.dtype));
    }
    for (size_t i = 1; i < 3; ++i)
      require(s.tiles[i].buffer != s.tiles[0].buffer,
              "a factor and the sum of {} are of {}; they need buffers of their own", row.name,
              s.tiles[0].buffer->name);
  }

  void warp_load(const Stmt& s) {
    warp_meets(row_of(s.kind).what);
    require(s.tiles.size() == 1, "a load of a warp has {} registers", s.tiles.size());
    require(s.count == 1 || s.count == 2 || s.count == 4,
            "a load of {} matrices; a warp loads 1, 2 or 4", s.count);
    warp_registers(s.tiles[0], s.count, true, "a load of a warp");
    check_memory(s.buffer, s.index, 1, std::nullopt, false);
    require(s.buffer->scope == Scope::kShared, "a warp loads from {}, which is not shared memory",
            s.buffer->name);
    const DType t = s.buffer->dtype;
    require(t == s.tiles[0].buffer->dtype, "a warp loads {} of {} into {} of {}", s.buffer->name,
            nimble::name_of(t), s.tiles[0].buffer->name, nimble::name_of(s.tiles[0].buffer->dtype));
    require(!s.transposed || size_of(t) == 2,
            "a transposed load of {}; elements of 2 bytes have one", nimble::name_of(t));
    aligned(*s.buffer, s.index, 16, "a row that a warp loads");
  }

  void group_dot(const Stmt& s) {
    group_meets(row_of(s.kind).what);
    const GroupFragmentRow& row = group_row_of(s.group_fragment);
    for (const GroupView& v : s.views) check_memory(v.buffer, v.index, 1, std::nullopt, false);
    sound(group_dot_fault(row, s.columns, s.views));
    for (const GroupView& v : s.views) {
      require(spreads_.of(v.index) <= Spread::kGroup,
              "{} takes {} from {}, which differs between the threads of a group", row.name,
              v.buffer->name, v.index.str());
      aligned(*v.buffer, v.index, kPieceBytes, "a factor of a group's product");
    }
    require(s.tiles.size() == 1, "{} has {} sums", row.name, s.tiles.size());
    const Buffer& sum = *s.tiles[0].buffer;
    const int registers = GroupFragmentRow::sum_registers(s.columns);
    warp_registers(s.tiles[0], registers, true, row.name);
    require(sum.dtype == row.sum, "{} takes {} for {}, which is {}", row.name,
            nimble::name_of(row.sum), sum.name, nimble::name_of(sum.dtype));
    require(facts_.divisible(s.tiles[0].number, registers) != ir::Proof::kNo,
            "{} sums into {}[{}]; products of {} columns begin at multiples of {} registers",
            row.name, sum.name, s.tiles[0].number.str(), s.columns, registers);
  }

  void aligned(const Buffer& b, const Dim& index, int64_t bytes, const char* what) const {
    const auto size = static_cast<int64_t>(size_of(b.dtype));
    require(bytes <= size || facts_.divisible(index, bytes / size) != ir::Proof::kNo,
            "{} begins at {}[{}], which is no multiple of {} bytes", what, b.name, index.str(),
            bytes);
  }

  void async_copy(const Stmt& s) {
    check_memory(s.buffer, s.index, 1, s.valid, false);
    check_memory(s.to_buffer, s.to_index, 1, std::nullopt, true);
    sound(async_copy_fault(s));
    const int64_t bytes = s.lanes * static_cast<int64_t>(size_of(s.buffer->dtype));
    aligned(*s.buffer, s.index, bytes, "a copy");
    aligned(*s.to_buffer, s.to_index, bytes, "a copy");
  }

  // --- Signals and copies of boxes

  void tensor_map(const TensorMapRef& m) {
    gpu_only("a tensor map");
    sound(tensor_map_fault(f_, facts_, m.get()));
    require(names_.insert(m->name).second, "two buffers or maps are named {}", m->name);
  }

  void signal(const Stmt& s) {
    require(!has_steps_, "a signal in a function with steps of the whole grid");
    check_buffer(s.buffer, true);
    check_dim(s.index, s.buffer->name);
    sound(signal_fault(s));
    if (s.kind != StmtKind::kSignalWait) return;
    check_dim(s.phase, "a signal's phase");
    require(std::max({divergence_, spreads_.of(s.index), spreads_.of(s.phase)}) == Spread::kBlock,
            "a wait for signal {} that not all threads of the block reach alike", s.buffer->name);
  }

  void tensor_copy(const Stmt& s) {
    signal(s);
    check_memory(s.to_buffer, s.to_index, 1, std::nullopt, true);
    sound(tensor_copy_fault(f_, s));
    for (const Dim& d : s.coordinates) check_dim(d, s.map->name);
    aligned(*s.to_buffer, s.to_index, pattern_bytes(*s.map), "a box");
  }

  // --- Matrix registers

  struct Shaped {
    Dim rows;
    bool written = false, read = false;
  };

  void tiles(const Stmt& s) {
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
      require(facts_.less(t.rows, 1) != ir::Proof::kYes &&
                  facts_.less(b.rows, t.rows) != ir::Proof::kYes,
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

  void tile(const TileRef& t, bool write) {
    check_buffer(t.buffer, write);
    require(t.buffer->scope == Scope::kTile, "{} holds no matrix registers", t.buffer->name);
    const auto it = shaped_.find(t.buffer.get());
    require(it != shaped_.end(), "matrix register {} is used where no region shapes it",
            t.buffer->name);
    check_number(*t.buffer, t.number);
    (write ? it->second.written : it->second.read) = true;
  }

  void tile_dot(const Stmt& s) {
    const TileFragmentRow& row = tile_row_of(s.tile_fragment);
    require(s.tiles.size() == 3, "{} takes three matrix registers, not {}", row.name,
            s.tiles.size());
    for (const TileRef& t : s.tiles) tile(t, false);
    const Buffer &sum = *s.tiles[0].buffer, &a = *s.tiles[1].buffer, &b = *s.tiles[2].buffer;
    check_tile_operands(row, sum, a, b);
    const Dim groups = a.lanes / row.group;
    require(shaped_.at(&b).rows == groups, "{} takes {} rows, but rows of {} have {} groups",
            b.name, shaped_.at(&b).rows.str(), a.name, groups.str());
    require(shaped_.at(&a).rows == shaped_.at(&sum).rows, "{} takes {} rows, but {} takes {}",
            a.name, shaped_.at(&a).rows.str(), sum.name, shaped_.at(&sum).rows.str());
  }

  const Function& f_;
  ir::DimContext facts_;
  std::set<std::string> symbols_, names_, unrolled_;
  Spreads spreads_;
  Spread divergence_ = Spread::kBlock;  // how far control is the same
  std::map<std::string, ValueRef> locals_;
  std::unordered_set<const Buffer*> buffers_;
  std::unordered_set<const Value*> seen_;
  std::map<const Buffer*, Shaped> shaped_;  // within a region
  std::set<const Buffer*> signals_;
  bool in_thread_loop_ = false, has_barrier_ = false, warps_meet_ = false, region_ = false;
  bool has_steps_ = false;
  bool rare_ = false;  // within a value that may not be computed
};

}  // namespace

std::string verify(const Function& f) {
  try {
    Verifier(f).run();
  } catch (const Fault& fault) {
    return fault.text;
  }
  return {};
}

}  // namespace nimble::kir
