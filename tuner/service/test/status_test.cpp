// What operators read: the metrics follow the format's rules whatever the names are.
#include "tuner/service/status.h"

#include <gmock/gmock.h>

#include <regex>
#include <set>
#include <sstream>

namespace nimble::tuner {
namespace {

using ::testing::HasSubstr;

FleetStatus busy() {
  FleetStatus fleet;
  fleet.at_ms = 10'000;
  for (const char* id : {"11111111-aaaa", "22222222-bbbb"}) {
    CampaignStatus c;
    c.campaign.uuid = id;
    c.campaign.budget_s = 60.5;
    c.campaign.consumed_s = 12;
    c.trials.ok = 4;
    c.jobs.queued = 2;
    fleet.campaigns.push_back(c);
  }
  fleet.campaigns[0].machines = {{"machine", "host\"with\\all\nof it", "kind", 7.25}};
  fleet.campaigns[0].verdicts = {{"", "", "machine", 9, 0.4, 0.01, 1, true}};
  db::LiveWorker w;
  w.worker.uuid = "w1";
  w.worker.name = "first";
  w.hostname = "host";
  w.heartbeat = db::Heartbeat{"w1", db::WorkerState::kMeasuring, std::nullopt, 0.5, "", 7'500};
  fleet.workers.push_back(w);
  return fleet;
}

// OpenMetrics 1.0.0, section "ABNF", as far as these metrics go.
TEST(OpenMetrics, IsWellFormed) {
  const std::regex comment(
      R"(# (TYPE [a-z_]+ (gauge|counter|stateset)|UNIT [a-z_]+ [a-z]+|HELP [a-z_]+ .+))");
  const std::regex sample(
      R"re(([a-z_]+)\{[a-z_]+="([^"\\\n]|\\\\|\\"|\\n)*"(,[a-z_]+="([^"\\\n]|\\\\|\\"|\\n)*")*\} -?[0-9.e+-]+)re");
  std::istringstream lines(open_metrics(busy()));
  std::string line, family, type, last;
  std::set<std::string> seen, samples;
  while (std::getline(lines, line)) {
    last = line;
    if (line == "# EOF") continue;
    if (line.starts_with("# ")) {
      ASSERT_TRUE(std::regex_match(line, comment)) << line;
      std::istringstream words(line);
      std::string hash, what, name;
      words >> hash >> what >> name;
      if (what == "TYPE") {
        EXPECT_TRUE(seen.insert(name).second) << "a family stands together";
        family = name;
        words >> type;
      }
      EXPECT_EQ(name, family);
      if (what == "UNIT") {
        std::string unit;
        words >> unit;
        EXPECT_TRUE(name.ends_with("_" + unit)) << line;
      }
      continue;
    }
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
    EXPECT_EQ(match[1], family + (type == "counter" ? "_total" : "")) << line;
    EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << "twice: " << line;
  }
  EXPECT_EQ(last, "# EOF");
  EXPECT_GT(samples.size(), 20u);
}

TEST(OpenMetrics, TellsWhatIs) {
  const std::string text = open_metrics(busy());
  EXPECT_THAT(text, HasSubstr(R"(nimble_campaign_budget_seconds{campaign="11111111-aaaa"} 60.5)"));
  EXPECT_THAT(text, HasSubstr(R"(host="host\"with\\all\nof it",machine="machine"} 7.25)"));
  EXPECT_THAT(text,
              HasSubstr(R"(nimble_campaign_jobs{campaign="22222222-bbbb",state="queued"} 2)"));
  EXPECT_THAT(
      text,
      HasSubstr(
          R"(nimble_worker_heartbeat_age_seconds{host="host",name="first",worker="w1"} 2.5)"));
  EXPECT_THAT(text,
              HasSubstr(R"(nimble_worker_measuring{host="host",name="first",worker="w1"} 1)"));
  EXPECT_EQ(open_metrics({}).substr(open_metrics({}).size() - 6), "# EOF\n");
}

}  // namespace
}  // namespace nimble::tuner
