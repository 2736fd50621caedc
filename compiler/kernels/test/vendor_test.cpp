// What the vendor's routine is told of a workload, and what it is not asked for.
#include "compiler/kernels/vendor.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>
#include <tuple>
#include <vector>

#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"
#include "compiler/ir/text.h"
#include "vm/executable/vendor_routines.h"

namespace nimble::kernels {
namespace {

using exec::VendorCall;
using exec::VendorOp;
using exec::VendorStep;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Workload workload(const std::string& text, std::vector<bool> constant = {}) {
  return make_workload(*ir::infer_types(ir::parse_module(text)).functions.at(0).second,
                       std::move(constant));
}

// A product of f32 rows with packed weights, behind which `rest` follows; its value is %y, it has
// the bias %b, the numbers %r of each row and the residual %z.
Workload product(const std::string& rest, const std::string& result = "y") {
  return workload(R"(
fn @main(%x: Tensor[(n, 24), f32], %w: Tensor[(2, 24, 32), f32], %b: Tensor[(40), f32],
         %r: Tensor[(n, 1), f32], %z: Tensor[(n, 40), f32]) {
  let %y = packed_matmul(%x, %w) {n = 40, k = 24, layout = "panel32"};
)" + rest + "  %" + result +
                      "\n}\n",
                  {false, true, true, false, false});
}

std::optional<VendorCall> call_of(const Workload& w, std::string* why = nullptr) {
  static const TargetInfo cpu = target_by_name("x86-64-v4");
  return vendor_call_of(w, cpu, why);
}

std::string why_not(const Workload& w) {
  std::string why;
  const bool told = call_of(w, &why).has_value();
  EXPECT_EQ(told, why.empty()) << why;
  return told ? "it is one" : why;
}

// Each operator of a row is one of the IR's, and of one routine of its machine.
TEST(Vendor, HasRoutinesForOperators) {
  using Info = exec::VendorRoutineInfo;
  for (const Info::Machine machine : {Info::Machine::kCpu, Info::Machine::kGpu})
    for (const ir::OpInfo& op : ir::all_ops()) {
      const auto all = exec::all_vendor_routines();
      EXPECT_LE(std::ranges::count_if(
                    all, [&](const Info& row) { return row.computes(machine, op.name); }),
                1)
          << op.name;
    }
  for (const Info& row : exec::all_vendor_routines()) {
    std::istringstream words{std::string(row.operators)};
    for (std::string word; words >> word;) {
      EXPECT_NE(ir::find_op(word), nullptr) << row.name << ": " << word;
      EXPECT_TRUE(row.computes(row.machine, word)) << row.name << ": " << word;
    }
    EXPECT_FALSE(row.computes(row.machine, "")) << row.name;
  }
}

TEST(Vendor, SaysWhichRoutinesServeExactSizes) {
  EXPECT_TRUE(serves_exact_sizes("onednn.matmul"));
  EXPECT_FALSE(serves_exact_sizes("cublaslt.matmul"));
  EXPECT_FALSE(serves_exact_sizes(""));
}

TEST(Vendor, IsToldOfPackedWeightsAndWhatFollows) {
  const auto call = call_of(product(R"(
  let %s = add(%y, %b);
  let %t = add(%z, %s);
  let %u = gelu(%t);
)",
                                    "u"));
  ASSERT_TRUE(call);
  EXPECT_EQ(call->routine, "onednn.matmul");
  EXPECT_EQ(call->k, 24);
  EXPECT_EQ(call->n, 40);
  EXPECT_EQ(call->x, 0u);
  EXPECT_EQ(call->w, 1u);
  EXPECT_EQ(call->panel, (VendorCall::Panel{32, 1}));
  EXPECT_THAT(call->then, ElementsAre(VendorStep{VendorOp::kAdd, 2}, VendorStep{VendorOp::kAdd, 4},
                                      VendorStep{VendorOp::kGelu}));
  EXPECT_EQ(call->y, 5u);
  EXPECT_EQ(exec::vendor_call_of(exec::to_json(*call)), *call);
}

TEST(Vendor, KnowsSwishNumbersAndLimits) {
  const auto call = call_of(product(R"(
  let %a = mul(%y, 0.5f32);
  let %c = sub(1f32, %a);
  let %s = sigmoid(%c);
  let %t = mul(%s, %c);
  let %u = clip(%t) {min = -1.0, max = 6.0};
  let %v = mul(%u, %r);
)",
                                    "v"));
  ASSERT_TRUE(call);
  EXPECT_THAT(call->then,
              ElementsAre(VendorStep{VendorOp::kLinear, 0, 0.5F, 0},
                          VendorStep{VendorOp::kLinear, 0, -1, 1}, VendorStep{VendorOp::kSwish},
                          VendorStep{VendorOp::kClip, 0, -1, 6}, VendorStep{VendorOp::kMul, 3}));
}

