// Which cases were disturbed while they were measured.
//
// Candidates are compared by their time over the default schedule's in the same case. Where
// something else takes the processor just while the default runs, all that stands beside it looks
// many times faster than it is: the search would end there, satisfied, and keep nothing else. The
// second anchor tells: its time over the default's is much the same in all cases of one size on one
// machine, whatever the hour.
#pragma once

#include <optional>
#include <vector>

#include "db/store/records.h"

namespace nimble::tuner::plan {

// The cases of one size on one machine.
class Steadiness {
 public:
  // Whether the second anchor's time over the first's is out of line with what was seen before;
  // false while little is known. After several in a row the new level is believed.
  bool is_disturbed(double ratio);
  // Of a case that was believed. Once enough is known to judge the first ones by: the candidates of
  // those that were disturbed.
  std::vector<db::Hash> add(double ratio, const std::vector<db::Hash>& candidates);

 private:
  struct Case {
    double log_ratio;
    std::vector<db::Hash> candidates;  // while it may still be judged
  };
  bool out_of_line(double log_ratio) const;

  std::vector<Case> latest_;
  int in_a_row_ = 0;
};

}  // namespace nimble::tuner::plan
