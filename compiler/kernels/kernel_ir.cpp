#include "compiler/kernels/kernel_ir.h"

#include <algorithm>

#include "vm/base/error.h"

namespace nimble::kir {
namespace {

constexpr StmtRow kStatements[] = {
#define NIMBLE_STATEMENT(id) {StmtKind::id, StmtDevice::kAny, ""},
#define NIMBLE_CPU_STATEMENT(id, what) {StmtKind::id, StmtDevice::kCpu, what},
#define NIMBLE_GPU_STATEMENT(id, what) {StmtKind::id, StmtDevice::kGpu, what},
#include "compiler/kernels/Statements.def"
};

}  // namespace

std::span<const StmtRow> all_statements() {
  return kStatements;
}

const StmtRow& row_of(StmtKind kind) {
  return kStatements[static_cast<size_t>(kind)];
}

std::string_view name_of(UnaryOp op) {
  switch (op) {
    case UnaryOp::kNeg:
      return "neg";
    case UnaryOp::kAbs:
      return "abs";
    case UnaryOp::kSqrt:
      return "sqrt";
    case UnaryOp::kRsqrt:
      return "rsqrt";
    case UnaryOp::kFloor:
      return "floor";
    case UnaryOp::kCeil:
      return "ceil";
    case UnaryOp::kRound:
      return "round";
    case UnaryOp::kTrunc:
      return "trunc";
    case UnaryOp::kNot:
      return "not";
  }
  NIMBLE_UNREACHABLE();
}

std::string_view name_of(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "add";
    case BinaryOp::kSub:
      return "sub";
    case BinaryOp::kMul:
      return "mul";
    case BinaryOp::kDiv:
      return "div";
    case BinaryOp::kMod:
      return "mod";
    case BinaryOp::kMin:
      return "min";
    case BinaryOp::kMax:
      return "max";
    case BinaryOp::kAnd:
      return "and";
    case BinaryOp::kOr:
      return "or";
    case BinaryOp::kXor:
      return "xor";
    case BinaryOp::kShl:
      return "shl";
    case BinaryOp::kShr:
      return "shr";
    case BinaryOp::kScale:
      return "scale";
  }
  NIMBLE_UNREACHABLE();
}

std::string_view name_of(CompareOp op) {
  switch (op) {
    case CompareOp::kEq:
      return "eq";
    case CompareOp::kNe:
      return "ne";
    case CompareOp::kLt:
      return "lt";
    case CompareOp::kLe:
      return "le";
    case CompareOp::kGt:
      return "gt";
    case CompareOp::kGe:
      return "ge";
  }
  NIMBLE_UNREACHABLE();
}

std::string_view name_of(LoopKind kind) {
  switch (kind) {
    case LoopKind::kSerial:
      return "serial";
    case LoopKind::kUnroll:
      return "unroll";
    case LoopKind::kThread:
      return "thread";
    case LoopKind::kSteps:
      return "steps";
  }
  NIMBLE_UNREACHABLE();
}

std::string_view name_of(Together who) {
  switch (who) {
    case Together::kRegion:
      return "region";
    case Together::kBlock:
      return "block";
    case Together::kWarp:
      return "warp";
  }
  NIMBLE_UNREACHABLE();
}

std::string_view name_of(Scope scope) {
  switch (scope) {
    case Scope::kArgument:
      return "argument";
    case Scope::kScratch:
      return "scratch";
    case Scope::kThread:
      return "thread";
    case Scope::kRegister:
      return "register";
    case Scope::kShared:
      return "shared";
    case Scope::kTile:
      return "tile";
  }
  NIMBLE_UNREACHABLE();
}

Dim trip_count(const Stmt& loop) {
  return loop.step == 1 ? loop.extent : ir::ceildiv(loop.extent, loop.step);
}

bool has_barrier(const Stmt& s) {
  return s.kind == StmtKind::kBarrier ||
         std::any_of(s.body.begin(), s.body.end(),
                     [](const StmtRef& inner) { return has_barrier(*inner); });
}

const Stmt* steps_of(const Function& f) {
  const Stmt* last = f.launch ? f.body.get() : nullptr;
  while (last && last->kind == StmtKind::kSeq)
    last = last->body.empty() ? nullptr : last->body.back().get();
  const bool steps = last && last->kind == StmtKind::kFor && last->loop == LoopKind::kSteps;
  return steps ? last : nullptr;
}

namespace {

constexpr int64_t kScratchAlignment = 64;

struct Block {
  Dim bytes;
  bool per_thread;
};

Block block_of(const Buffer& b) {
  const Dim elements = b.extent * Dim(int64_t{std::max(b.rows, 1)} * (b.rows ? b.lanes : 1));
  const Dim bytes = elements * Dim(static_cast<int64_t>(size_of(b.dtype)));
  return {ir::ceildiv(bytes, kScratchAlignment) * Dim(kScratchAlignment),
          b.scope == Scope::kThread || b.scope == Scope::kTile};
}

Dim total(const Block& b) {
  return b.per_thread ? b.bytes * Dim::symbol("threads") : b.bytes;
}

}  // namespace

Dim scratch_bytes(const Function& f) {
  Dim sum = 0;
  for (const BufferRef& b : f.scratch) sum = sum + total(block_of(*b));
  for (const BufferRef& b : f.registers)
    if (b->scope == Scope::kTile) sum = sum + total(block_of(*b));
  return sum;
}

namespace {

constexpr int64_t kSharedAlignment = 128;

int64_t aligned(int64_t at, int64_t alignment) {
  return (at + alignment - 1) / alignment * alignment;
}

int64_t alignment_of(const Buffer& b) {
  return std::max<int64_t>(kSharedAlignment, b.alignment);
}

int64_t shared_end(int64_t begin, const Buffer& b) {
  const auto extent = b.extent.as_constant();
  NIMBLE_CHECK(extent, "shared buffer {} of {} elements", b.name, b.extent.str());
  const int64_t bytes = *extent * static_cast<int64_t>(size_of(b.dtype));
  return begin + aligned(bytes, kSharedAlignment);
}

}  // namespace

int64_t shared_bytes(const Function& f) {
  int64_t end = 0;
  for (const BufferRef& b : f.shared) end = shared_end(aligned(end, alignment_of(*b)), *b);
  return end;
}

int64_t shared_alignment(const Function& f) {
  int64_t most = kSharedAlignment;
  for (const BufferRef& b : f.shared) most = std::max(most, alignment_of(*b));
  return most;
}

int64_t shared_place(const Function& f, const Buffer& buffer) {
  int64_t begin = 0;
  for (const BufferRef& b : f.shared) {
    begin = aligned(begin, alignment_of(*b));
    if (b.get() == &buffer) return begin;
    begin = shared_end(begin, *b);
  }
  NIMBLE_UNREACHABLE("buffer {} is not a shared buffer of {}", buffer.name, f.name);
}

ScratchPlace scratch_place(const Function& f, const Buffer& buffer) {
  Dim offset = 0;
  for (const BufferRef& b : f.scratch) {
    const Block block = block_of(*b);
    if (b.get() == &buffer) return {offset, block.per_thread ? block.bytes : Dim(0)};
    offset = offset + total(block);
  }
  NIMBLE_UNREACHABLE("buffer {} is not a scratch buffer of {}", buffer.name, f.name);
}

}  // namespace nimble::kir
