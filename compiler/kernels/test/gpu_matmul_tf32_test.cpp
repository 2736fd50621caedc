// Products of f32 whose factors a GPU may round to tf32, in the emulator: which sums they are, bit
// by bit and within the bound of what such sums may be, and that the bound finds what is missing.
#include <fmt/format.h>

#include "compiler/kernels/test/reference_harness.h"
#include "compiler/kernels/test/template_harness.h"
#include "compiler/kernels/test/tf32.h"

namespace nimble::kernels {
namespace {

constexpr const char* kLevel = "sm_90a";

// Either operand transposed or not.
struct Form {
  bool a, b;
};
constexpr Form kForms[] = {{false, false}, {false, true}, {true, false}, {true, true}};

std::string text_of(const Form& f, const std::string& m, const std::string& k, const std::string& n,
                    bool tf32 = true) {
  return fmt::format(
      "fn @f(%a: Tensor[({}), f32], %b: Tensor[({}), f32]) {{ let %y = matmul(%a, %b) "
      "{{transpose_a "
      "= {}, transpose_b = {}, tf32 = {}}}; %y }}",
      f.a ? k + ", " + m : m + ", " + k, f.b ? n + ", " + k : k + ", " + n, f.a, f.b, tf32);
}

struct Operands {
  Form form;
  int64_t m, k, n;
  std::vector<float> a, b;

  Operands(const Form& f, int64_t rows, int64_t depth, int64_t columns, unsigned seed)
      : form(f), m(rows), k(depth), n(columns) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> any(-1, 1);
    for (int64_t i = 0; i < m * k; ++i) a.push_back(any(random));
    for (int64_t i = 0; i < k * n; ++i) b.push_back(any(random));
  }
  Operands tf32() const {
    Operands out = *this;
    for (float& x : out.a) x = static_cast<float>(testing::tf32_of(x));
    for (float& x : out.b) x = static_cast<float>(testing::tf32_of(x));
    return out;
  }
  double left(int64_t row, int64_t i) const { return a[form.a ? i * m + row : row * k + i]; }
  double right(int64_t i, int64_t column) const {
    return b[form.b ? column * k + i : i * n + column];
  }
};

std::vector<float> run(const kir::Function& f, const Operands& x,
                       const std::vector<int64_t>& symbols) {
  const auto bytes = [](size_t floats) { return ArgumentMemory(floats * sizeof(float)); };
  std::vector<ArgumentMemory> memory;
  memory.push_back(bytes(x.a.size()));
  memory.push_back(bytes(x.b.size()));
  memory.push_back(bytes(static_cast<size_t>(x.m * x.n)));
  if (!x.a.empty()) std::memcpy(memory[0].data(), x.a.data(), memory[0].size());
  if (!x.b.empty()) std::memcpy(memory[1].data(), x.b.data(), memory[1].size());
  const std::vector<std::span<std::byte>> buffers(memory.begin(), memory.end());
  EXPECT_EQ(kir::Interpreter(f).run(buffers, symbols), 0);
  std::vector<float> out(static_cast<size_t>(x.m * x.n));
  if (!out.empty()) std::memcpy(out.data(), memory[2].data(), memory[2].size());
  return out;
}

// The first element beyond |y - y64| <= u |y64| + 64 u sum |a b|, u = 2^-24 (docs/running.md); ""
// if there is none.
std::string beyond_bound(const std::vector<float>& y, const Operands& x) {
  for (int64_t row = 0; row < x.m; ++row)
    for (int64_t column = 0; column < x.n; ++column) {
      double want = 0, terms = 0;
      for (int64_t i = 0; i < x.k; ++i) {
        const double term = x.left(row, i) * x.right(i, column);
        want += term;
        terms += std::abs(term);
      }
      const double got = y[static_cast<size_t>(row * x.n + column)];
      if (!(std::abs(got - want) <= 0x1p-24 * std::abs(want) + 64 * 0x1p-24 * terms))
        return fmt::format("element {}, {}: {} for {}", row, column, got, want);
    }
  return "";
}

class GpuTf32Test : public ::testing::Test {
 protected:
  // The default configuration, then sampled ones with fragments.
  std::vector<Config> configurations(const Workload& w, int count) const {
    std::mt19937 random(11);
    std::vector<Config> out = {template_.default_config(w, target_)};
    while (static_cast<int>(out.size()) < count) {
      Config c = random_config(template_, w, target_, random);
      c["unit"] = "mma";
      if (template_.valid(w, c, target_)) out.push_back(std::move(c));
    }
    return out;
  }
  kir::Function lowered(const Workload& w, const Config& c) const {
    return template_.lower(w, c, target_, "kernel").functions.at(0);
  }

