// The program nimble-db on a database with a few results.
#pragma once

#include <string>

#include "db/store/test/all.h"
#include "db/store/test/fixture.h"
#include "vm/base/test/run_command.h"

namespace nimble::db {

class ProgramTest : public FileTest {
 protected:
  static CommandResult run(const std::string& arguments);
  std::string db() const { return "--db " + file(); }
  // Three trials of a campaign, a table of their best, and shapes that production met.
  void fill();
  Uuid campaign;
};

}  // namespace nimble::db
