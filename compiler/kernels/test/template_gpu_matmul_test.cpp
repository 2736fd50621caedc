// The template gpu_matmul against the reference interpreter.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/kernels/targets.h"
#include "compiler/kernels/test/exhaustive.h"
#include "compiler/kernels/test/knob_cases.h"
#include "compiler/kernels/test/reference_harness.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels {
namespace {

constexpr const char* kLevel = "sm_90a";
constexpr int kRuns = 3;  // of each configuration

using Sizes = std::vector<int64_t>;
using SizesOf = std::function<Sizes(int run, std::mt19937& random)>;

// The product of two tensors of these types, such as "Tensor[(m, 8), f32]", with what follows.
Workload product(const std::string& a, const std::string& b, const std::string& attributes = "",
                 const std::string& parameters = "", const std::string& after = "%y") {
  return testing::workload_of(
      fmt::format("fn @f(%a: {}, %b: {}{}) {{ let %y = matmul(%a, %b) {}; {} }}", a, b, parameters,
                  attributes.empty() ? "" : "{" + attributes + "}", after));
}

// Around the sizes of tiles, of vectors and of copies.
int64_t awkward(std::mt19937& random) {
  constexpr int64_t kSizes[] = {1, 2, 3, 7, 8, 13, 15, 16, 17, 24, 31, 32, 33, 40, 53, 64, 65};
  return kSizes[random() % std::size(kSizes)];
}
// The first `batches` symbols count matrices, of which few do.
SizesOf of_symbols(size_t count, size_t batches) {
  return [count, batches](int run, std::mt19937& random) {
    Sizes sizes;
    for (size_t i = 0; i < count; ++i)
      sizes.push_back(i < batches ? static_cast<int64_t>(1 + random() % 3) : awkward(random));
    if (count > 0 && run % 7 == 3) sizes[static_cast<size_t>(run) % count] = 0;
    return sizes;
  };
}

class GpuMatmulTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!harness_mode().runs(kLevel)) GTEST_SKIP() << "this machine lacks " << kLevel;
  }

  // The default and some sampled configurations.
  void check(const Workload& w, int configurations = 8, size_t batches = 0) {
    SCOPED_TRACE(w.key);
    ReferenceHarness harness(w, target_);
    ASSERT_NE(harness.chosen(), nullptr);
    ASSERT_EQ(harness.chosen()->name(), "gpu_matmul");
    const SizesOf sizes = of_symbols(w.contract.symbols.size(), batches);
    std::mt19937 random(7);
    if (exhaustive()) configurations *= 10;
    configurations = std::min(configurations, harness_mode().most_configurations);
    for (int c = 0; c < configurations && !HasFailure(); ++c) {
      const Config config =
          c == 0 ? harness.chosen()->default_config(harness.workload(), target_)
                 : random_config(*harness.chosen(), harness.workload(), target_, random);
      SCOPED_TRACE(to_json(config));
      harness.lower(config);
      for (int r = 0; r < kRuns && !HasFailure(); ++r)
        harness.run(sizes(c * kRuns + r, random), 1, static_cast<unsigned>(c * kRuns + r));
    }
  }

  const TargetInfo target_ = target_by_name(kLevel);
};

std::string tensor(const std::string& dims, const char* type) {
  return fmt::format("Tensor[({}), {}]", dims, type);
}

// Every combination of transposed operands; `attributes` ends with a comma if it is not empty.
struct Form {
  bool a, b;
  std::string attributes() const { return fmt::format("transpose_a = {}, transpose_b = {}", a, b); }
};
constexpr Form kForms[] = {{false, false}, {false, true}, {true, false}, {true, true}};

Workload form_of(const Form& f, const std::string& m, const std::string& k, const std::string& n,
                 const char* lhs = "f32", const char* rhs = "f32", const std::string& out = "") {
  return product(tensor(f.a ? k + ", " + m : m + ", " + k, lhs),
                 tensor(f.b ? n + ", " + k : k + ", " + n, rhs),
                 f.attributes() + (out.empty() ? "" : ", out = " + out));
}

// The attribute of narrow operands' sums.
std::string sums_of(std::string_view type) {
  return type == "f32" ? "" : "out = f32";
}

TEST_F(GpuMatmulTest, EveryExtentUnknown) {
  for (const Form& f : kForms) check(form_of(f, "m", "k", "n"));
}

