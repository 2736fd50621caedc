// What launches compute in the emulator, and that it catches what a GPU would not forgive.
#include <gmock/gmock.h>

#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/test/kernel_builder.h"
#include "compiler/kernels/test/launch_harness.h"
#include "vm/base/half.h"
#include "vm/executable/check_status.h"

namespace nimble::kir {
namespace {

using namespace build;  // NOLINT
using testing::block_x;
using testing::bytes_of;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::KernelBuilder;
using testing::lane;
using testing::outcome;
using testing::thread;
using testing::warp;

const Dim i = Dim::symbol("i");

std::vector<float> counted(size_t n) {
  std::vector<float> v(n);
  std::iota(v.begin(), v.end(), 0.0F);
  return v;
}

TEST(Launch, EachBlockRunsItsThreads) {
  KernelBuilder k("k");
  const Dim n = k.symbol("n"), m = k.symbol("m");
  auto y = k.out("y", DType::kI64, n * m * 2 * 64);
  k.launch(64, n, m, 2);
  const Dim block = (Dim::symbol("block_z") * m + Dim::symbol("block_y")) * n + block_x;
  const Function f = k.body({store(y, block * 64 + thread, index(block * 1000 + thread))});
  for (const int64_t rows : {0, 1, 3}) {
    std::vector<int64_t> out(rows * 5 * 128, -1);
    EXPECT_EQ(outcome(f, {bytes_of(out)}, {rows, 5}), "status 0");
    for (size_t at = 0; at < out.size(); ++at) EXPECT_EQ(out[at], at / 64 * 1000 + at % 64);
  }
}

// Reverses each block's elements through shared memory.
Function reversal(bool with_barrier, bool of_warp = false) {
  KernelBuilder k("reverse");
  const Dim n = k.symbol("n");
  auto x = k.in("x", DType::kF32, n * 64);
  auto y = k.out("y", DType::kF32, n * 64);
  auto s = k.shared("s", DType::kF32, 64);
  k.launch(64, n);
  std::vector<StmtRef> body = {store(s, thread, load(x, block_x * 64 + thread))};
  if (with_barrier) body.push_back(barrier(of_warp ? Together::kWarp : Together::kBlock));
  body.push_back(store(y, block_x * 64 + thread, load(s, 63 - thread)));
  return k.body(std::move(body));
}

TEST(Launch, ThreadsShareMemoryOverBarriers) {
  std::vector<float> in = counted(192), out(192);
  EXPECT_EQ(outcome(reversal(true), {bytes_of(in), bytes_of(out)}, {3}), "status 0");
  for (size_t at = 0; at < 192; ++at) EXPECT_EQ(out[at], at / 64 * 64 + 63 - at % 64);
}

TEST(Launch, MissingBarriersAreRaces) {
  std::vector<float> in = counted(64), out(64);
  // Without any, what is read may be there or not, by the order of the warps.
  const std::string none = outcome(reversal(false), {bytes_of(in), bytes_of(out)}, {1});
  EXPECT_TRUE(none.find("nothing has written") != std::string::npos ||
              none.find("race") != std::string::npos)
      << none;
  const std::string own = outcome(reversal(true, true), {bytes_of(in), bytes_of(out)}, {1});
  EXPECT_TRUE(own.find("nothing has written") != std::string::npos ||
              own.find("race") != std::string::npos)
      << own;
}

// A warp's lanes rotate a value through shared memory.
TEST(Launch, LanesAreInOrderOverTheirWarpsBarrierAlone) {
  const auto rotated = [](bool with_barrier) {
    KernelBuilder k("k");
    auto y = k.out("y", DType::kI64, 64);
    auto s = k.shared("s", DType::kI64, 64);
    k.launch(64);
    std::vector<StmtRef> body = {store(s, thread, index(thread))};
    if (with_barrier) body.push_back(barrier(Together::kWarp));
    body.push_back(store(y, thread, load(s, warp * 32 + ir::mod(lane + 1, 32))));
    if (with_barrier) body.push_back(barrier(Together::kWarp));
    body.push_back(store(s, thread, index(0)));
    return k.body(std::move(body));
  };
  std::vector<int64_t> out(64);
  EXPECT_EQ(outcome(rotated(true), {bytes_of(out)}), "status 0");
  for (int64_t t = 0; t < 64; ++t) EXPECT_EQ(out[t], t / 32 * 32 + (t + 1) % 32);
  EXPECT_THAT(outcome(rotated(false), {bytes_of(out)}), HasSubstr("race"));
}

TEST(Launch, AWriteAfterAReadNeedsABarrier) {
  const auto last = [](bool with_barrier) {
    KernelBuilder k("k");
    auto y = k.out("y", DType::kI64, 64);
    auto s = k.shared("s", DType::kI64, 1);
    k.launch(64);
    std::vector<StmtRef> body = {if_then(eq(thread, 0), store(s, 0, index(3))),
                                 barrier(Together::kBlock), store(y, thread, load(s, 0))};
    if (with_barrier) body.push_back(barrier(Together::kBlock));
    body.push_back(if_then(eq(thread, 0), store(s, 0, index(4))));
    return k.body(std::move(body));
  };
  std::vector<int64_t> out(64);
  EXPECT_EQ(outcome(last(true), {bytes_of(out)}), "status 0");
  EXPECT_THAT(out, Each(3));
  EXPECT_THAT(outcome(last(false), {bytes_of(out)}), HasSubstr("race"));
}

TEST(Launch, WritesOfOneElementAreRaces) {
  KernelBuilder k("k");
  auto y = k.out("y", DType::kF32, 1);
  k.launch(32);
  std::vector<float> out(1);
  EXPECT_THAT(outcome(k.body({store(y, 0, f32(1))}), {bytes_of(out)}), HasSubstr("race"));
}

TEST(Launch, BlocksShareNothingTheyWrite) {
  KernelBuilder k("k");
  auto y = k.in_out("y", DType::kI64, 4);
  auto z = k.out("z", DType::kI64, 3);
  k.launch(32, 3);
  std::vector<int64_t> values = {1, 2, 3, 4}, out(3);
  const auto run = [&](StmtRef s) {
    return outcome(k.body({if_then(eq(thread, 0), s)}), {bytes_of(values), bytes_of(out)});
  };
  EXPECT_EQ(run(store(y, block_x, index(block_x))), "status 0");
  EXPECT_EQ(run(store(z, block_x, load(y, 0))), "status 0");
  EXPECT_THAT(run(store(y, 0, index(block_x))), HasSubstr("which another block uses"));
  EXPECT_THAT(
      run(seq({store(z, block_x, load(y, 0)), if_then(eq(block_x, 1), store(y, 0, index(1)))})),
      HasSubstr("which another block uses"));
}

TEST(Launch, SharedMemoryBeginsUndefined) {
  KernelBuilder k("k");
  auto y = k.out("y", DType::kF32, 64);
  auto s = k.shared("s", DType::kF32, 32);
  k.launch(32, 2);
  std::vector<float> out(64);
  const Dim at = block_x * 32 + thread;
  EXPECT_THAT(outcome(k.body({if_then(eq(block_x, 0), store(s, thread, f32(1))),
                              store(y, at, load(s, thread))}),
                      {bytes_of(out)}),
              HasSubstr("which nothing has written"));
  EXPECT_THAT(outcome(k.body({store(s, thread + 1, f32(1))}), {bytes_of(out)}),
              HasSubstr("write to s[32] outside its 32 elements"));
}

TEST(Launch, LanesTakeBothSidesAndTheirOwnTrips) {
  KernelBuilder k("k");
  auto y = k.out("y", DType::kI64, 96);
  auto r = k.registers("r", DType::kI64, 1);
  k.launch(96);
  const Function f = k.body({set_reg(r, 0, index(0)),
                             if_then(lt(thread, 40),
                                     loop(LoopKind::kSerial, "i", thread, 2 * thread + 1,
                                          set_reg(r, 0, add(reg(r, 0), index(i))), 3),
                                     set_reg(r, 0, index(0 - thread))),
                             store(y, thread, reg(r, 0))});
  std::vector<int64_t> out(96);
  EXPECT_EQ(outcome(f, {bytes_of(out)}), "status 0");
  for (int64_t t = 0; t < 96; ++t) {
    int64_t sum = t < 40 ? 0 : -t;
    for (int64_t j = t; t < 40 && j < 3 * t + 1; j += 3) sum += j;
    EXPECT_EQ(out[t], sum) << t;
  }
}

TEST(Launch, FailedChecksEndTheirThreads) {
  KernelBuilder k("k");
  auto x = k.in("x", DType::kI64, 64);
  auto y = k.out("y", DType::kI64, 64);
  k.launch(64);
  const Function f = k.body({let_index("j", load(x, thread)),
                             check(lt(Dim::symbol("j"), 50), "an index beyond 50"),
                             store(y, thread, index(Dim::symbol("j")))});
  std::vector<int64_t> in(64), out(64, -1);
  std::iota(in.begin(), in.end(), 0);
  EXPECT_EQ(outcome(f, {bytes_of(in), bytes_of(out)}),
            "status " + std::to_string(exec::check_status("an index beyond 50")));
  for (int64_t t = 0; t < 64; ++t) EXPECT_EQ(out[t], t < 50 ? t : -1);
}

TEST(Launch, ShufflesReduceAWarp) {
  KernelBuilder k("k");
  auto x = k.in("x", DType::kF32, 128);
  auto y = k.out("y", DType::kF32, 128);
  auto sum = k.registers("sum", DType::kF32, 1);
  k.launch(128);
  std::vector<StmtRef> body = {set_reg(sum, 0, load(x, thread))};
  for (const int step : {16, 8, 4, 2, 1})
    body.push_back(
        set_reg(sum, 0, add(reg(sum, 0), shuffle(reg(sum, 0), ir::mod(lane + step, 32)))));
  body.push_back(store(y, thread, reg(sum, 0)));
  std::vector<float> in = counted(128), out(128);
  EXPECT_EQ(outcome(k.body(std::move(body)), {bytes_of(in), bytes_of(out)}), "status 0");
  for (int t = 0; t < 128; ++t) EXPECT_EQ(out[t], static_cast<float>(32 * (t / 32 * 32) + 31 * 16));
  EXPECT_THAT(outcome(k.body({store(y, thread, shuffle(load(x, thread), lane + 1))}),
                      {bytes_of(in), bytes_of(out)}),
              HasSubstr("a shuffle from lane 32"));
}

// --- Fragments

template <class T>
void put(std::vector<std::byte>& to, T v) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&v);
  to.insert(to.end(), bytes, bytes + sizeof v);
}

