// nimble db: look into a tuning database, merge it, check it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>

#include "db/store/filesystem.h"
#include "db/store/place.h"
#include "db/store/roles.h"
#include "db/store/store.h"
#include "db/store/text_records.h"
#include "db/tools/ceilings.h"
#include "db/tools/diff.h"
#include "db/tools/peers.h"
#include "db/tools/show.h"
#include "db/tools/t4.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/table.h"
#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/base/json_text.h"

namespace nimble::db {
namespace {

constexpr const char* kEpilogue = R"(Examples:
  nimble db show --db tuning.db
  nimble db show dispatch --db tuning.db --format json
  nimble db show measurement 90ab --db tuning.db --format csv
  nimble db campaigns --db tuning.db
  nimble db top --db tuning.db --workload dense --shape m=64 --limit 5
  nimble db export --db tuning.db records.nimbledb
  nimble db export --db tuning.db --as csv records
  nimble db export --db tuning.db --t4 3f2a --workload dense results.json
  nimble db import --db tuning.db records.nimbledb
  nimble db diff 3f2a 77c0 --db tuning.db
  nimble doctor --measure --format json | nimble db ceilings --add - --db tuning.db
  nimble db peers --add experiments/results/minilm.json --db tuning.db
  nimble db check --db tuning.db
  nimble db clean --days 90 --reason "disk" --db tuning.db
  nimble db show --db postgresql://me@server/tuning

The database can also be named by the environment variable NIMBLE_DB.)";

struct Arguments {
  std::string db;
  Format format = Format::kTable;
  std::string what = "summary", key;
  std::string file;
  bool force = false, migrate = false, dry_run = false, is_t4 = false;
  std::string reason;
  std::string report, machine;       // of ceilings
  std::vector<std::string> results;  // of peers
  std::string run;
  double days = 0;
  TopOptions top;
  DiffOptions diff;
  T4Options t4;
  std::optional<TextFormat> as;  // nothing: SQLite
};

std::unique_ptr<Store> open(const Arguments& args, bool write) {
  OpenOptions options;
  // Who may bring a shared database up to date may make its tables, too.
  options.create = args.migrate && names_server(args.db);
  options.read_only = !write;
  options.migrate_shared = args.migrate;
  return Store::open(args.db, options);
}

void print(const Table& table, const Arguments& args) {
  table.print(std::cout, args.format);
}

int show(const Arguments& args) {
  auto store = open(args, false);
  if (args.what == "summary") print(show_summary(*store), args);
  if (args.what == "hardware") print(show_hardware(*store), args);
  if (args.what == "toolchains") print(show_toolchains(*store), args);
  if (args.what == "workloads") print(show_workloads(*store), args);
  if (args.what == "dispatch") print(show_dispatch(*store), args);
  if (args.what == "shapes") print(show_shapes(*store), args);
  if (args.what == "misses") print(show_misses(*store), args);
  if (args.what == "measurement") print(show_measurement(*store, args.key), args);
  if (args.what == "trials") print(show_trials(*store, args.key), args);
  if (args.what == "models") print(show_models(*store, args.key), args);
  return kExitOk;
}

ImportReport import_into(const std::string& database, const std::string& file) {
  return Store::open(database, OpenOptions{})->import_from(file);
}

// A database that begins with an import gets its name once the import has succeeded.
ImportReport import_into_new(const std::string& database, const std::string& file) {
  namespace fs = std::filesystem;
  check_database_place(database, true, false);
  const std::string made = fmt::format("{}.import-{}", database, ::getpid());
  const auto remove = [&] {
    std::error_code ignored;
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(made + suffix, ignored);
  };
  try {
    const ImportReport report = import_into(made, file);
    std::error_code error;
    fs::create_hard_link(made, database, error);  // unlike a rename never over another file
    if (error == std::errc::file_exists)
      throw Error(Status::kIo, database, "was made by another program meanwhile", "import again");
    if (error) fs::rename(made, database);
    remove();
    return report;
  } catch (const fs::filesystem_error& e) {
    remove();
    throw Error(Status::kIo, database, fmt::format("cannot be made ({})", e.code().message()),
                "name a place that you may write to");
  } catch (...) {
    remove();
    throw;
  }
}

ImportReport import_database(const Arguments& args, const std::string& file) {
  const bool exists = names_server(args.db) || std::filesystem::exists(args.db);
  return exists ? import_into(args.db, file) : import_into_new(args.db, file);
}

// What is no database becomes one first, which is then judged as any is.
ImportReport import_text_records(const Arguments& args) {
  // In a folder that all may write to another's file could be there already, or a link.
  std::optional<PrivateFolder> folder;
  if (names_server(args.db)) folder.emplace();
  const TemporaryFile records(folder ? folder->path() + "/records" : args.db + ".records");
  try {
    if (args.is_t4)
      import_t4(args.file, args.t4.workload, *Store::open(records.path()));
    else
      import_text(args.file, records.path());
    return import_database(args, records.path());
  } catch (const Error& e) {
    if (e.place() != records.path()) throw;
    throw Error(e.status(), args.file, e.problem(), e.remedy());
  }
}

int import(const Arguments& args) {
  require_place(args.file);
  const bool text = args.is_t4 || (!names_server(args.file) && is_text_export(args.file));
  if (!names_server(args.file) && !text) check_database_place(args.file, false, true);
  const ImportReport report = text ? import_text_records(args) : import_database(args, args.file);
  Table out({"origin", "rows_added", "rows_updated"});
  out.add({report.origin, report.rows_added, report.rows_updated});
  print(out, args);
  return kExitOk;
}

int export_records(const Arguments& args) {
  auto store = open(args, false);
  if (!args.t4.campaign.empty()) {
    const std::string text = json_text(t4_of(*store, args.t4)) + "\n";
    check_export_place(args.file, names_server(args.db) ? "" : store->path(), args.force);
    write_file_atomically(args.file, text);
  } else if (args.as) {
    if (args.force)
      throw Error(Status::kInvalidArgument, "--force", "replaces exports as SQLite alone",
                  "name a place where nothing is yet");
    check_export_place(args.file, "", false);
    const TemporaryFile records(args.file + ".records");
    store->export_to(records.path());
    export_text(records.path(), *args.as, args.file);
  } else {
    store->export_to(args.file, args.force);
  }
  Table out({"file", "origin"});
  out.add({args.file, store->identity()});
  print(out, args);
  return kExitOk;
}

int ceilings(const Arguments& args) {
  auto store = open(args, !args.report.empty());
  if (!args.report.empty()) {
    const bool piped = args.report == "-";
    const std::string text = piped ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                                   : read_text_file(args.report);
    add_ceilings(*store, text, piped ? "standard input" : args.report, args.machine);
  }
  print(show_ceilings(*store, args.machine), args);
  return kExitOk;
}

int peers(const Arguments& args) {
  auto store = open(args, !args.results.empty());
  for (const std::string& file : args.results)
    add_peers(*store, read_text_file(file), file, args.machine);
  print(args.run.empty() ? show_peer_runs(*store) : show_peers(*store, args.run), args);
  return kExitOk;
}

int diff(const Arguments& args) {
  const Diff found = show_diff(*open(args, false), args.diff);
  print(found.rows, args);
  std::cerr << found.summary << '\n';
  return found.regressed ? kExitRegression : kExitOk;
}

int check(const Arguments& args) {
  const CheckReport report = open(args, args.migrate)->check();
  Table out({"kind", "finding"});
  for (const std::string& problem : report.problems) out.add({"problem", problem});
  for (const std::string& stale : report.stale) out.add({"stale", stale});
  if (out.empty() && args.format == Format::kTable)
    std::cout << "sound: pages, keys, samples and invariants hold; nothing is stale\n";
  else
    print(out, args);
  if (!report.sound()) return kExitFailure;
  return report.stale.empty() ? kExitOk : kExitStale;
}

int clean(const Arguments& args) {
  auto store = open(args, true);
  RetentionRequest request;
  request.older_than_ms = static_cast<int64_t>(args.days * 24 * 3600 * 1000);
  request.reason = args.reason;
  request.dry_run = args.dry_run;
  if (args.dry_run) request.limit = 1'000'000;
  RetentionReport total;
  for (bool more = true; more;) {
    const RetentionReport some = store->remove_old(request);
    total.samples += some.samples;
    total.kept += some.kept;
    total.blobs += some.blobs;
    total.jobs += some.jobs;
    total.events += some.events;
    more = some.more;
    request.from = some.next;
  }
  Table out({"samples", "candidates", "jobs", "events", "kept"});
  out.add({total.samples, total.blobs, total.jobs, total.events, total.kept});
  print(out, args);
  return kExitOk;
}

// A subcommand, which all but `roles` begin so.
CLI::App* add_command(CLI::App& app, Arguments& args, const char* name, const char* description,
                      const char* example) {
  CLI::App* sub = app.add_subcommand(name, description);
  sub->add_option("--db", args.db, "The database: a file, or a URL of PostgreSQL")
      ->required()
      ->check(read_by(require_place))
      ->envname("NIMBLE_DB")
      ->type_name("FILE|URL");
  add_format(*sub, &args.format);
  sub->footer(fmt::format("Example:\n  {}", example));
  return sub;
}

// What runs if the subcommand was given.
using Run = std::function<int()>;
using Commands = std::vector<std::pair<CLI::App*, Run>>;

void add_show(CLI::App& app, Arguments& args, Commands& commands) {
  CLI::App* sub = add_command(app, args, "show", "Print one view of the database",
                              "nimble db show dispatch --db tuning.db --format json");
  sub->add_option("what", args.what,
                  "summary (default), hardware, toolchains, workloads, dispatch, shapes that "
                  "production met, misses (those without a table), trials CAMPAIGN, "
                  "models CAMPAIGN (how well its cost models ranked, by round), measurement UUID")
      ->check(CLI::IsMember({"summary", "hardware", "toolchains", "workloads", "dispatch", "shapes",
                             "misses", "trials", "models", "measurement"})
                  .description(""))
      ->type_name("VIEW");
  sub->add_option("uuid", args.key,
                  "A campaign or a measurement, of which four characters or more are enough")
      ->type_name("UUID");
  commands.emplace_back(sub, [&] {
    const bool keyed = args.what == "measurement" || args.what == "trials" || args.what == "models";
    if (keyed != args.key.empty()) return show(args);
    return usage_error(app, keyed ? fmt::format("{} needs a UUID", args.what)
                                  : fmt::format("{} takes no UUID", args.what));
  });
}

void add_campaigns(CLI::App& app, Arguments& args, Commands& commands) {
  CLI::App* sub = add_command(app, args, "campaigns", "List the tuning campaigns, newest first",
                              "nimble db campaigns --db tuning.db");
  commands.emplace_back(sub, [&] {
    print(show_campaigns(*open(args, false)), args);
    return kExitOk;
  });
}

void add_top(CLI::App& app, Arguments& args, Commands& commands) {
  CLI::App* sub = add_command(app, args, "top", "Print the fastest configurations of each shape",
                              "nimble db top --db tuning.db --workload dense --shape m=64");
  sub->add_option("--workload", args.top.workload,
                  "Hash, its beginning, or part of the workload's text");
  sub->add_option("--shape", args.top.shape, "Only this shape, for example m=64,n=128")
      ->check(read_by(dims_from_text));
  sub->add_option("--role", args.top.role,
                  fmt::format("Only those of one role: {}", fmt::join(role_names(), ", ")))
      ->check(CLI::IsMember(role_names()).description(""))
      ->type_name("ROLE");
  sub->add_option("--limit", args.top.limit, "How many per shape")
      ->capture_default_str()
      ->check(number_above_zero().description(""));
  commands.emplace_back(sub, [&] {
    print(show_top(*open(args, false), args.top), args);
    return kExitOk;
  });
}

void add_export(CLI::App& app, Arguments& args, Commands& commands) {
  CLI::App* sub =
      add_command(app, args, "export", "Write everything to one portable file, without leases",
                  "nimble db export --db tuning.db records.nimbledb");
  sub->add_option("file", args.file, "The file to write")->required();
  CLI::Option* t4 =
      sub->add_option("--t4", args.t4.campaign,
                      "Instead the trials of this campaign for one workload as JSON in the T4\n"
                      "format of auto-tuning results")
          ->type_name("CAMPAIGN");
  sub->add_option("--workload", args.t4.workload,
                  "With --t4: its hash, the hash's beginning, or part of its text")
      ->needs(t4);
  sub->add_option("--shape", args.t4.shape, "With --t4: only this, for example m=64")
      ->needs(t4)
      ->check(read_by(dims_from_text).description(""));
  const std::map<std::string, std::optional<TextFormat>> kinds{
      {"sqlite", std::nullopt}, {"json", TextFormat::kJson}, {"csv", TextFormat::kCsv}};
  sub->add_option_function<std::string>(
         "--as", [&args, kinds](const std::string& name) { args.as = kinds.at(name); },
         "sqlite (default), json (a file of lines) or csv (a folder): all can be imported")
      ->check(CLI::IsMember({"sqlite", "json", "csv"}).description(""))
      ->type_name("KIND")
      ->excludes(t4);
  sub->add_flag("--force", args.force, "Replace the file if it exists");
  commands.emplace_back(sub, [&] { return export_records(args); });
}

void add_import(CLI::App& app, Arguments& args, Commands& commands) {
  CLI::App* sub =
      add_command(app, args, "import", "Add what a file has and the database lacks; all or nothing",
                  "nimble db import --db tuning.db records.nimbledb");
  sub->add_option("file", args.file, "An export of any kind, or another database, a file or a URL")
      ->required();
  CLI::Option* is_t4 = sub->add_flag(
      "--t4", args.is_t4,
      "The file is of the T4 format: results of another tuner become a campaign to look at and\n"
      "to compare; the compiler takes nothing from them");
  sub->add_option("--workload", args.t4.workload,
                  "With --t4: what was tuned, if the file does not say")
      ->needs(is_t4);
  commands.emplace_back(sub, [&] { return import(args); });
}

void add_clean(CLI::App& app, Arguments& args, Commands& commands) {
  CLI::App* sub = add_command(
      app, args, "clean",
      "Remove what is old and only explains: raw samples (their summaries stay), bytes of\n"
      "candidates, ended jobs, old events; never what a dispatch table, an override or a\n"
      "baseline rests on",
      "nimble db clean --days 90 --reason disk --dry-run --db tuning.db");
  sub->add_option("--days", args.days, "Older than this many days")
      ->required()
      ->check(number_above_zero().description(""));
  sub->add_option("--reason", args.reason, "Kept with what goes")->required();
  sub->add_flag("--dry-run", args.dry_run, "Only count");
  commands.emplace_back(sub, [&] { return clean(args); });
}

void add_diff(CLI::App& app, Arguments& args, Commands& commands) {
  CLI::App* sub = add_command(
      app, args, "diff",
      "Compare two campaigns, kinds of hardware or toolchains at the shapes that both have;\n"
      "exit code 4 if anything is slower",
      "nimble db diff 3f2a 77c0 --db tuning.db --smallest 0.05");
  const std::map<std::string, DiffBy> sides{{"campaign", DiffBy::kCampaign},
                                            {"hardware", DiffBy::kHardware},
                                            {"toolchain", DiffBy::kToolchain}};
  sub->add_option("a", args.diff.a,
                  "The earlier side: the beginning of its identifier; of hardware part of\n"
                  "its name, of a toolchain its version or revision")
      ->required();
  sub->add_option("b", args.diff.b, "The later side")->required();
  sub->add_option("--by", args.diff.by, "What they are: campaign, hardware or toolchain")
      ->transform(CLI::CheckedTransformer(sides).description(""))
      ->type_name("KIND");
  sub->add_option("--workload", args.diff.workload,
                  "Only this: its hash, the hash's beginning, or part of its text");
  sub->add_option("--smallest", args.diff.smallest,
                  "The smallest difference that matters; 0.02 is two per cent")
      ->capture_default_str()
      ->check(number_from_zero().description(""));
  commands.emplace_back(sub, [&] { return diff(args); });
}

void add_ceilings(CLI::App& app, Arguments& args, Commands& commands) {
  CLI::App* sub = add_command(
      app, args, "ceilings",
      "List what machines can do at most, by kind, type and number of threads: the roofs of\n"
      "rooflines",
      "nimble db ceilings --add machine.json --db tuning.db");
  sub->add_option("--add", args.report,
                  "First store those of this report of nimble doctor --measure --format json;\n"
                  "- is standard input")
      ->type_name("FILE");
  sub->add_option(
         "--machine", args.machine,
         "Only of this machine, or the report's: the beginning of its UUID (default: all,\n"
         "and with --add this one)")
      ->type_name("UUID");
  commands.emplace_back(sub, [&] { return ceilings(args); });
}

void add_peers(CLI::App& app, Arguments& args, Commands& commands) {
  CLI::App* sub = add_command(
      app, args, "peers",
      "List the runs of experiments that compared nimble with its peers on whole models, or the\n"
      "figures of one; figures of different runs are never compared",
      "nimble db peers --add experiments/results/minilm.json --db tuning.db");
  sub->add_option("run", args.run, "The run whose figures are listed: the beginning of its UUID")
      ->type_name("UUID");
  sub->add_option("--add", args.results,
                  "First store the figures of this result file of experiments/run; one that is\n"
                  "added again adds nothing")
      ->type_name("FILE");
  sub->add_option("--machine", args.machine,
                  "With --add: the machine that they were measured on, by the beginning of its\n"
                  "UUID (default: this one)")
      ->type_name("UUID");
  commands.emplace_back(sub, [&] { return peers(args); });
}

void add_roles(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand(
      "roles",
      "Print SQL that makes the roles of a shared database: nimble_reader, nimble_worker, which\n"
      "measures and can neither publish nor control, and nimble_planner. Run it as the owner,\n"
      "also after a migration, and grant them to people's own roles");
  sub->footer(
      "Example:\n  nimble db roles | psql postgresql://owner@server/tuning\n"
      "  psql postgresql://owner@server/tuning -c 'GRANT nimble_worker TO box7'");
  commands.emplace_back(sub, [] {
    std::cout << roles_sql();
    return kExitOk;
  });
}

void add_check(CLI::App& app, Arguments& args, Commands& commands) {
  CLI::App* sub = add_command(
      app, args, "check", "Check pages, keys, samples and invariants; list stale dispatch tables",
      "nimble db check --db tuning.db");
  sub->add_flag(
      "--migrate", args.migrate,
      "Bring an older schema up to date first, or make the tables of a new database on a\n"
      "server. One that has older ones there is brought up to date in no other way: "
      "programs\n"
      "older than that refuse it afterwards");
  commands.emplace_back(sub, [&] { return check(args); });
}

int run(int argc, char** argv) {
  CLI::App app{"Look into a tuning database, merge it, check it.", "nimble db"};
  app.require_subcommand(1);
  app.footer(kEpilogue);
  Arguments args;
  Commands commands;
  add_show(app, args, commands);
  add_campaigns(app, args, commands);
  add_top(app, args, commands);
  add_export(app, args, commands);
  add_import(app, args, commands);
  add_clean(app, args, commands);
  add_diff(app, args, commands);
  add_ceilings(app, args, commands);
  add_peers(app, args, commands);
  add_roles(app, commands);
  add_check(app, args, commands);
  if (const auto code = parse_arguments(app, argc, argv, {kExitRegression, kExitStale}))
    return *code;
  for (const auto& [sub, go] : commands)
    if (*sub) return go();
  NIMBLE_UNREACHABLE("a subcommand is required");
}

}  // namespace
}  // namespace nimble::db

int main(int argc, char** argv) {
  return nimble::run_database_program("nimble db", [&] { return nimble::db::run(argc, argv); });
}
