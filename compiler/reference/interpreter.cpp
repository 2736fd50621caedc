// Walks blocks on an explicit stack of frames, so that the depth of recursion is a limit and not
// a crash; a call whose value is the function's own replaces its frame.
//
// With Failures::kWhereNeeded an error becomes a value: what an operator computes of a failure is
// that failure, while tuples, data and calls carry it on. A failed check of extents takes the whole
// value of its block, because whatever the block computes may rely on what was checked. A failure
// that a later operator need not have met (it reads a part of its operand, or nothing) is no
// certain one: fused, the two may never compute the element that fails.
#include <algorithm>
#include <set>

#include "compiler/ir/op.h"
#include "compiler/ir/text.h"
#include "compiler/reference/operand.h"
#include "compiler/reference/reference.h"

namespace nimble::reference {
namespace {

using ir::Atom;
using ir::Block;
using ir::Expr;
using ir::ExprKind;
using ir::Var;

struct Activation {  // a block being evaluated
  const Block* block;
  size_t next = 0;
  const Var* result = nullptr;  // the variable of the enclosing `if` that gets the value
};

struct Frame {
  ir::FunctionRef function;
  std::map<const Var*, ValueRef> variables;
  Symbols symbols;
  std::vector<Activation> blocks;
  const Var* result = nullptr;  // in the caller's frame
};

// How two extents that should be equal differ: "k is 2, but n is 3"; a constant is its value.
std::string disagreement(const ir::Dim& left, int64_t l, const ir::Dim& right, int64_t r) {
  if (right.as_constant()) return fmt::format("{} is {}, not {}", left.str(), l, r);
  if (left.as_constant()) return fmt::format("{} is {}, not {}", right.str(), r, l);
  return fmt::format("{} is {}, but {} is {}", left.str(), l, right.str(), r);
}

void bind_symbols(const ir::Type& t, const ValueRef& v, Symbols& symbols, const std::string& what) {
  if (!t || v->failure) return;
  if (t->kind == ir::TypeKind::kTuple) {
    if (v->fields.size() != t->elements.size() || !v->constructor.empty())
      throw Error(Status::kFatal, what, "is not a tuple of " + std::to_string(t->elements.size()),
                  "pass a value of type " + ir::str(t));
    for (size_t i = 0; i < t->elements.size(); ++i)
      bind_symbols(t->elements[i], v->fields[i], symbols, what);
    return;
  }
  if (t->kind != ir::TypeKind::kTensor) return;  // the rest binds no symbol
  if (!v->tensor)
    throw Error(Status::kFatal, what, "is not a tensor", "pass a tensor of type " + ir::str(t));
  const ir::Tensor& x = *v->tensor;
  auto fail = [&](const std::string& problem) {
    throw Error(Status::kFatal, what, problem, "pass a tensor of type " + ir::str(t));
  };
  if (x.dtype != t->dtype) fail(fmt::format("dtype is {}", name_of(x.dtype)));
  if (x.shape.size() != t->dims.size()) fail(fmt::format("rank is {}", x.shape.size()));
  for (size_t i = 0; i < t->dims.size(); ++i) {
    if (t->dims[i].is_any()) continue;
    if (auto s = t->dims[i].as_symbol()) {
      auto [it, fresh] = symbols.emplace(*s, x.shape[i]);
      if (!fresh && it->second != x.shape[i])
        fail(fmt::format("extent {} is {}, but {} is {}", i, x.shape[i], *s, it->second));
    } else if (auto c = t->dims[i].as_constant(); c && *c != x.shape[i]) {
      fail(fmt::format("extent {} is {}, not {}", i, x.shape[i], *c));
    }
  }
}

// Compares the extents of an argument that are expressions with what the symbols make them.
void check_expressions(const ir::Type& t, const ValueRef& v, const Symbols& symbols,
                       const std::string& what) {
  if (!t || t->kind != ir::TypeKind::kTensor || v->failure) return;
  for (size_t i = 0; i < t->dims.size(); ++i) {
    const ir::Dim& d = t->dims[i];
    if (d.is_any() || d.as_constant() || d.as_symbol()) continue;
    const std::set<std::string> names = d.symbols();
    if (!std::ranges::all_of(names, [&](const std::string& s) { return symbols.contains(s); }))
      continue;
    const int64_t expected =
        d.evaluate([&](const std::string& s) -> std::optional<int64_t> { return symbols.at(s); });
    if (v->tensor->shape[i] != expected)
      throw Error(
          Status::kInvalidArgument, what,
          fmt::format("extent {} is {}, but {} is {}", i, v->tensor->shape[i], d.str(), expected),
          "pass what the type says");
  }
}

ValueRef failed(std::shared_ptr<const Failure> f) {
  auto v = std::make_shared<Value>();
  v->failure = std::move(f);
  return v;
}

ValueRef failed(const Error& e, bool certain = true) {
  return failed(std::make_shared<const Failure>(Failure{e, certain}));
}

// A failed check of extents.
struct CheckFailed {
  Error error;
};

// Whether a value fits a pattern; if so, what the pattern's variables get. Where a failure hides
// the answer, `hidden` gets it.
bool fits(const ir::Pattern& p, const ValueRef& v,
          std::vector<std::pair<const Var*, ValueRef>>& bound,
          std::shared_ptr<const Failure>& hidden) {
  switch (p.kind) {
    case ir::Pattern::Kind::kWildcard:
      return true;
    case ir::Pattern::Kind::kVar:
      bound.emplace_back(p.var.get(), v);
      return true;
    case ir::Pattern::Kind::kConstructor:
    case ir::Pattern::Kind::kTuple:
      if (v->failure) hidden = v->failure;
      if (hidden || v->constructor != p.constructor || v->fields.size() != p.fields.size())
        return false;
      for (size_t i = 0; i < p.fields.size(); ++i)
        if (!fits(p.fields[i], v->fields[i], bound, hidden)) return false;
      return true;
  }
  NIMBLE_UNREACHABLE("pattern kind");
}

}  // namespace

struct Interpreter::Impl {
  ir::Module module;
  Limits limits;
  Failures failures = Failures::kAtOnce;
  bool certain = true;  // of the failure that run_tensors threw
  AfterEach after_each;
  std::vector<Frame> frames;
  ValueRef returned;

