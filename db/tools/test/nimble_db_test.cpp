// The program nimble-db as a user meets it: output, exit codes, messages.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "db/store/migrations.h"
#include "db/store/sqlite.h"
#include "db/tools/test/program_fixture.h"

namespace nimble::db {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(ProgramTest, HelpHasExamplesOnEveryLevel) {
  EXPECT_THAT(run("--help").out, HasSubstr("Examples:"));
  for (const char* sub : {"show", "campaigns", "top", "ceilings", "peers", "diff", "export",
                          "import", "roles", "clean", "check"}) {
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
       "nimble db: error: \"shw\" is not a subcommand; did you "
       "mean \"nimble db show\"?"},
      {"nonsense",
       "nimble db: error: \"nonsense\" is not a subcommand; see "
       "nimble db --help"},
      {"top --bd x", "nimble db: error: unknown option \"--bd\"; did you mean --db?"},
      {"top --db x --limit ten",
       "nimble db: error: --limit: \"ten\" is not a "
       "number above 0; see nimble db top --help"},
  };
  for (const auto& [arguments, message] : cases)
    EXPECT_EQ(run(arguments).out, std::string(message) + "\n");
}

TEST_F(ProgramTest, NoErrorTellsThePasswordOfAUrl) {
  const std::string url = "postgresql://me:secret@127.0.0.1:1/x";
  fill();
  for (const std::string& arguments :
       {url, "show summary uuid " + url, "export " + db() + " " + url, "import " + db() + " " + url,
        std::string("show --db postgress://me:secret@host/x"), "show --db " + url}) {
    const CommandResult ran = run(arguments);
    EXPECT_NE(ran.exit_code, 0) << arguments;
    EXPECT_THAT(ran.out, AllOf(HasSubstr("me@"), Not(HasSubstr("secret")))) << arguments;
  }
}

TEST_F(ProgramTest, ADiffEndsWithFourIfSomethingIsSlower) {
  fill();
  std::string other;
  {
    auto store = open();
    World world(*store);
    CampaignKey key = world.key;
    key.seed = 8;
    world.campaign = other = store->create_campaign(key, 300, "nimble tune m");
    world.tried(*store, 16, 64, 100);
  }
  const CommandResult slower = run("diff " + campaign + " " + other + " " + db());
  EXPECT_EQ(slower.exit_code, 4);
  EXPECT_THAT(slower.out, AllOf(HasSubstr("1 shape in common: time +25.0 % ("),
                                HasSubstr("1 slower, 0 faster")));
  const CommandResult faster =
      run("diff " + other.substr(0, 8) + " " + campaign.substr(0, 8) + " --format csv " + db());
  EXPECT_EQ(faster.exit_code, 0);
  EXPECT_THAT(faster.out, AllOf(StartsWith("workload,shape,policy"), HasSubstr(",faster,")));
  EXPECT_EQ(run("diff " + campaign + " " + other + " --smallest 0.5 " + db()).exit_code, 0);
  EXPECT_EQ(run("diff " + campaign + " " + other + " --workload dense " + db()).exit_code, 4);
  // What is not there, or has nothing in common.
  EXPECT_THAT(run("diff " + campaign + " 0000 " + db()).out, HasSubstr("no campaign begins so"));
  EXPECT_THAT(run("diff " + campaign + " " + other + " --workload softmax " + db()).out,
              HasSubstr("no workload is named so"));
  EXPECT_EQ(run("diff " + campaign + " " + other + " --by colour " + db()).exit_code, 2);
  EXPECT_EQ(run("diff Xeon Xeon --by hardware " + db()).exit_code, 0) << "with itself";
  EXPECT_EQ(run("diff 19.1 abc --by toolchain " + db()).exit_code, 0) << "a version, a revision";
  EXPECT_THAT(run("diff 19.1 nothing --by toolchain " + db()).out, HasSubstr("is no toolchain"));
}