std::vector<std::byte> encoded(DType t, const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  for (const float v : values) {
    if (t == DType::kF32)
      put(bytes, v);
    else if (t == DType::kF16)
      put(bytes, f16_from_f32(v));
    else if (t == DType::kBF16)
      put(bytes, bf16_from_f32(v));
    else if (t == DType::kI8)
      put(bytes, static_cast<int8_t>(v));
    else
      put(bytes, static_cast<int32_t>(v));
  }
  return bytes;
}

// Numbers that every type holds, in no order that a wrong place would leave as it is.
std::vector<float> scattered(int n, int seed) {
  std::vector<float> v(n);
  for (int j = 0; j < n; ++j) v[j] = static_cast<float>((j * 37 + j / 5 * seed) % 23 - 11);
  return v;
}

// One product of a fragment, read element by element where warp_place says.
void check_fragment(const WarpFragmentRow& row) {
  SCOPED_TRACE(row.name);
  KernelBuilder k("product");
  auto a = k.in("a", row.a, row.m * row.k);
  auto b = k.in("b", row.b, row.k * row.n);
  auto c = k.in_out("c", row.sum, row.m * row.n);
  const int each = row.per_register(row.a);
  auto ra = k.registers("ra", row.a, row.a_registers(), each);
  auto rb = k.registers("rb", row.b, row.b_registers(), each);
  auto rc = k.registers("rc", row.sum, row.sum_registers());
  k.launch(32);
  std::vector<StmtRef> body, end;
  // What warp_place says of each lane, as Dims of g and t: rows and columns are linear in both.
  const Dim g = ir::floordiv(lane, 4), t = ir::mod(lane, 4);
  const auto place = [&](WarpOperand o, int number) {
    const WarpPlace p = warp_place(row, o, 0, number, 0), of_g = warp_place(row, o, 4, number, 0),
                    of_t = warp_place(row, o, 1, number, 0);
    return std::pair<Dim, Dim>{
        p.row + g * (of_g.row - p.row) + t * (of_t.row - p.row),
        p.column + g * (of_g.column - p.column) + t * (of_t.column - p.column)};
  };
  for (int r = 0; r < row.a_registers(); ++r) {
    const auto [m, kk] = place(WarpOperand::kA, r);
    body.push_back(set_reg(ra, r, load(a, m * row.k + kk, each)));
  }
  for (int r = 0; r < row.b_registers(); ++r) {
    const auto [kk, n] = place(WarpOperand::kB, r);
    body.push_back(set_reg(rb, r, load_strided(b, kk * row.n + n, row.n, each)));
  }
  for (int r = 0; r < row.sum_registers(); ++r) {
    const auto [m, n] = place(WarpOperand::kSum, r);
    body.push_back(set_reg(rc, r, load(c, m * row.n + n)));
    end.push_back(store(c, m * row.n + n, reg(rc, r)));
  }
  body.push_back(warp_dot(row.id, rc, 0, ra, 0, rb, 0));
  body.insert(body.end(), end.begin(), end.end());
  const std::vector<float> left = scattered(row.m * row.k, 3), right = scattered(row.k * row.n, 7),
                           before = scattered(row.m * row.n, 11);
  std::vector<float> expected = before;
  for (int m = 0; m < row.m; ++m)
    for (int n = 0; n < row.n; ++n)
      for (int kk = 0; kk < row.k; ++kk)
        expected[m * row.n + n] += left[m * row.k + kk] * right[kk * row.n + n];
  auto bytes_a = encoded(row.a, left), bytes_b = encoded(row.b, right),
       bytes_c = encoded(row.sum, before);
  const std::vector<std::span<std::byte>> buffers = {bytes_a, bytes_b, bytes_c};
  EXPECT_EQ(Interpreter(k.body(std::move(body))).run(buffers, {}), 0);
  EXPECT_EQ(bytes_c, encoded(row.sum, expected));
}

