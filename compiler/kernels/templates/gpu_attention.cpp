// The template "gpu_attention": softmax(q k^T * scale + mask) v by head, on a GPU.
//
// A block takes one head of one entry and a tile of its query rows, and walks over the keys in
// tiles with the maximum and the sum of each row's weights so far; what the values have summed up
// to is scaled anew where a maximum rises (Milakov and Gimelshein, "Online normalizer calculation
// for softmax", 2018; Dao et al., "FlashAttention", 2022). So no score is ever in global memory,
// and a block needs shared memory for one tile of keys and of values, however many there are.
//
// The copies overlap the arithmetic: a tile's values arrive while its scores are computed, the next
// tile's keys while the weights are and meet the values. Rows and keys beyond the last one are
// zeros in shared memory, and such a key's score is the lowest: its weight is 0.
//
// A row whose keys are all masked has weights 0 / 0, hence NaN, as by definition; a tile of such
// keys has none, whatever comes before or behind it. Without any key the result is 0. Weights too
// small for a normal number are zeros (math.h: exp_flushed), as on a CPU.
#include "compiler/kernels/templates/gpu_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "compiler/kernels/templates/gpu_loops.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"
#include "vm/base/gpu_target.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::StmtRef;
using kir::ValueRef;

namespace {

GpuAttentionShape shape_of(const Config& c) {
  return {knob_int(c, "rows"), knob_int(c, "keys"), static_cast<int>(knob_int(c, "threads"))};
}

// Whether fragments multiply. Who may round f32 need not: heads that are too wide for the least
// block of warps are computed as they are.
bool by_warps(const GpuAttention& p, const TargetInfo& t) {
  if (!fragment_of(p)) return false;
  constexpr GpuAttentionShape kLeast{16, 16, 32};
  return p.type != DType::kF32 || fits_warps(p, kLeast, t);
}

bool fits(const GpuAttention& p, const GpuAttentionShape& s, const TargetInfo& t) {
  return by_warps(p, t) ? fits_warps(p, s, t) : fits_lanes(p, s, t);
}

// Whether the assembler is known to spill what a lane holds. Where a block has two or four warps it
// aims at 168 registers, of which a multiprocessor has enough for twelve warps. A mask with rows
// takes as many as the scores: with 64 keys they and the sums of a head of 64 are 96, and
// addresses and fragments just fit the rest. From capability 10.0 on they do not where operands
// have 16 bits, and four registers are put away. Blocks of other sizes have other aims.
bool spills(const GpuAttention& p, const GpuAttentionShape& s, const TargetInfo& t) {
  const std::optional<GpuTarget> gpu = gpu_target(t.level);
  return by_warps(p, t) && p.type != DType::kF32 && p.mask_has_rows && gpu &&
         gpu->capability >= 100 && s.keys > 32 && (s.threads == 64 || s.threads == 128);
}

// Few rows keep many blocks busy where the length is open or short; many read the keys less often.
std::optional<GpuAttentionShape> default_shape(const GpuAttention& p, const TargetInfo& t) {
  const auto n = p.n.as_constant(), m = p.m.as_constant();
  const int64_t most_rows = n && *n >= 512 ? 64 : n && *n <= 8 ? 8 : 16;
  const int64_t most_keys = m && *m <= 16 ? 16 : m && *m <= 32 ? 32 : 64;
  for (int64_t rows = most_rows; rows >= 8; rows /= 2)
    for (int64_t keys = most_keys; keys >= 16; keys /= 2) {
      // By fragments a warp has sixteen rows, and two warps hide more of each other's waits.
      const GpuAttentionShape s =
          by_warps(p, t) ? GpuAttentionShape{2 * rows, keys, static_cast<int>(4 * rows)}
                         : GpuAttentionShape{rows, keys, 128};
      if (fits(p, s, t) && !spills(p, s, t)) return s;
    }
  return std::nullopt;
}

}  // namespace

std::optional<GpuAttention> gpu_attention_of(const Workload& w) {
  const std::optional<GpuAttention> p = attention_operands(w);
  const bool taken = p && is_float(p->type) && p->result == p->type && !has_index(w);
  return taken ? p : std::nullopt;
}

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