  ValueRef value(const Frame& f, const Atom& a) const {
    if (a.is_constant()) return value_of(a.constant);
    if (a.is_global()) {
      auto v = std::make_shared<Value>();
      v->function = module.find(a.global);
      return v;
    }
    auto it = f.variables.find(a.var.get());
    NIMBLE_CHECK(it != f.variables.end(), "%{} is unbound", a.var->name);
    return it->second;
  }

  // Whether a failure becomes a value. A limit of the run is no failure of an operator.
  bool goes_on(const Error& e) const {
    return failures == Failures::kWhereNeeded && e.status() != Status::kExhausted &&
           e.status() != Status::kUnsupported;
  }

  void define(Frame& f, const Var* v, ValueRef x) {
    try {
      bind_symbols(v->type, x, f.symbols, "%" + v->name);
    } catch (const Error& e) {
      if (!goes_on(e)) throw;
      x = failed(e);
    }
    f.variables[v] = std::move(x);
  }

  // A value that leaves the innermost frame, to the caller's variable.
  void give(const Var* result, ValueRef v) {
    if (frames.empty())
      returned = std::move(v);
    else
      define(frames.back(), result, std::move(v));
  }

  void enter(Frame f) {
    if (static_cast<int64_t>(frames.size()) >= limits.max_depth)
      throw Error(Status::kExhausted, f.function->location.str(),
                  fmt::format("recursion is deeper than {} calls", limits.max_depth));
    frames.push_back(std::move(f));
  }

