// Kernel IR to portable code. Loops keep their order; those that a template unrolls come as copies
// (kernels/unroll.h), so that every register buffer's element is a value register of its own. What
// has no meaning for one checked thread is left out: barriers, prefetches, alignment, non-temporal
// stores. Loads that are broadcast become one operation.
#include <bit>
#include <cstring>

#include "compiler/codegen/portable/builder.h"
#include "compiler/codegen/portable/portable.h"
#include "compiler/kernels/fragments.h"
#include "compiler/kernels/math.h"
#include "compiler/kernels/tiles.h"
#include "compiler/kernels/unroll.h"
#include "vm/base/error.h"
#include "vm/base/half.h"
#include "vm/executable/check_status.h"

namespace nimble::codegen {
namespace {

using exec::PortableOp;
using exec::PortableValue;
using ir::Dim;
using kir::StmtKind;
using kir::Value;
using kir::ValueKind;

PortableValue type_of(const Value& v) {
  return {v.dtype, static_cast<uint8_t>(v.lanes)};
}

// A constant's bits, as Const wants them: nothing beyond the dtype's width.
int64_t bits_of(DType t, double number, int64_t integer) {
  switch (t) {
    case DType::kBool:
      return integer & 1;
    case DType::kF16:
      return f16_from_f32(static_cast<float>(number));
    case DType::kBF16:
      return bf16_from_f32(static_cast<float>(number));
    case DType::kF32:
      return std::bit_cast<uint32_t>(static_cast<float>(number));
    case DType::kF64:
      return std::bit_cast<int64_t>(number);
    default:
      break;
  }
  const size_t width = 8 * size_of(t);
  return width == 64 ? integer : integer & ((int64_t{1} << width) - 1);
}

PortableOp op_of(kir::UnaryOp op) {
  static constexpr PortableOp kOps[] = {PortableOp::kNeg,   PortableOp::kAbs,   PortableOp::kSqrt,
                                        PortableOp::kRsqrt, PortableOp::kFloor, PortableOp::kCeil,
                                        PortableOp::kRound, PortableOp::kTrunc, PortableOp::kNot};
  return kOps[static_cast<size_t>(op)];
}
PortableOp op_of(kir::BinaryOp op) {
  static constexpr PortableOp kOps[] = {PortableOp::kAdd, PortableOp::kSub, PortableOp::kMul,
                                        PortableOp::kDiv, PortableOp::kMod, PortableOp::kMin,
                                        PortableOp::kMax, PortableOp::kAnd, PortableOp::kOr,
                                        PortableOp::kXor, PortableOp::kShl, PortableOp::kShr};
  return kOps[static_cast<size_t>(op)];
}
PortableOp op_of(kir::CompareOp op) {
  static constexpr PortableOp kOps[] = {PortableOp::kEq, PortableOp::kNe, PortableOp::kLt,
                                        PortableOp::kLe, PortableOp::kGt, PortableOp::kGe};
  return kOps[static_cast<size_t>(op)];
}
PortableOp reduction_of(kir::BinaryOp op) {
  switch (op) {
    case kir::BinaryOp::kAdd:
      return PortableOp::kReduceAdd;
    case kir::BinaryOp::kMul:
      return PortableOp::kReduceMul;
    case kir::BinaryOp::kMin:
      return PortableOp::kReduceMin;
    case kir::BinaryOp::kMax:
      return PortableOp::kReduceMax;
    case kir::BinaryOp::kAnd:
      return PortableOp::kReduceAnd;
    case kir::BinaryOp::kOr:
      return PortableOp::kReduceOr;
    case kir::BinaryOp::kXor:
      return PortableOp::kReduceXor;
    default:
      NIMBLE_UNREACHABLE("{}", kir::name_of(op));
  }
}

const std::map<std::string, Dim>& one_thread() {
  static const std::map<std::string, Dim> known = {{"thread", 0}, {"threads", 1}};
  return known;
}

// Of a function that kir::unroll made for one thread.
class Lowering {
 public:
  explicit Lowering(const kir::Function& f) : f_(f), b_(f.name, f.contract.symbols) {}

  exec::PortableKernel run() {
    for (const auto* list : {&f_.arguments, &f_.scratch})
      for (const kir::BufferRef& b : *list)
        buffers_.emplace(b.get(), static_cast<int64_t>(buffers_.size()));
    for (const kir::BufferRef& b : f_.scratch)
      b_.kernel().scratch.push_back(
          {b->dtype, b->extent.substitute(one_thread()).to_program(f_.contract.symbols)});
    for (const kir::BufferRef& b : f_.registers) {
      std::vector<int64_t>& elements = registers_[b.get()];
      for (int64_t i = 0; i < constant(b->extent); ++i)
        elements.push_back(b_.fresh({b->dtype, static_cast<uint8_t>(b->lanes)}));
    }
    statement(*f_.body);
    return b_.finish();
  }

