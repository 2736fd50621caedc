// The rules of a GPU's functions, their text and what unrolling leaves of them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>

#include "compiler/kernels/test/kernel_builder.h"
#include "compiler/kernels/test/launch_harness.h"
#include "compiler/kernels/unroll.h"

namespace nimble::kir {
namespace {

using namespace build;  // NOLINT
using testing::block_x;
using ::testing::HasSubstr;
using testing::KernelBuilder;
using testing::lane;
using testing::ne;
using testing::thread;
using testing::warp;

const Dim i = Dim::symbol("i");

class VerifyLaunch : public ::testing::Test {
 protected:
  VerifyLaunch()
      : n(k.symbol("n")),
        x(k.in("x", DType::kF32, n, 64)),
        y(k.out("y", DType::kF32, n)),
        s(k.shared("s", DType::kF32, 256)) {
    k.launch(128, ir::ceildiv(n, 128));
  }

  std::string fault(std::vector<StmtRef> body) { return verify(k.body(std::move(body))); }
  static StmtRef serial(const Dim& extent, StmtRef body) {
    return loop(LoopKind::kSerial, "i", 0, extent, std::move(body));
  }
  StmtRef shuffled() { return let("v", shuffle(load(s, thread), 0)); }

  KernelBuilder k{"k"};
  Dim n;
  BufferRef x, y, s;
};

TEST_F(VerifyLaunch, AcceptsACopyThroughSharedMemory) {
  const Dim at = block_x * 128 + thread;
  EXPECT_EQ(fault({if_then(lt(at, n), store(s, thread, load(x, at))), barrier(Together::kBlock),
                   if_then(lt(at, n), store(y, at, load(s, thread)))}),
            "");
}

TEST_F(VerifyLaunch, LaunchesHaveWholeWarpsUpToTheMost) {
  for (const int threads : {0, -32, 33, 1056}) {
    k.launch(threads);
    EXPECT_THAT(fault({}), HasSubstr("a multiple of 32 up to 1024")) << threads;
  }
  k.launch(1024);
  EXPECT_EQ(fault({}), "");
}

TEST_F(VerifyLaunch, GridsAreOfTheContractsSymbols) {
  k.launch(32, n, 1, thread);
  EXPECT_THAT(fault({}), HasSubstr("no symbol of the contract"));
}

TEST_F(VerifyLaunch, SharedMemoryIsConstantAndFits) {
  k.function().shared[0] = buffer("s", Scope::kShared, DType::kF32, n);
  EXPECT_THAT(fault({}), HasSubstr("needs a constant extent, not n"));
  k.function().shared[0] = buffer("s", Scope::kShared, DType::kF32, 232448 / 4);
  EXPECT_EQ(fault({}), "");
  k.shared("t", DType::kF32, 1);
  EXPECT_THAT(fault({}), HasSubstr("of shared memory; a block has 232448"));
}

TEST_F(VerifyLaunch, BuffersOfCpusAreRefused) {
  auto other = k;
  other.scratch("own", DType::kF32, 4, Scope::kThread);
  EXPECT_THAT(verify(other.body({})), HasSubstr("buffer own of scope thread in a GPU's function"));
  k.tiles("t", DType::kBF16, 16, 32, 1);
  EXPECT_THAT(fault({}), HasSubstr("buffer t of scope tile in a GPU's function"));
}

TEST_F(VerifyLaunch, ThreadLoopsAreRefused) {
  EXPECT_THAT(fault({loop(LoopKind::kThread, "i", 0, n, store(y, i, f32(0)))}),
              HasSubstr("in a function with a launch"));
}

TEST_F(VerifyLaunch, BlockSymbolsAreBoundAndNoExtents) {
  EXPECT_EQ(fault({store(y, block_x + Dim::symbol("block_y") + Dim::symbol("block_z"), f32(0))}),
            "");
  k.scratch("z", DType::kF32, block_x + 1);
  EXPECT_THAT(fault({}), HasSubstr("extent of z depends on `block_x`"));
}

TEST_F(VerifyLaunch, BarriersAreOfABlockOrAWarp) {
  EXPECT_THAT(fault({barrier()}), HasSubstr("a barrier of a region in a function with a launch"));
  EXPECT_EQ(fault({barrier(Together::kBlock), barrier(Together::kWarp)}), "");
}

TEST_F(VerifyLaunch, BlockBarriersNeedTheSameControlInAllThreads) {
  const auto under = [&](const Condition& c) {
    return fault({if_then(c, barrier(Together::kBlock))});
  };
  EXPECT_EQ(under(lt(block_x * 128, n)), "");
  EXPECT_THAT(under(eq(thread, 0)), HasSubstr("not all threads reach alike"));
  EXPECT_THAT(under(eq(warp, 0)), HasSubstr("not all threads reach alike"));
  EXPECT_THAT(fault({serial(lane, barrier(Together::kBlock))}), HasSubstr("not all threads reach"));
  EXPECT_EQ(fault({serial(n, barrier(Together::kBlock))}), "");
}

TEST_F(VerifyLaunch, WarpsMeetWhereTheirControlIsTheSame) {
  const auto under = [&](const Condition& c, StmtRef what) { return fault({if_then(c, what)}); };
  for (const StmtRef& what : {barrier(Together::kWarp), shuffled()}) {
    EXPECT_EQ(under(eq(warp, 0), what), "");
    EXPECT_EQ(under(lt(ir::floordiv(ir::mod(thread, 64), 32) + block_x, n), what), "");
    EXPECT_EQ(under(ne(ir::floordiv(thread + 64, 64), 1), what), "");
    EXPECT_EQ(under(ne(ir::floordiv(thread + 32 * block_x, 96), 1), what), "");
    EXPECT_THAT(under(lt(thread, 64), what), HasSubstr("not all lanes of a warp reach alike"));
    EXPECT_THAT(under(eq(lane, 0), what), HasSubstr("not all lanes of a warp reach alike"));
    EXPECT_THAT(under(lt(ir::floordiv(thread, 16), 1), what), HasSubstr("not all lanes"));
    EXPECT_THAT(under(lt(ir::floordiv(thread + 1, 32), 1), what), HasSubstr("not all lanes"));
    EXPECT_THAT(under(lt(ir::floordiv(2 * thread, 32), 1), what), HasSubstr("not all lanes"));
    EXPECT_THAT(under(lt(ir::floordiv(thread + block_x, 32), 1), what), HasSubstr("not all lanes"));
  }
}

TEST_F(VerifyLaunch, IndicesThatDifferAreFollowed) {
  auto lengths = k.in("lengths", DType::kI64, 4);
  const auto with = [&](ValueRef v, Together who) {
    return fault(
        {let_index("j", v), loop(LoopKind::kSerial, "i", 0, Dim::symbol("j"), barrier(who))});
  };
  EXPECT_EQ(with(load(lengths, block_x), Together::kBlock), "");
  EXPECT_THAT(with(load(lengths, lane), Together::kBlock), HasSubstr("not all threads"));
  EXPECT_THAT(with(load(lengths, warp), Together::kBlock), HasSubstr("not all threads"));
  EXPECT_EQ(with(load(lengths, warp), Together::kWarp), "");
  EXPECT_THAT(with(index(thread), Together::kWarp), HasSubstr("not all lanes"));
  EXPECT_EQ(with(shuffle(index(thread), 0), Together::kWarp), "");
  EXPECT_THAT(with(shuffle(index(thread), lane), Together::kWarp), HasSubstr("not all lanes"));
  EXPECT_THAT(with(cast(DType::kI64, load(s, 0)), Together::kWarp), HasSubstr("not all lanes"));
}

TEST_F(VerifyLaunch, ChecksFitWhoMeets) {
  const StmtRef by_lane = check(lt(thread, n), "too many"),
                by_warp = check(lt(warp, n), "too many");
  EXPECT_EQ(fault({by_lane}), "");
  EXPECT_THAT(fault({by_lane, barrier(Together::kWarp)}), HasSubstr("between the lanes of a warp"));
  EXPECT_EQ(fault({by_warp, barrier(Together::kWarp)}), "");
  EXPECT_THAT(fault({by_lane, shuffled()}), HasSubstr("between the lanes of a warp"));
  EXPECT_THAT(fault({by_warp, barrier(Together::kBlock)}), HasSubstr("differs between threads"));
  EXPECT_EQ(fault({check(lt(block_x, n), "too many"), barrier(Together::kBlock)}), "");
}

TEST_F(VerifyLaunch, NoShuffleWhereAValueMayNotBeComputed) {
  const auto chosen = [&](auto select_of) {
    const auto v = load(s, thread);
    return fault(
        {store(y, thread, select_of(compare(CompareOp::kLt, v, f32(0)), shuffle(v, 0), v))});
  };
  EXPECT_EQ(chosen([](auto c, auto a, auto b) { return select(c, a, b); }), "");
  EXPECT_THAT(chosen([](auto c, auto a, auto b) { return select_rare(c, a, b); }),
              HasSubstr("select_rare may pass over"));
}

TEST_F(VerifyLaunch, FragmentsTakeTheirRegisters) {
  for (const WarpFragmentRow& row : all_warp_fragments()) {
    SCOPED_TRACE(row.name);
    KernelBuilder m("m");
    m.launch(32);
    const auto a = m.registers("a", row.a, row.a_registers() + 1, row.per_register(row.a));
    const auto b = m.registers("b", row.b, row.b_registers(), row.per_register(row.b));
    const auto sum = m.registers("sum", row.sum, row.sum_registers(), 1);
    EXPECT_EQ(verify(m.body({warp_dot(row.id, sum, 0, a, 1, b, 0)})), "");
    EXPECT_THAT(verify(m.body({warp_dot(row.id, sum, 0, a, 2, b, 0)})), HasSubstr("out of range"));
    EXPECT_THAT(verify(m.body({warp_dot(row.id, sum, 1, a, 0, b, 0)})), HasSubstr("out of range"));
    EXPECT_THAT(verify(m.body({if_then(eq(lane, 1), warp_dot(row.id, sum, 0, a, 0, b, 0))})),
                HasSubstr("not all lanes of a warp reach alike"));
    const auto wide = m.registers("wide", row.a, 8, 2 * row.per_register(row.a));
    EXPECT_THAT(verify(m.body({warp_dot(row.id, sum, 0, wide, 0, b, 0)})),
                HasSubstr("registers of 4 bytes"));
  }
  auto r = k.registers("r", DType::kF32, 8);
  EXPECT_THAT(fault({warp_dot(WarpFragment::kTf32Warp, r, 0, r, 4, r, 4)}),
              HasSubstr("they need buffers of their own"));
}

TEST_F(VerifyLaunch, WarpLoadsTakeRowsOfSharedMemory) {
  auto r = k.registers("r", DType::kF32, 4);
  auto h = k.shared("h", DType::kF16, 1024);
  auto pairs = k.registers("pairs", DType::kF16, 4, 2);
  EXPECT_EQ(fault({warp_load(r, 0, 4, s, lane * 4)}), "");
  EXPECT_EQ(fault({warp_load(pairs, 2, 2, h, lane * 8, true)}), "");
  EXPECT_THAT(fault({warp_load(r, 0, 4, s, lane * 4, true)}),
              HasSubstr("a transposed load of f32"));
  EXPECT_THAT(fault({warp_load(r, 0, 3, s, lane * 4)}), HasSubstr("a warp loads 1, 2 or 4"));
  EXPECT_THAT(fault({warp_load(r, 1, 4, s, lane * 4)}), HasSubstr("out of range"));
  EXPECT_THAT(fault({warp_load(r, 0, 4, s, lane * 4 + 2)}), HasSubstr("no multiple of 16 bytes"));
  EXPECT_THAT(fault({warp_load(r, 0, 4, x, lane * 4)}), HasSubstr("not shared memory"));
  EXPECT_THAT(fault({if_then(lt(lane, 3), warp_load(r, 0, 4, s, 0))}), HasSubstr("not all lanes"));
}

TEST_F(VerifyLaunch, CopiesWithoutWaiting) {
  const auto copy = [&](const BufferRef& to, const Dim& t, const BufferRef& from, const Dim& f,
                        int lanes) { return fault({async_copy(to, t, from, f, lanes)}); };
  EXPECT_EQ(fault({async_copy(s, thread * 4, x, thread * 4, 4, n - thread * 4), async_commit(),
                   async_wait(0)}),
            "");
  EXPECT_THAT(copy(s, 0, x, 0, 3), HasSubstr("4, 8 or 16 go without waiting"));
  EXPECT_THAT(copy(s, 0, x, 0, 8), HasSubstr("4, 8 or 16 go without waiting"));
  EXPECT_THAT(copy(s, 0, s, 0, 4), HasSubstr("from global to shared memory"));
  EXPECT_THAT(copy(s, 0, x, 1, 4), HasSubstr("x[1], which is no multiple of 16 bytes"));
  EXPECT_THAT(copy(s, 2, x, 0, 4), HasSubstr("s[2], which is no multiple of 16 bytes"));
  auto bare = k.in("bare", DType::kF32, n);
  EXPECT_THAT(copy(s, 0, bare, 0, 4), HasSubstr("bare, which is aligned to 4"));
  EXPECT_EQ(copy(s, 0, bare, 0, 1), "");
  EXPECT_THAT(fault({async_wait(-1)}), HasSubstr("all but -1 groups"));
}

TEST(VerifyCpu, HasNothingOfAGpu) {
  const auto fault = [](const std::function<StmtRef(KernelBuilder&, BufferRef)>& body) {
    KernelBuilder k("k");
    auto y = k.out("y", DType::kF32, 64);
    return verify(k.body({body(k, y)}));
  };
  EXPECT_THAT(fault([](auto&, auto y) { return store(y, block_x, f32(0)); }),
              HasSubstr("symbol block_x is not bound"));
  EXPECT_THAT(fault([](auto& k, auto y) {
                k.shared("s", DType::kF32, 4);
                return store(y, 0, f32(0));
              }),
              HasSubstr("shared memory in a function without a launch"));
  EXPECT_THAT(fault([](auto&, auto) { return barrier(Together::kWarp); }),
              HasSubstr("a barrier of a warp in a function without a launch"));
  EXPECT_THAT(fault([](auto&, auto y) { return store(y, 0, shuffle(f32(0), 0)); }),
              HasSubstr("a shuffle in a function without a launch"));
  EXPECT_THAT(fault([](auto&, auto) { return async_commit(); }),
              HasSubstr("a group of copies in a function without a launch"));
  EXPECT_THAT(fault([](auto&, auto) { return async_wait(0); }), HasSubstr("without a launch"));
  EXPECT_THAT(fault([](auto& k, auto) {
                auto r = k.registers("r", DType::kF32, 12);
                return warp_dot(WarpFragment::kTf32Warp, r, 0, r, 4, r, 8);
              }),
              HasSubstr("a product of a warp in a function without a launch"));
}

// Whatever else it lacks.
TEST(VerifyStatements, AreRefusedInFunctionsOfTheOtherDevice) {
  for (const StmtRow& row : all_statements()) {
    EXPECT_EQ(row_of(row.id).id, row.id) << row.what;
    if (row.device == StmtDevice::kAny) continue;
    const bool launched = row.device == StmtDevice::kCpu;
    KernelBuilder k("k");
    if (launched) k.launch(128);
    EXPECT_EQ(verify(k.body({std::make_shared<const Stmt>(Stmt{row.id})})),
              fmt::format("{} in a function {} a launch", row.what, launched ? "with" : "without"));
  }
}

Function everything() {
  KernelBuilder k("all");
  const Dim n = k.symbol("n");
  auto x = k.in("x", DType::kF32, n, 64);
  auto y = k.out("y", DType::kF32, n);
  auto s = k.shared("s", DType::kF32, 256);
  auto a = k.registers("a", DType::kF32, 4);
  auto b = k.registers("b", DType::kF32, 2);
  auto sum = k.registers("sum", DType::kF32, 8);
  k.launch(64, ir::ceildiv(n, 64), 2);
  return k.body({
      loop(LoopKind::kUnroll, "i", 0, 2,
           async_copy(s, i * 128 + lane * 4, x, i * 128 + lane * 4, 4, n - i * 128 - lane * 4)),
      async_commit(),
      async_wait(1),
      barrier(Together::kBlock),
      warp_load(a, 0, 4, s, lane * 4),
      warp_load(b, 0, 2, s, lane * 4),
      loop(LoopKind::kUnroll, "i", 0, 2, warp_dot(WarpFragment::kTf32Warp, sum, i * 4, a, 0, b, 0)),
      barrier(Together::kWarp),
      store(y, block_x * Dim::symbol("threads") + thread, shuffle(reg(sum, 0), lane - 1)),
  });
}

TEST(PrintLaunch, NamesWhatAGpuHas) {
  EXPECT_EQ(print(everything()),
            R"(kernel all(x: f32[n] align 64, out y: f32[n]) symbols(n) launch()"
            R"(floordiv(n + 63, 64), 2, 1 of 64 threads) {
  buffer s: f32[256] shared
  buffer a: f32[4] register
  buffer b: f32[2] register
  buffer sum: f32[8] register
  unroll i from 0 count 2 {
    copy.async s[128*i + 4*mod(thread, 32)] = f32x4 x[128*i + 4*mod(thread, 32)] first -128*i + n - 4*mod(thread, 32)
  }
  commit.async
  wait.async 1
  barrier block
  a[0] = load.warp 4 matrices s[4*mod(thread, 32)]
  b[0] = load.warp 2 matrices s[4*mod(thread, 32)]
  unroll i from 0 count 2 {
    sum[4*i] = dot.tf32_warp(a[0], b[0], sum[4*i])
  }
  barrier warp
  store y[block_x*threads + thread] = shuffle(sum[0], mod(thread, 32) - 1)
}
)");
}

TEST(UnrollLaunch, CarriesWhatAGpuHas) {
  const Function f = unroll(everything());
  EXPECT_EQ(verify(f), "");
  const std::string text = print(f);
  EXPECT_THAT(text, HasSubstr("copy.async s[4*mod(thread, 32) + 128] = f32x4 x[4*mod(thread, 32) + "
                              "128] first n - 4*mod(thread, 32) - 128"));
  EXPECT_THAT(text, HasSubstr("sum[4] = dot.tf32_warp(a[0], b[0], sum[4])"));
  EXPECT_THAT(text, HasSubstr("store y[64*block_x + thread]"));
  EXPECT_THAT(text, HasSubstr("shuffle(sum[0], mod(thread, 32) - 1)"));
  EXPECT_THAT(text, HasSubstr("barrier block"));
  EXPECT_EQ(shared_bytes(f), 1024);
}

}  // namespace
}  // namespace nimble::kir
