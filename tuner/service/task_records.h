// The rows of the database that a task's trials refer to: its workload, policy, shapes and
// configurations, and their keys.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "db/store/store.h"
#include "tuner/fleet/case_record.h"
#include "tuner/measure/protocol.h"
#include "tuner/service/backend.h"
#include "tuner/service/workloads.h"
#include "tuner/space/space.h"

namespace nimble::tuner {

// The symbols of a task's point by name.
db::Dims dims_of(const TuningTask& task, size_t point);

class TaskRecords {
 public:
  // Stores what is missing. The store and the task stay the caller's.
  TaskRecords(db::Store& store, const TuningTask& task, const kernels::TargetInfo& target,
              int64_t threads, const Policy& policy);

  const TuningTask& task() const { return task_; }
  const Space& space() const { return space_; }
  // Leaves the vendor's routine out where its candidates cannot be made. `where`: who makes them,
  // for the reason; empty: this machine.
  void leave_out_vendor(const Backend& backend, const std::string& where = "");
  int64_t threads() const { return threads_; }
  const db::Hash& workload() const { return workload_; }
  const db::Hash& policy() const { return policy_; }
  const db::Hash& shape(size_t point) const { return shapes_.at(point); }
  // Nothing for a shape that is none of the task's.
  std::optional<size_t> point_of(const db::Hash& shape) const;

  const db::Hash& default_config() const { return default_config_; }
  const tuned::Candidate& default_candidate() const { return candidates_.at(default_config_); }
  db::Hash put(const tuned::Candidate& c);
  // Of a configuration that is in the database.
  const tuned::Candidate& candidate(const db::Hash& config);

  // The case at a point, without what is expected and without entries.
  Case case_at(size_t point, const Policy& policy) const;
  // Of a campaign that tunes it at these points.
  db::Task task_record(const db::Uuid& campaign, const std::vector<size_t>& points) const;

 private:
  db::Store& store_;
  const TuningTask& task_;
  const int64_t threads_;
  Space space_;
  db::Hash workload_, policy_;
  std::vector<db::Hash> shapes_;                     // of the points
  std::map<db::Hash, size_t> point_of_;              // shape → point
  std::map<db::Hash, tuned::Candidate> candidates_;  // by configuration
  db::Hash default_config_;
};

}  // namespace nimble::tuner
