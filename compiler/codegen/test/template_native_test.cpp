// The cases of the template tests as machine code of this machine's level and as portable code:
// every template's default configuration against the same plain loops and against each other.
#include <map>
#include <memory>

#include "compiler/codegen/test/native.h"
#include "compiler/codegen/test/portable.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {
namespace {

// A kernel runs at many sizes; it is compiled once.
int32_t run_native(const kir::Function& f, std::span<const std::span<std::byte>> buffers,
                   std::span<const int64_t> symbols, int threads) {
  static std::shared_ptr<const kir::Stmt> body;
  static std::unique_ptr<codegen::testing::Native> native;
  static std::unique_ptr<codegen::testing::Portable> portable;
  if (f.body != body) {
    native = std::make_unique<codegen::testing::Native>(f, detect_host().level);
    portable = std::make_unique<codegen::testing::Portable>(f);
    body = f.body;
  }
  const std::vector<std::span<std::byte>> b(buffers.begin(), buffers.end());
  const std::vector<int64_t> s(symbols.begin(), symbols.end());
  return codegen::testing::run_both(
      f, *portable, [&] { return native->run(b, s, threads); }, b, s);
}

const bool kNativeMode = [] {
  mode().run = run_native;
  mode().targets = {detect_host()};
  mode().only_default = !exhaustive();
  return true;
}();

}  // namespace
}  // namespace nimble::kernels::testing

#include "compiler/kernels/test/template_attention_test.cpp"
#include "compiler/kernels/test/template_elementwise_test.cpp"
#include "compiler/kernels/test/template_reduce_test.cpp"
