// Attention of f16, of bf16, and of f32 that may be rounded to tf32, on a GPU by the fragments of
// its tensor cores.
//
// A warp has sixteen query rows, whose scores stand in its lanes as a fragment's sums do: two rows
// a lane, which four lanes share. As sums lie, the second product's left factor does, so the
// weights need no way through memory: they are only rounded to the operands' type, two to a
// register. Sums, maxima and weights are f32 up to there.
//
// Keys are the first product's right factor as they lie in shared memory, values the second one's
// transposed on their way into registers.
//
// Of tf32 a lane has of a step's eight keys two neighbours, 2t and 2t + 1, where the fragment's
// left factor has t and t + 4. The order of the keys does not matter to the sum, so that the values
// are taken in the lanes' order: element by element, since ldmatrix turns over no words.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "compiler/kernels/math.h"
#include "compiler/kernels/templates/gpu_attention.h"
#include "compiler/kernels/templates/gpu_loops.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
namespace km = kir::math;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;

namespace {

// Of all fragments: m16n8, of k = 16, or of f32 8.
constexpr int64_t kRows = 16, kColumns = 8;
constexpr int kSums = 4;     // registers of a lane
constexpr int kHalves = 2;   // rows of a lane, eight apart
constexpr int kSharing = 4;  // lanes that share a row

// Columns of the values that one step multiplies: two fragments' where one load brings both.
int64_t columns_at_once(DType t) {
  return t == DType::kF32 ? kColumns : 2 * kColumns;
}

class WarpsLowering : GpuAttentionBlock {
 public:
  WarpsLowering(const Workload& w, const GpuAttention& p, const GpuAttentionShape& s)
      : GpuAttentionBlock(w, p, s),
        row_(*fragment_of(p)),
        depth_(round_up(p.d, row_.k)),
        width_(round_up(p.dv, columns_at_once(p.type))),
        depth_pitch_(shared_pitch(p.d, row_.k, p.type)),
        width_pitch_(shared_pitch(p.dv, columns_at_once(p.type), p.type)),
        tiles_(static_cast<int>(s.keys / kColumns)) {
    q_ = gpu::shared_buffer("q", p.type, s.rows * depth_pitch_);
    keys_ = {gpu::shared_buffer("k", p.type, s.keys * depth_pitch_), depth_, depth_pitch_};
    values_ = {gpu::shared_buffer("v", p.type, s.keys * width_pitch_), width_, width_pitch_};
    const int each = row_.per_register(p.type);
    left_ = kb::buffer("left", Scope::kRegister, p.type, 4, each);
    right_ = kb::buffer("right", Scope::kRegister, p.type, 4, each);
    scores_ = kb::buffer("scores", Scope::kRegister, DType::kF32, tiles_ * kSums);
    bias_ = kb::buffer("bias", Scope::kRegister, DType::kF32, tiles_ * kSums);
    sums_ = kb::buffer("sums", Scope::kRegister, DType::kF32, width_ / kColumns * kSums);
    maximum_ = kb::buffer("maximum", Scope::kRegister, DType::kF32, kHalves);
    total_ = kb::buffer("total", Scope::kRegister, DType::kF32, kHalves);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> all;
    bind_block(all);
    all.push_back(copy(0, q_, first_row_, shape_.rows, p_.n, depth_, depth_pitch_, "cq"));
    all.push_back(copy_keys(0, "cf"));
    all.push_back(kb::async_commit());
    for (int64_t x = 0; x < width_ / kColumns * kSums; ++x)
      all.push_back(kb::set_reg(sums_, x, number(0)));
    for (int half = 0; half < kHalves; ++half) {
      all.push_back(kb::set_reg(maximum_, half, lowest()));
      all.push_back(kb::set_reg(total_, half, number(0)));
      // A row beyond the last one computes with the last one's mask, and is not stored.
      if (p_.mask_has_rows)
        all.push_back(kb::let_index(fmt::format("mr{}", half),
                                    kb::index(ir::min(first_row_ + row(half), p_.n - 1))));
    }
    all.push_back(kb::loop(LoopKind::kSerial, "kt", 0, ir::ceildiv(p_.m, shape_.keys), tile()));
    all.push_back(kb::async_wait(0));
    for (int half = 0; half < kHalves; ++half) all.push_back(store_row(half));
    std::vector<BufferRef> registers = {left_, right_, scores_, sums_, maximum_, total_};
    if (p_.masked) registers.push_back(bias_);
    return launched(name, {q_, keys_.buffer, values_.buffer}, std::move(registers),
                    kb::seq(std::move(all)));
  }

