// Attention of bf16 and f16 whose sums are f32, by the templates "attention" and "attention_tiles",
// against the definition in f64 of the operands as they are. The bound is the policy's
// (docs/running.md), and what lacks a step of either product, a key or a column is beyond it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/attention_operands.h"
#include "compiler/kernels/test/level_cases.h"
#include "compiler/kernels/test/reference_harness.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels {
namespace {

enum class Mask { kNone, kPerKey, kCausal };

struct Form {
  DType type = DType::kBF16;
  int64_t heads = 1, d = 16, dv = 16;
  Mask mask = Mask::kNone;
  double scale = 0.25;
  int64_t rows = 0;  // as the text says; 0: any number
};

Workload workload(const Form& f) {
  const std::string n = f.rows > 0 ? std::to_string(f.rows) : "n", type(name_of(f.type));
  const auto operand = [&](const char* name, const std::string& length, int64_t width) {
    return fmt::format("%{}: Tensor[(b, {}, {}), {}]", name, length, f.heads * width, type);
  };
  std::string text = "fn @f(" + operand("q", n, f.d) + ", " + operand("k", "m", f.d) + ", " +
                     operand("v", "m", f.dv);
  if (f.mask == Mask::kPerKey) text += ", %m: Tensor[(b, 1, 1, m), f32]";
  if (f.mask == Mask::kCausal) text += ", %m: Tensor[(" + n + ", m), bool]";
  text += fmt::format(
      ") {{ let %y = attention(%q, %k, %v{}) {{heads = {}, scale = {}, out = f32}}; %y }}",
      f.mask == Mask::kNone ? "" : ", %m", f.heads, f.scale);
  return testing::workload_of(text);
}

struct Operands {
  Form form;
  int64_t b = 1, n = 0, m = 0;
  std::vector<float> q, k, v;
  std::vector<float> mask;  // a bool one's are 0 and 1

  float& key(int64_t row, int64_t column) { return k[static_cast<size_t>(row * width() + column)]; }
  float& value(int64_t row, int64_t column) {
    return v[static_cast<size_t>(row * form.heads * form.dv + column)];
  }
  int64_t width() const { return form.heads * form.d; }
};

float rounded(float x, DType type) {
  return type == DType::kBF16 ? f32_from_bf16(bf16_from_f32(x)) : f32_from_f16(f16_from_f32(x));
}

Operands operands(const Form& f, int64_t b, int64_t n, int64_t m) {
  Operands o{f, b, n, m, {}, {}, {}, {}};
  std::mt19937 random(static_cast<unsigned>(b + 7 * n + 131 * m));
  std::uniform_real_distribution<float> real(-1, 1);
  const auto fill = [&](std::vector<float>& to, int64_t elements) {
    for (int64_t i = 0; i < elements; ++i) to.push_back(rounded(real(random), f.type));
  };
  fill(o.q, b * n * f.heads * f.d);
  fill(o.k, b * m * f.heads * f.d);
  fill(o.v, b * m * f.heads * f.dv);
  if (f.mask == Mask::kPerKey)
    for (int64_t i = 0; i < b * m; ++i) o.mask.push_back(i % 5 == 4 ? -1e30F : real(random));
  if (f.mask == Mask::kCausal)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < m; ++j) o.mask.push_back(j == 0 || j <= i + m - n ? 1 : 0);
  return o;
}

// The kernel of a configuration, made once for many sizes.
Execute kernel_of(const Template& t, const Workload& w, const Config& c, const TargetInfo& target) {
  const Lowered lowered = t.lower(w, c, target, "f");
  EXPECT_EQ(lowered.functions.size(), 1U);
  const kir::Function& f = lowered.functions.at(0);
  EXPECT_EQ(kir::verify(f), "") << kir::print(f);
  return harness_mode().prepare(f, target);
}

