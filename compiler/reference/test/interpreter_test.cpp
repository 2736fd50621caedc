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

TEST(Interpreter, AFailureStopsARunWhereItIsNeeded) {
  const ir::Module m = ir::infer_types(ir::parse_module(R"(
fn @row(%x: Tensor[(n), f32], %i: Tensor[(), i64], %other: Tensor[(), f32]) {
  let %v = take_row(%x, %i);
  let %pair = (%v, %other);
  %pair
}
fn @unused(%x: Tensor[(n), f32], %i: Tensor[(), i64]) {
  let %pair = @row(%x, %i, 5f32);
  let %r = %pair[1];
  %r
}
fn @used(%x: Tensor[(n), f32], %i: Tensor[(), i64]) {
  let %pair = @row(%x, %i, 5f32);
  let %v = %pair[0];
  let %w = neg(%v);
  %w
}
fn @decides(%x: Tensor[(n), f32], %i: Tensor[(), i64]) {
  let %v = take_row(%x, %i);
  let %c = less(%v, 0f32);
  let %r = if (%c) { 1f32 } else { 1f32 };
  %r
}
fn @extents(%x: Tensor[(n, 2), f32], %i: Tensor[(), i64]) {
  let %v = take_row(%x, %i);
  let %s = shape_of(%v);
  %s
}
fn @checked(%x: Tensor[(n), f32], %y: Tensor[(m), f32], %c: Tensor[(), bool]) {
  let %r = if (%c) {
    let %sum = matmul(%x, %y);
    %sum
  } else { 2f32 };
  let %both = (%r, 3f32);
  let %three = %both[1];
  let %two = (%three, %both);
  %two
})"));
  Interpreter lazy(m, {}, Failures::kWhereNeeded);
  const std::vector<ir::TensorRef> inside = {vector({1, 2}), Tensor::scalar_i64(1)},
                                   beyond = {vector({1, 2}), Tensor::scalar_i64(7)};
  EXPECT_EQ(lazy.run_tensors("unused", beyond)[0]->value(0), 5);
  EXPECT_EQ(status_of([&] { Interpreter(m).run_tensors("unused", beyond); }), Status::kFatal);
  for (const char* f : {"used", "decides"}) {
    EXPECT_EQ(status_of([&] { lazy.run_tensors(f, inside); }), Status::kOk) << f;
    EXPECT_EQ(status_of([&] { lazy.run_tensors(f, beyond); }), Status::kFatal) << f;
    EXPECT_TRUE(lazy.failed_for_certain()) << f;
  }
  const ir::TensorRef x = Tensor::of<float>(DType::kF32, {2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(status_of([&] {
              lazy.run_tensors("extents", {x, Tensor::scalar_i64(7)});
            }),
            Status::kFatal);
  EXPECT_FALSE(lazy.failed_for_certain()) << "the extents may be known without the row";

  // A failed check takes its block's value, and no more.
  const auto run = [&](uint8_t c) {
    return lazy.run("checked", {value_of(vector({1, 2})), value_of(vector({1, 2, 3})),
                                value_of(Tensor::of<uint8_t>(DType::kBool, {}, {c}))});
  };
  EXPECT_EQ(str(run(0)), "(3f32, (2f32, 3f32))");
  EXPECT_EQ(str(run(1)), "(3f32, (failed, 3f32))");
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
  for (const char* call :
       {"gather(%x, i64[1]{2}) {axis = 0}", "gather(%x, i64[1]{-3}) {axis = 0}",
        "take_row(%x, 2i64)", "write_row(%x, 5i64, 1.0f32)", "take_rows(%x, 1i64) {count = 2}",
        "take_rows(%x, -1i64) {count = 1}", "write_row(%x, 1i64, f32[2]{1, 2})"}) {
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
