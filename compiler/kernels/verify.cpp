// Well-formedness of a kernel. The walk carries what is in scope (symbols, locals), which
// symbols become constants by unrolling, and which differ between threads (of a GPU, by how far
// they are the same: spread.h). Rules that need numbers (extents, alignment, races) are the
// interpreter's.
#include <algorithm>
#include <unordered_set>

#include "compiler/kernels/verify_group.h"
#include "compiler/kernels/verify_rules.h"
#include "compiler/kernels/verify_steps.h"
#include "compiler/kernels/verify_tiles.h"
#include "compiler/kernels/verify_values.h"
#include "compiler/kernels/verify_walk.h"
#include "vm/executable/executable.h"

namespace nimble::kir {
namespace {

constexpr int kMostSharedAlignment = 1024;  // of the widest swizzle

}  // namespace

void Verification::run() {
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

void Verification::header() {
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

void Verification::add_buffer(const BufferRef& b, bool right_scope) {
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

bool Verification::is_block_symbol(const std::string& s) const {
  return f_.launch && std::ranges::find(kBlockSymbols, s) != kBlockSymbols.end();
}

void Verification::check_dim(const Dim& d, const std::string& where) {
  require(!d.is_any(), "{}: `?` is not a kernel dim", where);
  for (const std::string& s : d.symbols())
    require(symbols_.contains(s), "{}: symbol {} is not bound", where, s);
}

void Verification::check_buffer(const BufferRef& b, bool write) {
  require(b != nullptr, "an access without a buffer");
  require(buffers_.contains(b.get()), "buffer {} is not the function's", b->name);
  require(!write || b->writable, "buffer {} is written but not writable", b->name);
}

void Verification::check_register(const Buffer& b, const Dim& index) {
  require(b.scope == Scope::kRegister, "{} is not a register buffer", b.name);
  check_number(b, index);
}

void Verification::check_number(const Buffer& b, const Dim& index) {
  check_dim(index, b.name);
  for (const std::string& s : index.symbols())
    require(unrolled_.contains(s), "register {}[{}]: {} is not a constant after unrolling", b.name,
            index.str(), s);
  require(facts_.less(index, 0) != ir::Proof::kYes &&
              facts_.less_equal(b.extent, index) != ir::Proof::kYes,
          "register {}[{}] is out of range", b.name, index.str());
}

void Verification::check_memory(const BufferRef& b, const Dim& index, const Dim& stride,
                                const std::optional<Dim>& valid, bool write) {
  check_buffer(b, write);
  require(b->scope != Scope::kRegister && b->scope != Scope::kTile,
          "register buffer {} is accessed as memory", b->name);
  require(!signals_.contains(b.get()), "{} holds signals, and is accessed as memory", b->name);
  check_dim(index, b->name);
  check_dim(stride, b->name);
  if (valid) check_dim(*valid, b->name);
}

void Verification::value(const ValueRef& ref) {
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

void Verification::condition(const Condition& c) {
  for (const Condition::Term& t : c.terms) {
    check_dim(t.a, "condition");
    check_dim(t.b, "condition");
  }
}

std::string verify(const Function& f) {
  try {
    Verification(f).run();
  } catch (const Fault& fault) {
    return fault.text;
  }
  return {};
}

}  // namespace nimble::kir
