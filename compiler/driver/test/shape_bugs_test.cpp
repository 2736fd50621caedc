// Bugs that other compilers for dynamic models had with shapes, a test each, named after the bug.
// All run the whole chain; values come from arithmetic done here, not from the compiler.
#include <numeric>

#include "compiler/driver/test/harness.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"

namespace nimble::driver::testing {
namespace {

using ir::Tensor;
using ir::TensorRef;
using Shape = std::vector<int64_t>;

TensorRef counting(Shape shape, float first = 0) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<float> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), first);
  return Tensor::of<float>(DType::kF32, std::move(shape), v);
}
TensorRef ints(std::vector<int64_t> v) {
  const auto n = static_cast<int64_t>(v.size());
  return Tensor::of<int64_t>(DType::kI64, {n}, v);
}

Compiled compiled(const std::string& text) {
  return Compiled(ir::parse_module(text), {"default"});
}

Error refused(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "it ran";
  return Error(Status::kOk, "", "");
}

std::string result_type(const std::string& text) {
  return ir::str(ir::infer_types(ir::parse_module(text)).find("main")->result_type);
}

std::vector<float> floats(const TensorRef& t) {
  return {t->as<float>().begin(), t->as<float>().end()};
}

// Extents that are expressions were believed: kernels read beyond the input.
TEST(ShapeBugs, AnInputsExtentThatIsAnExpressionIsChecked) {
  const std::string text = R"(fn @main(%x: Tensor[(2*n, n*m), f32], %y: Tensor[(n, m), f32]) {
  let %r = reshape(%x) {shape = (2, n, n, m)};
  let %q = add(%r, %y);
  %q
})";
  for (const char* level : {"native", "portable"}) {
    Configuration c{"default"};
    c.target = level;
    Compiled p(ir::parse_module(text), c);
    EXPECT_EQ(p.run("main", {counting({6, 12}), counting({3, 4})})[0]->shape, (Shape{2, 3, 3, 4}));
    for (const Shape& wrong :
         {Shape{5, 12}, Shape{7, 12}, Shape{6, 11}, Shape{0, 12}, Shape{6, 0}}) {
      const Error e = refused([&] { p.run("main", {counting(wrong), counting({3, 4})}); });
      EXPECT_NE(e.problem().find("dim 0 of input x"), std::string::npos) << e.what();
      EXPECT_NE(e.problem().find("x_0 = 2*n"), std::string::npos) << e.what();
      EXPECT_NE(e.problem().find(fmt::format("x_0 is {}, 2*n is 6", wrong[0])), std::string::npos)
          << e.what();
    }
  }
}

// Extents beyond 64 bits wrapped where the tensor lies inside a kernel: the sum of no element.
TEST(ShapeBugs, AnElementCountBeyond63BitsIsAnError) {
  const char* const programs[] = {
      R"(fn @main(%x: Tensor[(n), f32]) {
  let %y = full() {shape = (n*n*n*n*n*n*n*n*n*n), dtype = f32, value = 1.0};
  let %z = sum(%y) {axes = [0], keepdims = false};
  %z
})",
      R"(fn @main(%x: Tensor[(n), f32]) {
  let %y = full() {shape = (n*n*n*n*n, n*n*n*n*n), dtype = f32, value = 1.0};
  let %z = sum(%y) {axes = [0, 1], keepdims = false};
  %z
})"};
  for (const char* text : programs)
    for (const char* level : {"native", "portable"}) {
      Configuration c{"default"};
      c.target = level;
      Compiled p(ir::parse_module(text), c);
      EXPECT_EQ(p.run("main", {counting({2})})[0]->value(0), 1024);
      const Error e = refused([&] { p.run("main", {counting({80})}); });
      EXPECT_NE(e.problem().find("overflow"), std::string::npos) << e.what();
    }
}

// A kernel was told two extents and believed that one is twice the other.
TEST(ShapeBugs, AContractImpliesWhatItsKernelReads) {
  Compiled p = compiled(R"(fn @main(%x: Tensor[(2*n), f32], %y: Tensor[(n), f32]) {
  let %r = reshape(%x) {shape = (2, n)};
  let %q = add(%r, %y);
  %q
})");
  ASSERT_EQ(p.executable().kernels.size(), 1u);
  const exec::KernelContract& c = p.executable().kernels[0].contract;
  ASSERT_EQ(c.symbols.size(), 2u);
  ASSERT_EQ(c.requirements.size(), 1u);
  EXPECT_NE(c.requirements[0].evaluate1(std::vector<int64_t>{8, 4}), 0);
  EXPECT_EQ(c.requirements[0].evaluate1(std::vector<int64_t>{7, 4}), 0);
}