  // `closure` may be null; its environment is visible in the function.
  static Frame frame_of(const ir::FunctionRef& function, const std::vector<ValueRef>& args,
                        const Var* result, const ValueRef& closure = nullptr) {
    Frame f;
    f.function = function;
    f.result = result;
    if (closure) {
      f.variables = closure->captured;
      f.symbols = closure->symbols;
    }
    if (args.size() != function->parameters.size())
      throw Error(
          Status::kFatal, function->location.str(),
          fmt::format("{} arguments for {} parameters", args.size(), function->parameters.size()),
          "pass one value per parameter");
    for (size_t i = 0; i < args.size(); ++i) {
      const ir::VarRef& p = function->parameters[i];
      if (!args[i]->failure) bind_symbols(p->type, args[i], f.symbols, "argument " + p->name);
      f.variables[p.get()] = args[i];
    }
    for (size_t i = 0; i < args.size(); ++i) {
      const ir::VarRef& p = function->parameters[i];
      check_expressions(p->type, args[i], f.symbols, "argument " + p->name);
    }
    f.blocks.push_back({function->body.get()});
    return f;
  }

  // A block's value goes to the enclosing `if`, or is the function's.
  void leave_block(ValueRef v) {
    Frame& f = frames.back();
    const Var* to = f.blocks.back().result;
    f.blocks.pop_back();
    if (!f.blocks.empty()) return define(f, to, std::move(v));
    const Var* result = f.result;
    frames.pop_back();
    give(result, std::move(v));
  }

  // Whether the binding just taken from the innermost block ends the function with its value.
  static bool is_tail(const Frame& f, const Var* v) {
    for (size_t k = f.blocks.size(); k-- > 0;) {
      const Activation& a = f.blocks[k];
      if (a.next != a.block->bindings.size() || !a.block->result.is_var() ||
          a.block->result.var.get() != v)
        return false;
      v = a.result;
    }
    return true;
  }

  void call(Frame& f, const ir::Binding& b) {
    const Expr& e = *b.value;
    std::vector<ValueRef> args;
    for (const Atom& a : e.args) args.push_back(value(f, a));
    if (e.callee) {
      ValueRef callee = value(f, *e.callee);
      NIMBLE_CHECK(callee->function, "call of a value that is not a function");
      if (!callee->first.empty())
        args.insert(args.begin(), callee->first.begin(), callee->first.end());
      const bool tail = is_tail(f, b.var.get());
      Frame next = frame_of(callee->function, args, tail ? f.result : b.var.get(), callee);
      if (tail) frames.pop_back();
      return enter(std::move(next));
    }
    if (e.primitive) return enter(frame_of(e.primitive, args, b.var.get()));
    std::vector<ir::TensorRef> tensors;
    for (const ValueRef& v : args) tensors.push_back(v->tensor);
    if (e.op == "assert_shape") return check_shape(f, b, args[0]);
    if (e.op == "read_extents") {
      const auto& symbols = ir::attr<std::vector<std::string>>(e.attrs, "symbols");
      for (size_t i = 0; i < symbols.size(); ++i)
        f.symbols[symbols[i]] = tensors[0]->integer(static_cast<int64_t>(i));
    }
    const bool data = ir::find_op(e.op)->fusion == ir::FusionKind::kData;
    std::vector<ir::TensorRef> out =
        data ? linearise(e, *args[0], module) : evaluate_op(e, tensors, f.symbols);
    if (after_each)
      for (ir::TensorRef& t : out) t = after_each(e, t);
    if (out.size() == 1) return define(f, b.var.get(), value_of(out[0]));
    std::vector<ValueRef> fields;
    for (ir::TensorRef& t : out) fields.push_back(value_of(std::move(t)));
    define(f, b.var.get(), tuple_of(std::move(fields)));
  }

