// Matrix registers: each fragment against its definition, written here once more, its expansion
// against the fragment, and the rules of regions.
#include "compiler/kernels/tiles.h"

#include <gmock/gmock.h>

#include <functional>

#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/test/tile_cases.h"
#include "vm/base/error.h"
#include "vm/base/half.h"

namespace nimble::kir {
namespace {

using namespace build;  // NOLINT
using testing::bytes_of;
using testing::element_at;
using testing::flushed;
using ::testing::HasSubstr;
using testing::KernelBuilder;
using testing::same_sum;
using testing::sum_of;
using testing::tile_bound;
using testing::tile_kernel;
using testing::TileCase;
using testing::TileKernel;

// Widths, groups and rows that fill a register, and others.
const TileKernel kShapes[] = {{},          {1, 1, 1},  {5, 16, 16},   {16, 3, 16},
                              {16, 16, 5}, {7, 5, 11}, {.zero = true}};

void run(const Function& f, TileCase& c, bool fused = true) {
  ASSERT_EQ(verify(f), "");
  ASSERT_EQ(Interpreter(f, {.fused = fused}).run(c.arguments(), c.symbols()), 0);
}

// Of floats, factors as `number` reads them.
template <class Number>
float sums_apart(const TileCase& c, size_t i, const Number& number) {
  float all = c.shape.zero ? 0 : element_at<float>(c.sum, i);
  const int64_t taken = int64_t{c.shape.groups} * 2;
  for (int64_t step = 0; step < c.depth; ++step) {
    double even_odd[2] = {0, 0};
    for (int64_t p = step * taken; p < (step + 1) * taken; ++p) {
      double& t = even_odd[p % 2];
      t = flushed(sum_of(number(element_at<uint16_t>(c.a, c.of_a(i, p))),
                         number(element_at<uint16_t>(c.b, c.of_b(i, p))), t));
    }
    const double products = flushed(sum_of(1, even_odd[0], even_odd[1]));
    all = static_cast<float>(flushed(sum_of(1, flushed(all), products)));
  }
  return all;
}

float bf16_tiles(const TileCase& c, size_t i) {
  return sums_apart(c, i, [](uint16_t bits) { return flushed(f32_from_bf16(bits)); });
}

float f16_tiles(const TileCase& c, size_t i) {
  return sums_apart(c, i, f32_from_f16);
}

int32_t u8s8_tiles(const TileCase& c, size_t i) {
  uint32_t all = c.shape.zero ? 0 : element_at<uint32_t>(c.sum, i);
  for (int64_t p = 0; p < c.products(); ++p)
    all += static_cast<uint32_t>(element_at<uint8_t>(c.a, c.of_a(i, p)) *
                                 element_at<int8_t>(c.b, c.of_b(i, p)));
  return static_cast<int32_t>(all);
}

template <class Expected>
void expect_the_row(TileFragment fragment, const Expected& expected) {
  std::mt19937_64 random(1);
  for (const TileKernel& shape : kShapes) {
    const Function f = tile_kernel(fragment, shape);
    for (const bool tame : {true, false})
      for (const int64_t m : {0, 1, 15, 16, 37})
        for (const int64_t depth : {0, 1, 3}) {
          TileCase c(fragment, shape, m, depth, tame, random);
          run(f, c);
          TileCase want = c;
          for (size_t i = 0; i < c.sums(); ++i) {
            const auto e = expected(c, i);
            std::memcpy(&want.y[i * sizeof e], &e, sizeof e);
            ASSERT_TRUE(same_sum(c.row.sum, c.y, want.y, i))
                << c.row.name << " of " << m << " rows, sum " << i << ": " << std::hex
                << element_at<uint32_t>(c.y, i) << " instead of "
                << element_at<uint32_t>(want.y, i);
          }
        }
  }
}

TEST(TileFragments, OfBf16FollowTheirRow) {
  expect_the_row(TileFragment::kBf16Tiles, bf16_tiles);
}
TEST(TileFragments, OfHalvesFollowTheirRow) {
  expect_the_row(TileFragment::kF16Tiles, f16_tiles);
}
TEST(TileFragments, OfBytesFollowTheirRow) {
  expect_the_row(TileFragment::kU8S8Tiles, u8s8_tiles);
}

// What the row fixes where formulas agree: which sums are made first, and zeros' signs.
TEST(TileFragments, OfBf16SumEvenAndOddElementsApart) {
  const Function f = tile_kernel(TileFragment::kBf16Tiles, {1, 2, 1});
  const auto dot_of = [&](const std::vector<float>& row, float sum) {
    std::vector<uint16_t> a, b(8, bf16_from_f32(1));
    for (const float x : row) a.push_back(bf16_from_f32(x));
    std::vector<float> sums = {sum, 0}, y(2);
    EXPECT_EQ(
        Interpreter(f).run({{bytes_of(a), bytes_of(b), bytes_of(sums), bytes_of(y)}}, {{1, 1}}), 0);
    return y[0];
  };
  EXPECT_EQ(dot_of({0x1p24F, 1, -0x1p24F, 1}, 1), 3)
      << "even ones cancel, odd ones do not meet them";
  EXPECT_EQ(dot_of({0x1p25F, -0x1p25F, 1, 1}, 0), 0) << "each swallows its 1";
  EXPECT_EQ(dot_of({1, 0, 0, 0}, -0x1p24F), -0x1p24F + 1);
  EXPECT_EQ(dot_of({0x1p-127F, 0, 0, 0}, 0x1p-127F), 0) << "subnormal numbers are zero";
  EXPECT_FALSE(std::signbit(dot_of({-0.F, -0.F, -0.F, -0.F}, -0.F))) << "sums begin at +0";
}

// Subnormal factors are what they are, a subnormal sum is zero.
TEST(TileFragments, OfHalvesFlushSumsAlone) {
  const Function f = tile_kernel(TileFragment::kF16Tiles, {1, 2, 1});
  const auto dot_of = [&](const std::vector<float>& row, float weight, float sum) {
    std::vector<uint16_t> a, b(8, f16_from_f32(weight));
    for (const float x : row) a.push_back(f16_from_f32(x));
    std::vector<float> sums = {sum, 0}, y(2);
    EXPECT_EQ(
        Interpreter(f).run({{bytes_of(a), bytes_of(b), bytes_of(sums), bytes_of(y)}}, {{1, 1}}), 0);
    return y[0];
  };
  EXPECT_EQ(dot_of({0x1p12F, 0x1p-12F, -0x1p12F, 0x1p-12F}, 0x1p12F, 1), 3)
      << "even ones cancel, odd ones do not meet them";
  EXPECT_EQ(dot_of({0x1p12F, -0x1p12F, 0x1p-13F, 0x1p-13F}, 0x1p13F, 0), 0)
      << "each swallows its 1";
  EXPECT_EQ(dot_of({0x1p-24F, 0, 0, 0x1p-24F}, 0x1p-24F, 0), 0x1p-47F);
  EXPECT_EQ(dot_of({0, 0, 0, 0}, 1, 0x1p-127F), 0);
  EXPECT_EQ(dot_of({0, 0, 0, 0}, 1, 0x1p-126F), 0x1p-126F);
}

TEST(TileFragments, ExpandWithinTheirBound) {
  std::mt19937_64 random(2);
  for (const TileFragmentRow& row : all_tile_fragments())
    for (const TileKernel& shape : kShapes) {
      const Function f = tile_kernel(row.id, shape), expanded = expand_tiles(f);
      const auto symbols = [](const Function& g) {
        return scratch_bytes(g).to_program({"m", "depth", "threads"}).evaluate1({{37, 3, 2}});
      };
      EXPECT_EQ(symbols(expanded), symbols(f)) << "a call needs as much on every machine";
      for (const bool fused : {true, false})
        for (const bool tame : {true, false}) {
          TileCase c(row.id, shape, 37, 3, tame, random), other = c;
          run(f, c);
          run(expanded, other, fused);
          size_t checked = 0;
          for (size_t i = 0; i < c.sums(); ++i) {
            const double bound = tile_bound(c, i);
            if (bound < 0) continue;
            ++checked;
            if (bound == 0)
              ASSERT_TRUE(same_sum(row.sum, c.y, other.y, i)) << row.name;
            else
              ASSERT_NEAR(element_at<float>(c.y, i), element_at<float>(other.y, i), bound);
          }
          if (tame) {
            EXPECT_EQ(checked, c.sums());
          }
        }
    }
}

TEST(TileFragments, ExpansionsOfThreadsKeepApart) {
  std::mt19937_64 random(3);
  TileCase c(TileFragment::kU8S8Tiles, {}, 100, 2, true, random), want = c;
  const Function f = tile_kernel(TileFragment::kU8S8Tiles);
  run(f, want);
  ASSERT_EQ(Interpreter(expand_tiles(f)).run(c.arguments(), c.symbols(), 3), 0);
  EXPECT_EQ(c.y, want.y);
}

TEST(TileFragments, AreHadByTheirLevel) {
  const auto has = [](const char* level, const Function& f) {
    return has_tiles(kernels::target_by_name(level), f);
  };
  for (const TileFragmentRow& row : all_tile_fragments()) {
    EXPECT_TRUE(has("x86-64-v4-amx-fp16", tile_kernel(row.id)));
    EXPECT_EQ(has("x86-64-v4-amx", tile_kernel(row.id)), row.id != TileFragment::kF16Tiles);
    for (const char* level : {"x86-64-v4-bf16", "aarch64", "portable"})
      EXPECT_FALSE(has(level, tile_kernel(row.id))) << level;
  }
  EXPECT_TRUE(has("portable", expand_tiles(tile_kernel(TileFragment::kBf16Tiles))));
}

TEST(Tiles, ArePrinted) {
  EXPECT_EQ(
      print(tile_kernel(TileFragment::kBf16Tiles)),
      R"(kernel tiles(a: bf16[32*depth*m], b: bf16[1024*depth], sum: f32[32*m], out y: f32[32*m]) symbols(m, depth) {
  buffer sums: f32x16x16[2] tile
  buffer lhs: bf16x16x32[1] tile
  buffer rhs: bf16x16x32[2] tile
  thread i from 0 count floordiv(m + 15, 16) {
    tiles sums of min(16, -16*i + m) rows, lhs of min(16, -16*i + m) rows, rhs of 16 rows {
      unroll j from 0 count 2 {
        sums[j] = load.tile sum[512*i + 16*j : 32]
      }
      serial step from 0 count depth {
        lhs[0] = load.tile a[512*depth*i + 32*step : 32*depth]
        unroll j from 0 count 2 {
          rhs[j] = load.tile b[32*j + 1024*step : 64]
          sums[j] = dot.bf16_tiles(lhs[0], rhs[j], sums[j])
        }
      }
      unroll j from 0 count 2 {
        store.tile y[512*i + 16*j : 32] = sums[j]
      }
    }
  }
}
)");
}

// --- Rules
// -----------------------------------------------------------------------------------------

class VerifyTiles : public ::testing::Test {
 protected:
  KernelBuilder k_{"k"};
  BufferRef x_ = k_.in("x", DType::kBF16, 4096), w_ = k_.in("w", DType::kBF16, 4096);
  BufferRef y_ = k_.out("y", DType::kF32, 4096);
  Dim m_ = k_.symbol("m", {1, 16, 1});
  BufferRef sum_ = k_.tiles("sum", DType::kF32, 16, 16, 2);
  BufferRef a_ = k_.tiles("a", DType::kBF16, 16, 32, 1);
  BufferRef b_ = k_.tiles("b", DType::kBF16, 16, 32, 1);

