// Products that round their rows to bytes group by group (packed_groupwise_matmul), by the
// templates "dense" and "dense_tiles", against the reference interpreter.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>

#include "compiler/ir/groupwise.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/test/level_cases.h"
#include "compiler/kernels/test/reference_harness.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels {
namespace {

struct Form {
  int64_t group, k, n;
  bool epilogue = false;
  int64_t steps = ir::Groupwise::kSteps, most = ir::Groupwise::kAnyByte;
};

ir::Groupwise groupwise(const Form& f) {
  ir::Groupwise g;
  g.group = f.group;
  g.k = f.k;
  g.n = f.n;
  g.steps = f.steps;
  g.most = f.most;
  return g;
}
ir::Groupwise groupwise(const Form& f, const std::string& layout) {
  ir::Groupwise g = groupwise(f);
  g.layout = *ir::parse_layout(layout);
  return g;
}

std::string layout_for(const TargetInfo& target, const Form& f) {
  return groupwise_layout(target, f.n, groupwise(f).most_beside_bytes());
}

// The most steps beside weights of 90 whose sums of two products fit 16 bits by the bound of full
// bytes (64), and what exceeds it.
Form reduced(Form f, int64_t steps = 181, int64_t most = 90) {
  f.steps = steps;
  f.most = most;
  return f;
}

// A product of `m` rows, a number or a symbol, as a text.
Workload workload(const std::string& m, const Form& f, const std::string& layout) {
  const ir::Groupwise form = groupwise(f, layout);
  const int64_t width = form.layout.width;
  std::string text = fmt::format(
      "fn @f(%x: Tensor[({}, {}), f32], %w: Tensor[({}, {}, {}, {}), i8], %s: Tensor[({}, {}), "
      "f32], %t: Tensor[({}, {}), f32]",
      m, f.k, form.stored() / width, f.k / form.layout.group, width, form.layout.group,
      form.groups(), form.stored(), form.groups(), form.stored());
  if (f.epilogue)
    text += fmt::format(", %b: Tensor[({0}), f32], %r: Tensor[({1}, {0}), f32]", f.n, m);
  text += fmt::format(
      ") {{ let %y = packed_groupwise_matmul(%x, %w, %s, %t) {{group = {}, k = {}, n = {}, "
      "layout = \"{}\"",
      f.group, f.k, f.n, layout);
  if (f.steps != ir::Groupwise::kSteps) text += fmt::format(", steps = {}", f.steps);
  if (f.most != ir::Groupwise::kAnyByte) text += fmt::format(", max_weight = {}", f.most);
  text += "};";
  text +=
      f.epilogue ? " let %a = add(%y, %b); let %g = relu(%a); let %e = add(%r, %g); %e }" : " %y }";
  return testing::workload_of(text);
}

std::string served_by(const TargetInfo& target) {
  return target.has("amx-int8") ? "dense_tiles" : "dense";
}

// 0, 1, … in an order that mixes few and many rows, and whole tiles with others.
constexpr int64_t kRows[] = {1, 0, 5, 2, 33, 3, 8, 16, 17, 7, 130, 31, 48, 9};

void check(const Workload& w, const TargetInfo& target, int configurations,
           const std::string& server) {
  // Sums of bytes are large, which small scales and rows make up for.
  testing::check_rows(w, target, server, configurations, kRows, 0.0625F);
}

class GroupwiseTest : public testing::LevelTest {
 protected:
  void check_rows(const Form& f, int configurations, const std::string& m = "m") {
    check(workload(m, f, layout_for(target_, f)), target_, configurations, served_by(target_));
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, GroupwiseTest, ::testing::ValuesIn(machine_levels()),
                         testing::name_of_level);

TEST_P(GroupwiseTest, OfGroupsAndColumns) {
  // One group and several, whole panels and not, one column.
  for (const Form& f : {Form{64, 64, 48}, Form{64, 128, 50}, Form{128, 384, 33}, Form{192, 384, 1},
                        Form{512, 512, 17}})
    check_rows(f, 6);
}

TEST_P(GroupwiseTest, OfLessThanFullBytes) {
  for (const Form& f :
       {reduced({64, 64, 48}), reduced({64, 192, 50, true}), reduced({128, 384, 33}),
        reduced({512, 512, 17}), reduced({64, 128, 40}, 182), reduced({64, 128, 40}, 1, 1),
        reduced({64, 128, 40}, 255, 64)})
    check_rows(f, 4);
}

TEST_P(GroupwiseTest, WithBiasActivationAndResidual) {
  check_rows(Form{64, 192, 50, true}, 6);
  check_rows(Form{128, 256, 40, true}, 6);
}

TEST_P(GroupwiseTest, OfConstantRows) {
  for (const char* m : {"0", "1", "5", "16", "17", "37"}) check_rows(Form{64, 128, 40, true}, 3, m);
}

// Weights that were packed for other vectors, or for others' instructions, as a file for several
// levels has them.
TEST_P(GroupwiseTest, InPanelsOfOtherWidths) {
  const Form f{64, 128, 100};
  for (const char* panel : {"panel64x4", "panel48x4", "panel32x4", "panel16x4"})
    check(workload("m", f, panel), target_, 3, served_by(target_));
  for (const char* panel : {"panel64x2", "panel48x2", "panel32x2", "panel16x2"})
    check(workload("m", f, panel), target_, 3, "dense");
}

TEST(Groupwise, LayoutIsThatOfTheInstructions) {
  const auto layout = [](const char* target) {
    return groupwise_layout(target_by_name(target), 96);
  };
  EXPECT_EQ(layout("x86-64-v3"), "panel16x2");
  EXPECT_EQ(layout("x86-64-v4"), "panel48x2");
  EXPECT_EQ(layout("x86-64-v4-vnni"), "panel48x4");
}

// Without VNNI bytes are multiplied as bytes where no sum of two products leaves 16 bits.
TEST(Groupwise, BytesThatAreNotFullAreMultipliedAsBytes) {
  const auto text = [](const char* level, const Form& f) {
    const TargetInfo target = target_by_name(level);
    const Workload w = workload("m", f, layout_for(target, f));
    const Template& t = *template_for(w, target);
    return print(t.lower(w, t.default_config(w, target), target, "k").functions.at(0));
  };
  const auto has = [](const std::string& all, const char* part) {
    return all.find(part) != std::string::npos;
  };
  const Form f{64, 128, 40};
  for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    SCOPED_TRACE(level);
    EXPECT_TRUE(has(text(level, reduced(f)), "dot.u8s7_quads"));
    EXPECT_TRUE(has(text(level, reduced(f, 255, 64)), "dot.u8s7_quads"));
    EXPECT_TRUE(has(text(level, reduced(f, 182)), "dot.s16_pairs")) << "182 * 90 > 255 * 64";
    EXPECT_TRUE(has(text(level, reduced(f, 255, 65)), "dot.s16_pairs"));
    EXPECT_TRUE(has(text(level, f), "dot.s16_pairs"));
  }
  EXPECT_TRUE(has(text("x86-64-v4-vnni", reduced(f)), "dot.u8s8_quads"));
}

TEST_P(GroupwiseTest, RefusesOtherKnobs) {
  const Form f{64, 128, 50};
  const Workload w = workload("m", f, layout_for(target_, f));
  const Template& t = *template_for(w, target_);
  const Config config = t.default_config(w, target_);
  for (const auto& [name, value] : config) {
    Config other = config;
    other.erase(name);
    EXPECT_FALSE(t.valid(w, other, target_)) << to_json(other);
    other[name] = "a name of no choice";
    EXPECT_FALSE(t.valid(w, other, target_)) << to_json(other);
  }
  if (!config.contains("k_block")) return;
  Config blocks = config;
  blocks["k_block"] = int64_t{16};  // the blocks are the groups
  EXPECT_FALSE(t.valid(w, blocks, target_));
}

// A check leaves the kernel, which threads that wait for each other may not.
TEST_P(GroupwiseTest, TakesNothingThatChecksAnIndex) {
  const Form f{64, 128, 16};
  const std::string layout = layout_for(target_, f);
  const ir::Groupwise form = groupwise(f, layout);
  const Workload w = testing::workload_of(fmt::format(
      "fn @f(%x: Tensor[(m, 128), f32], %w: Tensor[({}, {}, {}, {}), i8], %s: Tensor[(2, {}), "
      "f32], "
      "%t: Tensor[(2, {}), f32], %table: Tensor[(10, 16), f32], %i: Tensor[(m), i64]) {{ let %y = "
      "packed_groupwise_matmul(%x, %w, %s, %t) {{group = 64, k = 128, n = 16, layout = \"{}\"}}; "
      "let %g = gather(%table, %i) {{axis = 0}}; let %r = add(%y, %g); %r }}",
      form.stored() / form.layout.width, f.k / form.layout.group, form.layout.width,
      form.layout.group, form.stored(), form.stored(), layout));
  const Template* t = template_for(w, target_);
  EXPECT_TRUE(t == nullptr || (t->name() != "dense" && t->name() != "dense_tiles"));
}

// ---------------------------------------------------------------- errors

// The operands of a product, weights by row and column.
struct Operands {
  Form form;
  int64_t m;
  std::vector<float> x;
  std::vector<int8_t> w;
  std::vector<float> scales, sums;  // (groups, n)

