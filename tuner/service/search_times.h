// What the search of one task believes a configuration takes at one size: its time over the default
// schedule's in the same case, times what the default took when the task began. So an hour in which
// the machine was slower condemns nobody.
//
// A case of the search holds the default schedule and, as soon as there is one, a second anchor:
// the fastest of the first case. The second tells when something else ran just beside the default
// (steadiness.h); such a case is measured again.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tuner/measure/protocol.h"
#include "tuner/service/steadiness.h"
#include "tuner/service/task_records.h"

namespace nimble::tuner {

class SearchTimes {
 public:
  // `baseline`: the trial of the default schedule, which took so long. What earlier processes of
  // the campaign measured beside it is read from the store; `outcomes` are of this size.
  void begin(db::Store& store, const db::Uuid& baseline, double default_ns,
             const std::vector<db::TrialOutcome>& outcomes);

  double default_ns() const { return default_ns_; }
  // The trials that a case is to hold first; the default's is the first. They are finished.
  const std::vector<db::Uuid>& anchors() const { return anchors_; }
  // Of a case whose results begin with those of the anchors: learns the times of the others.
  // False, and nothing is learnt, if it was disturbed: it should be measured again.
  bool take(const std::vector<db::Trial>& trials, const std::vector<EntryResult>& results);
  // Configurations whose first case turns out to have been disturbed: to be measured again. They
  // are told once.
  std::vector<db::Hash> doubted() { return std::exchange(doubted_, {}); }

  // Nothing if the trial has no time. Without a default beside it, its time as it was measured.
  std::optional<double> ns(const db::TrialOutcome& outcome) const;

 private:
  double default_ns_ = 0;
  std::vector<db::Uuid> anchors_;
  std::map<db::Uuid, double> ratios_;  // by trial
  plan::Steadiness steadiness_;
  std::vector<db::Hash> doubted_;
};

}  // namespace nimble::tuner