TEST_F(GpuMatmulTest, KnownWeights) {
  for (const Form& f : kForms)
    for (const auto& [k, n] : {std::pair("40", "36"), std::pair("64", "64"), std::pair("33", "50")})
      check(form_of(f, "m", k, n), 5);
}

// All that the knobs offer is right.
TEST_F(GpuMatmulTest, SampledConfigurations) {
  check(product(tensor("m, 72", "f32"), tensor("72, 40", "f32")), 40);
}

// Teams of one warp, which copy their own slices of k: of short and long rows in shared memory.
TEST_F(GpuMatmulTest, WarpsThatGoApart) {
  struct Case {
    const char* type;
    int64_t rows, columns, tile_rows, tile_columns, k_step, k_split, stages;
  };
  const Template& t = *find_template("gpu_matmul");
  for (const Case& c : {Case{"f32", 16, 32, 4, 4, 64, 8, 4},
                        {"f32", 16, 32, 4, 4, 128, 8, 3},
                        {"f32", 16, 32, 4, 4, 256, 16, 3},
                        {"f32", 32, 32, 8, 4, 128, 8, 2},
                        {"f32", 8, 16, 1, 4, 32, 1, 2},
                        {"bf16", 16, 32, 16, 32, 128, 4, 4},
                        {"bf16", 32, 16, 32, 16, 256, 8, 3}})
    for (const Form& f : kForms)
      for (const char* k : {"72", "300", "k"}) {
        const std::string narrow = sums_of(c.type).empty() ? "" : "f32";
        const Workload w = form_of(f, "m", k, "40", c.type, c.type, narrow);
        const bool matrix = c.type != std::string_view("f32");
        const Config config = {{"unit", matrix ? "mma" : "simt"},
                               {"block_rows", c.rows},
                               {"block_columns", c.columns},
                               {"tile_rows", c.tile_rows},
                               {"tile_columns", c.tile_columns},
                               {"k_step", c.k_step},
                               {"k_split", c.k_split},
                               {"stages", c.stages}};
        SCOPED_TRACE(w.key + to_json(config));
        ASSERT_TRUE(t.valid(w, config, target_));
        // Blocks meet around the sums alone.
        const std::string text = kir::print(t.lower(w, config, target_, "f").functions.at(0));
        const size_t walk = text.find("serial step from"), first = text.find("barrier block");
        ASSERT_NE(walk, std::string::npos) << text;
        EXPECT_NE(text.find("barrier warp"), std::string::npos) << text;
        EXPECT_GT(first, walk) << text;
        ReferenceHarness harness(w, target_);
        harness.lower(config);
        std::mt19937 random(3);
        const SizesOf sizes = of_symbols(w.contract.symbols.size(), 0);
        for (int r = 0; r < 2 && !HasFailure(); ++r) harness.run(sizes(r, random), 1, r);
      }
}

struct GroupCase {
  const char *type, *sum;
  int64_t rows, columns, tile_columns, k_step, k_split, stages;
  int64_t tile_rows = 64;
};

Config config_of(const GroupCase& c) {
  return {{"unit", "wgmma"},
          {"block_rows", c.rows},
          {"block_columns", c.columns},
          {"tile_rows", c.tile_rows},
          {"tile_columns", c.tile_columns},
          {"k_step", c.k_step},
          {"k_split", c.k_split},
          {"stages", c.stages}};
}