// What a configuration cannot say; the runtime would take it for damaged.
TEST(Vendor, TakesNoNumbersBeyondF32) {
  for (const char* most : {"1e39", "1e300"})
    EXPECT_THAT(
        why_not(product(fmt::format("  let %s = clip(%y) {{min = -1.0, max = {}}};\n", most), "s")),
        HasSubstr("max of clip beyond f32"));
  EXPECT_THAT(why_not(product("  let %s = clip(%y) {min = 0.0};\n", "s")),
              HasSubstr("clip has no max"));
}

TEST(Vendor, SaysWhatItIsNotAskedFor) {
  EXPECT_EQ(why_not(product("")), "it is one");
  EXPECT_THAT(why_not(product("  let %s = sin(%y);\n", "s")), HasSubstr("no sin"));
  EXPECT_THAT(why_not(product("  let %s = sub(%b, %y);\n", "s")), HasSubstr("on the right"));
  EXPECT_THAT(why_not(product("  let %s = mul(%y, %y);\n", "s")), HasSubstr("meets itself"));
  EXPECT_THAT(why_not(product("  let %e = exp(%z);\n  let %s = add(%y, %e);\n", "s")),
              HasSubstr("same kernel"));
  EXPECT_THAT(why_not(product("  let %s = relu(%y);\n  let %t = add(%s, %y);\n", "t")),
              HasSubstr("same kernel"));
  EXPECT_THAT(why_not(workload("fn @main(%x: Tensor[(n, 4), f32]) { let %y = relu(%x); %y }")),
              HasSubstr("no routine"));
}

