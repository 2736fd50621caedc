// nimble db show and top: the views, in every format.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "db/store/hash.h"
#include "db/tools/test/program_fixture.h"

namespace nimble::db {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST_F(ProgramTest, EveryViewInEveryFormat) {
  fill();
  {
    auto store = open();
    PeerFigure peer;
    peer.run = new_uuid();
    peer.peer = "torch";
    peer.version = "2.5";
    peer.machine = store->put(Machine{"", "box", key_of(store->hardware().at(0))});
    peer.subject = "model";
    peer.dims = {{"n", 64}};
    peer.dtype = "f32";
    peer.samples_ns = {1, 2, 3};
    peer.median_ns = 2;
    store->add(peer);
  }
  for (const std::string view :
       {"show summary", "show hardware", "show toolchains", "show workloads", "show dispatch",
        "show misses", "show shapes", "campaigns", "top", "peers"}) {
    const CommandResult json = run(view + " " + db() + " --format json");
    EXPECT_EQ(json.exit_code, 0) << json.out;
    EXPECT_FALSE(nlohmann::json::parse(json.out).empty()) << view;
    EXPECT_THAT(run(view + " " + db() + " --format csv").out, HasSubstr(",")) << view;
    EXPECT_EQ(run(view + " " + db()).exit_code, 0) << view;
  }
  const CommandResult trials = run("show trials " + campaign + " " + db() + " --format json");
  EXPECT_EQ(nlohmann::json::parse(trials.out).size(), 3u);
  for (const nlohmann::json& t : nlohmann::json::parse(trials.out)) {
    EXPECT_TRUE(t.at("round").is_number_integer());
    // The whole hash, which nimble dispatch override takes; the table for people has its beginning.
    EXPECT_EQ(t.at("configuration").get<std::string>().size(), 32u);
    EXPECT_TRUE(t.at("config").is_string());
  }
  EXPECT_EQ(run("show trials " + db()).exit_code, 2);
  EXPECT_EQ(run("show summary " + campaign + " " + db()).exit_code, 2);
  EXPECT_EQ(run("show trials nobody " + db()).exit_code, 1);
  EXPECT_EQ(run("show trials " + campaign.substr(0, 4) + " " + db() + " --format json").out,
            trials.out)
      << "the beginning of a UUID is enough";
}

TEST_F(ProgramTest, RawSamplesThatWereRemovedAreToldAsSuch) {
  fill();
  std::string slow;  // of a configuration that no table keeps
  for (const auto& row : nlohmann::json::parse(run("top --format json " + db()).out))
    if (row["median_ns"] == 120) slow = row["measurement"].get<std::string>();
  ASSERT_FALSE(slow.empty());
  const std::string clean = "clean --days 1 --reason disk --format json " + db();
  ASSERT_EQ(nlohmann::json::parse(run(clean).out)[0]["samples"], 1);
  const CommandResult removed = run("show measurement " + slow + " " + db());
  EXPECT_EQ(removed.exit_code, 1);
  EXPECT_THAT(removed.out, HasSubstr("its raw samples were removed (nimble db clean)"));
  EXPECT_THAT(removed.out, HasSubstr("median 120 ns"));
}

TEST_F(ProgramTest, ModelsAreShownByRound) {
  fill();
  {
    auto store = open();
    Task task;
    task.campaign = campaign;
    task.workload = store->outcomes(campaign).at(0).trial.key.workload;
    task.uuid = uuid_of_task(campaign, task.workload);
    store->add_tasks({task});
    store->enter_phase(task.uuid, "search", R"({"rank_correlations":[]})");
    store->enter_phase(task.uuid, "cross",
                       R"({"rank_correlations":[{"round":1,"correlation":0.25},"odd",)"
                       R"({"round":2,"correlation":0.75}]})");
  }
  const auto rows =
      nlohmann::json::parse(run("show models " + campaign + " " + db() + " --format json").out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("round"), 1);
  EXPECT_EQ(rows[1].at("rank_correlation"), 0.75);
  EXPECT_EQ(run("show models " + db()).exit_code, 2);
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
  const std::string begins = rows[0]["measurement"].get<std::string>().substr(0, 33);
  EXPECT_EQ(run("show measurement " + begins + " --format csv " + db()).out, samples.out);
  const CommandResult none = run("show measurement ffff-no " + db());
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.out, HasSubstr("no measurement begins so"));
  EXPECT_EQ(run("top --workload unheard-of " + db()).exit_code, 1);
  EXPECT_EQ(run("top --role king " + db()).exit_code, 2);
  const std::string help = run("top --help").out;
  for (const std::string& role : role_names()) {
    EXPECT_THAT(help, HasSubstr(role));
    EXPECT_EQ(run("top --role " + role + " " + db()).exit_code, 0) << role;
  }
  EXPECT_EQ(run("top --shape m " + db()).exit_code, 2);
}

TEST_F(ProgramTest, MissesAreWhatProductionMetWithoutATable) {
  fill();
  const auto shapes = nlohmann::json::parse(run("show shapes --format json " + db()).out);
  ASSERT_EQ(shapes.size(), 2u);
  EXPECT_EQ(shapes[0]["shape"], "m=64");
  EXPECT_EQ(shapes[0]["count"], 7);
  EXPECT_EQ(shapes[0]["table"], true);
  EXPECT_EQ(shapes[0]["measured"], true);
  EXPECT_EQ(shapes[1]["table"], false);
  EXPECT_EQ(shapes[1]["measured"], false);
  const auto misses = nlohmann::json::parse(run("show misses --format json " + db()).out);
  ASSERT_EQ(misses.size(), 1u);
  EXPECT_EQ(misses[0]["shape"], "m=5");
  EXPECT_THAT(run("show --format csv " + db()).out, HasSubstr("shapes missed,1"));
}

}  // namespace
}  // namespace nimble::db
