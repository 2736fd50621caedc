// Cases of attention for the templates of all machines (template_harness.h).
#pragma once

#include <limits>
#include <utility>
#include <vector>

#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {

// Element (b, row, column) of q, k, v and of the mask.
using Element = std::function<double(int64_t, int64_t, int64_t)>;
using MaskElement = std::function<double(int64_t, int64_t, int64_t, int64_t)>;

inline void attention(Array& out, int64_t m, int64_t heads, int64_t d, double scale,
                      const Element& q, const Element& k, const Element& v,
                      const MaskElement& mask) {
  const int64_t dv = out.dim(2) / heads;
  std::vector<double> s(static_cast<size_t>(m));
  for (int64_t b = 0; b < out.dim(0); ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < out.dim(1); ++i) {
        double top = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t j = 0; j < m; ++j) {
          double x = 0;
          for (int64_t c = 0; c < d; ++c) x += q(b, i, h * d + c) * k(b, j, h * d + c);
          s[j] = x * scale + mask(b, h, i, j);
          top = std::max(top, s[j]);
        }
        for (double& x : s) sum += x = std::exp(x - top);
        for (int64_t c = 0; c < dv; ++c) {
          double o = 0;
          for (int64_t j = 0; j < m; ++j) o += s[j] * v(b, j, h * dv + c);
          out.at(b, i, h * dv + c) = o / sum;
        }
      }
}

// Random lengths of queries and keys. Keys are never absent: an empty softmax has no value.
inline Sizes cross_sizes() {
  Sizes sizes = random_sizes(3, 130, 16);
  for (auto& s : sizes) {
    s[0] = s[0] % 3;
    s[2] = std::max<int64_t>(s[2], 1);
  }
  return sizes;
}

inline const MaskElement kNoMask = [](int64_t, int64_t, int64_t, int64_t) { return 0.0; };

// `machine_code` meets every length; an interpreter those around tiles, and a spread.
inline Case slices_of_one_matrix_with_a_mask_per_key(bool machine_code) {
  Sizes sizes = {{0, 5}, {2, 0}, {3, 7}, {2, 33}};
  for (int64_t n = 1; n <= 130; ++n)
    if (machine_code || n < 35 || n % 16 <= 1 || n % 16 == 15) sizes.push_back({1, n});
  Case c{R"(fn @f(%x: Tensor[(b, n, 96), f32], %m: Tensor[(b, 1, 1, n), f32]) {
           let %q = slice(%x) {axes = [2], starts = (0), ends = (32)};
           let %k = slice(%x) {axes = [2], starts = (32), ends = (64)};
           let %v = slice(%x) {axes = [2], starts = (64), ends = (96)};
           let %y = attention(%q, %k, %v, %m) {heads = 2, scale = 0.25}; %y })",
         "attention",
         [](const Arrays& in, Arrays& out) {
           const auto part = [&](int64_t shift) {
             return [&in, shift](int64_t b, int64_t i, int64_t c) {
               return in[0].at(b, i, c + shift);
             };
           };
           attention(out[0], in[0].dim(1), 2, 16, 0.25, part(0), part(32), part(64),
                     [&](int64_t b, int64_t, int64_t, int64_t j) { return in[1].at(b, 0, 0, j); });
         },
         sizes};
  c.configurations = 24;
  return c;
}

inline Case cross_attention_without_mask_and_odd_heads() {
  const auto reads = [](const Array& a) {
    return [&a](int64_t b, int64_t i, int64_t c) { return a.at(b, i, c); };
  };
  return {R"(fn @f(%q: Tensor[(b, n, 15), f32], %k: Tensor[(b, m, 15), f32],
               %v: Tensor[(b, m, 60), f32], %r: Tensor[(b, n, 60), f32]) {
           let %y = attention(%q, %k, %v) {heads = 3, scale = 0.5};
           let %z = add(%y, %r); %z })",
          "attention",
          [reads](const Arrays& in, Arrays& out) {
            attention(out[0], in[1].dim(1), 3, 5, 0.5, reads(in[0]), reads(in[1]), reads(in[2]),
                      kNoMask);
            for (int64_t i = 0; i < out[0].size(); ++i) out[0][i] += in[3][i];
          },
          cross_sizes()};
}

