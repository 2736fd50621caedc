// Passes that fail on purpose exist here alone: each leaves a module from which nimble opt gets to
// the same place.
#include "compiler/passes/support/crash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <filesystem>
#include <map>
#include <regex>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/file.h"

namespace nimble::passes {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kProgram[] = R"(
fn @main(%x: Tensor[(n, 4), f32]) {
  let %a = relu(%x);
  let %b = exp(%a);
  let %c = add(%b, f32[3, 1, 4, 2, 4]{1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63,64,65,66,67,68,69,70,71,72,73,74,75,76,77,78,79,80,81,82,83,84,85,86,87,88,89,90,91,92,93,94,95,96});
  %c
}
)";

bool has(const ir::Module& m, const char* op) {
  bool found = false;
  for (const auto& [name, f] : m.functions)
    visit_bindings(*f->body, [&](const ir::Binding& b) {
      found |= b.value->op == op;
      if (b.value->primitive)
        visit_bindings(*b.value->primitive->body,
                       [&](const ir::Binding& inner) { found |= inner.value->op == op; });
    });
  return found;
}

ir::Module check_exp(const ir::Module& m, PassContext&) {
  NIMBLE_CHECK(!has(m, "exp"), "an exponential");
  return m;
}

ir::Module wild_pointer(const ir::Module& m, PassContext&) {
  volatile int* nowhere = nullptr;
  if (has(m, "exp")) *nowhere = 1;
  return m;
}

int deep(volatile int* depth) {
  *depth = *depth + 1;
  return deep(depth) + *depth;
}
ir::Module endless_recursion(const ir::Module& m, PassContext&) {
  volatile int depth = 0;
  if (has(m, "exp")) deep(&depth);
  return m;
}

class Crash : public ::testing::Test {
 protected:
  Crash() {
    std::string pattern = ::testing::TempDir() + "nimble-crash-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~Crash() override { fs::remove_all(folder_); }

  PipelineOptions options() const {
    PipelineOptions o;
    o.passes = {"infer", "simplify", "check-exp", "wild-pointer", "endless-recursion", "fuse"};
    o.extra_passes = {{"check-exp", check_exp, ""},
                      {"wild-pointer", wild_pointer, ""},
                      {"endless-recursion", endless_recursion, ""}};
    return o;
  }

  // Runs the pipeline in a child, which must end by the signal; what it says on stderr.
  std::string crash(const PipelineOptions& o, int signal, const std::string& folder) {
    const std::string said = folder_ + "/stderr";
    const pid_t child = fork();
    if (child == 0) {
      if (!freopen(said.c_str(), "w", stderr)) _exit(125);
      install_crash_handler(folder);
      PassContext context;
      context.target = kernels::target_by_name("x86-64-v3");
      run_pipeline(ir::parse_module(kProgram), context, o);
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), signal);
    return read_text_file(said);
  }

  std::vector<std::string> reproducers() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().extension() == ".nir") out.push_back(entry.path().string());
    return out;
  }

  std::string folder_;
};

TEST_F(Crash, AFailedCheckLeavesTheModuleBeforeThePass) {
  const std::string said = crash(options(), SIGABRT, folder_);
  ASSERT_EQ(reproducers().size(), 1u);
  const std::string path = reproducers()[0];
  EXPECT_THAT(path, HasSubstr("nimble-crash-pass-check-exp-"));
  EXPECT_THAT(said, HasSubstr("check failed: !has(m, \"exp\")"));
  EXPECT_THAT(said, HasSubstr("nimble opt " + path));
  EXPECT_THAT(said, HasSubstr("nimble reduce " + path));

  const std::string text = read_text_file(path);
  EXPECT_THAT(*reproducer_options(text),
              ElementsAre("--passes", "check-exp,wild-pointer,endless-recursion,fuse", "--target",
                          "x86-64-v3"));
  // The module is that after `simplify`, with its big constant, and it shows the fault again.
  PassContext context;
  PipelineOptions before;
  before.passes = {"infer", "simplify"};
  const ir::Module expected = run_pipeline(ir::parse_module(kProgram), context, before);
  const ir::Module found = ir::read_module(path);
  EXPECT_EQ(ir::print(found), ir::print(expected));
  EXPECT_DEATH(check_exp(found, context), "an exponential");
}

