// The cases of the template tests as machine code of this machine's level: every template's
// default configuration against the same plain loops.
#include <map>
#include <memory>

#include "compiler/codegen/test/native.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {
namespace {

// A kernel runs at many sizes; it is compiled once.
int32_t run_native(const kir::Function& f, std::span<const std::span<std::byte>> buffers,
                   std::span<const int64_t> symbols, int threads) {
  static std::shared_ptr<const kir::Stmt> body;
  static std::unique_ptr<codegen::testing::Native> native;
  if (f.body != body) {
    native = std::make_unique<codegen::testing::Native>(f, detect_host().level);
    body = f.body;
  }
  return native->run({buffers.begin(), buffers.end()}, {symbols.begin(), symbols.end()}, threads);
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
