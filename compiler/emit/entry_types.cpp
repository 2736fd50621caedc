#include "compiler/emit/entry_types.h"

#include "compiler/passes/lower_memory.h"

namespace nimble::emit {

using exec::ValueType;
using ir::Type;
using ir::TypeKind;

std::string dim_text(const ir::Dim& d) {
  std::string text = d.str();
  return text[0] == '?' ? "?" : text;
}

uint32_t EntryTypes::number_of(const Type& t, const std::string& place) {
  constexpr size_t kMaxTypes = 4096, kMaxName = 4096;
  const bool known_kind = t && (t->kind == TypeKind::kTensor || t->kind == TypeKind::kTuple ||
                                t->kind == TypeKind::kData);
  if (!known_kind)
    throw Error(Status::kUnsupported, place,
                fmt::format("an entry function cannot take or return {}", ir::str(t)),
                "pass tensors, or data values made of tensors");
  const std::string name = ir::str(t);
  if (table_.size() >= kMaxTypes || name.size() > kMaxName)
    throw Error(Status::kUnsupported, place,
                "its type contains ever larger instances of a data type",
                "let the entry function take a data type whose recursion keeps its arguments");
  const auto number = static_cast<uint32_t>(table_.size());
  const auto [it, fresh] = numbers_.try_emplace(name, number);
  if (!fresh) return it->second;
  table_.emplace_back();  // its number is taken before its fields ask for theirs
  ValueType made;
  made.name = name;
  auto fields = [&](const std::vector<Type>& types) {
    std::vector<uint32_t> out;
    for (const Type& f : types) out.push_back(number_of(f, place));
    return out;
  };
  if (t->kind == TypeKind::kTensor) {
    made.kind = ir::is_scalar(t) ? ValueType::Kind::kScalar : ValueType::Kind::kTensor;
    made.dtype = t->dtype;
    for (const ir::Dim& d : t->dims) {
      made.dims.push_back(d.is_any() ? "?" : dim_text(d));
      made.extents.push_back(d.is_any() ? -1 : d.as_constant().value_or(-1));
    }
  } else if (t->kind == TypeKind::kTuple) {
    made.kind = ValueType::Kind::kTuple;
    made.constructors.push_back({"", fields(t->elements)});
  } else {
    made.kind = ValueType::Kind::kData;
    const ir::DataType* data = module_.find_data(t->name);
    NIMBLE_CHECK(data, "no data type {}", t->name);
    std::map<std::string, Type> arguments;
    for (size_t i = 0; i < data->variables.size(); ++i)
      arguments[data->variables[i]] = t->elements[i];
    for (const ir::Constructor& c : data->constructors) {
      std::vector<Type> types;
      for (const Type& f : c.fields) types.push_back(ir::substitute_types(f, arguments));
      made.constructors.push_back({c.name, fields(types)});
    }
  }
  table_[number] = std::move(made);
  return number;
}

}  // namespace nimble::emit
