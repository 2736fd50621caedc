// The program nimble-dispatch as a user meets it.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "db/store/test/all.h"
#include "db/store/test/fixture.h"
#include "vm/base/test/run_command.h"
#include "vm/base/test/scoped_variable.h"

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
  // Tunes a product; returns its model.
  std::string tune() {
    const std::string model = folder + "/model.nir";
    std::ofstream(model) << "fn @main(%x: Tensor[(n, 40), f32], %w: Tensor[(40, 24), f32]) "
                            "{ let %y = matmul(%x, %w); %y }";
    const CommandResult tuned = run_command(fmt::format(
        "{} {} --db {} --budget 4s --threads 1 --quiet", NIMBLE_TUNE_PROGRAM, model, file()));
    EXPECT_EQ(tuned.exit_code, 0) << tuned.out;
    return model;
  }
  Uuid table;
  Hash other;

 private:
  // The folder is gone after the test.
  ScopedVariable lock_folder_{"NIMBLE_LOCK_FOLDER", folder};
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
  EXPECT_THAT(run("show " + table).out, HasSubstr("active since"));
  EXPECT_THAT(run("show " + table).out, HasSubstr(": tuned"));
  const auto shown = nlohmann::json::parse(run("show " + table + " --format json").out);
  ASSERT_EQ(shown["history"].size(), 1u);
  EXPECT_EQ(shown["history"][0]["reason"], "tuned");
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

TEST_F(DispatchProgram, TablesThatAreNotActiveAreCounted) {
  fill();
  ASSERT_EQ(run("rollback " + table + " --reason slower").exit_code, 0);
  EXPECT_THAT(run("show").out, HasSubstr("(no active table; --all lists 1 other)"));
  EXPECT_THAT(run("show --all").out, HasSubstr(table.substr(0, 8)));
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
           {"--region m=1..2 --region m=3..4", "given twice"},
           {"--region 'ceildiv(m,0)=1..2'", "not a feature"}}) {
    const CommandResult ran = run(head + arguments);
    EXPECT_EQ(ran.exit_code, 1) << arguments << ran.out;
    EXPECT_THAT(ran.out, HasSubstr(word)) << arguments;
  }
  // Whatever the table is of, these are wrong usage.
  for (const auto& [region, word] : std::vector<std::pair<std::string, std::string>>{
           {"m", "has no ="},
           {"m=9..3", "is empty"},
           {"m=-4..3", "is not a size"},
           {"m=1..99999999999999999999", "is not a size"}}) {
    const CommandResult ran = run(head + "--region " + region);
    EXPECT_EQ(ran.exit_code, 2) << region << ran.out;
    EXPECT_THAT(ran.out, HasSubstr(word)) << region;
  }
  EXPECT_EQ(run("override " + table + " 0 --config ffff --reason r").exit_code, 1);
  EXPECT_THAT(run("overrides --all").out, HasSubstr("no override"));
}

TEST_F(DispatchProgram, ReportsWhatATableLosesAtOtherShapes) {
  const std::string model = tune(), kept = folder + "/report.json",
                    picture = folder + "/report.svg";
  const std::string report = "report " + model +
                             " --threads 1 --budget 60s --shapes 3 --range n=300..400 --top-k 5 "
                             "--file " +
                             kept + " --heat-map " + picture + " --quiet --format ";
  const CommandResult json = run(report + "json");
  ASSERT_EQ(json.exit_code, 0) << json.out;
  const auto printed = nlohmann::json::parse(json.out);
  ASSERT_EQ(printed["workloads"].size(), 1u) << json.out;
  const auto& workload = printed["workloads"][0];
  EXPECT_EQ(workload["shapes"].size(), 3u);
  EXPECT_TRUE(workload["regret"].contains("p95"));
  EXPECT_NE(workload["table"], "");
  EXPECT_TRUE(std::filesystem::exists(kept));
  // From the file now.
  const CommandResult table = run(report + "table");
  EXPECT_THAT(table.out, HasSubstr("pool loses"));
  EXPECT_THAT(run(report + "csv").out, HasSubstr("label,threads,table,pool,candidates,shapes,"));
  EXPECT_EQ(nlohmann::json::parse(run(report + "json").out)["workloads"][0]["shapes"],
            workload["shapes"]);
  std::stringstream drawn;
  drawn << std::ifstream(picture).rdbuf();
  size_t circles = 0;
  for (size_t at = 0; (at = drawn.str().find("<circle", at)) != std::string::npos; ++at) ++circles;
  EXPECT_EQ(circles, 3u);
  EXPECT_THAT(drawn.str(), HasSubstr("</svg>"));

  for (const std::string range :
       {"n", "n=4", "n=5..4", "n=0..4", "=1..2", "n=1..2x", "n=1..99999999999999999999"})
    EXPECT_THAT(run("report " + model + " --range " + range).out,
                HasSubstr("--range: \"" + range + "\" is no range of sizes; write"));
  const CommandResult unknown = run("report " + model + " --quiet --range k=1..4");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.out, HasSubstr("the model has no symbol k; it has n"));
  const CommandResult twice = run("report " + model + " --quiet --range n=1..2 --range n=3..4");
  EXPECT_EQ(twice.exit_code, 1);
  EXPECT_THAT(twice.out, HasSubstr("--range n=3..4: n has a range already"));
}

TEST_F(DispatchProgram, ADraftIsTimedBesideWhatItWouldDisplace) {
  const std::string model = tune();
  Uuid draft;
  {
    auto store = open();
    NewDispatchTable copy = all_tables(*store).at(0);
    copy.campaign.reset();
    draft = store->create_table(copy);
  }
  const std::string verify =
      "verify " + draft + " " + model + " --quiet --budget 60s --format json";
  const CommandResult told = run(verify + " --only-tell");
  const auto verdict = nlohmann::json::parse(told.out);
  EXPECT_EQ(verdict["table"], draft);
  EXPECT_EQ(verdict["active"], false);
  EXPECT_GT(verdict["shapes"], 5);
  EXPECT_EQ(told.exit_code, verdict["ratio"] > 1 ? 4 : 0) << told.out;
  const CommandResult again = run(verify);
  const auto second = nlohmann::json::parse(again.out);
  EXPECT_EQ(second["active"], second["ratio"] <= 1) << again.out;
  EXPECT_EQ(nlohmann::json::parse(run("show " + draft + " --format json").out)["status"],
            second["active"] ? "active" : "draft");
  EXPECT_THAT(run("show " + draft).out, HasSubstr("compared with"));
  EXPECT_EQ(run("verify ffff " + model).exit_code, 1);
  EXPECT_EQ(run("verify " + draft).exit_code, 2) << "without a model";
}

}  // namespace
}  // namespace nimble::db
