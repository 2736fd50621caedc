// The program nimble-dispatch as a user meets it.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "db/store/test/fixture.h"
#include "vm/base/test/run_command.h"

namespace nimble::db {
namespace {

using testing::HasSubstr;
using testing::Not;

class DispatchProgram : public FileTest {
 protected:
  CommandResult run(const std::string& arguments) {
    return run_command(fmt::format("{} {} --db {}", NIMBLE_DISPATCH_PROGRAM, arguments, file()));
  }
  // An active table of tile 8; tile 16 was measured, too.
  void fill() {
    auto store = open();
    World world(*store);
    world.tried(*store, 16, 64, 80);
    table = store->create_table(world.draft(*store, 8));
    store->activate(table, "tuned");
    other = world.config(*store, 16);
  }
  Uuid table;
  Hash other;
};

TEST_F(DispatchProgram, AnOverrideIsLaidShownAndWithdrawn) {
  fill();
  EXPECT_THAT(run("overrides").out, HasSubstr("no override is in force"));
  const CommandResult made = run("override " + table + " --region m=17..64 --config " +
                                 other.substr(0, 12) + " --reason 'noisy neighbour'");
  ASSERT_EQ(made.exit_code, 0) << made.out;
  const auto list = nlohmann::json::parse(run("overrides --format json").out);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["region"], nlohmann::json::parse(R"({"m":[17,64]})"));
  EXPECT_EQ(list[0]["knobs"]["tile"], 16);
  EXPECT_EQ(list[0]["reason"], "noisy neighbour");
  EXPECT_TRUE(list[0].contains("measurement"));
  const auto id = list[0]["override"].get<std::string>();
  EXPECT_THAT(made.out, HasSubstr("nimble dispatch withdraw " + id.substr(0, 8)));
  EXPECT_THAT(run("show " + table).out, HasSubstr("noisy neighbour"));
  EXPECT_THAT(run("show " + table).out, HasSubstr("measured warm"));
  EXPECT_THAT(run("overrides --format csv").out, HasSubstr("noisy neighbour"));
  // An entry's shapes, and all shapes.
  EXPECT_EQ(run("override " + table + " 0 --config " + other + " --reason r").exit_code, 0);
  EXPECT_EQ(run("override " + table + " --region all --config " + other + " --reason r").exit_code,
            0);
  EXPECT_EQ(nlohmann::json::parse(run("overrides --format json").out).size(), 3u);

  EXPECT_EQ(run("withdraw " + id).exit_code, 2) << "without a reason";
  EXPECT_EQ(run("withdraw " + id.substr(0, 13) + " --reason quiet").exit_code, 0);
  EXPECT_EQ(run("withdraw " + id + " --reason quiet").exit_code, 1) << "twice";
  EXPECT_THAT(run("overrides").out, Not(HasSubstr(id.substr(0, 8))));
  EXPECT_THAT(run("overrides --all").out, HasSubstr("quiet"));
}

TEST_F(DispatchProgram, ATableIsNamedByFourCharactersOrMore) {
  fill();
  const CommandResult whole = run("show " + table + " --format json");
  ASSERT_EQ(whole.exit_code, 0) << whole.out;
  EXPECT_EQ(run("show " + table.substr(0, 4) + " --format json").out, whole.out);
  const CommandResult brief = run("show " + table.substr(0, 3));
  EXPECT_EQ(brief.exit_code, 1);
  EXPECT_THAT(brief.out, HasSubstr("give 4 characters or more"));
  EXPECT_THAT(run("show zzzz").out, HasSubstr("no table begins so"));
}

TEST_F(DispatchProgram, PrintsTablesInEachFormat) {
  fill();
  const auto list = nlohmann::json::parse(run("show --format json").out);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["table"], table);
  EXPECT_EQ(list[0]["entry_count"], list[0]["entries"].size());
  EXPECT_THAT(run("show --format csv").out, HasSubstr(table + ",1,active,"));
  EXPECT_THAT(run("show").out, HasSubstr(table.substr(0, 8)));
  EXPECT_THAT(run("show " + table + " --format csv").out,
              HasSubstr("entry,range,expected_ns,regret,config,schedule,override,reason,note\n0,"));
  const std::string diff = "diff " + table + " " + table;
  EXPECT_EQ(nlohmann::json::parse(run(diff + " --format json").out)["left"]["table"], table);
  EXPECT_THAT(run(diff + " --format csv").out, HasSubstr("range,change,expected_ns,"));
}

TEST_F(DispatchProgram, WhatIsNoOverrideIsRefusedWithARemedy) {
  fill();
  const std::string head = "override " + table + " --config " + other + " --reason r ";
  for (const auto& [arguments, word] : std::vector<std::pair<std::string, std::string>>{
           {"", "names no shapes"},
           {"0 --region m=1..2", "an entry and a region"},
           {"7", "has no entry 7"},
           {"--region k=1..2", "k is not a feature"},
           {"--region threads=1..2", "not a feature"},
           {"--region m", "has no ="},
           {"--region m=9..3", "is empty"},
           {"--region m=-4..3", "is not a size"},
           {"--region m=1..99999999999999999999", "is not a size"},
           {"--region m=1..2 --region m=3..4", "given twice"},
           {"--region 'ceildiv(m,0)=1..2'", "not a feature"}}) {
    const CommandResult ran = run(head + arguments);
    EXPECT_EQ(ran.exit_code, 1) << arguments << ran.out;
    EXPECT_THAT(ran.out, HasSubstr(word)) << arguments;
  }
  EXPECT_EQ(run("override " + table + " 0 --config ffff --reason r").exit_code, 1);
  EXPECT_THAT(run("overrides --all").out, HasSubstr("no override"));
}

}  // namespace
}  // namespace nimble::db
