// Faults of a program, with the place where the user can mend them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::ir {

struct Diagnostic {
  Location location;
  std::string problem, remedy, source_line;
  // file:line:column: problem; remedy, then the source line and a caret where it is known.
  std::string str() const;
};

// Collects faults: at most kMax, one per place and problem.
class Diagnostics {
 public:
  static constexpr size_t kMax = 50;
  // `text`, the source, may be null: then no line is quoted.
  explicit Diagnostics(std::shared_ptr<const std::string> text = {}) : text_(std::move(text)) {}

  void add(Location at, std::string problem, std::string remedy);
  bool empty() const { return all_.empty(); }
  size_t size() const { return all_.size(); }
  // In order of their place.
  std::vector<Diagnostic> sorted() const;

 private:
  std::shared_ptr<const std::string> text_;
  std::vector<Diagnostic> all_;
};

// One nimble::Error (kInvalidArgument) that carries all diagnostics, one or more.
[[noreturn]] void raise(const std::vector<Diagnostic>& diagnostics);

}  // namespace nimble::ir
