// nimble dispatch verify.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tuner/service/table_trial.h"
#include "tuner/tools/tune_arguments.h"
#include "vm/arguments/table.h"

namespace nimble::tools {

class DispatchVerifyCommand {
 public:
  // `sub` has --db and the table already; `database` is the value of the former.
  void add(CLI::App& sub, const std::string& database);
  // `command`: the whole command line, for the record.
  int run(const db::Uuid& table, const std::string& command);

 private:
  tuner::TableTrialOptions options_;
  TuneArguments arguments_;
  const std::string* database_ = nullptr;
  bool only_tell_ = false;
  Format format_ = Format::kTable;
};

}  // namespace nimble::tools
