// The service: tunes campaigns of a database with the workers that share it, several at once.
//
// It plans, compiles, signs and publishes; workers measure. They meet in the database alone, so
// either side may end at any moment and be started again. What it knows is made anew from there
// (campaign_service.h): after a lost connection or a full disk it does the same as after a kill.
//
// A campaign has one service at a time; others pass by it until it is free. Compiling, learning and
// expected results wait until nobody measures on this machine, and workers here wait meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tuner/service/backend.h"
#include "tuner/service/submission.h"
#include "tuner/trust/key.h"

namespace nimble::tuner {

// What a campaign is made of: load_submission of submission.h.
using LoadSubmission = std::function<Submission(db::Store&, const db::Uuid&)>;

struct ServiceOptions {
  std::string database;
  db::OpenOptions open;              // how the database is opened
  std::optional<db::Uuid> campaign;  // nothing: all that were submitted
  std::string key_name;              // of the key that signs
  std::string program;               // runs default schedules, for expected results
  std::string device = "cpu";        // whose lock is held
  int64_t poll_ms = 500;             // at most between two looks at the database
  // Without a worker for so long, a campaign that was told to stop ends without what nobody has
  // verified.
  double stop_patience_s = 60;
  int64_t hang_ms = 4000;
  int compile_threads = 2;
  bool once = false;  // ends when no campaign is left that it could serve
  // Called behind each look, for a file of figures or a test.
  std::function<void()> looked;
};

struct ServiceTally {
  int64_t finished = 0;  // campaigns that came to their end
  int64_t refused = 0;   // that cannot be served
  int64_t cases = 0;     // published
};

// Serves until told to stop, or as the options say; what was published stays in the queue. Errors:
// of the database, those that trying again does not mend; kIo if the machine's lock cannot be made.
// A campaign that cannot be served, or no longer, is told of and left alone.
ServiceTally serve_campaigns(const ServiceOptions& options, Backend& backend,
                             const trust::SigningKey& key, const LoadSubmission& load,
                             const std::atomic<bool>& cancel,
                             const std::function<void(const std::string&)>& say);

}  // namespace nimble::tuner
