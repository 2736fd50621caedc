#include "compiler/emit/scalar_code.h"

#include <map>
#include <string_view>

#include "vm/base/error.h"

namespace nimble::emit {
namespace {

using exec::DimInstruction;
using exec::DimOp;

constexpr DimInstruction kFirst{DimOp::kArg, 0}, kSecond{DimOp::kArg, 1}, kThird{DimOp::kArg, 2};
constexpr DimInstruction kZero{DimOp::kConst, 0};

constexpr DimInstruction op(DimOp o) {
  return {o, 0};
}

const std::map<std::string_view, ScalarCode>& codes() {
  static const std::map<std::string_view, ScalarCode> all = {
      {"add", {kFirst, kSecond, op(DimOp::kWrapAdd)}},
      {"sub", {kFirst, kSecond, op(DimOp::kWrapSub)}},
      {"mul", {kFirst, kSecond, op(DimOp::kWrapMul)}},
      {"div", {kFirst, kSecond, op(DimOp::kQuotient)}},
      {"mod", {kFirst, kSecond, op(DimOp::kRemainder)}},
      {"maximum", {kFirst, kSecond, op(DimOp::kMax)}},
      {"minimum", {kFirst, kSecond, op(DimOp::kMin)}},
      {"equal", {kFirst, kSecond, op(DimOp::kEq)}},
      {"not_equal", {kFirst, kSecond, op(DimOp::kNe)}},
      {"less", {kFirst, kSecond, op(DimOp::kLt)}},
      {"less_equal", {kFirst, kSecond, op(DimOp::kLe)}},
      {"greater", {kSecond, kFirst, op(DimOp::kLt)}},
      {"greater_equal", {kSecond, kFirst, op(DimOp::kLe)}},
      {"and", {kFirst, kSecond, op(DimOp::kAnd)}},
      {"or", {kFirst, kSecond, op(DimOp::kOr)}},
      {"not", {kFirst, op(DimOp::kNot)}},
      {"neg", {kZero, kFirst, op(DimOp::kWrapSub)}},
      {"where", {kFirst, kSecond, kThird, op(DimOp::kSelect)}},
      {"cast", {kFirst}},
  };
  return all;
}

}  // namespace

const ScalarCode& scalar_code(const ir::Expr& e) {
  static const ScalarCode to_bool = {kFirst, kZero, op(DimOp::kNe)};
  if (e.op == "cast" && ir::attr<DType>(e.attrs, "dtype") == DType::kBool) return to_bool;
  const auto it = codes().find(e.op);
  NIMBLE_CHECK(it != codes().end(), "no code for the scalar operator {}", e.op);
  return it->second;
}

}  // namespace nimble::emit
