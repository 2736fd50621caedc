#include <cmath>
#include <limits>

#include "compiler/kernels/test/operator_rows.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {
namespace {

TEST(Reduce, LastAxisWithPrologueAndEpilogue) {
  check({R"(fn @f(%x: Tensor[(n, m), f32], %y: Tensor[(n, m), f32]) {
           let %p = mul(%x, %y); let %s = sum(%p) {axes = [1], keepdims = false};
           let %e = neg(%s); %e })",
         "reduce",
         [](const Arrays& in, Arrays& out) {
           const int64_t m = in[0].dim(1);
           for (int64_t i = 0; i < out[0].size(); ++i) {
             double s = 0;
             for (int64_t j = 0; j < m; ++j) s += in[0].at(i, j) * in[1].at(i, j);
             out[0][i] = -s;
           }
         },
         random_sizes(2, 130, 24), 1e-4});
}

// Rows go through the same kernel twice: their scale, and the rows by it. The scale is a result of
// its own, or none.
TEST(Reduce, ResultsGoBackToTheRows) {
  for (const int64_t k : {1, 2, 15, 16, 17, 67, 130})
    for (const bool both : {true, false}) {
      SCOPED_TRACE(fmt::format("{} {}", k, both));
      Case c;
      c.text = fmt::format(
          "fn @f(%x: Tensor[(b, n, {0}), f32], %g: Tensor[({0}), f32]) {{ let %a = abs(%x); "
          "let %m = reduce_max(%a) {{axes = [2], keepdims = true}}; "
          "let %s = maximum(%m, 0.001f32); let %d = div(%x, %s); let %y = mul(%d, %g); {1} }}",
          k, both ? "let %r = (%s, %y); %r" : "%y");
      c.served_by = "reduce";
      c.oracle = by_reference(c.text);
      c.sizes = {{0}, {1}, {7}, {40}};
      check(c);
      if (HasFatalFailure()) return;
    }
}

// The rows that a normalisation makes go through a reduction in the same kernel.
TEST(Reduce, NormalisedRowsAreReducedAgain) {
  const std::string norms[] = {"layer_norm(%p, %g, %g) {epsilon = 1e-5, axis = -1}",
                               "softmax(%p) {axis = -1}", "log_softmax(%p) {axis = -1}",
                               "l2_normalize(%p) {axis = -1, epsilon = 1e-12}"};
  for (const std::string& norm : norms)
    for (const int64_t k : {1, 7, 16, 33, 130}) {
      SCOPED_TRACE(fmt::format("{} of {}", norm, k));
      Case c;
      c.text = fmt::format(
          "fn @f(%x: Tensor[(b, n, {0}), f32], %g: Tensor[({0}), f32]) {{ let %p = mul(%x, %x); "
          "let %y = {1}; let %a = abs(%y); "
          "let %m = reduce_max(%a) {{axes = [2], keepdims = true}}; "
          "let %s = maximum(%m, 0.001f32); let %d = div(%y, %s); let %r = (%y, %s, %d); %r }}",
          k, norm);
      c.served_by = "reduce";
      c.oracle = by_reference(c.text);
      c.sizes = {{0}, {1}, {7}, {40}};
      c.tolerance = 1e-4;
      check(c);
      if (HasFatalFailure()) return;
    }
}

// Several reductions of the same rows, plain ones or those that a normalisation makes; the rows go
// back by all of them, or not at all.
TEST(Reduce, RowsHaveSeveralReductions) {
  const std::string norms[] = {"mul(%x, %g)", "layer_norm(%x, %g, %g) {epsilon = 1e-5, axis = -1}"};
  const std::string results[] = {"let %r = (%l, %s, %d); %r", "%d", "%s"};
  for (const std::string& norm : norms)
    for (const std::string& result : results)
      for (const int64_t k : {1, 7, 16, 33, 130}) {
        SCOPED_TRACE(fmt::format("{} of {}: {}", norm, k, result));
        Case c;
        c.text = fmt::format(
            "fn @f(%x: Tensor[(b, n, {0}), f32], %g: Tensor[({0}), f32]) {{ let %y = {1}; "
            "let %m = reduce_max(%y) {{axes = [2], keepdims = true}}; "
            "let %l = reduce_min(%y) {{axes = [2], keepdims = true}}; "
            "let %q = mul(%y, %y); let %t = mean(%q) {{axes = [2], keepdims = true}}; "
            "let %e = sub(%m, %l); let %s = add(%e, %t); "
            "let %o = sub(%y, %l); let %u = maximum(%s, 0.001f32); let %d = div(%o, %u); {2} }}",
            k, norm, result);
        c.served_by = "reduce";
        c.oracle = by_reference(c.text);
        c.sizes = {{0}, {1}, {7}, {40}};
        c.tolerance = 1e-4;
        check(c);
        if (HasFatalFailure()) return;
      }
}