inline Case mask_computed_in_place_from_integers() {
  const auto reads = [](const Array& a) {
    return [&a](int64_t b, int64_t i, int64_t c) { return a.at(b, i, c); };
  };
  Case c{R"(fn @f(%q: Tensor[(b, n, 32), f32], %k: Tensor[(b, n, 32), f32],
               %v: Tensor[(b, n, 32), f32], %m: Tensor[(b, n), i64]) {
           let %u = unsqueeze(%m) {axes = [1, 2]}; let %c = cast(%u) {dtype = f32};
           let %d = mul(%c, -4f32);
           let %y = attention(%q, %k, %v, %d) {heads = 1, scale = -0.125}; %y })",
         "attention",
         [reads](const Arrays& in, Arrays& out) {
           attention(out[0], in[1].dim(1), 1, 32, -0.125, reads(in[0]), reads(in[1]), reads(in[2]),
                     [&](int64_t b, int64_t, int64_t, int64_t j) { return -4 * in[3].at(b, j); });
         },
         {{1, 1}, {2, 9}, {1, 40}, {3, 17}}};
  return c;
}

// The step of a decoding loop: few query rows, keys and values in caches that lie positions first.
inline std::vector<Case> few_rows_over_caches_where_positions_come_first() {
  std::vector<Case> all;
  Sizes sizes = {{0, 3}};
  for (int64_t m : {1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 64, 97, 130})
    sizes.push_back({1 + m % 2, m});
  for (const auto& rows_and_width :
       {std::pair<int64_t, int64_t>{1, 16}, {1, 7}, {1, 64}, {2, 40}, {3, 5}}) {
    const int64_t n = rows_and_width.first, width = 3 * rows_and_width.second;
    Case c{fmt::format("fn @f(%x: Tensor[(b, {0}, {1}), f32], %k: Tensor[(m, b, {2}), f32], "
                       "%v: Tensor[(m, b, {2}), f32]) {{ "
                       "let %q = slice(%x) {{axes = [2], starts = ({2}), ends = ({3})}}; "
                       "let %ks = transpose(%k) {{axes = [1, 0, 2]}}; "
                       "let %vs = transpose(%v) {{axes = [1, 0, 2]}}; "
                       "let %y = attention(%q, %ks, %vs) {{heads = 3, scale = 0.5}}; %y }}",
                       n, 3 * width, width, 2 * width),
           "attention",
           [width](const Arrays& in, Arrays& out) {
             const auto cache = [&in](size_t operand) {
               return [&in, operand](int64_t b, int64_t i, int64_t c) {
                 return in[operand].at(i, b, c);
               };
             };
             attention(
                 out[0], in[1].dim(0), 3, width / 3, 0.5,
                 [&](int64_t b, int64_t i, int64_t c) { return in[0].at(b, i, c + width); },
                 cache(1), cache(2), kNoMask);
           },
           sizes};
    c.configurations = 12;
    all.push_back(std::move(c));
  }
  return all;
}

// Few positions, as many as are known: a row of scores stays in registers up to 128 of them. What
// the mask takes away has weights down to subnormal numbers.
inline std::vector<Case> windows_with_a_bias_by_head() {
  std::vector<Case> all;
  for (const auto& rows_and_width : {std::pair<int64_t, int64_t>{1, 16},
                                     {16, 4},
                                     {17, 21},
                                     {33, 8},
                                     {49, 32},
                                     {64, 16},
                                     {128, 3},
                                     {129, 16}}) {
    const int64_t n = rows_and_width.first, d = rows_and_width.second, width = 2 * d;
    for (const bool by_window : {false, true}) {
      Case c{fmt::format("fn @f(%x: Tensor[(b, {0}, {1}), f32], %m: Tensor[({4}, 2, {0}, {0}), "
                         "f32]) {{ let %q = slice(%x) {{axes = [2], starts = (0), ends = ({2})}}; "
                         "let %k = slice(%x) {{axes = [2], starts = ({2}), ends = ({3})}}; "
                         "let %v = slice(%x) {{axes = [2], starts = ({3}), ends = ({1})}}; "
                         "let %s = mul(%m, 50f32); "
                         "let %y = attention(%q, %k, %v, %s) {{heads = 2, scale = 0.5}}; %y }}",
                         n, 3 * width, width, 2 * width, by_window ? "b" : "1"),
             "attention",
             [=](const Arrays& in, Arrays& out) {
               const auto part = [&in](int64_t shift) {
                 return [&in, shift](int64_t b, int64_t i, int64_t c) {
                   return in[0].at(b, i, c + shift);
                 };
               };
               attention(out[0], n, 2, d, 0.5, part(0), part(width), part(2 * width),
                         [&](int64_t b, int64_t h, int64_t i, int64_t j) {
                           return 50 * in[1].at(by_window ? b : 0, h, i, j);
                         });
             },
             {{0}, {1}, {3}}};
      c.configurations = 8;
      c.tolerance = 1e-4;  // scores of a hundred
      all.push_back(std::move(c));
    }
  }
  return all;
}

}  // namespace nimble::kernels::testing
