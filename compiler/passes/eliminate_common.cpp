// Common subexpressions of a block, its nested blocks seeing what the outer ones computed: equal
// operator, attributes and operands give one value; equal fields one data value, of one type (an
// empty list of tensors is not an empty list of numbers). Calls of functions are kept (a recursion
// may be deep and its cost is the program's own), closures too.
#include <unordered_map>

#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Expr;
using ir::ExprKind;

struct AttrPrinter {
  std::string operator()(bool x) const { return x ? "true" : "false"; }
  std::string operator()(int64_t x) const { return std::to_string(x); }
  std::string operator()(double x) const { return fmt::format("{:a}", x); }
  std::string operator()(const std::string& x) const { return '"' + x + '"'; }
  std::string operator()(DType x) const { return std::string(name_of(x)); }
  std::string operator()(const ir::Dim& x) const { return x.str(); }
  template <class T>
  std::string operator()(const std::vector<T>& x) const {
    std::string s = "[";
    for (const T& e : x) s += (*this)(e) + ",";
    return s + "]";
  }
};

std::string key_of(const ir::AttrValue& v) {
  return std::to_string(v.index()) + std::visit(AttrPrinter{}, v);
}

std::string key_of(const Atom& a) {
  if (a.is_var()) return fmt::format("v{}", static_cast<const void*>(a.var.get()));
  if (a.is_global()) return "@" + a.global;
  const ir::Tensor& t = *a.constant;
  if (t.bytes.size() > 64) return fmt::format("c{}", static_cast<const void*>(&t));
  std::string s = fmt::format("c{}[", name_of(t.dtype));
  for (int64_t d : t.shape) s += std::to_string(d) + ",";
  return s + "]" + std::string(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
}

// Empty: not to be shared.
std::string key_of(const Expr& e, const ir::Type& type) {
  std::string s;
  if (e.kind == ExprKind::kCall && !e.op.empty() && e.op.rfind("memory.", 0) != 0) {
    // What names symbols stays: inference alone can make two names one.
    const ir::OpInfo* info = ir::find_op(e.op);
    if (info == nullptr) return {};
    if (decides_shapes(e) || info->traits.names_symbols) return {};
    // Two tensors of zeros cost little; one that two loops are to fill costs a copy at each step.
    if (info->rows() == ir::Rows::kFill && !type->dims.empty()) return {};
    s = e.op;
    for (const auto& [name, value] : e.attrs) s += "|" + name + "=" + key_of(value);
  } else if (e.kind == ExprKind::kGetField) {
    s = "." + std::to_string(e.index);
  } else if (e.kind == ExprKind::kConstruct && type) {
    s = e.constructor + ":" + ir::str(type);
  } else {
    return {};
  }
  for (const Atom& a : e.args) s += "|" + key_of(a);
  return s;
}

class Sharing {
 public:
  explicit Sharing(PassContext& context) : context_(context) {}

  ir::BlockRef run(const ir::Block& block, std::unordered_map<std::string, ir::VarRef> known) {
    ir::BlockBuilder out;
    for (const Binding& b : block.bindings) {
      auto operands = std::make_shared<Expr>(*b.value);
      for (Atom& a : operands->args) a = resolve(a);
      if (operands->callee) operands->callee = resolve(*operands->callee);
      ir::ExprRef e = map_blocks(operands, [&](const ir::BlockRef& x) { return run(*x, known); });
      std::string key = key_of(*e, b.var->type);
      if (!key.empty()) {
        auto [it, fresh] = known.emplace(key, b.var);
        if (!fresh) {
          map_[b.var.get()] = it->second;
          context_.count("eliminate-common.shared");
          continue;
        }
      }
      out.append({b.var, e});
    }
    return out.finish(resolve(block.result));
  }

 private:
  Atom resolve(const Atom& a) const {
    if (!a.is_var()) return a;
    auto it = map_.find(a.var.get());
    return it == map_.end() ? a : it->second;
  }
  PassContext& context_;
  std::unordered_map<const ir::Var*, Atom> map_;
};

}  // namespace

ir::Module eliminate_common(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    auto copy = std::make_shared<ir::Function>(*f);
    copy->body = Sharing(context).run(*f->body, {});
    f = copy;
  }
  return out;
}

}  // namespace nimble::passes
