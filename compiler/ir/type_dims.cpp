#include "compiler/ir/type_dims.h"

namespace nimble::ir {

void all_symbols_of(const Type& t, std::set<std::string>& all) {
  if (!t) return;
  for (const Dim& d : t->dims) all.merge(d.symbols());
  for (const Type& e : t->elements) all_symbols_of(e, all);
}

Type map_dims(const Type& t, const std::function<Dim(const Dim&)>& f) {
  if (!t) return t;
  auto node = std::make_shared<TypeNode>(*t);
  for (Dim& d : node->dims) d = f(d);
  for (Type& e : node->elements) e = map_dims(e, f);
  return node;
}

}  // namespace nimble::ir