  void match(Frame& f, const ir::Binding& b) {
    const ValueRef v = value(f, b.value->args[0]);
    for (const ir::MatchCase& c : b.value->cases) {
      std::vector<std::pair<const Var*, ValueRef>> bound;
      std::shared_ptr<const Failure> hidden;
      const bool fit = fits(c.pattern, v, bound, hidden);
      if (hidden) return define(f, b.var.get(), failed(hidden));
      if (!fit) continue;
      for (auto& [var, x] : bound) define(f, var, std::move(x));
      f.blocks.push_back({c.body.get(), 0, b.var.get()});
      return;
    }
    throw Error(Status::kFatal, b.value->location.str(), fmt::format("no case for {}", str(v)),
                "add one, or a last case _ => { … }");
  }

  void check_shape(Frame& f, const ir::Binding& b, const ValueRef& x) {
    const Expr& e = *b.value;
    const auto& left = ir::attr<std::vector<ir::Dim>>(e.attrs, "left");
    const auto& right = ir::attr<std::vector<ir::Dim>>(e.attrs, "right");
    auto extent = [&](const ir::Dim& d) {
      return d.evaluate([&](const std::string& name) -> std::optional<int64_t> {
        auto it = f.symbols.find(name);
        return it == f.symbols.end() ? std::nullopt : std::optional<int64_t>(it->second);
      });
    };
    for (size_t i = 0; i < left.size(); ++i)
      if (extent(left[i]) != extent(right[i]))
        throw CheckFailed{
            Error(Status::kFatal, e.location.str(),
                  ir::assertion_text(e) + ": " +
                      disagreement(left[i], extent(left[i]), right[i], extent(right[i])))};
    define(f, b.var.get(), x);
  }

  // Whether the value of a binding has no element, as far as is known: then nothing needs its
  // operands' elements either.
  static bool may_be_empty(const Frame& f, const ir::Binding& b) {
    const ir::Type& t = b.var->type;
    if (!t || t->kind != ir::TypeKind::kTensor) return false;
    try {
      int64_t elements = 1;
      for (const ir::Dim& d : t->dims)
        elements *= d.evaluate([&](const std::string& name) -> std::optional<int64_t> {
          auto it = f.symbols.find(name);
          return it == f.symbols.end() ? std::nullopt : std::optional<int64_t>(it->second);
        });
      return elements == 0;
    } catch (const Error&) {
      return true;  // extents that failed with their operator
    }
  }

  // Whether an operator may leave elements of its operands alone.
  static bool reads_parts(const Expr& e) {
    const ir::OpInfo* op = ir::find_op(e.op);
    return op && (op->fusion == ir::FusionKind::kInjective || e.op == "where");
  }

  // The failure of an operand without which the expression has no value; null if there is none.
  std::shared_ptr<const Failure> failure_in(const Frame& f, const ir::Binding& b) const {
    const Expr& e = *b.value;
    if (e.kind == ExprKind::kCall && e.callee) return value(f, *e.callee)->failure;
    if (e.kind == ExprKind::kTuple || e.kind == ExprKind::kConstruct ||
        e.kind == ExprKind::kClosure || e.kind == ExprKind::kMatch || e.primitive ||
        e.op == "assert_shape")
      return nullptr;
    std::shared_ptr<const Failure> found;
    for (const Atom& a : e.args) {
      const auto failure = value(f, a)->failure;
      if (failure && (!found || failure->certain)) found = failure;
    }
    if (found && e.kind == ExprKind::kCall &&
        (e.op == "shape_of" || reads_parts(e) || may_be_empty(f, b)))
      found = std::make_shared<const Failure>(Failure{found->error, false});
    return found;
  }

  void step() {
    Frame& f = frames.back();
    Activation& a = f.blocks.back();
    if (a.next == a.block->bindings.size()) return leave_block(value(f, a.block->result));
    const ir::Binding& b = a.block->bindings[a.next++];
    if (auto failure = failure_in(f, b)) return define(f, b.var.get(), failed(failure));
    try {
      evaluate(f, b);
    } catch (const CheckFailed& check) {
      if (!goes_on(check.error)) throw check.error;
      leave_block(failed(check.error));
    } catch (const Error& e) {
      if (!goes_on(e)) throw;
      const bool certain = b.value->op.empty() || !may_be_empty(f, b);
      define(f, b.var.get(), failed(e, certain));
    }
  }

