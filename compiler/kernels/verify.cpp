// Well-formedness of a kernel. The walk carries what is in scope (symbols, locals), which
// symbols become constants by unrolling, and which differ between threads. Rules that need
// numbers (extents, alignment, races) are the interpreter's.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "compiler/kernels/kernel_ir.h"
#include "vm/base/error.h"

namespace nimble::kir {
namespace {

struct Fault {
  std::string text;
};

template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Fault{fmt::format(format, std::forward<Args>(args)...)};
}

class Verifier {
 public:
  explicit Verifier(const Function& f) : f_(f), facts_(f.facts) {}

  void run() {
    require(!f_.name.empty(), "a function needs a name");
    require(f_.body != nullptr, "{} has no body", f_.name);
    for (const char* s : {"thread", "threads"}) symbols_.insert(s);
    for (const std::string& s : f_.contract.symbols)
      require(symbols_.insert(s).second, "symbol {} is bound twice", s);
    varying_ = {"thread"};
    header();
    has_barrier_ = contains_barrier(*f_.body);
    statement(*f_.body);
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
    for (const BufferRef& b : f_.registers) {
      add_buffer(b, b->scope == Scope::kRegister || b->scope == Scope::kTile);
      const auto extent = b->extent.as_constant();
      require(extent && *extent > 0 && *extent <= 1024,
              "register buffer {} needs a constant extent in [1, 1024]", b->name);
      if (b->scope == Scope::kTile)
        check_tile(*b);
      else
        check_lanes(b->lanes, b->name);
    }
  }

  static void check_tile(const Buffer& b) {
    int rows = 0;
    size_t bytes = 0;
    for (const TileFragmentRow& row : all_tile_fragments()) {
      rows = std::max(rows, row.rows);
      bytes = std::max(bytes, static_cast<size_t>(row.row_bytes));
    }
    require(b.rows >= 1 && b.rows <= rows, "{}: {} rows; a matrix register has 1 to {}", b.name,
            b.rows, rows);
    require(b.lanes >= 1 && size_of(b.dtype) * static_cast<size_t>(b.lanes) <= bytes,
            "{}: rows of {} {}; a matrix register's have up to {} bytes", b.name, b.lanes,
            nimble::name_of(b.dtype), bytes);
  }

  void add_buffer(const BufferRef& b, bool right_scope) {
    require(right_scope, "buffer {} of scope {} stands in the wrong list", b->name,
            name_of(b->scope));
    require(buffers_.insert(b.get()).second, "buffer {} is listed twice", b->name);
    require(names_.insert(b->name).second, "two buffers are named {}", b->name);
    require((b->alignment & (b->alignment - 1)) == 0, "alignment of {} is not a power of two",
            b->name);
    if (b->scope != Scope::kArgument && b->scope != Scope::kRegister)
      require(b->alignment <= 64, "scratch buffer {} has 64-byte alignment, not {}", b->name,
              b->alignment);
    check_dim(b->extent, b->name);
    for (const std::string& s : b->extent.symbols())
      require(s != "thread", "the extent of {} depends on `thread`", b->name);
  }