TEST(ShapeBugs, UnknownBatchOfABatchedProductIsNotTakenAsFixed) {
  Compiled c = compiled(R"(fn @main(%x: Tensor[(?, 2, 3), f32], %y: Tensor[(?, 3, 2), f32]) {
  let %z = matmul(%x, %y);
  %z
})");
  for (int64_t b : {0, 1, 5}) {
    const TensorRef z = c.run("main", {counting({b, 2, 3}), counting({b, 3, 2})})[0];
    EXPECT_EQ(z->shape, (Shape{b, 2, 2}));
    if (b == 0) continue;
    EXPECT_EQ(z->value(3), 3 * 1 + 4 * 3 + 5 * 5);
  }
  refused([&] { c.run("main", {counting({2, 2, 3}), counting({3, 3, 2})}); });
}

TEST(ShapeBugs, ABroadcastBatchIsNotTheMaximumOfBoth) {
  Compiled c = compiled(R"(fn @main(%x: Tensor[(a, 1, 1), f32], %y: Tensor[(b, 1, 1), f32]) {
  let %z = matmul(%x, %y);
  %z
})");
  EXPECT_EQ(c.run("main", {counting({1, 1, 1}, 2), counting({3, 1, 1})})[0]->value(2), 4);
  // Here the maximum would be 1, or 3 of 2.
  EXPECT_EQ(c.run("main", {counting({1, 1, 1}), counting({0, 1, 1})})[0]->shape, (Shape{0, 1, 1}));
  refused([&] { c.run("main", {counting({2, 1, 1}), counting({3, 1, 1})}); });
}

TEST(ShapeBugs, BroadcastingDoesNotTakeAnUnknownDimAsOne) {
  Compiled c =
      compiled(R"(fn @main(%x: Tensor[(?, 4), f32], %y: Tensor[(1, 4), f32], %z: Tensor[(?), f32]) {
  let %a = add(%x, %y);
  let %b = add(%a, %z);
  %b
})");
  const TensorRef all = c.run("main", {counting({3, 4}), counting({1, 4}), counting({4})})[0];
  EXPECT_EQ(all->shape, (Shape{3, 4}));
  EXPECT_EQ(all->value(11), 11 + 3 + 3);
  EXPECT_EQ(c.run("main", {counting({3, 4}), counting({1, 4}), counting({1}, 9)})[0]->value(11),
            11 + 3 + 9);
}

TEST(ShapeBugs, AProductOfWhollyUnknownMatricesCompiles) {
  Compiled c = compiled(R"(fn @main(%x: Tensor[(?, ?), f32], %y: Tensor[(?, ?), f32]) {
  let %z = matmul(%x, %y);
  %z
})");
  const TensorRef z = c.run("main", {counting({2, 3}), counting({3, 5})})[0];
  EXPECT_EQ(z->shape, (Shape{2, 5}));
  EXPECT_EQ(z->value(9), 3 * 4 + 4 * 9 + 5 * 14);
  refused([&] { c.run("main", {counting({2, 3}), counting({4, 5})}); });
}

TEST(ShapeBugs, AnEmptyOutputDoesNotSkipTheOthers) {
  Compiled c = compiled(R"(fn @main(%x: Tensor[(n, m), f32]) {
  let %u = unique(%x) {axis = 0, sorted = true};
  %u
})");
  // Three empty rows are one value of three.
  const std::vector<TensorRef> u = c.run("main", {counting({3, 0})});
  EXPECT_EQ(u[0]->shape, (Shape{1, 0}));
  EXPECT_EQ(u[1]->integer(0), 0);
  EXPECT_EQ(u[2]->integer(2), 0);
  EXPECT_EQ(u[3]->integer(0), 3);
}