// A reduction of what another made of the rows needs that one's result first; rows over other axes
// are other rows.
TEST(Reduce, OnlyReductionsOfTheSameRowsAreOne) {
  const std::string head =
      "fn @f(%x: Tensor[(4, 4), f32]) { let %m = reduce_max(%x) {axes = [1], keepdims = true}; ";
  for (const char* rest :
       {"let %d = sub(%x, %m); let %s = sum(%d) {axes = [1], keepdims = true}; ",
        "let %s = sum(%x) {axes = [0], keepdims = true}; let %d = sub(%x, %m); ",
        "let %s = sum(%x) {axes = [0, 1], keepdims = true}; let %d = sub(%x, %m); "})
    for (const TargetInfo& target : mode().targets)
      EXPECT_EQ(template_for(workload_of(head + rest + "let %e = div(%d, %s); %e }"), target),
                nullptr);
}

// The sums of a square's rows as one row: an element meets the sum of another row than its own.
TEST(Reduce, ResultsThatMoveAreNotTakenBackToTheRows) {
  const std::string head = "fn @f(%x: Tensor[(4, 4), f32]) { ";
  const std::string sums = "let %s = sum(%x) {axes = [1], keepdims = true}; ";
  const std::string norm =
      "let %y = softmax(%x) {axis = 1}; let %s = sum(%y) {axes = [1], keepdims = true}; ";
  for (const std::string& first : {sums, norm}) {
    const std::string as_row = head + first + "let %r = reshape(%s) {shape = (1, 4)}; ";
    for (const TargetInfo& target : mode().targets) {
      EXPECT_EQ(template_for(workload_of(as_row + "let %d = div(%x, %r); %d }"), target), nullptr);
      // Behind the last operator a result may have any extents.
      EXPECT_NE(template_for(workload_of(as_row + "%r }"), target), nullptr);
      EXPECT_NE(template_for(workload_of(head + first +
                                         "let %d = div(%x, %s); "
                                         "let %r = reshape(%d) {shape = (2, 8)}; %r }"),
                             target),
                nullptr);
    }
  }
}

// Rows over more axes than one, and of integers.
TEST(Reduce, ResultsGoBackToRowsOfSeveralAxes) {
  check({R"(fn @f(%x: Tensor[(n, 3, 5), i32]) {
           let %s = sum(%x) {axes = [1, 2], keepdims = true};
           let %y = sub(%x, %s); %y })",
         "reduce",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < in[0].dim(0); ++i) {
             double s = 0;
             for (int64_t j = 0; j < 15; ++j) s += in[0][i * 15 + j];
             for (int64_t j = 0; j < 15; ++j) out[0][i * 15 + j] = in[0][i * 15 + j] - s;
           }
         },
         few({0, 1, 6}), 0, -99, 99});
}

