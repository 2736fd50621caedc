// Compiling for a GPU: what runs where, how many copies stand between, and what the executable
// says. The kernels themselves are the templates' and the code generator's tests.
#include "compiler/codegen/cuda/cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/driver/compile.h"
#include "compiler/driver/test/copies.h"
#include "compiler/driver/test/cuda_options.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/targets.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/device_number.h"
#include "vm/base/file.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/executable/reader.h"
#include "vm/executable/verifier.h"
#include "vm/executable/writer.h"
#include "vm/interpreter/model.h"
#include "vm/runtime/test/standin/cuda.h"

namespace nimble::driver {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using testing::cuda_options;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Embeddings, a product with its activation, softmax and a normalisation.
constexpr const char* kNetwork = R"(fn @main(%ids: Tensor[(n), i64], %x: Tensor[(n, 16), f32]) {
  let %r = range() {count = 256, start = 0, step = 1, dtype = f32};
  let %s = sin(%r);
  let %w = reshape(%s) {shape = (16, 16)};
  let %e = gather(%w, %ids) {axis = 0};
  let %a = add(%e, %x);
  let %p = matmul(%a, %w);
  let %g = gelu(%p);
  let %m = softmax(%g) {axis = 1};
  let %t = add(%m, %a);
  let %o = mul(%w, 0f32);
  let %q = take_row(%o, 0i64);
  let %y = layer_norm(%t, %q, %q) {epsilon = 1e-5, axis = 1};
  %y
})";

// The network ends in what only the host does.
constexpr const char* kCounting = R"(fn @main(%x: Tensor[(n), f32]) {
  let %e = exp(%x);
  let %b = greater(%e, 1f32);
  let %i = nonzero(%b);
  %i
})";

// A function that its author keeps on the CPU.
constexpr const char* kBoth =
    R"(fn @here(%x: Tensor[(k, 4), f32]) -> Tensor[(k, 4), f32] attrs {device = 0} {
  let %y = softmax(%x) {axis = 1};
  %y
}
fn @main(%x: Tensor[(n, 4), f32]) {
  let %a = exp(%x);
  let %b = @here(%a);
  let %c = tanh(%b);
  %c
})";

// Extents that are computed from extents decide a shape.
constexpr const char* kShapes = R"(fn @main(%x: Tensor[(n, m), f32]) {
  let %s = shape_of(%x);
  let %t = mul(%s, i64[2]{1, 1});
  let %y = reshape(%x, %t);
  let %z = exp(%y);
  %z
})";

constexpr const char* kLoop =
    R"(fn @loop(%i: Tensor[(), i64], %h: Tensor[(1, 8), f32], %c: Tensor[(1, 8), f32], %x: Tensor[(n, 1, 32), f32]) -> Tensor[(1, 8), f32] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %row = take_row(%x, %i);
    let %q = range() {count = 256, start = 0, step = 1, dtype = f32};
    let %s = sin(%q);
    let %w = reshape(%s) {shape = (8, 32)};
    let %both = lstm_cell(%row, %h, %c, %w);
    let %h2 = %both[0];
    let %c2 = %both[1];
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %h2, %c2, %x);
    %u
  } else { %h };
  %r
}
fn @main(%x: Tensor[(n, 1, 32), f32]) {
  let %z = full() {shape = (1, 8), dtype = f32, value = 0.0};
  let %y = @loop(0i64, %z, %z, %x);
  %y
})";

passes::PassContext context_for(const char* gpu) {
  passes::PassContext context;
  context.target = kernels::target_by_name("x86-64-v3");
  context.gpu = kernels::target_by_name(gpu);
  context.device = kCudaDevice;
  return context;
}

