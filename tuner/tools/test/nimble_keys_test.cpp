// The program nimble-keys as a user meets it.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "db/store/test/fixture.h"
#include "vm/base/test/run_command.h"

namespace nimble::db {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class KeysProgram : public FileTest {
 protected:
  // As the user of one machine or another, each with a folder of keys of their own.
  CommandResult run(const std::string& arguments, const std::string& machine = "here") {
    return run_command(
        fmt::format("NIMBLE_KEYS={} {} {}", keys(machine), NIMBLE_KEYS_PROGRAM, arguments));
  }
  std::string keys(const std::string& machine) const { return folder + "/" + machine + "/keys"; }
  std::string make(const std::string& name, const std::string& machine = "here") {
    const CommandResult made = run("new " + name, machine);
    EXPECT_EQ(made.exit_code, 0) << made.out;
    return made.out.substr(0, 64);
  }
  nlohmann::json list(const std::string& machine = "here") {
    return nlohmann::json::parse(run("list --format json", machine).out);
  }
};

TEST_F(KeysProgram, HelpHasAnExampleOnEveryLevel) {
  EXPECT_THAT(run("--help").out, HasSubstr("Examples:"));
  for (const std::string sub : {"new", "list", "show", "trust", "distrust", "revoke", "check"}) {
    const CommandResult ran = run(sub + " --help");
    EXPECT_EQ(ran.exit_code, 0) << sub;
    EXPECT_THAT(ran.out, HasSubstr("Example:\n  nimble keys " + sub)) << sub;
  }
}

TEST_F(KeysProgram, WrongUsageExitsWithTwo) {
  for (const char* bad : {"", "nonsense", "new", "show", "trust", "revoke me", "list --format xml"})
    EXPECT_EQ(run(bad).exit_code, 2) << bad;
}

TEST_F(KeysProgram, AKeyIsMadeListedShownAndChecked) {
  EXPECT_THAT(run("list").out, HasSubstr("nimble keys new"));
  const std::string key = make("planner");
  struct stat info {};
  ASSERT_EQ(::stat((keys("here") + "/planner.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0600u);
  const auto all = list();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["key"], key);
  EXPECT_EQ(all[0]["name"], "planner");
  EXPECT_EQ(all[0]["own"], true);
  EXPECT_EQ(all[0]["trusted"], true);
  EXPECT_THAT(run("show " + key.substr(0, 6)).out, HasSubstr(key));
  EXPECT_THAT(run("show planner --format csv").out,
              HasSubstr("planner," + key + ",true,true,false,"));
  const CommandResult checked = run("check");
  EXPECT_EQ(checked.exit_code, 0) << checked.out;
  EXPECT_THAT(checked.out, AllOf(HasSubstr("planner signs; trusted here"),
                                 HasSubstr("1 key trusted, 0 revoked")));
  EXPECT_EQ(run("new planner").exit_code, 1) << "twice";
  EXPECT_EQ(run("show 0000000000").exit_code, 1);
}

TEST_F(KeysProgram, SomebodyElsesKeyIsTrustedWholeOnly) {
  const std::string key = make("planner", "there");
  const CommandResult part = run("trust " + key.substr(0, 32) + " --name planner");
  EXPECT_EQ(part.exit_code, 1);
  EXPECT_TRUE(list().empty());
  EXPECT_THAT(run("trust " + key).out, HasSubstr("give --name"));
  EXPECT_EQ(run("trust " + key + " --name planner").exit_code, 0);
  EXPECT_EQ(list()[0]["trusted"], true);
  EXPECT_EQ(list()[0]["own"], false);
  EXPECT_EQ(run("trust 01" + std::string(62, '0') + " --name x").exit_code, 1) << "no key";
  EXPECT_EQ(run("distrust " + key.substr(0, 8)).exit_code, 0);
  EXPECT_EQ(run("distrust " + key).exit_code, 1) << "twice";
  EXPECT_TRUE(list().empty());
}

TEST_F(KeysProgram, ARevokedKeyNeitherSignsNorIsTrustedAgain) {
  const std::string key = make("planner");
  EXPECT_EQ(run("revoke planner --reason 'laptop was stolen'").exit_code, 0);
  EXPECT_EQ(run("revoke planner --reason again").exit_code, 1);
  EXPECT_THAT(run("trust planner").out, HasSubstr("is revoked (laptop was stolen)"));
  EXPECT_THAT(run("check planner").out, HasSubstr("no key of yours that may sign"));
  EXPECT_THAT(run("check").out, HasSubstr("0 keys trusted, 1 revoked"));
  EXPECT_EQ(list()[0]["revoked"]["reason"], "laptop was stolen");
  // Of one that is not known here.
  const std::string far = make("far", "there");
  EXPECT_EQ(run("revoke " + far.substr(0, 20) + " --reason lost").exit_code, 1) << "not whole";
  EXPECT_EQ(run("revoke " + far + " --reason lost").exit_code, 0);
  EXPECT_THAT(run("trust " + far + " --name far").out, HasSubstr("is revoked (lost)"));
}

TEST_F(KeysProgram, ADatabaseIsToldOfKeysAndRevocationsAndTrustsNobody) {
  { open(); }
  const std::string db = " --db " + file();
  const std::string key = make("planner" + db, "there");
  EXPECT_TRUE(list().empty());
  const auto seen = nlohmann::json::parse(run("list --format json" + db).out);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["name"], "planner");
  EXPECT_EQ(seen[0]["database"], true);
  EXPECT_EQ(seen[0]["trusted"], false);
  EXPECT_THAT(run("show " + key.substr(0, 8) + db).out, HasSubstr(key));
  EXPECT_EQ(run("trust planner" + db).exit_code, 1) << "a name in a database proves nothing";
  EXPECT_EQ(run("trust " + key + " --name planner").exit_code, 0);
  EXPECT_THAT(run("check" + db).out, HasSubstr("1 key trusted, 0 revoked"));
  // Revoked there, it counts no more here.
  EXPECT_EQ(run("revoke planner --reason stolen" + db, "there").exit_code, 0);
  EXPECT_THAT(run("check" + db).out, HasSubstr("0 keys trusted, 1 revoked"));
  EXPECT_THAT(run("show planner" + db).out, HasSubstr(": stolen"));
  EXPECT_EQ(run("revoke planner --reason again" + db, "there").exit_code, 1);
  // A database that is not there: no key is made in vain.
  EXPECT_EQ(run("new other --db " + file("none")).exit_code, 1);
  EXPECT_EQ(run("show other").exit_code, 1);
}

TEST_F(KeysProgram, AKeyThatOthersMayReadIsRefusedByName) {
  make("planner");
  const std::string file = keys("here") + "/planner.key";
  ::chmod(file.c_str(), 0644);
  for (const char* command : {"list", "check", "show planner"}) {
    const CommandResult ran = run(command);
    EXPECT_EQ(ran.exit_code, 1);
    EXPECT_THAT(ran.out, AllOf(HasSubstr(file), HasSubstr("chmod 600"))) << command;
  }
}

TEST_F(KeysProgram, NothingPrintsTheSecret) {
  make("planner");
  const std::string text =
      run_command("sed -n 's/^secret //p' " + keys("here") + "/planner.key").out;
  const std::string secret = text.substr(0, text.find('\n'));
  ASSERT_EQ(secret.size(), 64u);
  for (const char* command : {"list", "list --format json", "show planner", "check"})
    EXPECT_THAT(run(command).out, Not(HasSubstr(secret))) << command;
}

}  // namespace
}  // namespace nimble::db
