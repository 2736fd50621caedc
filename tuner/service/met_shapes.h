// From the shapes of a model's runs in production, as `nimble run --record-shapes` or the C
// interface (nimble_session_shapes_json) tells them, to the shapes that its workloads met.
#pragma once

#include <string>
#include <vector>

#include "tuner/service/campaign.h"

namespace nimble::tuner {

struct MetShapesOptions {
  CampaignOptions model;  // what it is imported from, target and threads
  std::string file;       // a table, or JSON of the C interface
  std::string entry;      // of JSON: the entry point; empty: the first that has symbols
  std::string source;     // whose counts they are; empty: this host's file of that name
};

// Of one workload on a number of threads.
struct MetWorkload {
  db::Hash workload;
  std::string label;
  int64_t threads = 1;
  int64_t shapes = 0, runs = 0;  // of the model, in which it met them
};

struct MetShapesReport {
  int64_t runs = 0;
  std::vector<MetWorkload> workloads;
  std::vector<std::string> left_out;  // with the reason
};

// Stores the counts for this machine's kind of hardware. Those of one source only grow: adding a
// file again, or again when it is longer, counts nothing twice. Errors of the importer and of
// parse_trace(); kInvalidArgument for a file that names no symbol of the model.
MetShapesReport count_met_shapes(db::Store& store, const MetShapesOptions& options);

// The trace that the JSON of nimble_session_shapes_json tells. Error(kCorrupt, kInvalidArgument).
Trace trace_of_session(const std::string& json, const std::string& file, const std::string& entry);

}  // namespace nimble::tuner