  int64_t groups() const { return form.k / form.group; }
  int8_t& weight(int64_t row, int64_t column) {
    return w[static_cast<size_t>(row * form.n + column)];
  }
};

Operands operands(const Form& f, int64_t m) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> real(-1, 1);
  Operands o{f, m, {}, {}, {}, {}};
  const int64_t most = std::min<int64_t>(f.most, 127);
  for (int64_t i = 0; i < m * f.k; ++i) o.x.push_back(real(random) + (i % 97 == 0 ? 9.0F : 0.0F));
  for (int64_t i = 0; i < f.k * f.n; ++i)
    o.w.push_back(static_cast<int8_t>(
        static_cast<int64_t>(random() % static_cast<uint64_t>(2 * most + 1)) - most));
  for (int64_t g = 0; g < o.groups(); ++g)
    for (int64_t column = 0; column < f.n; ++column) {
      int sum = 0;
      for (int64_t row = g * f.group; row < (g + 1) * f.group; ++row) sum += o.weight(row, column);
      o.scales.push_back(0.01F + std::fabs(real(random)) / 100);
      o.sums.push_back(o.scales.back() * static_cast<float>(sum));
    }
  return o;
}

// What the kernel of a target makes of them, by its default schedule.
std::vector<float> run(const Operands& o, const TargetInfo& target, int threads) {
  const Form& f = o.form;
  const std::string layout = layout_for(target, f);
  const ir::Groupwise form = groupwise(f, layout);
  const Workload w = workload(std::to_string(o.m), f, layout);
  const Template& t = *template_for(w, target);
  const Lowered lowered = t.lower(w, t.default_config(w, target), target, "f");
  const auto execute = harness_mode().prepare(lowered.functions.at(0), target);
  std::vector<int8_t> packed(static_cast<size_t>(f.k * form.stored()));
  std::vector<float> scales(static_cast<size_t>(form.groups() * form.stored()));
  std::vector<float> sums(scales.size()), x = o.x, y(static_cast<size_t>(o.m * f.n));
  for (int64_t row = 0; row < f.k; ++row)
    for (int64_t column = 0; column < f.n; ++column)
      packed[static_cast<size_t>(form.layout.index_of(row, column, f.k))] =
          o.w[static_cast<size_t>(row * f.n + column)];
  for (int64_t g = 0; g < form.groups(); ++g)
    for (int64_t column = 0; column < f.n; ++column) {
      const auto to = static_cast<size_t>(g * form.stored() + column);
      scales[to] = o.scales[static_cast<size_t>(g * f.n + column)];
      sums[to] = o.sums[static_cast<size_t>(g * f.n + column)];
    }
  const auto bytes = [](auto& v) { return std::as_writable_bytes(std::span(v)); };
  const std::vector<std::span<std::byte>> buffers = {bytes(x), bytes(packed), bytes(scales),
                                                     bytes(sums), bytes(y)};
  EXPECT_EQ(execute(buffers, {}, threads), 0);
  return y;
}