 private:
  ValueRef lowest() const { return number(-std::numeric_limits<double>::infinity()); }
  // Of the lane: its row of the block's in one half, and its key in a tile of scores.
  static Dim row(int half) {
    return gpu::warp() * kRows + ir::floordiv(gpu::lane(), kSharing) + half * kColumns;
  }
  static Dim column(int64_t tile, int element) {
    return tile * kColumns + ir::mod(gpu::lane(), kSharing) * 2 + element;
  }
  static int at(int tile, int half, int element) { return tile * kSums + half * 2 + element; }

  void load_bias(std::vector<StmtRef>& out) override {
    const bool by_row = p_.mask_has_rows;
    for (int t = 0; t < tiles_; ++t)
      for (int e = 0; e < 2; ++e) {
        const std::string name = fmt::format("mk{}_{}", t, e);
        out.push_back(
            kb::let_index(name, kb::index(ir::min(first_key() + column(t, e), p_.m - 1))));
        for (int half = 0; half < (by_row ? kHalves : 1); ++half) {
          const Dim row = by_row ? Dim::symbol(fmt::format("mr{}", half)) : Dim(0);
          out.push_back(kb::set_reg(bias_, at(t, half, e), mask(row, Dim::symbol(name), out)));
        }
      }
  }

  // Scores of tiles of keys in pairs: four matrices of eight keys and 16 bytes of the depth each.
  void score(std::vector<StmtRef>& out) override {
    for (int x = 0; x < tiles_ * kSums; ++x) out.push_back(kb::set_reg(scores_, x, number(0)));
    const int half = row_.k / 2;  // of a fragment's depth
    const Dim lane = gpu::lane(), depth = Dim::symbol("sc") * row_.k;
    std::vector<StmtRef> body;
    body.push_back(kb::warp_load(left_, 0, 4, q_,
                                 (gpu::warp() * kRows + ir::mod(lane, 16)) * depth_pitch_ + depth +
                                     ir::floordiv(lane, 16) * half));
    const Dim key = ir::mod(lane, 8) + ir::floordiv(lane, 16) * 8;
    const Dim part = ir::mod(ir::floordiv(lane, 8), 2) * half;
    for (int t = 0; t < tiles_; t += 2) {
      body.push_back(kb::warp_load(right_, 0, 4, keys_.buffer,
                                   (key + t * kColumns) * depth_pitch_ + depth + part));
      for (int i = 0; i < 2; ++i)
        body.push_back(kb::warp_dot(row_.id, scores_, (t + i) * kSums, left_, 0, right_, 2 * i));
    }
    out.push_back(gpu::stretched_loop("sc", depth_ / row_.k, 4, kb::seq(std::move(body))));
  }

