#include "compiler/kernels/templates/fold_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "compiler/kernels/templates/loops.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BinaryOp;
using kir::BufferRef;
using kir::Dim;
using kir::LoopKind;
using kir::StmtRef;
using kir::ValueRef;

namespace {

constexpr int64_t kEnoughBlocks = 8;  // for all threads
constexpr int64_t kParts = 16;
// What is worth a barrier: so many steps of each fold, and so many elements in all.
constexpr int64_t kManySteps = 128, kMuchWork = 1 << 14;

}  // namespace

ValueRef Fold::start(DType t, int lanes) const {
  switch (op) {
    case BinaryOp::kMul:
      return kb::integer(t, 1, lanes);
    case BinaryOp::kMax:
    case BinaryOp::kMin: {
      const bool max = op == BinaryOp::kMax;
      if (is_float(t)) {
        const double infinity = std::numeric_limits<double>::infinity();
        return kb::number(t, max ? -infinity : infinity, lanes);
      }
      const int bits = static_cast<int>(size_of(t)) * 8;
      if (is_signed_int(t)) {
        const int64_t low = std::numeric_limits<int64_t>::min() >> (64 - bits);
        return kb::integer(t, max ? low : ~low, lanes);
      }
      return kb::integer(t, max ? 0 : static_cast<int64_t>(~uint64_t{0} >> (64 - bits)), lanes);
    }
    default:
      return kb::integer(t, 0, lanes);
  }
}

ValueRef Fold::combine(const ValueRef& accumulated, const ValueRef& v) const {
  // The accumulator second: a NaN in it stays.
  const ValueRef folded = kb::binary(op, v, accumulated);
  return keep_nan ? kb::select(kb::compare(kir::CompareOp::kNe, v, v), v, folded) : folded;
}

StmtRef ColumnFold::lower() {
  const auto columns = dims.back().as_constant();
  // Of a width that only the run knows perhaps few vectors exist.
  vectors_ = std::min(unroll, columns ? 4 : 2);
  while (vectors_ > 1 && columns && *columns <= int64_t{vectors_ / 2} * lanes) vectors_ /= 2;
  Dims items = dims;
  Dim count = 1, steps = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (reduced[i]) {
      steps = steps * dims[i];
      items[i] = 1;
    }
    if (i + 1 == dims.size()) items[i] = ir::ceildiv(dims[i], width());
    count = count * items[i];
  }
  const auto blocks = count.as_constant(), length = steps.as_constant();
  const auto work = (count * steps * width()).as_constant();
  if (!may_cut || (blocks && *blocks >= kEnoughBlocks) || (length && *length < kManySteps) ||
      (work && *work < kMuchWork))
    return whole(items, count);
  StmtRef parts = cut(items, count);
  if (blocks && length) return parts;
  const kir::Condition few = kb::both(kb::lt(count, kEnoughBlocks), kb::le(kManySteps, steps));
  return kb::if_then(few, std::move(parts), whole(items, count));
}

// Each item folds its block.
StmtRef ColumnFold::whole(const Dims& items, const Dim& count) {
  Statements body;
  const Dims at = bind_coordinates("x", items, Dim::symbol("item"), body);
  body.push_back(block(at, [&](const Block& b) {
    Statements out;
    const BufferRef sums = accumulate(b, std::nullopt, out);
    finish_all(b, sums, out);
    return out;
  }));
  return kb::loop(LoopKind::kThread, "item", 0, count, kb::seq(std::move(body)));
}

// Each item folds a part of a block's steps; then the parts are put together.
StmtRef ColumnFold::cut(const Dims& items, const Dim& count) {
  const Dim item = Dim::symbol("item");
  const BufferRef partial = kb::buffer("partial", kir::Scope::kScratch, type,
                                       ir::min(count, kEnoughBlocks) * (kParts * width()));
  scratch.push_back(partial);
  Dims parts = items;
  parts.push_back(kParts);
  Statements first, second;
  Dims at = bind_coordinates("x", parts, item, first);
  const Dim number = at.back();
  at.pop_back();
  size_t axis = dims.size();  // the first reduced one with several steps, or the first
  for (size_t i = dims.size(); i-- > 0;)
    if (reduced[i] && (axis == dims.size() || !dims[i].is_constant(1))) axis = i;
  const Dim begin = Dim::symbol("begin"), end = Dim::symbol("end");
  first.push_back(kb::let_index("begin", kb::index(ir::floordiv(dims[axis] * number, kParts))));
  first.push_back(kb::let_index("end", kb::index(ir::floordiv(dims[axis] * (number + 1), kParts))));
  first.push_back(block(at, [&](const Block& b) {
    Statements out;
    const BufferRef sums = accumulate(b, Part{axis, begin, end - begin}, out);
    for (int v = 0; v < b.vectors; ++v)
      out.push_back(kb::store(partial, item * width() + v * lanes, kb::reg(sums, v)));
    return out;
  }));

  at = bind_coordinates("x", items, item, second);
  second.push_back(block(at, [&](const Block& b) {
    Statements out, take;
    const BufferRef sums = accumulators(b.vectors);
    for (int v = 0; v < b.vectors; ++v) {
      const auto part = [&](const Dim& p) {
        return kb::load(partial, (item * kParts + p) * width() + v * lanes, lanes);
      };
      out.push_back(kb::set_reg(sums, v, part(0)));
      const ValueRef next = named("v", part(Dim::symbol("p")), take);
      take.push_back(kb::set_reg(sums, v, fold.combine(kb::reg(sums, v), next)));
    }
    out.push_back(kb::loop(LoopKind::kSerial, "p", 1, kParts - 1, kb::seq(std::move(take))));
    finish_all(b, sums, out);
    return out;
  }));
  return kb::seq({kb::loop(LoopKind::kThread, "item", 0, count * kParts, kb::seq(std::move(first))),
                  kb::barrier(),
                  kb::loop(LoopKind::kThread, "item", 0, count, kb::seq(std::move(second)))});
}

