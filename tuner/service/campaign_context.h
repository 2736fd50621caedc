// What all tasks of a campaign share while one process tunes them.
#pragma once

#include <atomic>
#include <cmath>
#include <functional>
#include <mutex>
#include <string>

#include "db/store/store.h"
#include "tuner/measure/runner.h"
#include "tuner/service/account.h"
#include "tuner/service/backend.h"
#include "tuner/service/progress.h"
#include "tuner/service/search_end.h"
#include "tuner/service/work_cache.h"
#include "vm/base/host_state.h"

namespace nimble::tuner {

// How long things took against how long they were thought to take, in s.
struct Pace {
  double expected = 0, spent = 0;
  double ratio() const { return expected > 0 ? spent / expected : 1; }
};

struct CampaignContext {
  db::Store& store;
  Backend& backend;
  Runner& runner;
  ProgressMeter& meter;
  Account& account;
  const kernels::TargetInfo& target;
  db::Uuid campaign;
  std::string owner;  // of leases
  db::Hash hardware, toolchain;
  db::Uuid machine;
  Policy policy;
  uint64_t seed = 0;
  bool random_search = false;
  int compile_threads = 2;
  HostWatch host;
  WorkCache* cache = nullptr;  // null: a kill loses what was compiled
  const std::atomic<bool>* cancel = nullptr;
  double end_s = HUGE_VAL;    // of the campaign, on the meter's clock
  std::mutex runner_turn;     // the runner serves one thread at a time
  Pace searching, finishing;  // of candidates, and of sizes in the phases behind the search
  SearchEnd search_end = {};
  std::function<void()> progressed;  // a round or a size is done: what is told may be mended
  bool cancelled() const { return cancel && cancel->load(); }
};

}  // namespace nimble::tuner
