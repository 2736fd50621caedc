// Attention of f32 and f64 on a GPU by plain multiply-adds.
//
// Sixteen lanes share rows: each has the scores of every sixteenth key of a tile, and every
// sixteenth piece of the result's columns, for the same few query rows. So a row's maximum and its
// rescaling stay within half a warp, and its weights go from those that computed them to those that
// need them through rows of shared memory that are its own.
//
// All reads of shared memory are pieces of 16 bytes where the widths allow it: of a row of q and of
// the weights, which the sixteen lanes have in common; of their own keys' rows, an odd number of
// pieces apart; of neighbouring columns of v.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "compiler/kernels/math.h"
#include "compiler/kernels/templates/gpu_attention.h"
#include "compiler/kernels/templates/gpu_loops.h"

namespace nimble::kernels {

namespace kb = kir::build;
namespace km = kir::math;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;

namespace {

constexpr int64_t kRowLanes = 16;  // that share rows

struct Pieces {
  int64_t piece;               // elements of 16 bytes
  int64_t depth, depth_pitch;  // of a row of q and k in shared memory
  int64_t width;               // of a row of v
  int64_t vector, vectors;     // a lane's pieces of the result's row
  int64_t weight_pitch;        // of a row of weights
};

Pieces pieces_of(const GpuAttention& p, const GpuAttentionShape& s) {
  Pieces o{};
  o.piece = 16 / static_cast<int64_t>(size_of(p.type));
  o.depth = round_up(p.d, o.piece);
  o.depth_pitch = shared_pitch(p.d, o.piece, p.type);
  o.width = round_up(p.dv, kRowLanes);
  o.vector = o.piece;
  while (o.width % (kRowLanes * o.vector) != 0) o.vector /= 2;
  o.vectors = o.width / (kRowLanes * o.vector);
  o.weight_pitch = s.keys + o.piece;
  return o;
}

class LanesLowering : GpuAttentionBlock {
 public:
  LanesLowering(const Workload& w, const GpuAttention& p, const GpuAttentionShape& s)
      : GpuAttentionBlock(w, p, s),
        o_(pieces_of(p, s)),
        rows_(static_cast<int>(s.rows * kRowLanes / s.threads)),
        columns_(static_cast<int>(s.keys / kRowLanes)) {
    q_ = gpu::shared_buffer("q", p.type, s.rows * o_.depth_pitch);
    keys_ = {gpu::shared_buffer("k", p.type, s.keys * o_.depth_pitch), o_.depth, o_.depth_pitch};
    values_ = {gpu::shared_buffer("v", p.type, s.keys * o_.width), o_.width, o_.width};
    weights_ = gpu::shared_buffer("weights", p.type, s.rows * o_.weight_pitch);
    scores_ = kb::buffer("scores", Scope::kRegister, p.type, rows_ * columns_);
    bias_ = kb::buffer("bias", Scope::kRegister, p.type, rows_ * columns_);
    sums_ = kb::buffer("sums", Scope::kRegister, p.type, rows_ * o_.vectors,
                       static_cast<int>(o_.vector));
    maximum_ = kb::buffer("maximum", Scope::kRegister, p.type, rows_);
    total_ = kb::buffer("total", Scope::kRegister, p.type, rows_);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> all;
    bind_block(all);
    all.push_back(kb::let_index("column", kb::index(ir::mod(gpu::thread(), kRowLanes)),
                                ir::SymbolFacts{0, kRowLanes - 1, 1}));
    all.push_back(kb::let_index("group", kb::index(ir::floordiv(gpu::thread(), kRowLanes)),
                                ir::SymbolFacts{0, shape_.threads / kRowLanes - 1, 1}));
    all.push_back(copy(0, q_, first_row_, shape_.rows, p_.n, o_.depth, o_.depth_pitch, "cq"));
    all.push_back(copy_keys(0, "cf"));
    all.push_back(kb::async_commit());
    for (int i = 0; i < rows_; ++i) {
      all.push_back(kb::set_reg(maximum_, i, lowest()));
      all.push_back(kb::set_reg(total_, i, number(0)));
      for (int64_t v = 0; v < o_.vectors; ++v)
        all.push_back(
            kb::set_reg(sums_, i * o_.vectors + v, number(0, static_cast<int>(o_.vector))));
      // A row beyond the last one computes with the last one's mask, and is not stored.
      if (p_.mask_has_rows)
        all.push_back(kb::let_index(fmt::format("mr{}", i),
                                    kb::index(ir::min(first_row_ + row(i), p_.n - 1))));
    }
    all.push_back(kb::loop(LoopKind::kSerial, "kt", 0, ir::ceildiv(p_.m, shape_.keys), tile()));
    all.push_back(kb::async_wait(0));
    for (int i = 0; i < rows_; ++i) all.push_back(store_row(i));
    std::vector<BufferRef> registers = {scores_, sums_, maximum_, total_};
    if (p_.masked) registers.push_back(bias_);
    return launched(name, {q_, keys_.buffer, values_.buffer, weights_}, std::move(registers),
                    kb::seq(std::move(all)));
  }

