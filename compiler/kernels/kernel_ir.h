// Kernel IR: explicit loop nests between a template's schedule and machine code.
//
// A kir::Function is one SPMD kernel. It names its buffers (arguments, scratch, registers), and
// its body is a tree of statements: loops bound to what runs them, stores, register updates,
// prefetches, barriers. Values are SSA-free expression trees with explicit vectors (lanes > 1).
// Every index and every loop bound is an ir::Dim over shape symbols, loop variables and index
// variables, so one prover simplifies bounds, tails and addresses.
//
// It has no undefined behaviour of its own: the interpreter (interpreter.h) checks every access
// against the buffer's extent, every lane, every alignment claim; code generation may therefore
// assume what the interpreter checks. One rule makes kernels deterministic: two threads never
// write the same element between two barriers.
//
// Arithmetic is that of the element type: f32 in f32, integers modulo 2^bits. f16 and bf16 are
// storage formats (load, store, cast, select, bitcast, broadcast, extract); kernels compute in
// f32, and kDot takes what its row says. What C leaves undefined has a meaning here:
//   kDiv   integers truncate towards zero; x / 0 is 0, and INT_MIN / -1 wraps.
//   kMod   integers only, with the divisor's sign; x mod 0 is 0.
//   kShl, kShr   use the shift amount modulo the width.
//   kScale b is a whole number and half of it an exponent of a normal number: from -252 to 254
//   (f32)
//          or -2044 to 2046 (f64); anything if a is NaN. Rounds once if a 2^(b/2) is normal.
//   kCast  float to int truncates, saturates, and takes NaN to 0; to bool is `x != 0`;
//          f64 to f16 or bf16 rounds to f32 first; integers wrap.
//   kFma   rounds once where the target has an FMA instruction (x86-64-v3 and up, AArch64), else
//          twice; no other operation is ever contracted, reassociated or approximated.
//   kMin, kMax   a < b ? a : b and a > b ? a : b, hence the second operand on NaN.
// Lanes are a power of two, at most 64. Distinct buffers never overlap in memory.
//
// A function with a launch is a GPU's: each of launch.threads threads of each block of the grid
// runs the body, which may use kBlockSymbols and `thread` (0 ≤ thread < launch.threads); lanes of a
// warp are kWarpLanes neighbours by number. Its loops are serial or unrolled: what is parallel is
// written by those symbols. A barrier names who meets there (Together), and so do operations of a
// whole warp (kShuffle, kWarpDot, kWarpLoad): all its lanes come to them alike. A group is
// kGroupWarps warps, neighbours by number from a multiple of that on; operations of a group
// (kGroup…) all its threads come to alike.
//
// A launch's function may end in a loop of steps (LoopKind::kSteps): no block begins one before all
// blocks have ended the one before, and then each sees what the others have written. What stands
// ahead of it makes a block ready: it writes registers and shared memory alone, which the steps
// leave as they are; whatever else these hold is gone with the step. So steps may run in one
// launch, whose blocks are all on the GPU at once and wait for each other (a cooperative launch),
// or in a launch for each step: what is computed is the same to the bit.
//
// Besides the contract's symbols, a body may use `thread` (0 ≤ thread < threads) and `threads`.
// Barriers must be met by all threads alike: only where no kThread loop and no bound or
// condition that depends on `thread` encloses them. Such a function's checks obey the same rule,
// since a failed check leaves the function.
//
// Its printers are compiler/codegen/llvm, compiler/codegen/portable and compiler/codegen/cuda. They
// print what unroll.h leaves, and refuse what their machine lacks (a launch on a CPU, …).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/dim.h"
#include "vm/base/dtype.h"
#include "vm/executable/contract.h"

