// From cross-evaluation to dispatch: which configuration serves which shape.
//
// The input is a matrix of times, configurations by shapes, with a weight for each shape. Regret
// of a configuration at a shape is its time over the best time known there, less one. Two answers
// are computed from the same numbers:
//
//  - choose_single: the paper's (section 3.5, step 3): the one configuration whose average of
//    relative time is least;
//  - choose: our extension: a table of up to `max_entries` regions, each with its configuration,
//    of least weighted regret. Of one symbol the regions are ranges, found exactly by dynamic
//    programming; of several they are the leaves of a decision tree of limited depth, grown by
//    the regret that a split saves (not by how well it predicts the winner's name).
//
// An entry costs `entry_cost` of weighted regret, so that a table grows only where it pays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vm/executable/dispatch.h"

namespace nimble::tuner {

struct CrossTable {
  std::vector<std::string> symbols;          // of the contract
  std::vector<std::vector<int64_t>> shapes;  // values of the symbols
  std::vector<double> weights;               // per shape, not negative
  // [configuration][shape] in ns; infinite where it must not be used.
  std::vector<std::vector<double>> times;
};

struct TableEntry {
  size_t configuration = 0;
  // JSON: the region, {"s0":[17,64]} (ends included, null: unbounded). Keys are features of the
  // dispatch tree: "s0", "s0*s1", "ceildiv(s0,8)".
  std::string range = "{}";
  std::vector<size_t> shapes;  // those of the cross table that fall into it
  double expected_ns = 0;      // weighted mean over them
  double regret = 0;           // weighted mean over them
  double worst_regret = 0;
};

struct Table {
  exec::DispatchTree tree;  // leaves index `entries`
  std::vector<TableEntry> entries;
  double regret = 0;        // weighted mean over all shapes
  double worst_regret = 0;  // bound over the shapes measured
};

struct ChooseOptions {
  size_t max_entries = 6;
  double entry_cost = 0.002;
  int max_depth = 4;  // of the tree for several symbols
};

// Regrets, [configuration][shape]. A shape where nothing has a time is an internal error.
std::vector<std::vector<double>> regrets(const CrossTable& t);

// Both need at least one configuration that is usable at every shape, or nothing could stand in
// for what was not measured: Error(kInvalidArgument) otherwise.
Table choose_single(const CrossTable& t);
Table choose(const CrossTable& t, const ChooseOptions& options = {});

// The exact part, for tests: segments [begin, end) of sorted shapes and their configurations.
struct Segment {
  size_t begin, end, configuration;
};
// Least sum over segments of weighted regret plus entry_cost each, at most max_entries segments.
// `cost`: [configuration][shape], weighted.
std::vector<Segment> best_segments(const std::vector<std::vector<double>>& cost,
                                   const ChooseOptions& options);

}  // namespace nimble::tuner
