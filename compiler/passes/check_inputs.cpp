// What the caller of an entry function must keep to, as code.
//
// Inference checks the extents of a call's arguments at the call; an entry function is called from
// outside. The runtime compares extents of equal names, so that of
//
//   fn @main(%x: Tensor[(2*n), f32], %y: Tensor[(n), f32])
//
// it would take any %x, and all that follows believes that its extent is 2*n: kernels would read
// beyond it. So an extent that is an expression becomes a symbol of its own, and is compared with
// the expression before anything else happens:
//
//   fn @main(%x.1: Tensor[(x_0), f32], %y: Tensor[(n), f32])
//     let %x: Tensor[(2*n), f32] = assert_shape(%x.1) {left = (x_0), right = (2*n), …}
//
// What users see of the entry (names, extents) is read from the module before this pass.
#include <fmt/format.h>

#include <set>

#include "compiler/ir/builder.h"
#include "compiler/ir/entry.h"
#include "compiler/ir/type_dims.h"
#include "compiler/passes/passes.h"
#include "vm/base/error.h"

namespace nimble::passes {
namespace {

using ir::Dim;
using ir::Type;
using ir::TypeKind;
using ir::VarRef;

bool is_expression(const Dim& d) {
  return !d.is_any() && !d.as_constant() && !d.as_symbol();
}

// Extents inside data values are compared by name alone, while values are taken in.
void refuse_expressions(const Type& t, const VarRef& parameter, const std::string& input) {
  if (!t) return;
  for (const Dim& d : t->dims)
    if (t->kind == TypeKind::kTensor && is_expression(d))
      throw Error(Status::kUnsupported, parameter->location.str(),
                  fmt::format("input {} has the extent {} inside a data value, where expressions "
                              "are not checked",
                              input, d.str()),
                  "write ? there, and assert_shape where the tensor is taken out");
  for (const Type& e : t->elements) refuse_expressions(e, parameter, input);
}

class Checks {
 public:
  Checks(const ir::Function& f, const std::vector<std::string>& names) : f_(f), names_(names) {
    for (const VarRef& p : f.parameters) ir::all_symbols_of(p->type, taken_);
  }

  ir::FunctionRef run() {
    auto copy = std::make_shared<ir::Function>(f_);
    ir::BlockBuilder body;
    bool changed = false;
    for (size_t i = 0; i < f_.parameters.size(); ++i) {
      const std::string& input = i < names_.size() ? names_[i] : f_.parameters[i]->name;
      changed |= check(&copy->parameters[i], input, body);
    }
    if (!changed) return nullptr;
    for (const ir::Binding& b : f_.body->bindings) body.append(b);
    copy->body = body.finish(f_.body->result);
    return copy;
  }

 private:
  bool check(VarRef* parameter, const std::string& input, ir::BlockBuilder& body) {
    const VarRef p = *parameter;
    if (!p->type || p->type->kind != TypeKind::kTensor) {
      refuse_expressions(p->type, p, input);
      return false;
    }
    std::vector<Dim> open = p->type->dims, left, right;
    std::string what;
    for (size_t d = 0; d < open.size(); ++d) {
      if (!is_expression(open[d])) continue;
      left.push_back(symbol_for(p->name, d));
      right.push_back(open[d]);
      open[d] = left.back();
      what += fmt::format("{}dim {} of input {}", what.empty() ? "" : "; ", d, input);
    }
    if (left.empty()) return false;
    *parameter = ir::make_var(p->name + ".given", ir::tensor_type(std::move(open), p->type->dtype),
                              p->location);
    body.append(
        {p, ir::make_call("assert_shape", {*parameter},
                          {{"left", left}, {"right", right}, {"what", what}}, p->location)});
    return true;
  }

  // A name that says which extent it is: messages show it.
  Dim symbol_for(const std::string& parameter, size_t dim) {
    std::string base;
    for (char c : parameter)
      base += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
    if (base.empty() || (base[0] >= '0' && base[0] <= '9')) base = "x" + base;
    std::string name = fmt::format("{}_{}", base, dim);
    while (!taken_.insert(name).second) name += "_";
    return Dim::symbol(name);
  }

  const ir::Function& f_;
  const std::vector<std::string>& names_;
  std::set<std::string> taken_;
};

}  // namespace

ir::Module check_inputs(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (const auto& [name, f] : m.functions) {
    if (!ir::is_entry(m, name)) continue;
    const auto signature = m.signatures.find(name);
    static const std::vector<std::string> kNone;
    const auto& names = signature == m.signatures.end() ? kNone : signature->second.input_names;
    if (ir::FunctionRef checked = Checks(*f, names).run()) {
      out.set(name, std::move(checked));
      context.count("check-inputs.functions");
    }
  }
  return out;
}

}  // namespace nimble::passes
