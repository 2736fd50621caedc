// The cases of the product templates' tests as machine code, for every level that this machine
// runs, in a few configurations each.
#include <algorithm>
#include <memory>

#include "compiler/codegen/test/native.h"
#include "compiler/kernels/test/exhaustive.h"
#include "compiler/kernels/test/reference_harness.h"

namespace nimble::kernels {
namespace {

const bool kNativeMode = [] {
  HarnessMode& mode = harness_mode();
  mode.prepare = [](const kir::Function& f, const TargetInfo& target) -> Execute {
    const auto native = std::make_shared<codegen::testing::Native>(f, target.level);
    return [native](auto buffers, auto symbols, int threads) {
      return native->run({buffers.begin(), buffers.end()}, {symbols.begin(), symbols.end()},
                         threads);
    };
  };
  mode.runs = [](const std::string& level) {
    const std::vector<std::string> levels = codegen::testing::runnable_levels();
    return std::find(levels.begin(), levels.end(), level) != levels.end();
  };
  if (!exhaustive()) mode.most_configurations = 2;
  return true;
}();

}  // namespace
}  // namespace nimble::kernels

#include "compiler/kernels/test/product_test.cpp"
