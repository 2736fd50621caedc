#include "tuner/service/packing.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "db/store/gpu_records.h"
#include "tuner/search/search.h"
#include "tuner/service/publisher.h"
#include "tuner/service/task_run.h"
#include "tuner/service/tuning_machine.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::tuner {
namespace {

// Candidates of a job, beside the default schedule: few, so that little is lost when time is up.
constexpr size_t kPerCase = 8;
// A job's limit: of a GPU all of these take a second.
constexpr double kCaseS = 60;
// Of the record alone: nobody plans by it.
constexpr double kBudgetS = 600;

// One workload that is packed, and what it is measured at.
struct PackedTask {
  std::unique_ptr<Publisher> publisher;
  std::vector<size_t> points;
  std::vector<db::Hash> configs;  // without the default schedule
};

// Its representative sizes, or the first that can be.
std::vector<size_t> points_of(const TuningTask& task, Publisher& publisher) {
  const std::vector<Representative> searched = representatives_of(task);
  std::vector<size_t> out;
  for (const Representative& r : searched)
    if (publisher.possible(r.point)) out.push_back(r.point);
  if (!out.empty()) return out;
  for (const size_t point : spread_order(task, searched))
    if (publisher.possible(point)) return {point};
  return {};
}

std::vector<db::Hash> draw(TaskRecords& records, const TuningTask& task,
                           const std::vector<size_t>& points, size_t count, int64_t seed) {
  SearchOptions options;
  options.random = true;
  options.seed = static_cast<uint64_t>(seed) ^ hash64(records.workload());
  for (const size_t point : points) options.shapes.push_back(task.points[point].symbols);
  Search search(records.space(), options);
  search.tell(records.default_candidate(), std::nullopt);
  std::vector<db::Hash> out;
  for (const Proposal& p : search.propose(count)) out.push_back(records.put(p.candidate));
  return out;
}

}  // namespace

db::Hardware any_gpu(const kernels::TargetInfo& target) {
  db::Hardware out;
  out.vendor = "NVIDIA";
  out.model_name = "any GPU of " + target.level;
  // No GPU's: what asks for hardware that runs some code passes over it.
  out.isa = db::kAnyGpu;
  return out;
}

Packed pack_campaign(db::Store& store, Backend& backend, const trust::SigningKey& key,
                     const Submission& submission, const PackOptions& options,
                     const std::string& command, const std::atomic<bool>& cancel,
                     const std::function<void(const std::string&)>& say) {
  const kernels::TargetInfo target = kernels::target_by_name(submission.target);
  if (!target.is_gpu())
    throw Error(Status::kUnsupported, "--target " + target.level,
                "campaigns are packed for GPUs alone",
                "submit it: a board's worker reaches the database, or takes it as a file");
  Packed out;
  const db::Hash hardware = store.put(any_gpu(target));
  out.campaign = submit(store, submission, hardware, kBudgetS, command);
  RunnerOptions runner_options;
  runner_options.program = options.program;
  runner_options.cancel = &cancel;
  Runner runner(runner_options);
  Publishing shared{store,
                    backend,
                    runner,
                    key,
                    options.key_name,
                    target,
                    submission.policy,
                    store.campaign(out.campaign).value(),
                    store.put(toolchain_on(target, 0)),
                    nullptr,
                    options.compile_threads,
                    say};
  std::vector<PackedTask> tasks;
  size_t most = 0;  // cases of a task at a size
  for (const TuningTask& task : submission.tasks)
    for (const int64_t threads : submission.threads) {
      try {
        PackedTask packed{std::make_unique<Publisher>(shared, task, threads), {}, {}};
        packed.points = points_of(task, *packed.publisher);
        if (packed.points.empty())
          throw Error(Status::kUnsupported, task.label, "no size of it can occur");
        store.transaction([&] {
          packed.configs = draw(packed.publisher->records(), task, packed.points,
                                options.candidates, submission.seed);
        });
        most = std::max(most, (packed.configs.size() + kPerCase - 1) / kPerCase);
        tasks.push_back(std::move(packed));
      } catch (const Error& e) {
        // Such as an operator that the reference lacks: nothing could be checked.
        if (e.status() != Status::kUnsupported) throw;
        ++out.left_out;
        say(fmt::format("{} is left out: {}", task.label, e.what()));
      }
    }
  if (tasks.empty())
    throw Error(Status::kUnsupported, "campaign " + out.campaign,
                "none of its workloads can be measured", "give sizes that the model meets");
  out.workloads = std::ssize(tasks);
  const std::string limits = nlohmann::json{{"case_s", kCaseS}}.dump();
  for (size_t round = 0; round < most; ++round)
    for (size_t t = 0; t < tasks.size(); ++t) {
      PackedTask& task = tasks[t];
      const size_t begin = round * kPerCase;
      if (begin >= task.configs.size()) continue;
      const size_t end = std::min(task.configs.size(), begin + kPerCase);
      for (const size_t point : task.points) {
        if (cancel) throw Error(Status::kCancelled, "packing", "interrupted");
        plan::WantedCase w;
        w.task = t;
        w.point = point;
        w.phase = plan::Phase::kSearch;
        w.slice = static_cast<int>(round);
        w.anchors = {task.publisher->records().default_config()};
        w.configs.assign(task.configs.begin() + static_cast<long>(begin),
                         task.configs.begin() + static_cast<long>(end));
        w.priority = -static_cast<double>(round);
        if (task.publisher->publish(w, point, db::canonical_json(limits, "limits of a job"), {}))
          ++out.jobs;
        else
          say("a case is left out: its default schedule cannot be compiled");
      }
    }
  return out;
}

}  // namespace nimble::tuner
