// What the operator `attention` of a workload computes on, for the templates of any machine, and
// what those of CPUs ask alike.
#pragma once

#include <optional>
#include <vector>

#include "compiler/kernels/template.h"

namespace nimble::kernels {

struct AttentionOperands {
  DType type = DType::kF32;          // of q, k and v
  DType result = DType::kF32;        // and of scores and sums on a CPU
  kir::Dim batch, n, m;              // entries, query rows, keys
  int64_t heads = 1, d = 1, dv = 1;  // numbers of a head in a row of q and k, and of v
  double scale = 1;
  bool masked = false;
  bool mask_has_rows = false;  // a query row has one of its own
  bool tf32 = false;           // of f32: whether factors may be rounded so (the attribute)
};
// Nothing unless q, k and v are parts of parameters, of known width, and whatever follows is
// element-wise.
std::optional<AttentionOperands> attention_operands(const Workload& w);

// Where an operand `mask`, broadcast to the scores, has its element for the score at `at` (entry,
// head, query, key), and how far each coordinate is from there for the next key.
struct MaskPlace {
  std::vector<kir::Dim> at, step;
};
MaskPlace mask_place(const AttentionOperands& p, const ir::Atom& mask,
                     const std::vector<kir::Dim>& at);
// What such elements add to scores of a type: a bool says whether a key counts.
kir::ValueRef mask_number(const kir::ValueRef& element, DType type);

// ---- on a CPU

// The same for templates of CPUs: of f32 or f64, or of narrower floats whose scores and sums are
// f32, and with a mask that comes in vectors.
std::optional<AttentionOperands> cpu_attention_of(const Workload& w);
// Whether so many query rows are few: each key and value is read about once then, which takes
// longer than multiplying, so that neither copies nor narrower factors pay.
bool has_few_rows(const kir::Dim& queries);
// Whether keys and values are read where they lie: there are few rows, and a head's part of one
// fits registers.
bool streams_keys(const AttentionOperands& p, const TargetInfo& t);
// Whether instructions of the target multiply two factors of a type and add up in f32.
bool multiplies_factors(const TargetInfo& t, DType type);

// The load of an operand's element, under a conversion of its type; null if it is computed.
const kir::Value* loaded(const kir::ValueRef& v);

}  // namespace nimble::kernels