std::vector<float> run(const Operands& o, const Execute& kernel, int threads) {
  const Form& f = o.form;
  const auto bytes_of = [](const std::vector<float>& values, DType type) {
    testing::Array a{{static_cast<int64_t>(values.size())}, {values.begin(), values.end()}};
    std::vector<std::byte> bytes;
    testing::to_bytes(a, type, bytes);
    return ArgumentMemory(bytes.begin(), bytes.end());
  };
  std::vector<ArgumentMemory> memory = {bytes_of(o.q, f.type), bytes_of(o.k, f.type),
                                        bytes_of(o.v, f.type)};
  if (f.mask != Mask::kNone)
    memory.push_back(bytes_of(o.mask, f.mask == Mask::kCausal ? DType::kBool : DType::kF32));
  std::vector<float> y(static_cast<size_t>(o.b * o.n * f.heads * f.dv));
  memory.push_back(bytes_of(y, DType::kF32));
  const std::vector<std::span<std::byte>> buffers(memory.begin(), memory.end());
  // In the order of their first appearance.
  std::vector<int64_t> symbols = {o.b, o.n, o.m};
  if (f.rows > 0) symbols = {o.b, o.m};
  EXPECT_EQ(kernel(buffers, symbols, threads), 0);
  testing::Array out{{static_cast<int64_t>(y.size())}, {}};
  testing::from_bytes({memory.back().data(), y.size() * sizeof(float)}, DType::kF32, out);
  return {out.v.begin(), out.v.end()};
}

// The largest error of y over what is allowed. `weights`: that of a weight that the second product
// takes, relative to it, where it is rounded.
double error_of(const std::vector<float>& y, const Operands& o, double weights) {
  const Form& f = o.form;
  double most = 0;
  std::vector<double> p(static_cast<size_t>(o.m));
  for (int64_t b = 0; b < o.b; ++b)
    for (int64_t h = 0; h < f.heads; ++h)
      for (int64_t i = 0; i < o.n; ++i) {
        double top = -std::numeric_limits<double>::infinity(), total = 0, off = 0;
        for (int64_t j = 0; j < o.m; ++j) {
          double x = 0, size = 0;
          for (int64_t c = 0; c < f.d; ++c) {
            const double one =
                double{o.q[static_cast<size_t>((b * o.n + i) * o.width() + h * f.d + c)]} *
                o.k[static_cast<size_t>((b * o.m + j) * o.width() + h * f.d + c)];
            x += one;
            size += std::abs(one);
          }
          x *= f.scale;
          if (f.mask == Mask::kPerKey) x += o.mask[static_cast<size_t>(b * o.m + j)];
          if (f.mask == Mask::kCausal && o.mask[static_cast<size_t>(i * o.m + j)] == 0)
            x = -std::numeric_limits<double>::infinity();
          p[static_cast<size_t>(j)] = x;
          top = std::max(top, x);
          off = std::max(off, 64 * 0x1p-24 * (std::abs(f.scale) * size + (x > -1e20 ? 1 : 0)));
        }
        for (double& x : p) total += x = std::exp(x - top);
        for (int64_t c = 0; c < f.dv; ++c) {
          double exact = 0, size = 0, all = 0;
          for (int64_t j = 0; j < o.m; ++j) {
            const double v =
                o.v[static_cast<size_t>((b * o.m + j) * f.heads * f.dv + h * f.dv + c)];
            exact += p[static_cast<size_t>(j)] * v / total;
            size += p[static_cast<size_t>(j)] * std::abs(v) / total;
            all += std::abs(v) / total;
          }
          // The smallest weights of f16 are rounded to multiples of 2^-24.
          const double smallest = weights > 0 && f.type == DType::kF16 ? 0x1p-25 : 0x1p-126;
          const double allowed = 0x1p-24 * std::abs(exact) +
                                 (weights + 64 * 0x1p-24 + 2 * off) * size + smallest * all;
          const double error = std::abs(
              y[static_cast<size_t>((b * o.n + i) * f.heads * f.dv + h * f.dv + c)] - exact);
          if (std::isnan(error)) return std::numeric_limits<double>::infinity();
          if (error > 0) most = std::max(most, error / allowed);
        }
      }
  return most;
}

// Half a step of the type, relative to a number: what rounding weights may change.
double step_of(DType type) {
  return type == DType::kBF16 ? 0x1p-8 : 0x1p-11;
}

// Whether a configuration leaves the weights as they are.
bool is_wide(const Config& c) {
  return c.contains("factors") && knob_text(c, "factors") == "wide";
}

