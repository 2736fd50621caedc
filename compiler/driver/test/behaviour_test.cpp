// What a compiled program does beyond values: messages of failing checks, depth, results that
// outlive the run, several entries, errors of the compiler itself.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "compiler/driver/test/harness.h"
#include "compiler/ir/layout.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/reference/reference.h"
#include "vm/base/device_number.h"
#include "vm/executable/writer.h"

namespace nimble::driver::testing {
namespace {

using ir::Tensor;

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e;
  }
  ADD_FAILURE() << "no error";
  return Error(Status::kOk, "", "");
}

ir::TensorRef ones(std::vector<int64_t> shape) {
  int64_t count = 1;
  for (int64_t d : shape) count *= d;
  return Tensor::of<float>(DType::kF32, shape, std::vector<float>(static_cast<size_t>(count), 1));
}

// Scalar code, kernels and the reference agree: x / 0 and x mod 0 are 0, division truncates.
TEST(Behaviour, ScalarDivisionTakesEverySign) {
  Compiled c(ir::parse_module(R"(fn @main(%a: Tensor[(), i64], %b: Tensor[(), i64]) {
  let %q = div(%a, %b);
  let %r = mod(%a, %b);
  let %t = (%q, %r);
  %t
})"),
             {});
  for (int64_t a = -7; a <= 7; ++a)
    for (int64_t b = -3; b <= 3; ++b) {
      auto out = c.run("main", {ir::Tensor::scalar_i64(a), ir::Tensor::scalar_i64(b)});
      const int64_t remainder = b ? a % b : 0;
      EXPECT_EQ(out[0]->integer(0), b ? a / b : 0) << a << " / " << b;
      EXPECT_EQ(out[1]->integer(0),
                remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder)
          << a << " mod " << b;
    }
}

TEST(Behaviour, AFailedShapeCheckNamesItself) {
  Compiled c(ir::parse_module(R"(fn @main(%x: Tensor[(n, m), f32]) {
  let %y = assert_shape(%x) {left = (n,), right = (2*m,), what = "twice as tall"};
  let %z = exp(%y);
  %z
})"),
             {"default"});
  EXPECT_EQ(c.run("main", {ones({4, 2})})[0]->shape, (std::vector<int64_t>{4, 2}));
  Error e = error_of([&] { c.run("main", {ones({4, 3})}); });
  EXPECT_EQ(e.status(), Status::kFatal);
  EXPECT_NE(std::string(e.what()).find("twice as tall"), std::string::npos) << e.what();
  EXPECT_NE(std::string(e.what()).find("main"), std::string::npos) << e.what();
  // The session goes on.
  EXPECT_EQ(c.run("main", {ones({2, 1})}).size(), 1u);
}

TEST(Behaviour, AnInferredCheckNamesTheOperator) {
  Compiled c(ir::parse_module(R"(fn @main(%x: Tensor[(n, 2), f32], %y: Tensor[(m, 2), f32]) {
  let %c = concat(%x, %y) {axis = 1};
  %c
})"),
             {"default"});
  Error e = error_of([&] { c.run("main", {ones({3, 2}), ones({4, 2})}); });
  EXPECT_EQ(e.status(), Status::kFatal);
  EXPECT_NE(std::string(e.what()).find("concat"), std::string::npos) << e.what();
}

TEST(Behaviour, AFailedCheckNamesTheExtentsAndTheirValues) {
  const auto said = [](const std::string& text, const std::vector<ir::TensorRef>& inputs) {
    Compiled c(ir::parse_module(text, "model.nir"), {"default"});
    return std::string(error_of([&] { c.run("main", inputs); }).what());
  };
  EXPECT_THAT(said(R"(fn @main(%x: Tensor[(2, n), f32], %y: Tensor[(m, 5), f32]) {
  let %c = matmul(%x, %y);
  %c
})",
                   {ones({2, 3}), ones({4, 5})}),
              ::testing::HasSubstr("matmul at model.nir:2:12: the contracted dim of matmul "
                                   "(n = m): n is 3, m is 4"));
  // An integer says itself, an expression's value stands beside it, and each stands once.
  EXPECT_THAT(said(R"(fn @main(%x: Tensor[(n), f32], %y: Tensor[(m), f32]) {
  let %c = assert_shape(%x) {left = (2*n + m, n, n), right = (9, m, 3), what = "{} fits"};
  %c
})",
                   {ones({3}), ones({4})}),
              ::testing::HasSubstr("{} fits at model.nir:2:12 (m + 2*n = 9, n = m, n = 3): "
                                   "m + 2*n is 10, n is 3, m is 4"));
}

