// Copies of a square block from rows to columns.
//
// A template writes one as what it is, `lanes` strided loads side by side:
//
//   unroll i in lanes: to[f(i)] = from[at + i + stride * lane]
//
// of which unrolling makes as many stores, one behind the other. (The stores may be of the same
// bits as elements of another type: pairs of 16 bits are turned as words.) Emitted one by one that
// is lanes² loads of single elements, each with an insertion. But together they read `lanes` whole
// vectors, one for each lane, so these are loaded and transposed in registers: log2(lanes) shuffles
// for each vector, none of which but the last ones leaves the 128 bits within which shuffles are
// cheap on every x86.
#include <algorithm>
#include <utility>

#include "compiler/codegen/llvm/emitter.h"

namespace nimble::codegen {

namespace {

using ir::Dim;
using Vectors = llvm::SmallVector<llvm::Value*, 16>;

constexpr int kUnit = 16;  // bytes within which shuffles are cheap

// Transposes v.size() vectors within each stretch of `span` lanes, `block` lanes being an element:
// v.size() = span / block. A step puts the even elements of two neighbours into one vector and
// the odd ones into another; as many steps as an element's number has bits sort all of them.
Vectors transposed(llvm::IRBuilder<>& b, Vectors v, int lanes, int span, int block) {
  const size_t count = v.size();
  const auto take = [&](llvm::Value* one, llvm::Value* other, int odd) {
    llvm::SmallVector<int, 64> lane;
    for (int first = 0; first < lanes; first += span)
      for (int source = 0; source < 2; ++source)
        for (int at = odd * block; at < span; at += 2 * block)
          for (int i = 0; i < block; ++i) lane.push_back(source * lanes + first + at + i);
    return b.CreateShuffleVector(one, other, lane);
  };
  for (size_t done = 1; done < count; done *= 2) {
    Vectors next(count);
    for (size_t i = 0; i < count / 2; ++i) {
      next[i] = take(v[2 * i], v[2 * i + 1], 0);
      next[i + count / 2] = take(v[2 * i], v[2 * i + 1], 1);
    }
    v = std::move(next);
  }
  return v;
}

// The load that a statement stores; null if it does anything else.
const kir::Value* copied(const kir::Stmt& s) {
  if (s.kind != kir::StmtKind::kStore) return nullptr;
  const kir::Value* v = s.value.get();
  if (v->kind == kir::ValueKind::kBitcast) v = v->operands[0].get();
  return v->kind == kir::ValueKind::kLoad ? v : nullptr;
}

}  // namespace

size_t Emitter::transpose(const std::vector<kir::StmtRef>& body, size_t from) {
  const kir::Stmt& store = *body[from];
  if (!copied(store)) return 0;
  const kir::Value& load = *copied(store);
  const int lanes = load.lanes, size = static_cast<int>(size_of(load.dtype));
  if (lanes < 2 || lanes > 16 || (size != 4 && size != 8) || body.size() - from < size_t(lanes))
    return 0;
  if (load.buffer == store.buffer || load.stride.is_constant(1)) return 0;
  for (int i = 0; i < lanes; ++i) {
    const kir::Stmt& s = *body[from + static_cast<size_t>(i)];
    if (!copied(s)) return 0;
    const kir::Value& v = *copied(s);
    if (s.buffer != store.buffer || !s.stride.is_constant(1) || s.valid ||
        v.buffer != load.buffer || v.lanes != lanes || v.valid || v.stride != load.stride ||
        !(v.index - load.index).is_constant(i))
      return 0;
  }

  llvm::Type* vector = memory_type(load.dtype, lanes);
  Vectors rows;
  for (int i = 0; i < lanes; ++i) {
    const Dim row = load.index + load.stride * i;
    auto* whole_row =
        b_.CreateAlignedLoad(vector, address(*load.buffer, row), alignment(*load.buffer, row));
    annotate(whole_row, *load.buffer, true);
    rows.push_back(whole_row);
  }
  // Within the units first, `unit` rows at a time; then the units themselves.
  const int unit = std::min(lanes, kUnit / size), units = lanes / unit;
  for (int u = 0; u < units; ++u) {
    Vectors part(rows.begin() + u * unit, rows.begin() + (u + 1) * unit);
    part = transposed(b_, std::move(part), lanes, unit, 1);
    std::copy(part.begin(), part.end(), rows.begin() + u * unit);
  }
  for (int j = 0; j < unit; ++j) {
    Vectors part;
    for (int u = 0; u < units; ++u) part.push_back(rows[u * unit + j]);
    part = transposed(b_, std::move(part), lanes, lanes, unit);
    for (int u = 0; u < units; ++u) rows[u * unit + j] = part[u];
  }
  // In the statements' order: places may overlap, and then the last store counts.
  for (int i = 0; i < lanes; ++i) {
    const Dim& to = body[from + static_cast<size_t>(i)]->index;
    annotate(
        b_.CreateAlignedStore(rows[i], address(*store.buffer, to), alignment(*store.buffer, to)),
        *store.buffer, false);
  }
  return static_cast<size_t>(lanes);
}

}  // namespace nimble::codegen
