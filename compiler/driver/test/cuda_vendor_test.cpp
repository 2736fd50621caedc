// Routines of a GPU's libraries in executables: asked for by a person, with a kernel of ours
// beside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/codegen/cuda/cuda.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/test/cuda_options.h"
#include "compiler/ir/text.h"
#include "vm/executable/reader.h"
#include "vm/executable/vendor_call.h"
#include "vm/executable/verifier.h"
#include "vm/executable/writer.h"

namespace nimble::driver {
namespace {

using exec::ImplementationKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kLayer =
    R"(fn @main(%x: Tensor[(n, 16), f32], %w: Tensor[(16, 24), f32], %b: Tensor[(24), f32]) {
  let %y = matmul(%x, %w);
  let %s = add(%y, %b);
  let %t = relu(%s);
  %t
})";
constexpr const char* kConvolution =
    R"(fn @main(%x: Tensor[(b, 4, 9, 7), f32], %f: Tensor[(8, 4, 3, 3), f32]) {
  let %y = conv2d(%x, %f) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 1};
  let %z = relu(%y);
  %z
})";
// GELU by erf, which no library has.
constexpr const char* kErf = R"(fn @main(%x: Tensor[(n, 16), f32], %w: Tensor[(16, 24), f32]) {
  let %y = matmul(%x, %w);
  let %t = gelu(%y);
  %t
})";

// A vendor's routine wherever there is one.
CompileOptions vendor_options(std::initializer_list<const char*> gpus) {
  CompileOptions options = testing::cuda_options(gpus);
  options.knobs["vendor"] = {};
  return options;
}

class CudaVendor : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = codegen::why_no_cuda(); !why.empty()) GTEST_SKIP() << why;
  }
  static std::string problem(const char* text, const CompileOptions& options) {
    try {
      compile(ir::parse_module(text), options);
      return "none";
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kInvalidArgument);
      return e.what();
    }
  }
};

TEST_F(CudaVendor, StandsInFrontOfOurs) {
  CompileReport report;
  const exec::Executable e =
      compile(ir::parse_module(kLayer), vendor_options({"sm_80", "sm_90a"}), &report);
  ASSERT_EQ(e.kernels.size(), 1u);
  const exec::Kernel& k = e.kernels[0];
  ASSERT_EQ(k.implementations.size(), 2u);
  EXPECT_EQ(k.dispatch.nodes.size(), 1u);
  EXPECT_EQ(k.dispatch.nodes[0].yes, 0u);
  EXPECT_EQ(k.implementations[0].kind, ImplementationKind::kVendor);
  EXPECT_EQ(k.implementations[0].symbol, "cublaslt.matmul");
  EXPECT_FALSE(k.implementations[0].launch);
  EXPECT_EQ(k.implementations[1].kind, ImplementationKind::kNative);
  EXPECT_TRUE(k.implementations[1].launch);
  EXPECT_NE(k.implementations[1].code_hash, 0u);
  const exec::VendorCall call = exec::vendor_call_of(k.implementations[0].config);
  EXPECT_EQ(call.library, "") << "nothing was measured";
  EXPECT_EQ(call.k, 16);
  EXPECT_EQ(call.n, 24);
  EXPECT_THAT(call.then, ElementsAre(exec::VendorStep{exec::VendorOp::kAdd, 2},
                                     exec::VendorStep{exec::VendorOp::kRelu}));
  EXPECT_EQ(e.images.size(), 2u) << "ours, for each architecture";
  ASSERT_EQ(report.kernels.size(), 1u);
  EXPECT_THAT(report.kernels[0].reason, HasSubstr("as asked for"));
  exec::verify(exec::deserialize(exec::serialize(e)), "read back");
}

TEST_F(CudaVendor, ComputesConvolutions) {
  const exec::Executable e = compile(ir::parse_module(kConvolution), vendor_options({"sm_90a"}));
  ASSERT_EQ(e.kernels.size(), 1u);
  EXPECT_EQ(e.kernels[0].implementations[0].symbol, "cudnn.conv2d");
  EXPECT_EQ(e.kernels[0].implementations.size(), 2u);
}

TEST_F(CudaVendor, IsRefusedWhereItComputesNothing) {
  EXPECT_THAT(problem(kErf, vendor_options({"sm_90a"})),
              HasSubstr("makes no kernel of this model"));
  CompileOptions options = vendor_options({"sm_90a"});
  options.knobs["vendor"] = {{"rows", int64_t{4}}};
  EXPECT_THAT(problem(kLayer, options), HasSubstr("a vendor's routine has none"));
}

}  // namespace
}  // namespace nimble::driver
