#include "compiler/ir/expr.h"

#include "compiler/ir/builder.h"

namespace nimble::ir {
namespace {

std::shared_ptr<Expr> make(ExprKind kind, Location location) {
  auto e = std::make_shared<Expr>();
  e->kind = kind;
  e->location = std::move(location);
  return e;
}

}  // namespace

std::string Location::str() const {
  std::string out;
  if (!file.empty()) out = line > 0 ? fmt::format("{}:{}:{}", file, line, column) : file;
  if (!source_name.empty()) out += out.empty() ? source_name : " (" + source_name + ")";
  return out;
}

FunctionRef Module::find(const std::string& name) const {
  for (const auto& [n, f] : functions) {
    if (n == name) return f;
  }
  return nullptr;
}

void Module::set(const std::string& name, FunctionRef f) {
  for (auto& [n, existing] : functions) {
    if (n == name) {
      existing = std::move(f);
      return;
    }
  }
  functions.emplace_back(name, std::move(f));
}

const DataType* Module::find_data(const std::string& name) const {
  for (const DataType& d : data_types) {
    if (d.name == name) return &d;
  }
  return nullptr;
}

std::pair<const DataType*, int64_t> Module::find_constructor(const std::string& name) const {
  for (const DataType& d : data_types) {
    for (size_t i = 0; i < d.constructors.size(); ++i) {
      if (d.constructors[i].name == name) return {&d, static_cast<int64_t>(i)};
    }
  }
  return {nullptr, 0};
}

VarRef make_var(std::string name, Type type, Location location) {
  return std::make_shared<const Var>(Var{std::move(name), std::move(type), std::move(location)});
}

ExprRef make_atom(Atom a, Location location) {
  auto e = make(ExprKind::kAtom, std::move(location));
  e->args = {std::move(a)};
  return e;
}

ExprRef make_call(std::string op, std::vector<Atom> args, Attrs attrs, Location location) {
  auto e = make(ExprKind::kCall, std::move(location));
  e->op = std::move(op);
  e->args = std::move(args);
  e->attrs = std::move(attrs);
  return e;
}

ExprRef make_call_function(Atom callee, std::vector<Atom> args, Location location) {
  auto e = make(ExprKind::kCall, std::move(location));
  e->callee = std::move(callee);
  e->args = std::move(args);
  return e;
}

ExprRef make_call_primitive(FunctionRef f, std::vector<Atom> args, Location location) {
  auto e = make(ExprKind::kCall, std::move(location));
  e->primitive = std::move(f);
  e->args = std::move(args);
  return e;
}

ExprRef make_tuple(std::vector<Atom> fields, Location location) {
  auto e = make(ExprKind::kTuple, std::move(location));
  e->args = std::move(fields);
  return e;
}

ExprRef make_get_field(Atom tuple, int64_t index, Location location) {
  auto e = make(ExprKind::kGetField, std::move(location));
  e->args = {std::move(tuple)};
  e->index = index;
  return e;
}

ExprRef make_if(Atom condition, BlockRef then_block, BlockRef else_block, Location location) {
  auto e = make(ExprKind::kIf, std::move(location));
  e->args = {std::move(condition)};
  e->then_block = std::move(then_block);
  e->else_block = std::move(else_block);
  return e;
}

ExprRef make_function(FunctionRef f, Location location) {
  auto e = make(ExprKind::kFunction, std::move(location));
  e->primitive = std::move(f);
  return e;
}

ExprRef make_construct(std::string constructor, std::vector<Atom> fields, Location location) {
  auto e = make(ExprKind::kConstruct, std::move(location));
  e->constructor = std::move(constructor);
  e->args = std::move(fields);
  return e;
}

ExprRef make_match(Atom value, std::vector<MatchCase> cases, Location location) {
  auto e = make(ExprKind::kMatch, std::move(location));
  e->args = {std::move(value)};
  e->cases = std::move(cases);
  return e;
}

ExprRef make_closure(std::string function, std::vector<Atom> captured, Location location) {
  auto e = make(ExprKind::kClosure, std::move(location));
  e->callee = Atom::of_global(std::move(function));
  e->args = std::move(captured);
  return e;
}

std::vector<VarRef> variables_of(const Pattern& p) {
  std::vector<VarRef> out;
  if (p.kind == Pattern::Kind::kVar) out.push_back(p.var);
  for (const Pattern& field : p.fields) {
    for (VarRef& v : variables_of(field)) out.push_back(std::move(v));
  }
  return out;
}

std::vector<BlockRef> blocks_of(const Expr& e) {
  std::vector<BlockRef> out;
  if (e.kind == ExprKind::kIf) out = {e.then_block, e.else_block};
  if (e.kind == ExprKind::kFunction) out = {e.primitive->body};
  for (const MatchCase& c : e.cases) out.push_back(c.body);
  return out;
}

std::string assertion_text(const Expr& e) {
  std::string what = attr<std::string>(e.attrs, "what");
  if (const std::string at = e.location.str(); !at.empty()) {
    // "matmul: the contracted dim": the place belongs to the operator.
    const size_t colon = what.find(": ");
    what.insert(colon == std::string::npos ? what.size() : colon, " at " + at);
  }
  const auto& left = attr<std::vector<Dim>>(e.attrs, "left");
  const auto& right = attr<std::vector<Dim>>(e.attrs, "right");
  std::string dims;
  for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
    dims += fmt::format("{}{} = {}", i ? ", " : "", left[i].str(), right[i].str());
  }
  return fmt::format("{} ({})", what, dims);
}

Type type_of(const Atom& a, const Module* module) {
  switch (a.kind) {
    case Atom::Kind::kVar:
      return a.var->type;
    case Atom::Kind::kConstant: {
      std::vector<Dim> dims(a.constant->shape.begin(), a.constant->shape.end());
      return tensor_type(std::move(dims), a.constant->dtype);
    }
    case Atom::Kind::kGlobal: {
      const FunctionRef f = module ? module->find(a.global) : nullptr;
      if (!f) return nullptr;
      std::vector<Type> parameters;
      for (const VarRef& p : f->parameters) parameters.push_back(p->type);
      return function_type(std::move(parameters), f->result_type);
    }
  }
  NIMBLE_UNREACHABLE("atom kind");
}

VarRef BlockBuilder::bind(ExprRef value, const std::string& hint) {
  VarRef v = make_var(hint, nullptr, value->location);
  bindings_.push_back({v, std::move(value)});
  return v;
}

VarRef BlockBuilder::call(const std::string& op, std::vector<Atom> args, Attrs attrs,
                          const std::string& hint, Location location) {
  return bind(make_call(op, std::move(args), std::move(attrs), std::move(location)), hint);
}

BlockRef BlockBuilder::finish(Atom result, Location location) {
  auto b = std::make_shared<Block>();
  b->bindings = std::move(bindings_);
  b->result = std::move(result);
  b->location = std::move(location);
  bindings_.clear();
  return b;
}

FunctionRef make_function_of(std::vector<VarRef> parameters, BlockRef body, Type result_type,
                             Attrs attrs, Location location) {
  auto f = std::make_shared<Function>();
  f->parameters = std::move(parameters);
  f->body = std::move(body);
  f->result_type = std::move(result_type);
  f->attrs = std::move(attrs);
  f->location = std::move(location);
  return f;
}

}  // namespace nimble::ir