 private:
  int64_t constant(const Dim& d) const {
    const auto c = d.as_constant();
    NIMBLE_CHECK(c.has_value(), "{} is not constant in {}", d.str(), f_.name);
    return *c;
  }

  // --- Statements

  void statement(const kir::Stmt& s) {
    switch (s.kind) {
      case StmtKind::kSeq:
        for (const kir::StmtRef& b : s.body) statement(*b);
        return;
      case StmtKind::kFor:
        return loop(s);
      case StmtKind::kIf:
        return branch(s);
      case StmtKind::kStore:
        store(s);
        break;
      case StmtKind::kSetRegister:
        set(registers_.at(s.buffer.get()).at(static_cast<size_t>(constant(s.index))), s.value);
        break;
      case StmtKind::kLet:
        let(s);
        break;
      case StmtKind::kLetIndex: {
        const Placed v = value(s.value);
        const Placed slot{b_.new_slot(), b_.depth()};
        b_.emit(PortableOp::kIndexOf, {slot.at, v.at});
        b_.bind(s.var, slot);
        break;
      }
      case StmtKind::kCheck:
        b_.emit(PortableOp::kCheck, {b_.condition(s.condition).at, exec::check_status(s.message)});
        break;
      case StmtKind::kPrefetch:
      case StmtKind::kBarrier:
        return;
      case StmtKind::kTiles:
      case StmtKind::kTileZero:
      case StmtKind::kTileLoad:
      case StmtKind::kTileStore:
      case StmtKind::kTileDot:
        NIMBLE_UNREACHABLE("matrix registers, which were expanded");
#define NIMBLE_GPU_STATEMENT(id, what) case StmtKind::id:
#include "compiler/kernels/Statements.def"
        NIMBLE_UNREACHABLE("a GPU's statement");
    }
    memo_.clear();
    made_.clear();
    b_.end_statement();
  }

  void loop(const kir::Stmt& s) {
    if (s.loop == kir::LoopKind::kUnroll)
      NIMBLE_UNREACHABLE("loop {} of {} was to be unrolled", s.var, f_.name);
    const Placed begin = b_.index(s.begin), extent = b_.index(s.extent);
    const int64_t variable = b_.new_slot();
    b_.open(PortableOp::kLoop, {variable, begin.at, extent.at, s.step});
    b_.bind(s.var, {variable, b_.depth()});
    statement(*s.body[0]);
    b_.unbind(s.var);
    b_.close();
  }

  void branch(const kir::Stmt& s) {
    const Placed condition = b_.condition(s.condition);
    b_.open(PortableOp::kIf, {condition.at});
    statement(*s.body[0]);
    if (s.body.size() > 1) {
      b_.otherwise();
      statement(*s.body[1]);
    }
    b_.close();
  }

  void let(const kir::Stmt& s) {
    Placed v = value(s.value);
    if (s.value->kind == ValueKind::kRegister) {  // it may change while the name lives
      const int64_t copy = b_.temporary(type_of(*s.value));
      b_.emit(PortableOp::kCopy, {copy, v.at});
      v = {copy, b_.depth()};
    }
    if (b_.is_temporary(v.at)) b_.keep(v.at);
    locals_.insert_or_assign(s.var, v);
  }

  void store(const kir::Stmt& s) {
    const int64_t v = value(s.value).at;
    const int64_t buffer = buffers_.at(s.buffer.get());
    const PortableBuilder::Address a = b_.address(s.index);
    const bool dense = s.value->lanes == 1 || s.stride.is_constant(1);
    if (s.valid) {
      const int64_t valid = b_.index(*s.valid).at;
      if (dense)
        b_.emit(PortableOp::kStoreMasked, {buffer, a.outer, a.inner, a.displacement, v, valid});
      else
        b_.emit(PortableOp::kStoreMaskedStrided,
                {buffer, a.outer, a.inner, a.displacement, v, valid, b_.index(s.stride).at});
    } else if (dense) {
      b_.emit(PortableOp::kStore, {buffer, a.outer, a.inner, a.displacement, v});
    } else {
      b_.emit(PortableOp::kStoreStrided,
              {buffer, a.outer, a.inner, a.displacement, v, b_.index(s.stride).at});
    }
  }

