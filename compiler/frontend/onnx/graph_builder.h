// Builds the body of a function from operators whose types are known at once.
//
// Exported graphs compute shapes with operators (Shape, Gather, Concat, Reshape …), while the IR
// wants them as dim expressions in attributes. So each operator's type relation runs as soon as the
// operator is emitted, with the symbolic contents of small integer tensors, and what turns out
// constant becomes a constant. Inference repeats all of that later on the finished module.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/ir/builder.h"

namespace nimble::frontend::onnx {

using Dims = std::vector<ir::Dim>;
using Axes = std::vector<int64_t>;

// A value of the graph: an atom with its type and, for a small integer tensor, its contents. A
// sequence that is known now has its elements instead of an atom (sequences.h).
struct Value {
  ir::Atom atom;
  ir::Type type;
  std::optional<Dims> contents;
  std::shared_ptr<const std::vector<Value>> items;

  const Dims& dims() const { return type->dims; }
  // The extent of an axis that a node's operand should have, but a file need not give it:
  // Error(kCorrupt).
  const ir::Dim& dim(std::integral auto axis) const {
    if (!std::in_range<size_t>(axis) || static_cast<size_t>(axis) >= type->dims.size())
      lacks_axis(static_cast<int64_t>(axis));
    return type->dims[static_cast<size_t>(axis)];
  }
  int64_t rank() const { return static_cast<int64_t>(type->dims.size()); }
  DType dtype() const { return type->dtype; }
  bool is_constant() const { return atom.is_constant(); }

 private:
  [[noreturn]] void lacks_axis(int64_t axis) const;
};

// Thrown to begin anew: the function is only defined for dim <= bound.
struct BoundNeeded {
  ir::Dim dim;
  int64_t bound;
};

class GraphBuilder {
 public:
  using Values = std::vector<Value>;
  explicit GraphBuilder(ir::Module& module) : module_(module) {}
  // A parameter of the function, in order.
  Value parameter(const std::string& name, ir::Type type);
  Value constant(ir::TensorRef t);
  Value scalar(double v, DType type);
  Value integer(int64_t v) { return scalar(static_cast<double>(v), DType::kI64); }

  // An operator of one result; nimble::Error when its types contradict.
  Value call(const std::string& op, const std::vector<Value>& args, ir::Attrs attrs = {});
  // A field of an expression whose tuple type the caller knows.
  std::vector<Value> call_function(const std::string& function, const std::vector<Value>& args,
                                   const std::vector<ir::Type>& results);
  // What a function gives, of any type, whose symbols the caller has made up.
  Value call_any(const std::string& function, const std::vector<Value>& args, ir::Type result);
  // A value of a data type.
  Value construct(const std::string& constructor, const std::vector<Value>& fields, ir::Type type);
  // Sequence or Optional, for the module.
  void define_data(const std::string& name);
  // Those functions of a text that the module lacks.
  void define_functions(const std::string& text);
  // The fields of an operator with several results.
  std::vector<Value> fields(const Value& tuple);
  // The elements of a small integer tensor: its contents, or symbols that the run reads. Nothing
  // where even their number is unknown.
  std::optional<Dims> read_contents(const Value& v);
  // Operators with a fixed form.
  Value reshape(const Value& x, Dims shape);
  Value slice(const Value& x, int64_t axis, ir::Dim from, ir::Dim to);
  Value full(Dims shape, double value, DType type);
  Value size(const ir::Dim& d);
  // A broadcasting operator. Throws BoundNeeded where a bound of a symbol, said at the entry, would
  // keep the dims simple.
  Value broadcast_call(const std::string& op, const Value& a, const Value& b);
  // A parameter through which a dim's bound can be said, if its symbols are bound at the entry.
  std::optional<size_t> parameter_with(const ir::Dim& d) const;
  Value assert_bound(const Value& x, const BoundNeeded& b);

  // The results of one of two branches, chosen by a bool scalar. Extents that differ are symbols
  // that the run knows. nimble::Error where the branches differ in number, rank or dtype.
  Values branch(const Value& condition, const std::function<Values()>& then,
                const std::function<Values()>& otherwise);

