// The template "gpu_matmul": numpy's matmul on a GPU, either side transposed or not, batch axes
// broadcast, all extents constant or symbolic, weights as the model has them; the element-wise
// operators that follow are fused behind it.
//
// A block of threads computes a tile of the result. Its operands' tiles pass through shared memory,
// several steps of k in flight (gpu_matmul_lowering.cpp); what multiplies them is the unit
// (gpu_matmul_units.cpp). A dynamic model's products have few rows: at 53 rows and 768 columns even
// tiles of 32 x 16 are no more blocks than a GPU has multiprocessors, so a block's warps also share
// out k (k_split) and add up their sums in shared memory, in order: results do not vary from call
// to call. Of each step of k the first team takes the first slice, the next one the next. Where
// a team is one warp, the warp copies its slices itself and waits for no other up to the sums:
// warps drift apart, and one reads or waits while another one multiplies.
//
// Of compute capability 9.0 four warps together may multiply, too (gpu_matmul_group.cpp), and one
// thread may have their tiles copied as boxes: no rule chooses that before a GPU has shown what it
// is worth, but tuning and people may.
//
// Products in f32 are sums of multiply-adds in f32: no unit of the GPU multiplies f32 otherwise
// without rounding its operands. Where the operator allows that (its attribute `tf32`), they are
// fragments of tf32, whose factors are rounded on their way from shared memory.
#include "compiler/kernels/templates/gpu_matmul.h"

#include <algorithm>
#include <cmath>

#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace gpu {
namespace {

// Whether operands of a type are multiplied in that of the sums.
bool widens(DType operand, DType sum) {
  if (operand == sum) return true;
  if (is_float(sum)) return is_narrow_float(operand) && sum == DType::kF32;
  return is_int(operand) && size_of(operand) < size_of(sum);
}

}  // namespace

bool has_units(const Product& p) {
  if (size_of(p.sum) < 4 || !(is_float(p.sum) || is_int(p.sum))) return false;
  return widens(p.lhs->dtype, p.sum) && widens(p.rhs->dtype, p.sum);
}

std::optional<kir::WarpFragment> fragment_for(const Product& p, const TargetInfo& t) {
  const kir::WarpFragmentRow* row =
      fragment_of(p.lhs->dtype, p.rhs->dtype, p.sum, allows_tf32(*p.frame.anchor->value));
  return row && t.has(std::string(row->feature)) ? std::optional(row->id) : std::nullopt;
}

const char* unit_of(const Schedule& s) {
  for (const UnitRow& u : kUnits)
    if (u.kind == s.unit && u.boxes == s.boxes) return u.name;
  NIMBLE_UNREACHABLE();
}

std::optional<Product> analyse_product(const Workload& w, const TargetInfo& t) {
  if (has_index(w)) return {};  // a failed check would leave a block's other threads waiting
  auto operands = analyse_matmul(w, make_gpu_frame(w));
  if (!operands) return {};
  Product p;
  static_cast<MatmulOperands&>(p) = std::move(*operands);
  if (!has_units(p)) return {};
  // One row or column lies like the other kind.
  p.lhs_along_k = !p.transpose_lhs || p.m.is_constant(1);
  p.rhs_along_k = p.transpose_rhs || p.vector_rhs || p.n.is_constant(1);
  p.fragment = fragment_for(p, t);
  const bool along_k = p.lhs_along_k && p.rhs_along_k;
  for (const kir::GroupFragmentRow& g : kir::all_group_fragments())
    if (g.a == p.lhs->dtype && g.b == p.rhs->dtype && g.sum == p.sum && (along_k || g.across()) &&
        t.has(std::string(g.feature)))
      p.group = g.id;
  return p;
}

Schedule schedule_of(const Config& c) {
  // What is larger fits nowhere, and suits no unit: products of these numbers are ints.
  constexpr int64_t kMostWide = 1 << 10, kMostTeams = kMaxThreads / kir::kWarpLanes,
                    kMostStages = 16;
  const auto number = [&](const char* name, int64_t most) {
    const int64_t n = knob_int(c, name);
    return n >= 1 && n <= most ? static_cast<int>(n) : -1;
  };
  Schedule s;
  for (const UnitRow& u : kUnits)
    if (knob_text(c, "unit") == u.name) {
      s.unit = u.kind;
      s.boxes = u.boxes;
    }
  s.block_rows = number("block_rows", kMostWide);
  s.block_columns = number("block_columns", kMostWide);
  s.tile_rows = number("tile_rows", kMostWide);
  s.tile_columns = number("tile_columns", kMostWide);
  s.k_step = number("k_step", kMostWide);
  s.k_split = number("k_split", kMostTeams);
  s.stages = number("stages", kMostStages);
  return s;
}