TEST(Reduce, EveryReductionOnBothKindsOfAxes) {
  struct Op {
    const char* name;
    double start;
    double (*f)(double, double);
  };
  const double inf = std::numeric_limits<double>::infinity();
  const Op ops[] = {{"sum", 0, [](double a, double b) { return a + b; }},
                    {"mean", 0, [](double a, double b) { return a + b; }},
                    {"reduce_max", -inf, [](double a, double b) { return std::max(a, b); }},
                    {"reduce_min", inf, [](double a, double b) { return std::min(a, b); }},
                    {"prod", 1, [](double a, double b) { return a * b; }}};
  for (const Op& op : ops) {
    for (int axis : {0, 1, 2}) {
      SCOPED_TRACE(fmt::format("{} {}", op.name, axis));
      Case c{fmt::format("fn @f(%x: Tensor[(a, b, c), f32]) "
                         "{{ let %s = {}(%x) {{axes = [{}], keepdims = true}}; %s }}",
                         op.name, axis),
             "reduce",
             [&](const Arrays& in, Arrays& out) {
               const Array& x = in[0];
               // The rows of the case may have been collapsed: (a*b, c).
               const size_t rank = x.shape.size();
               const size_t ax = static_cast<size_t>(axis) - (3 - rank);
               int64_t inner = 1, outer = 1;
               for (size_t i = 0; i < ax; ++i) outer *= x.dim(i);
               for (size_t i = ax + 1; i < rank; ++i) inner *= x.dim(i);
               const int64_t n = x.dim(ax);
               for (int64_t o = 0; o < outer; ++o)
                 for (int64_t i = 0; i < inner; ++i) {
                   double s = op.start;
                   for (int64_t k = 0; k < n; ++k) s = op.f(s, x[(o * n + k) * inner + i]);
                   out[0][o * inner + i] = op.name == std::string("mean") ? s / double(n) : s;
                 }
             },
             {},
             1e-4};
      const size_t symbols = workload_of(c.text).contract.symbols.size();
      c.sizes = random_sizes(symbols, symbols == 2 ? 40 : 20, 8);
      c.low = 0.5;
      c.high = 1.5;
      check(c);
    }
  }
}

TEST(Reduce, OneNanMakesAnExtremeNan) {
  for (const std::string op : {"reduce_max", "reduce_min"})
    for (int axis : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} {}", op, axis));
      check({fmt::format("fn @f(%x: Tensor[(n, m), f32]) {{ let %a = add(%x, 0.97f32); "
                         "let %l = log(%a); let %s = {}(%l) {{axes = [{}], keepdims = false}}; "
                         "%s }}",
                         op, axis),
             "reduce",
             [&](const Arrays& in, Arrays& out) {  // log of what is below zero is not a number
               const int64_t n = in[0].dim(0), m = in[0].dim(1);
               for (int64_t o = 0; o < out[0].size(); ++o) {
                 double best = op == "reduce_max" ? -std::numeric_limits<double>::infinity()
                                                  : std::numeric_limits<double>::infinity();
                 for (int64_t k = 0; k < (axis == 0 ? n : m); ++k) {
                   const double v = std::log(
                       static_cast<float>(axis == 0 ? in[0].at(k, o) : in[0].at(o, k)) + 0.97f);
                   if (std::isnan(best)) break;
                   best = std::isnan(v)        ? v
                          : op == "reduce_max" ? std::max(best, v)
                                               : std::min(best, v);
                 }
                 out[0][o] = best;
               }
             },
             random_sizes(2, 130, 16), 1e-4});
    }
}

TEST(Reduce, IntegersAndSeveralAxes) {
  Case c{R"(fn @f(%x: Tensor[(b, n, 6), i64]) {
           let %s = sum(%x) {axes = [0, 2], keepdims = false}; %s })",
         "reduce",
         [](const Arrays& in, Arrays& out) {
           for (int64_t n = 0; n < out[0].size(); ++n) {
             out[0][n] = 0;
             for (int64_t b = 0; b < in[0].dim(0); ++b)
               for (int64_t k = 0; k < 6; ++k) out[0][n] += in[0].at(b, n, k);
           }
         },
         random_sizes(2, 20, 6)};
  c.low = -100;
  c.high = 100;
  check(c);
  Case all{
      "fn @f(%x: Tensor[(n, m), i64]) "
      "{ let %s = reduce_max(%x) {axes = [0, 1], keepdims = false}; %s }",
      "reduce",
      [](const Arrays& in, Arrays& out) {
        out[0][0] = double(std::numeric_limits<int64_t>::min());
        for (int64_t i = 0; i < in[0].size(); ++i) out[0][0] = std::max(out[0][0], in[0][i]);
      },
      random_sizes(2, 20, 6)};
  all.low = -100;
  all.high = 100;
  check(all);
}

