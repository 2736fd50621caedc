// The worker process: candidates that crash, hang or lie cost themselves and nothing else.
#include "tuner/measure/runner.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <sstream>
#include <thread>

#include "tuner/measure/confine.h"
#include "tuner/measure/test/fault_executable.h"
#include "vm/base/cpu_list.h"
#include "vm/base/error.h"
#include "vm/base/host_state.h"

namespace nimble::tuner {
namespace {

using ::testing::HasSubstr;

RunnerOptions options(int64_t hang_ms = 2000) {
  RunnerOptions o;
  o.program = NIMBLE_FAULT_WORKER;
  o.hang_ms = hang_ms;
  return o;
}

EntryResult only(Runner& runner, const std::string& kernel) {
  const uint32_t id = runner.add(fault_executable({kernel}));
  return runner.measure(copy_case(id, 1)).at(0);
}

// A child of this process that stands still; 0 if there is none. It is left to be waited for.
pid_t stopped_child() {
  siginfo_t info{};
  const int options = WSTOPPED | WNOHANG | WNOWAIT;
  return ::waitid(P_ALL, 0, &info, options) == 0 && info.si_code == CLD_STOPPED ? info.si_pid : 0;
}

// What confine() could do, told by a process that is not needed any more.
Confinement confinement_of_a_child() {
  int ends[2];
  Confinement told;
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const Confinement mine = confine();
    ::_exit(::write(ends[1], &mine, sizeof mine) == sizeof mine ? 0 : 1);
  }
  EXPECT_EQ(::read(ends[0], &told, sizeof told), static_cast<ssize_t>(sizeof told));
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  return told;
}

// What a kernel of the worker that looks around reports, by name.
std::map<std::string, std::string> findings(const std::string& kernel, Runner& runner) {
  const EntryResult r = only(runner, kernel);
  EXPECT_EQ(r.state, EntryState::kFailed);
  std::map<std::string, std::string> out;
  std::istringstream lines(r.message.substr(r.message.find('|') + 1));
  for (std::string line; std::getline(lines, line, '|');)
    if (const size_t is = line.find('='); is != std::string::npos)
      out[line.substr(0, is)] = line.substr(is + 1);
  EXPECT_FALSE(out.empty()) << r.message;
  return out;
}

TEST(Runner, TimesARightCandidateAndKeepsEverySample) {
  Runner runner(options());
  const EntryResult r = only(runner, "test.copy");
  EXPECT_EQ(r.state, EntryState::kOk) << r.message;
  EXPECT_EQ(r.max_error, 0);
  EXPECT_GE(r.samples_ns.size(), 3u);
  EXPECT_GE(r.runs_per_sample, 1);
  EXPECT_FALSE(r.stop_reason.empty());
  for (double s : r.samples_ns) EXPECT_GT(s, 0);
}

TEST(Runner, AColdCaseHasManyCopiesOfAllArgumentsAndChecksTheResult) {
  Runner runner(options());
  const uint32_t id = runner.add(fault_executable({"test.copy", "test.wrong", "test.copy"}));
  Case c = copy_case(id, 3);
  c.policy.choose_class("cold");
  c.policy.rotate_bytes = 8 << 20;  // fewer, for the test's sake
  const auto results = runner.measure(c);
  EXPECT_EQ(results[0].state, EntryState::kOk) << results[0].message;
  EXPECT_EQ(results[1].state, EntryState::kWrong);
  EXPECT_EQ(results[2].state, EntryState::kOk) << results[2].message;
  EXPECT_EQ(runner.workers_started(), 1);
}

// Else an entry's weights would come from the cache, where the entry before it has left them.
TEST(Runner, NoTwoRunsInARowFindTheirWeightsInTheSamePlace) {
  Runner runner(options());
  const uint32_t id = runner.add(fault_executable({"test.rotated", "test.rotated"}));
  for (const char* policy : {"warm", "weights-cold", "cold"}) {
    Case c = copy_case(id, 2, 1000);
    c.inputs[0].constant = true;
    c.policy.choose_class(policy);
    c.policy.rotate_bytes = 5 * 4000;
    fill_tensor(c.inputs[0], DType::kF32, 99, 0, c.expected[0]);
    for (const EntryResult& r : runner.measure(c))
      EXPECT_EQ(r.state, EntryState::kOk) << policy << ": " << r.message;
    runner.stop();
  }
}

TEST(Runner, ColdWeightsHaveManyCopiesAndTheResultIsChecked) {
  Runner runner(options());
  const uint32_t id = runner.add(fault_executable({"test.copy", "test.wrong", "test.copy"}));
  Case c = copy_case(id, 3, 1000);
  c.inputs[0].constant = true;
  c.policy.choose_class("weights-cold");
  fill_tensor(c.inputs[0], DType::kF32, 99, 0, c.expected[0]);  // whatever the case's seed
  const auto results = runner.measure(c);
  EXPECT_EQ(results[0].state, EntryState::kOk) << results[0].message;
  EXPECT_EQ(results[1].state, EntryState::kWrong);
  EXPECT_EQ(results[2].state, EntryState::kOk) << results[2].message;
  EXPECT_EQ(runner.workers_started(), 1);
}

TEST(Runner, ACaseEndsAtItsLimit) {
  Runner runner(options(60'000));
  const uint32_t id =
      runner.add(fault_executable({"test.copy", "test.slow", "test.hang", "test.copy"}));
  // One that hangs, and would be waited for a minute.
  Case c = copy_case(id, 4);
  c.limit_ns = 200'000'000;
  const auto begin = std::chrono::steady_clock::now();
  auto results = runner.measure(c);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  for (const EntryResult& r : results) EXPECT_EQ(r.state, EntryState::kLate) << r.message;
  EXPECT_THAT(results[2].message, HasSubstr("time"));
  // Many that are merely slow: those that were begun have times, the worker stays.
  std::vector<std::string> slow(200, "test.slow");
  slow[0] = "test.copy";
  c = copy_case(runner.add(fault_executable(slow)), 200);
  c.limit_ns = 100'000'000;
  const int64_t workers = runner.workers_started();
  results = runner.measure(c);
  EXPECT_EQ(results.back().state, EntryState::kLate);
  EXPECT_LE(runner.workers_started(), workers + 1);
  EXPECT_EQ(only(runner, "test.copy").state, EntryState::kOk);
}

TEST(Runner, TellsWhatACaseCostAndKeepsItsData) {
  Runner runner(options());
  const uint32_t id = runner.add(fault_executable({"test.copy", "test.copy"}));
  Case c = copy_case(id, 2, 1 << 20);
  EXPECT_EQ(runner.measure(c)[1].state, EntryState::kOk);
  const CaseCost first = runner.cost();
  EXPECT_GT(first.prepare_ns, 0);
  EXPECT_GT(first.check_ns, 0);
  EXPECT_GT(first.time_ns, 0);
  // The same data again, and other data: the results are right either way.
  EXPECT_EQ(runner.measure(c)[1].state, EntryState::kOk);
  c.seed = 8;
  fill_tensor(c.inputs[0], DType::kF32, c.seed, 0, c.expected[0]);
  EXPECT_EQ(runner.measure(c)[1].state, EntryState::kOk);
  EXPECT_GT(runner.cost().prepare_ns, first.prepare_ns);
}

// The worker keeps weights from case to case; what it keeps must be what is asked for.
TEST(Runner, AWeightIsTheSameWhateverTheSeedAndItsCopiesAreAlike) {
  Runner runner(options());
  const uint32_t id = runner.add(fault_executable({"test.copy", "test.copy"}));
  for (const bool cold : {false, true})
    for (const uint64_t seed : {7, 8})
      for (const int64_t n : {1000, 1000, 37, 5000}) {
        Case c = copy_case(id, 2, n);
        c.seed = seed;
        c.inputs[0].constant = true;
        c.policy.rotate_bytes = 40'000;
        c.policy.cold = cold;
        fill_tensor(c.inputs[0], DType::kF32, 99, 0, c.expected[0]);
        for (const EntryResult& r : runner.measure(c)) {
          EXPECT_EQ(r.state, EntryState::kOk) << n << " " << r.message;
          EXPECT_EQ(r.max_error, 0);
        }
        // Where another range is asked for, what is kept is of no use.
        c.inputs[0].high = 5;
        fill_tensor(c.inputs[0], DType::kF32, 99, 0, c.expected[0]);
        EXPECT_EQ(runner.measure(c)[0].state, EntryState::kOk);
      }
}

TEST(Runner, ReportsACrashBySignalAndGoesOn) {
  Runner runner(options());
  const uint32_t id = runner.add(fault_executable({"test.copy", "test.crash", "test.copy"}));
  const auto results = runner.measure(copy_case(id, 3));
  EXPECT_EQ(results[0].state, EntryState::kOk);
  EXPECT_EQ(results[1].state, EntryState::kCrashed);
  EXPECT_EQ(results[1].message, "SIGSEGV");
  EXPECT_EQ(results[2].state, EntryState::kOk);
  EXPECT_EQ(runner.workers_started(), 2);
}

TEST(Runner, BlamesTheRightCandidateForACrashWhileTiming) {
  Runner runner(options());
  const uint32_t id = runner.add(fault_executable({"test.copy", "test.late_crash", "test.copy"}));
  const auto results = runner.measure(copy_case(id, 3));
  EXPECT_EQ(results[0].state, EntryState::kOk);
  EXPECT_EQ(results[1].state, EntryState::kCrashed);
  EXPECT_EQ(results[2].state, EntryState::kOk);
}

TEST(Runner, EndsAHangAfterItsTime) {
  Runner runner(options());
  const uint32_t id = runner.add(fault_executable({"test.hang", "test.copy"}));
  const auto begin = std::chrono::steady_clock::now();
  const auto results = runner.measure(copy_case(id, 2));
  EXPECT_EQ(results[0].state, EntryState::kTimeout);
  EXPECT_THAT(results[0].message, HasSubstr("no progress"));
  EXPECT_EQ(results[1].state, EntryState::kOk);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Runner, RefusesWrongNumbersBeforeTiming) {
  Runner runner(options());
  for (const char* kernel : {"test.wrong", "test.nothing"}) {
    const EntryResult r = only(runner, kernel);
    EXPECT_EQ(r.state, EntryState::kWrong) << kernel;
    EXPECT_TRUE(r.samples_ns.empty()) << kernel;
    EXPECT_FALSE(r.message.empty()) << kernel;
  }
}

TEST(Runner, ReportsAKernelThatExitsOrThrows) {
  Runner runner(options());
  const EntryResult left = only(runner, "test.exit");
  EXPECT_EQ(left.state, EntryState::kCrashed);
  EXPECT_EQ(left.message, "exit code 7");
  const EntryResult threw = only(runner, "test.failing");
  EXPECT_EQ(threw.state, EntryState::kFailed);
  EXPECT_THAT(threw.message, HasSubstr("refuses"));
}

// Jobs that run side by side ask for workers from threads that end with the job.
TEST(Runner, AWorkerOutlivesTheThreadThatAskedForIt) {
  Runner runner(options());
  std::thread([&] { EXPECT_EQ(only(runner, "test.copy").state, EntryState::kOk); }).join();
  const pid_t worker = runner.worker();
  ASSERT_GT(worker, 0);
  // The kernel tells the end of a thread to its children after it tells it to us.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(only(runner, "test.copy").state, EntryState::kOk);
  EXPECT_EQ(runner.worker(), worker);
  EXPECT_EQ(runner.workers_started(), 1);
}

TEST(Runner, AKillForMemoryIsNotTheCandidatesFault) {
  Runner runner(options(60'000));
  // The first worker that stands still is killed, as the kernel kills for memory; later ones go on.
  std::atomic<bool> done{false};
  std::thread killer([&] {
    pid_t first = 0;
    while (!done) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const pid_t stopped = stopped_child();
      if (stopped == 0) continue;
      if (first == 0) first = stopped;
      ::kill(stopped, stopped == first ? SIGKILL : SIGCONT);
    }
  });
  const EntryResult r = only(runner, "test.stopping");
  done = true;
  killer.join();
  EXPECT_EQ(r.state, EntryState::kOk) << r.message;
  EXPECT_EQ(runner.workers_started(), 2);
}

// As a batch system does at the end of a job's time, to every process of it.
TEST(Runner, ASignalToEndReachesNoCandidate) {
  Runner runner(options(60'000));
  std::atomic<bool> done{false};
  std::thread batch_system([&] {
    while (!done) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const pid_t stopped = stopped_child();
      if (stopped == 0) continue;
      for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCONT}) ::kill(stopped, number);
    }
  });
  const EntryResult r = only(runner, "test.stopping");
  done = true;
  batch_system.join();
  EXPECT_EQ(r.state, EntryState::kOk) << r.message;
  EXPECT_EQ(runner.workers_started(), 1);
}

TEST(Runner, IsBoundToTheCpusThatItIsGiven) {
  const std::vector<int> all = cpu_list_from_text(HostWatch().read().affinity, "here");
  for (const int cpu : {all.front(), all.back()}) {
    RunnerOptions bound = options();
    bound.cpus = {cpu};
    Runner runner(bound);
    EXPECT_EQ(findings("test.reach", runner)["CPUs"], std::to_string(cpu));
  }
  RunnerOptions bound = options();
  bound.cpus = {65535};
  Runner runner(bound);
  EXPECT_THAT([&] { only(runner, "test.copy"); },
              testing::ThrowsMessage<Error>(HasSubstr("CPU 65535: is not there")));
}

TEST(Runner, WhatKeepsBeingKilledIsLostAndTheRestOfTheCaseWithIt) {
  Runner runner(options());
  const uint32_t id = runner.add(fault_executable({"test.killed", "test.copy"}));
  const auto results = runner.measure(copy_case(id, 2));
  EXPECT_EQ(results[0].state, EntryState::kLost);
  EXPECT_THAT(results[0].message, HasSubstr("SIGKILL"));
  EXPECT_EQ(results[1].state, EntryState::kLost);
  EXPECT_EQ(only(runner, "test.copy").state, EntryState::kOk);
}

TEST(Runner, KeepsWhatTheWorkerSaidLast) {
  Runner runner(options());
  const EntryResult r = only(runner, "test.last_words");
  EXPECT_EQ(r.state, EntryState::kCrashed);
  EXPECT_EQ(r.message, "SIGSEGV: assertion failed: i < n");
  EXPECT_EQ(r.output, "assertion failed: i < n");
}

TEST(Runner, WhatTheWorkerSaysIsText) {
  Runner runner(options());
  const EntryResult r = only(runner, "test.odd_words");
  EXPECT_EQ(r.output, "\xEF\xBF\xBD and \xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(r.message, "SIGSEGV: " + r.output);
}

TEST(Runner, RunsOnceAndGivesWhatWasWritten) {
  Runner runner(options());
  const uint32_t id = runner.add(fault_executable({"test.copy", "test.wrong", "test.crash"}));
  Case c = copy_case(id, 1);
  std::string why;
  EXPECT_EQ(runner.run(c, &why), c.expected);
  c.entries[0].kernel = 1;
  const auto off = runner.run(c, &why);
  ASSERT_TRUE(off);
  EXPECT_NE(*off, c.expected);
  c.entries[0].kernel = 2;
  EXPECT_FALSE(runner.run(c, &why));
  EXPECT_EQ(why, "SIGSEGV");
}

TEST(Runner, SaysWhereAWrongResultIsMostWrong) {
  Runner runner(options());
  const EntryResult r = only(runner, "test.wrong");
  EXPECT_EQ(r.worst_output, 0u);
  EXPECT_EQ(r.worst_element, 0);
}

TEST(Runner, WhatAKernelPrintsDoesNotDisturbTheMessages) {
  Runner runner(options());
  EXPECT_EQ(only(runner, "test.chatty").state, EntryState::kOk);
}

TEST(Runner, DropsASlowCandidateFromTheRace) {
  Runner runner(options());
  const uint32_t id = runner.add(fault_executable({"test.copy", "test.slow"}));
  const auto results = runner.measure(copy_case(id, 2));
  EXPECT_EQ(results[1].state, EntryState::kOk);
  EXPECT_EQ(results[1].stop_reason, "raced");
  EXPECT_LT(results[1].samples_ns.size(), 6u);
}

// Nor does it keep the others from being measured, and it is so when it is asked for again.
TEST(Runner, WhatTheMachineLacksIsNoFailureOfTheCandidate) {
  Runner runner(options());
  const uint32_t lacks = runner.add(fault_executable({"vendor.none"})),
                 good = runner.add(fault_executable({"test.copy"}));
  Case c = copy_case(good, 1);
  c.entries.push_back({lacks, 0});
  for (int again = 0; again < 2; ++again) {
    const auto results = runner.measure(c);
    EXPECT_EQ(results[0].state, EntryState::kOk) << results[0].message;
    EXPECT_EQ(results[1].state, EntryState::kUnavailable);
    EXPECT_THAT(results[1].message, ::testing::HasSubstr("vendor.none"));
  }
  EXPECT_EQ(runner.workers_started(), 1);
}

TEST(Runner, ReportsAnExecutableThatIsNone) {
  Runner runner(options());
  const uint32_t bad = runner.add({1, 2, 3}), good = runner.add(fault_executable({"test.copy"}));
  Case c = copy_case(good, 1);
  c.entries.insert(c.entries.begin(), EntryRef{bad, 0});
  const auto results = runner.measure(c);
  EXPECT_EQ(results[0].state, EntryState::kFailed);
  EXPECT_EQ(results[1].state, EntryState::kOk);
}

TEST(Runner, ACaseThatFitsNoContractIsAnError) {
  Runner runner(options());
  Case c = copy_case(runner.add(fault_executable({"test.copy"})), 1);
  c.symbols = {1, 2};
  EXPECT_THROW(runner.measure(c), Error);
}

TEST(Runner, TheLimitOfACaseThatWasAnErrorEndsWithIt) {
  Runner runner(options());
  const uint32_t id = runner.add(fault_executable({"test.copy", "test.pausing"}));
  Case none = copy_case(id, 1);
  none.entries[0].kernel = 7;
  none.limit_ns = 1'000'000;
  EXPECT_THROW(runner.measure(none), Error);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));  // it is over, and so is its grace
  Case next = copy_case(id, 1);
  next.entries[0].kernel = 1;
  std::string why;
  EXPECT_EQ(runner.run(next, &why), next.expected) << why;
  EXPECT_EQ(runner.workers_started(), 1);
}

// What the campaign's process knows, a candidate's doesn't.
TEST(Runner, ACandidateSeesNoEnvironmentAndNoDescriptors) {
  ::setenv("PGPASSWORD", "secret", 1);
  ::setenv("NIMBLE_DB", "postgresql://me:secret@host/tuning", 1);
  ::setenv("OMP_NUM_THREADS", "7", 1);
  ::setenv("NIMBLE_CPU_LEVEL", "x86-64-v2", 1);
  int connection[2];  // inherited by any program that is started carelessly
  ASSERT_EQ(::pipe(connection), 0);
  const int high = ::fcntl(connection[0], F_DUPFD, 200);
  ASSERT_GE(high, 200);
  Runner runner(options());
  auto found = findings("test.environment", runner);
  for (const char* name : {"PGPASSWORD", "NIMBLE_DB", "OMP_NUM_THREADS", "NIMBLE_CPU_LEVEL"})
    ::unsetenv(name);
  for (const int fd : {connection[0], connection[1], high}) ::close(fd);
  EXPECT_EQ(found["NIMBLE_CPU_LEVEL"], "x86-64-v2");
  for (const auto& [name, value] : found) {
    EXPECT_EQ(value.find("secret"), std::string::npos) << name;
    EXPECT_THAT(name, testing::AnyOf("NIMBLE_CPU_LEVEL", "LD_LIBRARY_PATH", "descriptors",
                                     testing::EndsWith("SAN_OPTIONS")));
  }
  // Its two pipes and stderr, once more for what a kernel prints.
  EXPECT_EQ(found["descriptors"], "0 1 2 4");
}

TEST(Runner, DescriptorsBelowThreeThatAreClosedHereDoNoHarm) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (const int fd : {0, 1, 2, 3}) ::close(fd);
    Runner runner(options());
    const uint32_t id = runner.add(fault_executable({"test.copy"}));
    ::_exit(runner.measure(copy_case(id, 1)).at(0).state == EntryState::kOk ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// A mitigation for confined processes would slow down what is timed, and only there.
TEST(Runner, ConfiningLeavesTheProcessorsSpeculationAsItIs) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto mitigations = [] {
      return std::pair(::prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0),
                       ::prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_INDIRECT_BRANCH, 0, 0, 0));
    };
    const auto before = mitigations();
    confine();
    ::_exit(mitigations() == before ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Runner, ACandidateMakesNoConnectionAndStartsNoProgram) {
  const Confinement here = confinement_of_a_child();
  ASSERT_TRUE(here.privileges);
  if (!here.calls) GTEST_SKIP() << "this kernel has no filters of system calls";
  Runner runner(options());
  auto found = findings("test.reach", runner);
  EXPECT_EQ(found["socket"], "EPERM");
  EXPECT_EQ(found["execve"], "EPERM");
  EXPECT_EQ(found["no new privileges"], "1");
  EXPECT_EQ(found["core limit"], "0");
}

// A driver has threads before its process is shut in.
TEST(Runner, CallsOfThreadsThatThereAreAlreadyAreBound) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::atomic<bool> confined{false};
    int error = 0;
    std::thread other([&] {
      while (!confined) ::usleep(1000);
      if (::socket(AF_UNIX, SOCK_STREAM, 0) < 0) error = errno;
    });
    const bool calls = confine().calls;
    confined = true;
    other.join();
    ::_exit(!calls || error == EPERM ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Runner, ACandidateReadsNoFileOfTheUserAndNoOtherProcess) {
  const Confinement here = confinement_of_a_child();
  if (!here.files) GTEST_SKIP() << "this kernel has no Landlock";
  Runner runner(options());
  auto found = findings("test.reach", runner);
  EXPECT_EQ(found["/etc/passwd"], "EACCES");
  EXPECT_EQ(found["environment of the parent"], "EACCES");
  EXPECT_EQ(found["write"], "EACCES");
  EXPECT_EQ(found["library"], "0");
  if (here.landlock >= 6) {
    EXPECT_EQ(found["signal to the parent"], "EPERM");
  }
}

TEST(Runner, StopsAtOnceWhenCancelled) {
  std::atomic<bool> cancel{false};
  RunnerOptions o = options(60'000);
  o.cancel = &cancel;
  Runner runner(o);
  const uint32_t id = runner.add(fault_executable({"test.hang"}));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cancel = true;
  });
  EXPECT_THROW(runner.measure(copy_case(id, 1)), Error);
  later.join();
  EXPECT_EQ(runner.worker(), 0);
}

