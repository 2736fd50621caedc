// What a choice is made from, and what it makes: times of configurations at shapes, and a dispatch
// table with what it loses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tuner/dispatch/tree.h"
#include "vm/executable/dispatch.h"

namespace nimble::tuner {

struct CrossTable {
  std::vector<std::string> symbols;          // of the contract
  std::vector<std::vector<int64_t>> shapes;  // values of the symbols
  std::vector<double> weights;               // per shape, not negative
  // [configuration][shape] in ns; infinite where it must not be used.
  std::vector<std::vector<double>> times;
  // Into what the configurations cut extents: remainders by them may matter, and borders between
  // regions lie at their multiples.
  std::vector<int64_t> tiles = {};
  // The part of each shape's weight that is met at just this shape, as a trace knows it; the rest
  // is met near it. Empty: nothing is known, and no entry is of one exact size.
  std::vector<double> exact = {};
  // By configuration: 1 where it serves sizes that have an entry of their own alone, as a vendor's
  // routine, which is made ready for those. Empty: none is such.
  std::vector<uint8_t> exact_only = {};
  bool is_exact_only(size_t configuration) const {
    return configuration < exact_only.size() && exact_only[configuration] != 0;
  }
};

struct TableEntry {
  size_t configuration = 0;
  // JSON: the region, {"s0":[17,64]} (ends included, null: unbounded). Keys are features of the
  // dispatch tree: "s0", "s0*s1", "mod(s0,8)". An entry of one exact size goes before those whose
  // regions hold it, too.
  std::string range = "{}";
  // Those of the cross table that fall into it; of an entry that has none but sizes near such as
  // have an exact entry, these.
  std::vector<size_t> shapes;
  // Behind an entry that serves one exact size alone: for all others that come this way, of which
  // none was measured. What it says of times is of that size, and counts in no sum.
  bool stands_in = false;
  double expected_ns = 0;  // weighted mean over the shapes
  double regret = 0;       // weighted mean over them
  double worst_regret = 0;
};

struct Table {
  exec::DispatchTree tree;  // leaves index `entries`
  std::vector<TableEntry> entries;
  double regret = 0;        // weighted mean over all shapes
  double worst_regret = 0;  // bound over the shapes measured
  double cost = 0;          // weighted regret, and the price of its configurations and entries
  // No table over the same pool costs less, with as many levels of tests.
  bool proven = false;
};

// Regrets, [configuration][shape]. A shape where nothing has a time is an internal error.
std::vector<std::vector<double>> regrets(const CrossTable& t);

// The table of a plan whose leaves name rows of `t.times`; without its cost.
Table build_table(const CrossTable& t, const std::vector<TreeFeature>& features,
                  const PlannedNode& plan);

}  // namespace nimble::tuner