TEST(Launch, FragmentsAreProducts) {
  for (const WarpFragmentRow& row : all_warp_fragments()) check_fragment(row);
}

// All of the first factor is one number, all of the second one an eighth: each sum is what the
// number is rounded to.
TEST(Launch, Tf32RoundsFactors) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  struct Case {
    float from, to;
  };
  for (const auto& [from, to] : {Case{1 + 0x1p-10F, 1 + 0x1p-10F},
                                 {1 + 0x1.ffcp-11F, 1 + 0x1p-10F},
                                 {1 + 0x1.ff8p-12F, 1},
                                 {1 + 0x1p-11F, 1 + 0x1p-10F},  // a tie
                                 {-1 - 0x1p-11F, -1 - 0x1p-10F},
                                 {1 + 0x1.8p-10F, 1 + 0x1p-9F},
                                 {2 - 0x1p-23F, 2},
                                 {0x1.8p-136F, 0x1p-135F},  // a subnormal tie
                                 {0x1.7p-136F, 0x1p-136F},
                                 {0x1.fp-138F, 0},
                                 {0x1.ffdp127F, 0x1.ffcp127F},
                                 {0x1.ffep127F, kInfinite},
                                 {-kInfinite, -kInfinite},
                                 {-0.0F, 0}}) {
    KernelBuilder k("k");
    auto x = k.in("x", DType::kF32, 1);
    auto y = k.out("y", DType::kF32, 32);
    auto a = k.registers("a", DType::kF32, 4);
    auto b = k.registers("b", DType::kF32, 2);
    auto c = k.registers("c", DType::kF32, 4);
    k.launch(32);
    std::vector<StmtRef> body;
    for (int r = 0; r < 4; ++r) {
      body.push_back(set_reg(a, r, load(x, 0)));
      body.push_back(set_reg(c, r, f32(0)));
    }
    for (int r = 0; r < 2; ++r) body.push_back(set_reg(b, r, f32(0.125)));
    body.push_back(warp_dot(WarpFragment::kTf32Warp, c, 0, a, 0, b, 0));
    body.push_back(store(y, thread, reg(c, 3)));
    std::vector<float> in = {from}, out(32);
    EXPECT_EQ(outcome(k.body(std::move(body)), {bytes_of(in), bytes_of(out)}), "status 0");
    EXPECT_THAT(out, Each(to)) << from;
  }
}