TEST(Runner, AMissingWorkerIsNamed) {
  RunnerOptions o;
  o.program = "/nowhere/nimble-worker";
  Runner runner(o);
  const uint32_t id = runner.add(fault_executable({"test.copy"}));
  try {
    runner.measure(copy_case(id, 1));
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kNotFound);
    EXPECT_THAT(e.what(), HasSubstr("/nowhere/nimble-worker"));
  }
}

TEST(Runner, TheWorkerDiesWithItsParent) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    Runner runner(options(60'000));
    const uint32_t good = runner.add(fault_executable({"test.copy"}));
    runner.measure(copy_case(good, 1));
    const pid_t worker = runner.worker();
    if (::write(pipe_ends[1], &worker, sizeof worker) != sizeof worker) ::_exit(1);
    const uint32_t id = runner.add(fault_executable({"test.hang"}));
    runner.measure(copy_case(id, 1));
    ::_exit(0);
  }
  pid_t worker = 0;
  ASSERT_EQ(::read(pipe_ends[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  EXPECT_EQ(::kill(worker, 0), 0);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  // It is a zombie of init's, or nobody, within moments.
  bool gone = false;
  for (int i = 0; i < 200 && !gone; ++i) {
    std::string state = "gone";
    if (std::FILE* f = std::fopen(fmt::format("/proc/{}/stat", worker).c_str(), "r")) {
      char text[256] = {};
      if (std::fgets(text, sizeof text, f))
        state = std::string(text).substr(std::string(text).rfind(')') + 2, 1);
      std::fclose(f);
    }
    gone = state == "gone" || state == "Z" || state == "X";
    if (!gone) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(gone);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

}  // namespace
}  // namespace nimble::tuner
