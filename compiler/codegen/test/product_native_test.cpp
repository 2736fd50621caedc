// The cases of the product templates' tests as machine code, for every level that this machine
// runs, and as portable code, in a few configurations each.
#include <algorithm>
#include <memory>

#include "compiler/codegen/test/native.h"
#include "compiler/codegen/test/portable.h"
#include "compiler/kernels/test/exhaustive.h"
#include "compiler/kernels/test/reference_harness.h"

namespace nimble::kernels {
namespace {

const bool kNativeMode = [] {
  HarnessMode& mode = harness_mode();
  mode.prepare = [](const kir::Function& f, const TargetInfo& target) -> Execute {
    const auto native = std::make_shared<codegen::testing::Native>(f, target.level);
    const auto portable = std::make_shared<codegen::testing::Portable>(f);
    return [f, native, portable](auto buffers, auto symbols, int threads) {
      const std::vector<std::span<std::byte>> b(buffers.begin(), buffers.end());
      const std::vector<int64_t> s(symbols.begin(), symbols.end());
      return codegen::testing::run_both(
          f, *portable, [&] { return native->run(b, s, threads); }, b, s);
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
