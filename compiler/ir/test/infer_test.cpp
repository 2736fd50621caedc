#include "compiler/ir/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/builder.h"
#include "compiler/ir/dim_prover_statistics.h"
#include "compiler/ir/test/inference.h"
#include "compiler/ir/text.h"
#include "vm/base/error.h"

namespace nimble::ir {
namespace {

using testing::HasSubstr;

TEST(Infer, DenseLayer) {
  const std::string t = infer(R"(
fn @main(%x: Tensor[(n, 300), f32], %w: Tensor[(300, 512), f32], %b: Tensor[(512), f32]) {
  let %y = matmul(%x, %w);
  let %z = add(%y, %b);
  let %r = relu(%z);
  %r
})");
  EXPECT_THAT(t, HasSubstr("-> Tensor[(n, 512), f32]"));
  EXPECT_THAT(t, testing::Not(HasSubstr("assert_shape")));
}

TEST(Infer, ExportedShapeChainKeepsDims) {
  const std::string t = infer(R"(
fn @main(%x: Tensor[(batch, seq, 384), f32]) {
  let %s0 = shape_of(%x);
  let %b = gather(%s0, 0i64) {axis = 0};
  let %s1 = shape_of(%x);
  let %n = gather(%s1, i64[1]{1}) {axis = 0};
  let %b1 = unsqueeze(%b) {axes = [0]};
  let %shape = concat(%b1, %n, i64[2]{12, 32}) {axis = 0};
  let %heads = reshape(%x, %shape);
  let %t = transpose(%heads) {axes = [0, 2, 1, 3]};
  let %twice = mul(%n, 2i64);
  let %half = div(%twice, 2i64);
  let %flat_shape = concat(i64[1]{-1}, i64[1]{384}) {axis = 0};
  let %back = transpose(%t) {axes = [0, 2, 1, 3]};
  let %flat = reshape(%back, %flat_shape);
  let %shape2 = concat(%b1, %half, i64[1]{384}) {axis = 0};
  let %again = reshape(%flat, %shape2);
  let %sum = add(%again, %x);
  %sum
})");
  EXPECT_THAT(t, HasSubstr("%t: Tensor[(batch, 12, seq, 32), f32]"));
  EXPECT_THAT(t, HasSubstr("%flat: Tensor[(batch*seq, 384), f32]"));
  EXPECT_THAT(t, HasSubstr("-> Tensor[(batch, seq, 384), f32]"));
  EXPECT_THAT(t, testing::Not(HasSubstr("assert_shape")));
}

TEST(Infer, ExpandByWhereOverShapes) {  // the TorchScript exporter's expand
  const std::string t = infer(R"(
fn @main(%x: Tensor[(b, 1, 1, n), f32]) {
  let %s = shape_of(%x);
  let %b = gather(%s, i64[1]{0}) {axis = 0};
  let %want = concat(%b, i64[2]{-1, 4}, i64[1]{-1}) {axis = 0};
  let %is = equal(%want, -1i64);
  let %ones = full() {shape = (4), dtype = i64, value = 1};
  let %shape = where(%is, %ones, %want);
  let %y = expand(%x, %shape);
  %y
})");
  EXPECT_THAT(t, HasSubstr("-> Tensor[(b, 1, 4, n), f32]"));
}

TEST(Infer, BackwardRefinementOfUnknownDims) {
  const std::string t = infer(R"(
fn @main(%x: Tensor[(n, 300), f32], %w: Tensor[(?, ?), f32], %h: Tensor[(n, ?), f32], %v: Tensor[(?, 512), f32]) {
  let %y = matmul(%x, %w);
  let %z = matmul(%h, %v);
  let %c = concat(%y, %z) {axis = 0};
  %c
})");
  EXPECT_THAT(t, HasSubstr("%w: Tensor[(300, 512), f32]"));
  EXPECT_THAT(t, HasSubstr("-> Tensor[(2*n, 512), f32]"));
  EXPECT_THAT(t, testing::Not(HasSubstr("assert_shape")));
}

TEST(Infer, UnprovableEqualityIsAssertedOnce) {
  const std::string t = infer(R"(
fn @main(%x: Tensor[(n, k), f32], %w: Tensor[(m, 4), f32]) {
  let %y = matmul(%x, %w);
  let %z = matmul(%x, %w);
  let %s = add(%y, %z);
  %s
})");
  EXPECT_THAT(t, HasSubstr("assert_shape(%x) {left = (k), right = (m), what = \"matmul: the "
                           "contracted dim of matmul\"}"));
  EXPECT_EQ(t.find("assert_shape", t.find("assert_shape") + 5), std::string::npos);
}

TEST(Infer, NothingRefinesInsideABranch) {
  const std::string t = infer(R"(
fn @main(%c: Tensor[(), bool], %x: Tensor[(n, 4), f32], %w: Tensor[(?, 4), f32]) {
  let %r = if (%c) {
    let %y = matmul(%x, %w);
    %y
  } else { %x };
  %r
})");
  EXPECT_THAT(t, HasSubstr("assert_shape"));
  EXPECT_THAT(t, testing::Not(HasSubstr("%w: Tensor[(4, 4), f32]")));
}

TEST(Infer, SliceOfATableAgainstTheSequence) {
  const std::string t = infer(R"(
fn @main(%x: Tensor[(b, n, 384), f32], %table: Tensor[(512, 384), f32], %ids: Tensor[(1, 512), i64]) {
  let %p = slice(%ids) {axes = [1], starts = (0), ends = (n)};
  let %e = gather(%table, %p) {axis = 0};
  let %y = add(%x, %e);
  let %q = slice(%ids) {axes = [1], starts = (0), ends = (n)};
  %y
})");
  EXPECT_THAT(t, HasSubstr("left = (min(512, n)), right = (n)"));
  EXPECT_THAT(t, HasSubstr("-> Tensor[(b, n, 384), f32]"));
  EXPECT_THAT(t, HasSubstr("%q: Tensor[(1, n), i64]"));  // n <= 512 is known by now
}

const char* const kLoop = R"(
fn @loop(%i: Tensor[(), i64], %h: Tensor[(1, 512), f32], %c: Tensor[(1, 512), f32],
         %xs: Tensor[(n, 1, 2048), f32], %w: Tensor[(512, 2048), f32],
         %out: Tensor[(n, 1, 512), f32]) -> Tensor[(n, 1, 512), f32] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %gates = take_row(%xs, %i);
    let %hc = lstm_cell(%gates, %h, %c, %w);
    let %h2 = %hc[0];
    let %c2 = %hc[1];
    let %out2 = write_row(%out, %i, %h2);
    let %i2 = add(%i, 1i64);
    let %rest = @loop(%i2, %h2, %c2, %xs, %w, %out2);
    %rest
  } else { %out };
  %r
}
fn @main(%x: Tensor[(m, 1, 300), f32], %wi: Tensor[(300, 2048), f32], %w: Tensor[(512, 2048), f32]) {
  let %xs = matmul(%x, %wi);
  let %zero = full() {shape = (1, 512), dtype = f32, value = 0.0};
  let %out = full() {shape = (m, 1, 512), dtype = f32, value = 0.0};
  let %r = @loop(0i64, %zero, %zero, %xs, %w, %out);
  %r
})";

