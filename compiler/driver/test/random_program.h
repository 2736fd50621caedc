// Random programs for differential tests: typed, over the whole operator table and the whole
// language. The essay stands in random_program.cpp.
#pragma once

#include <cstdint>

#include "compiler/ir/expr.h"

namespace nimble::driver::testing {

struct RandomProgramOptions {
  int steps = 14;          // bindings of main, about
  bool control = true;     // if, loops, helper functions
  bool closures = true;    // function values
  bool data_types = true;  // lists, options, trees; match
  // Operators that fail for some values (indices) or whose extents the values decide.
  bool data_dependent = true;
};

// The same program for the same seed and options. It is untyped; a few of a hundred are refused
// by inference (a demand that the generator believed to be provable).
ir::Module random_module(uint64_t seed, const RandomProgramOptions& options = {});

}  // namespace nimble::driver::testing
