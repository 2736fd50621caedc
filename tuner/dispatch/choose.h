// From cross-evaluation to dispatch: which configuration serves which shape.
//
// The input is a matrix of times, configurations by shapes, with a weight for each shape. Regret
// of a configuration at a shape is its time over the best time known there, less one. Two answers
// are computed from the same numbers:
//
//  - choose_single: the paper's (section 3.5, step 3): the one configuration whose average of
//    relative time is least;
//  - choose: our extension: a pool of few configurations (pool.h) and a tree of tests that sends
//    each shape to one of them (tree.h), of least weighted regret plus a price for what the table
//    costs: `code_cost` for each configuration, whose kernel is code, `entry_cost` for each region,
//    which costs a test and must be more than noise. Where all that varies is one symbol, regions
//    are ranges as well, found exactly by dynamic programming; the cheaper of both is taken.
//
// A test asks for a symbol, for the remainder of a symbol by a tile, or for the product of two
// symbols; of one symbol, an extent's tiles (ceil(s/t)) order the shapes as the extent does, so
// they are no test of their own: a border between two sizes lies at a multiple of a tile where one
// lies between them. Tiles are the candidates' own.
//
// Likely sizes may have entries of their own: where a trace tells how often a size is met exactly
// (CrossTable::exact), the tree may ask whether a symbol equals it. Such an entry is worth what it
// saves at that size alone, by how often it is met, and pays the price of its region and of its
// kernel; what is met near it stays with the region around. So a shape of a trace is two for the
// search of the tree, of the same times: the exact one, which such a test tells from all others,
// and what is near.
//
// What serves such sizes alone (CrossTable::exact_only) is chosen for nothing else: each symbol is
// asked for, and beside it stands the best of the others for what comes the same way.
//
// Beyond the measured sizes the outermost region goes on: larger sizes are served as the largest
// measured one of the same remainders, smaller ones as the smallest. No time is claimed there.
#pragma once

#include "tuner/dispatch/table.h"

namespace nimble::tuner {

struct ChooseOptions {
  size_t max_configurations = 6;  // kMostPooled at most
  size_t max_entries = 16;        // ranges of one symbol
  int max_depth = 4;              // of a tree
  double code_cost = 0.001, entry_cost = 0.001;
  uint64_t most_steps = 10'000'000;  // of a tree's search (tree.h)
};

// Both need at least one configuration that is usable at every shape, or nothing could stand in
// for what was not measured: Error(kInvalidArgument) otherwise.
Table choose_single(const CrossTable& t);
Table choose(const CrossTable& t, const ChooseOptions& options = {});

}  // namespace nimble::tuner
