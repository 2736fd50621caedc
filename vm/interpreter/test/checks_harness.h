// Runs that a check allows, or refuses with a message.
#pragma once

#include <string>
#include <vector>

#include "vm/interpreter/test/harness.h"

namespace nimble::rt {

class Checks : public Interpreter {
 protected:
  void SetUp() override;
  // "" or the message.
  std::string failure_of(const std::vector<Input>& inputs, Status status = Status::kFatal);
  std::string load_failure(const std::string& text, Status status, bool trust = false);
};

inline const Input kThree{{3}, {1, 2, 3}};

}  // namespace nimble::rt