TEST(ShapeBugs, AConstantCanBeReshaped) {
  Compiled c = compiled(R"(fn @main(%x: Tensor[(n, 2), f32], %s: Tensor[(2), i64]) {
  let %a = reshape(f32[4]{1, 2, 3, 4}) {shape = (2, 2)};
  let %b = reshape(f32[4]{1, 2, 3, 4}, %s);
  let %c = matmul(%x, %a);
  let %r = (%c, %b);
  %r
})");
  const std::vector<TensorRef> r = c.run("main", {counting({1, 2}, 1), ints({4, -1})});
  EXPECT_EQ(floats(r[0]), (std::vector<float>{7, 10}));
  EXPECT_EQ(r[1]->shape, (Shape{4, 1}));
  EXPECT_EQ(r[1]->value(3), 4);
}

TEST(ShapeBugs, ReshapeAndConcatFuseRightly) {
  Compiled c = compiled(R"(fn @main(%x: Tensor[(n, 6), f32], %y: Tensor[(m, 3), f32]) {
  let %e = neg(%x);
  let %r = reshape(%e) {shape = (2*n, 3)};
  let %c = concat(%r, %y) {axis = 0};
  let %t = reshape(%c) {shape = (-1,)};
  let %z = relu(%t);
  %z
})");
  const TensorRef z = c.run("main", {counting({1, 6}, -6), counting({2, 3})})[0];
  EXPECT_EQ(floats(z), (std::vector<float>{6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5}));
}

TEST(ShapeBugs, SlicesTakeNegativeStridesAndHugeBounds) {
  Compiled c = compiled(
      R"(fn @main(%x: Tensor[(n), f32], %a: Tensor[(1), i64], %b: Tensor[(1), i64], %s: Tensor[(1), i64]) {
  let %y = slice(%x, %a, %b, %s) {axes = [0]};
  %y
})");
  auto run = [&](int64_t n, int64_t a, int64_t b, int64_t s) {
    return floats(c.run("main", {counting({n}), ints({a}), ints({b}), ints({s})})[0]);
  };
  using F = std::vector<float>;
  EXPECT_EQ(run(5, -1, INT64_MIN, -2), (F{4, 2, 0}));
  EXPECT_EQ(run(5, INT64_MAX, INT64_MIN, -1), (F{4, 3, 2, 1, 0}));
  EXPECT_EQ(run(5, INT64_MIN, INT64_MAX, 2), (F{0, 2, 4}));
  EXPECT_EQ(run(5, 1, -1, INT64_MAX), (F{1}));
  EXPECT_EQ(run(5, 3, 1, 1), F{});
  EXPECT_EQ(run(0, -1, INT64_MIN, -1), F{});
  EXPECT_EQ(run(1, 0, -2, -1), (F{0}));
  const std::string zero = refused([&] { run(5, 0, 5, 0); }).what();
  EXPECT_NE(zero.find("slice at "), std::string::npos) << zero;
  EXPECT_NE(zero.find("the step of axis 0 is not 0"), std::string::npos) << zero;
  const Error known = refused([&] {
    compiled(
        "fn @main(%x: Tensor[(n), f32]) {\n"
        "  let %y = slice(%x) {axes = [0], starts = (0), ends = (n), steps = [0]};\n  %y\n}");
  });
  EXPECT_EQ(known.status(), Status::kInvalidArgument);
  EXPECT_NE(std::string(known.what()).find("use a positive or negative step"), std::string::npos)
      << known.what();
}

