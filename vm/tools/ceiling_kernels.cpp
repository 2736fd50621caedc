// Written so that the compiler has nothing to decide but registers: vectors of the width that a
// level of machines has (GCC's and Clang's vector types, no intrinsics), enough chains to cover the
// latency of a multiply-add, and each loop compiled once per level by a target attribute. Whoever
// calls them has asked the CPU first. The dot products of bytes and bf16 have no form in the
// language that compilers turn into the instruction reliably, so these two are asked for by name,
// and so are the products of AMX's tile registers.
#include "vm/tools/ceiling_kernels.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nimble {
namespace {

// Twelve chains and two operands fit the sixteen registers of a machine without AVX-512, and cover
// two units of four or five cycles.
constexpr int kChains = 12;

template <typename Element, int kBytes>
struct VectorOf {
  typedef Element Type __attribute__((vector_size(kBytes)));
};

template <typename Element, int kBytes>
[[gnu::always_inline]] inline void multiply_add(int64_t steps) {
  using Vector = typename VectorOf<Element, kBytes>::Type;
  // They stay near 1: nothing overflows and nothing becomes denormal, which would be slow.
  Element by = Element(0.999), plus = Element(0.001);
  asm volatile("" : "+m"(by), "+m"(plus));
  Vector x = Vector{} + by, y = Vector{} + plus;
  Vector chain[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) chain[c] = x + Element(c);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chain[c] = chain[c] * x + y;
  }
  Vector sum = chain[0];
#pragma GCC unroll 12
  for (int c = 1; c < kChains; ++c) sum += chain[c];
  asm volatile("" : : "m"(sum));
}

template <int kBytes>
[[gnu::always_inline]] inline void read_all(const void* data, int64_t bytes) {
  using Vector = typename VectorOf<uint64_t, kBytes>::Type;
  const auto* from = static_cast<const Vector*>(data);
  const int64_t count = bytes / kBytes;
  Vector sum[8] = {};
  for (int64_t i = 0; i < count; i += 8) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) sum[k] ^= from[i + k];
  }
  for (int k = 1; k < 8; ++k) sum[0] ^= sum[k];
  asm volatile("" : : "m"(sum[0]) : "memory");
}

template <int kBytes>
[[gnu::always_inline]] inline void triad_all(double* a, const double* b, const double* c,
                                             int64_t count) {
  using Vector = typename VectorOf<double, kBytes>::Type;
  constexpr int64_t kLanes = kBytes / 8;
  for (int64_t i = 0; i < count; i += kLanes)
    *reinterpret_cast<Vector*>(a + i) =
        *reinterpret_cast<const Vector*>(b + i) + 3.0 * *reinterpret_cast<const Vector*>(c + i);
  asm volatile("" : : : "memory");
}

#define NIMBLE_LOOPS(name, attribute, bytes)                                                \
  attribute void f32_##name(int64_t steps) {                                                \
    multiply_add<float, bytes>(steps);                                                      \
  }                                                                                         \
  attribute void f64_##name(int64_t steps) {                                                \
    multiply_add<double, bytes>(steps);                                                     \
  }                                                                                         \
  attribute void read_##name(const void* data, int64_t size) {                              \
    read_all<bytes>(data, size);                                                            \
  }                                                                                         \
  attribute void triad_##name(double* a, const double* b, const double* c, int64_t count) { \
    triad_all<bytes>(a, b, c, count);                                                       \
  }

NIMBLE_LOOPS(baseline, , 16)

#if defined(__x86_64__)
NIMBLE_LOOPS(avx2, __attribute__((target("avx2,fma"))), 32)
NIMBLE_LOOPS(avx512, __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq"))), 64)

#define NIMBLE_DOT_LOOP(name, features, Vector, Sum, zero, dot)                        \
  __attribute__((target(features))) void name(int64_t steps) {                         \
    uint8_t left[64], right[64];                                                       \
    std::memset(left, 1, sizeof left);                                                 \
    std::memset(right, 1, sizeof right);                                               \
    asm volatile("" : "+m"(left), "+m"(right));                                        \
    Vector x, y;                                                                       \
    std::memcpy(&x, left, sizeof x);                                                   \
    std::memcpy(&y, right, sizeof y);                                                  \
    Sum chain[kChains];                                                                \
    /* All begin alike, which the compiler must not see: it would keep one of them. */ \
    _Pragma("GCC unroll 12") for (int c = 0; c < kChains; ++c) {                       \
      chain[c] = zero;                                                                 \
      asm volatile("" : "+x"(chain[c]));                                               \
    }                                                                                  \
    for (int64_t i = 0; i < steps; ++i) {                                              \
      _Pragma("GCC unroll 12") for (int c = 0; c < kChains; ++c) {                     \
        /* As if it were new: nothing of the product is computed once for all. */      \
        asm volatile("" : "+x"(y));                                                    \
        chain[c] = dot(chain[c], x, y);                                                \
      }                                                                                \
    }                                                                                  \
    Sum sum = chain[0];                                                                \
    _Pragma("GCC unroll 12") for (int c = 1; c < kChains; ++c) sum = sum + chain[c];   \
    asm volatile("" : : "m"(sum));                                                     \
  }

NIMBLE_DOT_LOOP(i8_avx512_vnni, "avx512f,avx512vnni", __m512i, __m512i, _mm512_setzero_si512(),
                _mm512_dpbusd_epi32)
NIMBLE_DOT_LOOP(i8_avx_vnni, "avx2,avxvnni", __m256i, __m256i, _mm256_setzero_si256(),
                _mm256_dpbusd_avx_epi32)
NIMBLE_DOT_LOOP(bf16_avx512, "avx512f,avx512bf16", __m512bh, __m512, _mm512_setzero_ps(),
                _mm512_dpbf16_ps)

// Without the instruction: pairs of products in 16 bits, pairs of those in 32, then the sum.
#define NIMBLE_DOT_OF_PAIRS(sum, x, y) \
  _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), _mm256_set1_epi16(1)))