TEST(Reduce, FirstMaximum) {
  for (int axis : {0, 1}) {
    Case c{fmt::format("fn @f(%x: Tensor[(n, m), f32]) {{ let %r = round(%x); "
                       "let %i = argmax(%r) {{axis = {}, keepdims = false}}; %i }}",
                       axis),
           "reduce",
           [&](const Arrays& in, Arrays& out) {
             const int64_t n = in[0].dim(0), m = in[0].dim(1);
             for (int64_t i = 0; i < out[0].size(); ++i) {
               int64_t best = 0;
               const auto at = [&](int64_t k) {
                 return std::nearbyint(axis == 1 ? in[0].at(i, k) : in[0].at(k, i));
               };
               for (int64_t k = 1; k < (axis == 1 ? m : n); ++k)
                 if (at(k) > at(best)) best = k;
               out[0][i] = double(best);
             }
           },
           {{1, 1}, {3, 40}, {40, 3}, {17, 130}, {130, 17}, {2, 16}}};
    check(c);
  }
}

void softmax_rows(const Array& x, Array& y) {
  const int64_t m = x.shape.back();
  for (int64_t i = 0; m > 0 && i < x.size() / m; ++i) {
    double top = -1e300, sum = 0;
    for (int64_t j = 0; j < m; ++j) top = std::max(top, x[i * m + j]);
    for (int64_t j = 0; j < m; ++j) sum += std::exp(x[i * m + j] - top);
    for (int64_t j = 0; j < m; ++j) y[i * m + j] = std::exp(x[i * m + j] - top) / sum;
  }
}

TEST(Reduce, SoftmaxOfScaledScores) {
  check({R"(fn @f(%x: Tensor[(b, 3, n, m), f32]) {
           let %s = mul(%x, 0.25f32); let %y = softmax(%s) {axis = -1}; %y })",
         "reduce",
         [](const Arrays& in, Arrays& out) {
           Array x = in[0];
           for (double& v : x.v) v *= 0.25;
           softmax_rows(x, out[0]);
         },
         random_sizes(2, 130, 30)});
}

TEST(Reduce, SoftmaxOverTheFirstAxis) {
  check({"fn @f(%x: Tensor[(n, m), f32]) { let %y = softmax(%x) {axis = 0}; %y }", "reduce",
         [](const Arrays& in, Arrays& out) {
           const int64_t n = in[0].dim(0), m = in[0].dim(1);
           for (int64_t j = 0; j < m; ++j) {
             double sum = 0;
             for (int64_t i = 0; i < n; ++i) sum += std::exp(in[0].at(i, j));
             for (int64_t i = 0; i < n; ++i) out[0].at(i, j) = std::exp(in[0].at(i, j)) / sum;
           }
         },
         random_sizes(2, 60, 16)});
}

TEST(Reduce, LogSoftmax) {
  check({"fn @f(%x: Tensor[(n, m), f32]) { let %y = log_softmax(%x) {axis = 1}; %y }", "reduce",
         [](const Arrays& in, Arrays& out) {
           softmax_rows(in[0], out[0]);
           for (double& v : out[0].v) v = std::log(v);
         },
         random_sizes(2, 130, 16)});
}

TEST(Reduce, LayerNormOfAResidualSum) {
  check({R"(fn @f(%x: Tensor[(b, n, 52), f32], %r: Tensor[(b, n, 52), f32],
               %g: Tensor[(52), f32], %o: Tensor[(52), f32]) {
           let %a = add(%x, %r);
           let %y = layer_norm(%a, %g, %o) {epsilon = 1e-12, axis = -1};
           let %t = (%y, %a); %t })",
         "reduce",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < out[0].dim(0); ++i) {
             double mean = 0, variance = 0;
             for (int64_t j = 0; j < 52; ++j) {
               out[1].at(i, j) = in[0].at(i, j) + in[1].at(i, j);
               mean += out[1].at(i, j) / 52;
             }
             for (int64_t j = 0; j < 52; ++j) variance += std::pow(out[1].at(i, j) - mean, 2) / 52;
             for (int64_t j = 0; j < 52; ++j)
               out[0].at(i, j) =
                   (out[1].at(i, j) - mean) / std::sqrt(variance + 1e-12) * in[2][j] + in[3][j];
           }
         },
         one_symbol(), 1e-4});
}

