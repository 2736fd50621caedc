// How far a value of a kernel is the same: what decides who may meet where (Together). Sound and
// incomplete: what is called the same is, and the rest counts as different from lane to lane.
#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

enum class Spread {
  kBlock,  // all threads of a GPU's block, or of a CPU's region
  kGroup,  // those of a group of warps; other groups' may differ
  kWarp,   // the lanes of a warp; others may differ
  kLane,
};

// What is known of the names in scope.
struct Spreads {
  std::map<std::string, Spread> symbols;  // kBlock unless named
  std::map<std::string, Spread> locals;   // kLane unless named
  const ir::DimContext* facts = nullptr;

  Spread of(const Dim& d) const;
  Spread of(const Condition& c) const;
  // Of a GPU's function: what is read with one index from an argument that nothing writes is one
  // value, and so is what a shuffle takes from one lane.
  Spread of(const Value& v) const;

 private:
  using Known = std::unordered_map<const Value*, Spread>;  // values are directed graphs
  Spread of(const Value& v, Known& known) const;
  bool counts_lanes(const Dim& d, int64_t neighbours, Spread level) const;
};

}  // namespace nimble::kir