NIMBLE_DOT_LOOP(i8_avx2, "avx2", __m256i, __m256i, _mm256_setzero_si256(), NIMBLE_DOT_OF_PAIRS)

// Of all eight tile registers: 16 rows of 64 bytes. Six hold sums, which cover the latency.
struct TileShapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr int kTileSums = 6;

#define NIMBLE_TILE_LOOP(name, features, dot)                       \
  __attribute__((target(features))) void name(int64_t steps) {      \
    TileShapes shapes;                                              \
    /* GCC 12 knows of the first bytes alone that they are read. */ \
    asm volatile("" : "+m"(shapes));                                \
    _tile_loadconfig(&shapes);                                      \
    _tile_zero(0);                                                  \
    _tile_zero(1);                                                  \
    _tile_zero(2);                                                  \
    _tile_zero(3);                                                  \
    _tile_zero(4);                                                  \
    _tile_zero(5);                                                  \
    _tile_zero(6);                                                  \
    _tile_zero(7);                                                  \
    for (int64_t i = 0; i < steps; ++i) {                           \
      dot(0, 6, 7);                                                 \
      dot(1, 6, 7);                                                 \
      dot(2, 6, 7);                                                 \
      dot(3, 6, 7);                                                 \
      dot(4, 6, 7);                                                 \
      dot(5, 6, 7);                                                 \
    }                                                               \
    _tile_release();                                                \
  }

NIMBLE_TILE_LOOP(i8_amx, "amx-tile,amx-int8", _tile_dpbusd)
NIMBLE_TILE_LOOP(bf16_amx, "amx-tile,amx-bf16", _tile_dpbf16ps)
#endif

double per_step(double operations_per_vector) {
  return kChains * operations_per_vector;
}

}  // namespace

std::vector<ComputeLoop> compute_loops(const CpuInfo& cpu) {
#if defined(__x86_64__)
  std::vector<ComputeLoop> loops;
  const bool v4 = cpu.has("x86-64-v4"), v3 = cpu.has("x86-64-v3");
  if (v4) {
    loops = {{"f32", "avx512", per_step(32), f32_avx512},
             {"f64", "avx512", per_step(16), f64_avx512}};
  } else if (v3) {
    loops = {{"f32", "avx2, fma", per_step(16), f32_avx2},
             {"f64", "avx2, fma", per_step(8), f64_avx2}};
  } else {
    loops = {{"f32", "sse2", per_step(8), f32_baseline},
             {"f64", "sse2", per_step(4), f64_baseline}};
  }
  const bool tiles = cpu.has("x86-64-v4-amx");
  constexpr double kTileProducts = kTileSums * 16 * 16;
  if (tiles)
    loops.push_back({"i8", "amx_int8", kTileProducts * 128, i8_amx});
  else if (v4 && cpu.has("avx512_vnni"))
    loops.push_back({"i8", "avx512_vnni", per_step(128), i8_avx512_vnni});
  else if (v3 && cpu.has("avx_vnni"))
    loops.push_back({"i8", "avx_vnni", per_step(64), i8_avx_vnni});
  else if (v3)
    loops.push_back({"i8", "avx2", per_step(64), i8_avx2});
  if (tiles)
    loops.push_back({"bf16", "amx_bf16", kTileProducts * 64, bf16_amx});
  else if (v4 && cpu.has("avx512_bf16"))
    loops.push_back({"bf16", "avx512_bf16", per_step(64), bf16_avx512});
  return loops;
#else
  (void)cpu;
  return {{"f32", "baseline", per_step(8), f32_baseline},
          {"f64", "baseline", per_step(4), f64_baseline}};
#endif
}

MemoryLoop memory_loop(const CpuInfo& cpu) {
#if defined(__x86_64__)
  if (cpu.has("x86-64-v4")) return {"avx512", read_avx512, triad_avx512};
  if (cpu.has("x86-64-v3")) return {"avx2", read_avx2, triad_avx2};
#else
  (void)cpu;
#endif
  return {"baseline", read_baseline, triad_baseline};
}

void dependent_additions(int64_t count) {
  // What is added stands in a register: newer processors add several constants in one cycle.
  int64_t value = count, by = 1;
  for (int64_t i = 0; i < count; i += 16) {
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
      value += by;
      asm volatile("" : "+r"(value), "+r"(by));  // each on its own
    }
  }
}

}  // namespace nimble
