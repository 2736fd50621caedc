// The checks of loading: memory that there is not, and native code. scripts/mutate-verifier tells
// which are missing.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "vm/base/file.h"
#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LoadChecks : public Interpreter {
 protected:
  // By a name of its own or, in the image of another level, by the kernel's.
  void load_native(const std::string& kernel, const std::string& symbol,
                   SessionOptions options = {1}, bool perf_map = false) {
    exec::Executable e = exec::assemble(
        "kernel \"" + kernel + "\" { symbols n  in f32 ([a0])  scratch [0]  dispatch { 0: 0 }  " +
        "native \"" + symbol + "\" }" +
        "function \"main\" 1 2 { InvokePacked k0, (r0)  LoadConsti r1, 1  Ret r1 }" + kScalarEntry);
    exec::NativeImage native;
    native.target = "x86-64-v1";
    native.bytes = image_;
    e.images.push_back(native);
    LoadOptions load;
    load.trust = true;
    load.perf_map = perf_map;
    model_ = Model::load(std::move(e), load, "test");
    session_ = std::make_unique<Session>(model_, options);
  }

 private:
  const std::vector<uint8_t> image_ = read_file(NIMBLE_FIXTURE_DIR "/good.so");
};

const Input kThree{{3}, {1, 2, 3}};

// Memory that no machine has, of a file that claims to have it.
TEST_F(LoadChecks, ConstantsThatDoNotFit) {
  static const uint8_t byte = 0;
  const auto failure = [&](int32_t device, bool hot, int64_t bytes) -> std::string {
    exec::Executable e;
    exec::Constant c;
    c.name = "c";
    c.dtype = DType::kU8;
    c.shape = {bytes};
    c.device = device;
    c.hot = hot;
    c.bytes = {&byte, static_cast<size_t>(bytes)};  // nobody gets as far as to read them
    e.constants.push_back(c);
    LoadOptions options;
    options.trust = true;
    try {
      Model::load(std::move(e), options, "test");
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kExhausted);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(failure(kStandInDevice, false, int64_t{1} << 40),
              HasSubstr("no memory for constant"));
  EXPECT_THAT(failure(kCpuDevice, true, int64_t{1} << 61), HasSubstr("no memory for"));
}

// To the byte, of what is taken last.
TEST_F(LoadChecks, LoadingTakesWhatItIsGiven) {
  static const std::vector<uint8_t> bytes(size_t{1} << 20);
  for (const int32_t device : {kCpuDevice, kStandInDevice}) {
    const auto failure = [&](uint64_t memory) -> std::string {
      exec::Executable e = exec::assemble(std::string(kAddKernel) + kAddModel);
      exec::Constant c;
      c.name = "c";
      c.dtype = DType::kU8;
      c.shape = {static_cast<int64_t>(bytes.size())};
      c.device = device;
      c.hot = true;
      c.bytes = bytes;
      e.constants.push_back(c);
      LoadOptions options;
      options.limits.memory = memory;
      try {
        Model::load(std::move(e), options, "test");
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::kExhausted);
        return error.what();
      }
      return "";
    };
    const std::string text = failure(bytes.size());
    const size_t take = text.find("would take "), left = text.find("bytes, ");
    ASSERT_NE(take, std::string::npos) << text;
    ASSERT_NE(left, std::string::npos) << text;
    const uint64_t missing =
        std::stoull(text.substr(take + 11)) - std::stoull(text.substr(left + 7));
    EXPECT_GE(missing, 1u);
    EXPECT_EQ(failure(bytes.size() + missing), "");
    EXPECT_THAT(failure(bytes.size() + missing - 1), HasSubstr("would take"));
  }
}

// What native code says of its call, and code that is not there.
TEST_F(LoadChecks, NativeKernels) {
  for (const auto& [kernel, symbol] :
       {std::pair("k", "count_calls"), {"count_calls", "count_calls_v4"}}) {
    load_native(kernel, symbol);
    EXPECT_THAT(failure({kThree}), AllOf(HasSubstr("failed with code 1"), HasSubstr("n = 3")));
    EXPECT_THAT(failure({kThree}), HasSubstr("failed with code 2"));
  }
  try {
    load_native("k", "absent");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kCorrupt);
    EXPECT_THAT(e.what(), HasSubstr("the native code has no absent"));
  }
}

// Who is trusted with native code is trusted with its threads.
TEST_F(LoadChecks, ThreadsOfNativeKernelsTakeNoFuel) {
  SessionOptions options{2};
  options.fuel = 100;
  load_native("k", "count_calls", options);
  EXPECT_THAT(failure({kThree}), HasSubstr("failed with code"));
}

TEST_F(LoadChecks, PerfMapsAreWrittenForWhoAsks) {
  const std::string map = fmt::format("/tmp/perf-{}.map", ::getpid());
  const auto writes = [&](bool option, const char* variable) {
    std::remove(map.c_str());
    if (variable) ::setenv("NIMBLE_PERF_MAP", variable, 1);
    load_native("k", "count_calls", {1}, option);
    ::unsetenv("NIMBLE_PERF_MAP");
    return std::remove(map.c_str()) == 0;
  };
  ::unsetenv("NIMBLE_PERF_MAP");
  EXPECT_FALSE(writes(false, nullptr));
  EXPECT_FALSE(writes(false, "0"));
  EXPECT_FALSE(writes(false, ""));
  EXPECT_TRUE(writes(false, "1"));
  EXPECT_TRUE(writes(true, nullptr));
  EXPECT_TRUE(writes(true, "0"));
}

}  // namespace
}  // namespace nimble::rt
