#include "compiler/ir/type.h"

#include "vm/base/error.h"

namespace nimble::ir {
namespace {

Type make(TypeNode node) {
  return std::make_shared<const TypeNode>(std::move(node));
}

std::string join(const std::vector<Type>& types, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    if (i) out += ", ";
    out += str(types[i]);
  }
  return out;
}

}  // namespace

Type tensor_type(std::vector<Dim> dims, DType dtype) {
  return make({TypeKind::kTensor, dtype, std::move(dims), {}, {}});
}
Type scalar_type() {
  static const Type t = make({TypeKind::kScalar, DType::kI64, {}, {}, {}});
  return t;
}
bool is_scalar(const Type& t) {
  return t &&
         (t->kind == TypeKind::kScalar || (t->kind == TypeKind::kTensor && t->dims.empty() &&
                                           (t->dtype == DType::kI64 || t->dtype == DType::kBool)));
}
Type tuple_type(std::vector<Type> elements) {
  return make({TypeKind::kTuple, DType::kF32, {}, std::move(elements), {}});
}
Type function_type(std::vector<Type> parameters, Type result) {
  parameters.push_back(std::move(result));
  return make({TypeKind::kFunction, DType::kF32, {}, std::move(parameters), {}});
}
Type storage_type() {
  static const Type t = make({TypeKind::kStorage, DType::kU8, {}, {}, {}});
  return t;
}

Type data_type(std::string name, std::vector<Type> arguments) {
  return make({TypeKind::kData, DType::kF32, {}, std::move(arguments), std::move(name)});
}
Type variable_type(std::string name) {
  return make({TypeKind::kVariable, DType::kF32, {}, {}, std::move(name)});
}

bool equal(const Type& a, const Type& b) {
  if (a == b) return true;
  if (!a || !b || a->kind != b->kind) return false;
  if (a->kind == TypeKind::kTensor) return a->dtype == b->dtype && a->dims == b->dims;
  if (a->name != b->name || a->elements.size() != b->elements.size()) return false;
  for (size_t i = 0; i < a->elements.size(); ++i) {
    if (!equal(a->elements[i], b->elements[i])) return false;
  }
  return true;
}

std::string str(const Type& t) {
  if (!t) return "_";
  switch (t->kind) {
    case TypeKind::kTensor: {
      std::string dims;
      for (size_t i = 0; i < t->dims.size(); ++i) {
        if (i) dims += ", ";
        dims += t->dims[i].str();
      }
      return fmt::format("Tensor[({}), {}]", dims, name_of(t->dtype));
    }
    case TypeKind::kScalar:
      return "i64";
    case TypeKind::kTuple:
      return "(" + join(t->elements, t->elements.size()) + (t->elements.size() == 1 ? ",)" : ")");
    case TypeKind::kFunction:
      return "fn(" + join(t->elements, t->elements.size() - 1) + ") -> " + str(t->elements.back());
    case TypeKind::kStorage:
      return "Storage";
    case TypeKind::kData:
      if (t->elements.empty()) return t->name;
      return t->name + "[" + join(t->elements, t->elements.size()) + "]";
    case TypeKind::kVariable:
      return t->name;
  }
  NIMBLE_UNREACHABLE("type kind");
}

Type substitute(const Type& t, const std::map<std::string, Dim>& replacement) {
  if (!t || replacement.empty()) return t;
  TypeNode node = *t;
  bool changed = false;
  for (Dim& d : node.dims) {
    if (d.is_any()) continue;
    const Dim replaced = d.substitute(replacement);
    changed |= !(replaced == d);
    d = replaced;
  }
  for (Type& e : node.elements) {
    Type replaced = substitute(e, replacement);
    changed |= replaced != e;
    e = std::move(replaced);
  }
  return changed ? make(std::move(node)) : t;
}

Type substitute_types(const Type& t, const std::map<std::string, Type>& replacement) {
  if (!t || replacement.empty()) return t;
  if (t->kind == TypeKind::kVariable) {
    auto it = replacement.find(t->name);
    return it == replacement.end() ? t : it->second;
  }
  TypeNode node = *t;
  bool changed = false;
  for (Type& e : node.elements) {
    Type replaced = substitute_types(e, replacement);
    changed |= replaced != e;
    e = std::move(replaced);
  }
  return changed ? make(std::move(node)) : t;
}

Dim element_count(const Type& t) {
  NIMBLE_CHECK(t && t->kind == TypeKind::kTensor, "element count of {}", str(t));
  Dim count = 1;
  for (const Dim& d : t->dims) count = count * d;
  return count;
}

Dim byte_size(const Type& t) {
  return element_count(t) * Dim(static_cast<int64_t>(size_of(t->dtype)));
}

}  // namespace nimble::ir
