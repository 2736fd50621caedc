#include "compiler/kernels/gpu_access.h"

#include <algorithm>

namespace nimble::kir {
namespace {

// Of kernel_ir.h's scratch_bytes() and shared_bytes().
constexpr int64_t kScratchAlignment = 64, kSharedAlignment = 128;

}  // namespace

int access_bytes(const Buffer& b, const Dim& index, int lanes, const ir::DimContext& facts) {
  const auto size = static_cast<int64_t>(size_of(b.dtype));
  int64_t base = kScratchAlignment;
  if (b.scope == Scope::kShared) base = kSharedAlignment;
  if (b.scope == Scope::kArgument) base = std::max<int64_t>(b.alignment, size);
  int64_t known = size;
  while (2 * known <= kWidestAccess && 2 * known <= lanes * size && base % (2 * known) == 0 &&
         facts.divisible(index, 2 * known / size) == ir::Proof::kYes)
    known *= 2;
  return static_cast<int>(known);
}

}  // namespace nimble::kir
