// What `nimble db` prints, one function per view. Each returns the view's rows.
#pragma once

#include "db/store/store.h"
#include "vm/arguments/table.h"

namespace nimble::db {

Table show_summary(Store&);
Table show_hardware(Store&);
Table show_toolchains(Store&);
Table show_workloads(Store&);
Table show_dispatch(Store&);
// Shapes that production met, as `nimble dispatch shapes` counts them; those that no active table
// serves alone.
Table show_shapes(Store&);
Table show_misses(Store&);
// The samples of the measurement whose UUID begins so. Errors as the_one().
Table show_measurement(Store&, const std::string& prefix);
// The trials of the campaign whose UUID begins so. Errors as the_one().
Table show_trials(Store&, const std::string& prefix);
// How well the cost models of the campaign whose UUID begins so ranked what was measured next, by
// workload and round. Errors as the_one().
Table show_models(Store&, const std::string& prefix);
Table show_campaigns(Store&);

struct TopOptions {
  std::string workload;  // hash, a prefix of it, or part of the canonical text; empty: all
  std::string shape;     // "m=64"; empty: the best at every shape
  std::string role;      // a name of Role, or empty
  int64_t limit = 10;
};
// The fastest configurations of each (workload, hardware, policy, code generator) and shape.
Table show_top(Store&, const TopOptions&);

}  // namespace nimble::db