  static void check_lanes(int lanes, const std::string& where) {
    require(lanes >= 1 && lanes <= 64 && (lanes & (lanes - 1)) == 0,
            "{}: {} lanes; a power of two up to 64 is needed", where, lanes);
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

  bool varies(const Dim& d) const {
    for (const std::string& s : d.symbols())
      if (varying_.contains(s)) return true;
    return false;
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
    check_dim(index, b->name);
    check_dim(stride, b->name);
    if (valid) check_dim(*valid, b->name);
  }

  void value(const ValueRef& ref) {
    require(ref != nullptr, "an operand is missing");
    const Value& v = *ref;
    if (!seen_.insert(&v).second) return;
    check_lanes(v.lanes, "a value");
    for (const ValueRef& o : v.operands) value(o);
    const auto arity = [&](size_t n) {
      require(v.operands.size() == n, "a value has {} operands instead of {}", v.operands.size(),
              n);
    };
    const auto same = [&](const Value& o) {
      require(o.dtype == v.dtype && o.lanes == v.lanes, "operand {}x{} of a {}x{} value",
              nimble::name_of(o.dtype), o.lanes, nimble::name_of(v.dtype), v.lanes);
    };
    const auto computes = [&](DType t) {
      require(!is_narrow_float(t), "arithmetic on {}; cast to f32 first", nimble::name_of(t));
    };
    switch (v.kind) {
      case ValueKind::kConst:
        return arity(0);
      case ValueKind::kIndex:
        arity(0);
        require(v.dtype == DType::kI64 && v.lanes == 1, "an index value is an i64 scalar");
        return check_dim(v.index, "index value");
      case ValueKind::kIota:
        require(v.dtype == DType::kI32, "iota is i32");
        return arity(0);
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
      case ValueKind::kUnary: {
        arity(1);
        same(*v.operands[0]);
        computes(v.dtype);
        const bool is_not = v.unary == UnaryOp::kNot;
        const bool any_number = v.unary == UnaryOp::kNeg || v.unary == UnaryOp::kAbs;
        require(is_not ? !is_float(v.dtype)
                       : is_float(v.dtype) || (any_number && v.dtype != DType::kBool),
                "{} of {}", name_of(v.unary), nimble::name_of(v.dtype));
        return;
      }
      case ValueKind::kBinary:
        arity(2);
        same(*v.operands[0]);
        same(*v.operands[1]);
        return check_binary(v.binary, v.dtype);
      case ValueKind::kFma:
        arity(3);
        for (const ValueRef& o : v.operands) same(*o);
        require(v.dtype == DType::kF32 || v.dtype == DType::kF64, "fma of {}",
                nimble::name_of(v.dtype));
        return;
      case ValueKind::kCompare:
        arity(2);
        require(v.dtype == DType::kBool, "a comparison gives bool");
        require(v.operands[0]->dtype == v.operands[1]->dtype && v.operands[0]->lanes == v.lanes &&
                    v.operands[1]->lanes == v.lanes,
                "operands of a comparison differ in type or lanes");
        return computes(v.operands[0]->dtype);
      case ValueKind::kSelect:
        arity(3);
        require(v.operands[0]->dtype == DType::kBool && v.operands[0]->lanes == v.lanes,
                "select needs a bool condition with its lanes");
        same(*v.operands[1]);
        return same(*v.operands[2]);
      case ValueKind::kCast:
        arity(1);
        require(v.operands[0]->lanes == v.lanes, "a cast changes the lanes");
        return;
      case ValueKind::kBitcast:
        arity(1);
        require(v.dtype != DType::kBool && v.operands[0]->dtype != DType::kBool &&
                    bytes_of(v) == bytes_of(*v.operands[0]),
                "a bitcast between {}x{} and {}x{}", nimble::name_of(v.operands[0]->dtype),
                v.operands[0]->lanes, nimble::name_of(v.dtype), v.lanes);
        return;
      case ValueKind::kBroadcast:
        arity(1);
        require(v.operands[0]->dtype == v.dtype && v.lanes % v.operands[0]->lanes == 0,
                "broadcast of {}x{} to {}x{}; it takes lanes of its type that divide its own",
                nimble::name_of(v.operands[0]->dtype), v.operands[0]->lanes,
                nimble::name_of(v.dtype), v.lanes);
        return;
      case ValueKind::kReduce:
        arity(1);
        require(v.lanes == 1 && v.operands[0]->dtype == v.dtype, "reduce gives a scalar");
        require(v.binary != BinaryOp::kSub && v.binary != BinaryOp::kDiv &&
                    v.binary != BinaryOp::kMod && v.binary != BinaryOp::kShl &&
                    v.binary != BinaryOp::kShr && v.binary != BinaryOp::kScale,
                "reduce by {}, which is not associative", name_of(v.binary));
        return check_binary(v.binary, v.dtype);
      case ValueKind::kExtract:
        arity(1);
        require(v.lanes == 1 && v.operands[0]->dtype == v.dtype && v.integer >= 0 &&
                    v.integer < v.operands[0]->lanes,
                "extract of lane {} from {} lanes", v.integer, v.operands[0]->lanes);
        return;
      case ValueKind::kDot:
        arity(3);
        return check_dot(v);
    }
  }

  static size_t bytes_of(const Value& v) { return size_of(v.dtype) * static_cast<size_t>(v.lanes); }

  static void check_dot(const Value& v) {
    const FragmentRow& row = row_of(v.fragment);
    require(v.dtype == row.sum, "{} gives {}, not {}", row.name, nimble::name_of(row.sum),
            nimble::name_of(v.dtype));
    const DType types[] = {row.a, row.b, row.sum};
    const int lanes[] = {row.group * v.lanes, row.group * v.lanes, v.lanes};
    for (size_t i = 0; i < 3; ++i)
      require(v.operands[i]->dtype == types[i] && v.operands[i]->lanes == lanes[i],
              "operand {} of {} is {}x{}; {}x{} is needed", i, row.name,
              nimble::name_of(v.operands[i]->dtype), v.operands[i]->lanes,
              nimble::name_of(types[i]), lanes[i]);
  }

  static void check_binary(BinaryOp op, DType t) {
    const bool logic = op == BinaryOp::kAnd || op == BinaryOp::kOr || op == BinaryOp::kXor;
    const bool integer_only =
        logic || op == BinaryOp::kMod || op == BinaryOp::kShl || op == BinaryOp::kShr;
    require(!is_narrow_float(t), "arithmetic on {}; cast to f32 first", nimble::name_of(t));
    require(t == DType::kBool ? logic
            : is_float(t)     ? !integer_only
                              : op != BinaryOp::kScale,
            "{} of {}", name_of(op), nimble::name_of(t));
  }

  void condition(const Condition& c) {
    for (const Condition::Term& t : c.terms) {
      check_dim(t.a, "condition");
      check_dim(t.b, "condition");
    }
  }

  bool varies(const Condition& c) const {
    for (const Condition::Term& t : c.terms)
      if (varies(t.a) || varies(t.b)) return true;
    return false;
  }

  static bool contains_barrier(const Stmt& s) {
    if (s.kind == StmtKind::kBarrier) return true;
    for (const StmtRef& b : s.body)
      if (contains_barrier(*b)) return true;
    return false;
  }

  // Names bound inside a nested block end with it.
  void scoped(const StmtRef& s) {
    require(s != nullptr, "a block is missing");
    const auto symbols = symbols_;
    const auto locals = locals_;
    const auto varying = varying_;
    statement(*s);
    symbols_ = symbols;
    locals_ = locals;
    varying_ = varying;
    seen_.clear();
  }

  void loop(const Stmt& s) {
    require(s.body.size() == 1, "loop {} needs one body", s.var);
    require(s.step > 0, "loop {} has step {}", s.var, s.step);
    check_dim(s.begin, "loop " + s.var);
    check_dim(s.extent, "loop " + s.var);
    require(!symbols_.contains(s.var), "loop variable {} hides another symbol", s.var);
    const bool parallel = s.loop == LoopKind::kThread;
    require(!parallel || !region_, "thread loop {} among matrix registers", s.var);
    require(!parallel || !in_thread_loop_, "thread loop {} inside a thread loop", s.var);
    require(!parallel || (!varies(s.begin) && !varies(s.extent)),
            "the bounds of thread loop {} differ between threads", s.var);
    if (s.loop == LoopKind::kUnroll) {
      for (const std::string& x : s.extent.symbols())
        require(unrolled_.contains(x), "unrolled loop {} has extent {}", s.var, s.extent.str());
      bool constant_begin = true;
      for (const std::string& x : s.begin.symbols()) constant_begin &= unrolled_.contains(x);
      if (constant_begin) unrolled_.insert(s.var);
    }
    const bool was_parallel = in_thread_loop_, was_divergent = divergent_;
    in_thread_loop_ |= parallel;
    divergent_ |= parallel || varies(s.begin) || varies(s.extent);
    symbols_.insert(s.var);
    if (parallel || varies(s.begin)) varying_.insert(s.var);
    const ir::SymbolFacts outer = facts_.facts(s.var);
    const auto low = facts_.range(s.begin), high = facts_.range(s.begin + s.extent);
    facts_.set(s.var, {low.low, high.high == INT64_MAX ? INT64_MAX : high.high - 1, 1});
    seen_.clear();
    scoped(s.body[0]);
    facts_.set(s.var, outer);
    symbols_.erase(s.var);
    varying_.erase(s.var);
    unrolled_.erase(s.var);
    in_thread_loop_ = was_parallel;
    divergent_ = was_divergent;
  }

  void statement(const Stmt& s) {
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
        const bool was = divergent_;
        divergent_ |= varies(s.condition);
        for (const StmtRef& b : s.body) scoped(b);
        divergent_ = was;
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
        return;
      case StmtKind::kLetIndex:
        value(s.value);
        require(is_int(s.value->dtype) && s.value->lanes == 1, "index {} needs an integer scalar",
                s.var);
        require(symbols_.insert(s.var).second, "index {} hides another symbol", s.var);
        if (divergent_) varying_.insert(s.var);
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
        require(!divergent_, "a barrier that not all threads reach alike");
        return;
      case StmtKind::kCheck:
        require(!region_, "a check among matrix registers, which a failure would not release");
        condition(s.condition);
        require(!has_barrier_ || !(divergent_ || varies(s.condition)),
                "a check that differs between threads in a function with barriers");
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
    }
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
    const DType types[] = {row.sum, row.a, row.b};
    for (size_t i = 0; i < 3; ++i) {
      tile(s.tiles[i], false);
      const Buffer& b = *s.tiles[i].buffer;
      require(b.dtype == types[i], "{} takes {} for {}, which is {}", row.name,
              nimble::name_of(types[i]), b.name, nimble::name_of(b.dtype));
      require(b.rows <= row.rows && size_of(b.dtype) * static_cast<size_t>(b.lanes) <=
                                        static_cast<size_t>(row.row_bytes),
              "{} takes up to {} rows of {} bytes; {} has more", row.name, row.rows, row.row_bytes,
              b.name);
    }
    const Buffer &sum = *s.tiles[0].buffer, &a = *s.tiles[1].buffer, &b = *s.tiles[2].buffer;
    require(&a != &b, "both factors of {} are of {}; they need buffers of their own", row.name,
            a.name);
    require(a.lanes % row.group == 0, "rows of {} have {} elements; {} takes groups of {}", a.name,
            a.lanes, row.name, row.group);
    require(b.lanes == row.group * sum.lanes, "rows of {} have {} elements; {} are needed for {}",
            b.name, b.lanes, row.group * sum.lanes, sum.name);
    const Dim groups = a.lanes / row.group;
    require(shaped_.at(&b).rows == groups, "{} takes {} rows, but rows of {} have {} groups",
            b.name, shaped_.at(&b).rows.str(), a.name, groups.str());
    require(shaped_.at(&a).rows == shaped_.at(&sum).rows, "{} takes {} rows, but {} takes {}",
            a.name, shaped_.at(&a).rows.str(), sum.name, shaped_.at(&sum).rows.str());
  }

  const Function& f_;
  ir::DimContext facts_;
  std::set<std::string> symbols_, names_, unrolled_, varying_;
  std::map<std::string, ValueRef> locals_;
  std::unordered_set<const Buffer*> buffers_;
  std::unordered_set<const Value*> seen_;
  std::map<const Buffer*, Shaped> shaped_;  // within a region
  bool in_thread_loop_ = false, divergent_ = false, has_barrier_ = false, region_ = false;
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
