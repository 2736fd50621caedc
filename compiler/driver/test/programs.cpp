#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {

const std::vector<Program>& all_programs() {
  static const std::vector<Program> kAll = [] {
    std::vector<Program> all;
    for (auto area :
         {elementwise_programs, cast_programs, rearrange_programs, reduce_programs,
          product_programs, scalar_programs, control_programs, loop_programs, dynamic_programs,
          data_programs, closure_programs, device_programs, recursion_programs})
      for (Program& p : area()) all.push_back(std::move(p));
    return all;
  }();
  return kAll;
}

}  // namespace nimble::driver::testing
