// What operators see of campaigns and workers: read from the database alone, so anybody who may
// read it may ask, whether a service runs or not.
#pragma once

#include <string>
#include <vector>

#include "db/store/store.h"

namespace nimble::tuner {

struct CampaignStatus {
  db::Campaign campaign;
  bool served = false;  // by a service; else it is one of `nimble tune`
  db::CampaignProgress trials;
  db::OpenJobs jobs;
  std::vector<db::Task> tasks;  // the largest share first
  std::vector<db::Consumption> machines;
  std::vector<db::MachineVerdict> verdicts;  // of machines whose times were compared
  std::vector<db::Control> requests;         // open ones, the oldest first
};

struct FleetStatus {
  int64_t at_ms = 0;  // the time of day when it was read
  std::vector<CampaignStatus> campaigns;
  std::vector<db::LiveWorker> workers;  // heard of within two minutes
};

// Whether a campaign has a record that a service can read (submission.h).
bool is_submitted(const db::Campaign&);
CampaignStatus status_of(db::Store&, const db::Campaign&);
// The campaigns that are not over, at most `most` of them, the newest first; and all live workers.
FleetStatus fleet_status(db::Store&, int64_t most = 100);

// The same as OpenMetrics text (version 1.0.0), for a file that a node exporter's textfile
// collector reads.
std::string open_metrics(const FleetStatus&);

}  // namespace nimble::tuner
