#include "compiler/ir/dim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

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