// Products of groups of warps: one group and several (of three groups, 24 and 48 rows are copied at
// once), lines of every width, teams, two products of 64 rows in a group's tile; rows that are
// copied 16, 8, 4 and 2 bytes at once.
TEST_F(GpuMatmulTest, GroupsOfWarps) {
  const Template& t = *find_template("gpu_matmul");
  for (const GroupCase& c : {GroupCase{"bf16", "f32", 64, 16, 16, 16, 1, 3},
                             {"bf16", "f32", 64, 64, 64, 64, 1, 4},
                             {"bf16", "f32", 128, 32, 32, 32, 1, 3},
                             {"bf16", "f32", 64, 64, 32, 64, 2, 3},
                             {"f16", "f32", 64, 128, 128, 32, 1, 3},
                             {"f16", "f32", 128, 64, 64, 128, 1, 3},
                             {"bf16", "f32", 192, 16, 16, 16, 1, 3},
                             {"bf16", "f32", 128, 64, 32, 64, 1, 3, 128},
                             {"i8", "i32", 128, 32, 32, 64, 1, 3, 128},
                             {"i8", "i32", 64, 32, 32, 64, 2, 3},
                             {"i8", "i32", 128, 64, 32, 128, 1, 4}})
    for (const Form& f : kForms)
      for (const auto& [k, n] : {std::pair("72", "40"), std::pair("100", "36"),
                                 std::pair("34", "18"), std::pair("k", "n")}) {
        if (c.type == std::string_view("i8") && (f.a || !f.b)) continue;  // both along k
        const Workload w = form_of(f, "m", k, n, c.type, c.type, c.sum);
        const Config config = config_of(c);
        SCOPED_TRACE(w.key + to_json(config));
        ASSERT_TRUE(t.valid(w, config, target_));
        const std::string text = kir::print(t.lower(w, config, target_, "f").functions.at(0));
        EXPECT_NE(text.find("_group "), std::string::npos) << text;
        ReferenceHarness harness(w, target_);
        harness.lower(config);
        std::mt19937 random(5);
        const SizesOf sizes = of_symbols(w.contract.symbols.size(), 0);
        for (int r = 0; r < 2 && !HasFailure(); ++r) harness.run(sizes(r, random), 1, r);
      }
}

Config boxed(const GroupCase& c) {
  Config config = config_of(c);
  config["unit"] = std::string("wgmma-tma");
  return config;
}

