#include "compiler/ir/recursion_schema.h"

namespace nimble::ir {

Type type_of_linearise(const RecursionSchema& schema, const Dim& steps,
                       const std::vector<Dim>& counts) {
  std::vector<Type> parts = {tensor_type({steps, Dim(4)}, DType::kI64)};
  for (size_t k = 0; k < schema.kinds.size(); ++k) {
    parts.insert(parts.end(), schema.kinds[k].calls.size(), tensor_type({counts[k]}, DType::kI64));
    for (const RecursionSchema::Data& d : schema.kinds[k].data) {
      std::vector<Dim> dims = {counts[k]};
      dims.insert(dims.end(), d.extents.begin(), d.extents.end());
      parts.push_back(tensor_type(std::move(dims), d.dtype));
    }
  }
  return tuple_type(std::move(parts));
}

}  // namespace nimble::ir
