// What cannot be run, or not here, as a user meets it: one error on stderr each, as of what cannot
// be compiled (bad_input_test.cpp).
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "compiler/tools/test/bad_input.h"
#include "db/store/gpu_records.h"
#include "db/store/store.h"
#include "vm/base/cpu.h"
#include "vm/base/test/refuse_tiles.h"
#include "vm/base/test/scoped_variable.h"

namespace nimble::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(BadInput, InputsThatDoNotFit) {
  compiled();
  auto run_model = [&](std::vector<std::string> inputs) {
    std::vector<std::string> a = {"nimble-run", file("model.nimble")};
    for (std::string& i : inputs) a.insert(a.end(), {"-i", std::move(i)});
    return run(a);
  };
  ASSERT_EQ(run_model({"x=ones:3x4", "m=ones:3"}).code, 0);
  expect_error(run_model({"x=ones:3x5", "m=ones:3"}), {"x", "(n, 4)"});
  expect_error(run_model({"x=ones:3", "m=ones:3"}), {"x", "(n, 4)"});
  expect_error(run_model({"x=ones:3x4", "m=ones:2"}), {"m", "n"});
  expect_error(run_model({"x=ones:3x4"}), {"m"});
  expect_error(run_model({"x=ones:3x4", "mm=ones:3"}), {"mm", "did you mean m?"});
  expect_error(run_model({"x=ones:3x4", "m=@" + file("none.npy")}), {"none.npy"});
  expect_error(run_model({"x=[[1, 2, 3, 4], [1, 2]]", "m=ones:2"}), {"x"});
  write(file("broken.npy"), "\x93NUMPY\x01");
  expect_error(run_model({"x=@" + file("broken.npy"), "m=ones:2"}), {"broken.npy"});
}

// The operator, the axis, its extent, and what the random integers were.
TEST_F(BadInput, IndicesOutOfRange) {
  write(file("gather.nir"),
        "fn @main(%w: Tensor[(n, 4), f32], %i: Tensor[(m), i64]) {\n"
        "  let %y = gather(%w, %i) {axis = 0};\n  %y\n}\n");
  ASSERT_EQ(compile(file("gather.nir"), {}, "gather.nimble").code, 0);
  for (const char* native : {"--verify", "--no-native"}) {
    const Ran r =
        run({"nimble-run", file("gather.nimble"), "-i", "w=zeros:3x4", "-i", "i=[1, 3]", native});
    expect_error(r, {"an index of gather is out of range of axis 0, which has ", " = 3",
                     "check the values of the inputs"});
  }
  expect_error(run({"nimble-bench", file("gather.nimble"), "--shapes", "n=3", "--set", "m=50"}),
               {"an index of gather is out of range", "0 to 99", "--int-range"});
}

// A kernel cannot be interrupted, so that a second Ctrl-C ends the program.
TEST_F(BadInput, TwoInterruptsEndAKernel) {
  write(file("long.nir"),
        "fn @main(%x: Tensor[(n, 1), f32], %y: Tensor[(1, n), f32]) {\n"
        "  let %p = mul(%x, %y);\n  let %s = sum(%p) {axes = [0, 1], keepdims = false};\n"
        "  %s\n}\n");
  ASSERT_EQ(compile(file("long.nir"), {}, "long.nimble").code, 0);
  const std::string program =
      (fs::read_symlink("/proc/self/exe").parent_path() / "nimble-run").string();
  const std::string error = file("stderr"), model = file("long.nimble");
  const pid_t child = fork();
  if (child == 0) {
    if (!freopen(error.c_str(), "w", stderr)) _exit(125);
    execl(program.c_str(), program.c_str(), model.c_str(), "-i", "x=zeros:4000000x1", "-i",
          "y=zeros:1x4000000", "--threads", "1", nullptr);
    _exit(126);
  }
  // The kernel runs once the program has used more time than loading takes.
  const auto busy = [&] {
    std::istringstream stat(contents(fmt::format("/proc/{}/stat", child)));
    std::string word;
    long ticks = 0;
    for (int i = 1; i <= 15 && stat >> word; ++i)
      if (i >= 14) ticks += std::stol(word);
    return ticks >= sysconf(_SC_CLK_TCK);
  };
  int status = 0;
  bool ended = false;
  while (!busy() && !(ended = waitpid(child, &status, WNOHANG) != 0)) usleep(10000);
  ASSERT_FALSE(ended) << contents(error);
  while (waitpid(child, &status, WNOHANG) == 0) {
    kill(child, SIGINT);
    usleep(50000);
  }
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kExitInterrupted);
  EXPECT_EQ(contents(error), "") << "the run came to its end";
}