TEST(Infer, LstmAsARecursiveFunction) {
  const std::string t = infer(kLoop);
  EXPECT_THAT(t, HasSubstr("%w: Tensor[(512, 2048), f32]) -> Tensor[(m, 1, 512), f32]"));
  EXPECT_THAT(t, testing::Not(HasSubstr("assert_shape")));
}

TEST(Infer, GrowingTensorIsUnknownInThatDim) {
  const std::string t = infer(R"(
fn @grow(%i: Tensor[(), i64], %x: Tensor[(n, 4), f32], %row: Tensor[(1, 4), f32]) -> Tensor[(?, 4), f32] {
  let %done = less(%i, 1i64);
  let %r = if (%done) { %x } else {
    let %more = concat(%x, %row) {axis = 0};
    let %j = sub(%i, 1i64);
    let %rest = @grow(%j, %more, %row);
    %rest
  };
  %r
}
fn @main(%i: Tensor[(), i64], %row: Tensor[(1, 4), f32]) {
  let %all = @grow(%i, %row, %row);
  let %y = relu(%all);
  %y
})");
  EXPECT_THAT(t, testing::ContainsRegex("%all: Tensor\\[\\(\\?[0-9]+, 4\\), f32\\]"));
}

TEST(Infer, JoinsBranches) {
  const std::string t = infer(R"(
fn @main(%c: Tensor[(), bool], %x: Tensor[(n, 4), f32], %y: Tensor[(m, 4), f32]) {
  let %r = if (%c) { %x } else { %y };
  let %s = shape_of(%r);
  let %n = gather(%s, i64[1]{0}) {axis = 0};
  let %shape = concat(%n, i64[2]{2, 2}) {axis = 0};
  let %z = reshape(%r, %shape);
  %z
})");
  EXPECT_THAT(t, testing::ContainsRegex("-> Tensor\\[\\(\\?[0-9]+, 2, 2\\), f32\\]"));
}