  // --- Values

  // Puts the value into a register buffer's element, without a copy where an operation makes it.
  void set(int64_t element, const kir::ValueRef& v) {
    if (v->kind == ValueKind::kDot) {
      const kir::ValueRef in_others = kir::expand_dot(*v);
      made_.push_back(in_others);
      return set(element, in_others);
    }
    if ((v->kind == ValueKind::kBinary && v->binary != kir::BinaryOp::kScale) ||
        v->kind == ValueKind::kFma) {
      std::array<int64_t, 3> o{};
      for (size_t i = 0; i < v->operands.size(); ++i) o[i] = value(v->operands[i]).at;
      if (v->kind == ValueKind::kFma)
        b_.emit(PortableOp::kFma, {element, o[0], o[1], o[2]});
      else
        b_.emit(op_of(v->binary), {element, o[0], o[1]});
      return;
    }
    b_.emit(PortableOp::kCopy, {element, value(v).at});
  }

  Placed value(const kir::ValueRef& v) {
    if (auto it = memo_.find(v.get()); it != memo_.end()) return it->second;
    const Placed p = expression(*v);
    memo_.emplace(v.get(), p);
    return p;
  }

  Placed expression(const Value& v) {
    const PortableValue type = type_of(v);
    // Of operands with no effect and no cause of change: at the depth where all are known.
    const auto pure = [&](PortableOp op) {
      std::array<Placed, 3> o{};
      size_t depth = 0;
      for (size_t i = 0; i < v.operands.size(); ++i) {
        o[i] = value(v.operands[i]);
        depth = std::max(depth, o[i].depth);
      }
      return b_.pure(op, type, depth, {o[0].at, o[1].at, o[2].at});
    };
    switch (v.kind) {
      case ValueKind::kConst:
        return b_.constant(type, bits_of(v.dtype, v.constant, v.integer));
      case ValueKind::kIndex: {
        const Placed i = b_.index(v.index);
        return b_.pure(PortableOp::kFromIndex, type, i.depth, {i.at});
      }
      case ValueKind::kIota:
        return b_.pure(PortableOp::kIota, type, 0, {});
      case ValueKind::kLoad:
        return load(v);
      case ValueKind::kRegister:
        return {registers_.at(v.buffer.get()).at(static_cast<size_t>(constant(v.index))),
                b_.depth()};
      case ValueKind::kLocal:
        return locals_.at(v.name);
      case ValueKind::kUnary:
        return pure(op_of(v.unary));
      case ValueKind::kBinary:
        if (v.binary == kir::BinaryOp::kScale) {
          const kir::ValueRef in_others = kir::math::scale(v.operands[0], v.operands[1]);
          made_.push_back(in_others);
          return value(in_others);
        }
        return pure(op_of(v.binary));
      case ValueKind::kFma:
        return pure(PortableOp::kFma);
      case ValueKind::kCompare:
        return pure(op_of(v.compare));
      case ValueKind::kSelect:
        return pure(PortableOp::kSelect);
      case ValueKind::kCast:
        return pure(PortableOp::kCast);
      case ValueKind::kBitcast:
        return pure(PortableOp::kBitcast);
      case ValueKind::kBroadcast:
        return broadcast(v);
      case ValueKind::kReduce:
        return pure(reduction_of(v.binary));
      case ValueKind::kExtract: {
        const Placed a = value(v.operands[0]);
        return b_.pure(PortableOp::kExtract, type, a.depth, {a.at, v.integer});
      }
      case ValueKind::kDot: {
        const kir::ValueRef in_others = kir::expand_dot(v);
        made_.push_back(in_others);
        return value(in_others);
      }
      case ValueKind::kShuffle:
        NIMBLE_UNREACHABLE("a GPU's value");
    }
    NIMBLE_UNREACHABLE();
  }

  // A group of lanes over and over, by broadcasts of scalars: of a word that it fills, else of each
  // lane to where it belongs.
  static kir::ValueRef repeated(const kir::ValueRef& group, int lanes) {
    namespace kb = kir::build;
    const size_t bytes = size_of(group->dtype) * static_cast<size_t>(group->lanes);
    if (bytes <= 8 && group->dtype != DType::kBool) {
      const DType word = bytes == 2 ? DType::kU16 : bytes == 4 ? DType::kU32 : DType::kU64;
      return kb::bitcast(group->dtype,
                         kb::broadcast(kb::bitcast(word, group), lanes / group->lanes));
    }
    const kir::ValueRef which = kb::binary(kir::BinaryOp::kAnd, kb::iota(lanes),
                                           kb::integer(DType::kI32, group->lanes - 1));
    kir::ValueRef out = kb::broadcast(kb::extract(group, 0), lanes);
    for (int i = 1; i < group->lanes; ++i)
      out = kb::select(kb::compare(kir::CompareOp::kEq, which, kb::integer(DType::kI32, i)),
                       kb::broadcast(kb::extract(group, i), lanes), out);
    return out;
  }