TEST_F(BadInput, ExecutableOfAnotherMachine) {
  ASSERT_EQ(compile(file("model.nir"), {"--target", "x86-64-v4"}, "other.nimble").code, 0);
  expect_error(run({"nimble-run", file("other.nimble"), "-i", "x=ones:1x4", "-i", "m=ones:1"},
                   [] { setenv("NIMBLE_CPU_LEVEL", "x86-64-v2", 1); }),
               {file("other.nimble"), "--target x86-64-v2", "--no-native"});
  // Its portable kernels run here all the same; those of this machine give the same text.
  compiled();
  const std::vector<std::string> inputs = {"-i", "x=ones:1x4", "-i", "m=ones:1"};
  auto with = [&](std::vector<std::string> a) {
    a.insert(a.end(), inputs.begin(), inputs.end());
    return run(std::move(a));
  };
  const Ran foreign = with({"nimble-run", "--no-native", file("other.nimble")});
  EXPECT_EQ(foreign.code, 0) << foreign.error;
  EXPECT_EQ(foreign.out, with({"nimble-run", file("model.nimble")}).out);
}

TEST_F(BadInput, ThePrecisionIsToldToOtherPrograms) {
  ASSERT_EQ(compile(file("model.nir"), {"--precision", "bf16"}, "narrow.nimble").code, 0);
  const Ran told = run({"nimble-inspect", "--provenance", file("narrow.nimble")});
  EXPECT_NE(told.out.find("option precision"), std::string::npos) << told.out;
  EXPECT_NE(told.out.find("bf16"), std::string::npos) << told.out;
  // What it says is next to do is about the same workloads.
  const Ran next = compile(file("model.nir"), {"--precision", "bf16"}, "narrow.nimble");
  EXPECT_NE(next.out.find("model.nir --precision bf16 --db"), std::string::npos) << next.out;
}

// nimble tune measures for this machine if it is told nothing else, and portable forms nowhere.
TEST_F(BadInput, TheTargetIsToldToOtherPrograms) {
  const std::string other = host_cpu().has("x86-64-v2") ? "aarch64-dotprod" : "x86-64-v3";
  const Ran foreign = compile(file("model.nir"), {"--target", other}, "foreign.nimble");
  ASSERT_EQ(foreign.code, 0) << foreign.error;
  EXPECT_THAT(foreign.out, HasSubstr("model.nir --target " + other + " --db tuning.db` would"));
  EXPECT_THAT(foreign.out, HasSubstr(" on a machine of that level"));
  const Ran here = compile(file("model.nir"), {"--policy", "cold"}, "here.nimble");
  EXPECT_THAT(here.out, AllOf(HasSubstr("model.nir --db tuning.db --policy cold` would measure"),
                              Not(HasSubstr("on a machine"))));
  const Ran portable = compile(file("model.nir"), {"--target", "portable"}, "portable.nimble");
  EXPECT_THAT(portable.out, Not(HasSubstr("nimble tune")));
}

TEST_F(BadInput, TilesAreToldToOtherPrograms) {
  const auto told = [&](const std::string& name) {
    return run({"nimble-inspect", "--provenance", file(name)}).out;
  };
  const Ran tiled = compile(file("model.nir"), {"--winograd", "4"}, "tiled.nimble");
  ASSERT_EQ(tiled.code, 0) << tiled.error;
  EXPECT_NE(told("tiled.nimble").find("option winograd"), std::string::npos);
  EXPECT_NE(tiled.out.find("model.nir --winograd 4 --db"), std::string::npos) << tiled.out;
  const Ran plain = compile(file("model.nir"), {}, "plain.nimble");
  ASSERT_EQ(plain.code, 0) << plain.error;
  EXPECT_EQ(told("plain.nimble").find("winograd"), std::string::npos);
  EXPECT_EQ(plain.out.find("winograd"), std::string::npos) << plain.out;
}

// Of two machines that differ in one instruction.
TEST_F(BadInput, ExecutableOfAHigherLevel) {
  ASSERT_EQ(compile(file("model.nir"), {"--target", "x86-64-v4-bf16"}, "bf16.nimble").code, 0);
  const std::vector<std::string> run_it = {"nimble-run", file("bf16.nimble"), "-i", "x=ones:1x4",
                                           "-i",         "m=ones:1"};
  const auto as = [](const char* level) {
    return [level] { setenv("NIMBLE_CPU_LEVEL", level, 1); };
  };
  expect_error(run(run_it, as("x86-64-v4-vnni")), {file("bf16.nimble"), "avx512bf16", "--target"});
  ASSERT_EQ(
      compile(file("model.nir"), {"--target", "x86-64-v2,x86-64-v4-bf16"}, "both.nimble").code, 0);
  const Ran both = run({"nimble-run", file("both.nimble"), "-i", "x=ones:1x4", "-i", "m=ones:1"},
                       as("x86-64-v4-vnni"));
  EXPECT_EQ(both.code, 0) << both.error;
}

