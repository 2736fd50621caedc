// What a report on dispatch (dispatch_report.h) measures of one workload for one number of threads:
// which candidates take part, and what the table, its pool and the fastest of all take at a shape.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tuner/service/builder.h"
#include "tuner/service/dispatch_report.h"
#include "tuner/service/expectations.h"
#include "tuner/service/fresh_search.h"
#include "vm/executable/dispatch.h"

namespace nimble::tuner {

class DispatchSubject {
 public:
  // What is tried is what this program would compile with: the active table of this class of policy
  // that its toolchain may use, and the overrides in force. What is found goes to `out`.
  // Error(kCorrupt) for a table whose tree is none.
  DispatchSubject(CampaignContext& context, const TuningTask& task, int64_t threads,
                  const std::string& policy_class, WorkloadRegret& out);

  // Which shapes are left, in the order in which to measure them.
  void begin(const DispatchReportOptions& options);
  // Shapes that were not measured at all are the first of what is left.
  bool has_shapes() const { return !left_.empty(); }
  bool done() const { return left() == 0; }
  std::string label() const;
  size_t left() const { return left_.size() + searches_.size(); }
  // Nothing more of it, and why.
  void abandon(const std::string& why);
  // The next shape, or the next search; there is one. A search that the end of the time stopped is
  // left. Error(kCancelled) once the report is.
  void measure();

 private:
  void find_table(const std::string& policy_class);
  bool can_be_generated(const tuned::Candidate& c) const;
  std::vector<db::Result> known_results() const;
  void choose_candidates(const std::vector<db::Result>& results, size_t top_k);
  void build();
  // Returns what cannot be compiled, and why. Error(kCancelled): not all is compiled then.
  std::map<db::Hash, std::string> build(const std::vector<db::Hash>& configs);
  std::vector<EntryResult> run(const Builder& builder, size_t point,
                               const std::vector<db::Hash>& configs, const Policy& policy);
  std::vector<db::Hash> those_for(size_t point) const;
  // False: the time ended it.
  bool search(size_t point);
  std::optional<ShapeRegret> compare(size_t point, const std::vector<db::Hash>& candidates);

  CampaignContext& context_;
  const TuningTask& task_;
  TaskRecords records_;
  TaskCache cache_;
  Builder builder_;
  Expectations expectations_;
  WorkloadRegret& out_;
  std::optional<db::DispatchTable> table_;
  // With the overrides; its leaves are indices into `leaves_`: the table's entries, or else the
  // default, then the overrides.
  exec::DispatchTree tree_;
  std::vector<db::Hash> leaves_;
  std::set<db::Hash> pool_;
  std::vector<db::Hash> candidates_;
  std::vector<size_t> left_, searches_;
  FreshSearchOptions search_;
  double look_ns_ = 0, ns_per_flop_ = 0;
  bool built_ = false;
};

}  // namespace nimble::tuner
