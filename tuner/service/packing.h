// Campaigns that travel: to machines that reach neither a database nor a service, and have no
// compiler.
//
// Candidates are drawn, compiled, signed and handed out ahead, all of them, for whatever GPU that
// runs the target's code; there a worker takes them from the file that the database is, and writes
// what it finds into it. The file then merges into another database as any does. What is learnt on
// the way leads to no further candidate, and no table is made: there is nobody to do it.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "tuner/service/backend.h"
#include "tuner/service/submission.h"
#include "tuner/trust/key.h"

namespace nimble::tuner {

struct PackOptions {
  size_t candidates = 16;  // drawn ones of each workload, beside its default schedule
  std::string key_name;    // of the key that signs
  std::string program;     // runs default schedules, for expected results
  int compile_threads = 2;
};

struct Packed {
  db::Uuid campaign;
  int64_t jobs = 0;
  int64_t workloads = 0, left_out = 0;  // left out: they cannot be checked, or at no size
};

// The kind of hardware that the jobs of such a campaign are for, until a worker takes them: it
// stands for every GPU that runs the target's code, and is none itself.
db::Hardware any_gpu(const kernels::TargetInfo& target);

// Submits the campaign and hands out all of its cases. The first case of each workload and size is
// claimed before the second of any, so that what there is when time is up is of all. To be called
// under the machine's lock. Error(kUnsupported) if the target is no GPU's, if nothing here makes
// code for it, or if no workload can be measured; kCancelled once `cancel` is set.
Packed pack_campaign(db::Store& store, Backend& backend, const trust::SigningKey& key,
                     const Submission& submission, const PackOptions& options,
                     const std::string& command, const std::atomic<bool>& cancel,
                     const std::function<void(const std::string&)>& say);

}  // namespace nimble::tuner
