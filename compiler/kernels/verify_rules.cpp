#include "compiler/kernels/verify_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/kernels/group_fragments.h"
#include "vm/executable/executable.h"

namespace nimble::kir {
namespace {

constexpr int kMostOfSignal = (1 << 20) - 1;  // arrivals in a phase, and bytes of one arrival

}  // namespace

std::string dot_fault(const Value& v) {
  const FragmentRow& row = row_of(v.fragment);
  if (v.dtype != row.sum)
    return fmt::format("{} gives {}, not {}", row.name, nimble::name_of(row.sum),
                       nimble::name_of(v.dtype));
  const DType types[] = {row.a, row.b, row.sum};
  const int lanes[] = {row.group * v.lanes, row.group * v.lanes, v.lanes};
  for (size_t i = 0; i < 3; ++i)
    if (v.operands[i]->dtype != types[i] || v.operands[i]->lanes != lanes[i])
      return fmt::format("operand {} of {} is {}x{}; {}x{} is needed", i, row.name,
                         nimble::name_of(v.operands[i]->dtype), v.operands[i]->lanes,
                         nimble::name_of(types[i]), lanes[i]);
  return {};
}

std::string async_copy_fault(const Stmt& s) {
  const Buffer &from = *s.buffer, &to = *s.to_buffer;
  if (from.scope == Scope::kShared || to.scope != Scope::kShared)
    return fmt::format("a copy without waiting from {} to {}; it goes from global to shared memory",
                       from.name, to.name);
  if (from.dtype != to.dtype)
    return fmt::format("a copy of {} from {} to {} of {}", nimble::name_of(from.dtype), from.name,
                       to.name, nimble::name_of(to.dtype));
  const auto size = static_cast<int64_t>(size_of(from.dtype)), bytes = s.lanes * size;
  if (s.lanes <= 0 || (bytes != 4 && bytes != 8 && bytes != 16))
    return fmt::format("a copy of {} bytes to {}; 4, 8 or 16 go without waiting", bytes, to.name);
  const int64_t base =
      from.scope == Scope::kArgument ? std::max<int64_t>(from.alignment, size) : 64;
  if (base < bytes)
    return fmt::format("a copy of {} bytes from {}, which is aligned to {}", bytes, from.name,
                       base);
  return {};
}

bool is_of_signal(StmtKind kind) {
  return kind == StmtKind::kSignalInit || kind == StmtKind::kSignalArrive ||
         kind == StmtKind::kSignalWait || kind == StmtKind::kTensorCopy;
}

int pattern_bytes(const TensorMap& m) {
  return kGroupLines * m.box[0] * static_cast<int>(size_of(m.buffer->dtype));
}

std::string signal_fault(const Stmt& s) {
  const Buffer& b = *s.buffer;
  if (b.scope != Scope::kShared || b.dtype != DType::kU64)
    return fmt::format("signal {} is {} of scope {}; signals are u64 in shared memory", b.name,
                       nimble::name_of(b.dtype), name_of(b.scope));
  if (s.kind == StmtKind::kSignalInit && (s.count < 1 || s.count > kMostOfSignal))
    return fmt::format("signal {} is made for {} arrivals; 1 to {} are possible", b.name, s.count,
                       kMostOfSignal);
  if (s.kind == StmtKind::kSignalArrive && (s.count < 0 || s.count > kMostOfSignal))
    return fmt::format("an arrival at signal {} with {} bytes; 0 to {} are possible", b.name,
                       s.count, kMostOfSignal);
  return {};
}

std::string tensor_map_fault(const Function& f, const ir::DimContext& facts, const TensorMap* m) {
  if (!m || !m->buffer) return "a tensor map of nothing";
  const Buffer& b = *m->buffer;
  if (std::find(f.arguments.begin(), f.arguments.end(), m->buffer) == f.arguments.end() ||
      b.writable)
    return fmt::format("map {} is of {}, which is no argument that is only read", m->name, b.name);
  if (b.alignment == 0 || b.alignment % kPieceBytes != 0)
    return fmt::format("map {} is of {}, which is aligned to {} bytes; {} are needed", m->name,
                       b.name, b.alignment, kPieceBytes);
  if (m->extents.empty() || m->extents.size() > exec::TensorMap::kMaxRank ||
      m->box.size() != m->extents.size())
    return fmt::format("map {} has {} axes, and its boxes {}; 1 to {} are possible", m->name,
                       m->extents.size(), m->box.size(), exec::TensorMap::kMaxRank);
  const std::vector<std::string>& symbols = f.contract.symbols;
  for (const Dim& d : m->extents) {
    if (d.is_any()) return fmt::format("map {} has an extent `?`", m->name);
    for (const std::string& s : d.symbols())
      if (std::find(symbols.begin(), symbols.end(), s) == symbols.end())
        return fmt::format("map {}: extent {} depends on {}, which is no symbol of the contract",
                           m->name, d.str(), s);
  }
  constexpr int kMostOfBox = exec::TensorMap::kMaxBox;
  for (const int n : m->box)
    if (n < 1 || n > kMostOfBox)
      return fmt::format("map {} has boxes of {} along an axis; 1 to {} are possible", m->name, n,
                         kMostOfBox);
  if (!swizzle_of(b.dtype, m->box[0]))
    return fmt::format("map {} has lines of {} {}; those of 32, 64 and 128 bytes have a swizzle",
                       m->name, m->box[0], nimble::name_of(b.dtype));
  const auto in_piece = static_cast<int64_t>(kPieceBytes / size_of(b.dtype));
  if (m->extents.size() > 1 && facts.divisible(m->extents[0], in_piece) != ir::Proof::kYes)
    return fmt::format("map {}: rows of {} {} are not known to be multiples of {} bytes", m->name,
                       m->extents[0].str(), nimble::name_of(b.dtype), kPieceBytes);
  return {};
}

std::string tensor_copy_fault(const Function& f, const Stmt& s) {
  if (std::find(f.maps.begin(), f.maps.end(), s.map) == f.maps.end())
    return fmt::format("a copy of a box of {}, which is no map of the function's",
                       s.map ? s.map->name : "nothing");
  const TensorMap& m = *s.map;
  const Buffer& to = *s.to_buffer;
  if (to.scope != Scope::kShared || to.dtype != m.buffer->dtype)
    return fmt::format("a box of {} of {} goes to {}, which is {} of scope {}",
                       nimble::name_of(m.buffer->dtype), m.buffer->name, to.name,
                       nimble::name_of(to.dtype), name_of(to.scope));
  if (s.coordinates.size() != m.extents.size())
    return fmt::format("{} coordinates of a box of {}, which has {} axes", s.coordinates.size(),
                       m.name, m.extents.size());
  if (to.alignment == 0 || to.alignment % pattern_bytes(m) != 0)
    return fmt::format("{} is aligned to {} bytes; boxes of {} need {}", to.name, to.alignment,
                       m.name, pattern_bytes(m));
  return {};
}

}  // namespace nimble::kir
