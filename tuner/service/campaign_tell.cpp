// What a campaign's service tells whoever watches: how far tasks are, which machines are set aside,
// and the code of what its tables hold.
#include "tuner/measure/statistics.h"
#include "tuner/service/campaign_service.h"
#include "tuner/service/code_keeper.h"
#include "tuner/service/task_state.h"

namespace nimble::tuner {
namespace {

// Of a task that nobody was there to verify.
constexpr char kEndedAlone[] = "ended without a worker: no table holds what nobody verified";

}  // namespace

std::optional<double> ServiceTask::noise() const {
  std::vector<double> all;
  for (const auto& [point, a] : apart) all.push_back(a);
  if (all.empty()) return std::nullopt;
  return median_of(std::move(all));
}

void CampaignService::keep_code() {
  for (const ServiceTask& task : tasks_) {
    if (task.table.empty()) continue;
    std::vector<WantedCode> wanted;
    const db::DispatchTable table = *shared_.store.table(task.table);
    for (const db::DispatchEntry& e : table.entries)
      wanted.push_back({e.code_hash, task.publisher->records().candidate(e.config)});
    tuner::keep_code(shared_.store, shared_.backend, task.task->workload(), shared_.target, wanted,
                     static_cast<size_t>(std::max(1, shared_.compile_threads)));
  }
}

// What a task has come to, for whoever watches.
void CampaignService::tell_phases(bool unverified) {
  const std::vector<plan::TaskStatus> all = plan_->tasks();
  for (size_t t = 0; t < tasks_.size(); ++t) {
    ServiceTask& task = tasks_[t];
    const plan::TaskStatus& s = all[t];
    const std::string phase = plan::name_of(s.phase);
    const bool better = task.told_best == 0 || s.best_ratio < 0.99 * task.told_best;
    const bool ends_early = unverified && s.phase != plan::Phase::kDone;
    if (phase == task.told_phase && !better && !ends_early) continue;
    TaskState state{s.best_ratio, s.trials,  s.failed, s.share,
                    s.spent_s,    s.allot_s, s.judge,  task.noise()};
    state.pruned = s.pruned;
    double shares = 0;
    for (size_t p = 0; p < s.sizes_searched; ++p) shares += task.searched[p];
    for (size_t p = 0; p < s.sizes_searched; ++p)
      state.searched_at.emplace_back(dims_of(*task.task, task.points[p]),
                                     task.searched[p] / shares);
    state.rank_correlations = task.ranked;
    std::vector<db::BothSides> sizes;
    for (const auto& [p, both] : s.both_sides) {
      sizes.push_back(both);
      sizes.back().size = dims_of(*task.task, task.points[p]);
    }
    if (!sizes.empty()) state.vendor = db::standing_of(sizes);
    state.no_vendor = task.no_vendor;
    if (state.vendor && state.vendor->sizes == 0 && state.no_vendor.empty())
      state.no_vendor = db::kVendorUntried;
    state.note = ends_early ? kEndedAlone : s.note;
    shared_.store.enter_phase(task.uuid, phase, json_text(state),
                              state.share > 0 ? std::optional(state.share) : std::nullopt);
    task.told_phase = phase;
    task.told_best = s.best_ratio;
  }
}

// Set aside or no longer, at once; how it stood with each of several machines, at the end.
void CampaignService::tell_machines(bool ended) {
  const std::vector<plan::MachineStatus> all = plan_->machines();
  for (const plan::MachineStatus& m : all) {
    if (m.uuid.empty()) continue;
    const auto [told, fresh] = set_aside_.try_emplace(m.uuid, false);
    const bool turned = told->second != m.set_aside;
    if (!turned && !(ended && all.size() > 1)) continue;
    db::MachineVerdict v{"", uuid(), m.uuid, m.cases, m.apart, m.noise, m.slowness, m.set_aside};
    shared_.store.add(v);
    told->second = m.set_aside;
    if (turned)
      shared_.say(fmt::format("campaign {}: machine {} {}", uuid().substr(0, 8),
                              m.uuid.substr(0, 8),
                              m.set_aside ? fmt::format("is set aside: its times are {:.0f}% apart "
                                                        "from others of its kind",
                                                        100 * m.apart)
                                          : "agrees with the others again"));
  }
}

}  // namespace nimble::tuner