// --- Matrices from shared memory

TEST(Launch, WarpsLoadMatrices) {
  for (const bool transposed : {false, true}) {
    for (const int matrices : {1, 2, 4}) {
      KernelBuilder k("k");
      auto x = k.in("x", DType::kF16, 256);
      auto y = k.out("y", DType::kF16, 256);
      auto s = k.shared("s", DType::kF16, 256);
      auto r = k.registers("r", DType::kF16, 4, 2);
      k.launch(32);
      std::vector<StmtRef> body = {store(s, thread * 8, load(x, thread * 8, 8)),
                                   barrier(Together::kWarp),
                                   warp_load(r, 0, matrices, s, lane * 8, transposed)};
      for (int m = 0; m < matrices; ++m) body.push_back(store(y, lane * 2 + m * 64, reg(r, m)));
      const Function f = k.body(std::move(body));
      std::vector<uint16_t> in(256), out(256);
      std::iota(in.begin(), in.end(), 0);
      EXPECT_EQ(outcome(f, {bytes_of(in), bytes_of(out)}), "status 0");
      for (int m = 0; m < matrices; ++m)
        for (int row = 0; row < 8; ++row)
          for (int column = 0; column < 8; ++column)
            EXPECT_EQ(out[m * 64 + row * 8 + column],
                      m * 64 + (transposed ? column * 8 + row : row * 8 + column));
    }
  }
}

