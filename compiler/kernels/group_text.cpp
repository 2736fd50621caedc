#include "compiler/kernels/group_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <map>
#include <vector>

#include "compiler/ir/text.h"
#include "vm/base/error.h"

namespace nimble::kernels {

using ir::Atom;
using ir::Attrs;
using ir::Dim;
using ir::ExprKind;
using ir::Function;
using ir::VarRef;
using Ints = std::vector<int64_t>;

void require_inferred(const Function& f) {
  for (const VarRef& p : f.parameters) NIMBLE_CHECK(p->type, "parameter {} has no type", p->name);
  for (const ir::Binding& b : f.body->bindings) {
    NIMBLE_CHECK(b.var->type, "{} has no type", b.var->name);
    NIMBLE_CHECK(b.value->kind == ExprKind::kCall || b.value->kind == ExprKind::kTuple ||
                     b.value->kind == ExprKind::kAtom || b.value->kind == ExprKind::kGetField,
                 "a group holds calls and tuples only");
  }
}

std::string attr_text(const ir::AttrValue& v) {
  struct Text {
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(int64_t i) const { return fmt::format("{}", i); }
    std::string operator()(double d) const { return fmt::format("{}", d); }
    std::string operator()(const std::string& s) const { return s; }
    std::string operator()(DType t) const { return std::string(name_of(t)); }
    std::string operator()(const Dim& d) const { return d.str(); }
    std::string operator()(const std::vector<Dim>& all) const {
      std::string out;
      for (const Dim& d : all) out += (out.empty() ? "" : ", ") + d.str();
      return "[" + out + "]";
    }
    std::string operator()(const Ints& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
    std::string operator()(const std::vector<double>& v) const {
      return fmt::format("[{}]", fmt::join(v, ", "));
    }
    std::string operator()(const std::vector<std::string>& v) const {
      return fmt::format("[{}]", fmt::join(v, ", "));
    }
  };
  return std::visit(Text{}, v);
}

std::string text_of(const Function& f) {
  std::string out;
  std::map<const ir::Var*, size_t> number;
  const auto name = [&](const VarRef& v) {
    out += fmt::format("%{}: {}", number.emplace(v.get(), number.size()).first->second,
                       ir::str(v->type));
  };
  const auto attributes = [&](const Attrs& attrs) {
    for (const auto& [key, value] : attrs)
      out += fmt::format(" {}={}:{}", key, value.index(), attr_text(value));
  };
  const auto operand = [&](const Atom& a) {
    if (a.is_var()) {
      out += fmt::format(" %{}", number.at(a.var.get()));
    } else if (a.is_global()) {
      out += " @" + a.global;
    } else {
      out += fmt::format(" {}[{}]", name_of(a.constant->dtype), fmt::join(a.constant->shape, ","));
      out.append(reinterpret_cast<const char*>(a.constant->bytes.data()), a.constant->bytes.size());
    }
  };
  attributes(f.attrs);
  for (const VarRef& p : f.parameters) name(p), out += '\n';
  for (const ir::Binding& b : f.body->bindings) {
    out += fmt::format("{} {}.{}", static_cast<int>(b.value->kind), b.value->op, b.value->index);
    for (const Atom& a : b.value->args) operand(a);
    attributes(b.value->attrs);
    out += " -> ";
    name(b.var);
    out += '\n';
  }
  operand(f.body->result);
  return out;
}

}  // namespace nimble::kernels
