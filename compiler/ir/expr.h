// Expressions of the IR.
//
// The IR is functional, in administrative normal form: a Block is a list of bindings
// `let %x = <expression of atoms>` and a result atom, so passes are loops over a list and deep
// programs need no deep recursion. An atom is a variable, a constant or a reference to a global
// function. Control flow is an expression that holds Blocks. Loops are recursive functions;
// calls in tail position cost no stack.
//
// Before memory lowering nothing mutates. After it, the ops of the memory dialect
// (memory.alloc_storage, memory.alloc_tensor, memory.invoke_mut, memory.invoke_shape,
// memory.kill) appear as calls whose order in the Block matters.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "compiler/ir/tensor.h"
#include "compiler/ir/type.h"

namespace nimble::ir {

struct Location {  // in a text IR file, or the name of a node of the source model
  std::string file;
  int line = 0, column = 0;
  std::string source_name;  // "/encoder/layer.0/attention/query/MatMul"
  std::string str() const;
};

// ---------------------------------------------------------------- attributes

using AttrValue =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                 std::vector<std::string>, DType, Dim, std::vector<Dim>>;
using Attrs = std::map<std::string, AttrValue>;

// ---------------------------------------------------------------- expressions

struct Expr;
using ExprRef = std::shared_ptr<const Expr>;

// A variable is identified by its address; the name is for people (made unique by the printer).
struct Var {
  std::string name;
  mutable Type type;  // annotation of a parameter; set by inference for bindings
  mutable Location location;
};
using VarRef = std::shared_ptr<const Var>;

struct Atom {
  enum class Kind { kVar, kConstant, kGlobal };
  Kind kind = Kind::kVar;
  VarRef var;          // kVar
  TensorRef constant;  // kConstant
  std::string global;  // kGlobal: a function of the module
  Atom() = default;
  Atom(VarRef v) : kind(Kind::kVar), var(std::move(v)) {}  // NOLINT
  static Atom of(TensorRef c) {
    Atom a;
    a.kind = Kind::kConstant;
    a.constant = std::move(c);
    return a;
  }
  static Atom of_global(std::string n) {
    Atom a;
    a.kind = Kind::kGlobal;
    a.global = std::move(n);
    return a;
  }
  bool is_var() const { return kind == Kind::kVar; }
  bool is_constant() const { return kind == Kind::kConstant; }
  bool is_global() const { return kind == Kind::kGlobal; }
};

struct Binding {
  VarRef var;  // never null; its type is the expression's after inference
  ExprRef value;
};

struct Block {
  std::vector<Binding> bindings;
  Atom result;
  Location location;  // of the result
};
using BlockRef = std::shared_ptr<const Block>;

struct Function {
  // Type variables of a polymorphic function: fn @map[A, B](…). Values of a variable's type are
  // only passed on, so one compiled function serves all instances.
  std::vector<std::string> type_variables;
  std::vector<VarRef> parameters;
  Type result_type;  // may be null before inference
  BlockRef body;
  // "primitive": true on a fused group; "template", "inline", …
  Attrs attrs;
  Location location;
};
using FunctionRef = std::shared_ptr<const Function>;

// What a case of a match accepts. Patterns nest in the source; the pass flatten-matches leaves
// constructors (and tuples) of variables and wildcards only.
struct Pattern {
  enum class Kind { kWildcard, kVar, kConstructor, kTuple };
  Kind kind = Kind::kWildcard;
  VarRef var;                   // kVar
  std::string constructor;      // kConstructor
  std::vector<Pattern> fields;  // kConstructor, kTuple
  Location location;
};

struct MatchCase {
  Pattern pattern;
  BlockRef body;
};

enum class ExprKind {
  kAtom,  // a copy: let %y = %x
  kCall,  // operator, global function, closure or primitive group
  kTuple,
  kGetField,   // tuple element
  kConstruct,  // a value of a data type: Node(%l, %r)
  kIf,         // condition atom (bool scalar), two blocks
  kMatch,      // on a data type or a tuple; the first case that fits
  kFunction,   // a closure literal; free variables are captured
  kClosure,    // after closure conversion: a global function, its first arguments (captured)
};

struct Expr {
  ExprKind kind;
  Location location;
  // kCall: exactly one of `op` (registered name), `callee`, `primitive`
  std::string op;
  std::optional<Atom> callee;  // a global or a variable of function type; kClosure: a global
  FunctionRef primitive;       // a fused group called in place; also kFunction's literal
  // kCall, kTuple, kConstruct, kClosure (captured); kAtom, kGetField, kIf, kMatch: args[0]
  std::vector<Atom> args;
  Attrs attrs;                      // kCall
  int64_t index = 0;                // kGetField
  BlockRef then_block, else_block;  // kIf
  std::string constructor;          // kConstruct
  std::vector<MatchCase> cases;     // kMatch
};

// ---------------------------------------------------------------- module

// An algebraic data type, perhaps recursive and polymorphic:
//   data List[A] { Nil; Cons(A, List[A]) }
// A `?` dim of a field is any extent, another for each value; a match binds it to a fresh symbol.
struct Constructor {
  std::string name;  // unique in the module; its tag is its position in the data type
  std::vector<Type> fields;
  Location location;
};
struct DataType {
  std::string name;
  std::vector<std::string> variables;
  std::vector<Constructor> constructors;
  Location location;
};

struct Module {
  std::vector<DataType> data_types;  // in definition order
  // In definition order; "main" is the entry.
  std::vector<std::pair<std::string, FunctionRef>> functions;
  // What the user sees of an entry function beyond its types: names of results, defaults.
  struct Signature {
    std::vector<std::string> input_names, output_names;
    std::vector<std::string> input_defaults;  // "", "zeros", "ones"
  };
  std::map<std::string, Signature> signatures;
  std::string source;                       // where the model came from, for provenance
  std::shared_ptr<const std::string> text;  // that it was parsed from, for messages; may be null

