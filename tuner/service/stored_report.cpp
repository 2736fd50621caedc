#include "tuner/service/stored_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tuner/service/task_state.h"

namespace nimble::tuner {
namespace {

constexpr char kDefaultKept[] = "keeps the default schedule";

void read_trials(TaskReport& report, const std::vector<db::TrialOutcome>& outcomes) {
  for (const db::TrialOutcome& o : outcomes) {
    if (!db::is_final(o.trial.state)) continue;
    ++report.trials;
    report.failed += o.trial.state != db::TrialState::kOk;
    report.pruned += o.trial.error_class == db::kPruned;
  }
}

// When a table was made, and the campaign's next one: between these the task spoke of this one.
struct Reign {
  int64_t from = 0, until = 0;  // until is no part of it
};

// What the task said last: of itself, and of the times of the table that it had then. A process
// that went on without searching it anew had nothing to say of those.
void read_state(TaskReport& report, const std::vector<db::TaskPhase>& phases, const Reign& reign) {
  if (!phases.empty()) {
    const TaskState last = task_state_from_json(phases.back().detail);
    report.share = last.share;
    report.spent_s = last.spent_s;
    report.ranked = last.rank_correlations;
    report.searched_at = last.searched_at;
    report.vendor = last.vendor;
    report.no_vendor = last.no_vendor;
    report.noise = last.noise;
    report.note = last.note;
  }
  for (const db::TaskPhase& p : phases) {
    const TaskState state = task_state_from_json(p.detail);
    if (p.created_at < reign.from || p.created_at >= reign.until || state.best_ns <= 0) continue;
    report.default_ns = state.default_ns;
    report.best_ns = state.best_ns;
    report.k = static_cast<size_t>(std::max<int64_t>(0, state.k));
    report.regret = state.regret;
    report.worst_regret = state.worst_regret;
    report.single_regret = state.single_regret;
  }
}

}  // namespace

TaskReport stored_report(db::Store& store, const db::Uuid& campaign,
                         const db::NewDispatchTable& slot, const db::Task* task) {
  TaskReport report;
  report.workload = slot.workload;
  read_trials(report, store.outcomes(campaign, slot.workload));
  const std::optional<db::Uuid> active = store.active_in_slot(slot);
  std::optional<db::DispatchTable> made;
  Reign reign;
  int64_t next = std::numeric_limits<int64_t>::max();
  for (db::DispatchTable& t : store.tables(slot.workload, slot.hardware)) {  // the newest first
    if (t.campaign != campaign || t.toolchain != slot.toolchain || t.policy != slot.policy)
      continue;
    const int64_t made_at = t.created_at;
    if (!made || t.uuid == active) {
      made = std::move(t);
      reign = {made_at, next};
    }
    next = made_at;
  }
  read_state(report, task ? store.phases(task->uuid) : std::vector<db::TaskPhase>{}, reign);
  // Where it made none, another campaign's may serve.
  if (!made && active) made = store.table(*active);
  if (!made) {
    if (report.note.empty()) report.note = kDefaultKept;
    return report;
  }
  report.table = made->uuid;
  report.entries = made->entries.size();
  // What the last process had to say of a task that it left alone is not what the task is now.
  const std::string said = std::exchange(report.note, "");
  if (made->uuid == active) return report;
  const std::string name = made->uuid.substr(0, 8);
  if (said.find(name) != std::string::npos)
    report.inactive = said.substr(0, said.find("; to use it: "));  // which older versions appended
  else
    report.inactive = fmt::format("table {} is stored, not active{}", name,
                                  active ? fmt::format(": {} is", active->substr(0, 8)) : "");
  return report;
}

}  // namespace nimble::tuner