TEST_F(ProgramTest, RecordsGoThroughTextAndBack) {
  fill();
  {
    auto store = open();
    const World world(*store);
    store->put(HostState{"", "quote \" comma , line\nend", {}, true, "\xff\xfe", 0.1, 1.0 / 3});
    store->put(HostState{"", "hex:no", {}, true, "", 0, 0});
    store->add(CostModel{"", world.campaign, world.workload_hash, 1, {0, 1, 255}, {}});
    store->add(Correctness{"",
                           store->put(Artifact{"c", world.workload_hash, world.config(*store, 8),
                                               world.toolchain_hash, 1, 1}),
                           world.shape(*store, 64), std::nan(""), 1e-6, false});
  }
  for (const std::string kind : {"json", "csv"}) {
    const std::string text = file(kind), back = file(kind + ".db");
    const CommandResult written = run("export " + db() + " --as " + kind + " " + text);
    ASSERT_EQ(written.exit_code, 0) << written.out;
    EXPECT_EQ(run("export " + db() + " --as " + kind + " " + text).exit_code, 1) << "again";
    const CommandResult read = run("import --db " + back + " " + text);
    ASSERT_EQ(read.exit_code, 0) << read.out;
    EXPECT_THAT(run("import --db " + back + " --format csv " + text).out, HasSubstr(",0,0\n"))
        << "twice is once";
    // The same in every row: neither has anything that the other lacks.
    EXPECT_THAT(run("import " + db() + " --format csv " + back).out, HasSubstr(",0,0\n"));
    EXPECT_THAT(run("import --db " + back + " --format csv " + file()).out, HasSubstr(",0,0\n"));
    EXPECT_EQ(run("top --format json --db " + back).out, run("top --format json " + db()).out);
    EXPECT_EQ(run("check --db " + back).exit_code, 0);
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      EXPECT_THAT(entry.path().filename().string(),
                  AllOf(Not(HasSubstr("tmp")), Not(HasSubstr("records"))));
  }
}

TEST_F(ProgramTest, TextThatWasChangedIsNotImported) {
  fill();
  ASSERT_EQ(run("export " + db() + " --as json " + file("j")).exit_code, 0);
  std::ifstream in(file("j"));
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    std::ofstream(file("bad")) << text.replace(at, from.size(), to);
    return run("import --db " + file("new.db") + " " + file("bad"));
  };
  const std::pair<const char*, const char*> cases[] = {
      {"\"version\":1", "\"version\":2"},
      {"\"schema\":", "\"schema\":9"},
      {"\"schema\":", "\"schema\":0.0,\"x\":"},
      {"\"origin\"", "\"orogin\""},
      {"\"isa\":\"x86", "\"isa\":\"y86"},
      {"\"isa\":\"", "\"isa\":1,\"x\":\""},
      {"\"isa\"", "\"asi\""},
      {"\"table\":\"hardware\"", "\"table\":\"x\""},
      {"\"ns\":[", "\"ns\":[-1,"},
      {"\"outlier\":[0", "\"outlier\":[2"},
      {"\"tile\\\":8", "\"tile\\\":9"},
      {"\"role\":\"search\"", "\"role\":\"chief\""},
      {"}\n", "}}\n"},
  };
  for (const auto& [from, to] : cases) {
    const CommandResult ran = changed(from, to);
    EXPECT_NE(ran.exit_code, 0) << from << " became " << to;
    EXPECT_THAT(ran.out, HasSubstr("bad")) << "names the file";
    EXPECT_FALSE(std::filesystem::exists(file("new.db")));
  }
  EXPECT_EQ(changed("records", "records").exit_code, 0) << "unchanged it is";
  // Tables of another folder, or none.
  std::filesystem::create_directory(file("empty"));
  EXPECT_THAT(run("import --db " + file("new2.db") + " " + file("empty")).out,
              HasSubstr("records.csv is missing"));
  EXPECT_EQ(run("export " + db() + " --as csv --force " + file("c")).exit_code, 1);
  // What is called like a folder in the making is somebody's, and stays.
  std::filesystem::create_directory(file("c.tmp"));
  std::ofstream(file("c.tmp/mine")) << "mine";
  EXPECT_EQ(run("export " + db() + " --as csv " + file("c")).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(file("c.tmp/mine")));
  EXPECT_FALSE(std::filesystem::exists(file("c/mine")));
  EXPECT_EQ(run("export " + db() + " --as xml " + file("c")).exit_code, 2);
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

// What is read becomes a file first. In a folder that all may write to somebody could lay one there
// beforehand, or a link to what the user has elsewhere.
TEST_F(ServerProgramTest, NothingIsImportedThroughAFileOfAnother) {
  {
    auto store = open();
    World world(*store);
    world.tried(*store, 8, 64, 120);
  }
  ASSERT_EQ(run("export " + db() + "--as json " + file("out")).exit_code, 0);
  std::filesystem::create_directory(file("temporary"));
  const CommandResult ran = run_command(
      fmt::format("sh -c 'cd {0}/temporary && ln -s {0}/victim nimble-records.tmp-$$ && "
                  "TMPDIR={0}/temporary exec {1} import {2} {0}/out' 2>&1",
                  std::filesystem::path(file("out")).parent_path().string(), NIMBLE_DB_PROGRAM,
                  "--db \"" + place("second") + "\""));
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_FALSE(std::filesystem::exists(file("victim")));
  // And nothing is left behind.
  size_t left = 0;
  for (const auto& f : std::filesystem::directory_iterator(file("temporary")))
    left += !f.is_symlink();
  EXPECT_EQ(left, 0u);
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
