// nimble dispatch report.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tuner/service/dispatch_report.h"
#include "tuner/tools/tune_arguments.h"
#include "vm/arguments/table.h"

namespace nimble::tools {

class DispatchReportCommand {
 public:
  // `sub` has --db already, whose value is `database`.
  void add(CLI::App& sub, const std::string& database);
  int run();

 private:
  tuner::DispatchReportOptions options_;
  TuneArguments arguments_;
  const std::string* database_ = nullptr;
  std::vector<std::string> ranges_;
  std::string heat_map_, look_ = "60s";
  Format format_ = Format::kTable;
};

}  // namespace nimble::tools
