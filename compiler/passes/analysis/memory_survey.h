// What a lowered function does with its storages: where each may be reached from, and which leave
// the function's sight.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::passes {

// Values that hold memory: tensors, storages, and tuples, data values and functions that may.
bool holds_memory(const ir::Type& t);

// A walk over a function in the order of its text. `time` counts bindings and blocks' results.
class MemorySurvey {
 public:
  struct Block {
    size_t parent = 0;  // of the function's body: itself
    size_t index = 0;   // of the binding in the parent that holds this block
    size_t depth = 0;
    size_t time = 0;  // of that binding
  };
  struct Storage {
    ir::VarRef var;
    const ir::Expr* alloc = nullptr;
    size_t block = 0, index = 0;  // the binding that allocates it
    size_t first = 0, last = 0;   // times of its allocation and of the last use of what lies in it
    // Held by a tuple, a data value, a closure, a call or the result of its block: how long, only
    // reference counts know.
    bool escapes = false;
  };
  struct Call {
    size_t time = 0;
    ir::Atom callee;
    bool tail = false;
  };
  // A variable whose type has symbols that it may bring into scope.
  struct Introduction {
    const ir::Var* var;
    size_t block = 0, time = 0;
  };

  explicit MemorySurvey(const ir::Function& f);

  std::vector<Block> blocks;  // in order; the first is the body
  std::vector<Storage> storages;
  std::vector<Call> calls;
  std::vector<Introduction> introductions;
  // The storages (by number) that a variable may lie in.
  std::unordered_map<const ir::Var*, std::vector<size_t>> held;

 private:
  void walk(const ir::Block& b, size_t id, bool tail);
  void touch(const ir::Atom& a, bool escape);
  void merge(const ir::Var* into, const ir::Atom& from);
  size_t clock_ = 0;
};

}  // namespace nimble::passes
