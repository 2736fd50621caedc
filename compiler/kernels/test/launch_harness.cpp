#include "compiler/kernels/test/launch_harness.h"

#include <gtest/gtest.h>

#include "compiler/kernels/interpreter.h"
#include "vm/base/error.h"

namespace nimble::kir::testing {

Condition ne(const Dim& a, const Dim& b) {
  return {{{a, Condition::Op::kNe, b}}};
}

std::string outcome(const Function& f, const std::vector<std::span<std::byte>>& buffers,
                    const std::vector<int64_t>& symbols, Launches launches) {
  std::vector<std::string> all;
  for (const bool apart : {false, true}) {
    if (apart && launches == Launches::kOne) continue;
    for (const uint64_t order : {0, 1, 7}) {
      Interpreter::Options options;
      options.order = order;
      options.apart = apart;
      try {
        all.push_back("status " + std::to_string(Interpreter(f, options).run(buffers, symbols)));
      } catch (const Error& e) {
        all.emplace_back(e.what());
      }
      EXPECT_EQ(all.back().starts_with("status"), all[0].starts_with("status")) << all.back();
    }
  }
  return all[0];
}

}  // namespace nimble::kir::testing
