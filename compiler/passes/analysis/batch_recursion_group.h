// Which functions recurse over a value of a data type so that batch_recursion can batch them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/ir/recursion_schema.h"
#include "compiler/passes/analysis/recursion.h"

namespace nimble::passes {

// One function of the recursion.
struct Member {
  std::string name;
  ir::FunctionRef f;
  size_t data = 0;                // its parameter of a data type
  std::vector<size_t> invariant;  // of each parameter, the root's parameter that it is
  const ir::Expr* match = nullptr;
  std::vector<ir::Type> results;  // tensors
  bool tuple = false;             // whether it returns them in one
  bool collects = false;          // it only asks for others' results: see RecursionGroup
};

// One case of a function, with what it reads of the value.
struct Case {
  size_t member = 0;
  const ir::MatchCase* source = nullptr;
  std::map<const ir::Var*, size_t> field;  // of the pattern's variables
};

// The functions that the root reaches by recursion, the root first; NotBatchable
// (batch_operators.h) where they are not what batch_recursion.cpp asks for.
//
// The root is one that is batched itself, or it *collects*: it walks along a list (one case goes
// on, with one call of itself) and calls a batched function on elements. It may do with the results
// what it likes, since it runs after the steps.
class RecursionGroup {
 public:
  RecursionGroup(const ir::Module& m, const Recursion& recursion, const std::string& root,
                 bool collects);

  const std::vector<Member>& members() const { return members_; }
  const std::vector<Case>& cases() const { return cases_; }
  // A kind for each case.
  const RecursionSchema& schema() const { return schema_; }
  // The member that a call is of.
  std::optional<size_t> member_called(const ir::Expr& e) const;
  // Which of the calls of a kind is that of `callee` on a field.
  size_t call_index(size_t kind, size_t field, size_t callee) const;

 private:
  void add(const std::string& name);
  void add_recursion(const Recursion& recursion, const std::string& name);
  void check_collector() const;
  void classify(Member& m);
  void follow_invariants();
  size_t parameter_of(const Member& m, const ir::Atom& a) const;
  void cases_of(size_t member);
  void reads(const Member& m, const Case& c, RecursionSchema::Kind* kind);

  const ir::Module& module_;
  std::vector<Member> members_;
  std::vector<Case> cases_;
  RecursionSchema schema_;
};

}  // namespace nimble::passes