int64_t shared_pitch(int64_t width, int64_t multiple, DType type) {
  const int64_t piece = 16 / static_cast<int64_t>(size_of(type));
  return (round_up(round_up(width, multiple), piece) / piece | 1) * piece;
}

GpuAttentionBlock::GpuAttentionBlock(const Workload& w, const GpuAttention& p,
                                     const GpuAttentionShape& s)
    : w_(w),
      p_(p),
      shape_(s),
      frame_(gpu::make_gpu_frame(w)),
      group_(*w.group, frame_.parameters),
      call_(*frame_.anchor->value),
      sum_type_(compute_type(p.type)) {}

void GpuAttentionBlock::bind_block(std::vector<StmtRef>& out) {
  Dim tiles = ir::ceildiv(p_.n, shape_.rows);
  if (!tiles.as_constant()) {
    out.push_back(kb::let_index("tiles", kb::index(tiles), ir::SymbolFacts{}));
    tiles = Dim::symbol("tiles");
  }
  // Tiles of one head stand next to each other: they read the same keys.
  const Dims at = bind_coordinates("x", {p_.batch, Dim(p_.heads), tiles}, gpu::block(), out);
  b_ = at[0];
  h_ = at[1];
  first_row_ = at[2] * shape_.rows;
}

kir::Function GpuAttentionBlock::launched(const std::string& name, std::vector<BufferRef> shared,
                                          std::vector<BufferRef> registers, StmtRef body) const {
  const Dim blocks = p_.batch * p_.heads * ir::ceildiv(p_.n, shape_.rows);
  return gpu::launched(make_function(w_, frame_, name, {}, std::move(registers), std::move(body)),
                       {blocks, 1, 1}, shape_.threads, std::move(shared));
}

StmtRef GpuAttentionBlock::copy_keys(const Dim& first, const std::string& name) {
  return copy(1, keys_.buffer, first, shape_.keys, p_.m, keys_.padded, keys_.pitch, name);
}

StmtRef GpuAttentionBlock::tile() {
  std::vector<StmtRef> all;
  all.push_back(
      copy(2, values_.buffer, first_key(), shape_.keys, p_.m, values_.padded, values_.pitch, "cv"));
  all.push_back(kb::async_commit());
  if (p_.masked) load_bias(all);
  all.push_back(kb::async_wait(1));
  all.push_back(kb::barrier(kir::Together::kBlock));
  score(all);
  all.push_back(kb::barrier(kir::Together::kBlock));
  const Dim next = first_key() + shape_.keys;
  all.push_back(kb::if_then(kb::lt(next, p_.m), copy_keys(next, "ck")));
  all.push_back(kb::async_commit());
  weigh(all);
  all.push_back(kb::async_wait(1));
  all.push_back(kb::barrier(kir::Together::kBlock));
  add_values(all);
  all.push_back(kb::barrier(kir::Together::kBlock));
  return kb::seq(std::move(all));
}

std::pair<BufferRef, Dim> GpuAttentionBlock::place(size_t operand, const Dim& row,
                                                   const Dim& column) {
  const ValueRef v =
      group_.value(call_.args[operand], {b_, row, h_ * width_of(operand) + column}, 1);
  const kir::Value* load = loaded(v);
  NIMBLE_CHECK(load, "operand {} of attention is computed", operand);
  return {load->buffer, load->index};
}

