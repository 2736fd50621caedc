// The tests of templates (compiler/kernels/test), which this program has too, run here as machine
// code and as portable code, which must agree: in few configurations, or in all that are sampled
// with NIMBLE_EXHAUSTIVE=1.
#include <algorithm>
#include <memory>

#include "compiler/codegen/test/native.h"
#include "compiler/codegen/test/portable.h"
#include "compiler/kernels/test/exhaustive.h"
#include "compiler/kernels/test/reference_harness.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels {
namespace {

// A kernel in both forms, compiled once.
struct BothForms {
  codegen::testing::Native native;
  codegen::testing::Portable portable;

  BothForms(const kir::Function& f, const std::string& level) : native(f, level), portable(f) {}
  int32_t run(const kir::Function& f, std::span<const std::span<std::byte>> buffers,
              std::span<const int64_t> symbols, int threads) {
    const std::vector<std::span<std::byte>> b(buffers.begin(), buffers.end());
    const std::vector<int64_t> s(symbols.begin(), symbols.end());
    return codegen::testing::run_both(
        f, portable, [&] { return native.run(b, s, threads); }, b, s);
  }
};

// Tests over a ReferenceHarness (template_product_test.cpp, template_recurrent_test.cpp, …): for
// every level that this machine runs, in two configurations.
const bool kProducts = [] {
  HarnessMode& mode = harness_mode();
  mode.prepare = [](const kir::Function& f, const TargetInfo& target) -> Execute {
    const auto forms = std::make_shared<BothForms>(f, target.level);
    return [f, forms](auto buffers, auto symbols, int threads) {
      return forms->run(f, buffers, symbols, threads);
    };
  };
  mode.runs = [](const std::string& level) {
    const std::vector<std::string> levels = codegen::testing::runnable_levels();
    return std::find(levels.begin(), levels.end(), level) != levels.end();
  };
  if (!exhaustive()) mode.most_configurations = 2;
  return true;
}();

// template_*_test.cpp: for this machine's level, in default configurations. A kernel runs at many
// sizes, one after the other.
int32_t run_forms(const kir::Function& f, std::span<const std::span<std::byte>> buffers,
                  std::span<const int64_t> symbols, int threads) {
  static std::shared_ptr<const kir::Stmt> body;
  static std::unique_ptr<BothForms> forms;
  if (f.body != body) {
    forms = std::make_unique<BothForms>(f, codegen::testing::runnable_target().level);
    body = f.body;
  }
  return forms->run(f, buffers, symbols, threads);
}

const bool kTemplates = [] {
  testing::mode().run = run_forms;
  testing::mode().targets = {codegen::testing::runnable_target()};
  testing::mode().only_default = !exhaustive();
  testing::mode().also_on_gpu = {};  // which is the kernels' own test's
  return true;
}();

}  // namespace
}  // namespace nimble::kernels
