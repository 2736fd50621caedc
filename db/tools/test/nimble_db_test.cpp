// The program nimble-db as a user meets it: output, exit codes, messages.
#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "db/store/migrations.h"
#include "db/store/sqlite.h"
#include "db/store/test/fixture.h"
#include "vm/base/test/run_command.h"

namespace nimble::db {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ProgramTest : public FileTest {
 protected:
  CommandResult run(const std::string& arguments) {
    return run_command(std::string(NIMBLE_DB_PROGRAM) + " " + arguments);
  }
  std::string db() const { return "--db " + file(); }
  void fill() {
    auto store = open();
    World world(*store);
    world.tried(*store, 8, 64, 120);
    world.tried(*store, 16, 64, 80);
    world.tried(*store, 16, 37, 60, Role::kCross);
    store->activate(store->create_table(world.draft(*store, 16)), "tuned");
    store->record_miss(world.workload_hash, world.hardware_hash, {{"m", 5}});
    campaign = world.campaign;
  }
  Uuid campaign;
};

TEST_F(ProgramTest, HelpHasExamplesOnEveryLevel) {
  EXPECT_THAT(run("--help").out, HasSubstr("Examples:"));
  for (const char* sub : {"show", "campaigns", "top", "export", "import", "check"}) {
    const CommandResult ran = run(std::string(sub) + " --help");
    EXPECT_EQ(ran.exit_code, 0) << sub;
    EXPECT_THAT(ran.out, HasSubstr("Example:\n  nimble db")) << sub;
  }
}

TEST_F(ProgramTest, UsageErrorsExitWithTwo) {
  for (const char* bad : {"", "nonsense", "show", "top --db x --limit 0", "show sideways --db x",
                          "show --db x --format xml", "export --db x"})
    EXPECT_EQ(run(bad).exit_code, 2) << bad;
  const std::pair<const char*, const char*> cases[] = {
      {"shw --db x",
       "nimble db: error: \"shw\" is not a subcommand; did you mean \"nimble db show\"?"},
      {"nonsense", "nimble db: error: \"nonsense\" is not a subcommand; see nimble db --help"},
      {"top --bd x", "nimble db: error: unknown option \"--bd\"; did you mean --db?"},
      {"top --db x --limit ten",
       "nimble db: error: --limit: \"ten\" is not a number above 0; see nimble db top --help"},
  };
  for (const auto& [arguments, message] : cases)
    EXPECT_EQ(run(arguments).out, std::string(message) + "\n");
}

TEST_F(ProgramTest, EveryViewInEveryFormat) {
  fill();
  for (const std::string view :
       {"show summary", "show hardware", "show toolchains", "show workloads", "show dispatch",
        "show misses", "campaigns", "top"}) {
    const CommandResult json = run(view + " " + db() + " --format json");
    EXPECT_EQ(json.exit_code, 0) << json.out;
    EXPECT_FALSE(nlohmann::json::parse(json.out).empty()) << view;
    EXPECT_THAT(run(view + " " + db() + " --format csv").out, HasSubstr(",")) << view;
    EXPECT_EQ(run(view + " " + db()).exit_code, 0) << view;
  }
  const CommandResult trials = run("show trials " + campaign + " " + db() + " --format json");
  EXPECT_EQ(nlohmann::json::parse(trials.out).size(), 3u);
  EXPECT_EQ(run("show trials " + db()).exit_code, 1);
  EXPECT_EQ(run("show trials nobody " + db()).exit_code, 1);
}

TEST_F(ProgramTest, TopRanksWithinAShape) {
  fill();
  auto rows = nlohmann::json::parse(
      run("top --workload dense --shape m=64 --limit 1 --format json " + db()).out);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["median_ns"], 80);
  EXPECT_EQ(rows[0]["config"], R"({"tile":16})");
  rows = nlohmann::json::parse(run("top --role cross --format json " + db()).out);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["shape"], "m=37");
  const CommandResult samples = run(
      "show measurement " + rows[0]["measurement"].get<std::string>() + " --format csv " + db());
  EXPECT_THAT(samples.out, StartsWith("sample,ns,outlier\n0,58.8,false\n"));
  EXPECT_EQ(run("top --workload unheard-of " + db()).exit_code, 1);
  EXPECT_EQ(run("top --role king " + db()).exit_code, 1);
  EXPECT_EQ(run("top --shape m " + db()).exit_code, 1);
}

