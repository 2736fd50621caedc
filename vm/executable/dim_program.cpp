// Verification, evaluation and printing of dim programs. Verification proves the stack depth at
// each instruction, so that evaluation runs over a fixed array without looking at its bounds.
#include "vm/executable/dim_program.h"

#include <algorithm>
#include <functional>

#include "vm/base/error.h"
#include "vm/executable/verifier_rules.h"

namespace nimble::exec {
namespace {

constexpr size_t kMaxStack = 256;

[[noreturn]] void fail_arithmetic(const char* what, int64_t a, int64_t b) {
  throw Error(Status::kFatal, "", fmt::format("shape arithmetic: {} of {} and {}", what, a, b),
              "use smaller or consistent shapes");
}

int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) fail_arithmetic("division by zero", a, b);
  if (b == -1) {
    int64_t r;
    if (__builtin_sub_overflow(int64_t{0}, a, &r))
      fail_arithmetic("overflow in the quotient", a, b);
    return r;
  }
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

int64_t floor_mod(int64_t a, int64_t b) {
  if (b == 0) fail_arithmetic("remainder by zero", a, b);
  if (b == -1) return 0;
  const int64_t r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}

// Wraps, as unsigned arithmetic does.
template <class Operation>
int64_t wrapped(int64_t a, int64_t b, Operation operation) {
  return static_cast<int64_t>(operation(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
}

int64_t apply(DimOp op, int64_t a, int64_t b) {
  int64_t r = 0;
  switch (op) {
    case DimOp::kAdd:
      if (__builtin_add_overflow(a, b, &r)) fail_arithmetic("overflow in the sum", a, b);
      return r;
    case DimOp::kSub:
      if (__builtin_sub_overflow(a, b, &r)) fail_arithmetic("overflow in the difference", a, b);
      return r;
    case DimOp::kMul:
      if (__builtin_mul_overflow(a, b, &r)) fail_arithmetic("overflow in the product", a, b);
      return r;
    case DimOp::kFloorDiv:
      return floor_div(a, b);
    case DimOp::kMod:
      return floor_mod(a, b);
    case DimOp::kMin:
      return std::min(a, b);
    case DimOp::kMax:
      return std::max(a, b);
    case DimOp::kBroadcast:
      if (a == 1) return b;
      if (b == 1 || a == b) return a;
      throw Error(Status::kFatal, "", fmt::format("extents {} and {} do not broadcast", a, b),
                  "give inputs whose extents are equal or 1");
    case DimOp::kEq:
      return a == b;
    case DimOp::kNe:
      return a != b;
    case DimOp::kLt:
      return a < b;
    case DimOp::kLe:
      return a <= b;
    case DimOp::kAnd:
      return a != 0 && b != 0;
    case DimOp::kOr:
      return a != 0 || b != 0;
    case DimOp::kWrapAdd:
      return wrapped(a, b, std::plus<>());
    case DimOp::kWrapSub:
      return wrapped(a, b, std::minus<>());
    case DimOp::kWrapMul:
      return wrapped(a, b, std::multiplies<>());
    case DimOp::kQuotient:
      return b == 0 ? 0 : b == -1 ? wrapped(0, a, std::minus<>()) : a / b;
    case DimOp::kRemainder:
      return b == 0 ? 0 : floor_mod(a, b);
    case DimOp::kConst:
    case DimOp::kArg:
    case DimOp::kNot:
    case DimOp::kSelect:
      break;
  }
  NIMBLE_UNREACHABLE("dim operation {} in a verified program", static_cast<int>(op));
}

}  // namespace

std::optional<Finding> DimProgram::find_fault() const {
  size_t depth = 0;
  for (size_t i = 0; i < code.size(); ++i) {
    const DimInstruction& in = code[i];
    if (static_cast<size_t>(in.op) >= kDimOpCount)
      return finding<Fault::kDimUnknownOperation>(i, static_cast<int>(in.op));
    if (in.op == DimOp::kArg && (in.immediate < 0 || in.immediate >= int64_t{arguments}))
      return finding<Fault::kDimNoSuchArgument>(i, in.immediate, arguments);
    const auto pops = static_cast<size_t>(info_of(in.op).operands);
    if (depth < pops) return finding<Fault::kDimStackUnderflow>(i, pops, depth);
    depth = depth - pops + 1;
    if (depth > kMaxStack) return finding<Fault::kDimStackTooDeep>(i, kMaxStack);
  }
  if (depth != results) return finding<Fault::kDimResults>(depth, results);
  return std::nullopt;
}

std::string DimProgram::verify() const {
  std::optional<Finding> bad = find_fault();
  return bad ? std::move(bad->message) : std::string();
}

void DimProgram::evaluate(std::span<const int64_t> args, std::span<int64_t> out) const {
  NIMBLE_CHECK(args.size() >= arguments && out.size() == results, "{} arguments, {} results",
               args.size(), out.size());
  int64_t stack[kMaxStack];
  int64_t* top = stack;  // one past the last value
  for (const DimInstruction& in : code) {
    switch (in.op) {
      case DimOp::kConst:
        *top++ = in.immediate;
        break;
      case DimOp::kArg:
        *top++ = args[static_cast<size_t>(in.immediate)];
        break;
      case DimOp::kNot:
        top[-1] = top[-1] == 0;
        break;
      case DimOp::kSelect:
        top -= 2;
        top[-1] = top[-1] != 0 ? top[0] : top[1];
        break;
      default:
        --top;
        top[-1] = apply(in.op, top[-1], top[0]);
    }
  }
  std::copy(stack, top, out.begin());
}

int64_t DimProgram::evaluate1(std::span<const int64_t> args) const {
  if (code.size() == 1) {  // nearly every dim of a contract
    if (code[0].op == DimOp::kConst) return code[0].immediate;
    NIMBLE_CHECK(static_cast<size_t>(code[0].immediate) < args.size());
    return args[static_cast<size_t>(code[0].immediate)];
  }
  int64_t result;
  evaluate(args, {&result, 1});
  return result;
}

bool DimProgram::is_argument(uint32_t* index) const {
  if (code.size() != 1 || code[0].op != DimOp::kArg) return false;
  if (index) *index = static_cast<uint32_t>(code[0].immediate);
  return true;
}

bool DimProgram::is_constant(int64_t* value) const {
  if (code.size() != 1 || code[0].op != DimOp::kConst) return false;
  if (value) *value = code[0].immediate;
  return true;
}

std::string DimProgram::str() const {
  if (std::string bad = verify(); !bad.empty()) return "<malformed: " + bad + ">";
  if (code.size() > 1000) return fmt::format("<program of {} instructions>", code.size());
  struct Term {
    std::string text;
    bool compound;  // in parentheses inside a larger term
  };
  std::vector<Term> stack;
  auto pop = [&](bool inside_term) {
    Term t = std::move(stack.back());
    stack.pop_back();
    return inside_term && t.compound ? "(" + t.text + ")" : t.text;
  };
  for (const DimInstruction& in : code) {
    if (in.op == DimOp::kConst) {
      stack.push_back({std::to_string(in.immediate), in.immediate < 0});
    } else if (in.op == DimOp::kArg) {
      stack.push_back({fmt::format("a{}", in.immediate), false});
    } else if (in.op == DimOp::kNot) {
      stack.push_back({fmt::format("not {}", pop(true)), true});
    } else if (in.op == DimOp::kSelect) {
      const std::string c = pop(true), b = pop(true), a = pop(true);
      stack.push_back({fmt::format("{} ? {} : {}", a, b, c), true});
    } else if (info_of(in.op).between) {
      const std::string b = pop(true), a = pop(true);
      stack.push_back({fmt::format("{} {} {}", a, info_of(in.op).word, b), true});
    } else {
      const char* name = in.op == DimOp::kBroadcast ? "broadcast" : info_of(in.op).word;
      const std::string b = pop(false), a = pop(false);
      stack.push_back({fmt::format("{}({}, {})", name, a, b), false});
    }
  }
  std::string out;
  for (const Term& t : stack) out += (out.empty() ? "" : ", ") + t.text;
  return out;
}

}  // namespace nimble::exec