// The operators of the groups on a device, in order.
struct Placed {
  std::vector<std::string> gpu, cpu;
  int64_t copies = 0;  // of values, not of constants
};
Placed placed(const char* text, const char* gpu = "sm_90a") {
  passes::PassContext context = context_for(gpu);
  passes::PipelineOptions options;
  options.verify = true;
  const std::vector<std::string>& all = passes::default_pipeline();
  options.passes.assign(all.begin(), std::find(all.begin(), all.end(), "place-devices") + 1);
  const ir::Module m =
      passes::run_pipeline(ir::infer_types(ir::parse_module(text)), context, options);
  Placed out;
  for (const auto& [name, f] : m.functions)
    passes::visit_bindings(*f->body, [&](const ir::Binding& b) {
      if (!b.value->primitive) return;
      const auto device = ir::attr_or<int64_t>(b.value->primitive->attrs, "device", kCpuDevice);
      (device == kCudaDevice ? out.gpu : out.cpu)
          .push_back(kernels::source_of(*b.value->primitive));
    });
  out.copies = context.statistics["place-devices.copies"];
  return out;
}

TEST(CudaPlacement, ANetworkCopiesItsInputsAndOutputsAlone) {
  const Placed p = placed(kNetwork);
  EXPECT_THAT(p.cpu, IsEmpty());
  EXPECT_FALSE(p.gpu.empty());
  EXPECT_EQ(p.copies, 3);  // the identifiers and %x in, %y out
}

TEST(CudaPlacement, WhatTheHostCountsIsCopiedToIt) {
  const Placed p = placed(kCounting);
  EXPECT_THAT(p.gpu, ElementsAre("exp+greater"));
  EXPECT_EQ(p.copies, 2);
}

TEST(CudaPlacement, FunctionsStayWhereTheirAuthorPutThem) {
  const Placed p = placed(kBoth);
  EXPECT_THAT(p.gpu, ElementsAre("exp", "tanh"));
  EXPECT_THAT(p.cpu, ElementsAre("softmax"));
  EXPECT_EQ(p.copies, 4);
}

// The host computes few integers itself, but has no kernel for a product in this form.
TEST(CudaPlacement, WhatTheGpuAloneHasAKernelForRunsThere) {
  const Placed p = placed(R"(fn @main(%x: Tensor[(2, 4), u8], %w: Tensor[(4, 3), i8]) {
  let %y = matmul(%x, %w) {out = i32};
  %y
})");
  EXPECT_THAT(p.gpu, ElementsAre("matmul"));
  EXPECT_THAT(p.cpu, IsEmpty());
  EXPECT_EQ(p.copies, 3);
}

// A product of bytes in the form that a CPU's templates take.
TEST(CudaPlacement, FormsAreOfTheMachineThatAnAuthorChose) {
  const Placed p = placed(
      R"(fn @here(%x: Tensor[(k, 4), u8], %w: Tensor[(4, 3), i8]) -> Tensor[(k, 3), i32] attrs {device = 0} {
  let %y = matmul(%x, %w) {out = i32};
  %y
}
fn @main(%x: Tensor[(n, 4), u8], %w: Tensor[(4, 3), i8]) {
  let %a = @here(%x, %w);
  let %b = mul(%a, %a);
  %b
})");
  EXPECT_THAT(p.cpu, Contains(HasSubstr("matmul")));
  EXPECT_THAT(p.gpu, ElementsAre("mul"));
}

TEST(CudaPlacement, ShapeCodeStaysWithTheHost) {
  const Placed p = placed(kShapes);
  for (const std::string& source : p.gpu) EXPECT_THAT(source, Not(HasSubstr("mul")));
  EXPECT_EQ(p.copies, 2);
}

TEST(CudaPlacement, ARecurrentLoopCopiesItsInputAndOutputAlone) {
  const Placed p = placed(kLoop);
  EXPECT_THAT(p.cpu, IsEmpty());
  EXPECT_EQ(p.copies, 2);
}

// Host operators alone read trees, and no template of a GPU is asked for them.
TEST(CudaPlacement, TreesAreReadByTheHost) {
  const Placed p = placed(
      read_text_file(NIMBLE_SOURCE_DIR "/compiler/driver/test/programs/recursion/tree_lstm.nir")
          .c_str());
  EXPECT_THAT(p.gpu, Contains(HasSubstr("matmul")));
  EXPECT_THAT(p.gpu, Not(Contains(HasSubstr("linearise"))));
}

// --- whole executables

size_t images_on(const exec::Executable& e, int32_t device) {
  return static_cast<size_t>(
      std::count_if(e.images.begin(), e.images.end(),
                    [&](const exec::NativeImage& i) { return i.device == device; }));
}

