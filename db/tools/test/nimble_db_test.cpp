// The program nimble-db as a user meets it: output, exit codes, messages.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "db/store/host_records.h"
#include "db/store/migrations.h"
#include "db/store/sqlite.h"
#include "db/store/test/all.h"
#include "db/store/test/fixture.h"
#include "vm/base/test/run_command.h"

namespace nimble::db {
namespace {

using testing::AllOf;
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
    Hardware untuned = world.hardware;
    untuned.model_name = "another";
    store->tell_shapes(store->identity(),
                       {{world.workload_hash, world.hardware_hash, {{"m", 64}}, 7},
                        {world.workload_hash, store->put(untuned), {{"m", 5}}, 1}});
    campaign = world.campaign;
  }
  Uuid campaign;
};

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

// What nimble doctor prints, in short.
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

// The files that the experiments write, and what is none of them.
TEST_F(ProgramTest, PeersFiguresOfAnExperimentAreKept) {
  fill();
  nlohmann::json text =
      nlohmann::json::parse(std::ifstream(NIMBLE_SOURCE_DIR "/experiments/results/lstm.json"));
  text["date"] = "2026-11-23T01:18:46+00:00";  // whenever it was recorded
  const std::string result = file("result.json");
  std::ofstream(result) << text;
  Uuid machine;
  {
    auto store = open();
    Hardware h = host_hardware();
    h.model_name = text["machine"]["cpu"];
    machine = store->put(Machine{"", "measured-there", store->put(h)});
  }
  const std::string own = " --machine " + machine + " --format json " + db();
  const CommandResult added = run("peers --add " + result + own);
  ASSERT_EQ(added.exit_code, 0) << added.out;
  const auto runs = nlohmann::json::parse(added.out);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["model"], "lstm");
  EXPECT_EQ(runs[0]["host"], "measured-there");
  size_t figures = 0;
  for (const auto& c : text["cases"])
    for (const auto& entry : c["lengths"]) figures += entry["systems"].size();
  EXPECT_EQ(runs[0]["figures"], figures);
  EXPECT_EQ(nlohmann::json::parse(run("peers --add " + result + own).out), runs)
      << "the same result again adds nothing";
  const std::string id = runs[0]["run"].get<std::string>().substr(0, 8);
  const auto rows = nlohmann::json::parse(run("peers " + id + " --format json " + db()).out);
  ASSERT_EQ(rows.size(), figures);
  const auto& first = text["cases"][0]["lengths"][0];
  int met = 0;
  for (const auto& row : rows) {
    if (row["case"] != text["cases"][0]["name"] || row["system"] != "onnxruntime" ||
        row["shape"] != fmt::format("length={}", first["length"].get<int64_t>()))
      continue;
    ++met;
    EXPECT_DOUBLE_EQ(row["median_ns"],
                     1000 * first["systems"]["onnxruntime"]["median"].get<double>());
    EXPECT_DOUBLE_EQ(row["ci_high_ns"],
                     1000 * first["systems"]["onnxruntime"]["high"].get<double>());
    EXPECT_EQ(row["version"], text["systems"]["onnxruntime"]["version"]);
    EXPECT_THAT(row["settings"].get<std::string>(),
                HasSubstr(text["systems"]["onnxruntime"]["settings"].get<std::string>()));
  }
  EXPECT_EQ(met, 1);
  EXPECT_EQ(run("check " + db()).exit_code, 0);

  // A run of another hour that kept its single times.
  const auto refused = [&](const nlohmann::json& other, const std::string& arguments) {
    std::ofstream(file("other.json")) << other;
    const CommandResult bad = run("peers --add " + file("other.json") + arguments);
    EXPECT_EQ(bad.exit_code, 1) << bad.out;
    return bad.out;
  };
  nlohmann::json later = text;
  later["date"] = "2026-11-23T03:18:46+02:00";
  later["cases"].erase(1);
  later["cases"][0]["lengths"] = {later["cases"][0]["lengths"][0]};
  for (auto& [system, times] : later["cases"][0]["lengths"][0]["systems"].items())
    times["samples"] = {times["low"], times["median"], times["high"]};
  std::ofstream(file("later.json")) << later;
  const auto two = nlohmann::json::parse(run("peers --add " + file("later.json") + own).out);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0]["measured"], two[1]["measured"]) << "the same moment, told in another zone";
  int sampled = 0;
  for (const PeerRun& r : open()->peer_runs())
    for (const PeerFigure& f : open()->peer_run(r.run)) sampled += f.samples_ns.size() == 3;
  EXPECT_EQ(sampled, static_cast<int>(first["systems"].size()));

  // Models of one experiment at equal threads.
  nlohmann::json models = text;
  models["date"] = "2026-11-23T04:18:46+02:00";
  models["cases"] = {text["cases"][0], text["cases"][0]};
  for (size_t i = 0; i < 2; ++i) {
    auto& c = models["cases"][i];
    c["name"] = fmt::format("{} layers", i + 1);
    c["lengths"] = {c["lengths"][0]};
    c["lengths"][0]["systems"] = {{"onnxruntime", c["lengths"][0]["systems"]["onnxruntime"]}};
    for (const char* key : {"median", "low", "high"})
      c["lengths"][0]["systems"]["onnxruntime"][key] = 5.0 + i;
    c["lengths"][0]["systems"]["onnxruntime"].erase("samples");
  }
  std::ofstream(file("models.json")) << models;
  const auto three = nlohmann::json::parse(run("peers --add " + file("models.json") + own).out);
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0]["figures"], 2);
  const auto told = nlohmann::json::parse(
      run("peers " + three[0]["run"].get<std::string>() + " --format json " + db()).out);
  ASSERT_EQ(told.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(told[i]["case"], fmt::format("{} layers", i + 1));
    EXPECT_EQ(told[i]["median_ns"], 5000.0 + 1000 * static_cast<double>(i));
  }
  nlohmann::json elsewhere = text;
  elsewhere["machine"]["cpu"] = "another";
  EXPECT_THAT(refused(elsewhere, " " + db()), HasSubstr("--machine"));
  EXPECT_THAT(refused({{"cpu", 1}}, own), HasSubstr("lacks \"format\""));
  nlohmann::json bad = text;
  bad["unit"] = "ms";
  EXPECT_THAT(refused(bad, own), HasSubstr("µs per run"));
  bad = text;
  bad["cases"][0]["lengths"][0]["systems"]["onnxruntime"]["median"] = -1;
  EXPECT_THAT(refused(bad, own), HasSubstr("a time of it is none"));
  bad = text;
  bad["date"] = "yesterday";
  EXPECT_THAT(refused(bad, own), HasSubstr("tells no date"));
  bad["date"] = "2199-11-23T03:18:46+02:00";
  EXPECT_THAT(refused(bad, own), HasSubstr("more than a day"));
  bad = text;
  bad["cases"] = nlohmann::json::array();
  EXPECT_THAT(refused(bad, own), HasSubstr("compares no systems"));
  EXPECT_EQ(open()->peer_runs().size(), 3u) << "nothing of a refused one stays";
}