TEST_F(Crash, SignalsDoToo) {
  PipelineOptions o = options();
  o.disabled = {"check-exp"};
  EXPECT_THAT(crash(o, SIGSEGV, folder_), HasSubstr("pass 'wild-pointer'"));
  o.disabled = {"check-exp", "wild-pointer"};
  o.verify = true;
  EXPECT_THAT(crash(o, SIGSEGV, folder_), HasSubstr("pass 'endless-recursion'"));
  ASSERT_EQ(reproducers().size(), 2u);
  for (const std::string& path : reproducers()) {
    EXPECT_TRUE(has(ir::read_module(path), "exp"));
    const bool verify = path.find("endless") != std::string::npos;
    EXPECT_EQ(reproducer_options(read_text_file(path))->back() == "--verify", verify);
  }
}

TEST_F(Crash, OutsideAPassOrWithoutAFolderNothingIsWritten) {
  crash(options(), SIGABRT, "");
  EXPECT_TRUE(reproducers().empty());
  const pid_t child = fork();
  if (child == 0) {
    if (!freopen("/dev/null", "w", stderr)) _exit(125);
    install_crash_handler(folder_);
    std::abort();
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
  EXPECT_TRUE(reproducers().empty());
}

TEST_F(Crash, AFolderThatIsNotThereIsSaid) {
  EXPECT_THAT(crash(options(), SIGABRT, folder_ + "/absent"), HasSubstr("could not be written"));
}

TEST(Reproducer, OnlyItsFirstLineCounts) {
  EXPECT_EQ(reproducer_options("fn @main() { %x }\n// RUN-PIPELINE: --verify\n"), std::nullopt);
  EXPECT_THAT(*reproducer_options("// RUN-PIPELINE: --passes a,b --verify\nfn"),
              ElementsAre("--passes", "a,b", "--verify"));
  EXPECT_TRUE(reproducer_options("// RUN-PIPELINE:")->empty());
}

// The text with its variables numbered: a detour through text may rename them. Messages name places
// in the text that was read last.
std::string numbered(const std::string& printed) {
  const std::string text =
      std::regex_replace(printed, std::regex(" at [^\"]*:[0-9]+:[0-9]+:"), " at PLACE:");
  std::map<std::string, size_t> numbers;
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (text[i] == '%') {
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) ||
                                   text[end] == '_' || text[end] == '.'))
        ++end;
      const size_t number = numbers.emplace(text.substr(i, end - i), numbers.size()).first->second;
      out += "%" + std::to_string(number);
    } else {
      out += text[i];
    }
    i = end;
  }
  return out;
}

// Every pass sees what the text form keeps of the module: the same as without the detour.
TEST(Pipeline, ReserialisingChangesNothing) {
  PipelineOptions plain, detour;
  detour.reserialise = true;
  PassContext a, b;
  a.target = b.target = kernels::target_by_name("x86-64-v3");
  EXPECT_EQ(numbered(ir::print(run_pipeline(ir::parse_module(kProgram), a, plain))),
            numbered(ir::print(run_pipeline(ir::parse_module(kProgram), b, detour))));
  EXPECT_EQ(a.statistics, b.statistics);
}

TEST(Pipeline, WithoutFusionEachOperatorHasItsOwnKernel) {
  PipelineOptions options;
  options.passes = {"infer", "fuse"};
  PassContext together, apart;
  const auto groups = [](const ir::Module& m) {
    int n = 0;
    visit_bindings(*m.find("main")->body,
                   [&](const ir::Binding& b) { n += b.value->primitive != nullptr; });
    return n;
  };
  const ir::Module m = ir::parse_module(kProgram);
  EXPECT_EQ(groups(run_pipeline(m, together, options)), 2);
  options.fusion = false;
  EXPECT_EQ(groups(run_pipeline(m, apart, options)), 3);
}

}  // namespace
}  // namespace nimble::passes
