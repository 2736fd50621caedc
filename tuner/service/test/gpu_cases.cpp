#include "tuner/service/test/gpu_cases.h"

#include <gtest/gtest.h>

#include "compiler/tuned/tuned.h"

namespace nimble::tuner {

const kernels::TargetInfo& hopper() {
  static const kernels::TargetInfo target = kernels::target_by_name("sm_90a");
  return target;
}

std::string why_no_nvrtc() {
  try {
    tuned::require_toolchain(hopper());
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::string refusal(const std::function<void()>& body, Status status) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), status) << e.what();
    EXPECT_FALSE(e.remedy().empty()) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace nimble::tuner
