// A fixture whose tests run for a level, by the instructions that its machines have.
#pragma once

#include <memory>
#include <string>

#include "compiler/kernels/targets.h"
#include "compiler/kernels/test/level_cases.h"
#include "compiler/kernels/test/reference_harness.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {

class AtLevel : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!harness_mode().runs(GetParam())) GTEST_SKIP() << "this machine lacks " << GetParam();
    target_ = target_by_name(GetParam());
    mode().targets = {target_};
    mode().run = [this](const kir::Function& f, auto buffers, auto symbols, int threads) {
      if (f.body != body_) {
        run_ = harness_mode().prepare(f, target_);
        body_ = f.body;
      }
      return run_(buffers, symbols, threads);
    };
  }
  void TearDown() override { mode() = mode_; }

  TargetInfo target_;

 private:
  const Mode mode_ = mode();
  Execute run_;
  std::shared_ptr<const kir::Stmt> body_;
};

// A level for each way to multiply bytes.
inline auto levels_of_bytes() {
  return ::testing::Values("portable", "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-vnni",
                           "x86-64-v4-amx", "aarch64-dotprod");
}

}  // namespace nimble::kernels::testing
