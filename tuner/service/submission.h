// What a campaign is made of, as it lies in the database: a service needs no model file.
//
// `nimble campaigns submit` imports and lowers a model, and stores what is to be tuned: its
// workloads as text IR, the sizes with their weights, how operands are filled, and the target. The
// record is a blob; its digest stands in the options of the campaign's key ("submission"), so the
// same model submitted again is the same campaign, and merging databases carries it along.
//
// Who reads it trusts nobody: the record is parsed like any other file that somebody else wrote,
// and what is out of range is refused with its place (kCorrupt).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "db/store/store.h"
#include "tuner/measure/protocol.h"
#include "tuner/service/search_end.h"
#include "tuner/service/workloads.h"

namespace nimble::tuner {

// In the options of a submitted campaign's key: the digest of its record.
inline constexpr char kSubmissionOption[] = "submission";

struct Submission {
  std::vector<TuningTask> tasks;
  std::vector<int64_t> threads;  // each task is tuned for each of these
  std::string target;            // a level, "x86-64-v4"
  Policy policy;
  size_t top_k = 100;
  double only_hot = 1;  // share of the model's time that is tuned
  SearchEnd search_end;
  int64_t seed = 0;
};

// JSON, the same for the same submission.
std::string to_json(const Submission&);
// Error(kCorrupt) naming the place, (kUnsupported) for a later format.
Submission submission_of(const std::string& json);

// Stores the record, its dimensions, the campaign for this kind of hardware in state running, and
// its tasks (a task for each number of threads; db::Task). Submitted again it is the same campaign:
// a larger budget (machine-seconds) extends it. Returns its UUID.
db::Uuid submit(db::Store& store, const Submission& submission, const db::Hash& hardware,
                double budget_s, const std::string& command);
// Raises a campaign's budget (machine-seconds in all); one that is over goes on. A budget that is
// no larger changes nothing.
void extend(db::Store& store, const db::Campaign& campaign, double budget_s);
// Error(kNotFound) if there is no such campaign, (kUnsupported) if it is one of `nimble tune`,
// which keeps what it tunes to itself.
Submission load_submission(db::Store& store, const db::Uuid& campaign);

}  // namespace nimble::tuner
