#include "compiler/kernels/argument_access.h"

#include <algorithm>
#include <unordered_set>

namespace nimble::kir {
namespace {

constexpr int64_t kWidest = 16;  // bytes of one access of a GPU's thread

class Accesses {
 public:
  void statement(const Stmt& s) {
    if (s.kind == StmtKind::kStore && s.stride.is_constant(1)) add(s.buffer, s.value->lanes);
    if (s.kind == StmtKind::kAsyncCopy) add(s.buffer, s.lanes);
    if (s.value) value(*s.value);
    for (const StmtRef& b : s.body) statement(*b);
  }
  int64_t widest() const { return widest_; }

 private:
  void value(const Value& v) {
    if (!seen_.insert(&v).second) return;
    if (v.kind == ValueKind::kLoad && v.stride.is_constant(1)) add(v.buffer, v.lanes);
    if (v.passthrough) value(*v.passthrough);
    for (const ValueRef& o : v.operands) value(*o);
  }
  void add(const BufferRef& b, int lanes) {
    if (b->scope != Scope::kArgument) return;
    widest_ = std::max(widest_, std::min(kWidest, lanes * static_cast<int64_t>(size_of(b->dtype))));
  }

  std::unordered_set<const Value*> seen_;
  int64_t widest_ = 1;
};

}  // namespace

uint32_t argument_alignment(const Function& f) {
  Accesses all;
  all.statement(*f.body);
  uint32_t bytes = 1;
  while (bytes < all.widest()) bytes *= 2;
  return bytes;
}

}  // namespace nimble::kir
