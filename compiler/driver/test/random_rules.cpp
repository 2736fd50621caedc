#include "compiler/driver/test/random_rules.h"

#include <algorithm>
#include <set>

#include "compiler/ir/type_dims.h"

namespace nimble::driver::testing {

using ir::AttrSpec;
using ir::Dim;
using ir::OpInfo;
using ir::Type;
using ir::TypeKind;

bool is_internal(const OpInfo& op) {
  static const std::set<std::string> kNames = {"assert_shape", "device_copy", "on_device", "pack",
                                               "pitched"};
  if (op.name.find('.') != std::string::npos || op.name.starts_with("packed_")) return true;
  if (kNames.count(op.name)) return true;
  return std::any_of(op.attrs.begin(), op.attrs.end(), [](const AttrSpec& a) {
    return a.required && a.kind == AttrSpec::Kind::kString;
  });
}

bool needs_values(const OpInfo& op) {
  static const std::set<std::string> kNames = {
      "gather", "gather_elements", "take_row", "write_row", "topk",        "tile",
      "repeat", "prefix",          "append",   "range",     "read_extents"};
  return op.shape_mode != ir::ShapeMode::kDataIndependent || kNames.count(op.name) > 0;
}

bool moves_values(const OpInfo& op) {
  static const std::set<std::string> kExact = {"neg",     "abs",        "relu",       "maximum",
                                               "minimum", "reduce_max", "reduce_min", "where",
                                               "clip",    "write_row",  "full"};
  return op.fusion == ir::FusionKind::kInjective || kExact.count(op.name) > 0;
}

bool jumps(const std::string& op) {
  static const std::set<std::string> kJumps = {"floor",  "ceil", "round", "mod", "argmax",
                                               "argmin", "sign", "topk",  "nms", "unique"};
  return kJumps.count(op) > 0;
}

int guarded_operand(const std::string& op) {
  if (op == "log" || op == "sqrt" || op == "rsqrt" || op == "reciprocal" || op == "pow") return 0;
  if (op == "div") return 1;
  if (op == "batch_norm") return 4;
  return -1;
}

void collect_symbols(const Type& t, std::set<std::string>& all, std::set<std::string>& bare) {
  for (const Dim& d : t->dims) {
    if (d.is_any()) continue;
    all.merge(d.symbols());
    if (auto s = d.as_symbol()) bare.insert(*s);
  }
  for (const Type& e : t->elements) {
    std::set<std::string> inner;  // inside of other types nothing is bound
    collect_symbols(e, all, t->kind == TypeKind::kTuple ? bare : inner);
  }
}

bool is_born(const std::string& symbol) {
  return symbol.starts_with(kBornExtent);
}

bool is_stated(const Type& t) {
  std::set<std::string> all, bare;
  collect_symbols(t, all, bare);
  return std::none_of(all.begin(), all.end(), is_born);
}

std::optional<std::set<const ir::Var*>> variables_that_name(const ir::Attrs& attrs,
                                                            const std::vector<ir::VarRef>& scope) {
  std::set<std::string> used;
  for (const auto& [name, value] : attrs) {
    if (const auto* dims = std::get_if<std::vector<Dim>>(&value))
      for (const Dim& d : *dims) used.merge(d.symbols());
  }
  std::set<const ir::Var*> naming;
  for (const std::string& s : used) {
    if (!is_born(s)) continue;
    const auto has_it = [&](const ir::VarRef& v) {
      return v->type && v->type->kind == TypeKind::kTensor &&
             std::ranges::find(v->type->dims, Dim::symbol(s)) != v->type->dims.end();
    };
    const auto first = std::ranges::find_if(scope, has_it);
    if (first == scope.end()) return std::nullopt;
    naming.insert(first->get());
  }
  return naming;
}

void forget_types(const ir::Block& b, const std::set<const ir::Var*>& naming) {
  const auto only_born = [](const Dim& d) {
    const auto s = d.is_any() ? std::nullopt : d.as_symbol();
    return s && is_born(*s) ? d : Dim::any();
  };
  for (const ir::Binding& binding : b.bindings) {
    const ir::Expr& e = *binding.value;
    if (naming.contains(binding.var.get()))
      binding.var->type = ir::map_dims(binding.var->type, only_born);
    else if (e.kind != ir::ExprKind::kConstruct)
      binding.var->type = nullptr;
    for (const ir::MatchCase& c : e.cases)
      for (const ir::VarRef& v : ir::variables_of(c.pattern)) v->type = nullptr;
    for (const ir::BlockRef& nested : ir::blocks_of(e)) forget_types(*nested, naming);
  }
}

bool closed(const std::vector<Type>& types) {
  std::set<std::string> all, bare;
  for (const Type& t : types) collect_symbols(t, all, bare);
  return std::includes(bare.begin(), bare.end(), all.begin(), all.end());
}

}  // namespace nimble::driver::testing