std::string doctor_report(const std::string& model, const std::string& ceilings) {
  return nlohmann::json{{"cpu", {{"model", model}}},
                        {"measured", {{"at_ms", 5}, {"ceilings", nlohmann::json::parse(ceilings)}}}}
      .dump();
}

TEST_F(ProgramTest, CeilingsOfADoctorsReportAreKept) {
  fill();
  const std::string own = host_hardware().model_name;
  const auto write = [&](const std::string& text) { std::ofstream(file("report")) << text; };
  const std::string add = "ceilings --format json " + db() + " --add ";
  write(doctor_report(own, R"([
    {"kind":"compute","dtype":"f32","threads":2,"value":4e11,"median":3e11,"unit":"op/s",
     "instructions":"avx512f"},
    {"kind":"read_l2","dtype":"any","threads":1,"value":1.5e11,"unit":"byte/s"}])"));
  auto rows = nlohmann::json::parse(run(add + file("report")).out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["kind"], "compute");
  EXPECT_EQ(rows[0]["value"], 4e11);
  EXPECT_EQ(rows[0]["unit"], "op/s");
  EXPECT_EQ(rows[1]["dtype"], "any");
  const Uuid machine = rows[0]["machine"];
  ASSERT_EQ(open()->ceilings(machine).size(), 2u);
  EXPECT_EQ(open()->ceilings(machine)[1].dtype, "") << "it makes no difference";
  // The same report again, through a pipe.
  const CommandResult piped = run(add + "- < " + file("report"));
  EXPECT_EQ(nlohmann::json::parse(piped.out), rows);
  EXPECT_EQ(connection()->integer("SELECT count(*) FROM ceiling"), 2);
  EXPECT_EQ(nlohmann::json::parse(run("ceilings --format json " + db()).out), rows);
  EXPECT_EQ(nlohmann::json::parse(
                run("ceilings --format json --machine " + machine.substr(0, 20) + " " + db()).out),
            rows);

  const std::string row =
      R"({"kind":"compute","dtype":"f32","threads":2,"value":4e11,"unit":"op/s"})";
  const std::pair<std::string, const char*> bad[] = {
      {"{", "is not valid JSON"},
      {"[]", "tells no measured ceilings"},
      {doctor_report(own, "[]"), "tells no measured ceilings"},
      {doctor_report(own, "[7]"), "ceiling 0 lacks"},
      {doctor_report(own,
                     R"([{"kind":"compute","dtype":"f32","threads":0,"value":1,"unit":"op/s"}])"),
       "of 0 threads"},
      {doctor_report(own,
                     R"([{"kind":"compute","dtype":"f32","threads":1,"value":-1,"unit":"op/s"}])"),
       "is no rate"},
      {doctor_report(own,
                     R"([{"kind":"read_l1","dtype":"any","threads":1,"value":1,"unit":"op/s"}])"),
       "is in op/s"},
      {doctor_report("Abacus 3", "[" + row + "]"), "was measured on Abacus 3"}};
  for (const auto& [text, why] : bad) {
    write(text);
    const CommandResult refused = run(add + file("report"));
    EXPECT_EQ(refused.exit_code, 1) << text;
    EXPECT_THAT(refused.out, HasSubstr(why));
  }
  EXPECT_EQ(run(add + file("report") + " --machine ffff").exit_code, 1);
  EXPECT_EQ(connection()->integer("SELECT count(*) FROM ceiling"), 2);
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