  FunctionRef find(const std::string& name) const;           // null if there is none
  void set(const std::string& name, FunctionRef f);          // replaces or appends
  const DataType* find_data(const std::string& name) const;  // null if there is none
  // The data type with this constructor, and its tag there; null if there is none.
  std::pair<const DataType*, int64_t> find_constructor(const std::string& name) const;
};

// ---------------------------------------------------------------- construction

VarRef make_var(std::string name, Type type = nullptr, Location location = {});
ExprRef make_atom(Atom a, Location location = {});
ExprRef make_call(std::string op, std::vector<Atom> args, Attrs attrs = {}, Location location = {});
ExprRef make_call_function(Atom callee, std::vector<Atom> args, Location location = {});
ExprRef make_call_primitive(FunctionRef f, std::vector<Atom> args, Location location = {});
ExprRef make_tuple(std::vector<Atom> fields, Location location = {});
ExprRef make_get_field(Atom tuple, int64_t index, Location location = {});
ExprRef make_if(Atom condition, BlockRef then_block, BlockRef else_block, Location location = {});
ExprRef make_function(FunctionRef f, Location location = {});
ExprRef make_construct(std::string constructor, std::vector<Atom> fields, Location location = {});
ExprRef make_match(Atom value, std::vector<MatchCase> cases, Location location = {});
ExprRef make_closure(std::string function, std::vector<Atom> captured, Location location = {});
// The variables that a pattern binds, from left to right.
std::vector<VarRef> variables_of(const Pattern& p);
// The nested blocks of an expression, in order: branches, cases' bodies, a closure's body.
std::vector<BlockRef> blocks_of(const Expr& e);

// Attribute access with a default or, without one, an internal error if absent.
template <class T>
const T& attr(const Attrs& attrs, const std::string& name) {
  auto it = attrs.find(name);
  NIMBLE_CHECK(it != attrs.end() && std::holds_alternative<T>(it->second), "attribute {}", name);
  return std::get<T>(it->second);
}
template <class T>
T attr_or(const Attrs& attrs, const std::string& name, T otherwise) {
  auto it = attrs.find(name);
  return it != attrs.end() && std::holds_alternative<T>(it->second) ? std::get<T>(it->second)
                                                                    : otherwise;
}

// What an assert_shape checks, for its message: the operator with its place, then the extents,
// as in "matmul at f.nir:7:12: the contracted dim (k = 512)".
std::string assertion_text(const Expr& assert_shape);

// The type of an atom: its variable's, its constant's, or its function's.
Type type_of(const Atom& a, const Module* module = nullptr);

}  // namespace nimble::ir
