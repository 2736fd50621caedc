#include "compiler/kernels/verify_values.h"

#include "compiler/kernels/verify_fault.h"
#include "vm/base/error.h"

namespace nimble::kir {
namespace {

size_t bytes_of(const Value& v) {
  return size_of(v.dtype) * static_cast<size_t>(v.lanes);
}

void check_binary(BinaryOp op, DType t) {
  const bool logic = op == BinaryOp::kAnd || op == BinaryOp::kOr || op == BinaryOp::kXor;
  const bool integer_only =
      logic || op == BinaryOp::kMod || op == BinaryOp::kShl || op == BinaryOp::kShr;
  require(!is_narrow_float(t), "arithmetic on {}; cast to f32 first", nimble::name_of(t));
  require(t == DType::kBool ? logic
          : is_float(t)     ? !integer_only
                            : op != BinaryOp::kScale,
          "{} of {}", name_of(op), nimble::name_of(t));
}

}  // namespace

void check_lanes(int lanes, const std::string& where) {
  require(lanes >= 1 && lanes <= 64 && (lanes & (lanes - 1)) == 0,
          "{}: {} lanes; a power of two up to 64 is needed", where, lanes);
}

void check_arity(const Value& v, size_t n) {
  require(v.operands.size() == n, "a value has {} operands instead of {}", v.operands.size(), n);
}

void check_same(const Value& v, const Value& operand) {
  require(operand.dtype == v.dtype && operand.lanes == v.lanes, "operand {}x{} of a {}x{} value",
          nimble::name_of(operand.dtype), operand.lanes, nimble::name_of(v.dtype), v.lanes);
}

void check_computed(const Value& v) {
  const auto arity = [&](size_t n) { check_arity(v, n); };
  const auto same = [&](const Value& o) { check_same(v, o); };
  const auto computes = [&](DType t) {
    require(!is_narrow_float(t), "arithmetic on {}; cast to f32 first", nimble::name_of(t));
  };
  switch (v.kind) {
    case ValueKind::kConst:
      return arity(0);
    case ValueKind::kIota:
      require(v.dtype == DType::kI32, "iota is i32");
      return arity(0);
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
              nimble::name_of(v.operands[0]->dtype), v.operands[0]->lanes, nimble::name_of(v.dtype),
              v.lanes);
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
    case ValueKind::kIndex:
    case ValueKind::kLoad:
    case ValueKind::kRegister:
    case ValueKind::kLocal:
    case ValueKind::kDot:
    case ValueKind::kShuffle:
      break;
  }
  NIMBLE_UNREACHABLE();
}

}  // namespace nimble::kir