  // Scores to weights, with what they do to the sums so far.
  void weigh(std::vector<StmtRef>& out) override {
    const ValueRef scale = number(p_.scale);
    const auto each = [&](const std::function<void(int tile, int half, int element)>& f) {
      for (int t = 0; t < tiles_; ++t)
        for (int half = 0; half < kHalves; ++half)
          for (int e = 0; e < 2; ++e) f(t, half, e);
    };
    each([&](int t, int half, int e) {
      const ValueRef x = kb::reg(scores_, at(t, half, e));
      const ValueRef bias =
          p_.masked ? kb::reg(bias_, at(t, p_.mask_has_rows ? half : 0, e)) : nullptr;
      out.push_back(
          kb::set_reg(scores_, at(t, half, e), bias ? kb::fma(x, scale, bias) : kb::mul(x, scale)));
    });
    std::vector<StmtRef> tail;
    each([&](int t, int half, int e) {
      const ValueRef exists =
          kb::compare(kir::CompareOp::kLt, kb::index(first_key() + column(t, e)), kb::index(p_.m));
      tail.push_back(kb::set_reg(scores_, at(t, half, e),
                                 kb::select(exists, kb::reg(scores_, at(t, half, e)), lowest())));
    });
    out.push_back(kb::if_then(kb::lt(p_.m, first_key() + shape_.keys), kb::seq(std::move(tail))));
    for (int half = 0; half < kHalves; ++half) {
      ValueRef most = kb::reg(scores_, at(0, half, 0));
      for (int x = 1; x < 2 * tiles_; ++x)
        most = kb::max(most, kb::reg(scores_, at(x / 2, half, x % 2)));
      most = gpu::all_of_lanes(out, fmt::format("most{}", half), most, kSharing,
                               [](const ValueRef& a, const ValueRef& b) { return kb::max(a, b); });
      most = let(out, kb::max(most, kb::reg(maximum_, half)));
      const ValueRef shift = let(out, shift_of(most));
      const ValueRef fade =
          let(out, km::exp_flushed(let(out, kb::sub(kb::reg(maximum_, half), shift))));
      out.push_back(kb::set_reg(maximum_, half, most));
      ValueRef sum;
      for (int x = 0; x < 2 * tiles_; ++x) {
        const int index = at(x / 2, half, x % 2);
        const ValueRef weight =
            let(out, km::exp_flushed(let(out, kb::sub(kb::reg(scores_, index), shift))));
        out.push_back(kb::set_reg(scores_, index, weight));
        sum = sum ? kb::add(sum, weight) : weight;
      }
      out.push_back(kb::set_reg(total_, half, kb::fma(kb::reg(total_, half), fade, sum)));
      for (int64_t t = 0; t < width_ / kColumns; ++t)
        for (int e = 0; e < 2; ++e) {
          const int index = at(static_cast<int>(t), half, e);
          out.push_back(kb::set_reg(sums_, index, kb::mul(kb::reg(sums_, index), fade)));
        }
    }
  }

  // A fragment's depth of keys a step, as far as there are keys.
  void add_values(std::vector<StmtRef>& out) override {
    const int at_once = row_.k / static_cast<int>(kColumns);
    for (int t = 0; t < tiles_; t += at_once) {
      std::vector<StmtRef> step;
      p_.type == DType::kF32 ? add_values_of(t, step) : add_values_of_pair(t, step);
      out.push_back(
          t == 0 ? kb::seq(std::move(step))
                 : kb::if_then(kb::lt(first_key() + t * kColumns, p_.m), kb::seq(std::move(step))));
    }
  }

  // Of the tile of keys `t`.
  void add_values_of(int t, std::vector<StmtRef>& step) {
    for (int e = 0; e < 2; ++e)
      for (int half = 0; half < kHalves; ++half)
        step.push_back(kb::set_reg(left_, 2 * e + half, kb::reg(scores_, at(t, half, e))));
    for (int64_t c = 0; c < width_ / kColumns; ++c) {
      for (int e = 0; e < 2; ++e)
        step.push_back(
            kb::set_reg(right_, e,
                        kb::load(values_.buffer, column(t, e) * width_pitch_ + c * kColumns +
                                                     ir::floordiv(gpu::lane(), kSharing))));
      step.push_back(kb::warp_dot(row_.id, sums_, c * kSums, left_, 0, right_, 0));
    }
  }