TEST(Vendor, IsToldOfPlainProducts) {
  const auto call = call_of(workload(R"(
fn @main(%x: Tensor[(b, n, 64), f32], %w: Tensor[(64, 32), f32]) {
  let %y = matmul(%x, %w);
  %y
})"));
  ASSERT_TRUE(call);
  EXPECT_FALSE(call->panel);
  EXPECT_FALSE(call->image);
  EXPECT_EQ(call->k, 64);
  const auto open = call_of(workload(R"(
fn @main(%x: Tensor[(n, k), f32], %w: Tensor[(k, 32), f32]) {
  let %y = matmul(%x, %w);
  %y
})"));
  ASSERT_TRUE(open);
  EXPECT_EQ(open->k, 0);
  EXPECT_EQ(open->n, 32);
  const auto turned = workload(R"(
fn @main(%x: Tensor[(n, 64), f32], %w: Tensor[(32, 64), f32]) {
  let %y = matmul(%x, %w) {transpose_b = true};
  %y
})");
  EXPECT_THAT(why_not(turned), HasSubstr("transposed"));
}

TEST(Vendor, NarrowProductsAreRoundedWhereOursAre) {
  const auto bytes = call_of(workload(R"(
fn @main(%x: Tensor[(n, 24), u8], %w: Tensor[(2, 6, 32, 4), i8], %o: Tensor[(40), i32],
         %r: Tensor[(n, 1), f32]) {
  let %y = packed_matmul(%x, %w) {n = 40, k = 24, layout = "panel32x4", out = i32};
  let %s = sub(%y, %o);
  let %t = cast(%s) {dtype = f32};
  let %u = mul(%t, %r);
  %u
})",
                                      {false, true, true, false}));
  ASSERT_TRUE(bytes);
  EXPECT_EQ(bytes->panel, (VendorCall::Panel{32, 4}));
  EXPECT_THAT(bytes->then,
              ElementsAre(VendorStep{VendorOp::kSub, 2}, VendorStep{VendorOp::kMul, 3}));
  const auto half = [](const std::string& rest, const std::string& result) {
    return workload(R"(
fn @main(%x: Tensor[(n, 24), bf16], %w: Tensor[(2, 12, 32, 2), bf16]) {
  let %y = packed_matmul(%x, %w) {n = 40, k = 24, layout = "panel32x2", out = f32};
)" + rest + "  %" + result +
                        "\n}\n",
                    {false, true});
  };
  EXPECT_EQ(why_not(half("  let %s = cast(%y) {dtype = bf16};\n", "s")), "it is one");
  EXPECT_THAT(why_not(half("  let %s = cast(%y) {dtype = bf16};\n"
                           "  let %t = cast(%s) {dtype = f32};\n",
                           "t")),
              HasSubstr("rounds elsewhere"));
  // What load would refuse is not proposed.
  EXPECT_THAT(why_not(workload(R"(
fn @main(%x: Tensor[(n, 24), u8], %w: Tensor[(2, 6, 32, 4), u8]) {
  let %y = packed_matmul(%x, %w) {n = 40, k = 24, layout = "panel32x4", out = i32};
  %y
})",
                               {false, true})),
              HasSubstr("multiplies no u8 and u8 to i32"));
  // Sums that stay integers are exact; in f32 they would not be.
  EXPECT_THAT(why_not(workload(R"(
fn @main(%x: Tensor[(n, 24), u8], %w: Tensor[(2, 6, 32, 4), i8], %o: Tensor[(40), i32]) {
  let %y = packed_matmul(%x, %w) {n = 40, k = 24, layout = "panel32x4", out = i32};
  let %s = sub(%y, %o);
  %s
})",
                               {false, true, true})),
              HasSubstr("in f32"));
}

TEST(Vendor, IsToldOfConvolutions) {
  std::string why;
  const auto call = call_of(workload(R"(
fn @main(%x: Tensor[(b, 9, 7, 8), f32], %f: Tensor[(4, 36, 8), f32], %b: Tensor[(20), f32]) {
  let %y = packed_conv2d(%x, %f, %b) {kernel = [3, 3], filters = 20, strides = [2, 1],
      pads = [1, 0, 1, 2], dilations = [1, 2], layout = "panel8", groups = 2};
  let %z = relu(%y);
  %z
})",
                                     {false, true, true}),
                            &why);
  ASSERT_TRUE(call) << why;
  EXPECT_EQ(call->routine, "onednn.conv2d");
  EXPECT_EQ(call->k, 36);
  EXPECT_EQ(call->n, 20);
  EXPECT_EQ(call->image, (VendorCall::Image{{3, 3}, {2, 1}, {1, 2}, {1, 0, 1, 2}, 2, false}));
  EXPECT_THAT(call->then, ElementsAre(VendorStep{VendorOp::kAdd, 2}, VendorStep{VendorOp::kRelu}));
}

// It once ended the compilation with an exception of the standard library.
TEST(Vendor, AConvolutionsWeightsThatAreWidenedAreNoConstants) {
  const Workload w = workload(R"(
fn @main(%x: Tensor[(b, 9, 7, 8), f32], %f: Tensor[(3, 3, 8, 20), bf16]) {
  let %w = cast(%f) {dtype = f32};
  let %y = conv2d(%x, %w) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 1,
      layout = "nhwc"};
  %y
})",
                              {false, true});
  EXPECT_THAT(why_not(w), HasSubstr("must be constant"));
}

