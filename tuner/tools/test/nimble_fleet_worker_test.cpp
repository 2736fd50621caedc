// `nimble worker --db` as its operator meets it.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tuner/fleet/test/fleet_fixture.h"
#include "tuner/trust/records.h"
#include "vm/base/cpu_list.h"
#include "vm/base/host_state.h"
#include "vm/base/test/run_command.h"
#include "vm/base/test/scoped_variable.h"

namespace nimble::tuner {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class WorkerProgram : public FleetTest {
 protected:
  WorkerProgram() : FleetTest(Where::kFiles), ring(folder + "/keys") {}
  void SetUp() override {
    FleetTest::SetUp();
    ::setenv("NIMBLE_KEYS", (folder + "/keys").c_str(), 1);
    ::setenv("NIMBLE_CONFIG", "off", 1);
    ::unsetenv("NIMBLE_DB");
  }
  CommandResult run(const std::string& arguments) {
    return run_command(fmt::format("{} {}", NIMBLE_WORKER_PROGRAM, arguments));
  }
  CommandResult serve(const std::string& arguments) {
    return run(fmt::format("--db {} --poll 0.02 {}", place(), arguments));
  }
  nlohmann::json report(const std::string& arguments) {
    const CommandResult ran = serve("--quiet --max-idle 0 --format json " + arguments);
    EXPECT_EQ(ran.exit_code, 0) << ran.out;
    return nlohmann::json::parse(ran.out);
  }
  static std::string first_cpu() {
    return std::to_string(cpu_list_from_text(HostWatch().read().affinity, "here")[0]);
  }
  void sign(const db::NewJob& j, const std::string& name) {
    for (const db::NewJobTrial& t : j.trials)
      trust::sign(*store, ring.open(name), name,
                  trust::claim_of(trust::Candidate{j.campaign, j.measure_case, *t.candidate,
                                                   "x86-64", j.limits}));
  }

  trust::Keyring ring;
};

TEST_F(WorkerProgram, HelpIsThatOfBothItsUses) {
  const CommandResult help = run("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--trust"), HasSubstr("Examples:"),
                              HasSubstr("nimble worker --db tuning.db --once")));
  const auto described = nlohmann::json::parse(run("--help-json").out);
  EXPECT_EQ(described["name"], "nimble worker");
  EXPECT_THAT(run("").out, HasSubstr("confined")) << "without arguments it looks at the machine";
}

TEST_F(WorkerProgram, ServesTheDatabaseOfTheEnvironmentOrAFile) {
  ring.make("planner");
  const std::string serve_it = " --quiet --max-idle 0 --format json";
  const auto jobs = [](const CommandResult& ran) {
    EXPECT_EQ(ran.exit_code, 0) << ran.out;
    return nlohmann::json::parse(ran.out);
  };
  const nlohmann::json told = jobs(serve("--quiet --max-idle 0 --format json"));
  const auto with = [&](const std::string& setting, const std::string& arguments) {
    return run_command(fmt::format("env {} {}{}", setting, NIMBLE_WORKER_PROGRAM, arguments));
  };
  EXPECT_EQ(jobs(with("NIMBLE_DB=" + place(), serve_it)), told);
  std::ofstream(folder + "/config.toml") << fmt::format("[worker]\ndb = \"{}\"\n", place());
  EXPECT_EQ(jobs(with("NIMBLE_CONFIG=" + folder + "/config.toml", serve_it)), told);
  EXPECT_THAT(with("NIMBLE_DB=" + folder + "/none.db", serve_it).out, HasSubstr("none.db"));
  EXPECT_THAT(with("NIMBLE_DB=" + place(), " --look").out, HasSubstr("confined"));
  EXPECT_EQ(serve("--look").exit_code, 2) << "a look serves nothing, told a database or not";
  EXPECT_THAT(with("NIMBLE_DB=", "").out, HasSubstr("confined")) << "empty is as if not set";
  // What `nimble tune` starts stays what it is: its input has ended, so it ends, too.
  EXPECT_THAT(with("NIMBLE_DB=" + folder + "/none.db", " --serve </dev/null").out,
              Not(HasSubstr("none.db")));
}

TEST_F(WorkerProgram, WrongUsageExitsWithTwo) {
  for (const char* bad :
       {"--cpus 3-1", "--device cuda:0", "--device gpu:", "--device gpu:-1", "--device gpu:1x",
        "--lease 0", "--max-idle -1", "--format xml", "--nonsense"}) {
    const CommandResult ran = serve(bad);
    EXPECT_EQ(ran.exit_code, 2) << bad << ran.out;
  }
}