TEST(Behaviour, TailCallsCostNoStack) {
  Compiled c(
      ir::parse_module(R"(fn @loop(%i: Tensor[(), i64], %x: Tensor[(k), f32]) -> Tensor[(k), f32] {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %y = sin(%x);
    let %j = sub(%i, 1i64);
    let %u = @loop(%j, %y);
    %u
  } else { %x };
  %r
}
fn @main(%n: Tensor[(), i64], %x: Tensor[(m), f32]) { let %r = @loop(%n, %x); %r })"),
      {"default"});
  float expected = 1;
  for (int i = 0; i < 100000; ++i) expected = std::sin(expected);
  std::vector<ir::TensorRef> y = c.run("main", {Tensor::scalar_i64(100000), ones({3})});
  for (int64_t i = 0; i < 3; ++i) EXPECT_NEAR(y[0]->value(i), expected, 1e-4);
}

TEST(Behaviour, DeepRecursionEndsInAnError) {
  Compiled c(ir::parse_module(R"(fn @f(%i: Tensor[(), i64]) -> Tensor[(), i64] {
  let %j = add(%i, 1i64);
  let %a = @f(%j);
  let %b = add(%a, 1i64);
  %b
}
fn @main(%i: Tensor[(), i64]) { let %r = @f(%i); %r })"),
             {"default"});
  Error e = error_of([&] { c.run("main", {Tensor::scalar_i64(0)}); });
  EXPECT_EQ(e.status(), Status::kExhausted) << e.what();
}

TEST(Behaviour, IndicesOutOfRangeAreErrors) {
  for (const char* call :
       {"gather(%x, %i) {axis = 0}", "take_row(%x, %i)", "write_row(%x, %i, %v)"}) {
    SCOPED_TRACE(call);
    Compiled c(
        ir::parse_module(fmt::format("fn @main(%x: Tensor[(n, m), f32], %i: Tensor[(), i64], "
                                     "%v: Tensor[(m), f32]) {{ let %y = {}; %y }}",
                                     call)),
        {"default"});
    auto run = [&](int64_t i) { c.run("main", {ones({3, 2}), Tensor::scalar_i64(i), ones({2})}); };
    run(2);
    for (int64_t i : {int64_t{3}, int64_t{-4}, INT64_MAX, INT64_MIN}) {
      Error e = error_of([&] { run(i); });
      EXPECT_EQ(e.status(), Status::kFatal) << i << ": " << e.what();
    }
    run(0);  // the session goes on
  }
}

TEST(Behaviour, ResultsOutliveLaterRuns) {
  auto model = load(driver::compile(ir::parse_module("fn @main(%x: Tensor[(n), f32]) { let %y = "
                                                     "neg(%x); let %z = exp(%y); %z }"),
                                    options_of({"default"})));
  rt::SessionOptions one;
  one.threads = 1;
  std::vector<rt::OutputTensor> first(1), second(1);
  {
    rt::Session session(model, one);
    float a[2] = {0, 0}, b[2] = {1, 1};
    const int64_t shape[1] = {2};
    rt::InputTensor in{a, DType::kF32, shape, {}, true};
    session.run(0, {&in, 1}, first);
    in.data = b;
    session.run(0, {&in, 1}, second);
  }
  EXPECT_FLOAT_EQ(static_cast<const float*>(first[0].data)[1], 1);
  EXPECT_FLOAT_EQ(static_cast<const float*>(second[0].data)[1], std::exp(-1.0f));
}