TEST_F(ProgramTest, ExportImportCheck) {
  fill();
  EXPECT_EQ(run("export " + db() + " " + file("out")).exit_code, 0);
  const CommandResult again = run("export " + db() + " " + file("out"));
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.out, HasSubstr("exists already"));
  const std::string other = " --db " + file("other.db") + " ";
  EXPECT_EQ(run("import" + other + file("out")).exit_code, 0);
  EXPECT_THAT(run("import --format csv" + other + file("out")).out, HasSubstr(",0,0\n"));
  EXPECT_EQ(run("import --db " + file("third.db") + " " + file("missing")).exit_code, 1);
  EXPECT_FALSE(std::filesystem::exists(file("third.db"))) << "made for nothing";
  std::ofstream(file("text")) << "no database";
  EXPECT_EQ(run("import --db " + file("third.db") + " " + file("text")).exit_code, 1);
  for (const auto& f :
       std::filesystem::directory_iterator(std::filesystem::path(file("text")).parent_path()))
    EXPECT_THAT(f.path().filename().string(), Not(StartsWith("third.db"))) << "left behind";
  const CommandResult checked = run("check" + other);
  EXPECT_EQ(checked.exit_code, 0);
  EXPECT_THAT(checked.out, StartsWith("sound:"));
}

TEST_F(ProgramTest, ErrorsAreOneLineWithARemedy) {
  const CommandResult missing = run("show " + db());
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.out,
              StartsWith("nimble db: error: " + file() + ": there is no such database; "));
  EXPECT_EQ(std::count(missing.out.begin(), missing.out.end(), '\n'), 1);
  { open(); }
  SqliteConnection(file(), SQLITE_OPEN_READWRITE, "", "x").script("PRAGMA user_version = 99");
  EXPECT_EQ(run("show " + db()).exit_code, 5) << "a newer schema is an incompatible database";
}

// The same commands on a database of a server.
class ServerProgramTest : public PostgresTest {
 protected:
  CommandResult run(const std::string& arguments) {
    return run_command(std::string(NIMBLE_DB_PROGRAM) + " " + arguments);
  }
  // Quoted: a URL has what means something to a shell.
  std::string db(const std::string& name = "tuning.db") { return "--db '" + place(name) + "' "; }
};

TEST_F(ServerProgramTest, ShowExportImportCheck) {
  {
    auto store = open();
    World world(*store);
    world.tried(*store, 8, 64, 120);
  }
  EXPECT_EQ(nlohmann::json::parse(run("top --format json " + db()).out).size(), 1u);
  EXPECT_EQ(run("export " + db() + file("out")).exit_code, 0);
  EXPECT_EQ(run("import " + db("second") + file("out")).exit_code, 0);
  EXPECT_THAT(run("import --format csv --db " + file("third.db") + " '" + place() + "'").out,
              Not(HasSubstr(",0,0\n")));
  for (const std::string& name : {db(), db("second"), "--db " + file("third.db")}) {
    const CommandResult checked = run("check " + name);
    EXPECT_EQ(checked.exit_code, 0) << checked.out;
    EXPECT_THAT(checked.out, StartsWith("sound:"));
  }
}

TEST_F(ServerProgramTest, ASharedDatabaseIsMigratedOnRequest) {
  migrate(*connection(), 6, [] { return int64_t{5}; });
  for (const char* reads : {"show ", "check ", "campaigns "}) {
    const CommandResult refused = run(reads + db());
    EXPECT_EQ(refused.exit_code, 5) << refused.out;
    EXPECT_THAT(refused.out, HasSubstr("nimble db check --migrate"));
  }
  EXPECT_EQ(run("check --migrate " + db()).exit_code, 0);
  EXPECT_EQ(run("show " + db()).exit_code, 0);
}

TEST_F(ServerProgramTest, PasswordsAreNotPrinted) {
  const CommandResult ran =
      run("show --db 'postgresql://me:secret@127.0.0.1:1/none?connect_timeout=1'");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.out,
              StartsWith("nimble db: error: postgresql://me@127.0.0.1:1/none: cannot be "));
  EXPECT_THAT(ran.out, Not(HasSubstr("secret")));
}

TEST_F(ProgramTest, StaleTablesAreFoundWithExitCodeFive) {
  fill();
  {
    auto store = open();
    World world(*store);
    Toolchain newer = world.toolchain;
    ++newer.codegen_version;
    store->put(newer);
  }
  const CommandResult stale = run("check " + db());
  EXPECT_EQ(stale.exit_code, 5);
  EXPECT_THAT(stale.out, HasSubstr("tuned with code generator 3, the newest here is 4"));
}

}  // namespace
}  // namespace nimble::db
