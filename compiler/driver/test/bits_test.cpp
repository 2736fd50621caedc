// Results whose every bit matters, on every way to run: bits of NaNs that arithmetic would change,
// and random numbers, which must be the reference's wherever a program runs.
#include <algorithm>

#include "compiler/driver/test/harness.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"

namespace nimble::driver::testing {
namespace {

std::vector<Configuration> ways() {
  std::vector<Configuration> out;
  for (const char* target : {"native", "x86-64-v2", "portable"}) {
    Configuration c;
    c.name = target;
    c.target = target;
    out.push_back(c);
  }
  out.push_back({.name = "two threads", .threads = 2});
  out.push_back({.name = "checked", .no_native = true});
  return out;
}

void expect_same_bytes(const char* text, const std::vector<ir::TensorRef>& inputs) {
  const ir::Module m = ir::infer_types(ir::parse_module(text));
  const auto expected = reference::Interpreter(m).run_tensors("main", inputs);
  for (const Configuration& c : ways()) {
    SCOPED_TRACE(c.name);
    const auto actual = Compiled(m, c).run("main", inputs);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(actual[i]->shape, expected[i]->shape);
      EXPECT_TRUE(std::ranges::equal(actual[i]->bytes, expected[i]->bytes)) << "result " << i;
    }
  }
}

// Quiet and signalling, of both signs, with payloads, between numbers.
TEST(Bits, OfNaNsAreKept) {
  std::vector<uint32_t> wide;
  std::vector<uint16_t> narrow;
  for (int i = 0; i < 37; ++i) {
    wide.push_back(i % 3 ? 0x7f800001u + static_cast<uint32_t>(i) * 0x80000u : 0xff812345u);
    narrow.push_back(static_cast<uint16_t>(i % 3 ? 0x7c01 + i * 16 : 0xfd55));
  }
  const auto w = ir::Tensor::of(DType::kU32, {37}, wide);
  const auto n = ir::Tensor::of(DType::kU16, {37}, narrow);
  expect_same_bytes(R"(
fn @main(%w: Tensor[(n), u32], %h: Tensor[(n), u16]) {
  let %f = bitcast(%w) {dtype = f32};
  let %g = bitcast(%h) {dtype = f16};
  let %b = bitcast(%h) {dtype = bf16};
  let %r = (%f, %g, %b);
  %r
})",
                    {w, n});
  // And read from memory.
  const auto typed = [](const ir::TensorRef& t, DType as) {
    auto out = std::make_shared<ir::Tensor>(*t);
    out->dtype = as;
    return ir::TensorRef(out);
  };
  expect_same_bytes(R"(
fn @main(%f: Tensor[(n), f32], %g: Tensor[(n), f16], %b: Tensor[(n), bf16]) {
  let %x = bitcast(%f) {dtype = i32};
  let %y = bitcast(%g) {dtype = i16};
  let %z = bitcast(%b) {dtype = u16};
  let %r = (%x, %y, %z);
  %r
})",
                    {typed(w, DType::kF32), typed(n, DType::kF16), typed(n, DType::kBF16)});
}

// What ONNX's RandomUniform becomes: bits, a power of two, an interval.
TEST(Bits, OfUniformNumbersAreTheReferences) {
  for (int64_t n : {0, 1, 7, 64, 1031})
    expect_same_bytes(R"(
fn @main(%x: Tensor[(n), f32], %stream: Tensor[(), i64]) {
  let %at = range() {start = 0, step = 1, count = n, dtype = i64};
  let %bits = random_bits(%at, %stream) {key = 42};
  let %upper = shift_right(%bits, u64[]{40});
  let %whole = cast(%upper) {dtype = i64};
  let %number = cast(%whole) {dtype = f32};
  let %unit = mul(%number, 5.9604644775390625e-08f32);
  let %wide = mul(%unit, 7.3f32);
  let %y = add(%wide, -2.1f32);
  let %z = add(%y, %x);
  let %r = (%bits, %y, %z);
  %r
})",
                      {ir::Tensor::of(DType::kF32, {n}, std::vector<float>(size_t(n), 0.37f)),
                       ir::Tensor::of(DType::kI64, {}, std::vector<int64_t>{-5})});
}

}  // namespace
}  // namespace nimble::driver::testing
