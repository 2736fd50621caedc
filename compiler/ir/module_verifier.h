// The IR verifier's walk; verify.cpp has its rules. Calls are in verify_calls.cpp, constructors and
// matches in verify_data.cpp. Private to compiler/ir; shares no code with inference.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/ir/op.h"
#include "compiler/ir/verify_types.h"

namespace nimble::ir {

class ModuleVerifier {
 public:
  explicit ModuleVerifier(const Module& m) : module_(m) {}
  std::vector<std::string> run();  // once

 private:
  using Dims = std::vector<Dim>;

  // ---------------------------------------------------------------- verify.cpp

  void fault(const char* rule, const std::string& problem);
  void data_types();
  void well_formed(const Type& t, const std::vector<std::string>& variables);
  void require_known(const std::set<std::string>& used, const std::string& what);
  // Whether a value of type `derived` may stand where `stated` is written. Symbols of `open`
  // stand for any extent.
  bool agrees(const Type& derived, const Type& stated, const std::set<std::string>& open);
  void bind(const VarRef& v);
  Type use(const Atom& a);
  const Dims* contents(const Atom& a);
  void function(const Function& f, bool closed);
  // Returns the type of the block's result; compares it with `stated` unless that is null.
  Type block(const Block& b, const Type& stated, const char* rule);
  void nested(const Block& b, const Type& stated, const char* rule);
  void expression(const Binding& binding);
  void compare(const Type& derived, const Type& stated);
  // A branch that stops the run agrees with any type.
  static bool stops(const Block& b);
  // A branch's dim may differ from the stated one only where that is a symbol of its own.
  void branches(const Expr& e, const Type& stated, const std::vector<Type>& types,
                const std::set<std::string>& used);

  // ---------------------------------------------------------------- verify_calls.cpp

  void call(const Expr& e, const Type& stated, const std::vector<Type>& types,
            const std::set<std::string>& used);
  // The callee's type with its type variables replaced by what arguments and result make them.
  Type instantiated(const Expr& e, const Type& callee, const std::vector<Type>& types,
                    const Type& stated);
  void closure(const Expr& e, const Type& stated, const std::vector<Type>& types);
  void group(const Expr& e, const Type& stated, const std::vector<Type>& types,
             const std::set<std::string>& used);
  // A group's call after lowering: its arguments are inputs (scalars among them), then outputs.
  void lowered_group(const Expr& e, const std::set<std::string>& used);
  void name_elements(const Expr& e);
  void operation(const Binding& binding, const std::vector<Type>& types, bool typed,
                 const std::set<std::string>& used);
  // Why the relation of an operator does not give the stated type, and the elements that it knows.
  std::pair<std::vector<std::pair<const char*, std::string>>, std::optional<Dims>> typing_faults(
      const Binding& binding, const OpInfo& op, const std::vector<Type>& types, DimContext& facts);

  // ---------------------------------------------------------------- verify_data.cpp

  void construct(const Expr& e, const Type& stated, const std::vector<Type>& types);
  // False after a fault.
  bool pattern(const Pattern& p, const Type& t);
  void match(const Expr& e, const Type& stated, const std::vector<Type>& types,
             const std::set<std::string>& used);

  const Module& module_;
  std::vector<std::string> variables_;  // type variables of the function
  std::string function_, where_;
  std::vector<std::string> faults_;
  std::unordered_set<const Var*> bound_, visible_;
  std::set<std::string> symbols_;
  DimContext facts_, given_;  // given: by the function's declaration alone
  bool lowered_ = false;
  std::unordered_map<const Var*, Dims> contents_;
  std::unordered_map<const Tensor*, Dims> constants_;
};

}  // namespace nimble::ir