TEST(Launch, WarpLoadsNeedAlignedRowsAndABarrier) {
  KernelBuilder k("k");
  auto s = k.shared("s", DType::kF32, 128);
  auto r = k.registers("r", DType::kF32, 4);
  k.launch(32);
  const auto run = [&](const Dim& at, bool with_barrier) {
    std::vector<StmtRef> body = {store(s, thread * 4, broadcast(f32(1), 4))};
    if (with_barrier) body.push_back(barrier(Together::kWarp));
    body.push_back(warp_load(r, 0, 4, s, at));
    return outcome(k.body(std::move(body)), {});
  };
  EXPECT_EQ(run(lane * 4, true), "status 0");
  EXPECT_THAT(run(lane * 4, false), HasSubstr("race"));
  EXPECT_THAT(run(lane * 3, true), HasSubstr("no multiple of 16 bytes"));
  EXPECT_THAT(run(lane * 4 + 4, true), HasSubstr("read of s[128] outside"));
}

// --- Copies without waiting

class AsyncCopies : public ::testing::Test {
 protected:
  AsyncCopies() { k.launch(64); }
  alignas(64) std::array<float, 256> in = [] {
    std::array<float, 256> v{};
    std::iota(v.begin(), v.end(), 1.0F);
    return v;
  }();
  std::vector<float> out = std::vector<float>(256);
  KernelBuilder k{"k"};
  BufferRef x = k.in("x", DType::kF32, 256, 64), y = k.out("y", DType::kF32, 256);
  BufferRef s = k.shared("s", DType::kF32, 256);
  StmtRef copied(const Dim& valid) { return async_copy(s, thread * 4, x, thread * 4, 4, valid); }
  StmtRef stored(const Dim& from) { return store(y, thread * 4, load(s, from, 4)); }
  std::string run(std::vector<StmtRef> body) {
    return outcome(k.body(std::move(body)), {std::as_writable_bytes(std::span(in)), bytes_of(out)});
  }
  const Dim others = (63 - thread) * 4, neighbour = (warp * 32 + ir::mod(lane + 1, 32)) * 4;
};

