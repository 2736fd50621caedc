// Candidates of a GPU, on a stand-in for its driver: those that trap, hang or lie cost themselves
// and nothing else, and times are the GPU's.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tuner/measure/confine.h"
#include "tuner/measure/runner.h"
#include "tuner/measure/test/fault_executable.h"
#include "tuner/measure/test/gpu_fault_executable.h"
#include "vm/base/error.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/executable/reader.h"

namespace nimble::tuner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuRunner : public ::testing::Test {
 protected:
  static RunnerOptions options(int64_t hang_ms = 2000) {
    RunnerOptions o;
    o.program = NIMBLE_GPU_FAULT_WORKER;
    o.hang_ms = hang_ms;
    o.gpu = true;
    return o;
  }
  // A case of kernels that stand in one executable; its times are quick to take.
  static Case case_of(Runner& runner, const std::vector<std::string>& kernels, int64_t n = 64) {
    return copy_case(runner.add(gpu_fault_executable(kernels)),
                     static_cast<uint32_t>(kernels.size()), n);
  }
  static std::vector<EntryState> states(const std::vector<EntryResult>& results) {
    std::vector<EntryState> out;
    for (const EntryResult& r : results) out.push_back(r.state);
    return out;
  }
  static EntryResult only(Runner& runner, const std::string& kernel) {
    return runner.measure(case_of(runner, {kernel})).at(0);
  }
  // Whether the worker has kept to the driver's rules so far.
  static void expect_no_violations(Runner& runner) {
    const int64_t workers = runner.workers_started();
    const EntryResult r = only(runner, "audit");
    EXPECT_EQ(r.state, EntryState::kOk) << r.message;
    EXPECT_EQ(runner.workers_started(), workers) << "another one is asked";
  }

  const ScopedVariable library_{"NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA};
};

using S = EntryState;

TEST_F(GpuRunner, TimesARightCandidateByTheGpusClock) {
  Runner runner(options());
  const auto results = runner.measure(case_of(runner, {"copy", "slow"}));
  // There each piece of work takes a millisecond, and the slow one nine more; on the host's clock a
  // few microseconds pass.
  for (const EntryResult& r : results) {
    EXPECT_EQ(r.state, S::kOk) << r.message;
    EXPECT_EQ(r.max_error, 0);
    ASSERT_GE(r.samples_ns.size(), 3u);
  }
  for (double s : results[0].samples_ns) EXPECT_NEAR(s, 2e6, 1e3);
  for (double s : results[1].samples_ns) EXPECT_NEAR(s, 11e6, 1e3);
  expect_no_violations(runner);
}

TEST_F(GpuRunner, ComparesResultsAtOddSizesAndAtNone) {
  Runner runner(options());
  for (int64_t n : {0, 1, 31, 33, 1009}) {
    const auto results = runner.measure(case_of(runner, {"copy", "wrong", "nothing"}, n));
    if (n == 0) {
      EXPECT_EQ(results[0].state, S::kOk) << results[0].message;
      continue;
    }
    EXPECT_EQ(states(results), (std::vector{S::kOk, S::kWrong, S::kWrong})) << n;
    EXPECT_EQ(results[1].worst_element, 0);
    EXPECT_THAT(results[1].message, HasSubstr("result is off by"));
  }
  EXPECT_EQ(runner.workers_started(), 1);
  expect_no_violations(runner);
}

TEST_F(GpuRunner, ATrapCostsItsCandidateAndTheDeviceIsThereAgain) {
  Runner runner(options());
  const auto results = runner.measure(case_of(runner, {"copy", "trap", "copy", "trap"}));
  EXPECT_EQ(states(results), (std::vector{S::kOk, S::kCrashed, S::kOk, S::kCrashed}));
  EXPECT_THAT(results[1].message, AllOf(HasSubstr("exit code 1"), HasSubstr("ILLEGAL_ADDRESS")));
  EXPECT_EQ(runner.workers_started(), 3);
  EXPECT_EQ(only(runner, "copy").state, S::kOk);
  expect_no_violations(runner);
}

TEST_F(GpuRunner, ATrapWhileItIsTimedIsItsCandidatesToo) {
  Runner runner(options());
  const auto results = runner.measure(case_of(runner, {"copy", "late_trap", "copy"}));
  EXPECT_EQ(states(results), (std::vector{S::kOk, S::kCrashed, S::kOk}));
  EXPECT_EQ(runner.workers_started(), 2);
  expect_no_violations(runner);
}

TEST_F(GpuRunner, AHangCostsItsCandidate) {
  Runner runner(options(1500));
  const auto results = runner.measure(case_of(runner, {"copy", "hang", "copy"}));
  EXPECT_EQ(states(results), (std::vector{S::kOk, S::kTimeout, S::kOk}));
  EXPECT_THAT(results[1].message, HasSubstr("no progress for 1500 ms"));
  EXPECT_EQ(runner.workers_started(), 2);
  expect_no_violations(runner);
}

// Nothing is lost by a check that a kernel makes itself.
TEST_F(GpuRunner, AFailedCheckNeedsNoOtherWorker) {
  Runner runner(options());
  const auto results = runner.measure(case_of(runner, {"copy", "failing", "copy"}));
  EXPECT_EQ(states(results), (std::vector{S::kOk, S::kFailed, S::kOk}));
  EXPECT_THAT(results[1].message, HasSubstr(kGpuCheck));
  EXPECT_EQ(runner.workers_started(), 1);
}

TEST_F(GpuRunner, NoTwoRunsInARowFindTheirOperandsInTheSamePlace) {
  for (const char* kernel : {"rotated", "rotated_fast"})
    for (const char* policy : {"warm", "weights-cold", "cold"}) {
      Runner runner(options());
      Case c = case_of(runner, {kernel}, 1000);
      c.inputs[0].constant = true;
      c.policy.choose_class(policy);
      c.policy.rotate_bytes = 10 * 4000;
      fill_tensor(c.inputs[0], DType::kF32, 99, 0, c.expected[0]);
      const EntryResult r = runner.measure(c).at(0);
      EXPECT_EQ(r.state, S::kOk) << kernel << ", " << policy << ": " << r.message;
      // Short ones go through all copies, in each sample: as graphs of the same row.
      const int64_t copies = std::string(policy) == "cold" ? 5 : 10;
      if (std::string(kernel) == "rotated_fast")
        EXPECT_EQ(r.runs_per_sample % copies, 0) << r.runs_per_sample;
      else
        EXPECT_EQ(r.runs_per_sample, 1);
      expect_no_violations(runner);
    }
}

// Whoever has a GPU open is shut in like any other.
TEST_F(GpuRunner, TheWorkerReachesNoFiles) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(confine().files ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) GTEST_SKIP() << "this kernel has no Landlock";
  Runner runner(options());
  const EntryResult r = only(runner, "reaching");
  EXPECT_EQ(r.state, S::kOk) << r.message;
}