size_t times_in(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Tiles that come as boxes: lines of every width, one line of a row and several, teams; of both
// operands, or of the one whose rows are multiples of 16 bytes.
TEST_F(GpuMatmulTest, TilesOfGroupsComeAsBoxes) {
  const Template& t = *find_template("gpu_matmul");
  for (const GroupCase& c : {GroupCase{"bf16", "f32", 64, 16, 16, 16, 1, 3},
                             {"bf16", "f32", 64, 64, 32, 64, 2, 3},
                             {"f16", "f32", 128, 64, 64, 128, 1, 3},
                             {"bf16", "f32", 128, 64, 32, 32, 1, 4, 128},
                             {"i8", "i32", 64, 32, 32, 128, 2, 4}})
    for (const Form& f : kForms)
      for (const auto& [k, n] : {std::pair("72", "40"), std::pair("64", "36"),
                                 std::pair("100", "48"), std::pair("34", "18")}) {
        const bool bytes = c.type == std::string_view("i8");
        if (bytes && (f.a || !f.b)) continue;  // both along k
        const int piece = bytes ? 16 : 8;
        // Of the lhs across k rows have the unknown length m.
        const bool lhs = !f.a && std::stoi(k) % piece == 0,
                   rhs = std::stoi(f.b ? k : n) % piece == 0;
        const Workload w = form_of(f, "m", k, n, c.type, c.type, c.sum);
        const Config config = boxed(c);
        SCOPED_TRACE(w.key + to_json(config));
        ASSERT_EQ(t.valid(w, config, target_), lhs || rhs);
        if (!lhs && !rhs) continue;
        const kir::Function function = t.lower(w, config, target_, "f").functions.at(0);
        const std::string text = kir::print(function);
        EXPECT_EQ(function.maps.size(), size_t{lhs} + size_t{rhs}) << text;
        EXPECT_EQ(times_in(text, "map a_map of"), size_t{lhs}) << text;
        EXPECT_EQ(times_in(text, "map b_map of"), size_t{rhs}) << text;
        // Rows of unknown length go through registers.
        EXPECT_EQ(text.find("copy.async") != std::string::npos, (!lhs && !f.a) || !rhs) << text;
        EXPECT_EQ(text.find("fence.proxy", text.find("serial step from")) == std::string::npos,
                  lhs && rhs)
            << text;
        ReferenceHarness harness(w, target_);
        harness.lower(config);
        std::mt19937 random(11);
        const SizesOf sizes = of_symbols(w.contract.symbols.size(), 0);
        for (int r = 0; r < 2 && !HasFailure(); ++r) harness.run(sizes(r, random), 1, r);
      }
}

// Matrices of a batch are an axis of the map's: a box has no rows of the next one.
TEST_F(GpuMatmulTest, TilesOfBatchesComeAsBoxes) {
  const Config config = boxed({"bf16", "f32", 64, 32, 32, 32, 1, 3});
  for (const Workload& w :
       {product(tensor("b, m, 40", "bf16"), tensor("b, n, 40", "bf16"),
                "transpose_b = true, out = f32"),
        product(tensor("b, 2, m, 40", "bf16"), tensor("2, 40, 24", "bf16"), "out = f32"),
        product(tensor("b, m, 40", "bf16"), tensor("1, 40, 24", "bf16"), "out = f32")}) {
    SCOPED_TRACE(w.key);
    ASSERT_TRUE(find_template("gpu_matmul")->valid(w, config, target_));
    ReferenceHarness harness(w, target_);
    harness.lower(config);
    std::mt19937 random(5);
    const SizesOf sizes = of_symbols(w.contract.symbols.size(), 1);
    for (int r = 0; r < 4 && !HasFailure(); ++r) harness.run(sizes(r, random), 1, r);
  }
}

TEST_F(GpuMatmulTest, BoxesAreOfferedForRowsThatTheEngineReads) {
  const Template& t = *find_template("gpu_matmul");
  const GroupCase schedule = {"bf16", "f32", 64, 64, 64, 64, 1, 3};
  const auto is_offered = [&](const Workload& w, const TargetInfo& target) {
    for (const Knob& k : t.knobs(w, target))
      if (k.name == "unit")
        return std::find(k.choices.begin(), k.choices.end(), KnobValue(std::string("wgmma-tma"))) !=
               k.choices.end();
    return false;
  };
  const auto of = [&](const char* k, const char* n) {
    return form_of(kForms[0], "m", k, n, "bf16", "bf16", "f32");
  };
  for (const auto& [w, offered] :
       {std::pair(of("768", "3072"), true), std::pair(of("768", "30"), true),
        std::pair(of("770", "3072"), true), std::pair(of("770", "30"), false),
        std::pair(of("k", "n"), false), std::pair(form_of(kForms[0], "m", "768", "3072"), false)}) {
    SCOPED_TRACE(w.key);
    EXPECT_EQ(is_offered(w, target_), offered);
    EXPECT_EQ(t.valid(w, boxed(schedule), target_), offered);
    for (const char* other : {"sm_80", "sm_100", "compute_80"})
      EXPECT_FALSE(is_offered(w, target_by_name(other))) << other;
  }
  const Workload w = of("768", "3072");
  EXPECT_EQ(knob_text(t.default_config(w, target_), "unit"), "mma");
  Config two = boxed(schedule);
  two["stages"] = int64_t{2};
  EXPECT_FALSE(t.valid(w, two, target_));
}

// A group's fences and waits are for all lanes together, which copies of single elements and of
// rows that not all threads have may have parted; other copies don't.
TEST_F(GpuMatmulTest, LanesOfGroupsMeetBehindCopiesThatPartThem) {
  const GroupCase even = {"bf16", "f32", 64, 64, 64, 64, 1, 4};
  const GroupCase odd_rows = {"bf16", "f32", 192, 16, 16, 16, 1, 3};
  struct Case {
    const GroupCase& schedule;
    const char* k;
    bool meet;
  };
  for (const Case& c : {Case{even, "768", false},
                        {even, "770", false},
                        {even, "769", true},
                        {even, "k", true},
                        {odd_rows, "768", true}}) {
    const Workload w = form_of({false, false}, "m", c.k, "3072", "bf16", "bf16", "f32");
    const Config config = config_of(c.schedule);
    SCOPED_TRACE(w.key + to_json(config));
    ASSERT_TRUE(find_template("gpu_matmul")->valid(w, config, target_));
    const std::string text =
        kir::print(find_template("gpu_matmul")->lower(w, config, target_, "f").functions.at(0));
    const size_t walk = text.find("serial step from"), meet = text.find("barrier warp", walk);
    ASSERT_NE(walk, std::string::npos) << text;
    EXPECT_EQ(meet != std::string::npos, c.meet) << text;
    if (!c.meet) continue;
    EXPECT_LT(meet, text.find("fence.group", walk)) << text;
  }
}

TEST_F(GpuMatmulTest, GroupsOfWarpsWithBatchesAndWhatFollows) {
  const Config config = config_of({"bf16", "f32", 64, 32, 32, 32, 1, 3});
  for (const Workload& w :
       {product(tensor("b, m, 40", "bf16"), tensor("b, n, 40", "bf16"),
                "transpose_b = true, out = f32"),
        product(tensor("m, 72", "bf16"), tensor("72, 40", "bf16"), "out = f32",
                ", %c: Tensor[(40), f32]", "let %s = add(%y, %c); let %g = gelu(%s); %g")}) {
    SCOPED_TRACE(w.key);
    ASSERT_TRUE(find_template("gpu_matmul")->valid(w, config, target_));
    ReferenceHarness harness(w, target_);
    harness.lower(config);
    std::mt19937 random(5);
    const size_t symbols = w.contract.symbols.size();
    const SizesOf sizes = of_symbols(symbols, symbols > 2 ? 1 : 0);
    for (int r = 0; r < 4 && !HasFailure(); ++r) harness.run(sizes(r, random), 1, r);
  }
}

// No GPU has run them, so nothing chooses them by rule; other architectures lack the instruction,
// f32 is not multiplied so, and bytes alone along k.
TEST_F(GpuMatmulTest, GroupsOfWarpsAreOffered) {
  const Template& t = *find_template("gpu_matmul");
  const Config config = config_of({"bf16", "f32", 64, 64, 64, 64, 1, 3});
  const auto of = [&](const char* type, const char* sum, const Form& f) {
    return form_of(f, "m", "768", "3072", type, type, sum);
  };
  for (const Form& f : kForms) {
    const Workload w = of("bf16", "f32", f);
    EXPECT_TRUE(t.valid(w, config, target_));
    EXPECT_EQ(knob_text(t.default_config(w, target_), "unit"), "mma");
    for (const char* other : {"sm_80", "sm_100", "compute_80"})
      EXPECT_FALSE(t.valid(w, config, target_by_name(other))) << other;
    EXPECT_FALSE(t.valid(of("f32", "", f), config, target_));
    EXPECT_EQ(t.valid(of("i8", "i32", f), config, target_), !f.a && f.b);
  }
  // Two stages are too few: one is multiplied, one may still be, and one is on its way.
  const Workload w = of("bf16", "f32", kForms[0]);
  for (const auto& [name, value] : {std::pair("stages", 2), std::pair("tile_rows", 32),
                                    std::pair("tile_columns", 8), std::pair("k_split", 8)}) {
    Config other = config;
    other[name] = int64_t{value};
    EXPECT_FALSE(t.valid(w, other, target_)) << to_json(other);
  }
  // 12 rows at once, 32 vectors in each, are not copied to the same places of lines in turn: of 16
  // bytes, and of 4. Of half as many vectors there are 24.
  const Workload odd = form_of(kForms[0], "m", "770", "3072", "bf16", "bf16", "f32");
  EXPECT_FALSE(t.valid(w, config_of({"bf16", "f32", 64, 48, 16, 256, 1, 3}), target_));
  EXPECT_TRUE(t.valid(w, config_of({"bf16", "f32", 64, 48, 16, 128, 1, 3}), target_));
  EXPECT_FALSE(t.valid(odd, config_of({"bf16", "f32", 192, 64, 64, 64, 1, 3}), target_));
  EXPECT_TRUE(t.valid(odd, config_of({"bf16", "f32", 192, 64, 64, 32, 1, 3}), target_));
}

// Tiles of 128 columns are a group's alone: where it is offered, warps have those they always had.
TEST_F(GpuMatmulTest, WarpsHaveNarrowerTilesThanGroups) {
  const Template& t = *find_template("gpu_matmul");
  const Workload w = form_of(kForms[0], "m", "768", "3072", "bf16", "bf16", "f32");
  Config config = config_of({"bf16", "f32", 64, 128, 128, 32, 1, 3});
  EXPECT_TRUE(t.valid(w, config, target_));
  config["unit"] = std::string("mma");
  config["tile_rows"] = int64_t{16};
  EXPECT_FALSE(t.valid(w, config, target_));
  config["tile_columns"] = int64_t{64};
  EXPECT_TRUE(t.valid(w, config, target_));
}

TEST_F(GpuMatmulTest, KnownRows) {
  for (const char* m : {"1", "5", "64", "70"})
    check(product(tensor(std::string(m) + ", 24", "f32"), tensor("24, n", "f32")), 4);
}

TEST_F(GpuMatmulTest, WhatFollowsIsFused) {
  check(product(tensor("m, 24", "f32"), tensor("24, 36", "f32"), "",
                ", %c: Tensor[(36), f32], %r: Tensor[(m, 36), f32]",
                "let %s = add(%y, %c); let %g = gelu(%s); let %t = add(%g, %r); %t"));
}

TEST_F(GpuMatmulTest, SeveralResults) {
  check(product(tensor("m, 24", "f32"), tensor("24, 36", "f32"), "", ", %c: Tensor[(36), f32]",
                "let %s = add(%y, %c); let %h = cast(%s) {dtype = bf16}; let %t = (%s, %h); %t"),
        5);
}

TEST_F(GpuMatmulTest, Batches) {
  check(product(tensor("b, m, k", "f32"), tensor("b, n, k", "f32"), "transpose_b = true"), 6, 1);
  check(product(tensor("b, 3, m, 16", "f32"), tensor("b, 3, 16, n", "f32")), 6, 1);
  check(product(tensor("b, m, 16", "f32"), tensor("16, 20", "f32")), 4, 1);
}

TEST_F(GpuMatmulTest, BatchesBroadcast) {
  check(product(tensor("b, 1, m, 5", "f32"), tensor("3, 5, n", "f32")), 6, 1);
}

TEST_F(GpuMatmulTest, VectorsOnEitherSide) {
  check(product(tensor("m, k", "f32"), tensor("k", "f32")), 6);
  check(product(tensor("k", "f32"), tensor("k, n", "f32")), 6);
  check(product(tensor("k", "f32"), tensor("k", "f32")), 6);
}

// Fragments where there are any; rows of an odd number of elements, of even ones, of whole copies.
TEST_F(GpuMatmulTest, NarrowOperands) {
  struct Types {
    const char *lhs, *rhs, *sum;
  };
  for (const Types& t : {Types{"bf16", "bf16", "f32"},
                         {"f16", "f16", "f32"},
                         {"f32", "f16", "f32"},
                         {"i8", "i8", "i32"},
                         {"u8", "i8", "i32"}})
    for (const Form& f : kForms)
      for (const auto& [k, n] :
           {std::pair("40", "48"), std::pair("34", "18"), std::pair("21", "15")})
        check(form_of(f, "m", k, n, t.lhs, t.rhs, t.sum), 4);
}

TEST_F(GpuMatmulTest, NarrowOperandsOfUnknownExtents) {
  for (const Form& f : kForms) check(form_of(f, "m", "k", "n", "bf16", "bf16", "f32"), 4);
}

TEST_F(GpuMatmulTest, SampledConfigurationsOfFragments) {
  check(product(tensor("m, 72", "bf16"), tensor("72, 40", "bf16"), "out = f32"), 40);
}

TEST_F(GpuMatmulTest, SumsOfOtherTypes) {
  check(product(tensor("m, 20", "f64"), tensor("20, 12", "f64")), 4);
}

std::string also(const std::string& attribute) {
  return attribute.empty() ? "" : ", " + attribute;
}

// A BERT's products at its usual lengths: enough blocks, tiles with few rows in vain.
TEST_F(GpuMatmulTest, FewRowsGetEnoughBlocks) {
  const Template& t = *find_template("gpu_matmul");
  struct Shape {
    const char *k, *n;
    int64_t blocks;
  };
  for (const Shape& s : {Shape{"768", "768", 48}, {"768", "3072", 96}, {"3072", "768", 48}})
    for (const char* type : {"f32", "bf16"}) {
      const Workload w = product(tensor(std::string("m, ") + s.k, type),
                                 tensor(std::string(s.k) + ", " + s.n, type), sums_of(type));
      const Config c = t.default_config(w, target_);
      const auto grid = t.lower(w, c, target_, "f").functions.at(0).launch->grid;
      int64_t blocks = 1;
      for (const kir::Dim& d : grid) blocks *= d.evaluate([](auto&) { return 53; });
      EXPECT_GE(blocks, s.blocks) << to_json(c);
      EXPECT_LE(blocks, 400) << to_json(c);
    }
}

// How a kernel of the default schedule of `known` uses memory on the smaller tensors of `w`.
kir::LaunchStatistics use_of(const Workload& known, const Workload& w, const TargetInfo& target,
                             const Sizes& symbols) {
  const Template& t = *find_template("gpu_matmul");
  const Config c = t.default_config(known, target);
  SCOPED_TRACE(to_json(c));
  const kir::Function f = t.lower(w, c, target, "f").functions.at(0);
  std::vector<ArgumentMemory> memory;
  for (const exec::KernelArgument& a : w.contract.arguments) {
    size_t bytes = size_of(a.dtype);
    for (const exec::DimProgram& d : a.dims) bytes *= static_cast<size_t>(d.evaluate1(symbols));
    memory.emplace_back(bytes);
  }
  const std::vector<std::span<std::byte>> buffers(memory.begin(), memory.end());
  kir::LaunchStatistics use;
  EXPECT_EQ(kir::Interpreter(f).run(buffers, symbols, 1, &use), 0);
  return use;
}

// Shared memory serves a warp's lanes in one turn, of narrow operands in at most two where one
// would do (copies of rows of 64 bytes); global memory is read and written in whole sectors.
TEST_F(GpuMatmulTest, DefaultSchedulesMeetFewBanksTwice) {
  for (const char* type : {"f32", "bf16"})
    for (const bool transposed : {false, true})
      for (const char* n : {"768", "3072"}) {
        const auto of = [&](const std::string& k, const std::string& columns) {
          return product(tensor("m, " + k, type),
                         tensor(transposed ? columns + ", " + k : k + ", " + columns, type),
                         fmt::format("transpose_b = {}", transposed) + also(sums_of(type)));
        };
        SCOPED_TRACE(fmt::format("{} {} {}", type, transposed, n));
        const auto use = use_of(of("768", n), of("128", "128"), target_, {53});
        for (const auto& [name, b] : use.buffers) {
          EXPECT_LE(b.worst_ways, type == std::string_view("f32") && !transposed ? 1 : 2) << name;
          EXPECT_EQ(b.sectors, b.least_sectors) << name;
        }
      }
}

TEST_F(GpuMatmulTest, RefusesWhatItDoesNotKnow) {
  const Template& t = *find_template("gpu_matmul");
  const Workload w = product(tensor("m, 24", "bf16"), tensor("24, 36", "bf16"), "out = f32");
  testing::expect_refuses_other_knobs(t, w, target_);
  const Config config = t.default_config(w, target_);
  for (const auto& [name, value] : config) {
    Config other = config;
    if (name == "unit") continue;
    for (const int64_t number : {int64_t{-1}, int64_t{0}, int64_t{7}, int64_t{1} << 40}) {
      if (name == "stages" && number == 7) continue;
      other[name] = number;
      EXPECT_FALSE(t.valid(w, other, target_)) << to_json(other);
    }
  }
  EXPECT_FALSE(t.accepts(w, target_by_name("x86-64-v4")));
}

// Threads and bytes of shared memory that fit, but for what is beyond 32 bits of their number.
TEST_F(GpuMatmulTest, RefusesMoreThanAnyBlockHas) {
  const Template& t = *find_template("gpu_matmul");
  const Workload w = product(tensor("m, 24", "f32"), tensor("24, 36", "f32"));
  const auto config = [](int64_t rows, int64_t columns, int64_t tile, int64_t k_step,
                         int64_t k_split, int64_t stages) {
    return Config{{"unit", "simt"},     {"block_rows", rows},   {"block_columns", columns},
                  {"tile_rows", tile},  {"tile_columns", tile}, {"k_step", k_step},
                  {"k_split", k_split}, {"stages", stages}};
  };
  ASSERT_TRUE(t.valid(w, config(32, 32, 4, 32, 1, 2), target_));
  for (const Config& c : {config(4096, 4096, 1, 256, 256, 4033), config(64, 64, 4, 4096, 1, 4096),
                          config(32, 32, 4, 32, 1, 4096), config(1 << 16, 1 << 16, 4, 32, 1, 2)})
    EXPECT_FALSE(t.valid(w, c, target_)) << to_json(c);
  // A team of four warps for each element of a tile, 32 times.
  Config teams = config(1024, 1024, 1, 64, 32, 16);
  teams["unit"] = std::string("wgmma");
  EXPECT_FALSE(
      t.valid(form_of(kForms[0], "m", "768", "3072", "bf16", "bf16", "f32"), teams, target_));
}

}  // namespace
}  // namespace nimble::kernels
