// Elementary functions as kernel IR: every function takes a value of any lanes of f32 or f64 and
// gives one of the same type, written with arithmetic only, so that the same polynomial serves the
// interpreter, every CPU and every vector width, and no library is called.
//
// Errors below are the largest measured against the exact value over dense samples of all finite
// arguments (math_test.cpp repeats this), in units in the last place for f32 and relative for f64.
// Results may differ in the last place between targets with and without FMA.
// Special values: NaN gives NaN; infinities, zeros and their signs as in C's <math.h>.
#pragma once

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir::math {

ValueRef exp(ValueRef x);       // f32: 2 ulp, gradual underflow included. f64: 1e-15
ValueRef expm1(ValueRef x);     // f32: 3 ulp. f64: 1e-15
ValueRef log(ValueRef x);       // f32: 2 ulp. f64: 1e-15. Subnormal arguments are exact
ValueRef log1p(ValueRef x);     // f32: 4 ulp. f64: 1e-15
ValueRef tanh(ValueRef x);      // f32: 4 ulp. f64: 1e-15
ValueRef sigmoid(ValueRef x);   // 1 / (1 + exp(-x)). f32: 4 ulp. f64: 1e-15
ValueRef erf(ValueRef x);       // f32: 4 ulp. f64: 1e-14
ValueRef softplus(ValueRef x);  // log(1 + exp(x)). f32: 4 ulp. f64: 1e-15
// f32: 2 ulp. f64: 1e-15 absolute. Of all finite arguments; beyond 2^20 on a slower path, which
// machine code takes only for vectors with such an element.
ValueRef sin(ValueRef x);
ValueRef cos(ValueRef x);
ValueRef atan(ValueRef x);  // f32: 3 ulp. f64: 1e-15
// exp for the weights of a softmax: 0 where the result would be below 1.0001 times the smallest
// normal number, and no step on the way meets a subnormal one. An Intel core takes more than a
// hundred cycles for each instruction that does, and the masked places of a softmax (at -100, say)
// are full of them.
ValueRef exp_flushed(ValueRef x);
// x^y. f32: 2 ulp (computed in f64). f64: relative error up to |y log x| * 1e-15. C's special
// cases, except that a NaN operand always gives NaN unless y is 0 or x is 1.
ValueRef pow(ValueRef x, ValueRef y);
// What a BinaryOp::kScale computes, in other operators, for machines without an instruction for it.
ValueRef scale(ValueRef x, ValueRef n);

}  // namespace nimble::kir::math
