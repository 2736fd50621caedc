#include "tuner/service/fresh_search.h"

#include <algorithm>

#include "tuner/search/search.h"

namespace nimble::tuner {
namespace {

constexpr size_t kPerRound = 16;

std::optional<double> fastest_of(const EntryResult& r) {
  if (r.state != EntryState::kOk || r.samples_ns.empty()) return std::nullopt;
  return *std::min_element(r.samples_ns.begin(), r.samples_ns.end());
}

}  // namespace

std::optional<std::vector<db::Hash>> fresh_search(CampaignContext& context, TaskRecords& records,
                                                  const FreshSearchOptions& options,
                                                  const TimeAtShape& time,
                                                  const std::function<bool()>& over) {
  SearchOptions how;
  how.seed = options.seed;
  how.threads = static_cast<int>(records.threads());
  how.shapes = {options.symbols};
  how.jobs = context.compile_threads;
  Search search(records.space(), how);
  const TaskCache nowhere(nullptr, "");
  Builder builder(context, records, nowhere);
  const db::Hash anchor = records.default_config();
  std::optional<double> unit;  // the default's time in the first round
  for (size_t tried = 0; tried < options.trials;) {
    if (over()) return std::nullopt;
    const std::vector<Proposal> proposals =
        search.propose(std::min(kPerRound, options.trials - tried));
    if (proposals.empty()) break;  // the space is used up
    tried += proposals.size();
    std::vector<db::Hash> configs = {anchor};
    for (const Proposal& p : proposals)
      if (const db::Hash config = records.put(p.candidate); config != anchor)
        configs.push_back(config);
    const std::map<db::Hash, std::string> failed = builder.build(configs, {});
    if (failed.contains(anchor) || over()) return std::nullopt;
    std::erase_if(configs, [&](const db::Hash& c) { return failed.contains(c); });
    for (const auto& [config, why] : failed) search.tell(records.candidate(config), std::nullopt);
    // As a campaign's search does.
    std::erase_if(configs, [&](const db::Hash& c) {
      const bool pruned = builder.why_not_measured(c).has_value();
      if (pruned) search.tell(records.candidate(c), std::nullopt), --tried;
      return pruned;
    });
    const std::vector<EntryResult> results = time(builder, configs);
    const std::optional<double> own = fastest_of(results.at(0));
    if (!own) return std::nullopt;
    if (!unit) {
      unit = own;
      search.tell(records.default_candidate(), *own);
    }
    // Rounds lie apart in time: each is compared with the default that ran beside it.
    for (size_t i = 1; i < configs.size(); ++i) {
      const std::optional<double> ns = fastest_of(results.at(i));
      search.tell(records.candidate(configs[i]),
                  ns ? std::optional<double>(*ns / *own * *unit) : std::nullopt);
    }
    search.learn();
  }
  std::vector<db::Hash> out;
  for (const auto& [candidate, ns] : search.best(options.keep))
    out.push_back(records.put(candidate));
  return out;
}

}  // namespace nimble::tuner
