// The template gpu_attention in the emulator: the cases of all machines, and what only tiles of
// keys can go wrong in.
#include "compiler/kernels/test/attention_cases.h"
#include "compiler/kernels/test/gpu_harness.h"
#include "compiler/kernels/test/knob_cases.h"
#include "compiler/kernels/test/tf32.h"

namespace nimble::kernels::testing {
namespace {

void check_attention(Case c, int configurations, size_t most_sizes) {
  c.served_by = "gpu_attention";
  c.configurations = configurations;
  thin_out(c.sizes, most_sizes);
  check_on_gpu(std::move(c));
}

Element of(const Array& a) {
  return [&a](int64_t b, int64_t i, int64_t c) { return a.at(b, i, c); };
}

TEST(GpuAttention, SlicesOfOneMatrixWithAMaskPerKey) {
  check_attention(slices_of_one_matrix_with_a_mask_per_key(false), 6, 14);
}

TEST(GpuAttention, CrossAttentionWithoutMaskAndOddHeads) {
  check_attention(cross_attention_without_mask_and_odd_heads(), 6, 8);
}

TEST(GpuAttention, MaskComputedInPlaceFromIntegers) {
  check_attention(mask_computed_in_place_from_integers(), 3, 4);
}

TEST(GpuAttention, FewRowsOverCachesWherePositionsComeFirst) {
  for (const Case& c : few_rows_over_caches_where_positions_come_first()) check_attention(c, 2, 6);
}

TEST(GpuAttention, WindowsWithABiasByHead) {
  for (const Case& c : windows_with_a_bias_by_head()) check_attention(c, 1, 2);
}

// Of most keys the mask is -inf: tiles without a key that counts stand before and behind others,
// and rows without any are NaN, as by definition.
TEST(GpuAttention, TilesAndRowsWhoseKeysAreAllMasked) {
  Case c{R"(fn @f(%q: Tensor[(b, n, 8), f32], %k: Tensor[(b, m, 8), f32],
               %v: Tensor[(b, m, 8), f32], %x: Tensor[(b, 1, 1, m), f32]) {
           let %r = relu(%x); let %l = log(%r);
           let %y = attention(%q, %k, %v, %l) {heads = 2, scale = 0.5}; %y })",
         "gpu_attention",
         [](const Arrays& in, Arrays& out) {
           attention(out[0], in[1].dim(1), 2, 4, 0.5, of(in[0]), of(in[1]), of(in[2]),
                     [&](int64_t b, int64_t, int64_t, int64_t j) {
                       return std::log(std::max(in[3].at(b, 0, 0, j), 0.0));
                     });
         },
         {}};
  for (int64_t m : {1, 2, 3, 17, 40, 70, 129})
    for (int64_t n : {1, 9}) c.sizes.push_back({2, n, m});
  c.low = -2;
  c.high = 0.15;
  check_attention(std::move(c), 3, 14);
}

TEST(GpuAttention, ABoolMaskByRow) {
  Case c{R"(fn @f(%q: Tensor[(b, n, 6), f32], %k: Tensor[(b, n, 6), f32],
               %v: Tensor[(b, n, 10), f32], %x: Tensor[(n, n), bool]) {
           let %y = attention(%q, %k, %v, %x) {heads = 2, scale = 1.0}; %y })",
         "gpu_attention",
         [](const Arrays& in, Arrays& out) {
           attention(out[0], in[1].dim(1), 2, 3, 1, of(in[0]), of(in[1]), of(in[2]),
                     [&](int64_t, int64_t, int64_t i, int64_t j) {
                       return in[3].at(i, j) != 0 ? 0 : -std::numeric_limits<double>::infinity();
                     });
         },
         {{1, 1}, {2, 5}, {1, 19}, {1, 66}}};
  check_attention(std::move(c), 3, 4);
}

TEST(GpuAttention, NoKeysGiveZeros) {
  Case c{R"(fn @f(%q: Tensor[(b, n, 4), f32], %k: Tensor[(b, m, 4), f32],
               %v: Tensor[(b, m, 4), f32]) {
           let %y = attention(%q, %k, %v) {heads = 1, scale = 1.0}; %y })",
         "gpu_attention",
         [](const Arrays&, Arrays& out) { std::fill(out[0].v.begin(), out[0].v.end(), 0.0); },
         {{1, 3, 0}, {2, 20, 0}}};
  check_attention(std::move(c), 2, 2);
}

