// A crash leaves a reproducer.
//
// While a stage of the compiler runs, a CrashScope holds the module as it was before it. When
// nimble finds a fault of its own (NIMBLE_CHECK) or a signal ends the process, the handler that a
// program installed writes that module as text, with a first line that tells how to get there
// again:
//
//   // RUN-PIPELINE: --passes fuse,lower-memory --target x86-64-v3
//
// and says so on stderr. `nimble opt FILE` takes its options from that line. What happens after
// the passes leaves the whole module under `// RUN-COMPILE:`, for nimble compile.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::passes {

// The innermost one counts. Modules share their parts, so that holding one costs nothing.
class CrashScope {
 public:
  enum class Program { kOpt, kCompile };
  // `stage` as a message calls it ("pass 'fuse'"); `options` as the program takes them.
  CrashScope(ir::Module before, std::string stage, std::string options,
             Program program = Program::kOpt);
  ~CrashScope();
  CrashScope(const CrashScope&) = delete;
  CrashScope& operator=(const CrashScope&) = delete;

 private:
  friend void report_crash();
  ir::Module before_;
  std::string stage_, options_;
  Program program_;
  const CrashScope* outer_;
};

// For programs: from now on a crash inside a CrashScope writes nimble-crash-STAGE-PID.nir into
// `folder` (empty: none is written). The process ends by the same signal as without.
void install_crash_handler(const std::string& folder);
// The folder that the environment's NIMBLE_CRASH_DIR names, else the current one.
std::string default_crash_folder();

// The options of a reproducer's first line, word by word; nothing if it has no such line.
std::optional<std::vector<std::string>> reproducer_options(std::string_view text);

}  // namespace nimble::passes
