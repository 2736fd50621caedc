// What `nimble db` prints, one function per view. Each returns the view's rows.
#pragma once

#include "db/store/store.h"
#include "db/tools/output.h"

namespace nimble::db {

Output show_summary(Store&);
Output show_hardware(Store&);
Output show_toolchains(Store&);
Output show_workloads(Store&);
Output show_dispatch(Store&);
Output show_misses(Store&);
// The samples of one measurement; throws Error(kNotFound).
Output show_measurement(Store&, const Uuid&);
// The trials of one campaign; throws Error(kNotFound).
Output show_trials(Store&, const Uuid& campaign);
Output show_campaigns(Store&);

struct TopOptions {
  std::string workload;  // hash, a prefix of it, or part of the canonical text; empty: all
  std::string shape;     // "m=64"; empty: the best at every shape
  std::string role;
  int64_t limit = 10;
};
// The fastest configurations of each (workload, hardware, policy, code generator) and shape.
Output show_top(Store&, const TopOptions&);

}  // namespace nimble::db