 private:
  ValueRef lowest() const { return number(-std::numeric_limits<double>::infinity()); }
  Dim column() const { return Dim::symbol("column"); }
  Dim row(int i) const { return Dim::symbol("group") * rows_ + i; }  // of the tile
  Dim key(int j) const { return first_key() + column() + j * kRowLanes; }

  // Pieces of rows in a straight stretch of multiply-adds.
  int64_t stretch() const { return rows_ * columns_ > 16 ? 2 : 4; }

  void load_bias(std::vector<StmtRef>& out) override {
    const bool by_row = p_.mask_has_rows;
    for (int j = 0; j < columns_; ++j) {
      const std::string name = fmt::format("mk{}", j);
      out.push_back(kb::let_index(name, kb::index(ir::min(key(j), p_.m - 1))));
      for (int i = 0; i < (by_row ? rows_ : 1); ++i) {
        const ValueRef v =
            mask(by_row ? Dim::symbol(fmt::format("mr{}", i)) : Dim(0), Dim::symbol(name), out);
        out.push_back(kb::set_reg(bias_, i * columns_ + j, v));
      }
    }
  }

  void score(std::vector<StmtRef>& out) override {
    for (int x = 0; x < rows_ * columns_; ++x) out.push_back(kb::set_reg(scores_, x, number(0)));
    const Dim at = Dim::symbol("sc") * o_.piece;
    const int lanes = static_cast<int>(o_.piece);
    std::vector<StmtRef> body;
    std::vector<ValueRef> q, k;
    for (int i = 0; i < rows_; ++i)
      q.push_back(let(body, kb::load(q_, row(i) * o_.depth_pitch + at, lanes)));
    for (int j = 0; j < columns_; ++j)
      k.push_back(let(
          body, kb::load(keys_.buffer, (column() + j * kRowLanes) * o_.depth_pitch + at, lanes)));
    for (int e = 0; e < lanes; ++e)
      for (int i = 0; i < rows_; ++i)
        for (int j = 0; j < columns_; ++j) {
          const int x = i * columns_ + j;
          body.push_back(kb::set_reg(
              scores_, x,
              kb::fma(kb::extract(q[i], e), kb::extract(k[j], e), kb::reg(scores_, x))));
        }
    out.push_back(
        gpu::stretched_loop("sc", o_.depth / o_.piece, stretch(), kb::seq(std::move(body))));
  }

  // Scores to weights, with what they do to the sums so far.
  void weigh(std::vector<StmtRef>& out) override {
    const ValueRef scale = number(p_.scale);
    const auto score = [&](int i, int j) { return kb::reg(scores_, i * columns_ + j); };
    for (int i = 0; i < rows_; ++i)
      for (int j = 0; j < columns_; ++j) {
        const int bias = (p_.mask_has_rows ? i : 0) * columns_ + j;
        out.push_back(kb::set_reg(scores_, i * columns_ + j,
                                  p_.masked ? kb::fma(score(i, j), scale, kb::reg(bias_, bias))
                                            : kb::mul(score(i, j), scale)));
      }
    std::vector<StmtRef> tail;
    for (int j = 0; j < columns_; ++j) {
      const ValueRef exists =
          let(tail, kb::compare(kir::CompareOp::kLt, kb::index(key(j)), kb::index(p_.m)));
      for (int i = 0; i < rows_; ++i)
        tail.push_back(
            kb::set_reg(scores_, i * columns_ + j, kb::select(exists, score(i, j), lowest())));
    }
    out.push_back(kb::if_then(kb::lt(p_.m, first_key() + shape_.keys), kb::seq(std::move(tail))));
    for (int i = 0; i < rows_; ++i) {
      ValueRef most = score(i, 0);
      for (int j = 1; j < columns_; ++j) most = kb::max(most, score(i, j));
      most = gpu::all_of_lanes(out, fmt::format("most{}", i), most, kRowLanes,
                               [](const ValueRef& a, const ValueRef& b) { return kb::max(a, b); });
      most = let(out, kb::max(most, kb::reg(maximum_, i)));
      const ValueRef shift = let(out, shift_of(most));
      const ValueRef fade =
          let(out, km::exp_flushed(let(out, kb::sub(kb::reg(maximum_, i), shift))));
      out.push_back(kb::set_reg(maximum_, i, most));
      ValueRef sum;
      for (int j = 0; j < columns_; ++j) {
        const ValueRef x = let(out, km::exp_flushed(let(out, kb::sub(score(i, j), shift))));
        out.push_back(kb::store(weights_, row(i) * o_.weight_pitch + column() + j * kRowLanes, x));
        sum = sum ? kb::add(sum, x) : x;
      }
      out.push_back(kb::set_reg(total_, i, kb::fma(kb::reg(total_, i), fade, sum)));
      for (int64_t v = 0; v < o_.vectors; ++v) {
        const int64_t x = i * o_.vectors + v;
        out.push_back(kb::set_reg(
            sums_, x,
            kb::mul(kb::reg(sums_, x), kb::broadcast(fade, static_cast<int>(o_.vector)))));
      }
    }
  }