TEST(Infer, CalleesArePolymorphicInTheirDims) {
  const std::string t = infer(R"(
fn @main(%x: Tensor[(a, 8), f32], %y: Tensor[(b, c), f32]) {
  let %p = @twice(%x);
  let %q = @twice(%y);
  let %r = (%p, %q);
  %r
}
fn @twice(%x: Tensor[(n, m), f32]) {
  let %y = concat(%x, %x) {axis = 0};
  let %z = concat(%y, %y) {axis = 1};
  %z
})");
  EXPECT_THAT(t, HasSubstr("%p: Tensor[(2*a, 16), f32]"));
  EXPECT_THAT(t, HasSubstr("%q: Tensor[(2*b, 2*c), f32]"));
}

TEST(Infer, ClosuresCaptureDims) {
  const std::string t = infer(R"(
fn @main(%x: Tensor[(n, 8), f32], %y: Tensor[(m, 8), f32]) {
  let %f = fn(%a: Tensor[(k, 8), f32]) -> Tensor[(k + n, 8), f32] {
    let %r = concat(%a, %x) {axis = 0};
    %r
  };
  let %z = %f(%y);
  %z
})");
  EXPECT_THAT(t, HasSubstr("%z: Tensor[(m + n, 8), f32]"));
}

TEST(Infer, AnnotationsNameAndCheckDims) {
  const std::string t = infer(R"(
fn @main(%x: Tensor[(n, 8), f32], %y: Tensor[(m, 8), f32]) {
  let %a: Tensor[(k, 8), f32] = concat(%x, %y) {axis = 0};
  let %b = full() {shape = (k, 8), dtype = f32, value = 1.0};
  let %c = add(%a, %b);
  let %d: Tensor[(4, 8), f32] = relu(%c);
  let %e = full() {shape = (4, 8), dtype = f32, value = 1.0};
  let %f = sub(%d, %e);
  %f
})");
  EXPECT_THAT(t, HasSubstr("%c: Tensor[(m + n, 8), f32]"));
  EXPECT_THAT(t, HasSubstr("left = (m + n), right = (4)"));
}

TEST(Infer, RangesComeFromAttributes) {
  const std::string t = infer(R"(
fn @main(%x: Tensor[(n, 8), f32], %p: Tensor[(512, 8), f32]) attrs {range.n = [1, 512]} {
  let %q = slice(%p) {axes = [0], starts = (0), ends = (n)};
  let %y = add(%x, %q);
  %y
})");
  EXPECT_THAT(t, HasSubstr("%q: Tensor[(n, 8), f32]"));
  EXPECT_THAT(t, testing::Not(HasSubstr("assert_shape")));
}