// Of a machine that has AMX, and a process that may not use it.
TEST_F(BadInput, ExecutableForRegistersThatLinuxRefuses) {
  if (tile_registers() != TileRegisters::kGranted) GTEST_SKIP() << "this machine lacks AMX";
  const auto refused = [] {
    if (!refuse_tile_registers()) std::abort();
  };
  const Ran doctor = run({"nimble-doctor", "--format", "json"}, refused);
  ASSERT_EQ(doctor.code, 0) << doctor.error;
  EXPECT_EQ(doctor.out.find("\"amx_tile\""), std::string::npos) << doctor.out;
  EXPECT_NE(doctor.out.find("Linux refuses this process its tile registers"), std::string::npos);
  const auto ran = [&](const char* targets) {
    EXPECT_EQ(compile(file("model.nir"), {"--target", targets}, "amx.nimble").code, 0);
    const std::vector<std::string> command = {"nimble-run", file("amx.nimble"), "-i", "x=ones:1x4",
                                              "-i",         "m=ones:1"};
    const Ran granted = run(command);
    const Ran without = run(command, refused);
    EXPECT_EQ(granted.code, 0) << granted.error;
    EXPECT_EQ(without.code, 0) << targets << ": " << without.error;
    EXPECT_EQ(without.out, granted.out) << targets;
  };
  ran("x86-64-v4-amx");
  ran("x86-64-v4-amx,x86-64-v4-bf16");
  // What is compiled for this machine there is for the level below.
  const Ran native =
      run({"nimble-compile", file("model.nir"), "-o", file("native.nimble")}, refused);
  ASSERT_EQ(native.code, 0) << native.error;
  const Ran inspected = run({"nimble-inspect", file("native.nimble")});
  EXPECT_NE(inspected.out.find("x86-64-v4-bf16"), std::string::npos) << inspected.out;
}

// Code for another architecture is made here and refused here, by both names; portable kernels run.
TEST_F(BadInput, CodeOfAnotherArchitectureIsRefusedWhereItIsLoaded) {
  if (host_architecture() != CpuArchitecture::kX86_64) GTEST_SKIP() << "it is this machine's";
  expect_error(compile(file("model.nir"), {"--target", "aarch64,x86-64-v2"}),
               {"aarch64", "x86-64-v2", "one architecture"}, kExitUsage);
  expect_error(compile(file("model.nir"), {"--target", "aarch64-linux", "--features", "bf16"}),
               {"--features", "bf16", "dotprod, i8mm"});
  expect_error(compile(file("model.nir"), {"--target", "aarch64-linux", "--features", "avx2"}),
               {"--features", "avx2", "dotprod, i8mm, bf16"});
  expect_nothing_written();
  ASSERT_EQ(compile(file("model.nir"), {"--target", "aarch64-linux", "--features", "dotprod"},
                    "arm.nimble")
                .code,
            0);
  const Ran inspected = run({"nimble-inspect", file("arm.nimble")});
  EXPECT_NE(inspected.out.find("aarch64-dotprod"), std::string::npos) << inspected.out;
  const std::vector<std::string> command = {"nimble-run", file("arm.nimble"), "-i", "x=ones:1x4",
                                            "-i",         "m=ones:1"};
  expect_error(run(command),
               {file("arm.nimble"), "native code is for aarch64-dotprod", "x86-64", "--no-native"});
  std::vector<std::string> portable = command;
  portable.push_back("--no-native");
  EXPECT_EQ(run(portable).code, 0);
}

