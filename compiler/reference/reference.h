// The oracle: a plain, slow interpreter of the IR. Every operator is a few obvious loops over
// doubles or integers; nothing is shared with the compiler's kernels beyond the operator table.
// f32 operators compute in double and round once per operator, so that compiled kernels are
// compared with something better than themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"
#include "vm/base/error.h"

namespace nimble::reference {

// What stands for the value of an operator that failed (Failures::kWhereNeeded).
struct Failure {
  Error error;
  // False: what needs it may do without, such as its extents, a part of it, or none of its
  // elements.
  bool certain = true;
};

// A run-time value: a tensor, a tuple, a value of a data type or a closure.
struct Value;
using ValueRef = std::shared_ptr<const Value>;
struct Value {
  Value() = default;
  Value(const Value&) = default;
  ~Value();                                     // of a long list too: frees without recursion
  ir::TensorRef tensor;                         // set for a tensor
  std::string constructor;                      // set for a value of a data type
  std::vector<ValueRef> fields;                 // its fields, or a tuple's
  ir::FunctionRef function;                     // a closure's code …
  std::vector<ValueRef> first;                  // … its first arguments (converted closures) …
  std::map<const ir::Var*, ValueRef> captured;  // … and environment
  std::map<std::string, int64_t> symbols;       // … and the symbols in scope
  std::shared_ptr<const Failure> failure;       // set for what could not be computed
};
ValueRef value_of(ir::TensorRef t);
ValueRef tuple_of(std::vector<ValueRef> fields);
ValueRef construct(std::string constructor, std::vector<ValueRef> fields);
// "Cons(f32[2]{1, 2}, Nil)": constants as in the text form; a closure prints as "fn".
std::string str(const ValueRef& v);

// Values of the dim symbols in scope.
using Symbols = std::map<std::string, int64_t>;

// Evaluates one operator call on tensors: results of a multi-result operator in order.
// nimble::Error(Status::kFatal) when a run-time shape check fails, kUnsupported when the
// reference has no such operator.
std::vector<ir::TensorRef> evaluate_op(const ir::Expr& call, const std::vector<ir::TensorRef>& args,
                                       const Symbols& symbols);
bool has_reference(const std::string& op);

struct Limits {
  int64_t max_depth = 200000;     // nested calls (tail calls do not count)
  int64_t max_steps = INT64_MAX;  // bindings evaluated
};

// What becomes of an operator that fails. The language leaves open whether a run stops where
// nothing needs the operator's value, since an optimised program may not compute it.
enum class Failures {
  kAtOnce,       // the run stops
  kWhereNeeded,  // what is computed of it fails; the run fails if its result does
};

class Interpreter {
 public:
  explicit Interpreter(const ir::Module& module, Limits limits = {},
                       Failures failures = Failures::kAtOnce);
  // Runs a function on values; binds the symbols of its parameter types from the
  // arguments' shapes and checks them.
  // With kWhereNeeded the value, or a field of it, may be a failure.
  ValueRef run(const std::string& function, const std::vector<ValueRef>& args);
  // What `f` returns takes the place of each tensor that an operator computes, of the same type:
  // for experiments with rounding.
  using AfterEach = std::function<ir::TensorRef(const ir::Expr& call, const ir::TensorRef&)>;
  void set_after_each(AfterEach f);
  // Throws a failure among the results, if there is one: a certain one rather than another.
  std::vector<ir::TensorRef> run_tensors(const std::string& function,
                                         const std::vector<ir::TensorRef>& args);
  // Whether what run_tensors threw is needed by the results for certain.
  bool failed_for_certain() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace nimble::reference