TEST(Reduce, LayerNormOverTwoAxes) {
  check({R"(fn @f(%x: Tensor[(n, 3, 20), f32], %g: Tensor[(3, 20), f32], %o: Tensor[(3, 20), f32]) {
           let %y = layer_norm(%x, %g, %o) {epsilon = 0.001, axis = 1}; %y })",
         "reduce",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < out[0].dim(0); ++i) {
             double mean = 0, variance = 0;
             for (int64_t j = 0; j < 60; ++j) mean += in[0][i * 60 + j] / 60;
             for (int64_t j = 0; j < 60; ++j)
               variance += std::pow(in[0][i * 60 + j] - mean, 2) / 60;
             for (int64_t j = 0; j < 60; ++j)
               out[0][i * 60 + j] =
                   (in[0][i * 60 + j] - mean) / std::sqrt(variance + 0.001) * in[1][j] + in[2][j];
           }
         },
         few({0, 1, 2, 5, 17}), 1e-4});
}

TEST(Reduce, L2Normalize) {
  check(
      {"fn @f(%x: Tensor[(n, m), f32]) { let %y = l2_normalize(%x) {axis = 1, epsilon = 1e-12}; "
       "%y }",
       "reduce",
       [](const Arrays& in, Arrays& out) {
         const int64_t m = in[0].dim(1);
         for (int64_t i = 0; i < in[0].dim(0); ++i) {
           double s = 0;
           for (int64_t j = 0; j < m; ++j) s += in[0].at(i, j) * in[0].at(i, j);
           for (int64_t j = 0; j < m; ++j)
             out[0].at(i, j) = in[0].at(i, j) / std::max(std::sqrt(s), 1e-12);
         }
       },
       random_sizes(2, 130, 16)});
}

// Images pooled to one pixel: folds of few columns are cut into parts, those of many are not; what
// follows is computed once.
TEST(Reduce, WholeImages) {
  for (const char* op : {"mean", "reduce_max"})
    for (const char* channels : {"16", "24", "58", "130", "c"})
      for (const bool fused : {false, true}) {
        SCOPED_TRACE(fmt::format("{} of {} channels, fused {}", op, channels, fused));
        Case c;
        c.text = fmt::format(
            "fn @f(%x: Tensor[(b, h, w, {0}), f32], %y: Tensor[({0}), f32]) {{ {1} "
            "let %s = {2}(%z) {{axes = [1, 2], keepdims = true}}; let %r = {3}; %r }}",
            channels, fused ? "let %z = mul(%x, %y);" : "let %z = relu(%x);", op,
            fused ? "sigmoid(%s)" : "add(%s, %y)");
        c.served_by = "reduce";
        c.oracle = by_reference(c.text);
        const bool symbolic = channels == std::string("c");
        for (std::vector<int64_t> size : Sizes{{1, 7, 7},
                                               {2, 1, 1},
                                               {1, 14, 15},
                                               {3, 13, 31},
                                               {1, 1, 300},
                                               {1, 300, 1},
                                               {0, 9, 9},
                                               {9, 12, 12}}) {
          if (symbolic) size.push_back(size[1] == 14 ? 600 : size[1] + 16);
          c.sizes.push_back(std::move(size));
        }
        c.tolerance = 1e-4;
        c.configurations = 2;
        check(c);
        if (HasFatalFailure()) return;
      }
}

// Known extents have one of the two ways of folding.
TEST(Reduce, WholeImagesOfKnownSize) {
  for (const char* shape : {"(1, 112, 113, 24)", "(1, 56, 56, 144)", "(1, 7, 7, 1280)",
                            "(2, 1, 500, 20)", "(1, 130, 1, 16)", "(1, 3, 5, 8)"}) {
    SCOPED_TRACE(shape);
    Case c;
    c.text = fmt::format(
        "fn @f(%x: Tensor[{}, f32]) {{ let %s = mean(%x) {{axes = [1, 2], "
        "keepdims = false}}; %s }}",
        shape);
    c.served_by = "reduce";
    c.oracle = by_reference(c.text);
    c.sizes = Sizes{{}};
    c.tolerance = 1e-4;
    c.configurations = 3;
    check(c);
    if (HasFatalFailure()) return;
  }
}