// ---- of a GPU

std::optional<VendorCall> gpu_call_of(const Workload& w, std::string* why = nullptr) {
  static const TargetInfo gpu = target_by_name("sm_90a");
  return vendor_call_of(w, gpu, why);
}

// A product of %x and %w of this type, behind which `rest` follows, with the bias %b, the residual
// %z, and %r for each row.
Workload gpu_product(const std::string& rest, const std::string& result = "y",
                     const std::string& type = "f32") {
  return workload(fmt::format(R"(
fn @main(%x: Tensor[(n, 24), {0}], %w: Tensor[(24, 40), {0}], %b: Tensor[(40), f32],
         %r: Tensor[(n, 1), f32], %z: Tensor[(n, 40), f32]) {{
  let %y = matmul(%x, %w){1};
{2}  %{3}
}}
)",
                              type, type == "f32" ? "" : " {out = f32}", rest, result));
}

std::string gpu_why_not(const Workload& w) {
  std::string why;
  const bool told = gpu_call_of(w, &why).has_value();
  EXPECT_EQ(told, why.empty()) << why;
  return told ? "it is one" : why;
}

TEST(GpuVendor, IsToldOfProductsAndWhatFollows) {
  const auto call = gpu_call_of(gpu_product(R"(
  let %a = mul(%y, 0.5f32);
  let %s = add(%b, %a);
  let %t = add(%s, %z);
  let %u = gelu_tanh(%t);
)",
                                            "u"));
  ASSERT_TRUE(call);
  EXPECT_EQ(call->routine, "cublaslt.matmul");
  EXPECT_EQ(call->k, 24);
  EXPECT_EQ(call->n, 40);
  EXPECT_FALSE(call->transpose_x);
  EXPECT_FALSE(call->transpose_w);
  EXPECT_EQ(call->y, 5u);
  EXPECT_THAT(call->then,
              ElementsAre(VendorStep{VendorOp::kLinear, 0, 0.5F}, VendorStep{VendorOp::kAdd, 2},
                          VendorStep{VendorOp::kAdd, 4}, VendorStep{VendorOp::kGeluTanh}));
  EXPECT_EQ(exec::vendor_call_of(exec::to_json(*call)), *call);
}