struct Wrong {
  const char* text;
  const char* message;
};

TEST(Infer, ContradictionsNameThePlaceAndTheRemedy) {
  const Wrong cases[] = {
      {"fn @main(%x: Tensor[(n, 3), f32], %w: Tensor[(4, 5), f32]) {\n  let %y = matmul(%x, %w);\n "
       " %y\n}",
       "t.nir:2:12: matmul: the contracted dim of matmul: 3 and 4 differ"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = add(%x, 1i64);\n  %y\n}", "insert cast"},
      {"fn @main(%x: Tensor[(n, 2), f32]) {\n  let %y = add(%x, f32[3]{1, 2, 3});\n  %y\n}",
       "2 and 3 differ"},
      {"fn @main(%x: Tensor[(n + 1, n), f32]) {\n  let %y = squeeze(%x) {axes = [2]};\n  %y\n}",
       "axis 2 is out of range"},
      {"fn @main(%x: Tensor[(n + 2), f32]) {\n  %x\n}", "no parameter of @main binds the symbol n"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = if (%x) { %x } else { %x };\n  %y\n}",
       "not Tensor[(), bool]"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = if (true) { %x } else { 1i64 };\n  %y\n}",
       "the else branch is"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = %x[0];\n  %y\n}", "which is not a tuple"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %t = (%x, %x);\n  let %y = %t[2];\n  %y\n}",
       "t.nir:3"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %t = (%x, %x);\n  let %y = relu(%t);\n  %y\n}",
       "not a tensor"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = %x(%x);\n  %y\n}", "not a function"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = @f(%x, %x);\n  %y\n}\nfn @f(%a: Tensor[(n), "
       "f32]) { %a }",
       "@f takes 1 argument, not 2"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = @f(%x);\n  %y\n}\nfn @f(%a: Tensor[(n), i64]) "
       "{ %a }",
       "is expected"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = @main(%x);\n  %y\n}",
       "has no declared result type; write fn @main"},
      {"fn @main(%x: Tensor[(n), f32]) -> Tensor[(n, 1), f32] {\n  %x\n}",
       "the result is Tensor[(n), f32] where"},
      {"fn @main(%x: Tensor[(2), f32]) -> Tensor[(3), f32] {\n  %x\n}", "2 and 3 differ"},
      {"fn @main(%x) {\n  %x\n}", "parameter %x of @main has no type"},
      {"fn @main(%x: Tensor[(n), f32], %s: Tensor[(k), i64]) {\n  let %y = reshape(%x, %s);\n  "
       "%y\n}",
       "a number of elements that only the run knows"},
      {"fn @main(%n: Tensor[(n), f32], %s: Tensor[(), i64]) {\n  let %y = read_extents(%s) "
       "{symbols "
       "= [\"n\"]};\n  %y\n}",
       "the symbol n has a meaning already"},
      {"fn @main(%s: Tensor[(2), i64]) {\n  let %y = read_extents(%s) {symbols = [\"a\"]};\n  "
       "%y\n}",
       "name every element"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = topk(%x) {axis = 0, largest = true};\n  %y\n}",
       "k must be given once"},
      {"fn @main(%x: Tensor[(3), f32]) {\n  let %y = topk(%x) {axis = 0, largest = true, k = 4};\n "
       " %y\n}",
       "k = 4 is at most 3"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = tile(%x) {repeats = (2, 2)};\n  %y\n}",
       "not one repeat per axis"},
      {"fn @main(%x: Tensor[(2), f32], %c: Tensor[(3), bool]) {\n  let %y = compress(%x, %c) {axis "
       "= "
       "0};\n  %y\n}",
       "no longer than axis 0"},
      {"fn @main(%x: Tensor[(n), f32], %r: Tensor[(2, 2), i64]) {\n  let %y = repeat(%x, %r) {axis "
       "= "
       "0};\n  %y\n}",
       "must have rank 1"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %y = size() {value = k};\n  %y\n}",
       "unknown symbol k"},
      {"fn @main(%x: Tensor[(n), f32]) {\n  let %y: Tensor[(n), i64] = relu(%x);\n  %y\n}",
       "the annotation of %y"},
      {"fn @main(%x: Tensor[(2, 7), f32]) {\n  let %y = reshape(%x) {shape = (2, 3, -1)};\n  %y\n}",
       "differ"},
      {"fn @main(%x: Tensor[(n, 7), f32]) {\n  let %y = transpose(%x) {axes = [0, 0]};\n  %y\n}",
       "named twice"},
  };
  for (const Wrong& w : cases) EXPECT_THAT(error_of(w.text), HasSubstr(w.message)) << w.text;
}