TEST(ShapeBugs, NegativeDimsAreErrors) {
  for (const char* call :
       {"full() {shape = (-1, 2), dtype = f32, value = 0.0}", "reshape(%x) {shape = (-2, 2)}",
        "expand(%x) {shape = (-3, 4)}", "reshape(%x) {shape = (-1, -1)}"}) {
    Error e = refused([&] {
      compiled(fmt::format("fn @main(%x: Tensor[(n), f32]) {{ let %y = {}; %y }}", call));
    });
    EXPECT_EQ(e.status(), Status::kInvalidArgument) << call << ": " << e.what();
  }
  Compiled c = compiled(R"(fn @main(%x: Tensor[(n), f32], %s: Tensor[(2), i64]) {
  let %y = reshape(%x, %s);
  %y
})");
  auto run = [&](std::vector<int64_t> s) { return c.run("main", {counting({6}), ints(s)})[0]; };
  EXPECT_EQ(run({2, 3})->shape, (Shape{2, 3}));
  EXPECT_EQ(run({-1, 2})->shape, (Shape{3, 2}));
  EXPECT_EQ(run({6, -1})->shape, (Shape{6, 1}));
  EXPECT_EQ(run({0, 1})->shape, (Shape{6, 1}));  // 0 copies
  for (const std::vector<int64_t>& s :
       {std::vector<int64_t>{-2, 3}, {-1, -1}, {4, 2}, {-1, 4}, {3, 0}, {INT64_MAX, 2}}) {
    Error e = refused([&] { run(s); });
    EXPECT_EQ(e.status(), Status::kFatal) << s[0] << ", " << s[1] << ": " << e.what();
  }
  EXPECT_EQ(run({3, 2})->shape, (Shape{3, 2}));  // the session goes on
  // Nothing is copied or inferred wrongly where there is nothing.
  auto empty = [&](std::vector<int64_t> s) { return c.run("main", {counting({0}), ints(s)})[0]; };
  EXPECT_EQ(empty({0, 3})->shape, (Shape{0, 3}));
  EXPECT_EQ(empty({-1, 3})->shape, (Shape{0, 3}));
  refused([&] { empty({0, -1}); });
}

TEST(ShapeBugs, NarrowAndWideIntegersMayBothDecideExtents) {
  Compiled c = compiled(
      R"(fn @main(%x: Tensor[(n, 4), f32], %a: Tensor[(1), i32], %k: Tensor[(1), i64]) {
  let %s = slice(%x, %a, %k) {axes = [1]};
  let %t = topk(%x, %a) {axis = 1, largest = false};
  let %v = %t[0];
  let %r = (%s, %v);
  %r
})");
  const auto narrow = Tensor::of<int32_t>(DType::kI32, {1}, std::vector<int32_t>{1});
  const std::vector<TensorRef> r = c.run("main", {counting({2, 4}), narrow, ints({-1})});
  EXPECT_EQ(floats(r[0]), (std::vector<float>{1, 2, 5, 6}));
  EXPECT_EQ(floats(r[1]), (std::vector<float>{0, 4}));
  // In arithmetic they do not mix silently.
  Error e = refused([&] {
    compiled("fn @main(%a: Tensor[(n), i32], %b: Tensor[(n), i64]) { let %c = add(%a, %b); %c }");
  });
  EXPECT_NE(std::string(e.what()).find("cast"), std::string::npos);
}

TEST(ShapeBugs, AllocationArithmeticDoesNotWrap) {
  Compiled c = compiled(R"(fn @main(%s: Tensor[(3), i64]) {
  let %y = full(%s) {dtype = f64, value = 1.0};
  %y
})");
  const int64_t big = int64_t{1} << 31;
  // The product is 2^64 elements: 0 if it wrapped.
  Error e = refused([&] { c.run("main", {ints({big, big, 4})}); });
  EXPECT_TRUE(e.status() == Status::kFatal || e.status() == Status::kExhausted) << e.what();
  // 2^61 elements fit 63 bits, their bytes do not.
  refused([&] { c.run("main", {ints({big, int64_t{1} << 30, 1})}); });
  EXPECT_EQ(c.run("main", {ints({big, 0, 4})})[0]->shape, (Shape{big, 0, 4}));
}

TEST(ShapeBugs, ASizeBeyondItsDeclaredBoundIsRefused) {
  Compiled c = compiled(R"(fn @main(%x: Tensor[(n), f32]) attrs {range.n = [2, 8, 2]} {
  let %y = exp(%x);
  %y
})");
  EXPECT_EQ(c.run("main", {counting({8})})[0]->shape, (Shape{8}));
  for (int64_t n : {0, 1, 3, 9, 100}) {
    Error e = refused([&] { c.run("main", {counting({n})}); });
    EXPECT_NE(std::string(e.what()).find("range.n"), std::string::npos) << e.what();
  }
}

TEST(ShapeBugs, WhatABatchOfUnknownExtentsReturnsIsTypedAsUnknown) {
  EXPECT_EQ(result_type(R"(fn @main(%x: Tensor[(a, 2, 3), f32], %y: Tensor[(b, 3, 2), f32]) {
  let %z = matmul(%x, %y);
  %z
})"),
            "Tensor[(broadcast(a, b), 2, 2), f32]");
}

}  // namespace
}  // namespace nimble::driver::testing
