// Whether what was measured became faster or slower: two campaigns, two kinds of hardware or two
// toolchains, over the workloads and shapes that both have.
//
// At each (workload, shape, policy, threads) the best configuration of one side stands against the
// best of the other. Both are taken from the most careful role that both sides have: finalists that
// were verified side by side before the cross-evaluation, that before the search; within it the
// newest time of each configuration.
//
// Hours and machines differ, so times are related by anchors: kernels of equal machine code
// (code_hash) that both sides timed in the sessions of their best. Whatever such a kernel's time
// changed by, its code did not cause; the mean ratio of all anchors is the drift, and is divided
// out. Between two kinds of hardware there is no drift to speak of: there the times count as they
// are. Where the bests themselves have one code they are no anchors.
//
// The interval follows from those of the medians (95 %), which are independent: on the logarithms
// their widths add up as squares. A difference counts if the whole interval lies beyond the
// smallest one that matters.
#pragma once

#include "db/store/store.h"

namespace nimble::db {

enum class Verdict { kSame, kFaster, kSlower };
std::string_view name_of(Verdict);

struct Ratio {  // of times, with its interval
  double value = 1, low = 1, high = 1;
};

struct Compared {
  Measured a, b;              // the best of each side
  Ratio ratio;                // b over a, without the drift; above 1: b is slower
  bool side_by_side = false;  // timed in one session: there is no drift
  double drift = 1;
  int64_t anchors = 0;  // 0: the times are compared as they are
  Verdict verdict = Verdict::kSame;
};

struct CampaignDiff {
  std::vector<Compared> rows;  // the slowest first
  Ratio mean;                  // geometric, each shape alike
  int64_t faster = 0, slower = 0;
};

// `smallest`: 0.02: what differs by less than 2 % is the same.
CampaignDiff compare(Store& store, const MeasuredQuery& a, const MeasuredQuery& b, double smallest);

}  // namespace nimble::db