TEST(GpuVendor, IsToldOfBatchesAndTransposition) {
  const auto call = gpu_call_of(workload(R"(
fn @main(%x: Tensor[(b, 12, n, 64), bf16], %w: Tensor[(b, 12, m, 64), bf16]) {
  let %y = matmul(%x, %w) {transpose_b = true};
  %y
})"));
  ASSERT_TRUE(call);
  EXPECT_TRUE(call->transpose_w);
  EXPECT_EQ(call->k, 64);
  EXPECT_EQ(call->n, 0);
  EXPECT_EQ(exec::vendor_call_of(exec::to_json(*call)), *call);
  const auto turned = gpu_call_of(workload(R"(
fn @main(%x: Tensor[(64, n), f32], %w: Tensor[(64, 32), f32]) {
  let %y = matmul(%x, %w) {transpose_a = true};
  %y
})"));
  ASSERT_TRUE(turned);
  EXPECT_TRUE(turned->transpose_x);
}

// Factors of f32 are rounded where the product says that they may be, and nowhere else.
TEST(GpuVendor, IsToldOfFactorsThatMayBeRounded) {
  const auto told = [](const std::string& type, const std::string& attrs) {
    return gpu_call_of(
        workload(fmt::format("fn @main(%x: Tensor[(n, 24), {0}], "
                             "%w: Tensor[(24, 40), {0}]) {{\n"
                             "  let %y = matmul(%x, %w){1};\n  %y\n}}\n",
                             type, attrs)));
  };
  for (const auto& [type, attrs, tf32] : {std::tuple("f32", "", false),
                                          {"f32", " {tf32 = false}", false},
                                          {"f32", " {tf32 = true}", true},
                                          {"bf16", " {tf32 = true}", false}}) {
    const auto call = told(type, attrs);
    ASSERT_TRUE(call) << type << attrs;
    EXPECT_EQ(call->tf32, tf32) << type << attrs;
    EXPECT_EQ(exec::vendor_call_of(exec::to_json(*call)), *call);
  }
}

TEST(GpuVendor, IsToldOfConvolutions) {
  const auto convolution = [](const std::string& rest, const std::string& result,
                              const std::string& layout = "nchw", const char* type = "f32") {
    return workload(fmt::format(R"(
fn @main(%x: Tensor[(b, 8, 9, 7), {0}], %f: Tensor[(20, 4, 3, 3), {0}], %b: Tensor[(20), {0}],
         %c: Tensor[(20, 1, 1), {0}], %z: Tensor[(b, 20, 9, 7), {0}], %r: Tensor[(7), {0}]) {{
  let %y = conv2d(%x, %f{4}) {{strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1],
      groups = 2, layout = "{1}"}};
{2}  %{3}
}}
)",
                                type, layout, rest, result, rest.empty() ? "" : ", %b"));
  };
  std::string why;
  const auto call =
      gpu_call_of(convolution("  let %s = add(%y, %z);\n  let %t = relu(%s);\n", "t"), &why);
  ASSERT_TRUE(call) << why;
  EXPECT_EQ(call->routine, "cudnn.conv2d");
  EXPECT_EQ(call->k, 36);
  EXPECT_EQ(call->n, 20);
  EXPECT_EQ(call->image, (VendorCall::Image{{3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 2, true}));
  EXPECT_THAT(call->then, ElementsAre(VendorStep{VendorOp::kAdd, 2}, VendorStep{VendorOp::kAdd, 4},
                                      VendorStep{VendorOp::kRelu}));
  EXPECT_EQ(exec::vendor_call_of(exec::to_json(*call)), *call);
  EXPECT_EQ(gpu_why_not(convolution("", "y")), "it is one");
  EXPECT_THAT(gpu_why_not(convolution("", "y", "nchw", "f64")), HasSubstr("convolves no f64"));
  const auto with = [&](const std::string& last) {
    return gpu_why_not(convolution("  let %s = " + last + ";\n", "s"));
  };
  EXPECT_THAT(with("add(%y, %c)"), HasSubstr("to each channel")) << "there is a bias";
  EXPECT_THAT(with("add(%y, %r)"), HasSubstr("to each channel"));
  EXPECT_THAT(with("gelu_tanh(%y)"), HasSubstr("no gelu"));
  EXPECT_THAT(with("mul(%y, 0.5f32)"), HasSubstr("factor"));
}

Workload gpu_attention(const std::string& type, const std::string& mask = "",
                       const std::string& rest = "", const std::string& result = "y") {
  return workload(fmt::format(R"(
fn @main(%q: Tensor[(b, n, 96), {0}], %k: Tensor[(b, m, 96), {0}], %v: Tensor[(b, m, 48), {0}],
         %mask: Tensor[(b, 1, 1, m), {0}]) {{
  let %y = attention(%q, %k, %v{1}) {{heads = 6, scale = 0.25}};
{2}  %{3}
}}
)",
                              type, mask, rest, result));
}

TEST(GpuVendor, IsToldOfAttention) {
  for (const char* type : {"f16", "bf16"}) {
    const auto call = gpu_call_of(gpu_attention(type));
    ASSERT_TRUE(call) << type;
    EXPECT_EQ(call->routine, "cudnn.attention");
    ASSERT_TRUE(call->attention);
    EXPECT_EQ(call->attention->heads, 6);
    EXPECT_EQ(call->attention->scale, 0.25F);
    EXPECT_EQ((std::vector<uint32_t>{call->x, call->w, call->attention->v}),
              (std::vector<uint32_t>{0, 1, 2}));
    EXPECT_EQ(exec::vendor_call_of(exec::to_json(*call)), *call);
  }
  EXPECT_THAT(gpu_why_not(gpu_attention("f32")), HasSubstr("attends in f16 and bf16"));
  EXPECT_THAT(gpu_why_not(gpu_attention("bf16", ", %mask")), HasSubstr("takes no mask"));
  EXPECT_NE(gpu_why_not(gpu_attention("bf16", "", "  let %z = relu(%y);\n", "z")), "it is one");
}