namespace {

Config config_of(const Schedule& s) {
  return {{"unit", unit_of(s)},
          {"block_rows", int64_t{s.block_rows}},
          {"block_columns", int64_t{s.block_columns}},
          {"tile_rows", int64_t{s.tile_rows}},
          {"tile_columns", int64_t{s.tile_columns}},
          {"k_step", int64_t{s.k_step}},
          {"k_split", int64_t{s.k_split}},
          {"stages", int64_t{s.stages}}};
}

// Whether a unit multiplies the operands on the target.
bool is_offered(const UnitRow& u, const Workload& w, const Product& p, const TargetInfo& t) {
  switch (u.kind) {
    case UnitKind::kScalar:
      return true;
    case UnitKind::kMatrix:
      return p.fragment.has_value();
    case UnitKind::kGroup:
      return p.group && (!u.boxes || (t.has("tma") && (has_boxes(w, p.lhs->dtype, p.lhs_pitch()) ||
                                                       has_boxes(w, p.rhs->dtype, p.rhs_pitch()))));
  }
  NIMBLE_UNREACHABLE();
}

// Extents as a schedule by rule takes them.
struct Extents {
  double m = 0, n = 0, k = 0, batch = 1;
  explicit Extents(const Product& p)
      // A sequence; a layer's width, or positions of images; the heads of an attention.
      : m(known(p.m, 64)), n(known(p.n, p.implicit ? 2048 : 512)), k(known(p.k, 512)) {
    for (const kir::Dim& d : p.batch) batch *= known(d, 8);
  }
  static double known(const kir::Dim& d, double otherwise) {
    const auto c = d.as_constant();
    return c ? static_cast<double>(std::max<int64_t>(1, *c)) : otherwise;
  }
};

// Cycles that a product takes, roughly: what a multiprocessor of compute capability 9.0 does in a
// cycle, and waits for.
double estimate(const Product& p, const Schedule& s, const Extents& x, int64_t shared,
                const TargetInfo& t) {
  constexpr double kMultiplyAdds = 128, kFragmentBytes = 2048;  // per cycle; of k for each m and n
  constexpr double kGather = 24;  // instructions of a lane for a copy that has to find its element
  constexpr double kSharedBytes = 128, kGlobalBytes = 48;  // per cycle
  constexpr double kCacheBytes = 24;  // of the second-level cache, for each multiprocessor
  constexpr double kBusyWarps = 8;    // that hide one another's waiting
  constexpr double kWait = 700, kMeet = 60, kStart = 2000;  // of memory; at a barrier; of a block
  const double lhs = static_cast<double>(size_of(p.lhs->dtype)),
               rhs = static_cast<double>(size_of(p.rhs->dtype));
  const double steps = std::ceil(x.k / s.k_step);
  const double blocks = std::ceil(x.m / s.block_rows) * std::ceil(x.n / s.block_columns) * x.batch;
  const double products = double(s.block_rows) * s.block_columns * s.k_step;
  const double bytes = (s.block_rows * lhs + s.block_columns * rhs) * s.k_step;
  double compute, reads;
  if (s.unit == UnitKind::kMatrix) {
    compute = products * lhs / kFragmentBytes;
    reads = s.tiles() * (s.tile_rows * lhs + s.tile_columns * rhs) * s.k_step / kSharedBytes;
  } else {
    compute = products / kMultiplyAdds;
    // Reads of 16 bytes in two turns each, of rows once for four steps of k.
    reads = s.tiles() / 32.0 * (s.tile_rows + s.tile_columns) / 2 * s.k_step;
  }
  if (p.implicit)
    compute += double(s.block_columns) * s.k_step / p.implicit->vector() * kGather / kMultiplyAdds;
  const double warps = s.threads() / 32.0;
  compute = std::max(compute, reads) / std::min(1.0, warps / kBusyWarps);
  const double work = std::max({compute, bytes / kGlobalBytes, bytes / kSharedBytes});
  const double waiting = std::max(0.0, kWait / (s.stages - 1) - work) + kMeet;
  const double sums = double(s.block_rows) * s.block_columns * s.k_split * 8 / kSharedBytes;
  const double at_once = std::clamp<double>(
      std::min(static_cast<double>(t.shared_bytes / std::max<int64_t>(1, shared)),
               2048.0 / s.threads()),
      1, 8);
  const double rounds = std::ceil(blocks / t.multiprocessors);
  const double cycles = rounds * (steps * work + sums) +
                        std::ceil(rounds / std::floor(at_once)) * (kStart + steps * waiting);
  const double traffic = blocks * bytes * steps / (kCacheBytes * t.multiprocessors);
  // Of equals the one that reads less.
  return std::max(cycles, traffic) + traffic / 8;
}

}  // namespace