  const TargetInfo target_ = target_by_name(kLevel);
  const Template& template_ = *find_template("gpu_matmul");
};

// Sizes around tiles, copies and steps of k, known and unknown.
TEST_F(GpuTf32Test, SumsKeepTheirBoundAtAwkwardSizes) {
  const int64_t sizes[][3] = {{1, 8, 16},  {13, 40, 36}, {33, 33, 50}, {16, 64, 64},
                              {0, 24, 20}, {5, 0, 7},    {17, 65, 31}, {64, 129, 9}};
  for (const Form& form : kForms)
    for (const auto& [m, k, n] : sizes)
      for (const bool known : {false, true}) {
        const bool fixed = known && k > 0;
        const Workload w =
            testing::workload_of(fixed ? text_of(form, "m", std::to_string(k), std::to_string(n))
                                       : text_of(form, "m", "k", "n"));
        // Symbols are numbered as they come.
        std::vector<int64_t> symbols = {m};
        if (!fixed) symbols = form.a ? std::vector{k, m, n} : std::vector{m, k, n};
        const Operands any(form, m, k, n, 5), x = any.tf32();
        for (const Config& c : configurations(w, 3)) {
          SCOPED_TRACE(fmt::format("{} x {} x {} {} {}", m, k, n, w.key, to_json(c)));
          const kir::Function f = lowered(w, c);
          const std::vector<float> y = run(f, x, symbols);
          ASSERT_EQ(beyond_bound(y, x), "");
          // What the factors are rounded to is all that counts of them.
          ASSERT_EQ(run(f, any, symbols), y);
        }
      }
}

// `s` with its products of fragments under a condition.
kir::StmtRef with_condition(const kir::StmtRef& s, const kir::Condition& kept) {
  if (s->kind == kir::StmtKind::kWarpDot) return kir::build::if_then(kept, s);
  auto copy = std::make_shared<kir::Stmt>(*s);
  for (kir::StmtRef& inner : copy->body) inner = with_condition(inner, kept);
  return copy;
}

// What the bound is there for: a kernel that loses a step of k, at either end of the sum, or that
// takes its factors as they are.
TEST_F(GpuTf32Test, TheBoundFindsWhatIsMissing) {
  const Form form = {false, false};
  const Workload w = testing::workload_of(text_of(form, "m", "256", "32"));
  Config c = template_.default_config(w, target_);
  c["k_step"] = int64_t{32};
  c["k_split"] = int64_t{1};
  ASSERT_TRUE(template_.valid(w, c, target_)) << to_json(c);
  ASSERT_EQ(std::get<std::string>(c["unit"]), "mma");
  const Operands any(form, 19, 256, 32, 6), x = any.tf32();
  kir::Function f = lowered(w, c);
  EXPECT_EQ(beyond_bound(run(f, x, {19}), x), "");
  EXPECT_NE(beyond_bound(run(f, any, {19}), any), "") << "the factors are not rounded";
  const kir::StmtRef whole = f.body;
  for (const kir::Condition& kept :
       {kir::build::lt(0, kir::Dim::symbol("step")), kir::build::lt(kir::Dim::symbol("step"), 7)}) {
    f.body = with_condition(whole, kept);
    ASSERT_EQ(kir::verify(f), "");
    EXPECT_NE(beyond_bound(run(f, x, {19}), x), "");
  }
}

// Whether f32 is multiplied by fragments, the operator says.
TEST_F(GpuTf32Test, FragmentsAreForWhomAllowsThem) {
  const auto choices = [&](bool tf32) {
    const Workload w = testing::workload_of(text_of({false, false}, "m", "64", "64", tf32));
    return template_.knobs(w, target_).at(0).choices.size();
  };
  EXPECT_EQ(choices(false), 1u);
  EXPECT_EQ(choices(true), 2u);
  for (const auto& [k, n] : {std::pair("768", "768"), std::pair("768", "3072"),
                             std::pair("3072", "768"), std::pair("k", "n")}) {
    const Workload w = testing::workload_of(text_of({false, false}, "m", k, n));
    EXPECT_EQ(std::get<std::string>(template_.default_config(w, target_).at("unit")), "mma");
  }
}

// Another kernel, with records of its own; a CPU's is the same, but for its key.
TEST_F(GpuTf32Test, IsAPartOfTheWorkload) {
  const Workload w = testing::workload_of(text_of({false, false}, "m", "64", "64")),
                 plain = testing::workload_of(text_of({false, false}, "m", "64", "64", false));
  EXPECT_NE(w.key, plain.key);
  const TargetInfo cpu = target_by_name("x86-64-v3");
  const Template* t = template_for(w, cpu);
  ASSERT_NE(t, nullptr);
  const auto text = [&](const Workload& of) {
    return kir::print(t->lower(of, t->default_config(of, cpu), cpu, "kernel").functions.at(0));
  };
  EXPECT_EQ(text(w), text(plain));
}

// Shared memory serves a warp's lanes in one turn, of columns in at most two; global memory is read
// and written in whole sectors.
TEST_F(GpuTf32Test, DefaultSchedulesMeetFewBanksTwice) {
  for (const bool transposed : {false, true})
    for (const char* n : {"768", "3072"}) {
      const Form form = {false, transposed};
      const Config c =
          template_.default_config(testing::workload_of(text_of(form, "m", "768", n)), target_);
      SCOPED_TRACE(to_json(c));
      const Workload w = testing::workload_of(text_of(form, "m", "128", "128"));
      const Operands x(form, 53, 128, 128, 7);
      std::vector<ArgumentMemory> memory;
      for (const size_t floats : {x.a.size(), x.b.size(), size_t{53 * 128}})
        memory.emplace_back(floats * sizeof(float));
      const std::vector<std::span<std::byte>> buffers(memory.begin(), memory.end());
      const std::vector<int64_t> symbols = {53};
      kir::LaunchStatistics use;
      EXPECT_EQ(kir::Interpreter(lowered(w, c)).run(buffers, symbols, 1, &use), 0);
      for (const auto& [name, b] : use.buffers) {
        EXPECT_LE(b.worst_ways, 2) << name;
        EXPECT_EQ(b.sectors, b.least_sectors) << name;
      }
    }
}

}  // namespace
}  // namespace nimble::kernels