TEST_F(AsyncCopies, TakeEffectAtTheirWaitAndForOthersAtTheBarrier) {
  EXPECT_EQ(run({copied(250 - thread * 4), async_commit(), async_wait(0), barrier(Together::kBlock),
                 stored(others)}),
            "status 0");
  for (int j = 0; j < 256; ++j) {
    const int from = (63 - j / 4) * 4 + j % 4;
    EXPECT_EQ(out[j], from < 250 ? static_cast<float>(from + 1) : 0.0F) << j;
  }
  EXPECT_EQ(run({copied(4), async_commit(), async_wait(0), stored(thread * 4)}), "status 0");
}

TEST_F(AsyncCopies, AreNotReadBefore) {
  const std::string way = "to which a copy is on its way";
  const StmtRef meet = barrier(Together::kBlock);
  EXPECT_THAT(run({copied(4), stored(thread * 4)}), HasSubstr(way));
  EXPECT_THAT(run({copied(4), async_commit(), meet, stored(thread * 4)}), HasSubstr(way));
  EXPECT_THAT(run({copied(4), async_commit(), async_wait(1), meet, stored(others)}),
              HasSubstr(way));
  EXPECT_THAT(run({copied(4), async_wait(0), meet, stored(others)}), HasSubstr(way));
  EXPECT_THAT(run({copied(4), store(s, thread * 4, f32(1))}), HasSubstr(way));
  EXPECT_THAT(run({copied(4), async_commit(), async_wait(0), stored(neighbour)}),
              HasSubstr("race"));
}

TEST_F(AsyncCopies, OverwriteNothingThatIsStillRead) {
  EXPECT_THAT(run({store(s, thread * 4, broadcast(f32(0), 4)), barrier(Together::kBlock),
                   stored(neighbour), copied(4)}),
              HasSubstr("race"));
  EXPECT_EQ(run({store(s, thread * 4, broadcast(f32(0), 4)), barrier(Together::kBlock),
                 stored(neighbour), barrier(Together::kBlock), copied(4)}),
            "status 0");
}

TEST_F(AsyncCopies, GroupsEndInTheirOrder) {
  const auto second = async_copy(s, 128 + thread * 2, x, thread * 2, 2);
  const auto first = async_copy(s, thread * 2, x, 128 + thread * 2, 2);
  const auto body = [&](int pending, const Dim& from) {
    return run({first, async_commit(), second, async_commit(), async_wait(pending),
                store(y, thread * 2, load(s, from, 2))});
  };
  EXPECT_EQ(body(1, thread * 2), "status 0");
  EXPECT_EQ(out[3], 132);
  EXPECT_THAT(body(1, 128 + thread * 2), HasSubstr("on its way"));
  EXPECT_EQ(body(0, 128 + thread * 2), "status 0");
  EXPECT_EQ(out[3], 4);
}

TEST_F(AsyncCopies, NeedMultiplesOfTheirSize) {
  auto z = k.in("z", DType::kI64, 1);
  const std::vector<StmtRef> body = {let_index("j", load(z, 0)),
                                     async_copy(s, thread * 4, x, Dim::symbol("j"), 4)};
  std::vector<int64_t> at = {2};
  EXPECT_THAT(
      outcome(k.body(body), {std::as_writable_bytes(std::span(in)), bytes_of(out), bytes_of(at)}),
      HasSubstr("no multiples of its size"));
}

// --- Alignment