// A library that the environment names may lie in the user's home.
TEST_F(GpuRunner, OfALibrarysFolderItReachesTheLibraries) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(confine().files ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) GTEST_SKIP() << "this kernel has no Landlock";
  std::string folder = ::testing::TempDir() + "nimble-libraries-XXXXXX";
  ASSERT_TRUE(::mkdtemp(folder.data()));
  std::filesystem::create_directory(folder + "/libfolder.so");
  for (const char* name : {"libcudnn.so.9", "libpart.so.9.1", "secret", "libfolder.so/secret"})
    std::ofstream(folder + "/" + name) << name;
  {
    const ScopedVariable named("NIMBLE_CUDNN", folder + "/libcudnn.so.9");
    Runner runner(options());
    const EntryResult r = only(runner, "reaching_beside");
    EXPECT_EQ(r.state, S::kOk) << r.message;
  }
  std::filesystem::remove_all(folder);
}

// What a library does before a candidate runs is none of the candidate's time.
TEST_F(GpuRunner, ALibraryMayTakeLongerThanACandidate) {
  Runner runner(options(500));
  exec::Executable e = exec::assemble(
      fmt::format("kernel \"k0\" {{\n  source \"copy\"\n  symbols s0 device d2\n  in f32 ([a0])\n"
                  "  out f32 ([a0])\n  dispatch {{ 0: 0 }}\n  vendor \"{}\"\n}}\n",
                  kSlowLibrary));
  const EntryResult r = runner.measure(copy_case(runner.add(exec::serialize(e)), 1)).at(0);
  EXPECT_EQ(r.state, S::kUnavailable) << r.message;
  EXPECT_EQ(runner.workers_started(), 1);
}

TEST_F(GpuRunner, CodeOfACpuIsRefused) {
  exec::Executable e = exec::deserialize(gpu_fault_executable({"copy"}));
  const std::vector<uint8_t> code(64);
  exec::NativeImage image;
  image.target = "x86-64-v2";
  image.bytes = code;
  e.images.push_back(image);
  Runner runner(options());
  const EntryResult r = runner.measure(copy_case(runner.add(exec::serialize(e)), 1)).at(0);
  EXPECT_EQ(r.state, S::kFailed);
  EXPECT_THAT(r.message, HasSubstr("they have code for x86-64-v2"));
}

TEST_F(GpuRunner, GivesBackWhatACandidateComputes) {
  Runner runner(options());
  const Case c = case_of(runner, {"copy"}, 33);
  std::string why;
  const auto outputs = runner.run(c, &why);
  ASSERT_TRUE(outputs) << why;
  EXPECT_EQ(*outputs, c.expected);
  EXPECT_FALSE(runner.run(case_of(runner, {"trap"}), &why));
  EXPECT_THAT(why, HasSubstr("ILLEGAL_ADDRESS"));
  EXPECT_TRUE(runner.run(c, &why)) << why;
}

TEST_F(GpuRunner, WithoutADriverTheWorkerSaysSo) {
  const ScopedVariable none("NIMBLE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  Runner runner(options());
  try {
    only(runner, "copy");
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("its driver is not there"));
  }
}

}  // namespace
}  // namespace nimble::tuner