std::vector<Knob> knobs_of(const Workload& w, const Product& p, const TargetInfo& t) {
  Knob unit{"unit", {}};
  for (const UnitRow& u : kUnits)
    if (is_offered(u, w, p, t)) unit.choices.emplace_back(u.name);
  Knob columns = int_knob("tile_columns", {4, 8, 16, 32, 64});
  if (p.group) columns.choices.emplace_back(int64_t{128});
  Knob rows = int_knob("block_rows", {4, 8, 16, 32, 64, 128});
  rows.tile = !p.implicit;  // the filters of a convolution are no symbol
  return {std::move(unit),
          std::move(rows),
          int_knob("block_columns", {16, 32, 64, 128}),
          int_knob("tile_rows", {1, 2, 4, 8, 16, 32, 64}),
          std::move(columns),
          int_knob("k_step", {16, 32, 64, 128, 256}),
          int_knob("k_split", {1, 2, 4, 8, 16}),
          int_knob("stages", {2, 3, 4})};
}

bool suits(const Workload& w, const Product& p, const Config& c, const TargetInfo& t) {
  if (!well_formed(knobs_of(w, p, t), c)) return false;
  const auto shared = shared_bytes_of(w, p, schedule_of(c));
  return shared && *shared <= t.shared_bytes;
}

Config default_of(const Workload& w, const Product& p, const TargetInfo& t) {
  const Extents extents(p);
  std::optional<Schedule> best;
  double least = 0;
  Schedule s;
  s.unit = p.fragment ? UnitKind::kMatrix : UnitKind::kScalar;
  const std::vector<std::pair<int, int>> tiles =
      p.fragment
          ? std::vector<std::pair<int, int>>{{16, 16}, {32, 16}, {16, 32}, {32, 32}, {64, 32}}
          : std::vector<std::pair<int, int>>{{1, 4}, {2, 4}, {4, 4}, {8, 4}, {4, 8}, {8, 8}};
  for (s.block_rows = 4; s.block_rows <= 128; s.block_rows *= 2)
    for (s.block_columns = 16; s.block_columns <= 128; s.block_columns *= 2)
      for (const auto& [rows, columns] : tiles)
        for (s.k_step = 32; s.k_step <= 128; s.k_step *= 2)
          for (s.k_split = 1; s.k_split <= 8; s.k_split *= 2)
            for (s.stages = 3; s.stages <= 4; ++s.stages) {
              s.tile_rows = rows;
              s.tile_columns = columns;
              if (s.threads() > 512) continue;
              const auto shared = shared_bytes_of(w, p, s);
              if (!shared || *shared > t.shared_bytes) continue;
              const double cycles = estimate(p, s, extents, *shared, t);
              if (best && cycles >= least) continue;
              best = s;
              least = cycles;
            }
  NIMBLE_CHECK(best, "no schedule of a product suits {}", w.key);
  return config_of(*best);
}

}  // namespace gpu

bool GpuMatmulTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return t.is_gpu() && gpu::analyse_product(w, t).has_value();
}

std::vector<Knob> GpuMatmulTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto p = gpu::analyse_product(w, t);
  NIMBLE_CHECK(p, "workload {} is not for gpu_matmul", w.key);
  return gpu::knobs_of(w, *p, t);
}

bool GpuMatmulTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = gpu::analyse_product(w, t);
  return p && gpu::suits(w, *p, c, t);
}

Config GpuMatmulTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = gpu::analyse_product(w, t);
  NIMBLE_CHECK(p, "workload {} is not for gpu_matmul", w.key);
  return gpu::default_of(w, *p, t);
}

Lowered GpuMatmulTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                 const std::string& name) const {
  const auto p = gpu::analyse_product(w, t);
  NIMBLE_CHECK(p && valid(w, c, t), "configuration {} of gpu_matmul", to_json(c));
  return gpu::one_gpu_kernel(gpu::lower_tiles(w, *p, gpu::schedule_of(c), name));
}

}  // namespace nimble::kernels