TEST(GpuVendor, RoundsWhereOursDo) {
  EXPECT_EQ(gpu_why_not(gpu_product("", "y", "bf16")), "it is one");
  EXPECT_EQ(gpu_why_not(gpu_product("  let %s = relu(%y);\n", "s", "bf16")), "it is one");
  // A bias of f32 to a result of bf16, which the library has not.
  EXPECT_THAT(gpu_why_not(gpu_product("  let %s = add(%y, %b);\n"
                                      "  let %t = cast(%s) {dtype = bf16};\n",
                                      "t", "bf16")),
              HasSubstr("has the result's type"));
}

// Together they are 0 or infinite, which each of them is not.
TEST(GpuVendor, IsNotAskedForFactorsBeyondF32) {
  const auto scaled = [](const char* a, const char* b) {
    return gpu_why_not(
        gpu_product(fmt::format("  let %s = mul(%y, {});\n  let %t = mul(%s, {});\n", a, b), "t"));
  };
  const char* const tiny = "1e-30f32";
  const char* const huge = "1e30f32";
  EXPECT_EQ(scaled(tiny, huge), "it is one");
  EXPECT_THAT(scaled(tiny, tiny), HasSubstr("these together are beyond f32"));
  EXPECT_THAT(scaled(huge, huge), HasSubstr("these together are beyond f32"));
}

TEST(GpuVendor, SaysWhatItIsNotAskedFor) {
  EXPECT_EQ(gpu_why_not(gpu_product("")), "it is one");
  const auto with = [](const std::string& last) {
    return gpu_why_not(gpu_product("  let %s = " + last + ";\n", "s"));
  };
  EXPECT_THAT(with("gelu(%y)"), HasSubstr("by erf"));
  EXPECT_THAT(with("tanh(%y)"), HasSubstr("no tanh behind it"));
  EXPECT_THAT(with("sub(%y, %z)"), HasSubstr("no sub"));
  EXPECT_THAT(with("add(%y, %r)"), HasSubstr("one row"));
  EXPECT_THAT(with("add(%y, 1f32)"), HasSubstr("no sum with a number"));
  EXPECT_THAT(with("mul(%y, 0f32)"), HasSubstr("factors"));
  EXPECT_THAT(with("sin(%y)"), HasSubstr("no sin"));
  EXPECT_THAT(gpu_why_not(gpu_product("  let %s = relu(%y);\n  let %t = add(%s, %b);\n", "t")),
              HasSubstr("behind an activation"));
  EXPECT_THAT(gpu_why_not(gpu_product("  let %s = add(%y, %b);\n  let %t = mul(%s, 2f32);\n", "t")),
              HasSubstr("ahead of sums"));
  EXPECT_THAT(gpu_why_not(gpu_product("  let %s = add(%y, %z);\n  let %t = add(%s, %z);\n", "t")),
              HasSubstr("one row"));
  EXPECT_THAT(gpu_why_not(workload("fn @main(%x: Tensor[(n, 4), f32]) { let %y = relu(%x); %y }")),
              HasSubstr("no routine"));
  EXPECT_THAT(gpu_why_not(workload("fn @main(%x: Tensor[(n, 4), f32], %w: Tensor[(4), f32]) { "
                                   "let %y = matmul(%x, %w); %y }")),
              HasSubstr("no vectors"));
  EXPECT_THAT(gpu_why_not(workload("fn @main(%x: Tensor[(n, 4), f64], %w: Tensor[(4, 2), f64]) { "
                                   "let %y = matmul(%x, %w); %y }")),
              HasSubstr("multiplies no f64"));
}

}  // namespace
}  // namespace nimble::kernels
