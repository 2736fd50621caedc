// The program nimble-serve as an operator meets it, with a worker beside it.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "db/store/store.h"
#include "vm/base/test/run_command.h"
#include "vm/base/test/scoped_variable.h"

namespace nimble::tuner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ServeProgram : public testing::Test {
 protected:
  ServeProgram() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nimble-serve-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    std::ofstream(folder + "/model.nir")
        << "fn @main(%x: Tensor[(n, 32), f32]) -> Tensor[(n, 32), f32] "
           "{ let %y = softmax(%x) {axis = 1}; %y }";
    keys.emplace("NIMBLE_KEYS", folder + "/keys");
    lock_folder.emplace("NIMBLE_LOCK_FOLDER", folder);
    EXPECT_EQ(run_command(NIMBLE_KEYS_PROGRAM + std::string(" new planner")).exit_code, 0);
  }
  ~ServeProgram() override {
    for (const pid_t child : children) ::kill(child, SIGKILL), ::waitpid(child, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  std::string database() const { return folder + "/tuning.db"; }
  CommandResult serve(const std::string& arguments) const {
    return run_command(
        fmt::format("{} --db {} --poll 20 {} 2>&1", NIMBLE_SERVE_PROGRAM, database(), arguments));
  }
  std::string submit(const std::string& more = "") const {
    const CommandResult r = run_command(
        fmt::format("{} submit {}/model.nir --db {} --threads 1 --budget 60s --size 8 --top-k 3 {} "
                    "2>/dev/null",
                    NIMBLE_CAMPAIGNS_PROGRAM, folder, database(), more));
    EXPECT_EQ(r.exit_code, 0) << r.out;
    return r.out.substr(0, 36);
  }
  pid_t start(const std::vector<std::string>& arguments) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::vector<char*> argv;
      for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
      argv.push_back(nullptr);
      const int out = ::open((folder + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(out, 1), ::dup2(out, 2);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves nobody behind
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    children.push_back(child);
    return child;
  }
  pid_t start_worker() {
    return start({NIMBLE_WORKER_PROGRAM, "--db", database(), "--poll", "0.02"});
  }
  pid_t start_service() {
    return start({NIMBLE_SERVE_PROGRAM, "--db", database(), "--poll", "20", "--key", "planner"});
  }
  // Its exit code after a signal.
  int end(pid_t child, int signal) {
    ::kill(child, signal);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    std::erase(children, child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string log() const { return run_command("cat " + folder + "/log").out; }
  std::unique_ptr<db::Store> store() const { return db::Store::open(database()); }
  template <class Condition>
  void wait_for(const Condition& condition) {
    const auto begin = std::chrono::steady_clock::now();
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(5)) << log();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  std::string folder;
  std::optional<ScopedVariable> keys, lock_folder;
  std::vector<pid_t> children;
};

TEST_F(ServeProgram, TunesWhatWasSubmittedAndEnds) {
  const std::string first = submit(), second = submit("--seed 1");
  start_worker();
  const CommandResult ran = serve("--key planner --once --metrics " + folder + "/metrics");
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("campaign " + first.substr(0, 8) + ": finished"),
                             HasSubstr("campaign " + second.substr(0, 8) + ": finished"),
                             HasSubstr("is active"), HasSubstr("2 campaigns finished")));
  EXPECT_EQ(store()->campaign(first)->state, db::CampaignState::kFinished);
  EXPECT_THAT(run_command("cat " + folder + "/metrics").out, HasSubstr("# EOF"));
  const CommandResult again = serve("--key planner --once");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.out, HasSubstr("0 campaigns finished, 0 cases published"));
}

TEST_F(ServeProgram, OneCampaignAloneIsServed) {
  const std::string mine = submit(), other = submit("--seed 1");
  start_worker();
  const CommandResult ran = serve("--key planner --once --campaign " + mine.substr(0, 8));
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_EQ(store()->campaign(mine)->state, db::CampaignState::kFinished);
  EXPECT_EQ(store()->campaign(other)->state, db::CampaignState::kRunning);
}

TEST_F(ServeProgram, WhatItCannotDoItSaysBeforeItBegins) {
  const CommandResult none = serve("--key planner --once");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_FALSE(std::filesystem::exists(database())) << "it is not made";
  submit();
  const CommandResult nobody = serve("--key nobody --once");
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.out, HasSubstr("nobody"));
  EXPECT_EQ(serve("--once").exit_code, 2) << "without a key";
  EXPECT_EQ(serve("--key planner --jobs 0").exit_code, 2);
  const CommandResult unknown = serve("--key planner --campaign zz --once");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.out, HasSubstr("nimble db campaigns"));
  // A key that was revoked there signs nothing more.
  EXPECT_EQ(run_command(fmt::format("{} revoke planner --db {} --reason lost 2>&1",
                                    NIMBLE_KEYS_PROGRAM, database()))
                .exit_code,
            0);
  const CommandResult revoked = serve("--key planner --once");
  EXPECT_EQ(revoked.exit_code, 1);
  EXPECT_THAT(revoked.out, HasSubstr("revoked"));
}

TEST_F(ServeProgram, EndedInTheMiddleItGoesOnWhereItWas) {
  const std::string campaign = submit();
  const pid_t worker = start_worker();
  const pid_t service = start_service();
  wait_for([&] { return store()->campaign(campaign)->consumed_s > 0; });
  EXPECT_EQ(end(service, SIGTERM), 130) << log();
  EXPECT_THAT(log(), HasSubstr("campaigns finished"));
  const double before = store()->campaign(campaign)->consumed_s;
  const CommandResult ran = serve("--key planner --once");
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_EQ(store()->campaign(campaign)->state, db::CampaignState::kFinished);
  EXPECT_GE(store()->campaign(campaign)->consumed_s, before);
  EXPECT_EQ(end(worker, SIGTERM), 130);
}

TEST_F(ServeProgram, ASecondServiceWaitsForWhatTheFirstLeavesBehind) {
  const std::string campaign = submit();
  const pid_t first = start_service();  // without a worker it waits
  wait_for([&] { return log().find("serving it") != std::string::npos; });
  const pid_t second = start({NIMBLE_SERVE_PROGRAM, "--db", database(), "--poll", "20", "--key",
                              "planner", "--once", "--metrics", folder + "/metrics"});
  // It has looked, and took nothing.
  wait_for([&] { return std::filesystem::exists(folder + "/metrics"); });
  EXPECT_EQ(log().find("serving it"), log().rfind("serving it")) << log();
  EXPECT_THAT(log(), HasSubstr("campaign " + campaign + ": another service has it; waiting"));
  EXPECT_EQ(end(first, SIGKILL), -SIGKILL);
  start_worker();
  wait_for([&] { return store()->campaign(campaign)->state == db::CampaignState::kFinished; });
  EXPECT_EQ(end(second, 0), 0) << log();
  EXPECT_THAT(log(), HasSubstr("1 campaigns finished"));
}

}  // namespace
}  // namespace nimble::tuner
