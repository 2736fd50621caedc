// The worker's half: runs kernels of loaded executables on test data, checks their results, then
// takes their time.
//
// Order within a case: every entry is checked against the expected result first; only those that
// are right are timed. Timing goes in rounds; in each round every live entry takes one sample, in
// an order drawn anew, so that a drift of the machine meets all alike. One sample is a batch of
// runs, long enough for the clock. After a few rounds an entry beyond race_factor times the best
// is dropped (its samples are kept); an entry ends when the interval of its median is narrow at one
// of the looks that StopRule allows. Kernels are called as the VM calls them, dispatch tree and
// parallel region included; the bytecode around a kernel, equal for all candidates, is left out.
//
// Test data stays for the next case if that needs the same: the rounds of a search do, and the
// weights of a workload are the same at all sizes.
//
// Kernels of a GPU have their data there and are timed by its clock (gpu_runnable.cpp). One that
// ends the device for this process (a fault of the hardware) ends what was asked for with the
// driver's error, whatever was asked for: the process is of no more use.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "tuner/measure/protocol.h"
#include "vm/interpreter/model.h"
#include "vm/runtime/thread_pool.h"

namespace nimble::tuner {

class Arguments;  // of a case, in memory
class Blocks;
class Weights;

class Bench {
 public:
  // `gpu`: of candidates that run there, and no code of the CPU's.
  explicit Bench(Progress* progress, bool gpu = false);
  ~Bench();

  // Takes a serialised executable; returns its number of kernels.
  uint32_t load(uint32_t id, std::span<const uint8_t> bytes);
  void drop(uint32_t id) { models_.erase(id); }

  // Calls `done` with each entry's result as soon as it is final.
  CaseCost measure(const Case& c, const std::function<void(const EntryResult&)>& done);

  // What the case's one entry writes on the test data. Error: what the kernel failed with.
  std::vector<std::vector<uint8_t>> run(const Case& c);

 private:
  rt::ThreadPool& pool(int32_t threads);
  void at(Phase phase, uint32_t entry);
  const std::shared_ptr<const rt::Model>& model_of(const EntryRef& e) const;
  void forget_ready();
  // Forgets the data of another device.
  void be_on(rt::Device& device);
  Arguments& arguments_for(const rt::PreparedKernel& kernel, const Case& c);

  Progress* progress_;
  const bool gpu_;
  struct Kept;  // the last case's arguments and what they were made for
  std::unique_ptr<Kept> kept_;
  std::shared_ptr<Blocks> blocks_;
  std::shared_ptr<Weights> weights_;
  std::map<uint32_t, std::shared_ptr<const rt::Model>> models_;
  std::map<int32_t, std::unique_ptr<rt::ThreadPool>> pools_;
};

}  // namespace nimble::tuner