  // Of the tiles `t` and t + 1, whose keys are one fragment's depth.
  void add_values_of_pair(int t, std::vector<StmtRef>& step) {
    const Dim lane = gpu::lane();
    for (int i = 0; i < 2; ++i)
      for (int half = 0; half < kHalves; ++half)
        step.push_back(
            kb::set_reg(left_, 2 * i + half,
                        kb::cast(p_.type, gpu::pair_of(kb::reg(scores_, at(t + i, half, 0)),
                                                       kb::reg(scores_, at(t + i, half, 1))))));
    for (int64_t c = 0; c < width_ / kColumns; c += 2) {
      step.push_back(kb::warp_load(right_, 0, 4, values_.buffer,
                                   (ir::mod(lane, 16) + t * kColumns) * width_pitch_ +
                                       c * kColumns + ir::floordiv(lane, 16) * 8,
                                   /*transposed=*/true));
      for (int i = 0; i < 2; ++i)
        step.push_back(kb::warp_dot(row_.id, sums_, (c + i) * kSums, left_, 0, right_, 2 * i));
    }
  }

  StmtRef store_row(int half) {
    std::vector<StmtRef> all;
    const ValueRef sum =
        gpu::all_of_lanes(all, fmt::format("total{}", half), kb::reg(total_, half), kSharing,
                          [](const ValueRef& a, const ValueRef& b) { return kb::add(a, b); });
    const ValueRef factor = let(all, factor_of(sum));
    std::vector<StmtRef> stores;
    for (int64_t t = 0; t < width_ / kColumns; ++t) {
      const Dim columns = column(t, 0);
      const auto valid = width_ > p_.dv ? std::optional<Dim>(Dim(p_.dv) - columns) : std::nullopt;
      const int index = at(static_cast<int>(t), half, 0);
      const ValueRef value = kb::mul(gpu::pair_of(kb::reg(sums_, index), kb::reg(sums_, index + 1)),
                                     kb::broadcast(factor, 2));
      StmtRef store =
          store_results(w_, frame_, value, {b_, first_row_ + row(half), h_ * p_.dv + columns}, 2,
                        valid, fmt::format("o{}_{}_", half, t));
      if (valid) store = kb::if_then(kb::lt(columns, p_.dv), std::move(store));
      stores.push_back(std::move(store));
    }
    all.push_back(kb::if_then(kb::lt(first_row_ + row(half), p_.n), kb::seq(std::move(stores))));
    return kb::seq(std::move(all));
  }

  const kir::WarpFragmentRow& row_;
  int64_t depth_, width_, depth_pitch_, width_pitch_;
  int tiles_;  // of eight keys
  BufferRef q_, left_, right_, scores_, bias_, sums_, maximum_, total_;
};

}  // namespace

const kir::WarpFragmentRow* fragment_of(const GpuAttention& p) {
  const kir::WarpFragmentRow* row = gpu::fragment_of(p.type, p.type, DType::kF32, p.tf32);
  NIMBLE_CHECK(!row || (row->m == kRows && row->n == kColumns), "attention by {}", row->name);
  return row;
}

bool fits_warps(const GpuAttention& p, const GpuAttentionShape& s, const TargetInfo& t) {
  const kir::WarpFragmentRow& row = *fragment_of(p);
  if (!t.has(std::string(row.feature)) || !gpu::is_block(s.threads) ||
      s.rows != s.threads / kir::kWarpLanes * kRows || s.keys < 2 * kColumns ||
      s.keys % (2 * kColumns) != 0 || s.keys > 128)
    return false;
  // Scores, their mask and the sums.
  const int64_t values =
      s.keys / 2 * (p.masked ? 2 : 1) + round_up(p.dv, columns_at_once(p.type)) / kColumns * kSums;
  const int64_t depth = shared_pitch(p.d, row.k, p.type);
  const int64_t width = shared_pitch(p.dv, columns_at_once(p.type), p.type);
  const int64_t shared = gpu::shared_bytes(
      {{p.type, s.rows * depth}, {p.type, s.keys * depth}, {p.type, s.keys * width}});
  return values <= kMostRegisters && shared <= t.shared_bytes;
}

kir::Function lower_attention_warps(const Workload& w, const GpuAttention& p,
                                    const GpuAttentionShape& s, const std::string& name) {
  return WarpsLowering(w, p, s).run(name);
}

}  // namespace nimble::kernels
