// One program, many ways to run it: all must agree with the reference interpreter.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {

enum class Verdict {
  kAgrees,
  kRefused,         // by inference, or a feature that the compiler says it lacks
  kIllConditioned,  // rounding decides the result: nothing can be compared
  kDiffers,         // another result, an error on one side only, an internal error
};
const char* name_of(Verdict v);

struct Comparison {
  Verdict verdict = Verdict::kAgrees;
  std::string message;  // of kDiffers: configuration, sizes, what differs; else the reason
};

// Types, verifies, prints and parses the module, then compiles it under each configuration and
// compares at several sizes. Inputs: floats in [-1, 1], integers in {0, 1}. Never throws.
Comparison compare(const ir::Module& module, const std::vector<Configuration>& configurations,
                   unsigned seed);

// The modules that the passes leave of one program under configurations that differ in them alone.
// Most programs are the same without most passes, and what follows the passes sees nothing else of
// them (driver::compile): of configurations that leave the same module one is compiled and run.
class LoweredModules {
 public:
  explicit LoweredModules(ir::Module module) : module_(std::move(module)) {}

  // Whether `c` has to be compiled and run: not if one asked about before left the same module.
  bool is_new(const Configuration& c);

 private:
  ir::Module module_;
  std::set<std::string> seen_;
};

// The default, and `count` of all other ways, drawn by seed.
std::vector<Configuration> some_configurations(unsigned seed, size_t count);
// Every way: each optional pass left out, targets, two threads, through a file's bytes, …
std::vector<Configuration> all_configurations();

}  // namespace nimble::driver::testing
