// nimble dispatch shapes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tuner/service/met_shapes.h"
#include "tuner/tools/tune_arguments.h"
#include "vm/arguments/table.h"

namespace nimble::tools {

class DispatchShapesCommand {
 public:
  // `sub` has --db already, whose value is `database`.
  void add(CLI::App& sub, const std::string& database);
  int run();

 private:
  tuner::MetShapesOptions options_;
  TuneArguments arguments_;
  const std::string* database_ = nullptr;
  Format format_ = Format::kTable;
};

}  // namespace nimble::tools
