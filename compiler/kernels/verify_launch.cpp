// The verifier's rules of what is a GPU's alone: the launch, who meets where, products of warps and
// of groups, copies and signals.
#include <algorithm>
#include <unordered_set>

#include "compiler/kernels/group_fragments.h"
#include "compiler/kernels/verify_rules.h"
#include "compiler/kernels/verify_walk.h"
#include "vm/executable/executable.h"

namespace nimble::kir {
namespace {

constexpr int kMostThreads = exec::Launch::kMaxThreads;

bool shuffles(const Value& v, std::unordered_set<const Value*>& seen) {
  if (!seen.insert(&v).second) return false;
  if (v.kind == ValueKind::kShuffle || (v.passthrough && shuffles(*v.passthrough, seen)))
    return true;
  return std::any_of(v.operands.begin(), v.operands.end(),
                     [&](const ValueRef& o) { return o && shuffles(*o, seen); });
}

}  // namespace

void Verification::launch(const Launch& l) {
  require(l.threads > 0 && l.threads % kWarpLanes == 0 && l.threads <= kMostThreads,
          "a block of {} threads; a multiple of {} up to {} is needed", l.threads, kWarpLanes,
          kMostThreads);
  const std::vector<std::string>& symbols = f_.contract.symbols;
  for (size_t i = 0; i < l.grid.size(); ++i) {
    require(!l.grid[i].is_any(), "a grid of `?`");
    for (const std::string& s : l.grid[i].symbols())
      require(std::find(symbols.begin(), symbols.end(), s) != symbols.end(),
              "the grid's extent {} depends on {}, which is no symbol of the contract",
              l.grid[i].str(), s);
    const int64_t most = facts_.range(l.grid[i]).high;
    facts_.set(kBlockSymbols[i], {0, most == INT64_MAX ? most : std::max<int64_t>(most - 1, 0)});
  }
  facts_.set("thread", {0, l.threads - 1});
  facts_.set("threads", {l.threads, l.threads});
  for (const BufferRef& b : f_.shared)
    require(b->extent.as_constant() && *b->extent.as_constant() > 0,
            "shared buffer {} needs a constant extent, not {}", b->name, b->extent.str());
  require(shared_bytes(f_) <= exec::Launch::kMaxSharedBytes,
          "{} bytes of shared memory; a block has {}", shared_bytes(f_),
          exec::Launch::kMaxSharedBytes);
  for (const auto* list : {&f_.scratch, &f_.registers})
    for (const BufferRef& b : *list)
      require(b->scope != Scope::kThread && b->scope != Scope::kTile,
              "buffer {} of scope {} in a GPU's function", b->name, name_of(b->scope));
}

void Verification::find_meetings(const Stmt& s) {
  if (s.kind == StmtKind::kBarrier)
    (s.together == Together::kWarp ? warps_meet_ : has_barrier_) = true;
  std::unordered_set<const Value*> seen;
  if (is_of_signal(s.kind)) signals_.insert(s.buffer.get());
  has_barrier_ |= s.kind == StmtKind::kSignalWait;
  warps_meet_ |= s.kind == StmtKind::kWarpDot || s.kind == StmtKind::kWarpLoad ||
                 s.kind == StmtKind::kGroupDot ||
                 (f_.launch && s.value && shuffles(*s.value, seen));
  for (const StmtRef& b : s.body)
    if (b) find_meetings(*b);
}

void Verification::gpu_only(std::string_view what) const {
  require(f_.launch.has_value(), "{} in a function without a launch", what);
}

void Verification::warp_meets(std::string_view what) const {
  require(divergence_ != Spread::kLane, "{} that not all lanes of a warp reach alike", what);
}

void Verification::group_meets(std::string_view what) const {
  require(f_.launch->threads % kGroupThreads == 0,
          "{} in blocks of {} threads; groups of warps have {}", what, f_.launch->threads,
          kGroupThreads);
  require(divergence_ <= Spread::kGroup, "{} that not all warps of a group reach alike", what);
  require(!has_steps_, "{} in a function with steps of the whole grid", what);
}

void Verification::warp_registers(const TileRef& t, int count, bool write, std::string_view of) {
  check_buffer(t.buffer, write);
  const Buffer& b = *t.buffer;
  check_register(b, t.number);
  check_number(b, t.number + (count - 1));
  require(size_of(b.dtype) * static_cast<size_t>(b.lanes) == 4,
          "{} takes registers of 4 bytes; those of {} are {}x{}", of, b.name,
          nimble::name_of(b.dtype), b.lanes);
}

void Verification::warp_dot(const Stmt& s) {
  warp_meets(row_of(s.kind).what);
  const WarpFragmentRow& row = warp_row_of(s.warp_fragment);
  require(s.tiles.size() == 3, "{} takes three operands, not {}", row.name, s.tiles.size());
  const DType types[] = {row.sum, row.a, row.b};
  const int counts[] = {row.sum_registers(), row.a_registers(), row.b_registers()};
  for (size_t i = 0; i < 3; ++i) {
    warp_registers(s.tiles[i], counts[i], i == 0, row.name);
    const Buffer& b = *s.tiles[i].buffer;
    require(b.dtype == types[i], "{} takes {} for {}, which is {}", row.name,
            nimble::name_of(types[i]), b.name, nimble::name_of(b.dtype));
  }
  for (size_t i = 1; i < 3; ++i)
    require(s.tiles[i].buffer != s.tiles[0].buffer,
            "a factor and the sum of {} are of {}; they need buffers of their own", row.name,
            s.tiles[0].buffer->name);
}

void Verification::warp_load(const Stmt& s) {
  warp_meets(row_of(s.kind).what);
  require(s.tiles.size() == 1, "a load of a warp has {} registers", s.tiles.size());
  require(s.count == 1 || s.count == 2 || s.count == 4,
          "a load of {} matrices; a warp loads 1, 2 or 4", s.count);
  warp_registers(s.tiles[0], s.count, true, "a load of a warp");
  check_memory(s.buffer, s.index, 1, std::nullopt, false);
  require(s.buffer->scope == Scope::kShared, "a warp loads from {}, which is not shared memory",
          s.buffer->name);
  const DType t = s.buffer->dtype;
  require(t == s.tiles[0].buffer->dtype, "a warp loads {} of {} into {} of {}", s.buffer->name,
          nimble::name_of(t), s.tiles[0].buffer->name, nimble::name_of(s.tiles[0].buffer->dtype));
  require(!s.transposed || size_of(t) == 2, "a transposed load of {}; elements of 2 bytes have one",
          nimble::name_of(t));
  aligned(*s.buffer, s.index, 16, "a row that a warp loads");
}

void Verification::group_dot(const Stmt& s) {
  group_meets(row_of(s.kind).what);
  const GroupFragmentRow& row = group_row_of(s.group_fragment);
  for (const GroupView& v : s.views) check_memory(v.buffer, v.index, 1, std::nullopt, false);
  sound(group_dot_fault(row, s.columns, s.views));
  for (const GroupView& v : s.views) {
    require(spreads_.of(v.index) <= Spread::kGroup,
            "{} takes {} from {}, which differs between the threads of a group", row.name,
            v.buffer->name, v.index.str());
    aligned(*v.buffer, v.index, kPieceBytes, "a factor of a group's product");
  }
  require(s.tiles.size() == 1, "{} has {} sums", row.name, s.tiles.size());
  const Buffer& sum = *s.tiles[0].buffer;
  const int registers = GroupFragmentRow::sum_registers(s.columns);
  warp_registers(s.tiles[0], registers, true, row.name);
  require(sum.dtype == row.sum, "{} takes {} for {}, which is {}", row.name,
          nimble::name_of(row.sum), sum.name, nimble::name_of(sum.dtype));
  require(facts_.divisible(s.tiles[0].number, registers) != ir::Proof::kNo,
          "{} sums into {}[{}]; products of {} columns begin at multiples of {} registers",
          row.name, sum.name, s.tiles[0].number.str(), s.columns, registers);
}

void Verification::aligned(const Buffer& b, const Dim& index, int64_t bytes,
                           const char* what) const {
  const auto size = static_cast<int64_t>(size_of(b.dtype));
  require(bytes <= size || facts_.divisible(index, bytes / size) != ir::Proof::kNo,
          "{} begins at {}[{}], which is no multiple of {} bytes", what, b.name, index.str(),
          bytes);
}

void Verification::async_copy(const Stmt& s) {
  check_memory(s.buffer, s.index, 1, s.valid, false);
  check_memory(s.to_buffer, s.to_index, 1, std::nullopt, true);
  sound(async_copy_fault(s));
  const int64_t bytes = s.lanes * static_cast<int64_t>(size_of(s.buffer->dtype));
  aligned(*s.buffer, s.index, bytes, "a copy");
  aligned(*s.to_buffer, s.to_index, bytes, "a copy");
}

void Verification::tensor_map(const TensorMapRef& m) {
  gpu_only("a tensor map");
  sound(tensor_map_fault(f_, facts_, m.get()));
  require(names_.insert(m->name).second, "two buffers or maps are named {}", m->name);
}

void Verification::signal(const Stmt& s) {
  require(!has_steps_, "a signal in a function with steps of the whole grid");
  check_buffer(s.buffer, true);
  check_dim(s.index, s.buffer->name);
  sound(signal_fault(s));
  if (s.kind != StmtKind::kSignalWait) return;
  check_dim(s.phase, "a signal's phase");
  require(std::max({divergence_, spreads_.of(s.index), spreads_.of(s.phase)}) == Spread::kBlock,
          "a wait for signal {} that not all threads of the block reach alike", s.buffer->name);
}

void Verification::tensor_copy(const Stmt& s) {
  signal(s);
  check_memory(s.to_buffer, s.to_index, 1, std::nullopt, true);
  sound(tensor_copy_fault(f_, s));
  for (const Dim& d : s.coordinates) check_dim(d, s.map->name);
  aligned(*s.to_buffer, s.to_index, pattern_bytes(*s.map), "a box");
}

}  // namespace nimble::kir
