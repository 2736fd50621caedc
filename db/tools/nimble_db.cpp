// nimble db: look into a tuning database, merge it, check it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "db/store/filesystem.h"
#include "db/store/place.h"
#include "db/store/store.h"
#include "db/tools/show.h"
#include "vm/arguments/command_line.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

constexpr const char* kEpilogue = R"(Examples:
  nimble db show --db tuning.db
  nimble db show dispatch --db tuning.db --format json
  nimble db show measurement UUID --db tuning.db --format csv
  nimble db campaigns --db tuning.db
  nimble db top --db tuning.db --workload dense --shape m=64 --limit 5
  nimble db export --db tuning.db records.nimbledb
  nimble db import --db tuning.db records.nimbledb
  nimble db check --db tuning.db
  nimble db show --db postgresql://me@server/tuning

The database can also be named by the environment variable NIMBLE_DB.
Exit codes: 0 ok, 1 failure, 2 usage, 5 stale or incompatible database.)";

struct Arguments {
  std::string db;
  Format format = Format::kTable;
  std::string what = "summary", key;
  std::string file;
  bool force = false, migrate = false;
  TopOptions top;
};

std::unique_ptr<Store> open(const Arguments& args, bool write) {
  OpenOptions options;
  options.create = false;
  options.read_only = !write;
  options.migrate_shared = args.migrate;
  return Store::open(args.db, options);
}

void print(const Output& output, const Arguments& args) {
  output.print(std::cout, args.format);
}

int show(const Arguments& args) {
  const bool keyed = args.what == "measurement" || args.what == "trials";
  if (keyed == args.key.empty())
    throw Error(Status::kInvalidArgument, "show",
                keyed ? fmt::format("'{}' needs a UUID", args.what)
                      : fmt::format("'{}' takes no UUID", args.what),
                keyed ? "for example: nimble db show trials CAMPAIGN" : "leave it out");
  auto store = open(args, false);
  if (args.what == "summary") print(show_summary(*store), args);
  if (args.what == "hardware") print(show_hardware(*store), args);
  if (args.what == "toolchains") print(show_toolchains(*store), args);
  if (args.what == "workloads") print(show_workloads(*store), args);
  if (args.what == "dispatch") print(show_dispatch(*store), args);
  if (args.what == "misses") print(show_misses(*store), args);
  if (args.what == "measurement") print(show_measurement(*store, args.key), args);
  if (args.what == "trials") print(show_trials(*store, args.key), args);
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

int import(const Arguments& args) {
  if (!names_server(args.file)) check_database_place(args.file, false, true);
  const bool exists = names_server(args.db) || std::filesystem::exists(args.db);
  const ImportReport report =
      exists ? import_into(args.db, args.file) : import_into_new(args.db, args.file);
  Output out({"origin", "rows_added", "rows_updated"});
  out.add({report.origin, report.rows_added, report.rows_updated});
  print(out, args);
  return kExitOk;
}

int export_records(const Arguments& args) {
  auto store = open(args, false);
  store->export_to(args.file, args.force);
  Output out({"file", "origin"});
  out.add({args.file, store->identity()});
  print(out, args);
  return kExitOk;
}

int check(const Arguments& args) {
  const CheckReport report = open(args, args.migrate)->check();
  Output out({"kind", "finding"});
  for (const std::string& problem : report.problems) out.add({"problem", problem});
  for (const std::string& stale : report.stale) out.add({"stale", stale});
  if (out.empty() && args.format == Format::kTable)
    std::cout << "sound: pages, keys, samples and invariants hold; nothing is stale\n";
  else
    print(out, args);
  if (!report.sound()) return kExitFailure;
  return report.stale.empty() ? kExitOk : kExitStale;
}

int run(int argc, char** argv) {
  CLI::App app{"Look into a tuning database, merge it, check it.", "nimble db"};
  app.require_subcommand(1);
  app.footer(kEpilogue);
  Arguments args;
  const std::map<std::string, Format> formats{
      {"table", Format::kTable}, {"json", Format::kJson}, {"csv", Format::kCsv}};

  auto command = [&](const char* name, const char* description, const char* example) {
    CLI::App* sub = app.add_subcommand(name, description);
    sub->add_option("--db", args.db, "The database: a file, or a URL of PostgreSQL")
        ->required()
        ->envname("NIMBLE_DB")
        ->type_name("FILE|URL");
    sub->add_option("--format", args.format, "How to print: table, json or csv")
        ->transform(CLI::CheckedTransformer(formats).description(""))
        ->type_name("FORMAT");
    sub->footer(fmt::format("Example:\n  {}", example));
    return sub;
  };

  CLI::App* show_command = command("show", "Print one view of the database",
                                   "nimble db show dispatch --db tuning.db --format json");
  show_command
      ->add_option("what", args.what,
                   "summary (default), hardware, toolchains, workloads, dispatch, misses, "
                   "trials CAMPAIGN, measurement UUID")
      ->check(CLI::IsMember({"summary", "hardware", "toolchains", "workloads", "dispatch", "misses",
                             "trials", "measurement"})
                  .description(""))
      ->type_name("VIEW");
  show_command->add_option("uuid", args.key, "A campaign or measurement")->type_name("UUID");

  CLI::App* campaigns_command = command("campaigns", "List the tuning campaigns, newest first",
                                        "nimble db campaigns --db tuning.db");

  CLI::App* top_command = command("top", "Print the fastest configurations of each shape",
                                  "nimble db top --db tuning.db --workload dense --shape m=64");
  top_command->add_option("--workload", args.top.workload,
                          "Hash, its beginning, or part of the workload's text");
  top_command->add_option("--shape", args.top.shape, "Only this shape, for example m=64,n=128");
  top_command->add_option("--role", args.top.role, "Only search, cross, verify or baseline");
  top_command->add_option("--limit", args.top.limit, "How many per shape")
      ->capture_default_str()
      ->check(number_above_zero().description(""));

  CLI::App* export_command =
      command("export", "Write everything to one portable SQLite file, without leases",
              "nimble db export --db tuning.db records.nimbledb");
  export_command->add_option("file", args.file, "The file to write")->required();
  export_command->add_flag("--force", args.force, "Replace the file if it exists");

  CLI::App* import_command =
      command("import", "Add what a file has and the database lacks; all or nothing",
              "nimble db import --db tuning.db records.nimbledb");
  import_command->add_option("file", args.file, "An export, or another database, a file or a URL")
      ->required();

  CLI::App* check_command =
      command("check", "Check pages, keys, samples and invariants; list stale dispatch tables",
              "nimble db check --db tuning.db");
  check_command->add_flag(
      "--migrate", args.migrate,
      "Bring an older schema up to date first. A database on a server is brought up to\n"
      "date in no other way: programs older than that refuse it afterwards");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return exit_of_arguments(app, error);
  }
  if (*show_command) return show(args);
  if (*campaigns_command) {
    print(show_campaigns(*open(args, false)), args);
    return kExitOk;
  }
  if (*top_command) {
    print(show_top(*open(args, false), args.top), args);
    return kExitOk;
  }
  if (*export_command) return export_records(args);
  if (*import_command) return import(args);
  return check(args);
}

}  // namespace
}  // namespace nimble::db

int main(int argc, char** argv) {
  return nimble::run_database_program("nimble db", [&] { return nimble::db::run(argc, argv); });
}
