#include "tuner/service/measuring.h"

#include <algorithm>
#include <cstdio>

#include "db/store/place.h"
#include "vm/base/cpu.h"
#include "vm/base/error.h"

namespace nimble::tuner {

MachineLock lock_machine(const CampaignOptions& options, const std::string& doing,
                         const std::atomic<bool>& cancel) {
  return MachineLock("cpu", doing + " " + db::printable_place(options.database), cancel,
                     [&](const std::string& holder) {
                       if (!options.quiet)
                         std::fprintf(stderr, "waiting: %s is measuring on this machine\n",
                                      holder.c_str());
                     });
}

RunnerOptions runner_options(const CampaignOptions& options, const kernels::TargetInfo& target,
                             const std::atomic<bool>& cancel) {
  RunnerOptions out;
  out.program = options.worker.empty() ? worker_program() : options.worker;
  out.hang_ms = options.hang_ms;
  out.gpu = target.is_gpu();
  out.cancel = &cancel;
  return out;
}

std::vector<int64_t> threads_of(const CampaignOptions& options, const kernels::TargetInfo& target) {
  if (target.is_gpu()) {
    for (const int64_t n : options.threads)
      if (n != 1)
        throw Error(Status::kInvalidArgument, fmt::format("--threads {}", n),
                    fmt::format("kernels of {} are started by one thread", target.level),
                    "leave --threads out");
    return {1};
  }
  if (options.threads.empty()) return {host_cpu().usable_threads()};
  std::vector<int64_t> out;
  for (const int64_t n : options.threads)
    if (std::find(out.begin(), out.end(), n) == out.end()) out.push_back(n);
  return out;
}

CampaignContext measuring_context(const CampaignOptions& options, db::Store& store,
                                  Backend& backend, Runner& runner, ProgressMeter& meter,
                                  Account& account, const TuningMachine& on, const Policy& policy,
                                  const std::atomic<bool>& cancel) {
  return {.store = store,
          .backend = backend,
          .runner = runner,
          .meter = meter,
          .account = account,
          .target = on.target,
          .hardware = store.put(on.hardware),
          .toolchain = store.put(on.toolchain),
          .machine = store.put(on.machine),
          .policy = policy,
          .seed = static_cast<uint64_t>(options.seed),
          .random_search = options.random_search,
          .compile_threads = options.compile_threads,
          .cancel = &cancel};
}

}  // namespace nimble::tuner
