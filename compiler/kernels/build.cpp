// Constructors of kernel IR. They infer element types and lanes, and widen a scalar operand to
// its partner's lanes, so that templates read like arithmetic. A wrong combination is a
// template's bug and stops at once, where it is made; verify() covers what only a whole function
// shows.
#include "compiler/kernels/kernel_ir.h"
#include "vm/base/error.h"

namespace nimble::kir::build {
namespace {

std::shared_ptr<Value> make(ValueKind kind, DType t, int lanes) {
  auto v = std::make_shared<Value>();
  v->kind = kind;
  v->dtype = t;
  v->lanes = lanes;
  return v;
}

void unify_lanes(ValueRef& a, ValueRef& b) {
  if (a->lanes == 1 && b->lanes > 1) a = broadcast(a, b->lanes);
  if (b->lanes == 1 && a->lanes > 1) b = broadcast(b, a->lanes);
  NIMBLE_CHECK(a->lanes == b->lanes, "lanes {} and {}", a->lanes, b->lanes);
}

template <class T>  // values or buffers
void same_type(const T& a, const T& b) {
  NIMBLE_CHECK(a.dtype == b.dtype, "{} and {}", nimble::name_of(a.dtype), nimble::name_of(b.dtype));
}

std::shared_ptr<Stmt> make(StmtKind kind) {
  auto s = std::make_shared<Stmt>();
  s->kind = kind;
  return s;
}

}  // namespace

ValueRef f32(double v, int lanes) {
  return number(DType::kF32, v, lanes);
}

ValueRef number(DType t, double value, int lanes) {
  if (!is_float(t)) return integer(t, static_cast<int64_t>(value), lanes);
  auto v = make(ValueKind::kConst, t, lanes);
  v->constant = value;
  return v;
}

ValueRef integer(DType t, int64_t value, int lanes) {
  if (is_float(t)) return number(t, static_cast<double>(value), lanes);
  auto v = make(ValueKind::kConst, t, lanes);
  v->integer = t == DType::kBool ? value != 0 : value;
  return v;
}

ValueRef index(const Dim& d) {
  auto v = make(ValueKind::kIndex, DType::kI64, 1);
  v->index = d;
  return v;
}

ValueRef iota(int lanes) {
  return make(ValueKind::kIota, DType::kI32, lanes);
}

ValueRef load_strided(BufferRef b, const Dim& index, const Dim& stride, int lanes,
                      std::optional<Dim> valid, ValueRef passthrough) {
  auto v = make(ValueKind::kLoad, b->dtype, lanes);
  v->buffer = std::move(b);
  v->index = index;
  v->stride = lanes == 1 ? Dim(1) : stride;
  v->valid = std::move(valid);
  if (passthrough && passthrough->lanes == 1 && lanes > 1)
    passthrough = broadcast(passthrough, lanes);
  v->passthrough = std::move(passthrough);
  return v;
}

ValueRef load(BufferRef b, const Dim& index, int lanes) {
  return load_strided(std::move(b), index, 1, lanes);
}

ValueRef load_masked(BufferRef b, const Dim& index, int lanes, const Dim& valid,
                     ValueRef passthrough) {
  return load_strided(std::move(b), index, 1, lanes, valid, std::move(passthrough));
}

ValueRef reg(BufferRef b, const Dim& index) {
  auto v = make(ValueKind::kRegister, b->dtype, b->lanes);
  v->buffer = std::move(b);
  v->index = index;
  return v;
}

ValueRef local(const std::string& name, DType t, int lanes) {
  auto v = make(ValueKind::kLocal, t, lanes);
  v->name = name;
  return v;
}

ValueRef unary(UnaryOp op, ValueRef a) {
  auto v = make(ValueKind::kUnary, a->dtype, a->lanes);
  v->unary = op;
  v->operands = {std::move(a)};
  return v;
}

ValueRef binary(BinaryOp op, ValueRef a, ValueRef b) {
  same_type(*a, *b);
  unify_lanes(a, b);
  auto v = make(ValueKind::kBinary, a->dtype, a->lanes);
  v->binary = op;
  v->operands = {std::move(a), std::move(b)};
  return v;
}

ValueRef add(ValueRef a, ValueRef b) {
  return binary(BinaryOp::kAdd, std::move(a), std::move(b));
}
ValueRef sub(ValueRef a, ValueRef b) {
  return binary(BinaryOp::kSub, std::move(a), std::move(b));
}
ValueRef mul(ValueRef a, ValueRef b) {
  return binary(BinaryOp::kMul, std::move(a), std::move(b));
}
ValueRef div(ValueRef a, ValueRef b) {
  return binary(BinaryOp::kDiv, std::move(a), std::move(b));
}
ValueRef min(ValueRef a, ValueRef b) {
  return binary(BinaryOp::kMin, std::move(a), std::move(b));
}
ValueRef max(ValueRef a, ValueRef b) {
  return binary(BinaryOp::kMax, std::move(a), std::move(b));
}

ValueRef fma(ValueRef a, ValueRef b, ValueRef c) {
  same_type(*a, *b);
  same_type(*a, *c);
  unify_lanes(a, b);
  unify_lanes(a, c);
  unify_lanes(b, c);
  auto v = make(ValueKind::kFma, a->dtype, a->lanes);
  v->operands = {std::move(a), std::move(b), std::move(c)};
  return v;
}

ValueRef compare(CompareOp op, ValueRef a, ValueRef b) {
  same_type(*a, *b);
  unify_lanes(a, b);
  auto v = make(ValueKind::kCompare, DType::kBool, a->lanes);
  v->compare = op;
  v->operands = {std::move(a), std::move(b)};
  return v;
}

ValueRef select(ValueRef c, ValueRef a, ValueRef b) {
  same_type(*a, *b);
  unify_lanes(a, b);
  unify_lanes(c, a);
  unify_lanes(c, b);
  auto v = make(ValueKind::kSelect, a->dtype, a->lanes);
  v->operands = {std::move(c), std::move(a), std::move(b)};
  return v;
}

ValueRef select_rare(ValueRef c, ValueRef a, ValueRef b) {
  auto v = std::make_shared<Value>(*select(std::move(c), std::move(a), std::move(b)));
  v->rare = true;
  return v;
}

ValueRef cast(DType t, ValueRef a) {
  if (a->dtype == t) return a;
  // What was widened to f32 comes back as it was.
  if (a->kind == ValueKind::kCast && a->dtype == DType::kF32 && a->operands[0]->dtype == t &&
      is_narrow_float(t))
    return a->operands[0];
  auto v = make(ValueKind::kCast, t, a->lanes);
  v->operands = {std::move(a)};
  return v;
}

ValueRef bitcast(DType t, ValueRef a) {
  if (a->dtype == t) return a;
  const size_t bytes = size_of(a->dtype) * static_cast<size_t>(a->lanes);
  NIMBLE_CHECK(bytes % size_of(t) == 0, "{} bytes as {}", bytes, nimble::name_of(t));
  auto v = make(ValueKind::kBitcast, t, static_cast<int>(bytes / size_of(t)));
  v->operands = {std::move(a)};
  return v;
}

ValueRef broadcast(ValueRef a, int lanes) {
  if (lanes == a->lanes) return a;
  NIMBLE_CHECK(lanes % a->lanes == 0, "broadcast of {} lanes to {}", a->lanes, lanes);
  if (a->kind == ValueKind::kConst) {  // all its lanes are alike
    auto v = std::make_shared<Value>(*a);
    v->lanes = lanes;
    return v;
  }
  auto v = make(ValueKind::kBroadcast, a->dtype, lanes);
  v->operands = {std::move(a)};
  return v;
}

ValueRef reduce(BinaryOp op, ValueRef vector) {
  if (vector->lanes == 1) return vector;
  auto v = make(ValueKind::kReduce, vector->dtype, 1);
  v->binary = op;
  v->operands = {std::move(vector)};
  return v;
}

ValueRef extract(ValueRef vector, int lane) {
  if (vector->lanes == 1 && lane == 0) return vector;
  auto v = make(ValueKind::kExtract, vector->dtype, 1);
  v->integer = lane;
  v->operands = {std::move(vector)};
  return v;
}

ValueRef shuffle(ValueRef a, const Dim& lane) {
  auto v = std::make_shared<Value>();
  v->kind = ValueKind::kShuffle;
  v->dtype = a->dtype;
  v->lanes = a->lanes;
  v->operands = {std::move(a)};
  v->index = lane;
  return v;
}

ValueRef dot(Fragment f, ValueRef a, ValueRef b, ValueRef sum) {
  const FragmentRow& row = row_of(f);
  NIMBLE_CHECK(a->dtype == row.a && b->dtype == row.b && sum->dtype == row.sum,
               "{} of {}, {} and {}", row.name, nimble::name_of(a->dtype),
               nimble::name_of(b->dtype), nimble::name_of(sum->dtype));
  NIMBLE_CHECK(a->lanes == row.group * sum->lanes && b->lanes == a->lanes,
               "{} of {} and {} lanes for {} sums", row.name, a->lanes, b->lanes, sum->lanes);
  auto v = make(ValueKind::kDot, row.sum, sum->lanes);
  v->fragment = f;
  v->operands = {std::move(a), std::move(b), std::move(sum)};
  return v;
}

StmtRef seq(std::vector<StmtRef> body) {
  auto s = make(StmtKind::kSeq);
  s->body = std::move(body);
  return s;
}

StmtRef loop(LoopKind kind, const std::string& var, const Dim& begin, const Dim& extent,
             StmtRef body, int64_t step) {
  auto s = make(StmtKind::kFor);
  s->loop = kind;
  s->var = var;
  s->begin = begin;
  s->extent = extent;
  s->step = step;
  s->body = {std::move(body)};
  return s;
}

StmtRef if_then(Condition c, StmtRef then, StmtRef otherwise) {
  auto s = make(StmtKind::kIf);
  s->condition = std::move(c);
  s->body = {std::move(then)};
  if (otherwise) s->body.push_back(std::move(otherwise));
  return s;
}

StmtRef store_strided(BufferRef b, const Dim& index, const Dim& stride, ValueRef v,
                      std::optional<Dim> valid) {
  auto s = make(StmtKind::kStore);
  s->buffer = std::move(b);
  s->index = index;
  s->stride = v->lanes == 1 ? Dim(1) : stride;
  s->value = std::move(v);
  s->valid = std::move(valid);
  return s;
}

StmtRef store(BufferRef b, const Dim& index, ValueRef v) {
  return store_strided(std::move(b), index, 1, std::move(v));
}

StmtRef store_masked(BufferRef b, const Dim& index, ValueRef v, const Dim& valid) {
  return store_strided(std::move(b), index, 1, std::move(v), valid);
}

StmtRef set_reg(BufferRef b, const Dim& index, ValueRef v) {
  if (v->lanes == 1 && b->lanes > 1) v = broadcast(v, b->lanes);
  auto s = make(StmtKind::kSetRegister);
  s->buffer = std::move(b);
  s->index = index;
  s->value = std::move(v);
  return s;
}

StmtRef let(const std::string& name, ValueRef v) {
  auto s = make(StmtKind::kLet);
  s->var = name;
  s->value = std::move(v);
  return s;
}

StmtRef let_index(const std::string& symbol, ValueRef v, std::optional<ir::SymbolFacts> facts) {
  auto s = make(StmtKind::kLetIndex);
  s->var = symbol;
  s->value = std::move(v);
  s->facts = facts;
  return s;
}

StmtRef prefetch(BufferRef b, const Dim& index, int locality, bool for_write) {
  auto s = make(StmtKind::kPrefetch);
  s->buffer = std::move(b);
  s->index = index;
  s->locality = locality;
  s->for_write = for_write;
  return s;
}

StmtRef barrier(Together who) {
  auto s = make(StmtKind::kBarrier);
  s->together = who;
  return s;
}

StmtRef check(Condition c, const std::string& message) {
  auto s = make(StmtKind::kCheck);
  s->condition = std::move(c);
  s->message = message;
  return s;
}

StmtRef with_tiles(std::vector<TileShape> shapes, StmtRef body) {
  auto s = make(StmtKind::kTiles);
  s->shapes = std::move(shapes);
  s->body = {std::move(body)};
  return s;
}

StmtRef tile_zero(BufferRef tile, const Dim& number) {
  auto s = make(StmtKind::kTileZero);
  s->tiles = {{std::move(tile), number}};
  return s;
}

StmtRef tile_load(BufferRef tile, const Dim& number, BufferRef from, const Dim& index,
                  const Dim& pitch) {
  same_type(*tile, *from);
  auto s = make(StmtKind::kTileLoad);
  s->tiles = {{std::move(tile), number}};
  s->buffer = std::move(from);
  s->index = index;
  s->stride = pitch;
  return s;
}

StmtRef tile_store(BufferRef to, const Dim& index, const Dim& pitch, BufferRef tile,
                   const Dim& number) {
  same_type(*to, *tile);
  auto s = make(StmtKind::kTileStore);
  s->tiles = {{std::move(tile), number}};
  s->buffer = std::move(to);
  s->index = index;
  s->stride = pitch;
  return s;
}

StmtRef tile_dot(TileFragment f, BufferRef sum, const Dim& s, BufferRef a, const Dim& i,
                 BufferRef b, const Dim& j) {
  const TileFragmentRow& row = tile_row_of(f);
  NIMBLE_CHECK(a->dtype == row.a && b->dtype == row.b && sum->dtype == row.sum,
               "{} of {}, {} and {}", row.name, nimble::name_of(a->dtype),
               nimble::name_of(b->dtype), nimble::name_of(sum->dtype));
  auto stmt = make(StmtKind::kTileDot);
  stmt->tile_fragment = f;
  stmt->tiles = {{std::move(sum), s}, {std::move(a), i}, {std::move(b), j}};
  return stmt;
}

StmtRef warp_dot(WarpFragment f, BufferRef sum, const Dim& s, BufferRef a, const Dim& i,
                 BufferRef b, const Dim& j) {
  const WarpFragmentRow& row = warp_row_of(f);
  NIMBLE_CHECK(a->dtype == row.a && b->dtype == row.b && sum->dtype == row.sum,
               "{} of {}, {} and {}", row.name, nimble::name_of(a->dtype),
               nimble::name_of(b->dtype), nimble::name_of(sum->dtype));
  auto stmt = make(StmtKind::kWarpDot);
  stmt->warp_fragment = f;
  stmt->tiles = {{std::move(sum), s}, {std::move(a), i}, {std::move(b), j}};
  return stmt;
}

StmtRef warp_load(BufferRef registers, const Dim& number, int matrices, BufferRef shared,
                  const Dim& index, bool transposed) {
  same_type(*registers, *shared);
  auto s = make(StmtKind::kWarpLoad);
  s->tiles = {{std::move(registers), number}};
  s->count = matrices;
  s->buffer = std::move(shared);
  s->index = index;
  s->transposed = transposed;
  return s;
}

StmtRef async_copy(BufferRef shared, const Dim& to, BufferRef global, const Dim& from, int lanes,
                   std::optional<Dim> valid) {
  same_type(*shared, *global);
  auto s = make(StmtKind::kAsyncCopy);
  s->to_buffer = std::move(shared);
  s->to_index = to;
  s->buffer = std::move(global);
  s->index = from;
  s->lanes = lanes;
  s->valid = std::move(valid);
  return s;
}

StmtRef async_commit() {
  return make(StmtKind::kAsyncCommit);
}

StmtRef async_wait(int pending) {
  auto s = make(StmtKind::kAsyncWait);
  s->count = pending;
  return s;
}

StmtRef group_dot(GroupFragment f, int columns, BufferRef sum, const Dim& s, GroupView a,
                  GroupView b) {
  const GroupFragmentRow& row = group_row_of(f);
  NIMBLE_CHECK(a.buffer->dtype == row.a && b.buffer->dtype == row.b && sum->dtype == row.sum,
               "{} of {}, {} and {}", row.name, nimble::name_of(a.buffer->dtype),
               nimble::name_of(b.buffer->dtype), nimble::name_of(sum->dtype));
  auto stmt = make(StmtKind::kGroupDot);
  stmt->group_fragment = f;
  stmt->columns = columns;
  stmt->tiles = {{std::move(sum), s}};
  stmt->views = {std::move(a), std::move(b)};
  return stmt;
}

StmtRef group_fence() {
  return make(StmtKind::kGroupFence);
}

StmtRef group_commit() {
  return make(StmtKind::kGroupCommit);
}

StmtRef group_wait(int pending) {
  auto s = make(StmtKind::kGroupWait);
  s->count = pending;
  return s;
}

StmtRef proxy_fence() {
  return make(StmtKind::kProxyFence);
}

namespace {

std::shared_ptr<Stmt> of_signal(StmtKind kind, BufferRef signals, const Dim& index) {
  auto s = make(kind);
  s->buffer = std::move(signals);
  s->index = index;
  return s;
}

}  // namespace

StmtRef signal_init(BufferRef signals, const Dim& index, int arrivals) {
  auto s = of_signal(StmtKind::kSignalInit, std::move(signals), index);
  s->count = arrivals;
  return s;
}

StmtRef signal_arrive(BufferRef signals, const Dim& index, int bytes) {
  auto s = of_signal(StmtKind::kSignalArrive, std::move(signals), index);
  s->count = bytes;
  return s;
}

StmtRef signal_wait(BufferRef signals, const Dim& index, const Dim& phase) {
  auto s = of_signal(StmtKind::kSignalWait, std::move(signals), index);
  s->phase = phase;
  return s;
}

StmtRef tensor_copy(BufferRef shared, const Dim& to, TensorMapRef map, std::vector<Dim> coordinates,
                    BufferRef signals, const Dim& index) {
  same_type(*shared, *map->buffer);
  auto s = of_signal(StmtKind::kTensorCopy, std::move(signals), index);
  s->to_buffer = std::move(shared);
  s->to_index = to;
  s->map = std::move(map);
  s->coordinates = std::move(coordinates);
  return s;
}

Condition lt(const Dim& a, const Dim& b) {
  return {{{a, Condition::Op::kLt, b}}};
}
Condition le(const Dim& a, const Dim& b) {
  return {{{a, Condition::Op::kLe, b}}};
}
Condition eq(const Dim& a, const Dim& b) {
  return {{{a, Condition::Op::kEq, b}}};
}

Condition both(Condition a, const Condition& b) {
  a.terms.insert(a.terms.end(), b.terms.begin(), b.terms.end());
  return a;
}

BufferRef buffer(std::string name, Scope scope, DType t, const Dim& extent, int lanes) {
  auto b = std::make_shared<Buffer>();
  b->name = std::move(name);
  b->scope = scope;
  b->dtype = t;
  b->extent = extent;
  b->lanes = lanes;
  b->writable = scope != Scope::kArgument;
  return b;
}

BufferRef tile_buffer(std::string name, DType t, int rows, int lanes, int count) {
  auto b = std::make_shared<Buffer>(*buffer(std::move(name), Scope::kTile, t, count, lanes));
  b->rows = rows;
  return b;
}

}  // namespace nimble::kir::build