// ---------------------------------------------------------------------------- verifier

TEST(Verify, FindsEachKindOfFault) {
  const Type t = tensor_type({Dim::symbol("n"), 4}, DType::kF32);
  const auto faults = [](FunctionRef f) {
    Module m;
    m.set("main", std::move(f));
    const auto all = verify(m);
    return all.empty() ? std::string("none") : all[0];
  };
  const auto typed = [](const char* name, Type type, ExprRef e) {
    return Binding{make_var(name, std::move(type)), std::move(e)};
  };
  const auto block = [](std::vector<Binding> bindings, Atom result) {
    auto b = std::make_shared<Block>();
    b->bindings = std::move(bindings);
    b->result = std::move(result);
    return b;
  };
  VarRef x = make_var("x", t);
  const Binding good = typed("y", t, make_call("relu", {x}));
  EXPECT_EQ(faults(make_function_of({x}, block({good}, good.var), t)), "none");
  // V1
  const Binding untyped = typed("y", nullptr, make_call("relu", {x}));
  EXPECT_THAT(faults(make_function_of({x}, block({untyped}, x), t)), HasSubstr("V1"));
  const Type any = tensor_type({Dim::any(), 4}, DType::kF32);
  VarRef open = make_var("x", any);
  EXPECT_THAT(faults(make_function_of({open}, block({}, open), t)), HasSubstr("V1"));
  // V2, V3
  EXPECT_THAT(faults(make_function_of({x}, block({good, good}, x), t)), HasSubstr("V2"));
  EXPECT_THAT(faults(make_function_of({x}, block({}, good.var), t)), HasSubstr("V3"));
  const Binding inner = typed("z", t,
                              make_if(Atom::of(Tensor::of<uint8_t>(DType::kBool, {}, {1})),
                                      block({good}, good.var), block({}, x)));
  EXPECT_EQ(faults(make_function_of({x}, block({inner}, inner.var), t)), "none");
  EXPECT_THAT(faults(make_function_of({x}, block({inner}, good.var), t)), HasSubstr("V3"));
  // V4, V5
  EXPECT_THAT(faults(make_function_of({x}, block({typed("y", t, make_call("nope", {x}))}, x), t)),
              HasSubstr("V4"));
  EXPECT_THAT(
      faults(make_function_of(
          {x}, block({typed("y", t, make_call_function(Atom::of_global("g"), {x}))}, x), t)),
      HasSubstr("V4"));
  EXPECT_THAT(faults(make_function_of({x}, block({typed("y", t, make_call("add", {x}))}, x), t)),
              HasSubstr("V5"));
  EXPECT_THAT(faults(make_function_of(
                  {x}, block({typed("y", t, make_call("relu", {x}, {{"a", true}}))}, x), t)),
              HasSubstr("V5"));
  // V6
  const Type wrong = tensor_type({Dim::symbol("n"), 5}, DType::kF32);
  EXPECT_THAT(
      faults(make_function_of({x}, block({typed("y", wrong, make_call("relu", {x}))}, x), t)),
      HasSubstr("V6"));
  // V7: a contraction of n with m, without an assertion.
  VarRef w = make_var("w", tensor_type({Dim::symbol("m"), 4}, DType::kF32));
  const Type product = tensor_type({4, 4}, DType::kF32);
  EXPECT_THAT(
      faults(make_function_of(
          {x, w},
          block({typed("y", product, make_call("matmul", {x, w}, {{"transpose_a", true}}))}, x),
          t)),
      HasSubstr("V7"));
  // V8
  EXPECT_THAT(faults(make_function_of(
                  {x}, block({typed("y", t, make_if(x, block({}, x), block({}, x)))}, x), t)),
              HasSubstr("V8"));
  // V9
  EXPECT_THAT(
      faults(make_function_of({x},
                              block({typed("y", tensor_type({}, DType::kI64),
                                           make_call("size", {}, {{"value", Dim::symbol("q")}}))},
                                    x),
                              t)),
      HasSubstr("V9"));
  // V10
  EXPECT_THAT(faults(make_function_of({x}, block({}, x), wrong)), HasSubstr("V10"));
}

