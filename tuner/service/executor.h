// The executor of a campaign on one machine: has the runner measure a case of a task, and files
// what came of it.
#pragma once

#include <vector>

#include "tuner/fleet/finding.h"
#include "tuner/service/expectations.h"

namespace nimble::tuner {

class Executor {
 public:
  Executor(CampaignContext& context, TaskRecords& records, Builder& builder,
           Expectations& expectations)
      : context_(context), records_(records), builder_(builder), expectations_(expectations) {}

  struct Outcome {
    std::vector<EntryResult> results;  // of the trials; behind them the default's, if it ran twice
    int64_t finished = 0, failed = 0;  // trials
  };
  // Measures all trials, whose candidates are built, in one case of at most so many seconds, the
  // default once more with `paired`. Trials that had no time stay claimed. A trial that is finished
  // already gets a further measurement.
  Outcome measure(size_t point, const std::vector<db::Trial>& trials, bool paired, double limit_s);

 private:
  std::vector<EntryResult> run(const Case& c);

  CampaignContext& context_;
  TaskRecords& records_;
  Builder& builder_;
  Expectations& expectations_;
};

}  // namespace nimble::tuner
