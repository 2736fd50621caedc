// Inference of extents that the elements of small integer tensors decide (paper, 3.2: data
// dependent). Where a relation asks for contents that are not known, a read_extents before the
// call names the elements by fresh symbols; from there on they are dims as others are, and equal
// operands give equal dims.
#include "compiler/ir/infer_function.h"
#include "compiler/ir/op.h"
#include "vm/base/error.h"

namespace nimble::ir {

// From here on a symbol stands for an element that the run reads: it may be negative if it is no
// size.
void FunctionInference::learn_element(const std::string& symbol, bool size) {
  known_.insert(symbol);
  facts_.set(symbol, {size ? 0 : INT64_MIN, INT64_MAX, 1});
}

void FunctionInference::remember_elements(const VarRef& v, const Dims& elements) {
  contents_[v.get()] = elements;
  read_.push_back(v);
}

// The elements of operand i as symbols, by a read_extents before the call; equal operands share
// them. Null unless their number is constant.
const Dims* FunctionInference::read_contents(Expr& call, const Type& type, size_t i,
                                             BlockBuilder& out) {
  if (const Dims* known = contents_of(call.args[i])) return known;
  const auto n = element_count(type).as_constant();
  if (!n || *n > 64) return nullptr;
  std::vector<std::string> symbols;
  Dims elements;
  for (int64_t k = 0; k < *n; ++k) {
    symbols.push_back(fresh_symbol());
    learn_element(symbols.back(), /*size=*/false);
    elements.push_back(Dim::symbol(symbols.back()));
  }
  const Atom operand = call.args[i];
  VarRef v = new_var(operand.is_var() ? operand.var->name : "extents", type, call.location);
  out.append({v, make_call("read_extents", {operand}, {{"symbols", symbols}}, call.location)});
  if (operand.is_var()) remember_elements(operand.var, elements);
  call.args[i] = Atom(v);
  return &(contents_[v.get()] = std::move(elements));
}

// Where the elements are known by now, the symbols are names of what is known.
Typed FunctionInference::infer_read_extents(const Expr& e) {
  auto call = std::make_shared<Expr>(e);
  if (std::string fault = check_call(*find_op(e.op), e); !fault.empty())
    fail(e.location, fault, "");
  Atom& a = call->args[0];
  a = map_atom(a, e.location);
  const Type type = atom_type(a, e.location);
  if (!type || type->kind != TypeKind::kTensor)
    fail(e.location, fmt::format("the operand is {}, not a tensor", types_.str(type)),
         "read the elements of an integer tensor");
  const auto& symbols = attr<std::vector<std::string>>(e.attrs, "symbols");
  const Dims* known = signatures_.reads_apart() ? nullptr : contents_of(a);
  if (known && known->size() == symbols.size()) {
    for (size_t i = 0; i < symbols.size(); ++i) aliases_[symbols[i]] = (*known)[i];
    return {make_atom(a, e.location), type, *known};
  }
  for (const std::string& s : symbols) {
    if (known_.contains(s) || aliases_.contains(s))
      fail(e.location, fmt::format("the symbol {} has a meaning already", s), "choose a new name");
    learn_element(s, attr_or<bool>(e.attrs, "sizes", false));
  }
  RelationContext context{*call, {&type, 1}, facts_, nullptr, nullptr, nullptr};
  RelationResult r = find_op(e.op)->relation(context);
  if (a.is_var()) remember_elements(a.var, *r.contents);
  return {std::move(call), type, std::move(r.contents)};
}

}  // namespace nimble::ir