// What torch.export makes of a decoder whose example has a batch of 1: once a layer what has the
// batch folded into its length is added to what has not.
TEST(Infer, DimsDoNotGrowWithDepth) {
  std::string text = "fn @main(%y0: Tensor[(b, n, 4), f32]) {\n";
  for (int i = 0; i < 40; ++i)
    text += fmt::format(
        "let %f{0} = reshape(%y{0}) {{shape = (1, -1, 4)}};\n"
        "let %y{1} = add(%y{0}, %f{0});\n",
        i, i + 1);
  const std::string t = infer(text + "%y40\n}");
  EXPECT_THAT(t, HasSubstr("-> Tensor[(b, b*n, 4), f32]"));
  size_t checks = 0;
  for (size_t at = t.find("assert_shape"); at != t.npos; at = t.find("assert_shape", at + 1))
    ++checks;
  EXPECT_EQ(checks, 2u);
}

// Exporters compute the length that convolutions leave ahead of them: (n / 4 - 3) / 2 + 1 may be
// negative where it stands, and is not where a window that fits has shown that n is large. Each use
// of it had extents of its own, unknown ones, and so had all that followed.
TEST(Infer, AQuotientThatMayBeNegativeIsKnownOnceFactsDecide) {
  const std::string t = infer(
      "fn @main(%x: Tensor[(b, 1, 1, n), f32]) {\n"
      "  let %shape = shape_of(%x);\n"
      "  let %n = slice(%shape) {axes = [0], starts = (3), ends = (4)};\n"
      "  let %quarter = div(%n, 4i64);\n"
      "  let %rest = sub(%quarter, 3i64);\n"
      "  let %half = div(%rest, 2i64);\n"
      "  let %length = add(%half, 1i64);\n"
      "  let %to = concat(i64[1]{-1}, %length, i64[1]{1}) {axis = 0};\n"
      "  let %y = max_pool2d(%x) {kernel = [1, 4], strides = [1, 4], pads = [0, 0, 0, 0], "
      "dilations "
      "= [1, 1], ceil_mode = false};\n"
      "  let %z = max_pool2d(%y) {kernel = [1, 3], strides = [1, 2], pads = [0, 0, 0, 0], "
      "dilations "
      "= [1, 1], ceil_mode = false};\n"
      "  let %folded = reshape(%z, %to);\n"
      "  %folded\n}");
  EXPECT_THAT(t, HasSubstr("-> Tensor[(b, floordiv(n + 4, 8) - 1, 1), f32]"));
  EXPECT_EQ(t.find("read_extents"), t.npos) << t;
}