TEST(GpuAttention, DoublesAndWideHeads) {
  for (const char* type : {"f64", "f32"})
    for (const int64_t width : {5, 80, 264}) {
      SCOPED_TRACE(fmt::format("{} {}", type, width));
      Case c{fmt::format("fn @f(%q: Tensor[(1, n, {0}), {1}], %k: Tensor[(1, n, {0}), {1}], "
                         "%v: Tensor[(1, n, {0}), {1}]) {{ "
                         "let %y = attention(%q, %k, %v) {{heads = 1, scale = 0.1}}; %y }}",
                         width, type),
             "gpu_attention",
             [width](const Arrays& in, Arrays& out) {
               attention(out[0], in[1].dim(1), 1, width, 0.1, of(in[0]), of(in[1]), of(in[2]),
                         kNoMask);
             },
             {{1}, {19}, {65}}};
      check_attention(std::move(c), 2, 3);
    }
}

// By fragments; weights are rounded to the operands' type, 2^-9 of each.
TEST(GpuAttention, NarrowOperands) {
  for (const char* type : {"bf16", "f16"})
    for (const int64_t width : {5, 16, 64, 72}) {
      SCOPED_TRACE(fmt::format("{} {}", type, width));
      Case c{fmt::format("fn @f(%q: Tensor[(b, n, {0}), {1}], %k: Tensor[(b, m, {0}), {1}], "
                         "%v: Tensor[(b, m, {0}), {1}], %x: Tensor[(b, 1, 1, m), {1}]) {{ "
                         "let %y = attention(%q, %k, %v, %x) {{heads = 2, scale = 0.25}}; "
                         "let %z = add(%y, %q); %z }}",
                         2 * width, type),
             "gpu_attention",
             [width](const Arrays& in, Arrays& out) {
               attention(
                   out[0], in[1].dim(1), 2, width, 0.25, of(in[0]), of(in[1]), of(in[2]),
                   [&](int64_t b, int64_t, int64_t, int64_t j) { return in[3].at(b, 0, 0, j); });
               for (int64_t i = 0; i < out[0].size(); ++i) out[0][i] += in[0][i];
             },
             {{1, 1, 1}, {2, 3, 17}, {1, 33, 19}, {1, 16, 70}}};
      c.tolerance = 1.5e-2;
      check_attention(std::move(c), 2, 4);
    }
}

TEST(GpuAttention, NarrowOperandsWithAMaskByRow) {
  Case c{R"(fn @f(%q: Tensor[(b, n, 32), bf16], %k: Tensor[(b, n, 32), bf16],
               %v: Tensor[(b, n, 32), bf16], %x: Tensor[(n, n), bool]) {
           let %y = attention(%q, %k, %v, %x) {heads = 2, scale = 0.25}; %y })",
         "gpu_attention",
         [](const Arrays& in, Arrays& out) {
           attention(out[0], in[1].dim(1), 2, 16, 0.25, of(in[0]), of(in[1]), of(in[2]),
                     [&](int64_t, int64_t, int64_t i, int64_t j) {
                       return in[3].at(i, j) != 0 ? 0 : -std::numeric_limits<double>::infinity();
                     });
         },
         {{1, 1}, {2, 5}, {1, 66}}};
  c.tolerance = 1.5e-2;
  check_attention(std::move(c), 2, 3);
}

// Factors are rounded to tf32, and the weights, too: 2^-11 of each.
TEST(GpuAttention, OperandsThatMayBeRounded) {
  const auto rounded = [](const Array& a) {
    return [&a](int64_t b, int64_t i, int64_t c) { return tf32_of(a.at(b, i, c)); };
  };
  for (const int64_t width : {5, 8, 16, 64, 72}) {
    SCOPED_TRACE(width);
    Case c{
        fmt::format("fn @f(%q: Tensor[(b, n, {0}), f32], %k: Tensor[(b, m, {0}), f32], "
                    "%v: Tensor[(b, m, {0}), f32], %x: Tensor[(b, 1, 1, m), f32]) {{ "
                    "let %y = attention(%q, %k, %v, %x) {{heads = 2, scale = 0.25, tf32 = true}}; "
                    "let %z = add(%y, %q); %z }}",
                    2 * width),
        "gpu_attention",
        [&](const Arrays& in, Arrays& out) {
          attention(out[0], in[1].dim(1), 2, width, 0.25, rounded(in[0]), rounded(in[1]),
                    rounded(in[2]),
                    [&](int64_t b, int64_t, int64_t, int64_t j) { return in[3].at(b, 0, 0, j); });
          for (int64_t i = 0; i < out[0].size(); ++i) out[0][i] += in[0][i];
        },
        {{1, 1, 1}, {2, 3, 17}, {1, 33, 19}, {1, 16, 70}, {1, 53, 53}}};
    c.tolerance = 1e-3;
    check_attention(std::move(c), 3, 5);
  }
}