// Views of rows lie at any multiple of an element: what a thread accesses at once must not need
// more.
TEST(Launch, WideAccessesAreAligned) {
  alignas(64) static std::array<float, 1024> in{}, out{};
  // y = x of 256 elements, in vectors, where both begin `offset` elements behind a multiple of 64
  // bytes.
  const auto run = [&](int lanes, const Dim& at, size_t offset) {
    KernelBuilder k("k");
    auto x = k.in("x", DType::kF32, 256, 64), y = k.out("y", DType::kF32, 256);
    k.launch(32);
    const auto view = [&](std::array<float, 1024>& of) {
      return std::as_writable_bytes(std::span(of).subspan(offset, 256));
    };
    return outcome(k.body({store(y, at, load(x, at, lanes))}), {view(in), view(out)});
  };
  for (const size_t offset : {0, 4, 8}) EXPECT_EQ(run(4, thread * 4, offset), "status 0");
  for (const size_t offset : {1, 2, 3})
    EXPECT_THAT(run(4, thread * 4, offset),
                HasSubstr("an access of 16 bytes to x[0], whose address is no multiple of that"));
  EXPECT_EQ(run(2, thread * 2, 2), "status 0");
  EXPECT_THAT(run(2, thread * 2, 1), HasSubstr("an access of 8 bytes to x[0]"));
  EXPECT_EQ(run(4, thread * 6, 2), "status 0") << "it is known to be even alone";
  EXPECT_THAT(run(4, thread * 6, 3), HasSubstr("an access of 8 bytes to x[0]"));
  EXPECT_EQ(run(4, thread * 5, 3), "status 0") << "an element at a time";
  EXPECT_EQ(run(1, thread, 3), "status 0");
}

TEST_F(AsyncCopies, NeedAnAlignedSource) {
  const StmtRef wait = seq({async_commit(), async_wait(0), stored(thread * 4)});
  Function f = k.body({copied(4), wait});
  alignas(64) static std::array<float, 512> all{};
  const auto from = [&](size_t first) {
    return outcome(f, {std::as_writable_bytes(std::span(all).subspan(first, 256)), bytes_of(out)});
  };
  EXPECT_EQ(from(4), "status 0");
  EXPECT_THAT(from(2), HasSubstr("an access of 16 bytes to x[0]"));
}

// --- Statistics

TEST(Launch, CountsBanksAndSectors) {
  KernelBuilder k("k");
  const Dim pitch = k.symbol("pitch");
  auto x = k.in("x", DType::kF32, 4096);
  auto s = k.shared("s", DType::kF32, 4096);
  k.launch(64);
  const auto use = [&](StmtRef body, int64_t p) {
    alignas(64) static std::array<float, 4096> in{};
    LaunchStatistics all;
    EXPECT_EQ(Interpreter(k.body({std::move(body)}))
                  .run({{std::as_writable_bytes(std::span(in))}}, {{p}}, 1, &all),
              0);
    return all.buffers;
  };
  const auto write = [&](int64_t p) { return use(store(s, thread * pitch, f32(1)), p)["s"]; };
  EXPECT_EQ(write(1).worst_ways, 1);
  EXPECT_EQ(write(1).accesses, 2);
  EXPECT_EQ(write(1).turns, 2);
  EXPECT_EQ(write(2).worst_ways, 2);
  EXPECT_EQ(write(8).worst_ways, 8);
  EXPECT_EQ(write(33).worst_ways, 1);
  EXPECT_EQ(write(64).worst_ways, 32);
  EXPECT_EQ(write(64).turns, 64);
  // Four words of a lane go at once, eight lanes a turn.
  const auto wide = [&](int64_t p) {
    return use(store(s, thread * pitch, broadcast(f32(1), 4)), p)["s"];
  };
  EXPECT_EQ(wide(4).worst_ways, 1);
  EXPECT_EQ(wide(4).turns, 8);
  EXPECT_EQ(wide(4).accesses, 2);
  EXPECT_EQ(wide(32).worst_ways, 8);
  EXPECT_EQ(wide(36).worst_ways, 1);
  EXPECT_EQ(wide(5).accesses, 8) << "no multiples of 16 bytes: word by word";
  const auto read = [&](int64_t p) { return use(let("v", load(x, thread * pitch)), p)["x"]; };
  EXPECT_EQ(read(0).sectors, 2);
  EXPECT_EQ(read(1).sectors, 8);
  EXPECT_EQ(read(1).least_sectors, 8);
  EXPECT_EQ(read(8).sectors, 64);
  EXPECT_EQ(read(8).least_sectors, 8);
}

}  // namespace
}  // namespace nimble::kir