// Whose records serve a target that this machine is not of: where the database has several such
// machines, the user says.
TEST_F(BadInput, RecordsOfAnotherArchitecture) {
  if (host_architecture() != CpuArchitecture::kX86_64) GTEST_SKIP() << "it is this machine's";
  const auto board = [](const char* name, const char* isa) {
    db::Hardware h;
    h.vendor = "ARM";
    h.model_name = name;
    h.isa = isa;
    return h;
  };
  const auto store = db::Store::open(file("boards.db"));
  const std::vector<std::string> dotprod = {"--target", "aarch64-linux", "--features",
                                            "dotprod",  "--db",          file("boards.db")};
  const auto compiles = [&](const std::vector<std::string>& arguments) {
    const Ran r = compile(file("model.nir"), arguments, "arm.nimble");
    EXPECT_EQ(r.code, 0) << r.error;
    EXPECT_NE(r.out.find("no tuning record"), std::string::npos) << r.out;
  };
  compiles(dotprod);  // no such machine
  store->put(board("Cortex-A76", "aarch64+asimddp"));
  store->put(board("Cortex-A72", "aarch64"));
  compiles(dotprod);
  store->put(board("Neoverse-N1", "aarch64+asimddp"));
  expect_error(compile(file("model.nir"), dotprod),
               {"aarch64-dotprod", "--hardware", "Cortex-A76", "Neoverse-N1"});
  std::vector<std::string> named = dotprod;
  named.insert(named.end(), {"--hardware", "Neoverse-N1"});
  compiles(named);
}

// Code for a GPU is made anywhere: whose records serve it follows from this machine's GPU, else
// from the database.
TEST_F(BadInput, RecordsOfAGpuAreThoseOfThisOneOrOfTheDatabasesOnlyOne) {
  const std::shared_ptr<db::Store> store = db::Store::open(file("gpus.db"));
  const auto gpu = [&](const std::string& name, int capability) {
    store->put(db::gpu_hardware(
        {name, capability, 132, 232448, 50 << 20, uint64_t{80} << 30, 2'619'000, 5120}));
  };
  const auto check = [&](std::vector<std::string> more, const std::string& driver) {
    const ScopedVariable library("NIMBLE_CUDA_DRIVER", driver);
    more.insert(more.begin(),
                {"nimble-check", file("model.nir"), "--target", "sm_90a", "--db", file("gpus.db")});
    return run(more);
  };
  const std::string none = "/nowhere/libcuda.so.1";
  const auto accepted = [](const Ran& r) { EXPECT_EQ(r.code, 0) << r.error; };
  accepted(check({}, none));  // no such GPU
  gpu("NVIDIA A100", 80);
  gpu("NVIDIA H100", 90);
  accepted(check({}, none));
  gpu("NVIDIA H200", 90);
  expect_error(check({}, none),
               {"sm_90a", "2 kinds of GPUs", "--hardware", "NVIDIA H100", "NVIDIA H200"});
  accepted(check({"--hardware", "H200"}, none));
  expect_error(check({"--hardware", "A100"}, none), {"NVIDIA A100", "sm_90a"});
  accepted(check({}, NIMBLE_STANDIN_CUDA));  // the one that is here
}

TEST_F(BadInput, PortableFormsAreOptional) {
  ASSERT_EQ(compile(file("model.nir"), {"--portable", "off"}, "native.nimble").code, 0);
  expect_error(run({"nimble-run", "--no-native", file("native.nimble"), "-i", "x=ones:1x4", "-i",
                    "m=ones:1"}),
               {file("native.nimble"), "no portable form"});
  ASSERT_EQ(compile(file("model.nir"), {"--target", "portable"}, "portable.nimble").code, 0);
  const Ran r = run({"nimble-run", file("portable.nimble"), "-i", "x=ones:1x4", "-i", "m=ones:1"});
  EXPECT_EQ(r.code, 0) << r.error;
}

TEST_F(BadInput, ExecutableMissingTruncatedOrFlipped) {
  auto run_file = [&](const std::string& name) {
    return run({"nimble-run", file(name), "-i", "x=ones:1x4", "-i", "m=ones:1"});
  };
  expect_error(run_file("none.nimble"), {file("none.nimble")});
  expect_error(run_file("model.nir"), {file("model.nir")});
  compiled();
  std::string whole = contents(file("model.nimble"));
  for (size_t size : {size_t{0}, size_t{7}, size_t{64}, whole.size() / 2, whole.size() - 1}) {
    write(file("cut.nimble"), whole.substr(0, size));
    expect_error(run_file("cut.nimble"), {file("cut.nimble")});
  }
  // Every part of the file: header, sections, code, padding. vm/executable's tests flip each byte.
  for (size_t i = 0; i < 40; ++i) {
    std::string flipped = whole;
    flipped[i * (whole.size() - 1) / 39] ^= 0x20;
    write(file("flipped.nimble"), flipped);
    expect_error(run_file("flipped.nimble"), {file("flipped.nimble")});
  }
}

}  // namespace
}  // namespace nimble::tools
