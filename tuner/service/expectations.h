// What a task's workload should compute at each of its points: found by the oracle once, several
// points side by side, and kept in the cache of work for the process after a kill. It is part of
// the case that is measured there (protocol.h).
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tuner/service/builder.h"

namespace nimble::tuner {

class Expectations {
 public:
  Expectations(CampaignContext& context, TaskRecords& records, Builder& builder,
               const TaskCache& cache)
      : context_(context), records_(records), builder_(builder), cache_(cache) {}

  // Of a point that is possible.
  const Expectation& at(size_t point) const { return found_.at(point); }
  // Whether the workload can meet this size; then its expected result is at hand. Where the
  // reference fails (an index behind the last of a table's rows) the model would have, too. A size
  // at which the default schedule is wrong is left out and reported.
  bool possible(size_t point);
  // Whether that was found out before, by this process or by one before it.
  bool at_hand(size_t point);
  // Points that cannot be, and why.
  const std::map<size_t, std::string>& impossible() const { return impossible_; }

  // What finds out about a point; does not touch anything but a place of its own, so that several
  // may run side by side. Then take() puts what they found to use. Error(kCancelled) from there
  // once the campaign is, and what the reference says if it lacks an operator.
  std::function<void()> job(size_t point);
  void take();
  // Finds out about the first of these that are unknown, as many as there are threads.
  void prepare(const std::vector<size_t>& points);

  // The default schedule is wrong at an element that its check did not look at: asks the reference
  // for the whole result, however long it takes.
  void correct(size_t point, const EntryResult& disagreement);
  // Gives back what can be had again from the cache of work.
  void release_memory() { found_.clear(); }

 private:
  struct Pending {  // what a job found
    std::optional<Expectation> value;
    std::exception_ptr fault;
  };
  std::string key(size_t point) const;
  std::optional<Expectation> recall(size_t point) const;
  void keep(size_t point, Expectation e);
  // What the default schedule computes at a size; nothing if it could not be built or fails.
  std::optional<std::vector<std::vector<uint8_t>>> default_result(size_t point);

  CampaignContext& context_;
  TaskRecords& records_;
  Builder& builder_;
  const TaskCache& cache_;
  std::map<size_t, Expectation> found_;
  std::map<size_t, std::string> impossible_;
  std::mutex pending_mutex_;
  std::map<size_t, Pending> pending_;
};

}  // namespace nimble::tuner