TEST(GpuAttention, OperandsThatMayBeRoundedWithAMaskByRow) {
  const auto rounded = [](const Array& a) {
    return [&a](int64_t b, int64_t i, int64_t c) { return tf32_of(a.at(b, i, c)); };
  };
  Case c{R"(fn @f(%q: Tensor[(b, n, 32), f32], %k: Tensor[(b, n, 32), f32],
               %v: Tensor[(b, n, 24), f32], %x: Tensor[(n, n), bool]) {
           let %y = attention(%q, %k, %v, %x) {heads = 2, scale = 0.25, tf32 = true}; %y })",
         "gpu_attention",
         [&](const Arrays& in, Arrays& out) {
           attention(out[0], in[1].dim(1), 2, 16, 0.25, rounded(in[0]), rounded(in[1]),
                     rounded(in[2]), [&](int64_t, int64_t, int64_t i, int64_t j) {
                       return in[3].at(i, j) != 0 ? 0 : -std::numeric_limits<double>::infinity();
                     });
         },
         {{1, 1}, {2, 5}, {1, 66}}};
  c.tolerance = 1e-3;
  check_attention(std::move(c), 3, 3);
}

// No block of warps has the registers for such a head, and nothing need be rounded.
TEST(GpuAttention, HeadsThatMayBeRoundedAndAreTooWideForThat) {
  constexpr int64_t kWidth = 320;
  Case c{fmt::format("fn @f(%q: Tensor[(1, n, {0}), f32], %k: Tensor[(1, n, {0}), f32], "
                     "%v: Tensor[(1, n, {0}), f32]) {{ "
                     "let %y = attention(%q, %k, %v) {{heads = 1, scale = 0.1, tf32 = true}}; "
                     "%y }}",
                     kWidth),
         "gpu_attention",
         [](const Arrays& in, Arrays& out) {
           attention(out[0], in[1].dim(1), 1, kWidth, 0.1, of(in[0]), of(in[1]), of(in[2]),
                     kNoMask);
         },
         {{1}, {19}}};
  check_attention(std::move(c), 2, 2);
}

// There a mask by row leaves too few registers for the scores of 64 keys; any block may be asked
// for.
TEST(GpuAttention, TheDefaultOfNewerGpusTakesFewerKeysBesideAMaskByRow) {
  const auto workload = [](const char* type, const char* mask) {
    return workload_of(
        fmt::format("fn @f(%q: Tensor[(b, n, 768), {0}], %k: Tensor[(b, n, 768), {0}], "
                    "%v: Tensor[(b, n, 768), {0}], %m: Tensor[({1}), {0}]) {{ "
                    "let %y = attention(%q, %k, %v, %m) {{heads = 12, scale = 0.125}}; %y }}",
                    type, mask));
  };
  const Template& t = *find_template("gpu_attention");
  const auto keys = [&](const Workload& w, const char* level) {
    return std::get<int64_t>(t.default_config(w, target_by_name(level)).at("keys"));
  };
  for (const char* type : {"f16", "bf16"}) {
    const Workload by_row = workload(type, "1, 1, n, n"), by_key = workload(type, "b, 1, 1, n");
    EXPECT_EQ(keys(by_row, "sm_100"), 32) << type;
    EXPECT_EQ(keys(by_key, "sm_100"), 64) << type;
    EXPECT_EQ(keys(by_row, "sm_80"), 64) << type;
    EXPECT_EQ(keys(by_row, "sm_90a"), 64) << type;
    EXPECT_EQ(keys(by_row, "compute_80"), 64) << type;
    Config c = t.default_config(by_row, target_by_name("sm_100"));
    c["keys"] = int64_t{64};
    EXPECT_TRUE(t.valid(by_row, c, target_by_name("sm_100")));
  }
}

TEST(GpuAttention, ShapesThatABlockCannotHaveAreNotValid) {
  expect_refuses_on_gpu("gpu_attention",
                        workload_of(cross_attention_without_mask_and_odd_heads().text),
                        {{"rows", 0}, {"rows", 7}, {"keys", 17}, {"keys", 4096}, {"threads", 48}});
}

}  // namespace
}  // namespace nimble::kernels::testing