  Placed broadcast(const Value& v) {
    const Value& a = *v.operands[0];
    if (v.lanes == a.lanes) return value(v.operands[0]);
    if (a.kind == ValueKind::kConst)
      return b_.constant(type_of(v), bits_of(a.dtype, a.constant, a.integer));
    if (a.kind == ValueKind::kLoad && a.lanes == 1 && !a.valid && !memo_.contains(&a)) {
      const PortableBuilder::Address at = b_.address(a.index);
      const int64_t result = b_.temporary(type_of(v));
      b_.emit(PortableOp::kLoadSplat,
              {result, buffers_.at(a.buffer.get()), at.outer, at.inner, at.displacement});
      return {result, b_.depth()};
    }
    if (a.lanes > 1) {
      const kir::ValueRef in_others = repeated(v.operands[0], v.lanes);
      made_.push_back(in_others);
      return value(in_others);
    }
    const Placed scalar = value(v.operands[0]);
    return b_.pure(PortableOp::kBroadcast, type_of(v), scalar.depth, {scalar.at});
  }

  Placed load(const Value& v) {
    const PortableValue type = type_of(v);
    const int64_t buffer = buffers_.at(v.buffer.get());
    const PortableBuilder::Address a = b_.address(v.index);
    const Dim stride = v.lanes == 1 ? Dim(1) : v.stride;
    const bool dense = stride.is_constant(1);
    if (!v.valid) {
      const int64_t result = b_.temporary(type);
      if (dense || stride.is_constant(0))
        b_.emit(dense ? PortableOp::kLoad : PortableOp::kLoadSplat,
                {result, buffer, a.outer, a.inner, a.displacement});
      else
        b_.emit(PortableOp::kLoadStrided,
                {result, buffer, a.outer, a.inner, a.displacement, b_.index(stride).at});
      return {result, b_.depth()};
    }
    const int64_t other = v.passthrough ? value(v.passthrough).at : b_.constant(type, 0).at;
    const int64_t valid = b_.index(*v.valid).at;
    const int64_t result = b_.temporary(type);
    if (dense)
      b_.emit(PortableOp::kLoadMasked,
              {result, buffer, a.outer, a.inner, a.displacement, valid, other});
    else
      b_.emit(PortableOp::kLoadMaskedStrided, {result, buffer, a.outer, a.inner, a.displacement,
                                               valid, other, b_.index(stride).at});
    return {result, b_.depth()};
  }

  const kir::Function& f_;
  PortableBuilder b_;
  std::unordered_map<const kir::Buffer*, int64_t> buffers_;
  std::unordered_map<const kir::Buffer*, std::vector<int64_t>> registers_;
  std::map<std::string, Placed> locals_;
  std::unordered_map<const Value*, Placed> memo_;  // of the statement at work
  std::vector<kir::ValueRef> made_;                // for the memo: its keys must stay
};

}  // namespace

exec::PortableKernel to_portable(const kir::Function& f) {
  const std::string fault = kir::verify(f);
  NIMBLE_CHECK(fault.empty(), "malformed kernel: {}\n{}", fault, kir::print(f));
  if (f.launch)
    throw Error(Status::kUnsupported, "kernel " + f.name,
                "it is a GPU's kernel: portable code has no blocks of threads");
  const bool tiles = kir::has_tiles(kernels::portable_target(), f);
  exec::PortableKernel k =
      Lowering(kir::unroll(tiles ? f : kir::expand_tiles(f), one_thread())).run();
  const auto wrong = exec::verify_portable(k, f.contract);
  NIMBLE_CHECK(!wrong || wrong->rule == 1, "P{} at {}: {}\n{}", wrong->rule, wrong->instruction,
               wrong->message, exec::disassemble(k, f.contract));
  if (wrong)
    throw Error(Status::kUnsupported, "kernel " + f.name,
                "its portable form is too large: " + wrong->message, "compile with --portable=off");
  return k;
}

}  // namespace nimble::codegen
