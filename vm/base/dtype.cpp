#include "vm/base/dtype.h"

namespace nimble {
namespace {
constexpr std::string_view kNames[kDTypeCount] = {"bool", "i8",  "i16", "i32",  "i64", "u8", "u16",
                                                  "u32",  "u64", "f16", "bf16", "f32", "f64"};
}  // namespace

std::string_view name_of(DType t) {
  return kNames[static_cast<int>(t)];
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (kNames[i] == name) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace nimble
