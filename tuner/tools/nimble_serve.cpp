// nimble serve: tunes submitted campaigns with the workers of a database.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>

#include "db/store/identifier.h"
#include "db/store/open_existing.h"
#include "db/store/place.h"
#include "tuner/measure/runner.h"
#include "tuner/service/service.h"
#include "tuner/service/status.h"
#include "tuner/trust/records.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/interrupt.h"
#include "vm/base/file.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kMetricsEvery = std::chrono::seconds(10);

constexpr char kAbout[] =
    "Tunes the campaigns of a database that were submitted to it, several at once: plans, "
    "compiles\n"
    "and signs candidates, publishes them for workers, learns from what they measure, verifies "
    "the\n"
    "best on one machine and activates dispatch tables. It measures nothing itself.\n\n"
    "All that it knows is in the database. Started again, after Ctrl-C or a crash, it goes on "
    "where\n"
    "it was; a second service of the same database serves the campaigns that the first does not.";

constexpr char kEpilogue[] =
    "Examples:\n"
    "  nimble keys new planner\n"
    "  nimble serve --db tuning.db --key planner\n"
    "  nimble serve --db postgresql://planner@server/tuning --key planner --once\n\n"
    "Workers run only what is signed by a key that they trust (nimble keys trust). The database "
    "can\n"
    "also be named by the environment variable NIMBLE_DB. With --once it ends with exit code 1 if "
    "a\n"
    "campaign could not be served.";

int run(int argc, char** argv) {
  CLI::App app{kAbout, "nimble serve"};
  app.footer(kEpilogue);
  tuner::ServiceOptions options;
  std::string campaign, folder, metrics;
  app.add_option("--db", options.database, "The database, a file or a URL")
      ->check(read_by(db::require_place))
      ->envname("NIMBLE_DB")
      ->required()
      ->type_name("FILE|URL");
  app.add_option("--key", options.key_name, "The key that signs candidates (nimble keys list)")
      ->required()
      ->type_name("NAME");
  app.add_option("--keys", folder, "Where keys lie; default: NIMBLE_KEYS, ~/.config/…")
      ->type_name("FOLDER");
  app.add_option("--campaign", campaign, "Serve this one alone; default: all that were submitted")
      ->type_name("UUID");
  app.add_flag("--once", options.once, "End when there is no campaign left to serve");
  app.add_option("--poll", options.poll_ms, "At most between two looks at the database, in ms")
      ->capture_default_str()
      ->check(CLI::Range(1, 600'000));
  app.add_option("--metrics", metrics,
                 "Write OpenMetrics text there every ten seconds, for a node exporter's textfile "
                 "collector")
      ->type_name("FILE");
  app.add_option("--jobs", options.compile_threads, "Compilations at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  if (const auto code = parse_arguments(app, argc, argv, {kExitStale, kExitInterrupted}))
    return *code;
  // Before anything is published in vain.
  const trust::SigningKey key =
      trust::Keyring(folder.empty() ? trust::default_keyring_folder() : folder)
          .open(options.key_name);
  const std::unique_ptr<db::Store> store = db::open_to_write(options.database);
  for (const db::KeyRevocation& r : store->key_revocations())
    if (r.public_key == key.public_key())
      throw Error(Status::kInvalidArgument, "key " + options.key_name,
                  "is revoked in this database", "make another one: nimble keys new NAME");
  if (!campaign.empty())
    options.campaign =
        db::the_one(*store, db::Kind::kCampaign, campaign, "list them: nimble db campaigns");
  options.program = tuner::worker_program();
  if (!metrics.empty())
    options.looked = [&, due = Clock::now()]() mutable {
      if (Clock::now() < due) return;
      due = Clock::now() + kMetricsEvery;
      // Figures that cannot be written are no reason to end.
      try {
        write_file_atomically(
            metrics, tuner::open_metrics(tuner::fleet_status(*db::open_to_read(options.database))));
      } catch (const Error& e) {
        std::cerr << "nimble serve: no metrics: " << e.what() << '\n';
      }
    };
  const std::atomic<bool>& interrupted = note_interrupts();
  const auto backend = tuner::compiler_backend();
  const tuner::ServiceTally tally = tuner::serve_campaigns(
      options, *backend, key, tuner::load_submission, interrupted,
      [](const std::string& text) { std::cerr << "nimble serve: " << sayable(text) << '\n'; });
  std::cerr << fmt::format("nimble serve: {} campaigns finished, {} cases published\n",
                           tally.finished, tally.cases);
  if (interrupted) return kExitInterrupted;
  return tally.refused > 0 ? kExitFailure : kExitOk;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_database_program("nimble serve", [&] { return nimble::run(argc, argv); });
}
