// nimble db: results in the T4 format of auto-tuning, out and in.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "db/tools/test/program_fixture.h"

namespace nimble::db {
namespace {

using testing::HasSubstr;
using testing::Not;

// Against the schema's own words: what is required, the types, the values of
// its enumerations.
TEST_F(ProgramTest, TrialsAreExportedInTheT4Format) {
  fill();
  {
    auto store = open();
    const World world(*store);
    store->enqueue({{world.trial_key(*store, 32, 64)}, {world.trial_key(*store, 48, 64)}});
    const std::vector<Trial> claimed = store->claim({campaign, "me"});
    ASSERT_EQ(claimed.size(), 1u);
    ASSERT_TRUE(store->finish({claimed[0].uuid, "me", TrialState::kCrashed, "segfault", "m", {}}));
  }
  const std::string out = file("t4.json");
  const std::string command = "export " + db() + " --t4 " + campaign.substr(0, 8) + " ";
  EXPECT_EQ(run(command + out).exit_code, 0);
  EXPECT_THAT(run(command + out).out, HasSubstr("exists already"));
  std::ifstream in(out);
  const auto t4 = nlohmann::json::parse(in);
  EXPECT_EQ(t4["schema_version"], "1.1.0");
  EXPECT_EQ(t4["metadata"]["timeunit"], "nanoseconds");
  EXPECT_EQ(t4["metadata"]["device"], "Xeon");
  ASSERT_EQ(t4["results"].size(), 4u) << "and not the one that is still queued";
  const std::set<std::string> invalidities = {"timeout",     "compile",     "runtime",
                                              "correctness", "constraints", "correct"};
  int crashed = 0;
  for (const auto& r : t4["results"]) {
    EXPECT_TRUE(r["configuration"].is_object());
    EXPECT_TRUE(r["configuration"]["tile"].is_number());
    EXPECT_TRUE(r["times"]["runtimes"].is_array());
    EXPECT_TRUE(invalidities.contains(r["invalidity"]));
    EXPECT_EQ(r["objectives"][0], "time");
    if (r["invalidity"] == "runtime") {
      ++crashed;
      EXPECT_EQ(r["correctness"], 0);
      EXPECT_TRUE(r["times"]["runtimes"].empty());
      EXPECT_EQ(r["nimble"]["error"], "segfault");
      continue;
    }
    EXPECT_EQ(r["correctness"], 1);
    EXPECT_EQ(r["times"]["runtimes"].size(), 3u) << "every sample";
    EXPECT_EQ(r["times"]["compilation_time"], 12.5e6);
    EXPECT_EQ(r["measurements"][0]["name"], "time");
    EXPECT_EQ(r["measurements"][0]["value"], r["times"]["runtimes"][1]);
    EXPECT_THAT(r["timestamp"].get<std::string>(), testing::MatchesRegex("[0-9T:.-]+Z"));
  }
  EXPECT_EQ(crashed, 1);
  EXPECT_EQ(run(command + "--shape m=37 --workload dense --force " + out).exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(out))["results"].size(), 1u);
  // What there is not.
  EXPECT_EQ(run(command + "--shape m=5 " + file("x.json")).exit_code, 1);
  EXPECT_EQ(run(command + "--shape m " + file("x.json")).exit_code, 2);
  EXPECT_EQ(run(command + "--workload softmax " + file("x.json")).exit_code, 1);
  EXPECT_EQ(run("export " + db() + " --workload dense " + file("x.json")).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(file("x.json")));
}

// It compiled: a rule of nimble's kept it from being measured.
TEST_F(ProgramTest, APrunedTrialIsNoCompileErrorInTheT4Format) {
  fill();
  {
    auto store = open();
    const World world(*store);
    store->enqueue({{world.trial_key(*store, 48, 64)}, {world.trial_key(*store, 80, 64)}});
    const char* classes[] = {kPruned, "compiler"};
    for (const char* why : classes) {
      const std::vector<Trial> claimed = store->claim({campaign, "me"});
      ASSERT_EQ(claimed.size(), 1u);
      ASSERT_TRUE(store->finish({claimed[0].uuid, "me", TrialState::kCompileFailed, why, "m", {}}));
    }
  }
  const std::string out = file("t4.json");
  ASSERT_EQ(run("export " + db() + " --t4 " + campaign.substr(0, 8) + " " + out).exit_code, 0);
  std::ifstream in(out);
  const auto t4 = nlohmann::json::parse(in);
  EXPECT_EQ(t4["metadata"]["platform"], "CPU");
  std::map<std::string, std::string> classes;  // by how it ended, of those that did not run
  for (const auto& r : t4["results"])
    if (r["nimble"].contains("error")) {
      EXPECT_EQ(r["correctness"], 0);
      classes[r["invalidity"]] = r["nimble"]["error"];
    }
  const std::map<std::string, std::string> due = {{"constraints", kPruned},
                                                  {"compile", "compiler"}};
  EXPECT_EQ(classes, due);
}

// Ours come back with sizes and roles; those of others with what the schema has.
TEST_F(ProgramTest, ResultsInTheT4FormatAreImported) {
  fill();
  const std::string ours = file("ours.json"), other = " --db " + file("other.db");
  ASSERT_EQ(run("export " + db() + " --t4 " + campaign.substr(0, 8) + " " + ours).exit_code, 0);
  ASSERT_EQ(run("import --t4 " + ours + other).exit_code, 0);
  std::ofstream(file("theirs.json")) << R"({"schema_version": "1.0.0",
    "metadata": {"device": "A100", "timeunit": "milliseconds", "autotuner": "Kernel Tuner"},
    "results": [
      {"configuration": {"block": 32}, "invalidity": "correct", "correctness": 1,
       "times": {"compilation_time": 20, "runtimes": [0.5, 0.25, 0.75]}},
      {"configuration": {"block": 32}, "invalidity": "correct",
       "times": {"runtimes": [0.5]}},
      {"configuration": {"block": 64}, "invalidity": "correct", "times": {},
       "measurements": [{"name": "time", "value": 3, "unit": "us"}]},
      {"configuration": {"block": 99}, "invalidity": "constraints", "times": {"runtimes": []}}]})";
  const std::string theirs = "import --t4 --workload convolution " + file("theirs.json") + other;
  const CommandResult ran = run(theirs);
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_EQ(run("check" + other).exit_code, 0);
  const auto store = Store::open(file("other.db"));
  std::map<std::string, int> trials;  // by workload
  for (const Campaign& c : all_campaigns(*store))
    for (const TrialOutcome& o : store->outcomes(c.uuid)) {
      ++trials[store->workload(o.trial.key.workload)->canonical];
      if (o.config_json == R"({"block":32})") {
        EXPECT_EQ(o.median_ns, 5e5);
        EXPECT_EQ(store->measurements(o.trial.uuid).size(), 2u) << "both that were measured";
      }
      if (o.config_json == R"({"block":64})") {
        EXPECT_EQ(o.median_ns, 3e3);
      }
      if (o.config_json == R"({"block":99})") {
        EXPECT_EQ(o.trial.state, TrialState::kCompileFailed);
      }
      if (o.config_json.find("tile") != std::string::npos) {
        EXPECT_FALSE(o.dims.empty());
      }
    }
  EXPECT_EQ(trials.at("t4: convolution"), 3);
  EXPECT_EQ(trials.size(), 2u);
  // What is not of the schema, with its place; and nothing is left behind.
  const auto refused = [&](const std::string& text, const std::string& arguments) {
    std::ofstream(file("bad.json")) << text;
    const CommandResult bad =
        run("import --t4 " + arguments + file("bad.json") + " --db " + file("none.db"));
    EXPECT_EQ(bad.exit_code, 1) << text;
    EXPECT_FALSE(std::filesystem::exists(file("none.db"))) << text;
    return bad.out;
  };
  const std::string named = "--workload x ";
  const auto with = [](const std::string& result) {
    return R"({"metadata": {"timeunit": "seconds"}, "results": [)" + result + "]}";
  };
  EXPECT_THAT(refused("[", named), HasSubstr("is not valid JSON"));
  EXPECT_THAT(refused("[]", named), HasSubstr("no JSON object"));
  EXPECT_THAT(refused(R"({"results": [1], "results": []})", named), HasSubstr("twice"));
  EXPECT_THAT(refused("{}", named), HasSubstr("has no \"results\""));
  EXPECT_THAT(refused(with("{}"), ""), HasSubstr("--workload"));
  EXPECT_THAT(refused(with("{}"), named), HasSubstr("results[0] has no \"configuration\""));
  EXPECT_THAT(refused(with("3"), named), HasSubstr("results[0] has no \"configuration\""));
  EXPECT_THAT(refused(with(R"({"configuration": {}, "invalidity": "odd"})"), named),
              HasSubstr("unknown way"));
  EXPECT_THAT(refused(with(R"({"configuration": {}, "invalidity": "correct",
                               "times": {"runtimes": [-1]}})"),
                      named),
              HasSubstr("results[0].times.runtimes[0] is no time: -1"));
  EXPECT_THAT(
      refused(with(R"({"configuration": {}, "invalidity": "correct", "times": []})"), named),
      HasSubstr("has no times"));
  EXPECT_THAT(refused(R"({"metadata": {"timeunit": "weeks"}, "results": [1]})", named),
              HasSubstr("unknown unit \"weeks\""));
  EXPECT_THAT(refused(with(R"({"configuration": {"a": [[[[[[[[[1]]]]]]]]]}})"), named),
              HasSubstr("no object of values"));
  // Wherever it stands: copying or writing it would take more than a stack.
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const std::string& text :
       {with(R"({"configuration": {"a": )" + deep + "}}"),
        with(R"({"configuration": {}, "nimble": )" + deep + "}"),
        with(R"({"configuration": {}, "invalidity": "correct", "times": {"runtimes": [)" + deep +
             "]}}"),
        R"({"metadata": {"nimble": )" + deep + R"(}, "results": [1]})"})
    EXPECT_THAT(refused(text, named), HasSubstr("nests deeper"));
  EXPECT_EQ(run("import --workload x " + ours + other).exit_code, 2);
  for (const auto& f :
       std::filesystem::directory_iterator(std::filesystem::path(ours).parent_path()))
    EXPECT_THAT(f.path().filename().string(), Not(HasSubstr("records"))) << "left behind";
}

}  // namespace
}  // namespace nimble::db