TEST_F(WorkerProgram, WithoutAKeyThatIsTrustedItSaysWhatToDo) {
  const CommandResult ran = serve("--max-idle 0");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("trusts no key"), HasSubstr("nimble keys trust KEY")));
  ring.make("planner");
  EXPECT_THAT(serve("--max-idle 0 --trust nobody").out,
              HasSubstr("--trust nobody: is the name of no key"));
  ring.revoke(ring.trusted()[0].key, "lost", 1);
  EXPECT_THAT(serve("--max-idle 0").out, HasSubstr("trusts no key"));
}

TEST_F(WorkerProgram, ADatabaseThatIsNotThereIsNotMade) {
  ring.make("planner");
  const CommandResult ran = run("--db " + folder + "/none.db --once");
  EXPECT_EQ(ran.exit_code, 1) << ran.out;
  EXPECT_NE(::access((folder + "/none.db").c_str(), F_OK), 0);
  const CommandResult secret = run("--db postgresql://me:hunter2@127.0.0.1:1/none --once");
  EXPECT_EQ(secret.exit_code, 1);
  EXPECT_THAT(secret.out, Not(HasSubstr("hunter2")));
}

TEST_F(WorkerProgram, SaysWhatItServesAndWhomItTrusts) {
  const std::string key = ring.make("planner").key;
  const CommandResult ran = serve("--max-idle 0 --name box --cpus " + first_cpu());
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("serves " + place()), HasSubstr(", CPUs " + first_cpu()),
                             HasSubstr("trusts planner (" + key.substr(0, 16) + ")")));
  const auto database = connection();
  EXPECT_EQ(database->text("SELECT trusted_keys FROM worker"), "[\"" + key + "\"]");
  EXPECT_EQ(database->text("SELECT name FROM worker"), "box");
}

TEST_F(WorkerProgram, OfSeveralGpusItServesTheOneThatIsNamed) {
  ring.make("planner");
  {
    const ScopedVariable none("NIMBLE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
    const CommandResult ran = serve("--max-idle 0 --device gpu");
    EXPECT_EQ(ran.exit_code, 1);
    EXPECT_THAT(ran.out, HasSubstr("--device gpu: there is no GPU to measure on"));
  }
  const ScopedVariable library("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA);
  const CommandResult ran = serve("--max-idle 0 --device gpu:0");
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("Stand-in GPU (sm_90, 0000:3b:00)"));
  EXPECT_THAT(connection()->text("SELECT capabilities FROM worker"),
              AllOf(HasSubstr(R"("device":"gpu")"), HasSubstr(R"("driver":13000)")));
  // Jobs for a GPU that there is, here this one, are not for others to take.
  const CommandResult others = serve("--max-idle 0 --device gpu --jobs-for Stand-in");
  EXPECT_EQ(others.exit_code, 1) << others.out;
  EXPECT_THAT(others.out, HasSubstr("--jobs-for Stand-in: Stand-in GPU is hardware of its own"));
  EXPECT_THAT(serve("--max-idle 0 --device gpu:1").out,
              AllOf(HasSubstr("--device gpu:1"), HasSubstr("number 1 is not there")));
}

TEST_F(WorkerProgram, RunsWhatIsSignedAndPassesOverWhatIsNot) {
  ring.make("planner");
  const db::NewJob unsigned_job = job({"test.copy"});
  store->publish(unsigned_job);
  const db::NewJob signed_job = job({"test.copy"}, 64, another_campaign());
  store->publish(signed_job);
  sign(signed_job, "planner");
  const auto first = report("--once --campaign " + unsigned_job.campaign.substr(0, 8));
  EXPECT_EQ(first["jobs"], 0);
  ASSERT_EQ(first["passed_over"].size(), 1u);
  EXPECT_THAT(first["passed_over"][0]["reason"].get<std::string>(), HasSubstr("is not signed"));
  const auto second = report("");
  EXPECT_EQ(second["jobs"], 1);
  EXPECT_EQ(second["trials"], 2);
  // It was run: this worker has no such kernel, and says so of the candidate.
  EXPECT_EQ(trial(signed_job, 1).error_class, "refused");
  EXPECT_EQ(trial(unsigned_job, 1).state, db::TrialState::kQueued);
  EXPECT_EQ(serve("--campaign 00000000").exit_code, 1) << "no such campaign";
}

TEST_F(WorkerProgram, ToldToStopItSaysGoodbyeAndEndsAsInterrupted) {
  ring.make("planner");
  const std::string program = NIMBLE_WORKER_PROGRAM, database = place();
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(program.c_str(), program.c_str(), "--db", database.c_str(), "--quiet", nullptr);
    ::_exit(127);
  }
  while (store->live_workers().empty() || !store->live_workers()[0].heartbeat)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ::kill(child, SIGTERM);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_TRUE(store->live_workers().empty());
}

}  // namespace
}  // namespace nimble::tuner
