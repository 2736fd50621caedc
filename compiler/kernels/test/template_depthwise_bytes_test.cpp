// The template of depthwise convolutions of bytes against the reference interpreter, on every level
// that multiplies otherwise. Sums are exact.
#include <functional>
#include <memory>

#include "compiler/kernels/test/at_level.h"
#include "compiler/kernels/test/image_cases.h"
#include "compiler/kernels/test/operator_rows.h"

namespace nimble::kernels::testing {
namespace {

constexpr const char* kRelu = "let %r = relu(%y);";

// `behind`: statements that make %r of %y; `more`: parameters; `image`: its extents but channels.
Case of_bytes(const Filter& f, const std::string& behind = kRelu, const std::string& more = "",
              const std::string& image = "b, h, w") {
  Case c = convolution(f, "depthwise_bytes");
  c.text = fmt::format(
      "fn @f(%x: Tensor[({}, {}), u8], %w: Tensor[({}, {}, 1, {}), i8], %c: Tensor[({}), i32]{}) "
      "{{ let %y = conv2d(%x, %w, %c) {{{}, groups = {}, out = i32, layout = \"nhwc\"}}; {} %r }}",
      image, f.in, f.kh, f.kw, f.out, f.out, more, f.attributes(), f.groups, behind);
  c.oracle = by_reference(c.text);
  for (const auto& s : Sizes{{1, 0, 9}, {1, 9, 0}})
    if (f.fits(s[1], s[2])) c.sizes.push_back(s);
  c.tolerance = 0;
  c.low = -127, c.high = 127;
  c.configurations = 4;
  return c;
}

class DepthwiseBytes : public AtLevel {};

TEST_P(DepthwiseBytes, WindowsStridesPaddingDilation) {
  check_each({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 24, 24, 24},
              {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 58, 58, 58},
              {5, 5, 2, 2, 2, 2, 2, 2, 1, 1, 40, 40, 40},
              {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3},
              {3, 3, 1, 2, 0, 2, 1, 0, 1, 1, 1, 1, 1},
              {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 160, 160, 160},
              {2, 3, 1, 1, 0, 0, 0, 0, 1, 1, 16, 16, 16},
              {7, 2, 3, 1, 3, 0, 2, 1, 1, 3, 33, 33, 33},
              {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 32, 32, 32},
              {1, 9, 1, 1, 0, 4, 0, 4, 1, 1, 20, 20, 20},
              {9, 1, 1, 2, 8, 0, 0, 0, 1, 1, 20, 20, 20},
              {2, 2, 1, 1, 2, 1, 1, 0, 1, 1, 8, 8, 8}},
             [](const Filter& f) { return of_bytes(f); });
}

// Code for each column would be too much.
TEST_P(DepthwiseBytes, LongFilters) {
  check_each({{5, 33, 1, 1, 2, 16, 2, 16, 1, 1, 24, 24, 24},
              {1, 61, 1, 2, 0, 60, 0, 1, 1, 1, 17, 17, 17},
              {6, 29, 2, 1, 5, 28, 5, 28, 1, 2, 16, 16, 16}},
             [](const Filter& f) {
               Case c = of_bytes(f);
               c.configurations = 3;
               return c;
             });
}

// Products of one sign, all of a filter's.
TEST_P(DepthwiseBytes, ProductsOfOneSign) {
  Case c = of_bytes({5, 5, 1, 1, 2, 2, 2, 2, 1, 1, 19, 19, 19});
  c.sizes = {{1, 6, 9}};
  c.configurations = 1;
  for (const auto& [low, high] : {std::pair(-128.0, -128.0), std::pair(127.0, 127.0)}) {
    c.low = low, c.high = high;
    check(c);
    if (HasFatalFailure()) return;
  }
}

TEST_P(DepthwiseBytes, QuantisedResults) {
  const std::string quantise =
      "let %f = cast(%y) {{dtype = f32}}; let %m = mul(%f, 0.015625f32); let %n = round(%m); "
      "let %z = add(%n, {0}f32); let %k = clip(%z) {{min = {1}, max = {2}}}; "
      "let %r = cast(%k) {{dtype = {3}}};";
  for (const std::string& behind :
       {fmt::format(fmt::runtime(quantise), 0, "0.0", "255.0", "u8"),
        fmt::format(fmt::runtime(quantise), 113, "0.0", "255.0", "u8"),
        fmt::format(fmt::runtime(quantise), -7, "-128.0", "127.0", "i8"),
        fmt::format(fmt::runtime(quantise), 100, "3.0", "200.0", "u8")}) {
    SCOPED_TRACE(behind);
    Case c = of_bytes({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 40, 40, 40}, behind);
    c.configurations = 3;
    check(c);
    if (HasFatalFailure()) return;
  }
}

TEST_P(DepthwiseBytes, ResidualsOfBytes) {
  Case c = of_bytes({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 24, 24, 24},
                    "let %f = cast(%y) {dtype = f32}; let %m = mul(%f, 0.5f32); "
                    "let %v = cast(%s) {dtype = f32}; let %r = add(%m, %v);",
                    ", %s: Tensor[(b, h, w, 24), u8]");
  check(c);
}

TEST_P(DepthwiseBytes, KnownExtents) {
  for (const int64_t extent : {7, 14, 28}) {
    Case c = of_bytes({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 32, 32, 32}, kRelu, "",
                      fmt::format("1, {0}, {0}", extent));
    c.sizes = {{}};
    check(c);
    if (HasFatalFailure()) return;
  }
}

// ---------------------------------------------------------------- faults that tests must see

using Change = std::function<void(kir::Stmt&)>;
kir::StmtRef changed(const kir::StmtRef& s, const Change& change) {
  auto copy = std::make_shared<kir::Stmt>(*s);
  change(*copy);
  for (kir::StmtRef& inner : copy->body) inner = changed(inner, change);
  return copy;
}
kir::ValueRef changed(const kir::ValueRef& v, const std::function<void(kir::Value&)>& change) {
  auto copy = std::make_shared<kir::Value>(*v);
  change(*copy);
  for (kir::ValueRef& inner : copy->operands) inner = changed(inner, change);
  return copy;
}

// Whether the default kernel of 3 x 3 taps still computes what it should after a change.
bool is_right_after(const TargetInfo& target, const Change& change, int* changes) {
  const Case c = of_bytes({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 24, 24, 24});
  const Workload w = workload_of(c.text);
  const Template* t = template_for(w, target);
  Lowered lowered = t->lower(w, t->default_config(w, target), target, "k");
  kir::Function f = lowered.functions.at(0);
  f.body = changed(f.body, change);
  EXPECT_GT(*changes, 0);
  const std::vector<int64_t> symbols = {1, 9, 11};
  std::mt19937 random(5);
  Arrays in, out(1);
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1, 9, 11, 24}, {3, 3, 1, 24}, {24}}) {
    Array a{shape, {}};
    // All bytes: of weights and biases signed ones.
    const double least = in.empty() ? 0 : -128;
    for (int64_t i = 0; i < a.size(); ++i) a.v.push_back(random() % 256 + least);
    in.push_back(std::move(a));
  }
  out[0].shape = {1, 9, 11, 24};
  out[0].v.assign(static_cast<size_t>(out[0].size()), 0);
  Arrays expected = out;
  c.oracle(in, expected);
  std::vector<std::vector<std::byte>> bytes(4);
  const DType types[] = {DType::kU8, DType::kI8, DType::kI32, DType::kI32};
  for (size_t i = 0; i < 4; ++i) to_bytes(i < 3 ? in[i] : out[0], types[i], bytes[i]);
  std::vector<std::span<std::byte>> buffers(bytes.begin(), bytes.end());
  EXPECT_EQ(kir::Interpreter(f).run(buffers, symbols, 2), 0);
  from_bytes(bytes[3], DType::kI32, out[0]);
  return out[0].v == expected[0].v;
}

