// What a kernel is told of extents, and what the compiler believes of them, through the whole
// chain; values come from arithmetic done here, not from the compiler. Shapes that other compilers
// had trouble with are programs of bugs_of_others_test.cpp.
#include <numeric>

#include "compiler/driver/test/harness.h"
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

// Its shape may come with the inputs.
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

}  // namespace
}  // namespace nimble::driver::testing
