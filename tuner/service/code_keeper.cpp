#include "tuner/service/code_keeper.h"

#include <set>

#include "tuner/service/jobs.h"

namespace nimble::tuner {

void keep_code(db::Store& store, Backend& backend, const kernels::Workload& workload,
               const kernels::TargetInfo& target, const std::vector<WantedCode>& wanted,
               size_t threads) {
  std::vector<const WantedCode*> missing;
  std::set<std::string> seen;
  for (const WantedCode& w : wanted)
    if (!w.code_hash.empty() && seen.insert(w.code_hash).second &&
        store.generated_code(w.code_hash).empty())
      missing.push_back(&w);
  std::vector<std::vector<CodeText>> texts(missing.size());
  std::vector<std::function<void()>> jobs;
  for (size_t i = 0; i < missing.size(); ++i)
    jobs.push_back([&, i] { texts[i] = backend.code(workload, missing[i]->candidate, target); });
  run_jobs(jobs, threads);
  store.transaction([&] {
    for (size_t i = 0; i < missing.size(); ++i)
      for (const CodeText& c : texts[i]) {
        const std::span text(reinterpret_cast<const uint8_t*>(c.text.data()), c.text.size());
        store.put(db::GeneratedCode{missing[i]->code_hash, c.kind, store.put_blob(text)});
      }
  });
}

}  // namespace nimble::tuner