// Of the kernels on each device: launches stand where they must.
void expect_launches(const exec::Executable& e) {
  for (const exec::Kernel& k : e.kernels)
    for (const exec::Implementation& i : k.implementations) {
      EXPECT_EQ(i.launch.has_value(), k.device == kCudaDevice) << k.name;
      if (!i.launch) continue;
      EXPECT_EQ(i.launch->threads % 32, 0u) << k.name;
      EXPECT_NE(i.code_hash, 0u) << k.name;
      EXPECT_THAT(i.launch->alignment, AnyOf(1u, 2u, 4u, 8u, 16u)) << k.name;
    }
}

class CudaCompile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = codegen::why_no_cuda(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(CudaCompile, ANetworkIsOneImageAndItsLaunches) {
  CompileReport report;
  const exec::Executable e = compile(ir::parse_module(kNetwork), cuda_options({"sm_90a"}), &report);
  EXPECT_EQ(testing::copies_in(e), 3u);
  EXPECT_EQ(images_on(e, kCudaDevice), 1u);
  EXPECT_EQ(images_on(e, kCpuDevice), 0u);
  expect_launches(e);
  for (const KernelReport& k : report.kernels) {
    EXPECT_EQ(k.device, kCudaDevice) << k.source;
    EXPECT_GT(k.code_bytes, 0u) << k.source;
  }
  const exec::Executable again = exec::deserialize(exec::serialize(e));
  exec::verify(again, "read back");
  expect_launches(again);
}

// What a launch asks of addresses is what its code needs. Rows of three floats to which a vector is
// added are no vectors.
TEST_F(CudaCompile, LaunchesSayHowTheirArgumentsAreToLie) {
  const auto alignment_of = [](const std::string& type, const std::string& width) {
    const std::string text = "fn @main(%x: Tensor[(n, " + width + "), " + type + "], %g: Tensor[(" +
                             width + "), " + type + "]) { let %y = add(%x, %g); %y }";
    const exec::Executable e = compile(ir::parse_module(text), cuda_options({"sm_80", "sm_90a"}));
    for (const exec::Kernel& k : e.kernels)
      for (const exec::Implementation& i : k.implementations)
        if (i.launch) return i.launch->alignment;
    return 0u;
  };
  EXPECT_EQ(alignment_of("f32", "1024"), 16u);
  EXPECT_EQ(alignment_of("f32", "3"), 4u);
  EXPECT_EQ(alignment_of("f64", "3"), 8u);
}

// What copies boxes has its operands' maps in the file.
TEST_F(CudaCompile, LaunchesDescribeWhatIsCopiedAsBoxes) {
  CompileOptions options = cuda_options({"sm_90a"});
  options.knobs["gpu_matmul"] = {{"unit", "wgmma-tma"},          {"block_rows", int64_t{64}},
                                 {"block_columns", int64_t{64}}, {"tile_rows", int64_t{64}},
                                 {"tile_columns", int64_t{64}},  {"k_step", int64_t{32}},
                                 {"k_split", int64_t{1}},        {"stages", int64_t{3}}};
  const exec::Executable e =
      compile(ir::parse_module("fn @main(%x: Tensor[(m, 96), bf16], %w: Tensor[(96, 64), bf16]) {"
                               " let %y = matmul(%x, %w) {out = f32}; %y }"),
              options);
  const exec::Executable again = exec::deserialize(exec::serialize(e));
  exec::verify(again, "read back");
  size_t launches = 0;
  for (const exec::Kernel& k : again.kernels)
    for (const exec::Implementation& i : k.implementations) {
      if (!i.launch || i.launch->maps.empty()) continue;
      ++launches;
      EXPECT_EQ(i.launch->alignment, exec::Launch::kMaxAlignment);
      ASSERT_EQ(i.launch->maps.size(), 2u);
      const int64_t m[] = {5};
      const auto is = [&](const exec::TensorMap& map, uint32_t argument,
                          std::vector<int64_t> extents, std::vector<uint32_t> box) {
        EXPECT_EQ(map.argument, argument);
        ASSERT_EQ(map.axes.size(), extents.size());
        for (size_t axis = 0; axis < extents.size(); ++axis) {
          EXPECT_EQ(map.axes[axis].extent.evaluate1(m), extents[axis]) << axis;
          EXPECT_EQ(map.axes[axis].box, box[axis]) << axis;
        }
      };
      is(i.launch->maps[0], 0, {96, 5}, {32, 64});   // rows along k, in lines of a step
      is(i.launch->maps[1], 1, {64, 96}, {64, 32});  // rows across it
    }
  EXPECT_EQ(launches, 1u);
}

TEST_F(CudaCompile, KernelsOfBothDevicesHaveTheirImages) {
  const exec::Executable e = compile(ir::parse_module(kBoth), cuda_options({"sm_90a"}));
  EXPECT_EQ(images_on(e, kCudaDevice), 1u);
  EXPECT_EQ(images_on(e, kCpuDevice), 1u);
  expect_launches(e);
}

TEST_F(CudaCompile, SeveralArchitecturesHaveAnImageEach) {
  const exec::Executable e = compile(ir::parse_module(kNetwork), cuda_options({"sm_80", "sm_90a"}));
  EXPECT_EQ(images_on(e, kCudaDevice), 2u);
  expect_launches(e);
}

// On the stand-in for a driver, which knows assembly as far as its outside goes.
TEST_F(CudaCompile, AssemblyBesideServesWhatComesLater) {
  const ScopedVariable library("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA);
  CompileOptions options = cuda_options({"compute_80", "sm_90a"});
  options.gpus = kernels::gpus_of_one_file(options.gpus);
  const std::vector<uint8_t> file = exec::serialize(compile(ir::parse_module(kNetwork), options));
  rt::LoadOptions load;
  load.trust = true;
  standin_cuda(NIMBLE_STANDIN_CUDA).set(13000, 1, 120);
  const auto model = rt::Model::load(exec::deserialize(file), load, "test");
  EXPECT_EQ(model->gpu_target(), "compute_80");
  EXPECT_THAT(model->notes(), ::testing::ElementsAre(HasSubstr("compute capability 12.0")));
  EXPECT_STREQ(standin_cuda(NIMBLE_STANDIN_CUDA).violations(), "");
}

TEST_F(CudaCompile, EqualInputGivesEqualBytes) {
  const auto bytes = [] {
    return exec::serialize(compile(ir::parse_module(kNetwork), cuda_options({"sm_90a"})));
  };
  EXPECT_EQ(bytes(), bytes());
}

TEST(CudaTarget, IsRefusedWithoutTheLibraryThatMakesItsCode) {
  if (codegen::why_no_cuda().empty()) GTEST_SKIP() << "it is here";
  try {
    compile(ir::parse_module(kNetwork), cuda_options({"sm_90a"}));
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kUnsupported);
    EXPECT_THAT(e.what(), HasSubstr("sm_90a"));
    EXPECT_THAT(e.what(), HasSubstr("NIMBLE_NVRTC"));
  }
}

TEST(CudaTarget, AndItsDeviceBelongTogether) {
  const auto problem = [](const CompileOptions& options) -> std::string {
    try {
      compile(ir::parse_module(kCounting), options);
      return "none";
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kInvalidArgument);
      return e.what();
    }
  };
  CompileOptions no_gpu = cuda_options({});
  EXPECT_THAT(problem(no_gpu), HasSubstr("--target sm_90a"));
  CompileOptions elsewhere = cuda_options({"sm_90a"});
  elsewhere.device = kStandInDevice;
  EXPECT_THAT(problem(elsewhere), HasSubstr("no other device"));
}

// A program that names the GPU itself, compiled for the CPU alone.
TEST(CudaTarget, IsAskedForByAProgramThatNamesTheDevice) {
  CompileOptions options = cuda_options({});
  options.device = kCpuDevice;
  try {
    compile(ir::parse_module(
                "fn @main(%x: Tensor[(n), f32]) attrs {device = 2} { let %y = exp(%x); %y }"),
            options);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr("device 2 (cuda)"));
    EXPECT_THAT(e.what(), HasSubstr("--target sm_90a"));
  }
}

}  // namespace
}  // namespace nimble::driver