  struct Step {
    std::optional<Value> go_on;  // a bool; absent: goes on
    Values state;
    Values outputs;  // one slice each of what the loop stacks
  };
  struct Loop {
    std::string name;                // of the function
    std::optional<Value> count;      // the most steps, an i64 scalar
    std::optional<Value> condition;  // whether there is a first step
    Values state;
    Values captured;  // what the body needs from outside, constants apart
    std::function<Step(const Value& step, const Values& state, const Values& captured)> body;
  };
  // The last state, then each output with its slices stacked along a new axis 0.
  Values loop(const Loop& loop);

  // 64 random bits (u64) for each of `count` numbers that one node draws. The key tells nodes
  // apart, the stream, which every loop derives from its step and the stream around it, the
  // iterations: a run is a function of its inputs and still no two draws are one.
  Value random_bits(const ir::Dim& count, int64_t key);
  // The stream outside of all loops, an i64 scalar; 0 unless this is called.
  void draw_from(Value stream) { randomness_.outer = std::move(stream); }
  // The keys of the nodes that name no seed: 2^32, 2^32 + 1, …, beyond what a seed of 32 bits is.
  int64_t next_random_key() { return (int64_t{1} << 32) + random_nodes_++; }

  // A tensor that stands for others: (values - zero) * scale, where scale and zero are one number
  // each, or one per element of `axis`.
  struct Quantised {
    Value values, scale;
    std::optional<Value> zero;
    int64_t axis = 0;
  };
  // Notes what a value was computed from, for operators that can take that instead.
  void note_quantised(const Value& v, Quantised q);
  // What was noted; nothing if nothing was.
  std::optional<Quantised> quantised(const Value& v) const;
  // Whether a value is a constant, or will be: computed from constants alone.
  bool is_settled(const Value& v) const;

  // The place of the operators that follow: a node's name, and a name for their results.
  void set_place(ir::Location location, std::string hint) {
    location_ = std::move(location);
    hint_ = std::move(hint);
  }
  std::string place() const { return location_.str(); }
  const ir::DimContext& facts() const { return facts_; }
  ir::Dim simplify(const ir::Dim& d) const { return facts_.simplify(d); }

  // The function that returns `results`; operators that they don't need are left out.
  ir::FunctionRef finish(const std::vector<Value>& results);

 private:
  // `v` as a value of `type`, at the end of a block that has been left.
  Value stored_after(std::vector<ir::Binding>& block, const Value& v, const ir::Type& type);
  // The result if the call only moves elements of constants; else null.
  ir::TensorRef moved(const ir::Expr& call, const ir::TypeNode& result);
  static Value value_of(ir::TensorRef t);
  Value bound(ir::ExprRef expr, ir::Type type, std::optional<Dims> contents);
  void demand_bounds(const Value& x, const Value& other) const;

  // What a nested block or function has for itself.
  struct Scope {
    std::vector<ir::VarRef> parameters;
    std::vector<ir::Binding> bindings;
    ir::DimContext facts;
    std::unordered_map<const ir::Var*, Dims> elements;
  };
  Scope enter(bool function);
  std::vector<ir::Binding> leave(Scope outer);
  Values named_fields(ir::ExprRef expr, const std::vector<ir::Type>& types);

  // Where random numbers come from in the body of a loop.
  struct Randomness {
    std::optional<Value> step;   // none: not in a loop
    std::optional<Value> outer;  // the stream around the loop, if that is not 0
    bool used = false;
  };
  // The stream here, an i64 scalar. Made anew at each use: another block may not see it.
  Value random_stream();

  ir::Module& module_;
  std::vector<ir::VarRef> parameters_;
  std::vector<ir::Binding> bindings_;
  ir::DimContext facts_;
  // Bytes that moved() may still make. Sixty nodes that each join a constant with itself ask for
  // more than there is; what exporters rearrange grows with what the file stores.
  int64_t movable_ = 1 << 20;
  std::unordered_map<const ir::Var*, Dims> elements_;  // named by a read_extents
  std::unordered_map<ir::VarRef, Quantised> quantised_;
  std::unordered_set<ir::VarRef> settled_;
  Randomness randomness_;
  int64_t random_nodes_ = 0;
  ir::Location location_;
  std::string hint_ = "t";
};

}  // namespace nimble::frontend::onnx