// Its extents are beyond what the prover decides. Each inference of a pipeline asked it all anew,
// and what it could not see to follow from an assertion was asserted again.
TEST(Infer, AReshapeByValuesIsAssertedOnce) {
  for (const char* shape : {"2", "3"}) {
    const std::string text = fmt::format(
        "fn @main(%s: Tensor[({}), i64]) {{\n"
        "  let %b = reshape(f32[4]{{1, 2, 3, 4}}, %s);\n  %b\n}}",
        shape);
    const std::string once = infer(text);
    const size_t first = once.find("assert_shape");
    ASSERT_NE(first, once.npos);
    EXPECT_EQ(once.find("assert_shape", first + 1), once.npos) << once;
    const int64_t exhausted = exhausted_questions();
    for (int i = 0; i < 8; ++i) EXPECT_EQ(infer(once), once);
    EXPECT_LE(exhausted_questions() - exhausted, 8);
  }
}

// A hundred layers of what a canonical rule must decide, or dims would double from one to the next:
// the printed types of a hundred layers are twice those of fifty.
TEST(Infer, DimsOfDeepProgramsStaySmall) {
  const std::string rows = "fn @main(%v0: Tensor[(n, 4), f32], %y: Tensor[(m, 4), f32]) {\n";
  const std::string image = "fn @main(%v0: Tensor[(b, 3, h, w), f32]) {\n";
  const std::string pooled =
      "let %p{0} = max_pool2d(%v{0}) {{kernel = [3, 3], strides = [2, 2], pads = [{2}, {2}, {2}, "
      "{2}], dilations = [1, 1], ceil_mode = true}};\n"
      "let %c{0} = concat(%p{0}, %p{0}) {{axis = 2}};\n"
      "let %v{1} = concat(%c{0}, %c{0}) {{axis = 3}};\n";
  const std::string batches =  // of a batch of their own, folded into the length and back
      "let %a{0} = add(%v{0}, %y);\n"
      "let %f{0} = reshape(%a{0}) {{shape = (1, -1, 4)}};\n"
      "let %g{0} = reshape(%f{0}) {{shape = (-1, 4)}};\n"
      "let %v{1} = mul(%g{0}, %v{0});\n";
  const std::string every_other =
      "let %a{0} = slice(%v{0}) {{axes = [0], starts = (0), ends = (9223372036854775807), "
      "steps = (2)}};\n"
      "let %b{0} = slice(%v{0}) {{axes = [0], starts = (1), ends = (9223372036854775807), "
      "steps = (2)}};\n"
      "let %c{0} = concat(%a{0}, %b{0}) {{axis = 0}};\n"
      "let %v{1} = add(%c{0}, %v{0});\n";
  const std::string windows =  // that may be shorter than they ask for
      "let %a{0} = slice(%v{0}) {{axes = [0], starts = (0), ends = (m)}};\n"
      "let %b{0} = concat(%a{0}, %y) {{axis = 0}};\n"
      "let %v{1} = slice(%b{0}) {{axes = [0], starts = ({2}), ends = (n)}};\n";
  for (const auto& [head, layer] :
       {std::pair(image, pooled), {rows, batches}, {rows, every_other}, {rows, windows}}) {
    const auto size = [&head = head, &layer = layer](int layers) {
      std::string text = head;
      for (int i = 0; i < layers; ++i) text += fmt::format(fmt::runtime(layer), i, i + 1, i % 2);
      return infer(text + fmt::format("%v{}\n}}", layers)).size();
    };
    EXPECT_LT(size(100), 2.2 * static_cast<double>(size(50))) << layer;
  }
}

// Where the extents themselves have more to say at every layer they grow by that, and no faster.
TEST(Infer, NestedQuotientsGrowByALayerEach) {
  const auto size = [](int layers) {
    std::string text =
        "fn @main(%v0: Tensor[(n, 4), f32], %k: Tensor[(1, k), f32], %s: Tensor[(1, 4), f32]) {\n";
    for (int i = 0; i < layers; ++i)
      text += fmt::format(
          "let %a{0} = reshape(%v{0}) {{shape = (-1, k)}};\n"
          "let %b{0} = concat(%a{0}, %k) {{axis = 0}};\n"
          "let %c{0} = reshape(%b{0}) {{shape = (-1, 4)}};\n"
          "let %v{1} = concat(%c{0}, %s) {{axis = 0}};\n",
          i, i + 1);
    const std::string t = infer(text + fmt::format("%v{}\n}}", layers));
    return t.size() - t.rfind("let");  // the last type
  };
  EXPECT_LT(size(40), 2.2 * static_cast<double>(size(20)));
}

