// Types of the IR. Values are immutable and shared; compare with equal().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/dim.h"
#include "vm/base/dtype.h"

namespace nimble::ir {

struct TypeNode;
using Type = std::shared_ptr<const TypeNode>;

enum class TypeKind {
  kTensor,    // Tensor[(n, 768), f32]; rank is static, dims may be `?` before inference
  kScalar,    // i64 (lowered IR only): an unboxed register
  kTuple,     // (T, U)
  kFunction,  // fn(T, U) -> V
  kStorage,   // Storage (lowered IR only): a block of memory on a device
  kData,      // a named algebraic data type with type arguments: Tree[...]
  kVariable,  // a type variable of a polymorphic function or data type
};

struct TypeNode {
  TypeKind kind;
  DType dtype = DType::kF32;   // kTensor
  std::vector<Dim> dims;       // kTensor
  std::vector<Type> elements;  // kTuple; kFunction: parameters, then result; kData: arguments
  std::string name;            // kData, kVariable
};

Type tensor_type(std::vector<Dim> dims, DType dtype);
Type scalar_type();
Type tuple_type(std::vector<Type> elements);
Type function_type(std::vector<Type> parameters, Type result);
Type storage_type();
Type data_type(std::string name, std::vector<Type> arguments = {});
Type variable_type(std::string name);

// Whether values of this type (rank-0 i64 or bool) live unboxed in registers after lowering.
bool is_scalar(const Type& t);
bool equal(const Type& a, const Type& b);  // structural; dims compared as canonical polynomials
std::string str(const Type& t);            // the text form
Type substitute(const Type& t, const std::map<std::string, Dim>& replacement);
// Replaces type variables.
Type substitute_types(const Type& t, const std::map<std::string, Type>& replacement);
// Bytes of a tensor type as a Dim.
Dim byte_size(const Type& t);
Dim element_count(const Type& t);

}  // namespace nimble::ir
