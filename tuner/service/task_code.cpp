// The code of what a task ends with, as long as there is time for it.
#include <algorithm>

#include "tuner/service/code_keeper.h"
#include "tuner/service/task_run.h"

namespace nimble::tuner {

void TaskRun::keep_code(const db::NewDispatchTable& table) {
  // Who is asked for first comes first.
  std::vector<db::Hash> configs;
  const auto want = [&](const db::Hash& config) {
    if (builder_.has(config) && std::find(configs.begin(), configs.end(), config) == configs.end())
      configs.push_back(config);
  };
  for (const db::DispatchEntry& e : table.entries) want(e.config);
  want(records_.default_config());
  for (const auto& [config, times] : verified_) want(config);

  std::vector<WantedCode> wanted;
  for (const db::Hash& config : configs)
    if (const auto artifact = context_.store.artifact(builder_.at(config).artifact))
      wanted.push_back({artifact->code_hash, records_.candidate(config)});
  // As many as there is time for, rounds of all threads at a time.
  const auto threads = static_cast<size_t>(std::max(1, context_.compile_threads));
  for (size_t begin = 0; begin < wanted.size(); begin += threads) {
    const double left_s = context_.end_s - context_.meter.consumed_s();
    if (context_.cancelled() || left_s * 1e3 < builder_.ms_per_candidate()) return;
    const Account::Span compiling(context_.account, Activity::kCompile);
    const auto from = wanted.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto count = static_cast<std::ptrdiff_t>(std::min(threads, wanted.size() - begin));
    tuner::keep_code(context_.store, context_.backend, task_.workload(), context_.target,
                     {from, from + count}, threads);
  }
}

}  // namespace nimble::tuner
