#include "tuner/service/task_records.h"

#include <cmath>

#include "compiler/tuned/tuned.h"
#include "tuner/service/oracle.h"
#include "vm/base/error.h"

namespace nimble::tuner {

db::Dims dims_of(const TuningTask& task, size_t point) {
  db::Dims out;
  const std::vector<int64_t>& symbols = task.points.at(point).symbols;
  for (size_t i = 0; i < symbols.size(); ++i) out[task.workload().contract.symbols[i]] = symbols[i];
  return out;
}

TaskRecords::TaskRecords(db::Store& store, const TuningTask& task,
                         const kernels::TargetInfo& target, int64_t threads, const Policy& policy)
    : store_(store), task_(task), threads_(threads), space_(task.workload(), target) {
  store.transaction([&] {
    workload_ = store.put(tuned::workload_record(task.workload(), target, threads));
    policy_ = store.put(policy_record(policy, threads));
    for (size_t p = 0; p < task.points.size(); ++p) {
      shapes_.push_back(store.put(
          db::Shape{workload_, dims_of(task, p), task.points[p].flops, task.points[p].bytes}));
      point_of_[shapes_.back()] = p;
    }
    default_config_ = put(space_.default_candidate());
  });
}

void TaskRecords::leave_out_vendor(const Backend& backend, const std::string& where) {
  const std::optional<tuned::Candidate> vendor = space_.vendor_candidate();
  if (!vendor) return;
  if (const std::string why = backend.why_no_vendor(vendor->vendor); !why.empty())
    space_.leave_out_vendor(where.empty() ? why : where + ": " + why);
}

std::optional<size_t> TaskRecords::point_of(const db::Hash& shape) const {
  const auto it = point_of_.find(shape);
  if (it == point_of_.end()) return std::nullopt;
  return it->second;
}

db::Hash TaskRecords::put(const tuned::Candidate& c) {
  const db::Hash schedule = store_.put(db::Template{c.template_name, tuned::kTemplateVersion, ""});
  const db::Hash hash = store_.put(db::Config{schedule, config_json(c)});
  candidates_.emplace(hash, c);
  return hash;
}

const tuned::Candidate& TaskRecords::candidate(const db::Hash& config) {
  const auto it = candidates_.find(config);
  if (it != candidates_.end()) return it->second;
  const auto info = store_.config(config);
  // A database may have been written by anybody.
  if (!info)
    throw Error(Status::kCorrupt, store_.path(), fmt::format("has no configuration {}", config),
                "it is not whole: nimble db check tells what else is wrong");
  return candidates_.emplace(config, candidate_of(info->template_name, info->json)).first->second;
}

Case TaskRecords::case_at(size_t point, const Policy& policy) const {
  const WorkloadPoint& at = task_.points[point];
  Case c;
  c.symbols = at.symbols;
  c.threads = static_cast<int32_t>(threads_);
  c.seed = data_seed(task_, at);
  c.inputs = task_.fills_at(at);
  // Of an in/out argument the other elements are 0, as in the reference's result.
  for (const exec::KernelArgument& a : task_.workload().contract.arguments)
    if (a.access == exec::Access::kInOut) c.inputs.push_back({0, 0, false});
  c.stepping = task_.stepping;
  c.policy = policy;
  return c;
}

db::Task TaskRecords::task_record(const db::Uuid& campaign,
                                  const std::vector<size_t>& points) const {
  db::Task record;
  record.uuid = db::uuid_of_task(campaign, workload_);
  record.campaign = campaign;
  record.workload = workload_;
  record.label = task_.label;
  record.calls = std::llround(task_.calls);
  for (const size_t p : points) record.weights[shapes_.at(p)] = task_.points[p].weight;
  return record;
}

}  // namespace nimble::tuner
