// What the schedules of "gpu_attention" share: the operands' places, their way into shared memory,
// the mask and a block's part of the work.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/templates/attention_operands.h"
#include "compiler/kernels/templates/gpu.h"

namespace nimble::kernels {

using kir::Dim;

using GpuAttention = AttentionOperands;
// Nothing for a workload that no schedule takes.
std::optional<GpuAttention> gpu_attention_of(const Workload& w);

// A block: `rows` query rows of one head of one entry, which meet the keys in tiles of `keys`.
struct GpuAttentionShape {
  int64_t rows = 16, keys = 64;
  int threads = 128;
};

int64_t round_up(int64_t n, int64_t to);
inline constexpr int64_t kMostRegisters = 160;  // of a lane's scores, mask and sums, by 32 bits
// Elements of a row of `width` in shared memory, `type`s: padded to a multiple of `multiple`, and
// an odd number of 16 bytes apart, so that eight neighbouring rows share no bank at 16 bytes each.
int64_t shared_pitch(int64_t width, int64_t multiple, DType type);

// The schedule of plain multiply-adds (gpu_attention_lanes.cpp), and whether a block has the
// threads, registers and shared memory for a shape.
bool fits_lanes(const GpuAttention& p, const GpuAttentionShape& s, const TargetInfo& t);
kir::Function lower_attention_lanes(const Workload& w, const GpuAttention& p,
                                    const GpuAttentionShape& s, const std::string& name);

// The fragment that multiplies such operands as they are, or rounded where that is allowed; nullptr
// if none does.
const kir::WarpFragmentRow* fragment_of(const GpuAttention& p);
// The same by fragments (gpu_attention_warps.cpp): sixteen rows a warp.
bool fits_warps(const GpuAttention& p, const GpuAttentionShape& s, const TargetInfo& t);
kir::Function lower_attention_warps(const Workload& w, const GpuAttention& p,
                                    const GpuAttentionShape& s, const std::string& name);

// The half of a lowering that no schedule changes.
class GpuAttentionBlock {
 public:
  GpuAttentionBlock(const Workload& w, const GpuAttention& p, const GpuAttentionShape& s);
  virtual ~GpuAttentionBlock() = default;

 protected:
  using Dims = std::vector<Dim>;
  // A tile's rows of an operand in shared memory: elements that are filled, and from row to row.
  struct SharedRows {
    kir::BufferRef buffer;
    int64_t padded = 0, pitch = 0;
  };

  // Binds the block's entry, head and first query row.
  void bind_block(std::vector<kir::StmtRef>& out);
  kir::Function launched(const std::string& name, std::vector<kir::BufferRef> shared,
                         std::vector<kir::BufferRef> registers, kir::StmtRef body) const;

  // Where an element of q, k or v (operands 0, 1, 2) of the head lies.
  std::pair<kir::BufferRef, Dim> place(size_t operand, const Dim& row, const Dim& column);
  // Rows [first, first + count) of the head's part of an operand into shared memory: `padded`
  // elements a row, zeros from the operand's `extent` rows and the head's width on. By asynchronous
  // copies of as many bytes as the strides allow; the caller commits them.
  kir::StmtRef copy(size_t operand, const kir::BufferRef& to, const Dim& first, int64_t count,
                    const Dim& extent, int64_t padded, int64_t pitch, const std::string& name);

  // Tile number `kt` of keys. Its own have been asked for with the last group of copies.
  kir::StmtRef tile();
  kir::StmtRef copy_keys(const Dim& first, const std::string& name);
  Dim first_key() const { return Dim::symbol("kt") * shape_.keys; }
  // What a schedule does with a tile: fetches its mask, multiplies the queries by its keys, makes
  // weights of the scores, adds the values that they weigh.
  virtual void load_bias(std::vector<kir::StmtRef>& out) = 0;
  virtual void score(std::vector<kir::StmtRef>& out) = 0;
  virtual void weigh(std::vector<kir::StmtRef>& out) = 0;
  virtual void add_values(std::vector<kir::StmtRef>& out) = 0;

  // What is added to the scaled score of a query row and a key, which exist.
  kir::ValueRef mask(const Dim& row, const Dim& key, std::vector<kir::StmtRef>& out);

  // What is subtracted from the scores of a row whose largest so far is `most`: it, or 0 where all
  // keys are masked, so that their weights are exp(-inf).
  kir::ValueRef shift_of(const kir::ValueRef& most) const;
  // What the sums of a row are multiplied by in the end: 1 / `total`, and 0 without any key.
  kir::ValueRef factor_of(const kir::ValueRef& total) const;

  kir::ValueRef let(std::vector<kir::StmtRef>& out, kir::ValueRef v);
  kir::ValueRef number(double v, int lanes = 1) const;
  Dim width_of(size_t operand) const { return operand == 2 ? p_.dv : p_.d; }

  const Workload& w_;
  const GpuAttention& p_;
  GpuAttentionShape shape_;
  Frame frame_;
  GroupEvaluator group_;
  const ir::Expr& call_;
  DType sum_type_;  // of scores and sums
  Dim b_, h_, first_row_;
  SharedRows keys_, values_;  // of a tile
  int names_ = 0;
};

}  // namespace nimble::kernels