// `body` for the block whose number is the last of the coordinates: for a whole one, and for what
// is left at the end.
StmtRef ColumnFold::block(Dims at, const BlockBody& body) const {
  at.back() = at.back() * width();
  const Dim left = dims.back() - at.back();
  const auto columns = dims.back().as_constant();
  const auto whole = [&] { return kb::seq(body({at, std::nullopt, vectors_})); };
  if (facts->divisible(dims.back(), width()) == ir::Proof::kYes) return whole();
  int last = vectors_;
  if (columns) last = static_cast<int>((*columns % width() + lanes - 1) / lanes);
  const auto rest = [&] { return kb::seq(body({at, left, last})); };
  if (left.as_constant()) return rest();
  StmtRef all = whole();
  return kb::if_then(kb::le(width(), left), std::move(all), rest());
}

// Folds the steps of a block, or a part of them; its vectors are the first registers of what it
// returns.
BufferRef ColumnFold::accumulate(const Block& b, const std::optional<Part>& part, Statements& out) {
  const int turns = std::max(1, unroll / b.vectors), count = turns * b.vectors;
  const BufferRef sums = accumulators(count);
  for (int i = 0; i < count; ++i) out.push_back(kb::set_reg(sums, i, fold.start(type, lanes)));
  std::vector<size_t> axes;
  for (size_t i = 0; i < dims.size(); ++i)
    if (reduced[i]) axes.push_back(i);
  const auto begin = [&](size_t axis) { return part && part->axis == axis ? part->begin : Dim(0); };
  const auto extent = [&](size_t axis) {
    return part && part->axis == axis ? part->extent : dims[axis];
  };
  Block moved = b;
  std::vector<std::string> names;
  for (const size_t axis : axes) {
    names.push_back(fmt::format("o{}", next_++));
    moved.at[axis] = Dim::symbol(names.back());
  }
  StmtRef nest = vector_loop(
      names.back(), begin(axes.back()), extent(axes.back()), 1, turns, [&](const Slice& s) {
        Statements all;
        moved.at[axes.back()] = s.at;
        each_vector(moved, [&](int v, const Dims& at, const Valid& valid) {
          ValueRef value = element(at, valid, all);
          if (fold.keep_nan) value = named("v", value, all);
          const int place = s.slot * b.vectors + v;
          all.push_back(kb::set_reg(sums, place, fold.combine(kb::reg(sums, place), value)));
        });
        return all;
      });
  for (size_t k = axes.size() - 1; k-- > 0;)
    nest = kb::loop(LoopKind::kSerial, names[k], begin(axes[k]), extent(axes[k]), std::move(nest));
  out.push_back(std::move(nest));
  for (int turn = 1; turn < turns; ++turn)
    for (int v = 0; v < b.vectors; ++v)
      out.push_back(kb::set_reg(
          sums, v, fold.combine(kb::reg(sums, v), kb::reg(sums, turn * b.vectors + v))));
  return sums;
}

void ColumnFold::finish_all(const Block& b, const BufferRef& sums, Statements& out) {
  each_vector(b, [&](int v, const Dims& at, const Valid& valid) {
    finish(named("total", kb::reg(sums, v), out), at, valid, out);
  });
}

void ColumnFold::each_vector(
    const Block& b,
    const std::function<void(int v, const Dims& at, const Valid& valid)>& body) const {
  for (int v = 0; v < b.vectors; ++v) {
    Dims at = b.at;
    at.back() = at.back() + v * lanes;
    Valid valid;
    if (b.left) valid = *b.left - v * lanes;
    if (const auto n = valid ? valid->as_constant() : std::nullopt; n && *n >= lanes) valid.reset();
    body(v, at, valid);
  }
}

BufferRef ColumnFold::accumulators(int count) {
  const BufferRef b =
      kb::buffer(fmt::format("acc{}", next_++), kir::Scope::kRegister, type, count, lanes);
  registers.push_back(b);
  return b;
}

ValueRef ColumnFold::named(const char* what, ValueRef v, Statements& out) {
  const std::string name = fmt::format("{}_{}", what, next_++);
  out.push_back(kb::let(name, v));
  return kb::local(name, v->dtype, v->lanes);
}

}  // namespace nimble::kernels
