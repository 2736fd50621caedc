// Knobs that a person gives a template: which kernels take them, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/codegen/cuda/cuda.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/target.h"
#include "vm/base/device_number.h"

namespace nimble::driver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A product and its activation, then a reduction.
constexpr const char* kText = R"(fn @main(%x: Tensor[(n, 24), f32], %w: Tensor[(24, 40), f32]) {
  let %p = matmul(%x, %w);
  let %g = gelu(%p);
  let %y = sum(%g) {axes = [1], keepdims = false};
  %y
})";

CompileOptions options_for(std::map<std::string, kernels::Config> knobs) {
  CompileOptions options;
  options.target = kernels::target_by_name("x86-64-v3");
  options.compile_threads = 1;
  options.knobs = std::move(knobs);
  return options;
}

// The configuration of the kernel whose name ends so.
std::string config_of(const exec::Executable& e, const std::string& ending) {
  for (const exec::Kernel& k : e.kernels)
    if (k.name.ends_with(ending)) return k.implementations.at(0).config;
  return "none";
}

void expect_refused(const CompileOptions& options, const ::testing::Matcher<std::string>& what) {
  try {
    compile(ir::parse_module(kText), options);
    ADD_FAILURE() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kInvalidArgument);
    EXPECT_THAT(std::string(e.what()), what);
  }
}

TEST(Knobs, ReplaceThoseOfTheDefault) {
  const ir::Module m = ir::parse_module(kText);
  CompileReport before, report;
  const exec::Executable plain = compile(m, options_for({}), &before);
  std::string of_product;
  for (const KernelReport& k : before.kernels)
    if (k.kernel.ends_with("_matmul")) of_product = k.template_name;
  const kernels::Config config = kernels::config_from_json(config_of(plain, "_matmul"));
  ASSERT_TRUE(config.contains("unroll")) << of_product;
  kernels::Config wanted = config;
  wanted["unroll"] = int64_t{kernels::knob_int(config, "unroll") == 1 ? 2 : 1};

  const kernels::Config given = {{"unroll", wanted["unroll"]}};
  const exec::Executable e = compile(m, options_for({{of_product, given}}), &report);
  EXPECT_EQ(config_of(e, "_matmul"), kernels::to_json(wanted));
  EXPECT_EQ(config_of(e, "_sum"), config_of(plain, "_sum"));
  for (const KernelReport& k : report.kernels) {
    const bool took = k.template_name == of_product;
    EXPECT_EQ(k.reason, took ? "with the knobs " + kernels::to_json(given) : "") << k.kernel;
    EXPECT_EQ(k.outcome, tuned::Lookup::Outcome::kUntuned);
    EXPECT_EQ(k.evidence.find("knobs") != std::string::npos, took) << k.evidence;
  }
}

TEST(Knobs, ThatNobodyTakesAreRefused) {
  expect_refused(options_for({{"dens", {{"unroll", int64_t{2}}}}}),
                 AllOf(HasSubstr("there is no such template"), HasSubstr("dense")));
  expect_refused(options_for({{"conv2d", {{"unroll", int64_t{2}}}}}),
                 HasSubstr("it makes no kernel of this model"));
  expect_refused(options_for({{"reduce", {{"unrol", int64_t{2}}}}}),
                 AllOf(HasSubstr("there is no knob unrol"), HasSubstr("its knobs: ")));
}

TEST(Knobs, ThatDoNotFitTheKernelAreRefused) {
  const exec::Executable plain = compile(ir::parse_module(kText), options_for({}));
  const kernels::Config config = kernels::config_from_json(config_of(plain, "_sum"));
  const std::string knob = config.begin()->first;
  expect_refused(options_for({{"reduce", {{knob, std::string("seven")}}}}),
                 AllOf(HasSubstr("sum cannot be made with"), HasSubstr("seven"),
                       HasSubstr("searches look at: " + knob)));
}

TEST(Knobs, OfAGpusTemplate) {
  if (const std::string why = codegen::why_no_cuda(); !why.empty()) GTEST_SKIP() << why;
  const auto compiled = [](std::map<std::string, kernels::Config> knobs) {
    CompileOptions options = options_for(std::move(knobs));
    options.gpus = {kernels::target_by_name("sm_90a")};
    options.device = kCudaDevice;
    return config_of(compile(ir::parse_module(kText), options), "_matmul");
  };
  kernels::Config wanted = kernels::config_from_json(compiled({}));
  wanted["stages"] = int64_t{kernels::knob_int(wanted, "stages") == 3 ? 4 : 3};
  EXPECT_EQ(compiled({{"gpu_matmul", {{"stages", wanted["stages"]}}}}), kernels::to_json(wanted));
}

}  // namespace
}  // namespace nimble::driver
