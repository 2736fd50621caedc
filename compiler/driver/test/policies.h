// What the tests of policies of precision share: the ways in which a program is compiled under one,
// and the module as the policy rounds it.
#pragma once

#include <string>
#include <vector>

#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {

// Elements drawn from -scale to scale.
ir::TensorRef tensor(const std::vector<int64_t>& shape, unsigned seed, float scale = 1);

// As users compile under a policy.
Configuration under(passes::Precision policy);
// The same, and the other ways: on two threads, without native code, without packed weights,
// through texts and files, for each level that this machine runs.
std::vector<Configuration> ways_to_compile(passes::Precision policy);

// The module with what the policy says written into it, by the passes up to `last`.
ir::Module rounded(const ir::Module& m, const Configuration& c, const std::string& last);

}  // namespace nimble::driver::testing