namespace nimble::kir {

using ir::Dim;

// ---------------------------------------------------------------- buffers

enum class Scope {
  kArgument,  // a tensor argument; in global memory
  kScratch,   // one block per call, shared by the threads; sized by a Dim
  kThread,    // one block per thread in scratch memory (packing buffers, partial rows)
  kRegister,  // per-thread registers: after unrolling every index must be a constant
  kShared,    // a block's on-chip memory (GPU); contents undefined where the block begins
  kTile,      // matrix registers of a thread; only within a kTiles region, indexed as kRegister
};

struct Buffer {
  std::string name;
  Scope scope = Scope::kArgument;
  DType dtype = DType::kF32;
  int lanes = 1;          // kRegister: vector width of one element; kTile: elements of a row
  int rows = 0;           // kTile only: rows of one matrix register
  Dim extent;             // number of elements (flat; templates compute row-major offsets)
  bool writable = false;  // kArgument: an output or in-out
  int alignment = 0;      // bytes that the base address is guaranteed to have; 0: element size
};
using BufferRef = std::shared_ptr<const Buffer>;

// ---------------------------------------------------------------- values

struct Value;
using ValueRef = std::shared_ptr<const Value>;

enum class ValueKind {
  kConst,     // number: `constant` (floats) or `integer`, splat over the lanes
  kIndex,     // the value of Dim `index` as an i64 (lanes 1)
  kIota,      // i32 lanes 0, 1, 2, …
  kLoad,      // buffer[index + stride*lane], lanes with lane < valid; others are `passthrough`
  kRegister,  // register buffer element [index]
  kLocal,     // a name bound by a kLet statement
  kUnary,
  kBinary,
  kFma,        // fma: a*b + c, one rounding
  kCompare,    // bool lanes
  kSelect,     // a ? b : c by lane; `rare`: b is dear and seldom needed, so a printer may branch
  kCast,       // numeric conversion to `dtype` (float to int truncates and saturates)
  kBitcast,    // the same bits in lanes of another type, as many bytes in all; lane 0 comes first
  kBroadcast,  // operand's lanes over and over to `lanes`: v0 v1 v0 v1 …
  kReduce,     // all lanes of operand a to one scalar by `binary` (order: pairwise halves)
  kExtract,    // lane number `integer` of operand a
  kDot,      // sum[i] + Σ over the group a[i*group+j] * b[i*group+j], as the fragment's row says;
             // operands a, b, sum
  kShuffle,  // operand a of the warp's lane number `index`, which may differ from lane to lane
};

enum class UnaryOp { kNeg, kAbs, kSqrt, kRsqrt, kFloor, kCeil, kRound /* to even */, kTrunc, kNot };
enum class BinaryOp {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMod,
  kMin,
  kMax,  // min/max: the second operand if either is NaN
  kAnd,
  kOr,
  kXor,
  kShl,
  kShr,    // integers and bools; kShr is arithmetic if signed
  kScale,  // floats: a * 2^b
};
enum class CompareOp { kEq, kNe, kLt, kLe, kGt, kGe };  // ordered: false on NaN, but kNe true

// Products that a machine sums at once; Fragments.def says what each computes, to the bit.
enum class Fragment {
#define NIMBLE_FRAGMENT(id, ...) id,
#include "compiler/kernels/Fragments.def"
};

struct FragmentRow {
  Fragment id;
  std::string_view name;     // in the text of a kernel
  DType a, b, sum;           // element types
  int group;                 // lanes of a and of b for one lane of the sum
  int64_t within;            // the size that b must keep for exact sums; 0: any
  std::string_view feature;  // of a TargetInfo that has instructions for it; "": none has
  int held;                  // vector registers beside sums and factors; 0: one instruction is it
};
std::span<const FragmentRow> all_fragments();
// A feature of targets that have other instructions for a row, with its expansion's bits.
struct FragmentOtherwise {
  Fragment id;
  std::string_view feature;
};
std::span<const FragmentOtherwise> all_fragments_otherwise();
const FragmentRow& row_of(Fragment f);

// Products of whole matrix registers, of the same table.
enum class TileFragment {
#define NIMBLE_TILE_FRAGMENT(id, name, a, b, sum, group, rows, row_bytes, registers, feature) id,
#include "compiler/kernels/Fragments.def"
};

struct TileFragmentRow {
  TileFragment id;
  std::string_view name;     // in the text of a kernel
  DType a, b, sum;           // element types
  int group;                 // neighbours of a row of a, and of b, for one product of the sum
  int rows, row_bytes;       // of a matrix register, at most
  int registers;             // matrix registers of a thread
  std::string_view feature;  // of a TargetInfo that has an instruction for it
};
std::span<const TileFragmentRow> all_tile_fragments();
const TileFragmentRow& tile_row_of(TileFragment f);

inline constexpr int kWarpLanes = 32;

// Products of matrices that lie over the lanes of a warp, of the same table.
enum class WarpFragment {
#define NIMBLE_WARP_FRAGMENT(id, name, a, b, sum, m, n, k, feature) id,
#include "compiler/kernels/Fragments.def"
};

struct WarpFragmentRow {
  WarpFragment id;
  std::string_view name;     // in the text of a kernel
  DType a, b, sum;           // element types
  int m, n, k;               // sum(m, n) += a(m, k) b(k, n)
  std::string_view feature;  // of a TargetInfo that has the instruction
  // Elements of a 32-bit register; registers of a lane.
  int per_register(DType t) const { return 4 / static_cast<int>(size_of(t)); }
  int a_registers() const { return m * k / kWarpLanes / per_register(a); }
  int b_registers() const { return k * n / kWarpLanes / per_register(b); }
  int sum_registers() const { return m * n / kWarpLanes / per_register(sum); }
};
std::span<const WarpFragmentRow> all_warp_fragments();
const WarpFragmentRow& warp_row_of(WarpFragment f);

// Where an operand's elements lie: row and column of element `element` of register `number` of a
// lane. Emulator, printers and templates ask this alone.
struct WarpPlace {
  int row = 0, column = 0;
};
enum class WarpOperand { kA /* m × k */, kB /* k × n */, kSum /* m × n */ };
WarpPlace warp_place(const WarpFragmentRow& row, WarpOperand operand, int lane, int number,
                     int element);

inline constexpr int kGroupWarps = 4, kGroupThreads = kGroupWarps * kWarpLanes;
inline constexpr int kGroupRows = 64;  // of a group's product

// Products of matrices in shared memory that a group makes, of the same table.
enum class GroupFragment {
#define NIMBLE_GROUP_FRAGMENT(id, name, a, b, sum, k, feature) id,
#include "compiler/kernels/Fragments.def"
};

struct GroupFragmentRow {
  GroupFragment id;
  std::string_view name;     // in the text of a kernel
  DType a, b, sum;           // element types
  int k;                     // sum(64, n) += a(64, k) b(k, n)
  std::string_view feature;  // of a TargetInfo that has the instruction
  // Whether a factor may lie across k.
  bool across() const { return size_of(a) == 2; }
  // Of a thread, 4 bytes each.
  static int sum_registers(int columns) { return kGroupRows * columns / kGroupThreads; }
};
std::span<const GroupFragmentRow> all_group_fragments();
const GroupFragmentRow& group_row_of(GroupFragment f);

// A factor of a group's product in shared memory. It lies in lines of `span` elements (32, 64 or
// 128 bytes), one behind the other. Along k a line is so much of a row of a, or of a column of b,
// and the next line that of the next row. Across k a line is so many rows of a, or columns of b, at
// one place of k, the next line those at the next place, and the next rows or columns begin `slab`
// elements further. Within eight lines the pieces of 16 bytes are swizzled (group_fragments.h); the
// buffer's alignment is a multiple of such eight lines.
struct GroupView {
  BufferRef buffer;
  Dim index;  // of its first element, in the first of eight lines
  bool along_k = true;
  int span = 0;
  int64_t slab = 0;  // across k alone
};

// A tensor that lies densely in an argument which nothing writes, of which boxes are copied to
// shared memory as a whole. Axes are given innermost first. A box's innermost extent is a line of
// 32, 64 or 128 bytes; in shared memory its lines lie one behind the other, swizzled as those of a
// GroupView.
struct TensorMap {
  std::string name;
  BufferRef buffer;
  std::vector<Dim> extents;  // elements, over the contract's symbols
  std::vector<int> box;      // elements of a copy along each axis
  int box_elements() const {
    int all = 1;
    for (const int n : box) all *= n;
    return all;
  }
  int box_bytes() const { return box_elements() * static_cast<int>(size_of(buffer->dtype)); }
};
using TensorMapRef = std::shared_ptr<const TensorMap>;

struct Value {
  ValueKind kind;
  DType dtype;
  int lanes = 1;
  double constant = 0;
  int64_t integer = 0;
  UnaryOp unary{};
  BinaryOp binary{};
  CompareOp compare{};
  Fragment fragment{};
  std::vector<ValueRef> operands;
  // kLoad, kRegister, kIndex, kShuffle
  BufferRef buffer;
  Dim index;
  Dim stride = 1;            // kLoad: elements between lanes (0: all lanes the same element)
  std::optional<Dim> valid;  // kLoad: only lanes < valid are read (it may exceed lanes or be <= 0)
  ValueRef passthrough;      // kLoad with `valid`: value of the other lanes; null: zero
  std::string name;          // kLocal
  bool rare = false;         // kSelect
};

// ---------------------------------------------------------------- statements

struct Stmt;
using StmtRef = std::shared_ptr<const Stmt>;

// What each is says Statements.def.
enum class StmtKind {
#define NIMBLE_STATEMENT(id, ...) id,
#include "compiler/kernels/Statements.def"
};

// Whose functions may have a statement: a function with a launch is a GPU's.
enum class StmtDevice { kAny, kCpu, kGpu };

struct StmtRow {
  StmtKind id;
  StmtDevice device;
  std::string_view what;  // in an error of the other device's function; "" if there is none
};
std::span<const StmtRow> all_statements();
const StmtRow& row_of(StmtKind kind);

enum class LoopKind {
  kSerial,
  kUnroll,  // extent must be a constant; the body is copied (unroll.h)
  kThread,  // split over the region's threads: thread t runs iterations [t*E/T, (t+1)*E/T)
  kSteps,   // of a launch's whole grid, from 0 on: last in the body, of contract's symbols
};

// Who meets at a barrier.
enum class Together {
  kRegion,  // the threads of a CPU's parallel region
  kBlock,   // those of a GPU's block
  kWarp,
};

// A conjunction of comparisons between Dims.
struct Condition {
  enum class Op { kLt, kLe, kEq, kNe };
  struct Term {
    Dim a;
    Op op;
    Dim b;
  };
  std::vector<Term> terms;
};

// Within a kTiles region `rows` rows of each matrix register of a buffer take part: at least one,
// at most the buffer's.
struct TileShape {
  BufferRef tile;
  Dim rows;
};
// One matrix register of a kTile buffer.
struct TileRef {
  BufferRef buffer;
  Dim number;
};

struct Stmt {
  StmtKind kind;
  std::vector<StmtRef> body;  // kSeq: all; kFor, kTiles: one; kIf: then[, else]
  // kFor: `var` runs from `begin` while < begin + extent in steps of `step`
  LoopKind loop = LoopKind::kSerial;
  std::string var;  // kFor, kLetIndex: the new symbol; kLet: the new local's name
  Dim begin, extent;
  int64_t step = 1;
  Condition condition;  // kIf
  BufferRef buffer;     // kStore, kSetRegister, kPrefetch, kTileLoad, kTileStore; a signal's
  Dim index;
  Dim stride = 1;                        // kStore: elements between lanes; kTile…: between rows
  std::optional<Dim> valid;              // kStore: only lanes < valid are written
  ValueRef value;                        // kStore, kSetRegister, kLet; kLetIndex: an integer scalar
  std::optional<ir::SymbolFacts> facts;  // kLetIndex: range that a preceding kCheck ensures
  int locality = 3;                      // kPrefetch: 3 = L1, 2 = L2, 1 = L3
  bool for_write = false;                // kPrefetch
  std::string message;            // kCheck: unless `condition` holds, the kernel returns an error
  std::vector<TileShape> shapes;  // kTiles
  std::vector<TileRef> tiles;     // kTileZero, kTileLoad, kTileStore: one; kTileDot: sum, a, b
  TileFragment tile_fragment{};   // kTileDot
  Together together = Together::kRegion;  // kBarrier
  WarpFragment warp_fragment{};           // kWarpDot
  GroupFragment group_fragment{};         // kGroupDot
  int columns = 0;                        // kGroupDot
  std::vector<GroupView> views;           // kGroupDot: a, b
  BufferRef to_buffer;                    // kAsyncCopy, kTensorCopy
  Dim to_index;
  TensorMapRef map;              // kTensorCopy
  std::vector<Dim> coordinates;  // kTensorCopy
  Dim phase;                     // kSignalWait
  int lanes = 1;                 // kAsyncCopy: elements
  int count = 0;                 // kWarpLoad: matrices; kAsyncWait: groups; kGroupWait: batches;
                                 // kSignalInit: arrivals; kSignalArrive: bytes
  bool transposed = false;       // kWarpLoad
};

// How a GPU starts a function: blocks along each axis, over the contract's symbols (none of them: a
// grid of no blocks does nothing), and the threads of a block, a multiple of kWarpLanes.
struct Launch {
  std::array<Dim, 3> grid = {1, 1, 1};
  int threads = 0;
};
// The number of the block along each axis, in a body.
inline constexpr std::array<const char*, 3> kBlockSymbols = {"block_x", "block_y", "block_z"};

struct Function {
  std::string name;                  // the native symbol; unique in an image
  exec::KernelContract contract;     // arguments and symbols; what the VM checks at Invoke
  std::vector<BufferRef> arguments;  // in the contract's order (tensor arguments only)
  std::vector<BufferRef> scratch;    // kScratch and kThread buffers
  std::vector<BufferRef> registers;  // kRegister and kTile buffers
  std::vector<BufferRef> shared;     // kShared buffers, of constant extents
  std::vector<TensorMapRef> maps;    // of arguments, in the order in which code gets them
  std::optional<Launch> launch;      // of a GPU's function; else it is a CPU's
  ir::DimContext facts;              // ranges of symbols
  StmtRef body;
};

// Bytes of scratch that a call needs; a Dim over the contract's symbols and "threads". Buffers
// are laid out in order, each aligned to 64 bytes; kThread buffers take `threads` copies. So do
// kTile buffers, behind them: code for a machine without matrix registers keeps them there
// (tiles.h), and how much a call needs is the same everywhere.
Dim scratch_bytes(const Function& f);
// Byte offset of one scratch buffer (of thread 0's copy, and the distance between copies).
struct ScratchPlace {
  Dim offset;
  Dim per_thread;
};
ScratchPlace scratch_place(const Function& f, const Buffer& buffer);

// Bytes of a block's shared memory: its buffers in order, each aligned to 128 bytes, or to what it
// claims if that is more.
int64_t shared_bytes(const Function& f);
int64_t shared_alignment(const Function& f);                    // of the whole
int64_t shared_place(const Function& f, const Buffer& buffer);  // byte offset of one

// ---------------------------------------------------------------- building

namespace build {
ValueRef f32(double v, int lanes = 1);
ValueRef number(DType t, double v, int lanes = 1);
ValueRef integer(DType t, int64_t v, int lanes = 1);
ValueRef index(const Dim& d);  // i64 scalar
ValueRef iota(int lanes);      // i32
ValueRef load(BufferRef b, const Dim& index, int lanes = 1);
ValueRef load_masked(BufferRef b, const Dim& index, int lanes, const Dim& valid,
                     ValueRef passthrough = nullptr);
ValueRef load_strided(BufferRef b, const Dim& index, const Dim& stride, int lanes,
                      std::optional<Dim> valid = std::nullopt, ValueRef passthrough = nullptr);
ValueRef reg(BufferRef b, const Dim& index);
ValueRef local(const std::string& name, DType t, int lanes);
ValueRef unary(UnaryOp op, ValueRef a);
ValueRef binary(BinaryOp op, ValueRef a, ValueRef b);
ValueRef add(ValueRef a, ValueRef b);
ValueRef sub(ValueRef a, ValueRef b);
ValueRef mul(ValueRef a, ValueRef b);
ValueRef div(ValueRef a, ValueRef b);
ValueRef min(ValueRef a, ValueRef b);
ValueRef max(ValueRef a, ValueRef b);
ValueRef fma(ValueRef a, ValueRef b, ValueRef c);
ValueRef compare(CompareOp op, ValueRef a, ValueRef b);
ValueRef select(ValueRef c, ValueRef a, ValueRef b);
ValueRef select_rare(ValueRef c, ValueRef a, ValueRef b);
ValueRef cast(DType t, ValueRef a);
ValueRef bitcast(DType t, ValueRef a);      // of as many lanes of t as a's bytes fill
ValueRef broadcast(ValueRef v, int lanes);  // v's lanes divide `lanes`
ValueRef reduce(BinaryOp op, ValueRef vector);
ValueRef extract(ValueRef vector, int lane);
ValueRef shuffle(ValueRef a, const Dim& lane);
// lanes(a) = lanes(b) = group * lanes(sum)
ValueRef dot(Fragment f, ValueRef a, ValueRef b, ValueRef sum);

StmtRef seq(std::vector<StmtRef> body);
StmtRef loop(LoopKind kind, const std::string& var, const Dim& begin, const Dim& extent,
             StmtRef body, int64_t step = 1);
StmtRef if_then(Condition c, StmtRef then, StmtRef otherwise = nullptr);
StmtRef store(BufferRef b, const Dim& index, ValueRef v);
StmtRef store_masked(BufferRef b, const Dim& index, ValueRef v, const Dim& valid);
StmtRef store_strided(BufferRef b, const Dim& index, const Dim& stride, ValueRef v,
                      std::optional<Dim> valid = std::nullopt);
StmtRef set_reg(BufferRef b, const Dim& index, ValueRef v);
StmtRef let(const std::string& name, ValueRef v);
StmtRef let_index(const std::string& symbol, ValueRef v,
                  std::optional<ir::SymbolFacts> facts = std::nullopt);
StmtRef prefetch(BufferRef b, const Dim& index, int locality, bool for_write = false);
StmtRef barrier(Together who = Together::kRegion);
StmtRef check(Condition c, const std::string& message);
// Matrix registers exist within `body` alone: their contents are undefined where it begins and gone
// where it ends. No region stands in another one, and no barrier, check or thread loop in a region.
StmtRef with_tiles(std::vector<TileShape> shapes, StmtRef body);
StmtRef tile_zero(BufferRef tile, const Dim& number);
StmtRef tile_load(BufferRef tile, const Dim& number, BufferRef from, const Dim& index,
                  const Dim& pitch);
StmtRef tile_store(BufferRef to, const Dim& index, const Dim& pitch, BufferRef tile,
                   const Dim& number);
// Row g of b holds the group g of each column; in their region b takes lanes(a)/group rows, a
// constant, and a as many as sum. a and b are different buffers.
StmtRef tile_dot(TileFragment f, BufferRef sum, const Dim& s, BufferRef a, const Dim& i,
                 BufferRef b, const Dim& j);
StmtRef warp_dot(WarpFragment f, BufferRef sum, const Dim& s, BufferRef a, const Dim& i,
                 BufferRef b, const Dim& j);
StmtRef warp_load(BufferRef registers, const Dim& number, int matrices, BufferRef shared,
                  const Dim& index, bool transposed = false);
StmtRef async_copy(BufferRef shared, const Dim& to, BufferRef global, const Dim& from, int lanes,
                   std::optional<Dim> valid = std::nullopt);
StmtRef async_commit();
StmtRef async_wait(int pending);
StmtRef group_dot(GroupFragment f, int columns, BufferRef sum, const Dim& s, GroupView a,
                  GroupView b);
StmtRef group_fence();
StmtRef group_commit();
StmtRef group_wait(int pending);
StmtRef proxy_fence();
StmtRef signal_init(BufferRef signals, const Dim& index, int arrivals);
StmtRef signal_arrive(BufferRef signals, const Dim& index, int bytes);
StmtRef signal_wait(BufferRef signals, const Dim& index, const Dim& phase);
StmtRef tensor_copy(BufferRef shared, const Dim& to, TensorMapRef map, std::vector<Dim> coordinates,
                    BufferRef signals, const Dim& index);
Condition lt(const Dim& a, const Dim& b);
Condition le(const Dim& a, const Dim& b);
Condition eq(const Dim& a, const Dim& b);
Condition both(Condition a, const Condition& b);
BufferRef buffer(std::string name, Scope scope, DType t, const Dim& extent, int lanes = 1);
// `count` matrix registers of `rows` rows of `lanes` elements.
BufferRef tile_buffer(std::string name, DType t, int rows, int lanes, int count);
}  // namespace build

// The text of a function: stable, used by tests, `nimble inspect` and as the base of code_hash.
std::string print(const Function& f);
// Nothing if well formed: names bound, types and lanes agree, register indices constant after
// unrolling, loop kinds nested rightly, written buffers writable. Else the first fault.
std::string verify(const Function& f);

// Loop iterations, ceildiv(extent, step); a kThread loop splits these.
Dim trip_count(const Stmt& loop);
// Whether threads of a region meet at a barrier in it.
bool has_barrier(const Stmt& s);
// The loop of steps that the function ends in; null if it has none.
const Stmt* steps_of(const Function& f);

std::string_view name_of(UnaryOp op);
std::string_view name_of(BinaryOp op);
std::string_view name_of(CompareOp op);
std::string_view name_of(LoopKind kind);
std::string_view name_of(Scope scope);
std::string_view name_of(Together who);

}  // namespace nimble::kir