TEST(Reduce, MaskedMeanPooling) {
  check({R"(fn @f(%x: Tensor[(b, n, 40), f32], %m: Tensor[(b, n), f32], %c: Tensor[(b, 1), f32]) {
           let %u = unsqueeze(%m) {axes = [2]};
           let %p = mul(%x, %u);
           let %s = sum(%p) {axes = [1], keepdims = false};
           let %d = div(%s, %c); %d })",
         "reduce",
         [](const Arrays& in, Arrays& out) {
           for (int64_t b = 0; b < in[0].dim(0); ++b)
             for (int64_t j = 0; j < 40; ++j) {
               double s = 0;
               for (int64_t n = 0; n < in[0].dim(1); ++n) s += in[0].at(b, n, j) * in[1].at(b, n);
               out[0].at(b, j) = s / in[2].at(b, 0);
             }
         },
         random_sizes(2, 40, 10), 1e-4, 0.5, 2});
}

// The epilogue of a sum across rows of one column: what follows broadcasts along that column.
TEST(Reduce, AcrossASingleColumn) {
  check({R"(fn @f(%m: Tensor[(b, n, 1), f32]) {
           let %s = sum(%m) {axes = [1], keepdims = false};
           let %c = clip(%s) {min = 1e-9}; %c })",
         "reduce",
         [](const Arrays& in, Arrays& out) {
           for (int64_t b = 0; b < in[0].dim(0); ++b) {
             double s = 0;
             for (int64_t n = 0; n < in[0].dim(1); ++n) s += in[0].at(b, n, 0);
             out[0].at(b, 0) = std::max(s, 1e-9);
           }
         },
         random_sizes(2, 40, 10)});
}

TEST(Scan, RunningSums) {
  for (int axis : {0, 1}) {
    for (const char* options : {"", ", exclusive = true", ", reverse = true"}) {
      SCOPED_TRACE(options);
      check({fmt::format("fn @f(%x: Tensor[(n, m), f32]) {{ let %y = cumsum(%x) {{axis = {}{}}}; "
                         "%y }}",
                         axis, options),
             "scan",
             [&](const Arrays& in, Arrays& out) {
               const bool exclusive = std::string(options).find("exclusive") != std::string::npos;
               const bool reverse = std::string(options).find("reverse") != std::string::npos;
               const int64_t rows = in[0].dim(axis == 1 ? 0 : 1), n = in[0].dim(axis == 1 ? 1 : 0);
               for (int64_t i = 0; i < rows; ++i) {
                 double s = 0;
                 for (int64_t k = 0; k < n; ++k) {
                   const int64_t j = reverse ? n - 1 - k : k;
                   const double x = axis == 1 ? in[0].at(i, j) : in[0].at(j, i);
                   double& y = axis == 1 ? out[0].at(i, j) : out[0].at(j, i);
                   y = exclusive ? s : s + x;
                   s += x;
                 }
               }
             },
             random_sizes(2, 40, 6)});
    }
  }
}

// A region of more threads than rows would leave some of them without any.
TEST(Reduce, TakesNoMoreThreadsThanRows) {
  const TargetInfo target = test_target(512, 32);
  const auto threads = [&](const std::string& type) {
    const Workload w =
        workload_of("fn @f(%x: Tensor[" + type + ", f32]) { let %s = softmax(%x) {axis = 1}; %s }");
    const Template* t = template_for(w, target);
    EXPECT_EQ(t->name(), "reduce");
    return t->lower(w, t->default_config(w, target), target, "k").max_threads;
  };
  EXPECT_EQ(threads("(1, 10000)"), 1);
  EXPECT_EQ(threads("(3, 10000)"), 3);
  EXPECT_EQ(threads("(3, 10)"), 1);  // too little work
  EXPECT_EQ(threads("(n, 10000)"), 0);
  EXPECT_EQ(threads("(1, m)"), 1);
}

}  // namespace
}  // namespace nimble::kernels::testing