TEST(Behaviour, EveryEntryOfTheSignaturesRuns) {
  ir::Module m = ir::parse_module(R"(
signature @main {inputs = ["x"], outputs = ["y"]};
signature @twice {inputs = ["in", "bias"], outputs = ["out"], defaults = ["", "zeros"]};
fn @main(%x: Tensor[(n), f32]) { let %y = exp(%x); %y }
fn @twice(%a: Tensor[(n), f32], %b: Tensor[(n), f32]) {
  let %y = add(%a, %a);
  let %z = add(%y, %b);
  %z
})");
  Compiled c(m, {"default"});
  EXPECT_EQ(c.run("twice", {ones({2}), ones({2})})[0]->value(0), 3);
  const exec::EntryPoint& entry = c.executable().entries.at(1);
  EXPECT_EQ(entry.inputs[1].name, "bias");
  EXPECT_EQ(entry.inputs[1].default_fill, "zeros");
  EXPECT_EQ(entry.outputs[0].name, "out");
  Error e = error_of([&] { c.run("twise", {}); });
  EXPECT_EQ(e.status(), Status::kNotFound);
}

TEST(Behaviour, EqualModulesGiveEqualBytes) {
  // Several kernels, and more than one object has room for.
  ir::Module m = ir::parse_module(R"(fn @main(%x: Tensor[(n, m), f32], %y: Tensor[(m, k), f32]) {
  let %a = softmax(%x) {axis = -1};
  let %b = matmul(%a, %y);
  let %c = mean(%b) {axes = [0], keepdims = true};
  let %d = sub(%b, %c);
  let %e = cumsum(%d) {axis = 0, exclusive = false, reverse = false};
  %e
})");
  CompileOptions o = options_of({"default"});
  o.compile_threads = 1;
  const exec::Executable e = driver::compile(m, o);
  EXPECT_GE(e.kernels.size(), 4u);
  const std::vector<uint8_t> bytes = exec::serialize(e);
  for (int threads : {1, 2, 3, 5}) {
    o.compile_threads = threads;
    EXPECT_EQ(exec::serialize(driver::compile(m, o)), bytes) << threads << " threads";
  }
}

TEST(Behaviour, TheCompilerRefusesWithPlaceAndRemedy) {
  auto refuse = [](const std::string& text) {
    return error_of(
        [&] { driver::compile(ir::parse_module(text, "model.nir"), options_of({"default"})); });
  };
  Error no_main = refuse("fn @f(%x: Tensor[(n), f32]) { %x }");
  EXPECT_EQ(no_main.status(), Status::kInvalidArgument);
  EXPECT_NE(no_main.remedy().find("@main"), std::string::npos);
  Configuration unknown{"default"};
  unknown.disabled_pass = "fuze";
  EXPECT_EQ(error_of([&] {
              driver::compile(ir::parse_module("fn @main(%x: Tensor[(n), f32]) { %x }"),
                              options_of(unknown));
            }).status(),
            Status::kInvalidArgument);
}

// u8 rows times weights of i8 for a machine that multiplies bytes only beside small ones.
class Promises : public ::testing::Test {
 protected:
  // What is said of a text; "" if nothing is.
  std::string said_of(const std::string& text) const {
    CompileOptions options = options_of({"default"});
    options.target = target_;
    try {
      driver::compile(ir::parse_module(text, "model.nir"), options);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kInvalidArgument) << e.what();
      return e.what();
    }
    return "";
  }
  // The same of a product that promises 64 of its weights, a parameter behind %x or a binding.
  std::string product(const std::string& parameter, const std::string& binding) const {
    return said_of(
        fmt::format("fn @main(%x: Tensor[(n, 4), u8]{}) {{\n{}"
                    "  let %y = packed_matmul(%x, %w) {{layout = \"{}\", n = 5, k = 4, out = i32, "
                    "max_weight = 64}};\n"
                    "  %y\n}}",
                    parameter, binding, layout_));
  }
  std::string packed(int64_t largest) const {
    return fmt::format(
        "  let %w = pack(i8[4, 5]{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -11, {}, 13, 14, 15, 16, 17, 18, "
        "19, 20}}) {{layout = \"{}\"}};\n",
        largest, layout_);
  }

  const kernels::TargetInfo target_ = kernels::target_by_name("x86-64-v3");
  const std::string layout_ =
      kernels::dense_layout(target_, DType::kU8, DType::kI8, /*n=*/5, /*most=*/64);
};