StmtRef GpuAttentionBlock::copy(size_t operand, const BufferRef& to, const Dim& first,
                                int64_t count, const Dim& extent, int64_t padded, int64_t pitch,
                                const std::string& name) {
  const int64_t width = *width_of(operand).as_constant();
  // Elements of one copy: of 16 bytes if all rows allow it.
  int64_t step = 16 / static_cast<int64_t>(size_of(p_.type));
  for (; step > 1; step /= 2) {
    const Dim index = place(operand, Dim::symbol("r"), Dim::symbol("c") * step).second;
    if (width % step == 0 && padded % step == 0 &&
        w_.facts.divisible(index, step) == ir::Proof::kYes)
      break;
  }
  const int64_t pieces = padded / step, total = count * pieces;
  const Dim piece = Dim::symbol(name) * shape_.threads + gpu::thread();
  const Dim row = pieces == 1 ? piece : ir::floordiv(piece, pieces);
  const Dim column = pieces == 1 ? Dim(0) : ir::mod(piece, pieces) * step;
  Dim valid = (extent - first - row) * step;
  if (padded > width) valid = ir::min(valid, width - column);
  const auto [buffer, index] = place(operand, first + row, column);
  const bool whole = step * static_cast<int64_t>(size_of(p_.type)) >= 4;
  StmtRef one =
      whole ? kb::async_copy(to, row * pitch + column, buffer, index, static_cast<int>(step), valid)
            : kb::store(to, row * pitch + column, kb::load_masked(buffer, index, 1, valid));
  if (total % shape_.threads != 0) one = kb::if_then(kb::lt(piece, total), std::move(one));
  return gpu::stretched_loop(name, (total + shape_.threads - 1) / shape_.threads, 8,
                             std::move(one));
}

ValueRef GpuAttentionBlock::mask(const Dim& row, const Dim& key, std::vector<StmtRef>& out) {
  const ir::Atom& a = call_.args[3];
  const ValueRef v = group_.value(a, mask_place(p_, a, {b_, h_, row, key}).at, 1);
  for (StmtRef& s : group_.take_statements()) out.push_back(std::move(s));
  return mask_number(v, sum_type_);
}

ValueRef GpuAttentionBlock::shift_of(const ValueRef& most) const {
  const ValueRef lowest = number(-std::numeric_limits<double>::infinity());
  return kb::select(kb::compare(kir::CompareOp::kEq, most, lowest), number(0), most);
}

ValueRef GpuAttentionBlock::factor_of(const ValueRef& total) const {
  const ValueRef factor = kb::div(number(1), total);
  if (const auto m = p_.m.as_constant(); m && *m > 0) return factor;
  const ValueRef none =
      kb::compare(kir::CompareOp::kEq, kb::index(p_.m), kb::integer(DType::kI64, 0));
  return kb::select(none, number(0), factor);
}

ValueRef GpuAttentionBlock::let(std::vector<StmtRef>& out, ValueRef v) {
  return gpu::named(out, fmt::format("x{}", names_++), std::move(v));
}

ValueRef GpuAttentionBlock::number(double v, int lanes) const {
  return kb::number(sum_type_, v, lanes);
}

// ---------------------------------------------------------------- the template

bool GpuAttentionTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  if (!t.is_gpu()) return false;
  const auto plan = gpu_attention_of(w);
  return plan && default_shape(*plan, t);
}

std::vector<Knob> GpuAttentionTemplate::knobs(const Workload&, const TargetInfo&) const {
  Knob rows = int_knob("rows", {8, 16, 32, 64, 128});
  rows.tile = true;
  return {std::move(rows), int_knob("keys", {16, 32, 64, 128}),
          int_knob("threads", {32, 64, 128, 256})};
}

bool GpuAttentionTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto plan = gpu_attention_of(w);
  return plan && well_formed(knobs(w, t), c) && fits(*plan, shape_of(c), t);
}

Config GpuAttentionTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto plan = gpu_attention_of(w);
  const auto shape = plan ? default_shape(*plan, t) : std::nullopt;
  NIMBLE_CHECK(shape, "workload {} is not for gpu_attention", w.key);
  return {{"rows", shape->rows}, {"keys", shape->keys}, {"threads", int64_t{shape->threads}}};
}

Lowered GpuAttentionTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                    const std::string& name) const {
  const auto plan = gpu_attention_of(w);
  NIMBLE_CHECK(plan && valid(w, c, t), "configuration {} of gpu_attention", to_json(c));
  auto* const schedule = by_warps(*plan, t) ? &lower_attention_warps : &lower_attention_lanes;
  return gpu::one_gpu_kernel(schedule(w, *plan, shape_of(c), name));
}

}  // namespace nimble::kernels
