// The types of an entry's ports as the runtime checks values against them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"
#include "vm/executable/executable.h"

namespace nimble::emit {

// The text of a dim for users, and its extent where constant (else -1).
std::string dim_text(const ir::Dim& d);

// Turns types of data values into entries of an executable's type table: one for each instance of
// a data type, made once, so that recursive types end.
class EntryTypes {
 public:
  EntryTypes(const ir::Module& m, std::vector<exec::ValueType>& table)
      : module_(m), table_(table) {}

  // The number of a type. nimble::Error (kUnsupported) at `place` for what cannot cross the border:
  // functions, and data types that contain ever larger instances of themselves.
  uint32_t number_of(const ir::Type& t, const std::string& place);

 private:
  const ir::Module& module_;
  std::vector<exec::ValueType>& table_;
  std::map<std::string, uint32_t> numbers_;
};

}  // namespace nimble::emit
