// Everything that the driver's tests know, for each GPU: what no template of its takes runs on the
// CPU, so nothing that compiles for the CPU alone is refused. As far as the choice of templates;
// scripts/test-gpu-offline makes their code.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "compiler/driver/test/harness.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/test/gpu_levels.h"
#include "vm/base/device_number.h"
#include "vm/base/npy.h"

namespace nimble::driver::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const fs::path kData = fs::path(NIMBLE_SOURCE_DIR) / "compiler/frontend/test/data";

// Why a module does not come to kernels on the CPU and a GPU, none if `gpu` is empty; "" if it
// does.
std::string refusal(const ir::Module& m, const std::string& gpu) {
  passes::PassContext context;
  context.target = kernels::target_by_name("x86-64-v3");
  if (!gpu.empty()) {
    context.gpu = kernels::target_by_name(gpu);
    context.device = kCudaDevice;
  }
  passes::PipelineOptions options;
  options.verify = true;
  try {
    const ir::Module lowered = passes::run_pipeline(ir::infer_types(m), context, options);
    for (const WorkloadUse& use : workloads_of(lowered))
      if (!kernels::template_for(use.workload, context.target_of(use.device)))
        return fmt::format("no template of {} serves {}", device_name(use.device), use.source);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Of those that the CPU alone is not refused for.
std::vector<std::string> refusals(const std::vector<std::pair<std::string, ir::Module>>& models,
                                  const std::string& gpu) {
  std::vector<std::string> out;
  for (const auto& [name, m] : models)
    if (const std::string why = refusal(m, gpu); !why.empty() && refusal(m, "").empty())
      out.push_back(name + ": " + why);
  return out;
}

class CudaModels : public ::testing::TestWithParam<std::string> {};

// The onnx package's tests of operators (frontend/test/record_backend_tests.py).
TEST_P(CudaModels, OperatorsOfOnnxAreServed) {
  const fs::path file = fs::path(::testing::TempDir()) /
                        fmt::format("nimble-cuda-models-{}-{}.onnx", GetParam(), ::getpid());
  std::vector<std::pair<std::string, ir::Module>> models;
  for (const auto& [name, array] : read_npz(kData / "backend_tests.npz")) {
    if (!name.ends_with("/model")) continue;
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(array.bytes.data()),
               static_cast<std::streamsize>(array.bytes.size()));
    models.emplace_back(name.substr(0, name.find('/')), frontend::import_model(file));
  }
  fs::remove(file);
  EXPECT_GT(models.size(), 300u);
  EXPECT_THAT(refusals(models, GetParam()), IsEmpty());
}

// What exporters and quantisers write, and single operators in forms that the package lacks.
TEST_P(CudaModels, FixturesAreServed) {
  std::vector<std::pair<std::string, ir::Module>> models;
  for (const auto& entry : fs::recursive_directory_iterator(kData))
    if (entry.path().extension() == ".onnx")
      models.emplace_back(entry.path().stem().string(), frontend::import_model(entry.path()));
  EXPECT_GT(models.size(), 60u);
  EXPECT_THAT(refusals(models, GetParam()), IsEmpty());
}

// But for those that name a device themselves. Where trees are made on the host and walked on the
// GPU, they would have to be copied: that is refused.
TEST_P(CudaModels, ProgramsAreServed) {
  std::vector<std::pair<std::string, ir::Module>> models;
  for (const Program& p : all_programs())
    if (p.text.find("device") == std::string::npos)
      models.emplace_back(p.name, ir::parse_module(p.text));
  EXPECT_GT(models.size(), 300u);
  EXPECT_THAT(
      refusals(models, GetParam()),
      ElementsAre(AllOf(StartsWith("batch_of_trees: "), HasSubstr("only tensors can be copied"))));
}

INSTANTIATE_TEST_SUITE_P(Gpus, CudaModels, ::testing::ValuesIn(kernels::testing::gpu_levels()),
                         [](const auto& info) { return info.param; });

// Operators have the forms that the GPU's templates take, unless their author keeps them on the
// CPU. So few integers as here the host would compute itself, if it had a kernel for them.
TEST(CudaForms, AreOfTheMachineThatRunsThem) {
  const char* product = R"(fn @main(%x: Tensor[(2, 4), u8], %w: Tensor[(4, 3), i8]){ATTRS} {
  let %y = matmul(%x, %w) {out = i32};
  %y
})";
  const char* attention =
      R"(fn @main(%q: Tensor[(b, n, 64), f16], %k: Tensor[(b, n, 64), f16], %v: Tensor[(b, n, 64), f16]){ATTRS} {
  let %y = attention(%q, %k, %v) {heads = 4, scale = 0.25};
  %y
})";
  for (const std::string text : {product, attention})
    for (const char* attrs : {"", " attrs {device = 0}", " attrs {device = 2}"}) {
      SCOPED_TRACE(text + attrs);
      const std::string name = "{ATTRS}";
      std::string with = text;
      with.replace(with.find(name), name.size(), attrs);
      EXPECT_EQ(refusal(ir::parse_module(with), "sm_90a"), "");
    }
}

}  // namespace
}  // namespace nimble::driver::testing
