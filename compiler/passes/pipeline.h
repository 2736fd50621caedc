// Runs passes in order: the way of a module from a frontend to the emitter.
#pragma once

#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "compiler/passes/pass.h"

namespace nimble::passes {

// The names of the whole way, in order; a name may stand more than once.
const std::vector<std::string>& default_pipeline();

struct PipelineOptions {
  std::vector<std::string> passes = default_pipeline();
  std::set<std::string> disabled;
  std::set<std::string> print_after;  // "all" prints after each
  bool verify = false;                // run the verifiers after each pass
  // Print and parse the module before each pass: the text form must lose nothing that a pass needs.
  bool reserialise = false;
  bool fusion = true;                  // false: `fuse` makes a group of each operator
  std::vector<PassInfo> extra_passes;  // known to this run beside those of Passes.def
  std::ostream* log = nullptr;         // where print_after goes
};
// The options that `nimble opt` takes for the rest of a run: "--passes fuse,lower-memory --verify".
std::string command_options(const PipelineOptions& options, size_t first_pass,
                            const PassContext& context);

// Error(kInvalidArgument) if they name a pass that there is not, or leave one out that may not be.
void check_pass_names(const PipelineOptions& options);

struct PassTiming {
  std::string pass;
  double milliseconds;
};

// nimble::Error (kInvalidArgument) for an unknown pass, or one that may not be disabled. A
// verifier fault after a pass is a bug of that pass: an internal error that names it.
ir::Module run_pipeline(ir::Module m, PassContext& context, const PipelineOptions& options = {},
                        std::vector<PassTiming>* timings = nullptr);

}  // namespace nimble::passes
