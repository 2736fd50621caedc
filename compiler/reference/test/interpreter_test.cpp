// Control flow, closures, limits and errors of the reference interpreter.
#include <gtest/gtest.h>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"

namespace nimble::reference {
namespace {

using ir::Tensor;

ir::TensorRef vector(std::vector<float> v) {
  auto n = static_cast<int64_t>(v.size());
  return Tensor::of<float>(DType::kF32, {n}, v);
}

Status status_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.status();
  }
  return Status::kOk;
}

constexpr const char* kLoop = R"(
fn @loop(%i: Tensor[(), i64], %s: Tensor[(), i64]) -> Tensor[(), i64] {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %t = add(%s, %i);
    let %j = sub(%i, 1i64);
    let %u = @loop(%j, %t);
    %u
  } else { %s };
  %r
}
fn @deep(%i: Tensor[(), i64]) -> Tensor[(), i64] {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %j = sub(%i, 1i64);
    let %u = @deep(%j);
    let %v = add(%u, 1i64);
    %v
  } else { 0i64 };
  %r
})";

TEST(Interpreter, TailCallsCountNoDepth) {
  ir::Module m = ir::parse_module(kLoop);
  Limits limits;
  limits.max_depth = 10;
  Interpreter interpreter(m, limits);
  auto sum = interpreter.run_tensors("loop", {Tensor::scalar_i64(1000), Tensor::scalar_i64(0)});
  EXPECT_EQ(sum[0]->integer(0), 500500);
  EXPECT_EQ(interpreter.run_tensors("deep", {Tensor::scalar_i64(8)})[0]->integer(0), 8);
  EXPECT_EQ(status_of([&] { interpreter.run_tensors("deep", {Tensor::scalar_i64(20)}); }),
            Status::kExhausted);
  EXPECT_EQ(interpreter.run_tensors("deep", {Tensor::scalar_i64(3)})[0]->integer(0), 3)
      << "usable after an error";
}

TEST(Interpreter, StepsAreLimited) {
  Limits limits;
  limits.max_steps = 50;
  Interpreter interpreter(ir::parse_module(kLoop), limits);
  EXPECT_EQ(status_of([&] {
              interpreter.run_tensors("loop", {Tensor::scalar_i64(1000), Tensor::scalar_i64(0)});
            }),
            Status::kExhausted);
}

TEST(Interpreter, ClosuresCaptureValuesAndSymbols) {
  ir::Module m = ir::infer_types(ir::parse_module(R"(fn @main(%x: Tensor[(n), f32]) {
  let %f = fn(%y: Tensor[(n), f32]) {
    let %z = add(%x, %y);
    let %k = size() {value = n};
    let %c = cast(%k) {dtype = f32};
    let %w = mul(%z, %c);
    %w
  };
  let %e = neg(%x);
  let %a = %f(%x);
  let %b = %f(%e);
  let %r = (%a, %b);
  %r
})"));
  auto out = Interpreter(m).run_tensors("main", {vector({1, 2})});
  EXPECT_EQ(out[0]->value(1), 8);
  EXPECT_EQ(out[1]->value(1), 0);
}

TEST(Interpreter, TuplesGoInAndOut) {
  ir::Module m = ir::parse_module(
      "fn @main(%t: (Tensor[(n), f32], Tensor[(), i64])) { let %a = %t[0]; let %b = %t[1]; let %r "
      "= "
      "(%b, %a); %r }");
  ValueRef out = Interpreter(m).run(
      "main", {tuple_of({value_of(vector({1, 2})), value_of(Tensor::scalar_i64(7))})});
  EXPECT_EQ(out->fields[0]->tensor->integer(0), 7);
  EXPECT_EQ(out->fields[1]->tensor->value(1), 2);
}

TEST(Interpreter, ShapeChecksFailAtRunTime) {
  ir::Module m = ir::infer_types(ir::parse_module(
      "fn @main(%x: Tensor[(n), f32], %y: Tensor[(m), f32], %z: Tensor[(n), f32]) { let %s = "
      "add(%x, %y); %s }"));
  Interpreter interpreter(m);
  EXPECT_EQ(
      interpreter.run_tensors("main", {vector({1, 2}), vector({3}), vector({0, 0})})[0]->value(1),
      5);
  EXPECT_NE(status_of([&] {
              interpreter.run_tensors("main", {vector({1, 2}), vector({3, 4, 5}), vector({0, 0})});
            }),
            Status::kOk);
  EXPECT_EQ(status_of([&] {
              interpreter.run_tensors("main", {vector({1, 2}), vector({3}), vector({0})});
            }),
            Status::kFatal)
      << "n is 2 and 1";
}

TEST(Interpreter, ArgumentsAreChecked) {
  Interpreter interpreter(
      ir::parse_module("fn @main(%x: Tensor[(n, 2), f32]) { let %y = neg(%x); %y }"));
  EXPECT_EQ(status_of([&] { interpreter.run_tensors("main", {vector({1})}); }), Status::kFatal);
  EXPECT_EQ(status_of([&] { interpreter.run_tensors("main", {Tensor::scalar_i64(1)}); }),
            Status::kFatal);
  EXPECT_EQ(status_of([&] {
              interpreter.run_tensors(
                  "main", {Tensor::of<float>(DType::kF32, {1, 3}, std::vector<float>(3))});
            }),
            Status::kFatal);
  EXPECT_EQ(status_of([&] { interpreter.run_tensors("main", {}); }), Status::kInvalidArgument);
  EXPECT_EQ(status_of([&] { interpreter.run_tensors("mean", {}); }), Status::kNotFound);
}

TEST(Interpreter, IndicesOutOfRangeAreErrors) {
  for (const char* call : {"gather(%x, i64[1]{2}) {axis = 0}", "gather(%x, i64[1]{-3}) {axis = 0}",
                           "take_row(%x, 2i64)", "write_row(%x, 5i64, 1.0f32)"}) {
    Interpreter interpreter(ir::parse_module(
        fmt::format("fn @main(%x: Tensor[(n), f32]) {{ let %y = {}; %y }}", call)));
    EXPECT_NE(status_of([&] {
                interpreter.run_tensors("main", {vector({1, 2})});
              }),
              Status::kOk)
        << call;
  }
}

TEST(Interpreter, TellsWhichOperatorsItHas) {
  EXPECT_TRUE(has_reference("matmul"));
  EXPECT_FALSE(has_reference("memory.kill"));
  EXPECT_EQ(status_of([] {
              evaluate_op(*ir::make_call("memory.kill", {}), {Tensor::scalar_i64(1)}, {});
            }),
            Status::kUnsupported);
}

}  // namespace
}  // namespace nimble::reference