// The largest error of y against f64 on operands as they were rounded, over what is allowed: a
// rounding for each operation of a sum, of the absolute values that it adds up.
double error_of(const std::vector<float>& y, const Operands& o) {
  const Form& f = o.form;
  const auto steps = static_cast<float>(f.steps);
  double most = 0;
  for (int64_t r = 0; r < o.m; ++r)
    for (int64_t column = 0; column < f.n; ++column) {
      double exact = 0, size = 0;
      for (int64_t g = 0; g < o.groups(); ++g) {
        const float* x = o.x.data() + r * f.k + g * f.group;
        const auto [least, largest] = std::minmax_element(x, x + f.group);
        const float range = std::max(*largest - *least, ir::Groupwise::kLeastRange);
        const float step = range * (1 / steps);
        const float inverse = steps / range;
        int64_t sum = 0;
        for (int64_t i = 0; i < f.group; ++i)
          sum += static_cast<int64_t>(std::nearbyint((x[i] - *least) * inverse)) *
                 o.w[static_cast<size_t>((g * f.group + i) * f.n + column)];
        const auto at = static_cast<size_t>(g * f.n + column);
        const double offset = double{*least} * o.sums[at];
        const double product = static_cast<double>(sum) * step * o.scales[at];
        exact += offset + product;
        size += std::abs(offset) + std::abs(product);
      }
      const double allowed = static_cast<double>(3 + 2 * o.groups()) * 0x1p-24 * size;
      const double off = std::abs(y[static_cast<size_t>(r * f.n + column)] - exact);
      most = std::max(most, off / allowed);
    }
  return most;
}

