// Shrinks a module while a test of it keeps its verdict (nimble reduce).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "compiler/ir/expr.h"

namespace nimble::reduce {

// How large a module is, most important first: functions, parameters, bindings, cases and
// constructors; reads of bound variables; symbols; attributes; characters; extents; bytes of
// constants that are not zero. A candidate must come before what it replaces, so that a run ends.
using Size = std::array<int64_t, 7>;
Size size_of(const ir::Module& m);

struct Progress {
  int64_t tests = 0;     // runs of the test
  int64_t accepted = 0;  // candidates that became the best
  Size size{};           // of the best
  const char* edit = "";
};

struct Options {
  int64_t most_tests = std::numeric_limits<int64_t>::max();
  double most_seconds = std::numeric_limits<double>::infinity();
  std::string file_name = "candidate.nir";  // of the files that are tested
  std::function<bool()> interrupted;        // asked between tests; may be empty
  std::function<void(const Progress&)> progress;
  std::function<void(const ir::Module&)> save;  // called with each new best
};

struct Outcome {
  ir::Module module;
  Progress progress;
  bool complete = false;  // false: a limit or an interruption came first
  bool inferred = false;  // candidates were kept well typed (else: well formed as text only)
};

// Whether the module in a file still shows what is looked for.
using Test = std::function<bool(const std::string& path)>;

// `m` must pass the test. What comes out passes it as well, and no single edit of edits.h makes it
// smaller without losing that, if the run was complete. Errors: kIo from the scratch folder.
Outcome reduce(const ir::Module& m, const Test& test, const Options& options);

}  // namespace nimble::reduce
