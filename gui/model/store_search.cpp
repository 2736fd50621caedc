// A campaign's search, with each time over the default schedule's of the same session.
#include "gui/model/store_reader.h"
#include "vm/base/median.h"

namespace nimble::gui {

SearchFacts StoreReader::search(const db::Hash& workload, const db::Hash& hardware,
                                const db::Uuid& campaign, int64_t most, const Cancel& cancel) {
  SearchFacts out;
  out.campaign = campaign;
  if (campaign.empty()) {
    db::PageRequest last;
    last.filter.workload = workload;
    last.filter.hardware = hardware;
    last.limit = 1;
    for (const db::TrialRow& row : store_->trials(last)) out.campaign = row.trial.key.campaign;
  }
  if (out.campaign.empty()) return out;
  for (const db::Task& t : store_->tasks(out.campaign))
    if (t.workload == workload) {
      out.ranked = db::rank_correlations_of(t.detail);
      out.vendor = db::vendor_standing_of(t.detail);
    }
  TrialQuery query;
  query.campaign = out.campaign;
  query.workload = workload;
  std::vector<db::TrialOutcome> trials = Reader::trials(query, 0, most + 1, cancel);
  out.more = std::ssize(trials) > most;
  if (out.more) trials.resize(static_cast<size_t>(most));

  std::map<db::Uuid, const db::TrialOutcome*> by_uuid;
  for (const db::TrialOutcome& t : trials) by_uuid[t.trial.uuid] = &t;
  cancel.check();
  const std::vector<db::SessionTime> times = store_->session_times(out.campaign, workload);
  std::map<std::pair<db::Uuid, db::Hash>, double> defaults;  // of a session at a shape
  std::map<std::string, std::vector<double>> all_defaults;
  for (const db::SessionTime& t : times) {
    const auto of = by_uuid.find(t.trial);
    if (of == by_uuid.end() || of->second->trial.key.role != db::Role::kBaseline) continue;
    defaults[{t.host_state, of->second->trial.key.shape}] = t.median_ns;
    all_defaults[db::text_of(of->second->dims)].push_back(t.median_ns);
  }
  for (auto& [shape, ns] : all_defaults) out.default_ns[shape] = median_of(std::move(ns));
  std::map<db::Uuid, double> ratios;
  for (const db::SessionTime& t : times) {
    const auto of = by_uuid.find(t.trial);
    if (of == by_uuid.end()) continue;
    const auto beside = defaults.find({t.host_state, of->second->trial.key.shape});
    if (beside != defaults.end()) ratios[t.trial] = t.median_ns / beside->second;
  }
  for (db::TrialOutcome& t : trials) {
    if (t.trial.key.role != db::Role::kSearch && t.trial.key.role != db::Role::kBaseline) continue;
    const auto ratio = ratios.find(t.trial.uuid);
    out.trials.push_back(
        {std::move(t), ratio == ratios.end() ? std::nullopt : std::optional(ratio->second)});
  }
  return out;
}

}  // namespace nimble::gui