// A text may promise anything of its weights; kernels would add up in 16 bits that overflow.
TEST_F(Promises, OfConstantWeightsAreLookedAfter) {
  for (const int64_t kept : {64, -64, 0}) EXPECT_EQ(product("", packed(kept)), "") << kept;
  for (const int64_t broken : {65, -65, -128})
    EXPECT_THAT(product("", packed(broken)),
                ::testing::AllOf(
                    ::testing::HasSubstr("model.nir:3:"),
                    ::testing::HasSubstr(fmt::format("a weight of the size {} breaks the promise "
                                                     "max_weight = 64 of packed_matmul",
                                                     std::abs(broken))),
                    ::testing::HasSubstr("drop the attribute")));
}

// Rows of less than full bytes leave weights room beyond the bound; what is promised holds for
// them.
TEST_F(Promises, OfProductsThatRoundTheirRowsAreLookedAfter) {
  const std::string layout = kernels::groupwise_layout(target_, /*n=*/1, /*most=*/64);
  const auto said = [&](int64_t weight) {
    return said_of(fmt::format(
        "fn @main(%x: Tensor[(n, 64), f32], %s: Tensor[(1, {0}), f32], "
        "%t: Tensor[(1, {0}), f32]) {{\n"
        "  let %v = tile(i8[1, 1]{{{1}}}) {{repeats = (64, 1)}};\n"
        "  let %w = pack(%v) {{layout = \"{2}\"}};\n"
        "  let %y = packed_groupwise_matmul(%x, %w, %s, %t) {{group = 64, k = 64, n = 1, "
        "layout = \"{2}\", steps = 181, max_weight = 90}};\n"
        "  %y\n}}",
        ir::parse_layout(layout)->width, weight, layout));
  };
  for (const int64_t kept : {90, -90}) EXPECT_EQ(said(kept), "") << kept;
  for (const int64_t broken : {91, -91})
    EXPECT_THAT(said(broken),
                ::testing::AllOf(::testing::HasSubstr("model.nir:4:"),
                                 ::testing::HasSubstr("a weight of the size 91 breaks the promise "
                                                      "max_weight = 90 of "
                                                      "packed_groupwise_matmul")));
}

TEST_F(Promises, OfOtherWeightsAreRefused) {
  std::string extents;
  for (const ir::Dim& d : ir::parse_layout(layout_)->packed_dims(4, 5))
    extents += (extents.empty() ? "" : ", ") + d.str();
  const std::string parameter = fmt::format(", %w: Tensor[({}), i8]", extents);
  EXPECT_THAT(product(parameter, ""),
              ::testing::AllOf(::testing::HasSubstr("model.nir:2:"),
                               ::testing::HasSubstr("packed_matmul promises max_weight = 64 of "
                                                    "weights that are not constant")));
}

// What a device other than the CPU reads of a constant is that constant.
TEST(Behaviour, PromisesOfTheCompilersOwnHoldOnAnyDevice) {
  for (const int32_t device : {kCpuDevice, kStandInDevice}) {
    CompileOptions options = options_of({"default"});
    options.target = kernels::target_by_name("x86-64-v3");
    options.device = device;
    const exec::Executable e = driver::compile(
        ir::parse_module(
            "fn @main(%x: Tensor[(n, 4), u8]) {"
            "  let %y = matmul(%x, i8[4, 2]{64, -64, 1, 0, 64, 64, 7, -7}) {out = i32};"
            "  %y }"),
        options);
    EXPECT_TRUE(std::any_of(e.kernels.begin(), e.kernels.end(), [](const exec::Kernel& k) {
      return k.workload.find("max_weight") != std::string::npos;
    })) << device;
  }
}

}  // namespace
}  // namespace nimble::driver::testing