TEST_P(DepthwiseBytes, AMissingTapIsSeen) {
  int changes = 0;
  EXPECT_TRUE(is_right_after(
      target_, [&](kir::Stmt&) { ++changes; }, &changes));
  // The first column of the image is left out at the border.
  changes = 0;
  EXPECT_FALSE(is_right_after(
      target_,
      [&](kir::Stmt& s) {
        if (s.kind != kir::StmtKind::kIf || s.condition.terms.size() != 2) return;
        kir::Condition::Term& first = s.condition.terms[0];
        if (!first.a.is_constant(0) || first.op != kir::Condition::Op::kLe) return;
        first.a = kir::Dim(1);
        ++changes;
      },
      &changes));
  // Its last row is.
  changes = 0;
  EXPECT_FALSE(is_right_after(
      target_,
      [&](kir::Stmt& s) {
        if (s.kind != kir::StmtKind::kLet || !s.var.starts_with("keep")) return;
        s.value = changed(s.value, [&](kir::Value& v) {
          if (v.kind != kir::ValueKind::kCompare || v.compare != kir::CompareOp::kLt) return;
          v.operands[1] = kir::build::sub(v.operands[1], kir::build::integer(DType::kI64, 1));
          ++changes;
        });
      },
      &changes));
}

INSTANTIATE_TEST_SUITE_P(Levels, DepthwiseBytes, levels_of_bytes(), name_of_level);

}  // namespace
}  // namespace nimble::kernels::testing
