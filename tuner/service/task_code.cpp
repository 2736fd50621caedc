// The code of what a campaign ends with, as text in the database: for those who ask why it is fast.
// Of finalists alone, since a campaign has thousands of candidates; each costs as much as compiling
// it once more.
#include <algorithm>

#include "tuner/service/jobs.h"
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

  struct Listed {
    std::string code_hash;
    const tuned::Candidate* candidate = nullptr;
    std::vector<CodeText> texts;
  };
  std::vector<Listed> listed;
  for (const db::Hash& config : configs) {
    const std::optional<db::Artifact> artifact =
        context_.store.artifact(builder_.at(config).artifact);
    if (!artifact || !context_.store.generated_code(artifact->code_hash).empty()) continue;
    listed.push_back({artifact->code_hash, &records_.candidate(config), {}});
  }
  // As many as there is time for, rounds of all threads at a time.
  const auto threads = static_cast<size_t>(std::max(1, context_.compile_threads));
  for (size_t begin = 0; begin < listed.size(); begin += threads) {
    const double left_s = context_.end_s - context_.meter.consumed_s();
    if (context_.cancelled() || left_s * 1e3 < builder_.ms_per_candidate()) return;
    const size_t end = std::min(listed.size(), begin + threads);
    std::vector<std::function<void()>> jobs;
    for (size_t i = begin; i < end; ++i)
      jobs.push_back([&, i] {
        listed[i].texts =
            context_.backend.code(task_.workload(), *listed[i].candidate, context_.target);
      });
    {
      const Account::Span compiling(context_.account, Activity::kCompile);
      run_jobs(jobs, threads);
    }
    context_.store.transaction([&] {
      for (size_t i = begin; i < end; ++i)
        for (const CodeText& c : listed[i].texts) {
          const std::span text(reinterpret_cast<const uint8_t*>(c.text.data()), c.text.size());
          context_.store.put(
              db::GeneratedCode{listed[i].code_hash, c.kind, context_.store.put_blob(text)});
        }
    });
  }
}

}  // namespace nimble::tuner