  void add_values(std::vector<StmtRef>& out) override {
    const Dim at = Dim::symbol("vc") * o_.piece;
    const int lanes = static_cast<int>(o_.piece), width = static_cast<int>(o_.vector);
    std::vector<StmtRef> body;
    std::vector<ValueRef> weights;
    for (int i = 0; i < rows_; ++i)
      weights.push_back(let(body, kb::load(weights_, row(i) * o_.weight_pitch + at, lanes)));
    for (int e = 0; e < lanes; ++e)
      for (int64_t v = 0; v < o_.vectors; ++v) {
        const Dim index = (at + e) * o_.width + (v * kRowLanes + column()) * width;
        const ValueRef value = let(body, kb::load(values_.buffer, index, width));
        for (int i = 0; i < rows_; ++i) {
          const int64_t x = i * o_.vectors + v;
          body.push_back(kb::set_reg(
              sums_, x,
              kb::fma(kb::broadcast(kb::extract(weights[i], e), width), value, kb::reg(sums_, x))));
        }
      }
    // Behind the last key all weights are zeros. A tile's keys are sixteen or a multiple of them.
    const int64_t steps = stretch();
    const Dim pieces = ir::min(shape_.keys / (o_.piece * steps),
                               ir::ceildiv(p_.m - first_key(), o_.piece * steps));
    out.push_back(kb::loop(LoopKind::kSerial, "vs", 0, pieces,
                           kb::loop(LoopKind::kUnroll, "vc", Dim::symbol("vs") * steps, steps,
                                    kb::seq(std::move(body)))));
  }

  StmtRef store_row(int i) {
    std::vector<StmtRef> all;
    const ValueRef sum =
        gpu::all_of_lanes(all, fmt::format("total{}", i), kb::reg(total_, i), kRowLanes,
                          [](const ValueRef& a, const ValueRef& b) { return kb::add(a, b); });
    const ValueRef factor = let(all, factor_of(sum));
    const int width = static_cast<int>(o_.vector);
    std::vector<StmtRef> stores;
    for (int64_t v = 0; v < o_.vectors; ++v) {
      const Dim at = (v * kRowLanes + column()) * width;
      const auto valid = o_.width > p_.dv ? std::optional<Dim>(Dim(p_.dv) - at) : std::nullopt;
      const ValueRef value =
          kb::mul(kb::reg(sums_, i * o_.vectors + v), kb::broadcast(factor, width));
      StmtRef store = store_results(w_, frame_, value, {b_, first_row_ + row(i), h_ * p_.dv + at},
                                    width, valid, fmt::format("o{}_{}_", i, v));
      if (valid) store = kb::if_then(kb::lt(at, p_.dv), std::move(store));
      stores.push_back(std::move(store));
    }
    all.push_back(kb::if_then(kb::lt(first_row_ + row(i), p_.n), kb::seq(std::move(stores))));
    return kb::seq(std::move(all));
  }

  Pieces o_;
  int rows_, columns_;  // of a lane, of a tile of scores
  BufferRef q_, weights_, scores_, bias_, sums_, maximum_, total_;
};

}  // namespace

bool fits_lanes(const GpuAttention& p, const GpuAttentionShape& s, const TargetInfo& t) {
  if (!gpu::is_block(s.threads)) return false;
  constexpr int64_t kMost = 8;  // rows and keys of a lane
  const int64_t groups = s.threads / kRowLanes;
  if (s.rows < groups || s.rows % groups != 0 || s.rows / groups > kMost || s.keys < kRowLanes ||
      s.keys % kRowLanes != 0 || s.keys / kRowLanes > kMost)
    return false;
  const Pieces o = pieces_of(p, s);
  const int64_t rows = s.rows / groups, columns = s.keys / kRowLanes;
  // Scores, their mask, the sums, and a piece of each row and key.
  const int64_t values =
      rows * columns * (p.masked ? 2 : 1) + rows * o.width / kRowLanes + (rows + columns) * o.piece;
  const int64_t shared = gpu::shared_bytes({{p.type, s.rows * o.depth_pitch},
                                            {p.type, s.keys * o.depth_pitch},
                                            {p.type, s.keys * o.width},
                                            {p.type, s.rows * o.weight_pitch}});
  return values * static_cast<int64_t>(size_of(p.type)) / 4 <= kMostRegisters &&
         shared <= t.shared_bytes;
}

kir::Function lower_attention_lanes(const Workload& w, const GpuAttention& p,
                                    const GpuAttentionShape& s, const std::string& name) {
  return LanesLowering(w, p, s).run(name);
}

}  // namespace nimble::kernels
