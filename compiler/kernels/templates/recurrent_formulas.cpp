#include "compiler/kernels/templates/recurrent_formulas.h"

#include <utility>

#include "compiler/ir/expr.h"
#include "compiler/kernels/group.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::ValueRef;

namespace {

// An element-wise operator of one value, in that value's type.
ValueRef function_of(const char* op, ValueRef x) {
  const ir::ExprRef call = ir::make_call(op, {});
  const DType dtype = x->dtype;
  return compute(*call, {std::move(x)}, dtype);
}

}  // namespace

ValueRef sigmoid(ValueRef x) {
  return function_of("sigmoid", std::move(x));
}

ValueRef tanh_of(ValueRef x) {
  return function_of("tanh", std::move(x));
}

ValueRef lstm_state(ValueRef f, ValueRef c, ValueRef i, ValueRef g) {
  return kb::fma(std::move(f), std::move(c), kb::mul(std::move(i), std::move(g)));
}

ValueRef lstm_output(ValueRef o, ValueRef c) {
  return kb::mul(std::move(o), tanh_of(std::move(c)));
}

ValueRef gru_candidate(ValueRef r, ValueRef recurrent, ValueRef input) {
  return tanh_of(kb::fma(std::move(r), std::move(recurrent), std::move(input)));
}

ValueRef gru_blend(ValueRef z, ValueRef n, ValueRef h) {
  return kb::fma(std::move(z), kb::sub(std::move(h), n), n);
}

}  // namespace nimble::kernels
