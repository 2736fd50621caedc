// A search of one workload at one shape, from nothing: without what earlier campaigns found and
// without a model that was learnt elsewhere. What it finds tells whether those campaigns met the
// best schedules of this shape.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tuner/service/builder.h"

namespace nimble::tuner {

struct FreshSearchOptions {
  size_t trials = 100;  // configurations, at most; the default schedule is one of them
  size_t keep = 3;
  uint64_t seed = 0;
  std::vector<int64_t> symbols;  // the shape
};

// Times configurations, which the builder has, side by side: a result for each.
using TimeAtShape =
    std::function<std::vector<EntryResult>(const Builder&, const std::vector<db::Hash>&)>;

// The fastest configurations, the fastest first; they are in the database. Nothing where `over`
// said that there is no time left before the trials were done, or where the default schedule has
// no time. What is compiled is forgotten when it ends. Throws what `time` does.
std::optional<std::vector<db::Hash>> fresh_search(CampaignContext& context, TaskRecords& records,
                                                  const FreshSearchOptions& options,
                                                  const TimeAtShape& time,
                                                  const std::function<bool()>& over);

}  // namespace nimble::tuner