  std::vector<TileShape> shapes() const { return {{sum_, m_}, {a_, m_}, {b_, 16}}; }
  StmtRef set() const {
    return seq({tile_zero(sum_, 0), tile_load(a_, 0, x_, 0, 32), tile_load(b_, 0, w_, 0, 32)});
  }
  StmtRef dot() const { return tile_dot(TileFragment::kBf16Tiles, sum_, 0, a_, 0, b_, 0); }
  StmtRef out() const { return tile_store(y_, 0, 16, sum_, 0); }
  std::string fault(std::vector<StmtRef> body) { return verify(k_.body(std::move(body))); }
  // Of statements in a region of all buffers.
  std::string inside(std::vector<StmtRef> body) {
    return fault({with_tiles(shapes(), seq(std::move(body)))});
  }
  // Of a product of other registers.
  std::string product(BufferRef sum, BufferRef a, BufferRef b, std::vector<TileShape> shapes) {
    const auto zero = [](const BufferRef& t) { return tile_zero(t, 0); };
    return fault({with_tiles(std::move(shapes),
                             seq({zero(sum), zero(a), zero(b),
                                  tile_dot(TileFragment::kBf16Tiles, sum, 0, a, 0, b, 0)}))});
  }
};

TEST_F(VerifyTiles, AcceptsAProduct) {
  EXPECT_EQ(inside({set(), dot(), out()}), "");
  EXPECT_EQ(inside({set(), loop(LoopKind::kSerial, "i", 0, 4, dot()), out()}), "");
}
TEST_F(VerifyTiles, RejectsRegistersOutsideARegion) {
  EXPECT_THAT(fault({tile_zero(sum_, 0)}), HasSubstr("sum is used where no region shapes it"));
  EXPECT_THAT(fault({with_tiles({{a_, m_}}, seq({tile_zero(a_, 0), out()}))}),
              HasSubstr("sum is used where no region shapes it"));
}
TEST_F(VerifyTiles, RejectsNestedRegions) {
  EXPECT_THAT(inside({with_tiles({{a_, m_}}, tile_zero(a_, 0))}),
              HasSubstr("inside a region that has shaped its own"));
}
TEST_F(VerifyTiles, RejectsWhatARegionMayNotOutlive) {
  EXPECT_THAT(inside({barrier()}), HasSubstr("a barrier among matrix registers"));
  EXPECT_THAT(inside({check(le(m_, 3), "no")}), HasSubstr("a check among matrix registers"));
  EXPECT_THAT(inside({loop(LoopKind::kThread, "i", 0, 4, tile_zero(sum_, 0))}),
              HasSubstr("thread loop i among matrix registers"));
}
TEST_F(VerifyTiles, RejectsTooManyRegisters) {
  const auto more = k_.tiles("more", DType::kF32, 16, 16, 5);
  std::vector<TileShape> all = shapes();
  all.push_back({more, 16});
  EXPECT_EQ(fault({with_tiles(all, set())}), "9 matrix registers in one region; a thread has 8");
  all.erase(all.begin() + 1);
  EXPECT_EQ(fault({with_tiles(all, tile_zero(more, 4))}), "");
}
TEST_F(VerifyTiles, RejectsShapesThatNoRegisterHas) {
  for (const auto& [rows, lanes] : {std::pair{17, 16}, {0, 16}, {16, 17}, {16, 0}}) {
    KernelBuilder k("k");
    k.tiles("t", DType::kF32, rows, lanes, 1);
    EXPECT_THAT(verify(k.body({})), HasSubstr("t: ")) << rows << " rows of " << lanes;
  }
}
TEST_F(VerifyTiles, RejectsRowsThatARegisterLacks) {
  EXPECT_EQ(fault({with_tiles({{a_, 17}}, tile_zero(a_, 0))}), "a takes 17 rows; it has 1 to 16");
  EXPECT_EQ(fault({with_tiles({{a_, m_ - 16}}, tile_zero(a_, 0))}),
            "a takes m - 16 rows; it has 1 to 16");
}
TEST_F(VerifyTiles, RejectsShapesTwice) {
  EXPECT_EQ(fault({with_tiles({{a_, m_}, {a_, 3}}, tile_zero(a_, 0))}), "a is shaped twice");
  EXPECT_THAT(fault({with_tiles({}, seq({}))}), HasSubstr("without any"));
}
TEST_F(VerifyTiles, RejectsNumbersThatAreNoConstants) {
  EXPECT_THAT(inside({loop(LoopKind::kSerial, "i", 0, 2, tile_zero(sum_, Dim::symbol("i")))}),
              HasSubstr("i is not a constant after unrolling"));
  EXPECT_EQ(inside({loop(LoopKind::kUnroll, "i", 0, 2, tile_zero(sum_, Dim::symbol("i")))}), "");
  EXPECT_THAT(inside({tile_zero(sum_, 2)}), HasSubstr("out of range"));
}
TEST_F(VerifyTiles, RejectsRowsOfBThatAreNotTheGroupsOfA) {
  const auto narrow = k_.tiles("narrow", DType::kBF16, 16, 16, 1);
  EXPECT_EQ(product(sum_, narrow, b_, {{sum_, m_}, {narrow, m_}, {b_, 16}}),
            "b takes 16 rows, but rows of narrow have 8 groups");
  EXPECT_EQ(product(sum_, narrow, b_, {{sum_, m_}, {narrow, m_}, {b_, 8}}), "");
  EXPECT_THAT(product(sum_, a_, b_, {{sum_, m_}, {a_, m_}, {b_, m_}}), HasSubstr("b takes m rows"));
  const auto odd = k_.tiles("odd", DType::kBF16, 16, 31, 1);
  EXPECT_THAT(product(sum_, odd, b_, {{sum_, m_}, {odd, m_}, {b_, 15}}), HasSubstr("groups of 2"));
}
TEST_F(VerifyTiles, RejectsSumsOfOtherShapes) {
  EXPECT_EQ(product(sum_, a_, b_, {{sum_, m_}, {a_, 16}, {b_, 16}}),
            "a takes 16 rows, but sum takes m");
  const auto thin = k_.tiles("thin", DType::kF32, 16, 8, 1);
  EXPECT_EQ(product(thin, a_, b_, {{thin, m_}, {a_, m_}, {b_, 16}}),
            "rows of b have 32 elements; 16 are needed for thin");
}
TEST_F(VerifyTiles, RejectsOneRegisterForBothFactors) {
  EXPECT_THAT(product(sum_, a_, a_, {{sum_, 16}, {a_, 16}}),
              HasSubstr("need buffers of their own"));
}
TEST_F(VerifyTiles, RejectsOtherTypes) {
  auto spoiled = std::make_shared<Stmt>(*dot());
  spoiled->tile_fragment = TileFragment::kU8S8Tiles;
  EXPECT_EQ(inside({set(), spoiled}), "u8s8_tiles takes i32 for sum, which is f32");
  auto load = std::make_shared<Stmt>(*tile_load(a_, 0, x_, 0, 32));
  load->buffer = y_;
  EXPECT_THAT(inside({load}), HasSubstr("y of f32 and matrix register a of bf16"));
  auto store = std::make_shared<Stmt>(*out());
  store->buffer = x_;
  EXPECT_THAT(inside({set(), store}), HasSubstr("not writable"));
}
TEST_F(VerifyTiles, RejectsReadsOfWhatNothingSets) {
  EXPECT_EQ(inside({out()}), "matrix register sum is read in a region that never sets it");
}
TEST_F(VerifyTiles, RejectsOtherUsesOfTiles) {
  EXPECT_THAT(inside({prefetch(a_, 0, 3)}), HasSubstr("prefetch of register buffer a"));
  EXPECT_THAT(inside({store(sum_, 0, f32(1))}), HasSubstr("accessed as memory"));
  EXPECT_THAT(inside({set_reg(sum_, 0, f32(1))}), HasSubstr("not a register buffer"));
  const auto r = k_.registers("r", DType::kF32, 1);
  EXPECT_THAT(fault({with_tiles({{r, 1}}, seq({}))}), HasSubstr("holds no matrix registers"));
}

// --- What the interpreter finds
// ----------------------------------------------------------------------

class TileFaults : public VerifyTiles {
 protected:
  std::string run(std::vector<StmtRef> body, int64_t m) {
    const Function f = k_.body(std::move(body));
    std::vector<uint16_t> x(4096), w(4096);
    std::vector<float> y(4096);
    try {
      Interpreter(f).run({{bytes_of(x), bytes_of(w), bytes_of(y)}}, {{m}});
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  }
};

TEST_F(TileFaults, OfRegistersThatNothingHasSet) {
  const StmtRef second = tile_store(y_, 0, 16, sum_, 1);
  EXPECT_EQ(run({with_tiles(shapes(), seq({set(), dot(), out()}))}, 5), "");
  EXPECT_THAT(run({with_tiles(shapes(), seq({set(), second}))}, 5),
              HasSubstr("register sum[1], which nothing has written"));
  EXPECT_THAT(run({with_tiles(shapes(), seq({set(), tile_zero(sum_, 1)})),
                   with_tiles(shapes(), seq({set(), second}))},
                  5),
              HasSubstr("register sum[1], which nothing has written"))
      << "a region begins anew";
}
TEST_F(TileFaults, OfRowsThatARegisterLacks) {
  const auto rows = [&](const Dim& n) { return with_tiles({{a_, n}}, tile_zero(a_, 0)); };
  EXPECT_THAT(run({rows(m_ - 1)}, 1), HasSubstr("0 rows of a, which has 1 to 16"));
  EXPECT_THAT(run({rows(m_ + 10)}, 7), HasSubstr("17 rows of a, which has 1 to 16"));
  EXPECT_EQ(run({rows(m_ + 10)}, 6), "");
}
TEST_F(TileFaults, OfMemoryOutsideABuffer) {
  const auto load = [&](const Dim& index) {
    return with_tiles(shapes(), tile_load(a_, 0, x_, index, 64));
  };
  EXPECT_EQ(run({load(4096 - 15 * 64 - 32)}, 16), "");
  EXPECT_THAT(run({load(4096 - 15 * 64 - 31)}, 16), HasSubstr("x[4096] outside its 4096"));
  EXPECT_EQ(run({load(4096 - 14 * 64 - 32)}, 15), "") << "rows that take no part are not read";
}

}  // namespace
}  // namespace nimble::kir