bool has_tiles_of(const TargetInfo& t, DType type) {
  return t.has(type == DType::kBF16 ? "amx-bf16" : "amx-fp16");
}

class NarrowAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!harness_mode().runs(target_.level)) GTEST_SKIP() << "this machine lacks " << target_.level;
  }
  const TargetInfo target_ = target_by_name(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Levels, NarrowAttentionTest, ::testing::ValuesIn([] {
                           std::vector<std::string> levels = machine_levels();
                           levels.emplace_back("portable");
                           return levels;
                         }()),
                         testing::name_of_level);

// Lengths about the tiles of vectors and of matrix registers, none among them, and primes.
constexpr int64_t kLengths[][2] = {{0, 5},   {3, 0},   {1, 1},   {2, 3},   {5, 17},  {13, 16},
                                   {15, 31}, {16, 33}, {17, 32}, {31, 7},  {32, 64}, {33, 15},
                                   {37, 65}, {48, 2},  {49, 97}, {65, 130}};

TEST_P(NarrowAttentionTest, KeepsItsBoundAtAwkwardSizes) {
  const Form forms[] = {{DType::kBF16, 2, 16, 16, Mask::kNone, 0.25},
                        {DType::kBF16, 1, 5, 20, Mask::kPerKey, 0.5},
                        {DType::kBF16, 3, 33, 7, Mask::kCausal, -0.25},
                        {DType::kBF16, 2, 64, 48, Mask::kPerKey, 0.125},
                        {DType::kF16, 2, 32, 17, Mask::kNone, 0.25},
                        {DType::kF16, 1, 1, 80, Mask::kCausal, 0.5}};
  std::mt19937 random(11);
  int turn = 0;
  for (const Form& f : forms) {
    const Workload w = workload(f);
    const Template* t = template_for(w, target_);
    ASSERT_NE(t, nullptr) << w.key;
    EXPECT_EQ(t->name(), has_tiles_of(target_, f.type) ? "attention_tiles" : "attention");
    std::vector<Config> configs = {t->default_config(w, target_)};
    ASSERT_TRUE(t->valid(w, configs[0], target_)) << to_json(configs[0]);
    const int more = std::min(harness_mode().most_configurations - 1, 3);
    for (int i = 0; i < more; ++i) configs.push_back(random_config(*t, w, target_, random));
    for (const Config& c : configs) {
      const Execute kernel = kernel_of(*t, w, c, target_);
      const double weights = is_wide(c) ? 0 : step_of(f.type);
      for (const auto& [n, m] : kLengths) {
        if (++turn % 4 != 0 && &c != configs.data()) continue;
        SCOPED_TRACE(
            fmt::format("{} {} n = {}, m = {}\n{}", target_.level, to_json(c), n, m, w.key));
        const Operands o = operands(f, 1 + turn % 2, n, m);
        const std::vector<float> y = run(o, kernel, turn % 2 == 0 ? 1 : 3);
        ASSERT_LE(error_of(y, o, weights), 1);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// Both ways to multiply, whatever the default is; and products of pairs refuse what they cannot do.
TEST_P(NarrowAttentionTest, FactorsAreAKnob) {
  const Form f{DType::kBF16, 2, 24, 16, Mask::kNone, 0.25};
  const Workload w = workload(f);
  const Template& t = *find_template("attention");
  Config c = t.default_config(w, target_);
  EXPECT_EQ(is_wide(c), !multiplies_factors(target_, DType::kBF16));
  const Operands o = operands(f, 2, 19, 41);
  for (const char* factors : {"narrow", "wide"}) {
    c["factors"] = std::string(factors);
    ASSERT_TRUE(t.valid(w, c, target_));
    const std::vector<float> y = run(o, kernel_of(t, w, c, target_), 2);
    EXPECT_LE(error_of(y, o, is_wide(c) ? 0 : step_of(f.type)), 1) << factors;
  }
  c["factors"] = std::string("narrow");
  Config other = c;
  other["values"] = std::string("in_place");
  EXPECT_FALSE(t.valid(w, other, target_));
  other["factors"] = std::string("wide");
  EXPECT_TRUE(t.valid(w, other, target_));
  other = c;
  other["tails"] = std::string("masked");
  EXPECT_FALSE(t.valid(w, other, target_));
}

// What lacks something is found: a pair of a query's and a key's elements, a key, the last value of
// an odd number, a column; and so is a value that is another's.
TEST_P(NarrowAttentionTest, TheBoundFindsWhatIsMissing) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    const Form f{type, 2, 34, 24, Mask::kNone, 0.25};
    const Workload w = workload(f);
    const Template& t = *template_for(w, target_);
    const Config c = t.default_config(w, target_);
    const Execute kernel = kernel_of(t, w, c, target_);
    const Operands all = operands(f, 1, 18, 41);
    const auto error = [&](const Operands& given) {
      return error_of(run(given, kernel, 1), all, is_wide(c) ? 0 : step_of(type));
    };
    ASSERT_LE(error(all), 1);
    const auto fails = [&](const std::function<void(Operands&)>& plant) {
      Operands o = all;
      plant(o);
      return error(o) > 1;
    };
    EXPECT_TRUE(fails([](Operands& o) {
      for (int64_t row = 0; row < o.m; ++row)
        for (int64_t c = 32; c < 34; ++c) o.key(row, c) = 0;
    }));
    EXPECT_TRUE(fails([](Operands& o) {
      for (int64_t c = 0; c < o.width(); ++c) o.key(o.m - 1, c) = 0;
    }));
    EXPECT_TRUE(fails([](Operands& o) {
      for (int64_t c = 0; c < 2 * o.form.dv; ++c) o.value(o.m - 1, c) = 0;
    }));
    EXPECT_TRUE(fails([](Operands& o) {
      for (int64_t row = 0; row < o.m; ++row) o.value(row, 2 * o.form.dv - 1) = 0;
    }));
    EXPECT_TRUE(fails([](Operands& o) {
      for (int64_t c = 0; c < o.form.dv; ++c) std::swap(o.value(6, c), o.value(7, c));
      for (int64_t c = 0; c < o.width(); ++c) o.key(6, c) = o.key(7, c);
    }));
    EXPECT_TRUE(fails([](Operands& o) { o.q[3] += 0.5F; }));
  }
}

// Few rows read keys and values as they are stored and round nothing.
TEST_P(NarrowAttentionTest, FewRowsAreStreamedInF32) {
  for (const int64_t rows : {1, 2, 3}) {
    const Form f{rows == 2 ? DType::kF16 : DType::kBF16, 3, 24, 20, Mask::kPerKey, 0.25, rows};
    const Workload w = workload(f);
    const Template& t = *template_for(w, target_);
    EXPECT_EQ(t.name(), "attention");
    const Config c = t.default_config(w, target_);
    EXPECT_EQ(knob_text(c, "values"), "streamed");
    const Execute kernel = kernel_of(t, w, c, target_);
    for (const int64_t m : {0, 1, 2, 15, 33, 130}) {
      const Operands o = operands(f, 2, rows, m);
      EXPECT_LE(error_of(run(o, kernel, 2), o, 0), 1) << rows << " rows, " << m;
    }
  }
}

// An index that may be wrong leaves the kernel, which must not happen among matrix registers.
TEST(NarrowAttention, ChecksAreNotAmongMatrixRegisters) {
  const Workload w = testing::workload_of(
      R"(fn @f(%x: Tensor[(b, n, 96), bf16], %t: Tensor[(9, 32), f32], %i: Tensor[(n), i64]) {
           let %q = slice(%x) {axes = [2], starts = (0), ends = (32)};
           let %k = slice(%x) {axes = [2], starts = (32), ends = (64)};
           let %v = slice(%x) {axes = [2], starts = (64), ends = (96)};
           let %y = attention(%q, %k, %v) {heads = 2, scale = 0.25, out = f32};
           let %r = gather(%t, %i) {axis = 0}; let %z = add(%y, %r); %z })");
  const TargetInfo target = target_by_name("x86-64-v4-amx");
  const Template* t = template_for(w, target);
  ASSERT_TRUE(t == nullptr || t->name() == "attention");
}

// A GPU's template takes narrow results of narrow operands alone.
TEST(NarrowAttention, WiderResultsAreNoGpus) {
  EXPECT_EQ(template_for(workload({}), target_by_name("sm_90a")), nullptr);
}

}  // namespace
}  // namespace nimble::kernels
