// The inference of one function (infer.cpp says how). Private to compiler/ir.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/ir/builder.h"
#include "compiler/ir/infer_match.h"

namespace nimble::ir {

using Dims = std::vector<Dim>;

struct Refinement {  // thrown to restart a function
  std::string symbol;
  Dim value;
};
struct Fault {  // thrown: the user can mend it
  Location at;
  std::string problem, remedy;
};
struct Silent {};  // thrown: follows from a fault that is reported already

struct Demand {
  Dim left, right;
  std::string what;
};

struct Typed {
  ExprRef expr;
  Type type;
  std::optional<Dims> contents = std::nullopt;
};

// What a call of a function sees. A null result: its body is faulty.
struct FunctionSignature {
  std::vector<std::string> type_variables;
  std::vector<Type> parameters;
  Type result;
};

class Signatures {
 public:
  virtual ~Signatures() = default;
  // Infers the function first unless that is under way. Throws Fault.
  virtual FunctionSignature signature(const std::string& name, const Location& at) = 0;
  virtual const Module& module() const = 0;
  // Every read_extents gives its symbols a meaning of their own, whatever is known of its operand.
  virtual bool reads_apart() const = 0;
};

class FunctionInference {
 public:
  FunctionInference(Signatures& signatures, std::string name, const Function& f,
                    const std::vector<Type>& parameter_types,
                    const std::map<std::string, Dim>& refinements);

  // Throws Refinement. The function is of no use if there are faults.
  FunctionRef run(const Function& f, const std::vector<Type>& parameter_types);
  const std::vector<Fault>& faults() const { return faults_; }

 private:
  using Block_ = std::pair<BlockRef, Type>;

  // Scopes, atoms, blocks: infer_block.cpp.
  VarRef bind_parameter(const VarRef& old, const Type& type);
  VarRef new_var(const std::string& name, Type type, const Location& at);
  [[noreturn]] void fail(const Location& at, const std::string& problem,
                         const std::string& remedy) const;
  Atom map_atom(const Atom& a, const Location& at) const;
  Type atom_type(const Atom& a, const Location& at);
  const Dims* contents_of(const Atom& a);
  Dim fresh();
  void refine(const Dim& left, const Dim& right);
  void demand(const Dim& left, const Dim& right, const std::string& what, const Location& at,
              std::vector<Demand>& unproved);
  void assert_demands(Atom& operand, const Type& type, std::vector<Demand>& unproved,
                      const Location& at, BlockBuilder& out);
  void assert_demands_of_call(Expr& call, const std::vector<Type>& types,
                              std::vector<Demand>& unproved, BlockBuilder& out);
  MatchContext match_context(const Location& at, std::vector<Demand>& unproved);
  std::map<std::string, Dim> reconcile(const Type& declared, const Type& inferred,
                                       const std::string& what, const Location& at,
                                       size_t first_born, std::vector<Demand>& unproved);
  Type declared_dims(const Type& declared, const Type& inferred,
                     const std::set<std::string>& known) const;
  void infer_binding(const Binding& binding, BlockBuilder& out);
  Block_ infer_block(const Block& b, const Type& declared, const std::string& what,
                     BlockBuilder out = {});
  // A block that may not run: nothing refines in it, and what it asserts holds in it only. With
  // `inner`, the symbols that mean nothing behind it are put there.
  Block_ infer_nested(const Block& b, const Type& declared, std::set<std::string>* inner = nullptr,
                      BlockBuilder out = {});
  void settle(const Function& f);

  // Expressions: infer_expr.cpp.
  Typed infer_expr(const Expr& e, const Type& previous, BlockBuilder& out);
  Attrs map_attrs(const Attrs& attrs, bool simplify, const Location& at);
  Typed infer_op(const Expr& e, BlockBuilder& out);
  Typed infer_primitive(const Expr& e);
  Typed infer_if(const Expr& e);
  Typed infer_field(const Expr& e);
  Typed keep_lowered(const Expr& e, const Type& previous);

  // Elements of small integer tensors that only the run knows: infer_elements.cpp.
  void learn_element(const std::string& symbol, bool size);
  void remember_elements(const VarRef& v, const Dims& elements);
  const Dims* read_contents(Expr& call, const Type& type, size_t i, BlockBuilder& out);
  Typed infer_read_extents(const Expr& e);

  // Functions and data types: infer_data.cpp.
  FunctionSignature instance(FunctionSignature s, std::set<std::string>& variables);
  Typed infer_call(const Expr& e, BlockBuilder& out);
  Typed infer_closure(const Expr& e);
  Typed infer_converted_closure(const Expr& e, BlockBuilder& out);
  Typed infer_construct(const Expr& e, BlockBuilder& out);
  Typed infer_match(const Expr& e);
  Pattern bind_pattern(const Pattern& p, const Type& t, BlockBuilder& out);
  std::vector<Type> operand_types(Expr& e);

  Signatures& signatures_;
  std::string name_;
  DimContext facts_;
  TypeSolutions types_;
  std::map<std::string, Dim> aliases_;           // refinements, and symbols that annotations named
  std::set<std::string> known_;                  // symbols with a meaning here
  std::set<std::string> entry_;                  // of them, those of the parameters
  std::set<std::string> bare_;                   // of them, those that a parameter's dim binds
  std::unordered_map<const Var*, VarRef> vars_;  // of the input module → of the result
  std::unordered_set<const Var*> faulty_;        // of the input module: no type, uses are silent
  std::unordered_map<const Var*, Dims> contents_;
  std::unordered_map<const Tensor*, std::optional<Dims>> constants_;
  std::vector<VarRef> read_;       // whose elements a read_extents named, in order
  std::vector<std::string> born_;  // fresh symbols in order of birth
  int depth_ = 0;                  // of blocks that may not run
  std::vector<VarRef> created_;    // variables and closures whose types may be open till the end
  std::vector<std::shared_ptr<Function>> closures_;
  std::vector<Fault> faults_;
};

}  // namespace nimble::ir
