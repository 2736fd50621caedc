#include "compiler/ir/dim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "compiler/ir/dim_functions.h"
#include "compiler/ir/dim_node.h"
#include "compiler/ir/dim_prover.h"
#include "compiler/ir/dim_prover_statistics.h"
#include "vm/base/error.h"

namespace nimble::ir {
namespace {

Dim d(const char* text) {
  return parse_dim(text);
}
std::string text(const char* s) {
  return parse_dim(s).str();
}

// A random expression and, beside it, its value by plain arithmetic (nothing if undefined).
struct Sample {
  Dim dim;
  std::function<std::optional<int64_t>(const std::map<std::string, int64_t>&)> value;
};

int64_t floor_division(int64_t a, int64_t b) {
  int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

Sample random_expression(std::mt19937& rng, int depth) {
  using Values = std::map<std::string, int64_t>;
  static const std::vector<std::string> kSymbols = {"a", "b", "c"};
  if (depth == 0 || rng() % 6 == 0) {
    if (rng() % 2) {
      const int64_t v = static_cast<int64_t>(rng() % 17) - 4;
      return {Dim(v), [v](const Values&) { return v; }};
    }
    const std::string s = kSymbols[rng() % kSymbols.size()];
    return {Dim::symbol(s), [s](const Values& v) { return v.at(s); }};
  }
  const Sample x = random_expression(rng, depth - 1);
  Sample y = random_expression(rng, depth - 1);
  const auto kind = rng() % 8;
  if (kind == 6 || kind == 7) {  // keep divisors mostly constant and never 0 as a Dim
    const int64_t c = 1 + static_cast<int64_t>(rng() % 12);
    y = {Dim(c), [c](const Values&) { return c; }};
  }
  auto combine = [x, y](auto f) {
    return [x, y, f](const Values& v) -> std::optional<int64_t> {
      auto p = x.value(v), q = y.value(v);
      if (!p || !q) return std::nullopt;
      return f(*p, *q);
    };
  };
  using Opt = std::optional<int64_t>;
  switch (kind) {
    case 0:
      return {x.dim + y.dim, combine([](int64_t p, int64_t q) -> Opt { return p + q; })};
    case 1:
      return {x.dim - y.dim, combine([](int64_t p, int64_t q) -> Opt { return p - q; })};
    case 2:
    case 3:
      return {x.dim * y.dim, combine([](int64_t p, int64_t q) -> Opt { return p * q; })};
    case 4:
      return {min(x.dim, y.dim),
              combine([](int64_t p, int64_t q) -> Opt { return std::min(p, q); })};
    case 5:
      return {max(x.dim, y.dim),
              combine([](int64_t p, int64_t q) -> Opt { return std::max(p, q); })};
    case 6:
      return {floordiv(x.dim, y.dim),
              combine([](int64_t p, int64_t q) -> Opt { return floor_division(p, q); })};
    default:
      return {mod(x.dim, y.dim),
              combine([](int64_t p, int64_t q) -> Opt { return p - q * floor_division(p, q); })};
  }
}

int64_t evaluate(const Dim& dim, const std::map<std::string, int64_t>& values) {
  return dim.evaluate([&](const std::string& s) -> std::optional<int64_t> {
    auto it = values.find(s);
    return it == values.end() ? std::nullopt : std::optional(it->second);
  });
}

TEST(Dim, CanonicalForms) {
  EXPECT_EQ(d("n + m"), d("m + n"));
  EXPECT_EQ(d("(n + 1) * (n - 1)"), d("n*n - 1"));
  EXPECT_EQ(text("2*n - 2*n + 3"), "3");
  EXPECT_EQ(text("1 + 2*n + n*m"), "m*n + 2*n + 1");
  EXPECT_EQ(text("floordiv(8*k + 3, 8)"), "k");
  EXPECT_EQ(text("mod(8*k + 3, 8)"), "3");
  EXPECT_EQ(text("floordiv(floordiv(n, 4), 2)"), "floordiv(n, 8)");
  EXPECT_EQ(text("floordiv(6*n + 3, 4)"), "n + floordiv(n + 1, 2)");
  EXPECT_EQ(text("mod(mod(n, 16), 8)"), "mod(n, 8)");
  EXPECT_EQ(text("floordiv(b*n*384, b*32)"), "12*n");
  EXPECT_EQ(text("floordiv(n*n - 1, n + 1)"), "n - 1");
  EXPECT_EQ(text("max(n, m, n + 3)"), "max(m, n + 3)");
  EXPECT_EQ(text("broadcast(1, n, n)"), "n");
  EXPECT_EQ(text("broadcast(n, 1, broadcast(m, 1))"), "broadcast(m, n)");
  EXPECT_EQ(text("broadcast(n, 5)"), "broadcast(5, n)");  // n is 1 or 5: not decided
  EXPECT_EQ(text("ceildiv(n, 8)"), "floordiv(n + 7, 8)");
}

// As of pooling with ceil_mode: floordiv by a positive constant is monotone.
TEST(Dim, QuotientsThatDifferByConstantsDecideMinimaAndMaxima) {
  EXPECT_EQ(text("min(floordiv(h, 2), floordiv(h + 1, 2))"), "floordiv(h, 2)");
  EXPECT_EQ(text("max(floordiv(h, 2), floordiv(h + 1, 2))"), "floordiv(h + 1, 2)");
  EXPECT_EQ(text("min(floordiv(h + 1, 2), floordiv(h, 2) + 1)"), "floordiv(h + 1, 2)");
  EXPECT_EQ(text("min(m - floordiv(h, 3), m - floordiv(h + 2, 3))"), "m - floordiv(h + 2, 3)");
  EXPECT_EQ(text("min(2*floordiv(h, 4) + 3, 2*floordiv(h + 3, 4))"), "2*floordiv(h + 3, 4)");
  EXPECT_EQ(text("min(floordiv(h, 2), w, floordiv(h + 1, 2), w + 1)"), "min(w, floordiv(h, 2))");
  // One level on the other, each of which leaves its minimum undecided, would double in length.
  Dim extent = d("h");
  for (int i = 0; i < 12; ++i)
    extent = min(ceildiv(extent - Dim(3), Dim(2)) + Dim(1), ceildiv(extent, Dim(2)));
  EXPECT_EQ(extent.str(), "floordiv(h, 4096)");
  for (const char* undecided :
       {"min(3*floordiv(h, 4) + 1, 3*floordiv(h + 2, 4))",
        "min(floordiv(h, 2), floordiv(h + 1, 3))", "min(floordiv(h, 2), floordiv(w + 1, 2))"})
    EXPECT_TRUE(d(undecided).as_application()) << undecided;
  std::mt19937 rng(5);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng() % static_cast<uint64_t>(high - low + 1));
  };
  int decided = 0;
  for (int i = 0; i < 400; ++i) {
    const int64_t c = draw(2, 6), scale = draw(0, 1) ? draw(1, 3) : draw(-3, -1);
    const auto operand = [&](const char* symbol) {
      return Dim(scale) * floordiv(d(symbol) + Dim(draw(-7, 7)), Dim(c)) + Dim(draw(-2, 2));
    };
    const Dim a = operand("h"), b = operand("h"), low = min(a, b), high = max(a, b);
    decided += !low.as_application();
    for (int64_t h = 0; h < 3 * c; ++h) {
      const int64_t x = evaluate(a, {{"h", h}}), y = evaluate(b, {{"h", h}});
      ASSERT_EQ(evaluate(low, {{"h", h}}), std::min(x, y)) << a.str() << ", " << b.str();
      ASSERT_EQ(evaluate(high, {{"h", h}}), std::max(x, y)) << a.str() << ", " << b.str();
    }
  }
  EXPECT_GT(decided, 200);
}

TEST(Dim, DividesExactly) {
  EXPECT_EQ(divide_exactly(d("b*b*n"), d("b*n")), d("b"));
  EXPECT_EQ(divide_exactly(d("n*n - 1"), d("n + 1")), d("n - 1"));
  EXPECT_EQ(divide_exactly(d("n + 1"), d("n")), std::nullopt);
  EXPECT_EQ(divide_exactly(d("n"), Dim(0)), std::nullopt);
}

TEST(Dim, ViewsAndKinds) {
  EXPECT_TRUE(Dim::any().is_any());
  EXPECT_EQ(d("7").as_constant(), 7);
  EXPECT_EQ(d("n").as_symbol(), "n");
  EXPECT_FALSE(d("2*n").as_symbol());
  EXPECT_THAT(d("n*floordiv(m, 2) + mod(k, 3)").symbols(), testing::ElementsAre("k", "m", "n"));
  auto terms = d("3*n*n + 5").terms();
  ASSERT_EQ(terms.size(), 2u);
  EXPECT_EQ(terms[0].coefficient, 3);
  EXPECT_EQ(terms[0].atoms.size(), 2u);
  auto app = d("min(n, m)").as_application();
  ASSERT_TRUE(app);
  EXPECT_EQ(app->function, Dim::Function::kMin);
}

TEST(Dim, SubstitutionSimplifiesAgain) {
  EXPECT_EQ(d("floordiv(n, 8)").substitute({{"n", d("8*k + 5")}}), d("k"));
  EXPECT_EQ(d("mod(n, 8)").substitute({{"n", d("8*k + 5")}}), Dim(5));
  EXPECT_EQ(d("n*m").substitute({{"n", d("m")}, {"m", d("n + 1")}}), d("m*n + m"));
}

TEST(Dim, ErrorsInArithmetic) {
  EXPECT_THROW(floordiv(d("n"), 0), Error);
  EXPECT_THROW(mod(Dim(3), 0), Error);
  EXPECT_THROW(Dim(INT64_MAX) * Dim(2), Error);
  EXPECT_THROW(Dim(INT64_MAX) + Dim(1), Error);
  EXPECT_THROW(broadcast(Dim(2), Dim(3)), Error);
  EXPECT_THROW(evaluate(d("n"), {}), Error);
  EXPECT_THROW(evaluate(d("broadcast(n, m)"), {{"n", 2}, {"m", 3}}), Error);
}

// INT64_MIN has no negative: it divides by -1, and bounds a symbol, without undefined arithmetic.
TEST(Dim, SmallestIntegerAsACoefficient) {
  const Dim least = Dim(INT64_MIN) * d("n");
  EXPECT_THROW(floordiv(least, d("-n")), Error);
  EXPECT_THROW(floordiv(least * d("m"), d("-n")), Error);
  EXPECT_THROW(mod(least, d("-n")), Error);
  EXPECT_EQ(floordiv(least, d("n")), Dim(INT64_MIN));
  EXPECT_EQ(floordiv(least, d("-2*n")), Dim(int64_t{1} << 62));

  DimContext facts;
  facts.assume_less_equal(Dim(0), least);
  EXPECT_EQ(facts.less_equal(Dim(0), d("n")), Proof::kYes);
  facts.assume_less_equal(Dim(0), d("m") + Dim(INT64_MIN));
  EXPECT_EQ(facts.less_equal(Dim(INT64_MAX), d("m")), Proof::kYes);
  facts.assume_equal(least, d("k"));
  EXPECT_THROW(facts.assume_equal(least + d("p"), Dim(0)), Error);

  DimContext multiples;
  multiples.set("p", {0, INT64_MAX, INT64_MAX});
  multiples.set("q", {0, INT64_MAX, INT64_MAX - 1});
  multiples.assume_equal(d("p"), d("q"));
  EXPECT_EQ(multiples.divisible(d("p"), 1), Proof::kYes);
}

// Squaring twenty times is twenty operations on shared nodes, and an expression of a million parts.
TEST(Dim, SizeIsLimited) {
  auto squared = [](Dim x, Dim (*step)(const Dim&)) {
    for (int i = 0; i < 20; ++i) x = step(x);
  };
  EXPECT_THROW(squared(d("n"), [](const Dim& x) { return x * x; }), Error);
  EXPECT_THROW(squared(d("n + 1"), [](const Dim& x) { return x * x; }), Error);
  EXPECT_THROW(squared(d("n"), [](const Dim& x) { return floordiv(x * x + x, Dim(3)); }), Error);
  Dim sum, least = Dim::symbol("s0");
  EXPECT_THROW(
      {
        for (int i = 0; i < 600; ++i)
          sum = sum + Dim::symbol(fmt::format("s{}", i)) * d("n*n*n*n*n*n");
      },
      Error);
  for (int i = 0; i < 1000; ++i) least = min(least, Dim::symbol(fmt::format("s{}", i)) + Dim(i));
  EXPECT_EQ(least.as_application()->operands.size(), 1000u);
  EXPECT_EQ(min(least, Dim::symbol("s7")).as_application()->operands.size(), 1000u);
}

TEST(Dim, ParserRefuses) {
  for (const char* bad : {"", "n +", "(n", "f(n)", "floordiv(n)", "floordiv(n, 0)", "n m", "? + 1",
                          "99999999999999999999", "`", "``", "2 ** n"}) {
    EXPECT_THROW(parse_dim(bad), Error) << bad;
  }
}

TEST(Dim, ParserKnowsTheFunctionsOfTheTable) {
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m");
  for (const DimFunction& f : dim_functions()) {
    EXPECT_EQ(parse_dim(fmt::format("{}(n, 8)", f.name)), f.apply(n, Dim(8))) << f.name;
    EXPECT_EQ(find_dim_function(f.name), &f);
    if (f.function) {
      const Dim made = f.apply(n, m);
      EXPECT_EQ(made.as_application()->function, *f.function) << f.name;
      EXPECT_EQ(made.str().substr(0, f.name.size()), f.name);
    }
  }
  EXPECT_EQ(find_dim_function("n"), nullptr);
}

TEST(Dim, TheEndsOfTheIntegersPrintAndParse) {
  EXPECT_EQ(parse_dim("9223372036854775807"), Dim(INT64_MAX));
  EXPECT_EQ(parse_dim("-9223372036854775808"), Dim(INT64_MIN));
  EXPECT_EQ(parse_dim("n - -2*m + 3*-4"), d("n + 2*m - 12"));
  EXPECT_THROW(parse_dim("9223372036854775808"), Error);
  EXPECT_THROW(parse_dim("-9223372036854775809"), Error);
  for (const Dim& least :
       {Dim(INT64_MIN), Dim(INT64_MIN) * d("n"), d("m") + Dim(INT64_MIN) * d("n")})
    EXPECT_EQ(parse_dim(least.str()), least) << least.str();
}

TEST(Dim, OddSymbolNamesPrintAndParse) {
  const Dim s = Dim::symbol("sequence length") + Dim::symbol("?7") * Dim(2);
  EXPECT_EQ(parse_dim(s.str()), s);
  EXPECT_NE(fresh_symbol(), "?7");
}

// The value of the canonical form, its text, its program and its simplification are all the
// value of the expression it was built from.
TEST(DimProperty, AlgebraKeepsValues) {
  std::mt19937 rng(20210405);
  int checked = 0;
  for (int i = 0; i < 3000; ++i) {
    const Sample s = random_expression(rng, 4);
    const Dim reparsed = parse_dim(s.dim.str());
    ASSERT_EQ(reparsed, s.dim) << s.dim.str();
    const Dim simplified = DimContext().simplify(s.dim);
    const exec::DimProgram program = s.dim.to_program({"a", "b", "c"});
    ASSERT_EQ(program.verify(), "");
    for (int k = 0; k < 8; ++k) {
      const std::map<std::string, int64_t> values = {
          {"a", rng() % 20}, {"b", rng() % 5}, {"c", rng() % 70}};
      auto expected = s.value(values);
      if (!expected) continue;
      ++checked;
      ASSERT_EQ(evaluate(s.dim, values), *expected) << s.dim.str();
      ASSERT_EQ(evaluate(simplified, values), *expected)
          << s.dim.str() << " simplified to " << simplified.str();
      const int64_t args[] = {values.at("a"), values.at("b"), values.at("c")};
      ASSERT_EQ(program.evaluate1(args), *expected) << s.dim.str();
    }
  }
  EXPECT_GT(checked, 20000);
}

// Whatever the prover claims holds for every assignment that the facts allow.
TEST(DimProperty, ProverIsSound) {
  std::mt19937 rng(7);
  int decided = 0;
  for (int i = 0; i < 3000; ++i) {
    DimContext facts;
    struct Range {
      int64_t low, high, divisor;
    };
    std::map<std::string, Range> ranges;
    for (const char* s : {"a", "b", "c"}) {
      const int64_t divisor = 1 + static_cast<int64_t>(rng() % 4);
      const int64_t low = divisor * static_cast<int64_t>(rng() % 4);
      const Range r = {low, low + divisor * static_cast<int64_t>(rng() % 12), divisor};
      ranges[s] = r;
      facts.set(s, {r.low, rng() % 3 ? r.high : INT64_MAX, r.divisor});
    }
    const bool linked = rng() % 4 == 0;  // assume a <= b
    if (linked) facts.assume_less_equal(d("a"), d("b"));
    const auto some_values = [&] {
      std::map<std::string, int64_t> v;
      for (const auto& [s, r] : ranges)
        v[s] = r.low + r.divisor * static_cast<int64_t>(rng() % ((r.high - r.low) / r.divisor + 1));
      return v;
    };
    // And that an expression is what it is for some values.
    const Sample known = random_expression(rng, 2);
    std::optional<int64_t> equals;
    if (const auto v = some_values(); rng() % 3 == 0 && !(linked && v.at("a") > v.at("b")))
      equals = known.value(v);
    if (equals) facts.assume_equal(known.dim, Dim(*equals));
    const Sample x = random_expression(rng, 3),
                 y = equals && rng() % 2 ? known : random_expression(rng, 2);
    const Proof le = facts.less_equal(x.dim, y.dim), lt = facts.less(x.dim, y.dim),
                eq = facts.equal(x.dim, y.dim);
    const Proof divisible = facts.divisible(x.dim, 4);
    const DimContext::Interval range = facts.range(x.dim);
    const Dim simplified = facts.simplify(x.dim);
    decided += le != Proof::kUnknown;
    const auto holds = [&](Proof p, bool truth, const char* what) {
      EXPECT_FALSE(p == Proof::kYes && !truth) << x.dim.str() << " " << what << " " << y.dim.str();
      EXPECT_FALSE(p == Proof::kNo && truth)
          << x.dim.str() << " not " << what << " " << y.dim.str();
    };
    for (int k = 0; k < 24; ++k) {
      std::map<std::string, int64_t> v = some_values();
      if (linked && v["a"] > v["b"]) continue;
      if (equals && known.value(v) != equals) continue;
      auto p = x.value(v), q = y.value(v);
      if (!p || !q) continue;
      holds(le, *p <= *q, "<=");
      holds(lt, *p < *q, "<");
      holds(eq, *p == *q, "==");
      holds(divisible, *p % 4 == 0, "divisible by 4, beside");
      EXPECT_LE(range.low, *p) << x.dim.str();
      EXPECT_GE(range.high, *p) << x.dim.str();
      EXPECT_EQ(evaluate(simplified, v), *p) << x.dim.str() << " -> " << simplified.str();
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(decided, 500);  // a prover that always says "unknown" would be sound too
}

TEST(DimContext, Proves) {
  DimContext c;
  c.set("n", {1, 512, 1});
  c.set("k", {0, INT64_MAX, 8});
  EXPECT_EQ(c.less_equal(d("n"), 512), Proof::kYes);
  EXPECT_EQ(c.less(d("n"), 512), Proof::kUnknown);
  EXPECT_EQ(c.equal(d("n"), 0), Proof::kNo);
  EXPECT_EQ(c.less_equal(d("8*floordiv(n, 8)"), d("n")), Proof::kYes);
  EXPECT_EQ(c.less(d("n"), d("8*floordiv(n, 8) + 8")), Proof::kYes);
  EXPECT_EQ(c.less_equal(d("min(n, m)"), d("m")), Proof::kYes);
  EXPECT_EQ(c.less_equal(d("m"), d("n*m")), Proof::kYes);
  EXPECT_EQ(c.equal(d("n"), d("8*floordiv(n, 8) + mod(n, 8)")), Proof::kYes);
  EXPECT_EQ(c.equal(d("2*n + 1"), d("2*m")), Proof::kNo);
  EXPECT_EQ(c.divisible(d("k + 16"), 8), Proof::kYes);
  EXPECT_EQ(c.divisible(d("k + 3"), 8), Proof::kNo);
  EXPECT_EQ(c.simplify(d("mod(k + 3, 8)")), Dim(3));
  EXPECT_EQ(c.simplify(d("8*floordiv(k, 8)")), d("k"));
  EXPECT_EQ(c.simplify(d("min(n, 1024)")), d("n"));
  EXPECT_EQ(c.simplify(d("max(n, 0)")), d("n"));
  EXPECT_EQ(c.simplify(d("floordiv(n + 511, 1024)")), Dim(0));
  EXPECT_EQ(c.equal(Dim::any(), 3), Proof::kUnknown);
}

TEST(DimContext, BroadcastWithAConstantStaysACheck) {
  DimContext c;
  EXPECT_EQ(c.equal(d("broadcast(n, 5)"), 5), Proof::kUnknown);
}

TEST(DimContext, LearnsEqualities) {
  DimContext c;
  c.assume_equal(d("?1"), d("n"));
  EXPECT_EQ(c.equal(d("?1 + 1"), d("n + 1")), Proof::kYes);
  EXPECT_EQ(c.simplify(d("?1")), d("n"));
  c.assume_equal(d("2*m"), d("2*n + 4"));
  EXPECT_EQ(c.equal(d("m"), d("n + 2")), Proof::kYes);
  c.assume_equal(d("n"), 3);
  EXPECT_EQ(c.simplify(d("m*?1")), Dim(15));
}

TEST(DimContext, LearnsBoundsFromAMinimum) {
  DimContext c;
  c.assume_equal(d("min(n, 512)"), d("n"));
  EXPECT_EQ(c.less_equal(d("n"), 512), Proof::kYes);
  EXPECT_EQ(c.simplify(d("min(n, 512)")), d("n"));
}

TEST(DimContext, UsesInequalitiesBetweenSymbols) {
  DimContext c;  // thread t of T takes rows up to floordiv((t + 1)*e, T) <= e
  c.set("T", {1, INT64_MAX, 1});
  c.assume_less_equal(d("t + 1"), d("T"));
  EXPECT_EQ(c.less_equal(d("floordiv((t + 1)*e, T)"), d("e")), Proof::kYes);
  EXPECT_EQ(c.less_equal(d("e"), d("floordiv((t + 1)*e, T)")), Proof::kUnknown);
}

TEST(DimContext, WhatOverflowsIsUnknown) {
  const DimContext c;
  const Dim least(INT64_MIN), most(INT64_MAX), n = d("n");
  EXPECT_EQ(c.equal(least, Dim(2)), Proof::kNo);
  EXPECT_EQ(c.less(most, n), Proof::kUnknown);
  EXPECT_EQ(c.equal(least, n * n + Dim(1)), Proof::kUnknown);
  EXPECT_EQ(c.simplify(floordiv(n, Dim(2)) * least), floordiv(n, Dim(2)) * least);
}

TEST(DimContext, AnEqualityThatNothingSolvesHoldsAsItStands) {
  DimContext c;
  const Dim a = d("max(0, max(0, m - 1) - min(1, m))"), m = d("m");
  EXPECT_EQ(c.equal(a, m), Proof::kUnknown);
  c.assume_equal(a, m);
  EXPECT_EQ(c.equal(a, m), Proof::kYes);
}

// The extent of x[n-1:n], once it is known to be 1, is 1 inside of other expressions, too.
TEST(DimContext, AFunctionWhoseValueIsKnownIsThatValue) {
  const Dim row = d("max(0, min(m, n) - max(0, min(m, -m*min(0, n - 1) + n - 1)))");
  DimContext c;
  c.assume_equal(row, Dim(1));
  EXPECT_EQ(c.simplify(row).str(), "1");
  EXPECT_EQ(c.equal(broadcast(row, d("m")), d("m")), Proof::kYes);
  EXPECT_EQ(c.equal(floordiv(d("4*k") * row, Dim(4)), d("k")), Proof::kYes);
  // Another equality later, which solves one of its symbols, keeps it.
  c.assume_equal(d("n"), d("k + 1"));
  const Dim same = row.substitute({{"n", d("k + 1")}});
  EXPECT_EQ(c.equal(broadcast(same, d("m")), d("m")), Proof::kYes);
  EXPECT_EQ(c.equal(broadcast(row, d("m")), d("m")), Proof::kYes);
  // A value may be a symbol, or a function of none; where it is a function, both stay.
  DimContext others;
  others.assume_equal(d("floordiv(p, q)"), d("q + 2"));
  EXPECT_EQ(others.simplify(d("min(r, 3*floordiv(p, q))")).str(), "min(r, 3*q + 6)");
  others.assume_equal(d("mod(p, r)"), d("max(q, r)"));
  EXPECT_EQ(others.equal(d("mod(p, r)"), d("max(q, r)")), Proof::kYes);
}

TEST(DimContext, BoundsOfQuotientsAreBoundsOfTheirSymbol) {
  DimContext c;
  c.assume_equal(d("min(floordiv(n - 10, 5) + 1, 3)"), Dim(3));
  EXPECT_EQ(c.range(d("n")).low, 20);
  c.assume_less_equal(d("3*floordiv(floordiv(n, 2) + 1, 4)"), d("20"));
  EXPECT_EQ(c.range(d("n")).high, 53);  // floordiv(n + 2, 8) <= 6
  EXPECT_EQ(c.less_equal(d("7"), d("floordiv(n + 2, 8)")), Proof::kNo);
  c.assume_less_equal(d("-floordiv(m, 3)"), d("-5"));
  EXPECT_EQ(c.range(d("m")).low, 15);
  // A bound that has no 64 bits is none.
  c.assume_less_equal(Dim(INT64_MAX), d("floordiv(k, 3)"));
  EXPECT_EQ(c.less_equal(Dim(INT64_MAX), d("floordiv(k, 3)")), Proof::kYes);
}

TEST(DimContext, AnswersHoldUntilFactsChange) {
  DimContext c;
  const auto eight_fits = [](const DimContext& facts) { return facts.less_equal(8, d("n + m")); };
  EXPECT_EQ(eight_fits(c), Proof::kUnknown);
  const DimContext before = c;
  c.assume_less_equal(6, d("n"));
  EXPECT_EQ(eight_fits(c), Proof::kUnknown);
  c.set("m", {2, INT64_MAX, 1});
  EXPECT_EQ(eight_fits(c), Proof::kYes);
  EXPECT_EQ(eight_fits(before), Proof::kUnknown);
  c = before;
  EXPECT_EQ(eight_fits(c), Proof::kUnknown);
  c.assume_equal(d("n"), 9);
  EXPECT_EQ(c.range(d("floordiv(n, 2)")).high, 4);
  EXPECT_EQ(eight_fits(c), Proof::kYes);
  EXPECT_EQ(before.range(d("floordiv(n, 2)")).high, INT64_MAX);
}

TEST(DimContext, QuotientsOfAllResiduesAreTheWhole) {
  const DimContext c;
  EXPECT_EQ(c.simplify(d("floordiv(n, 2) + floordiv(n + 1, 2)")), d("n"));
  EXPECT_EQ(
      c.simplify(d("6*m*floordiv(n, 3) + k + 6*m*floordiv(n + 2, 3) + 6*m*floordiv(n + 1, 3)")),
      d("6*m*n + k"));
  EXPECT_EQ(c.simplify(d("floordiv(2*n + 3*k - 4, 5) + floordiv(2*n + 3*k - 3, 5) + "
                         "floordiv(2*n + 3*k - 2, 5) + floordiv(2*n + 3*k - 1, 5) + "
                         "floordiv(2*n + 3*k, 5)")),
            d("2*n + 3*k - 4"));
  for (const char* apart :
       {"floordiv(n, 3) + floordiv(n + 1, 3)", "floordiv(n, 2) + 2*floordiv(n + 1, 2)",
        "m*floordiv(n, 2) + floordiv(n + 1, 2)"})
    EXPECT_EQ(c.simplify(d(apart)), d(apart));
}

TEST(DimContext, QuotientsOfDecidedMinimaAndMaxima) {
  DimContext c;
  EXPECT_EQ(c.simplify(d("floordiv(n - min(1, n) + 1, 2)")), d("floordiv(n, 2)"));
  EXPECT_EQ(c.simplify(d("floordiv(max(2, n) + m, 3)")), d("floordiv(max(2, n) + m, 3)"));
  c.set("n", {2, INT64_MAX, 1});
  EXPECT_EQ(c.simplify(d("floordiv(max(2, n) + 1, 3)")), d("floordiv(n + 1, 3)"));
}

// Points that facts allow refute what is not so for some of them, and nothing that follows.
TEST(DimWitnesses, RefuteWhatFactsDoNotSay) {
  const std::map<std::string, SymbolFacts> ranges = {
      {"n", {6, INT64_MAX, 4}}, {"m", {0, 9, 1}}, {"k", {5, 5, 1}}, {"low", {INT64_MIN, -3, 1}}};
  const std::map<std::string, Dim> equal_to = {{"twice", d("2*m")}};
  const std::vector<Dim> nonnegative = {d("floordiv(h + 1, 2) - 3")};
  Witnesses witnesses({ranges, equal_to, nonnegative});
  for (const char* holds :
       {"n - 8", "9 - m", "k - 5", "5 - k", "-3 - low", "twice - m", "18 - twice", "h - 5", "new",
        "mod(n, 4)", "broadcast(h, new) - new", "floordiv(m, m) - 1", "min(n, m)"})
    EXPECT_FALSE(witnesses.refute(d(holds))) << holds;
  for (const char* not_always :
       {"n - 12", "8 - m", "k - 6", "low + 4", "m - twice", "h - 40", "new - 1", "m - n", "0 - n*h",
        "mod(n, 8) - 4", "min(n, m) - 4", "floordiv(h, 3) - m"})
    EXPECT_TRUE(witnesses.refute(d(not_always))) << not_always;
  EXPECT_FALSE(witnesses.refute(d("9223372036854775807*n*n - n"))) << "has no 64 bits";
  // What no point meets, or none that is found, refutes nothing.
  const std::vector<Dim> contradiction = {d("n - 1"), d("0 - n")};
  EXPECT_FALSE(Witnesses({{}, {}, contradiction}).refute(d("-1")));
  const std::map<std::string, SymbolFacts> none = {{"n", {5, 7, 4}}};
  EXPECT_FALSE(Witnesses({none, {}, {}}).refute(d("n - 6")));
  EXPECT_FALSE(Witnesses({{}, {{"n", Dim(-1)}}, {}}).refute(d("n - 6")))
      << "extents are not negative";
}

// Without a limit, and a memory of what was tried, this takes minutes.
TEST(DimContext, AQuestionEnds) {
  DimContext c;
  Dim deep = d("n");
  for (const char* s : {"a", "b", "c", "e"}) {
    const Dim k = d(s);
    c.assume_less_equal(max(deep - k, k), min(deep + k, d("m") * k));
    deep = max(min(deep, k) - max(deep - k, Dim(0)), floordiv(deep * k, Dim(3)));
  }
  EXPECT_EQ(c.equal(deep, d("m")), Proof::kUnknown);
  // So many ways that not all are tried; that is counted, once a question at most.
  DimContext many;
  const auto s = [](int i) { return Dim::symbol(fmt::format("s{}", i % 7)); };
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < i; ++j) many.assume_less_equal(s(i) * s(j), s(i + 1) * s(j + 2) + s(i));
  const int64_t exhausted = exhausted_questions();
  EXPECT_EQ(many.less_equal(s(0) * s(1) + s(2) * s(3), s(4) * s(5)), Proof::kUnknown);
  EXPECT_EQ(exhausted_questions(), exhausted + 1);
  // Nor is it tried again: inference asks anew whenever it runs.
  EXPECT_EQ(many.less_equal(s(0) * s(1) + s(2) * s(3), s(4) * s(5)), Proof::kUnknown);
  const DimContext again = many;
  EXPECT_EQ(again.less_equal(s(0) * s(1) + s(2) * s(3), s(4) * s(5)), Proof::kUnknown);
  EXPECT_EQ(exhausted_questions(), exhausted + 1);
  // Under other facts it is another question.
  many.set("s4", {0, 3, 1});
  many.set("s5", {0, 0, 1});
  EXPECT_EQ(many.less_equal(s(4) * s(5), s(0) * s(1) + s(2) * s(3)), Proof::kYes);
}

TEST(Dim, InterningIsThreadSafe) {
  std::vector<std::thread> threads;
  std::vector<Dim> results(4);
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&results, t] {
      Dim sum;
      for (int i = 0; i < 1000; ++i) {
        sum = sum + Dim::symbol(fmt::format("x{}", i % 97)) * Dim(i) +
              floordiv(Dim::symbol("y"), i + 2);
      }
      results[t] = sum;
    });
  }
  for (auto& t : threads) t.join();
  for (const Dim& r : results) EXPECT_EQ(r, results[0]);
}

}  // namespace
}  // namespace nimble::ir