TEST(Infer, BigChainIsFast) {  // linear in the number of bindings
  BlockBuilder b;
  VarRef x = make_var("x", tensor_type({Dim::symbol("b"), Dim::symbol("n"), 384}, DType::kF32));
  VarRef y = x;
  for (int i = 0; i < 5000; ++i) y = b.call(i % 2 ? "add" : "mul", {y, x});
  Module m;
  m.set("main", make_function_of({x}, b.finish(y)));
  const Module typed = infer_types(m);
  EXPECT_EQ(str(typed.functions[0].second->result_type), "Tensor[(b, n, 384), f32]");
}

// Who comes after inference reads an axis as it stands.
TEST(Infer, CountsAxesFromTheFront) {
  const std::string t = infer(R"(
fn @main(%x: Tensor[(n, 4, 6), f32], %g: Tensor[(6), f32], %i: Tensor[(k), i64]) {
  let %a = softmax(%x) {axis = -1};
  let %b = layer_norm(%a, %g, %g) {axis = -1, epsilon = 0.00001};
  let %c = sum(%b) {axes = [-1, 0], keepdims = true};
  let %d = transpose(%b) {axes = [-2, 0, -1]};
  let %e = unsqueeze(%d) {axes = [-1, 1]};
  let %f = squeeze(%e) {axes = [-4, -1]};
  let %h = concat(%f, %f) {axis = -3};
  let %j = slice(%h) {axes = [-1, 0], starts = [1, -2], ends = [3, 9]};
  let %l = gather(%b, %i) {axis = -1};
  let %t = topk(%b) {axis = -2, largest = true, k = 2};
  let %v = %t[0];
  let %u = unsqueeze(%i) {axes = [-2]};
  let %r = (%c, %j, %l, %v, %u);
  %r
})");
  EXPECT_THAT(t, HasSubstr("softmax(%x) {axis = 2}"));
  EXPECT_THAT(t, HasSubstr("{axes = [2, 0], keepdims = true}"));
  EXPECT_THAT(t, HasSubstr("{axes = [1, 0, 2]}"));
  EXPECT_THAT(t, HasSubstr("unsqueeze(%d) {axes = [4, 1]}"));
  EXPECT_THAT(t, HasSubstr("squeeze(%e) {axes = [1, 4]}"));
  EXPECT_THAT(t, HasSubstr("concat(%f, %f) {axis = 0}"));
  EXPECT_THAT(t, HasSubstr("{axes = [2, 0], ends = (3, 9), starts = (1, -2)}"));
  EXPECT_THAT(t, HasSubstr("gather(%b, %i) {axis = 2}"));
  EXPECT_THAT(t, HasSubstr("axis = 1, k = 2"));
  EXPECT_THAT(t, HasSubstr("unsqueeze(%i) {axes = [0]}"));
}

TEST(Verify, RefusesAxesFromTheEnd) {
  for (const char* call : {"softmax(%x) {axis = 1}", "transpose(%x) {axes = [1, 0]}"}) {
    const Module typed = infer_types(parse_module(
        fmt::format("fn @main(%x: Tensor[(n, 4), f32]) {{ let %y = {}; %y }}", call), "t.nir"));
    ASSERT_THAT(verify(typed), testing::IsEmpty());
    auto& attrs = const_cast<Expr&>(*typed.find("main")->body->bindings[0].value).attrs;
    if (attrs.contains("axis"))
      attrs["axis"] = int64_t{-1};
    else
      attrs["axes"] = std::vector<int64_t>{-1, -2};
    EXPECT_THAT(verify(typed), testing::ElementsAre(HasSubstr("V5"))) << call;
  }
}

}  // namespace
}  // namespace nimble::ir