  void evaluate(Frame& f, const ir::Binding& b) {
    const Expr& e = *b.value;
    switch (e.kind) {
      case ExprKind::kAtom:
        return define(f, b.var.get(), value(f, e.args[0]));
      case ExprKind::kTuple: {
        std::vector<ValueRef> fields;
        for (const Atom& x : e.args) fields.push_back(value(f, x));
        return define(f, b.var.get(), tuple_of(std::move(fields)));
      }
      case ExprKind::kGetField:
        return define(f, b.var.get(), value(f, e.args[0])->fields[static_cast<size_t>(e.index)]);
      case ExprKind::kIf: {
        bool yes = value(f, e.args[0])->tensor->integer(0) != 0;
        f.blocks.push_back({(yes ? e.then_block : e.else_block).get(), 0, b.var.get()});
        return;
      }
      case ExprKind::kFunction: {
        auto v = std::make_shared<Value>();
        v->function = e.primitive;
        v->captured = f.variables;
        v->symbols = f.symbols;
        return define(f, b.var.get(), v);
      }
      case ExprKind::kCall:
        return call(f, b);
      case ExprKind::kConstruct: {
        std::vector<ValueRef> fields;
        for (const Atom& x : e.args) fields.push_back(value(f, x));
        return define(f, b.var.get(), construct(e.constructor, std::move(fields)));
      }
      case ExprKind::kMatch:
        return match(f, b);
      case ExprKind::kClosure: {
        auto v = std::make_shared<Value>();
        v->function = module.find(e.callee->global);
        for (const Atom& x : e.args) v->first.push_back(value(f, x));
        return define(f, b.var.get(), v);
      }
    }
  }
};

Interpreter::Interpreter(const ir::Module& module, Limits limits, Failures failures)
    : impl_(std::make_shared<Impl>()) {
  impl_->module = module;
  impl_->limits = limits;
  impl_->failures = failures;
}

void Interpreter::set_after_each(AfterEach f) {
  impl_->after_each = std::move(f);
}

bool Interpreter::failed_for_certain() const {
  return impl_->certain;
}

ValueRef Interpreter::run(const std::string& function, const std::vector<ValueRef>& args) {
  ir::FunctionRef f = impl_->module.find(function);
  if (!f)
    throw Error(Status::kNotFound, impl_->module.source, "there is no function @" + function,
                "name a function of the module");
  if (args.size() != f->parameters.size())
    throw Error(Status::kInvalidArgument, "@" + function,
                fmt::format("{} arguments for {} parameters", args.size(), f->parameters.size()),
                "pass one value per parameter");
  impl_->frames.clear();
  impl_->enter(Impl::frame_of(f, args, nullptr));
  for (int64_t steps = 0; !impl_->frames.empty(); ++steps) {
    if (steps >= impl_->limits.max_steps)
      throw Error(Status::kExhausted, "@" + function,
                  fmt::format("more than {} bindings evaluated", impl_->limits.max_steps));
    impl_->step();
  }
  return impl_->returned;
}

std::vector<ir::TensorRef> Interpreter::run_tensors(const std::string& function,
                                                    const std::vector<ir::TensorRef>& args) {
  std::vector<ValueRef> values;
  for (const ir::TensorRef& t : args) values.push_back(value_of(t));
  impl_->certain = true;
  ValueRef out = run(function, values);
  if (out->tensor) return {out->tensor};
  std::shared_ptr<const Failure> failure = out->failure;
  std::vector<ir::TensorRef> tensors;
  for (const ValueRef& v : out->fields) {
    if (v->failure && (!failure || v->failure->certain)) failure = v->failure;
    tensors.push_back(v->tensor);
  }
  if (failure) {
    impl_->certain = failure->certain;
    throw Error(failure->error);
  }
  return tensors;
}

}  // namespace nimble::reference