TEST_P(GroupwiseTest, ErrorsAreThoseOfItsSums) {
  for (const Form& f : {Form{64, 256, 40}, Form{128, 384, 17}, reduced({64, 256, 40})}) {
    const Operands all = operands(f, 21);
    const std::vector<float> y = run(all, target_, 2);
    EXPECT_LE(error_of(y, all), 1);

    // What lacks something is found: a term of a sum, four, a group, a column, a scale, an offset.
    const auto fails = [&](const std::function<void(Operands&)>& plant) {
      Operands o = all;
      plant(o);
      return error_of(run(o, target_, 1), all) > 1;
    };
    EXPECT_TRUE(fails([](Operands& o) { o.weight(o.form.k - 1, 3) = 0; }));
    EXPECT_TRUE(fails([](Operands& o) {
      for (int64_t row = 64; row < 68; ++row) o.weight(row, 5) = 0;
    }));
    EXPECT_TRUE(fails([](Operands& o) {
      for (int64_t row = o.form.group; row < 2 * o.form.group; ++row) o.weight(row, 0) = 0;
    }));
    EXPECT_TRUE(fails([](Operands& o) {
      for (int64_t row = 0; row < o.form.k; ++row) o.weight(row, o.form.n - 1) = 0;
    }));
    EXPECT_TRUE(fails([](Operands& o) { std::swap(o.scales[0], o.scales[1]); }));
    EXPECT_TRUE(fails([](Operands& o) { o.sums.back() = 0; }));
    EXPECT_TRUE(fails([](Operands& o) { o.x[1] += 0.5F; }));
  }
}

// Sums of bytes are exact, and groups are added up in their order with each operation rounded by
// itself: vectors of any width, matrix registers and any number of threads give the same bits.
TEST(Groupwise, AllLevelsGiveTheSameBits) {
  for (const Form& f : {Form{64, 256, 70}, Form{128, 384, 33}, reduced({64, 256, 70})})
    for (const int64_t m : {1, 20, 37}) {
      const Operands o = operands(f, m);
      std::vector<float> first;
      for (const std::string& level : machine_levels()) {
        if (!harness_mode().runs(level)) continue;
        SCOPED_TRACE(level);
        for (const int threads : {1, 3}) {
          const std::vector<float> y = run(o, target_by_name(level), threads);
          if (first.empty()) first = y;
          ASSERT_EQ(std::memcmp(y.data(), first.data(), y.size() * sizeof(float)), 0);
        }
      }
      EXPECT_FALSE(first.empty());
    }
}

// The largest sums that the bound allows, the first beyond it that 16 bits would not hold, and
// those of full bytes, of either sign: nothing saturates.
TEST_P(GroupwiseTest, LargestSumsAreExact) {
  for (const Form& f :
       {reduced({512, 512, 17}), reduced({64, 128, 17}, 255, 64), reduced({64, 128, 17}, 183),
        reduced({64, 128, 17}, 255, 65), reduced({64, 128, 17}, 255, 127)}) {
    Operands o = operands(f, 3);
    for (int64_t i = 0; i < o.m * f.k; ++i)
      o.x[static_cast<size_t>(i)] = i % f.group == 0 ? 0.0F : static_cast<float>(f.steps);
    for (int64_t row = 0; row < f.k; ++row)
      for (int64_t column = 0; column < f.n; ++column)
        o.weight(row, column) = static_cast<int8_t>(column % 2 == 0 ? f.most : -f.most);
    std::fill(o.scales.begin(), o.scales.end(), 1.0F);
    const std::vector<float> y = run(o, target_, 2);
    const int64_t sum = o.groups() * (f.group - 1) * f.steps * f.most;
    for (int64_t i = 0; i < o.m * f.n; ++i)
      EXPECT_FLOAT_EQ(y[static_cast<size_t>(i)],
                      static_cast<float>((i % f.n) % 2 == 0 ? sum : -sum));
  }
}

// A row that is not finite, and rows beside it that are.
TEST_P(GroupwiseTest, RowsThatAreNotFiniteAreNaN) {
  const Form f{64, 128, 20};
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY, 3e38F}) {
    Operands o = operands(f, 18);
    for (const int64_t row : {0, 17}) o.x[static_cast<size_t>(row * f.k + 70)] = bad;
    if (bad == 3e38F)
      for (const int64_t row : {0, 17}) o.x[static_cast<size_t>(row * f.k + 71)] = -bad;
    const std::vector<float> y = run(o, target_, 2);
    for (int64_t r = 0; r < o.m; ++r)
      for (int64_t column = 0; column < f.n; ++column)
        EXPECT_EQ(std::isnan(y[static_cast<size_t>(r * f.n + column)]), r == 0 || r == 17)
            << bad << ": row " << r;
  }
}

}  // namespace
}  // namespace nimble::kernels
