// The corpus once more, a part of its sizes, under each way to compile and run that is not the
// default: a pass left out, an older target, another optimisation level, two threads, through a
// file's bytes, portable kernels in the checked interpreter. And the programs of the text tests,
// whose own commands look at what single passes do.
#include <algorithm>
#include <set>

#include "compiler/driver/test/differential.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/targets.h"
#include "vm/base/cpu.h"

namespace nimble::driver::testing {
namespace {

std::vector<Configuration> configurations() {
  std::vector<Configuration> out = all_configurations();
  out.erase(out.begin());  // the default has the whole corpus: program_test.cpp
  for (Configuration& c : out)
    std::replace_if(
        c.name.begin(), c.name.end(), [](char x) { return !std::isalnum(x); }, '_');
  return out;
}

// Whether a program runs under a configuration: a fifth of the corpus does, another for each
// configuration, but all of what loops and branches: passes and memory are at work there. And all
// of it where kernels run in another form: no other test runs those. (Those of other levels differ
// in their packed weights alone.)
bool runs_under(const Program& p, const Configuration& c) {
  return (c.no_native && c.target == "native") || p.text.find("@loop") != std::string::npos ||
         p.text.find("match (") != std::string::npos ||
         p.fifth == std::hash<std::string>()(c.name) % kFifths;
}

class Configured : public ::testing::TestWithParam<Program> {};

TEST_P(Configured, AgreesWithTheReference) {
  LoweredModules modules(ir::parse_module(GetParam().text, GetParam().name));
  modules.is_new({"default"});  // program_test.cpp compiles and runs that
  for (const Configuration& c : configurations()) {
    if (!runs_under(GetParam(), c) || !modules.is_new(c)) continue;
    check_program(GetParam(), c, 2);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Program, Configured, ::testing::ValuesIn(all_programs()),
                         [](const auto& info) { return info.param.name; });

TEST(CorpusItself, HasProgramsForEachConfiguration) {
  for (const Configuration& c : configurations())
    EXPECT_GT(std::count_if(all_programs().begin(), all_programs().end(),
                            [&](const Program& p) { return runs_under(p, c); }),
              static_cast<ptrdiff_t>(all_programs().size() / 6))
        << c.name;
}

// Programs with constant matrices, which are packed.
std::vector<Program> packed_weights() {
  const auto with_weights = [](const std::string& parameters, const std::string& rows,
                               const std::string& columns, const std::string& call) {
    return fmt::format(
        "fn @main({0}) {{\n"
        "  let %i = range() {{count = {1}*{2}, start = 0, step = 1, dtype = f32}};\n"
        "  let %s = sin(%i);\n"
        "  let %w = reshape(%s) {{shape = ({1}, {2})}};\n"
        "  let %y = {3};\n"
        "  %y\n}}",
        parameters, rows, columns, call);
  };
  std::vector<Program> programs;
  for (const char* n : {"1", "5", "24", "100"})
    programs.push_back({fmt::format("product of {} columns", n),
                        with_weights("%x: Tensor[(b, 7), f32]", "7", n, "matmul(%x, %w)")});
  for (const char* h : {"5", "16"})
    programs.push_back(
        {fmt::format("cell of {} units", h),
         with_weights(fmt::format("%x: Tensor[(b, 4*{0}), f32], %h: Tensor[(b, {0}), f32], "
                                  "%c: Tensor[(b, {0}), f32]",
                                  h),
                      h, fmt::format("4*{}", h), "lstm_cell(%x, %h, %c, %w)")});
  return programs;
}

// Weights are packed for the vectors of the target, and its portable forms read the same ones.
TEST(PackedWeights, RunPortablyAndNativelyForEveryTarget) {
  for (const std::string& target : kernels::loaded_target_names())
    for (const bool no_native : {false, true}) {
      if (kernels::target_by_name(target).is_gpu()) continue;  // reads them as they are
      Configuration c{target + std::string(no_native ? ", no native" : "")};
      c.target = target;
      c.no_native = no_native;
      if (!no_native && !host_cpu().has(target) && target != "native" && target != "portable")
        continue;
      for (const Program& p : packed_weights()) {
        check_program(p, c, 4);
        if (HasFailure()) return;
      }
    }
}

// A file has code for several levels; weights are packed for the highest, and those below read them
// in narrower vectors.
TEST(SeveralLevels, AgreeWithTheReference) {
  const kernels::TargetInfo host = kernels::detect_host();
  for (const std::string& lower : kernels::machine_levels()) {
    if (!kernels::is_lower_level(kernels::target_by_name(lower), host)) continue;
    Configuration c{"code of " + lower + " beside this machine's"};
    c.image = lower;
    for (const int threads : {1, 2}) {
      c.threads = threads;
      for (const Program& p : packed_weights()) {
        check_program(p, c, 4);
        if (HasFailure()) return;
      }
    }
  }
}

// Weights that are packed for what the highest level of a file multiplies: the code of each lower
// one reads them, with other instructions or none of the kind.
TEST(SeveralLevels, ReadFactorsThatArePackedForOthersInstructions) {
  const auto convolution = [](const char* type, const char* weights, const char* rest) {
    return fmt::format(
        "fn @main(%x: Tensor[(b, 6, h, w), {0}]) {{\n"
        "{1}"
        "  let %u = reshape(%t) {{shape = (40, 6, 3, 3)}};\n"
        "  let %a = conv2d(%x, %u) {{strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], "
        "groups = 1{2}",
        type, weights, rest);
  };
  const std::vector<Sizes> images = {{{"b", 1}, {"h", 7}, {"w", 9}},
                                     {{"b", 2}, {"h", 1}, {"w", 5}},
                                     {{"b", 1}, {"h", 13}, {"w", 33}}};
  // Of bytes, scaled and rounded behind the sums as a quantised model has it; no groups of four.
  Program bytes{"convolution of bytes",
                convolution("u8",
                            "  let %i = range() {count = 2160, start = 0, step = 7, dtype = i64};\n"
                            "  let %t = cast(%i) {dtype = i8};\n",
                            ", out = i32};\n"
                            "  let %f = cast(%a) {dtype = f32};\n"
                            "  let %s = mul(%f, 0.002f32);\n"
                            "  let %r = round(%s);\n"
                            "  let %k = clip(%r) {min = 0.0, max = 255.0};\n"
                            "  let %q = cast(%k) {dtype = u8};\n"
                            "  %q\n}")};
  bytes.values = {0, 255};
  bytes.tolerance = 0;
  bytes.sizes = images;
  Program halves{
      "convolution of f16",
      convolution("f16",
                  "  let %i = range() {count = 2160, start = 0, step = 1, dtype = f32};\n"
                  "  let %s = sin(%i);\n"
                  "  let %t = cast(%s) {dtype = f16};\n",
                  "};\n  %a\n}")};
  halves.values = {-1, 1};
  halves.sizes = images;
  const Program product{"product of f16",
                        "fn @main(%x: Tensor[(b, 12), f16]) {\n"
                        "  let %i = range() {count = 480, start = 0, step = 1, dtype = f32};\n"
                        "  let %s = sin(%i);\n"
                        "  let %t = cast(%s) {dtype = f16};\n"
                        "  let %u = reshape(%t) {shape = (12, 40)};\n"
                        "  let %y = matmul(%x, %u);\n"
                        "  %y\n}"};
  struct File {
    const char* target;
    std::vector<std::string> lower;
    std::vector<Program> programs;
  };
  const std::vector<File> files = {
      {"x86-64-v3", {"x86-64-v2"}, {bytes}},
      {"x86-64-v4-vnni", {"x86-64-v3", "x86-64-v2"}, {bytes}},
      {"x86-64-v4-amx-fp16", {"x86-64-v4", "x86-64-v3"}, {halves, product}},
      {"aarch64-fp16fml", {"aarch64-bf16", "aarch64"}, {halves, product}},
  };
  for (const File& file : files)
    for (const std::string& lower : file.lower) {
      if (!host_cpu().has(lower)) continue;
      Configuration c{lower + " of a file for " + file.target};
      c.target = file.target;
      c.image = lower;
      for (const bool no_native : {false, true}) {
        c.no_native = no_native;
        for (const Program& p : file.programs) check_program(p, c, 4);
        if (HasFailure()) return;
      }
    }
}

// What is fused for the machine, whose caches are known, has a form for the checked interpreter,
// too.
TEST(SeveralForms, OfImagesSideBySideForAnyCache) {
  const ir::Module m = ir::parse_module(
      "fn @main(%x: Tensor[(b, 5, 7, 264), f32], %z: Tensor[(b, 5, 7, 264), f32]) {\n"
      "  let %i = concat(%x, %z) {axis = 3};\n"
      "  let %c = tile(f32[1, 1, 1, 1]{0.5}) {repeats = (3, 3, 528, 16)};\n"
      "  let %y = conv2d(%i, %c) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], "
      "groups = 1, layout = \"nhwc\"};\n"
      "  %y\n}",
      "t.nir");
  CompileOptions options;
  options.target = kernels::target_by_name("x86-64-v3");
  options.compile_threads = 1;
  for (const int64_t kilobytes : {16, 32, 48}) {
    options.target.l1_bytes = kilobytes << 10;
    EXPECT_FALSE(compile(m, options).kernels.empty()) << kilobytes;
  }
}

TEST(SeveralLevels, TheLoadTakesTheBestThatTheMachineRuns) {
  const kernels::TargetInfo host = kernels::detect_host();
  const ir::Module m = ir::parse_module(packed_weights()[2].text, "t.nir");
  CompileOptions options;
  options.target = host;
  const std::vector<std::string> levels = kernels::machine_levels();
  for (auto lower = levels.rbegin(); lower != levels.rend(); ++lower)
    if (kernels::is_lower_level(kernels::target_by_name(*lower), host))
      options.more_targets.push_back(kernels::target_by_name(*lower));
  exec::Executable e = compile(m, options);
  ASSERT_EQ(e.images.size(), options.more_targets.size() + 1);
  rt::LoadOptions trusted;
  trusted.trust = true;
  while (!e.images.empty()) {
    const std::string best = e.images[0].target;
    // In any order, and beside code that this machine lacks a feature for.
    exec::Executable turned = e;
    std::reverse(turned.images.begin(), turned.images.end());
    turned.images.push_back(e.images[0]);
    turned.images.back().target = "x86-64-v9";
    turned.images.back().features.push_back("no such feature");
    EXPECT_EQ(rt::Model::load(std::move(turned), trusted, "test")->target(), best);
    e.images.erase(e.images.begin());
  }
}

// All programs of the text tests, under what most changes a program on its way. One of them never
// ends, and must not in any form.
std::vector<Configuration> text_configurations() {
  const std::set<std::string> names = {"without_fusion", "without_plan_memory",
                                       "without_update_in_place", "reserialised",
                                       "a_kernel_per_residue"};
  std::vector<Configuration> out = {{"default"}};
  for (const Configuration& c : configurations())
    if (names.count(c.name)) out.push_back(c);
  NIMBLE_CHECK(out.size() == names.size() + 1, "a configuration has another name");
  return out;
}

class ConfiguredText : public ::testing::TestWithParam<std::string> {};

TEST_P(ConfiguredText, AgreesWithTheReference) {
  for (const Program& p : text_programs(GetParam())) {
    LoweredModules modules(ir::parse_module(p.text, p.name));
    for (const Configuration& c : text_configurations())
      if (modules.is_new(c)) check_program(p, c, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(File, ConfiguredText, ::testing::ValuesIn(text_files()),
                         [](const auto& info) {
                           std::string name = info.param.substr(0, info.param.rfind('.'));
                           std::replace_if(
                               name.begin(), name.end(), [](char x) { return !std::isalnum(x); },
                               '_');
                           return name;
                         });

TEST(TextTests, HaveProgramsToRun) {
  size_t programs = 0;
  for (const std::string& file : text_files()) programs += text_programs(file).size();
  EXPECT_GT(programs, 60u);
}

}  // namespace
}  // namespace nimble::driver::testing
