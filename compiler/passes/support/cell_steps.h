// Steps of recurrent cells that are written out in operators.
#pragma once

#include <optional>
#include <vector>

#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {

// As many columns of the matrix `of`, from `first` on, as the state is wide.
struct Columns {
  ir::Atom of;
  int64_t first = 0;
};

// Where the columns of `a` from `first` on come from, through slices of columns.
Columns columns_of(const Definitions& d, ir::Atom a, int64_t first = 0);

bool same_variable(const ir::Atom& a, const ir::Atom& b);

// A product with recurrent weights.
struct RecurrentProduct {
  ir::Atom state;  // h, or of a GRU that resets first r * h
  ir::Atom weights;
  bool transposed = false;       // the weights are stored as (columns, h)
  std::optional<ir::Atom> bias;  // (columns): added to the product
  int64_t columns = 0;
};

// Matches matmul(state, weights), to which a vector may be added where `with_bias` says so, with a
// result of (batch, columns).
std::optional<RecurrentProduct> match_product(const Definitions& d, const ir::Atom& a,
                                              int64_t columns, bool with_bias);

// A GRU step: gates r, z, n.
struct GruStep {
  ir::Atom input, h;  // the input's part of all gates (b, 3h), the state (b, h)
  // One product for all gates: the reset gate applies after it. Or one for r and z, and one of
  // r * h for n; their weights are constants.
  std::vector<RecurrentProduct> products;

  bool linear_before_reset() const { return products.size() == 1; }
};

// Matches the definition of h', of type `type`.
std::optional<GruStep> match_gru(const Definitions& d, const ir::Expr& e, const ir::Type& type);

}  // namespace nimble::passes
