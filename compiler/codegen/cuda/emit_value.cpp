// Values to C++: each operation of a lane is a constant of its own, so that nothing is computed
// twice, and nothing later than where it stands: registers may change behind it. What costs nothing
// (literals, extracted and broadcast lanes, a lane of a word) stays an expression.
#include <bit>
#include <cmath>

#include "compiler/codegen/cuda/emitter.h"
#include "compiler/kernels/fragments.h"
#include "compiler/kernels/math.h"
#include "vm/base/error.h"
#include "vm/base/half.h"

namespace nimble::codegen {

using kir::BinaryOp;
using kir::UnaryOp;
using kir::ValueKind;

std::string_view cuda_type(DType t) {
  switch (t) {
    case DType::kBool:
      return "bool";
    case DType::kF16:
    case DType::kBF16:
      return "u16";
    default:
      return name_of(t);
  }
}

std::string_view cuda_memory_type(DType t) {
  return t == DType::kBool ? "u8" : cuda_type(t);
}

std::string_view cuda_prelude() {
  static constexpr std::string_view kText =
#define NIMBLE_CUDA_CODE(...) #__VA_ARGS__ "\n"
#define NIMBLE_CUDA_PTX(...) #__VA_ARGS__ "\n"
#include "compiler/codegen/cuda/prelude.def"
      ;
  return kText;
}

std::string CudaEmitter::number(DType t, double v) const {
  switch (t) {
    case DType::kF16:
      return fmt::format("(u16)0x{:04x}", f16_from_f32(static_cast<float>(v)));
    case DType::kBF16:
      return fmt::format("(u16)0x{:04x}", bf16_from_f32(static_cast<float>(v)));
    case DType::kF32: {
      const auto f = static_cast<float>(v);
      if (!std::isfinite(f))
        return fmt::format("__uint_as_float(0x{:08x}u)", std::bit_cast<uint32_t>(f));
      return std::signbit(f) ? fmt::format("({:a}f)", f) : fmt::format("{:a}f", f);
    }
    case DType::kF64:
      if (!std::isfinite(v))
        return fmt::format("__longlong_as_double(0x{:016x}ll)", std::bit_cast<uint64_t>(v));
      return std::signbit(v) ? fmt::format("({:a})", v) : fmt::format("{:a}", v);
    default:
      NIMBLE_UNREACHABLE("{}", name_of(t));
  }
}

std::string CudaEmitter::integer(DType t, int64_t v) const {
  switch (t) {
    case DType::kBool:
      return v & 1 ? "true" : "false";
    case DType::kI8:
      return fmt::format("(i8){}", static_cast<int8_t>(v));
    case DType::kU8:
      return fmt::format("(u8){}", static_cast<uint8_t>(v));
    case DType::kI16:
      return fmt::format("(i16){}", static_cast<int16_t>(v));
    case DType::kU16:
      return fmt::format("(u16){}", static_cast<uint16_t>(v));
    case DType::kU32:
      return fmt::format("{}u", static_cast<uint32_t>(v));
    case DType::kU64:
      return fmt::format("{}ull", static_cast<uint64_t>(v));
    case DType::kI32: {
      const auto i = static_cast<int32_t>(v);
      if (i == INT32_MIN) return "(-2147483647 - 1)";
      return i < 0 ? fmt::format("({})", i) : std::to_string(i);
    }
    case DType::kI64:
      if (v == INT64_MIN) return "(-9223372036854775807ll - 1)";
      return v < 0 ? fmt::format("({}ll)", v) : fmt::format("{}ll", v);
    default:
      NIMBLE_UNREACHABLE("{}", name_of(t));
  }
}

// --- Words

std::vector<std::string> CudaEmitter::lanes_of(const std::vector<std::string>& words, DType t,
                                               int lanes) {
  const int size = static_cast<int>(size_of(t));
  std::vector<std::string> out;
  for (int i = 0; i < lanes; ++i) {
    const std::string& w = words[static_cast<size_t>(i * size / 4)];
    if (size == 8) {
      const std::string& high = words[static_cast<size_t>(2 * i + 1)];
      out.push_back(t == DType::kF64
                        ? fmt::format("__hiloint2double((i32){}, (i32){})", high, w)
                        : fmt::format("({})((u64){} << 32 | {})", cuda_type(t), high, w));
      continue;
    }
    if (t == DType::kF32) {
      out.push_back("__uint_as_float(" + w + ")");
      continue;
    }
    const int shift = i * size % 4 * 8;
    const std::string shifted = shift ? fmt::format("({} >> {})", w, shift) : w;
    out.push_back(t == DType::kBool ? fmt::format("((u8){} != 0)", shifted)
                                    : fmt::format("({}){}", cuda_type(t), shifted));
  }
  return out;
}

std::vector<std::string> CudaEmitter::words_of(const std::vector<std::string>& lanes, DType t) {
  const size_t size = size_of(t);
  std::vector<std::string> out;
  if (size == 8) {
    const bool f64 = t == DType::kF64;
    for (const std::string& lane : lanes) {
      out.push_back(f64 ? "(u32)__double2loint(" + lane + ")" : "(u32)" + lane);
      out.push_back(f64 ? "(u32)__double2hiint(" + lane + ")" : "(u32)((u64)" + lane + " >> 32)");
    }
    return out;
  }
  if (size == 4) {
    for (const std::string& lane : lanes)
      out.push_back(t == DType::kF32 ? "__float_as_uint(" + lane + ")" : "(u32)" + lane);
    return out;
  }
  const size_t each = 4 / size;
  for (size_t i = 0; i < lanes.size(); i += each) {
    std::string word;
    for (size_t j = 0; j < each && i + j < lanes.size(); ++j)
      word += fmt::format("{}(u32)({}){}{}", j ? " | " : "", size == 1 ? "u8" : "u16", lanes[i + j],
                          j ? fmt::format(" << {}", 8 * size * j) : "");
    out.push_back(bind("u32", word));
  }
  return out;
}

// --- Values

void CudaEmitter::begin_statement() {
  memo_.clear();
  made_.clear();
}

CudaEmitter::Parts& CudaEmitter::value(const kir::ValueRef& v) {
  if (auto it = memo_.find(v.get()); it != memo_.end()) return it->second;
  Parts made = expression(*v);
  return memo_[v.get()] = std::move(made);
}

const std::vector<std::string>& CudaEmitter::lanes(const kir::ValueRef& v) {
  Parts& p = value(v);
  if (p.lanes.empty()) p.lanes = lanes_of(p.words, v->dtype, v->lanes);
  return p.lanes;
}

const std::vector<std::string>& CudaEmitter::words(const kir::ValueRef& v) {
  Parts& p = value(v);
  if (p.words.empty()) p.words = words_of(p.lanes, v->dtype);
  return p.words;
}

CudaEmitter::Parts CudaEmitter::in_others(kir::ValueRef v) {
  made_.push_back(v);
  return value(v);
}

CudaEmitter::Parts CudaEmitter::expression(const kir::Value& v) {
  const auto n = static_cast<size_t>(v.lanes);
  switch (v.kind) {
    case ValueKind::kConst:
      return {std::vector(
                  n, is_float(v.dtype) ? number(v.dtype, v.constant) : integer(v.dtype, v.integer)),
              {}};
    case ValueKind::kIndex:
      return {{bind("i64", dim(v.index).text)}, {}};
    case ValueKind::kIota: {
      Parts out;
      for (int i = 0; i < v.lanes; ++i) out.lanes.push_back(integer(DType::kI32, i));
      return out;
    }
    case ValueKind::kLoad:
      return load(v);
    case ValueKind::kRegister: {
      const kir::Buffer& b = *v.buffer;
      Parts out;
      auto& to = in_words(b) ? out.words : out.lanes;
      for (int i = 0; i < registers_of(b); ++i)
        to.push_back(bind(in_words(b) ? "u32" : std::string(cuda_type(b.dtype)),
                          register_name(b, constant(v.index), i)));
      return out;
    }
    case ValueKind::kLocal:
      return locals_.at(v.name);
    case ValueKind::kBinary:
      if (v.binary == BinaryOp::kScale)
        return in_others(kir::math::scale(v.operands[0], v.operands[1]));
      return by_lane(v);
    case ValueKind::kCast:
      if (is_narrow_float(v.dtype) && v.lanes > 1) return cast_pairs(v);
      return by_lane(v);
    case ValueKind::kSelect:
      return v.rare ? select_rare(v) : by_lane(v);
    case ValueKind::kUnary:
    case ValueKind::kFma:
    case ValueKind::kCompare:
      return by_lane(v);
    case ValueKind::kBitcast:
      return bitcast(v);
    case ValueKind::kBroadcast: {
      const std::vector<std::string>& from = lanes(v.operands[0]);
      Parts out;
      for (size_t i = 0; i < n; ++i) out.lanes.push_back(from[i % from.size()]);
      return out;
    }
    case ValueKind::kReduce:
      return reduce(v);
    case ValueKind::kExtract:
      return {{lanes(v.operands[0]).at(static_cast<size_t>(v.integer))}, {}};
    case ValueKind::kDot:
      return in_others(kir::expand_dot(v));
    case ValueKind::kShuffle:
      return shuffle(v);
  }
  NIMBLE_UNREACHABLE();
}

CudaEmitter::Parts CudaEmitter::by_lane(const kir::Value& v) {
  std::vector<std::vector<std::string>> o;
  for (const kir::ValueRef& operand : v.operands) o.push_back(lanes(operand));
  static constexpr const char* kCompare[] = {"==", "!=", "<", "<=", ">", ">="};
  const std::string type(cuda_type(v.dtype));
  std::map<std::string, std::string> known;  // lanes that are alike
  Parts out;
  for (size_t i = 0; i < static_cast<size_t>(v.lanes); ++i) {
    std::string text;
    switch (v.kind) {
      case ValueKind::kUnary:
        text = unary(v, o[0][i]);
        break;
      case ValueKind::kBinary:
        text = binary(v.binary, v.dtype, o[0][i], o[1][i]);
        break;
      case ValueKind::kFma:
        text = fmt::format("{}({}, {}, {})", v.dtype == DType::kF32 ? "__fmaf_rn" : "__fma_rn",
                           o[0][i], o[1][i], o[2][i]);
        break;
      case ValueKind::kCompare:
        text = fmt::format("{} {} {}", o[0][i], kCompare[static_cast<size_t>(v.compare)], o[1][i]);
        break;
      case ValueKind::kSelect:
        text = fmt::format("{} ? {} : {}", o[0][i], o[1][i], o[2][i]);
        break;
      case ValueKind::kCast:
        text = cast(v.operands[0]->dtype, v.dtype, o[0][i]);
        break;
      default:
        NIMBLE_UNREACHABLE();
    }
    auto [it, fresh] = known.emplace(text, "");
    if (fresh) it->second = bind(type, text);
    out.lanes.push_back(it->second);
  }
  return out;
}

std::string CudaEmitter::unary(const kir::Value& v, const std::string& a) const {
  const DType t = v.dtype;
  const bool f32 = t == DType::kF32;
  const std::string_view type = cuda_type(t);
  const auto call = [&](const char* single, const char* both) {
    return fmt::format("{}({})", f32 ? single : both, a);
  };
  switch (v.unary) {
    case UnaryOp::kNeg:
      if (t == DType::kBool) return a;
      return is_float(t)
                 ? "-" + a
                 : fmt::format("({})(0 - ({}){})", type, size_of(t) == 8 ? "u64" : "u32", a);
    case UnaryOp::kAbs:
      if (is_float(t)) return call("fabsf", "fabs");
      return is_signed_int(t) ? fmt::format("absolute<{}>({})", type, a) : a;
    case UnaryOp::kSqrt:
      return call("__fsqrt_rn", "__dsqrt_rn");
    case UnaryOp::kRsqrt:
      return f32 ? "__fdiv_rn(1.0f, __fsqrt_rn(" + a + "))"
                 : "__ddiv_rn(1.0, __dsqrt_rn(" + a + "))";
    case UnaryOp::kFloor:
      return call("floorf", "floor");
    case UnaryOp::kCeil:
      return call("ceilf", "ceil");
    case UnaryOp::kRound:
      return call("rintf", "rint");
    case UnaryOp::kTrunc:
      return call("truncf", "trunc");
    case UnaryOp::kNot:
      return t == DType::kBool ? "!" + a : fmt::format("({})~{}", type, a);
  }
  NIMBLE_UNREACHABLE();
}

std::string CudaEmitter::binary(BinaryOp op, DType t, const std::string& a,
                                const std::string& c) const {
  const std::string_view type = cuda_type(t);
  const char* sign = is_signed_int(t) ? "signed" : "unsigned";
  // Integers as natural numbers, which wrap.
  const auto wrapped = [&](const char* symbol) {
    const char* natural = size_of(t) == 8 ? "u64" : "u32";
    return fmt::format("({0})(({1}){2} {3} ({1}){4})", type, natural, a, symbol, c);
  };
  const auto infix = [&](const char* symbol) { return fmt::format("{} {} {}", a, symbol, c); };
  const auto shift = [&](const char* symbol, const std::string& from) {
    return fmt::format("({})({} {} ({} & {}))", type, from, symbol, c, 8 * size_of(t) - 1);
  };
  switch (op) {
    case BinaryOp::kAdd:
      return is_float(t) ? infix("+") : wrapped("+");
    case BinaryOp::kSub:
      return is_float(t) ? infix("-") : wrapped("-");
    case BinaryOp::kMul:
      return is_float(t) ? infix("*") : wrapped("*");
    case BinaryOp::kDiv:
      if (is_float(t))
        return fmt::format("{}({}, {})", t == DType::kF32 ? "__fdiv_rn" : "__ddiv_rn", a, c);
      return fmt::format("divide_{}<{}>({}, {})", sign, type, a, c);
    case BinaryOp::kMod:
      return fmt::format("modulo_{}<{}>({}, {})", sign, type, a, c);
    case BinaryOp::kMin:
      return fmt::format("lesser<{}>({}, {})", type, a, c);
    case BinaryOp::kMax:
      return fmt::format("greater<{}>({}, {})", type, a, c);
    case BinaryOp::kAnd:
      return fmt::format("({})({} & {})", type, a, c);
    case BinaryOp::kOr:
      return fmt::format("({})({} | {})", type, a, c);
    case BinaryOp::kXor:
      return fmt::format("({})({} ^ {})", type, a, c);
    case BinaryOp::kShl:
      return shift("<<", fmt::format("({}){}", size_of(t) == 8 ? "u64" : "u32", a));
    case BinaryOp::kShr:
      return shift(">>", a);
    case BinaryOp::kScale:
      break;  // in others
  }
  NIMBLE_UNREACHABLE();
}

std::string CudaEmitter::cast(DType from, DType to, const std::string& a) const {
  if (is_narrow_float(from)) {
    const std::string wide =
        fmt::format("f32_from_{}({})", from == DType::kF16 ? "f16" : "bf16", a);
    return to == DType::kF32 ? wide : cast(DType::kF32, to, wide);
  }
  if (is_narrow_float(to))
    return fmt::format("{}_from_f32({})", to == DType::kF16 ? "f16" : "bf16",
                       from == DType::kF32 ? a : cast(from, DType::kF32, a));
  if (to == DType::kBool) return fmt::format("({} != 0)", a);
  if (is_float(from) && !is_float(to)) return fmt::format("to_{}({})", cuda_type(to), a);
  return fmt::format("({}){}", cuda_type(to), a);
}

// To f16 or bf16, two lanes at once, into words.
CudaEmitter::Parts CudaEmitter::cast_pairs(const kir::Value& v) {
  const DType from = v.operands[0]->dtype;
  const std::vector<std::string>& a = lanes(v.operands[0]);
  const auto f32 = [&](const std::string& lane) {
    return from == DType::kF32 ? lane : cast(from, DType::kF32, lane);
  };
  Parts out;
  for (size_t i = 0; i < a.size(); i += 2)
    out.words.push_back(
        bind("u32", fmt::format("{}_pair({}, {})", v.dtype == DType::kF16 ? "f16" : "bf16",
                                f32(a[i]), f32(a[i + 1]))));
  return out;
}

// A branch around the dear operand, taken if any lane needs it. What that block computes is not
// there after it, so the memo forgets it.
CudaEmitter::Parts CudaEmitter::select_rare(const kir::Value& v) {
  const std::vector<std::string> c = lanes(v.operands[0]), usual = lanes(v.operands[2]);
  Parts out;
  std::string any;
  for (size_t i = 0; i < c.size(); ++i) {
    out.lanes.push_back(fresh());
    line(fmt::format("{} {} = {};", cuda_type(v.dtype), out.lanes[i], usual[i]));
    any += (i ? " || " : "") + c[i];
  }
  const auto memo = memo_;
  braces(fmt::format("if ({}) ", any), [&] {
    const std::vector<std::string> dear = lanes(v.operands[1]);
    for (size_t i = 0; i < c.size(); ++i)
      line(fmt::format("if ({}) {} = {};", c[i], out.lanes[i], dear[i]));
  });
  memo_ = memo;
  return out;
}

CudaEmitter::Parts CudaEmitter::bitcast(const kir::Value& v) {
  const DType from = v.operands[0]->dtype, to = v.dtype;
  if (size_of(from) == size_of(to) && size_of(to) != 4 && !is_float(from) && !is_float(to) &&
      from != DType::kBool && to != DType::kBool) {
    Parts out;
    for (const std::string& a : lanes(v.operands[0]))
      out.lanes.push_back(
          bind(std::string(cuda_type(to)), fmt::format("({}){}", cuda_type(to), a)));
    return out;
  }
  Parts out;
  out.words = words(v.operands[0]);
  return out;
}

CudaEmitter::Parts CudaEmitter::reduce(const kir::Value& v) {
  std::vector<std::string> a = lanes(v.operands[0]);
  const std::string type(cuda_type(v.dtype));
  for (size_t half = a.size() / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i)
      a[i] = bind(type, binary(v.binary, v.dtype, a[i], a[half + i]));
  return {{a[0]}, {}};
}

CudaEmitter::Parts CudaEmitter::shuffle(const kir::Value& v) {
  const std::vector<std::string> from = words(v.operands[0]);
  const std::string lane = bind("i32", "(i32)" + dim(v.index).text);
  Parts out;
  for (const std::string& w : from)
    out.words.push_back(bind("u32", fmt::format("__shfl_sync(0xffffffffu, {}, {})", w, lane)));
  return out;
}

}  // namespace nimble::codegen
