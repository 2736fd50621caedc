#include "tuner/service/table_trial.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "db/store/open_existing.h"
#include "tuner/service/campaign_lock.h"
#include "tuner/service/jobs.h"
#include "tuner/service/measuring.h"
#include "tuner/service/model_tasks.h"
#include "vm/base/error.h"
#include "vm/executable/dispatch_json.h"

namespace nimble::tuner {
namespace {

db::DispatchTable draft_of(db::Store& store, const db::Uuid& uuid) {
  const std::string place = "dispatch table " + uuid;
  const std::optional<db::DispatchTable> found = store.table(uuid);
  if (!found)
    throw Error(Status::kInvalidArgument, place, "is not in the database",
                "list them: nimble dispatch show --all");
  if (found->status == db::TableStatus::kActive)
    throw Error(
        Status::kInvalidArgument, place, "is active already",
        "edit a copy of it in nimble gui, or try it at other shapes: nimble dispatch report");
  return *found;
}

void check_slot(const db::DispatchTable& draft, const db::Hash& hardware,
                const db::Hash& toolchain) {
  const std::string place = "dispatch table " + draft.uuid;
  if (draft.hardware != hardware)
    throw Error(Status::kIncompatible, place, "was made for other hardware than this machine's",
                "try it on a machine of its kind: nimble db show hardware");
  if (draft.toolchain != toolchain)
    throw Error(Status::kIncompatible, place, "was made with another toolchain",
                "tune the workload with this one, and edit the table that it makes");
}

void check_tree(const db::DispatchTable& draft, const std::vector<std::string>& symbols) {
  const exec::DispatchTree tree = exec::tree_from_json(draft.tree, symbols);
  const std::string fault = tree.verify(static_cast<uint32_t>(symbols.size()),
                                        static_cast<uint32_t>(draft.entries.size()));
  if (!fault.empty())
    throw Error(Status::kCorrupt, "dispatch table " + draft.uuid, fault, "make it anew");
}

const TuningTask& task_of(const std::vector<TuningTask>& tasks, const db::DispatchTable& draft,
                          const kernels::TargetInfo& target, int64_t threads,
                          const std::string& model) {
  for (const TuningTask& t : tasks)
    if (db::key_of(tuned::workload_record(t.workload(), target, threads)) == draft.workload)
      return t;
  throw Error(
      Status::kInvalidArgument, model,
      fmt::format("has no workload {} for {} threads", draft.workload.substr(0, 12), threads),
      "give the model that was tuned, with the same --shape and --target");
}

}  // namespace

TableTrial try_table(const TableTrialOptions& options, Backend& backend,
                     const std::atomic<bool>& cancel) {
  const MachineLock machine_lock =
      lock_machine(options.campaign, "trying a dispatch table of", cancel);
  const auto start = std::chrono::steady_clock::now();
  Account account(start);
  const std::unique_ptr<db::Store> store = db::open_to_write(options.campaign.database);
  const db::DispatchTable draft = draft_of(*store, options.table);
  const std::optional<db::Workload> workload = store->workload(draft.workload);
  if (!workload)
    throw Error(Status::kCorrupt, "dispatch table " + draft.uuid,
                "is of a workload that the database does not have", "nimble db check");
  CampaignOptions o = options.campaign;
  o.policy_class = draft.policy_class;
  const TuningMachine on = tuning_machine(o.target);
  const kernels::TargetInfo& target = on.target;
  check_slot(draft, store->put(on.hardware), store->put(on.toolchain));
  std::vector<std::string> skipped;
  const ModelTasks model = tasks_of_model(o, target, &skipped);
  const TuningTask& task = task_of(model.tasks, draft, target, workload->threads, o.model);
  check_tree(draft, task.workload().contract.symbols);

  db::CampaignKey key;
  key.digest = draft.uuid;
  key.hardware = draft.hardware;
  // Each trial is measured anew.
  key.seed = std::chrono::duration_cast<std::chrono::milliseconds>(
                 std::chrono::system_clock::now().time_since_epoch())
                 .count();
  key.options = nlohmann::json{{"trial_of", draft.uuid}, {"policy", model.policy.text()}}.dump();
  TableTrial out;
  out.label = fmt::format("{}, {} threads", task.label, workload->threads);
  out.campaign = store->create_campaign(key, o.budget_s, o.command);
  ProgressMeter meter({o.database, out.campaign, o.budget_s, 0, !o.quiet, start});
  Runner runner(runner_options(o, target, cancel));
  CampaignContext context =
      measuring_context(o, *store, backend, runner, meter, account, on, model.policy, cancel);
  context.campaign = out.campaign;
  context.owner = owner_name();
  meter.task(out.label, 0);
  try {
    TaskRun run(context, task, workload->threads);
    {
      const Account::Span compiling(account, Activity::kCompile);
      run_jobs(run.default_jobs(), static_cast<size_t>(o.compile_threads));
    }
    run.take_default();
    if (run.baseline() <= 0)
      throw Error(Status::kUnsupported, task.label, run.report().note,
                  "nothing can be compared with a default schedule that fails");
    run.enter(plan::Phase::kVerify);
    out.result = run.try_draft(draft, options.activate, o.budget_s);
    out.noise = run.report().noise;
    run.enter(plan::Phase::kDone);
  } catch (const Error& e) {
    store->release(out.campaign, context.owner);
    store->set_campaign_state(out.campaign, e.status() == Status::kCancelled
                                                ? db::CampaignState::kInterrupted
                                                : db::CampaignState::kFailed);
    if (e.status() != Status::kCancelled) throw;
    out.interrupted = true;
    return out;
  }
  store->release(out.campaign, context.owner);
  store->set_campaign_state(out.campaign, db::CampaignState::kFinished);
  return out;
}

}  // namespace nimble::tuner
