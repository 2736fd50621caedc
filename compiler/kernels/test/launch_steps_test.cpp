// Steps of a launch's whole grid: what they compute in the emulator, in one launch and in one each,
// that it catches what the two would do differently, and the verifier's rules.
#include <gmock/gmock.h>

#include <numeric>

#include "compiler/kernels/test/kernel_builder.h"
#include "compiler/kernels/test/launch_harness.h"

namespace nimble::kir {
namespace {

using namespace build;  // NOLINT
using ::testing::AnyOf;
using testing::block_x;
using testing::bytes_of;
using ::testing::HasSubstr;
using testing::KernelBuilder;
using testing::ne;
using testing::thread;

const Dim t = Dim::symbol("t");

StmtRef steps(const Dim& count, std::vector<StmtRef> body) {
  return loop(LoopKind::kSteps, "t", 0, count, seq(std::move(body)));
}

std::string stepped(const Function& f, const std::vector<std::span<std::byte>>& buffers,
                    const std::vector<int64_t>& symbols) {
  EXPECT_EQ(verify(f), "") << print(f);
  return testing::outcome(f, buffers, symbols, testing::Launches::kAlsoOneAStep);
}

// Each block takes what its right neighbour had after the step before, plus 1.
struct Shifts {
  explicit Shifts(LoopKind kind) {
    const Dim n = k.symbol("n"), m = k.symbol("m");
    x = k.in("x", DType::kF32, m * 32);
    y = k.out("y", DType::kF32, n * m * 32);
    values = k.registers("v", DType::kF32, 1);
    k.launch(32, m);
    const Dim at = block_x * 32 + thread, right = ir::mod(at + 32, m * 32);
    const std::vector<StmtRef> body = {
        if_then(eq(t, 0), set_reg(values, 0, load(x, right)),
                set_reg(values, 0, load(y, (t - 1) * (m * 32) + right))),
        store(y, t * (m * 32) + at, add(reg(values, 0), f32(1)))};
    f = k.body({loop(kind, "t", 0, n, seq(body))});
  }
  KernelBuilder k{"shifts"};
  BufferRef x, y, values;
  Function f;
};

TEST(LaunchSteps, EachSeesWhatTheOneBeforeWrote) {
  const Shifts shifts(LoopKind::kSteps);
  for (const int64_t m : {1, 2, 5})
    for (const int64_t n : {0, 1, 2, 7}) {
      const auto width = static_cast<size_t>(m * 32);
      std::vector<float> x(width), y(width * static_cast<size_t>(n));
      std::iota(x.begin(), x.end(), 0.0F);
      ASSERT_EQ(stepped(shifts.f, {bytes_of(x), bytes_of(y)}, {n, m}), "status 0");
      std::vector<float> now = x;
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        std::vector<float> next(width);
        for (size_t at = 0; at < width; ++at) next[at] = now[(at + 32) % width] + 1;
        now = next;
        EXPECT_EQ(std::vector<float>(y.begin() + static_cast<long>(i * width),
                                     y.begin() + static_cast<long>((i + 1) * width)),
                  now)
            << n << " " << m << " " << i;
      }
    }
}

TEST(LaunchSteps, ASerialLoopIsNone) {
  std::vector<float> x(64), y(128);
  EXPECT_THAT(stepped(Shifts(LoopKind::kSerial).f, {bytes_of(x), bytes_of(y)}, {2, 2}),
              AnyOf(HasSubstr("another block"), HasSubstr("nothing has written")));
}

TEST(LaunchSteps, BlocksOfOneStepHaveNoOrder) {
  KernelBuilder k("k");
  const Dim n = k.symbol("n");
  auto y = k.in_out("y", DType::kF32, 64);
  k.launch(32, 2);
  const Dim at = block_x * 32 + thread;
  // Written and read in one step.
  const Function f = k.body({steps(n, {store(y, at, load(y, ir::mod(at + 32, 64)))})});
  std::vector<float> data(64);
  EXPECT_THAT(stepped(f, {bytes_of(data)}, {1}), HasSubstr("another block"));
}

// Memory that is written over at each step.
TEST(LaunchSteps, ElementsChangeHandsBetweenSteps) {
  KernelBuilder k("k");
  const Dim n = k.symbol("n");
  auto y = k.in_out("y", DType::kI64, 32);
  k.launch(32, 3);
  const Function f = k.body({steps(
      n, {if_then(eq(ir::mod(t, 3), block_x),
                  store(y, thread,
                        add(mul(load(y, thread), integer(DType::kI64, 3)), index(block_x))))})});
  std::vector<int64_t> data(32, 1);
  // The data goes through all six runs.
  ASSERT_EQ(stepped(f, {bytes_of(data)}, {2}), "status 0");
  int64_t expected = 1;
  for (int i = 0; i < 6; ++i) expected = (expected * 3) * 3 + 1;
  EXPECT_EQ(data, std::vector<int64_t>(32, expected));
}

TEST(LaunchSteps, WhatIsReadyStays) {
  KernelBuilder k("k");
  const Dim n = k.symbol("n");
  auto x = k.in("x", DType::kF32, 64);
  auto y = k.out("y", DType::kF32, n * 64);
  auto s = k.shared("s", DType::kF32, 32);
  auto r = k.registers("r", DType::kF32, 1);
  k.launch(32, 2);
  const Dim at = block_x * 32 + thread;
  const Function f =
      k.body({store(s, thread, load(x, at)), set_reg(r, 0, load(x, at)), barrier(Together::kBlock),
              steps(n, {store(y, t * 64 + at, add(load(s, 31 - thread), reg(r, 0)))})});
  std::vector<float> in(64), out(64 * 3);
  std::iota(in.begin(), in.end(), 0.0F);
  ASSERT_EQ(stepped(f, {bytes_of(in), bytes_of(out)}, {3}), "status 0");
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t place = i % 64, block = place / 32 * 32;
    EXPECT_EQ(out[i], in[place] + in[block + 31 - place % 32]) << i;
  }
}

// What a step leaves on chip the next one does not find.
TEST(LaunchSteps, NothingElseIsCarriedOnChip) {
  const auto carries = [](bool in_shared) {
    KernelBuilder k("k");
    const Dim n = k.symbol("n");
    auto y = k.out("y", DType::kF32, n * 32);
    auto s = k.shared("s", DType::kF32, 32);
    auto r = k.registers("r", DType::kF32, 1);
    k.launch(32);
    const auto put = [&](double v) {
      return in_shared ? store(s, thread, f32(v)) : set_reg(r, 0, f32(v));
    };
    const ValueRef kept = in_shared ? load(s, thread) : reg(r, 0);
    return k.body({steps(n, {if_then(eq(t, 0), put(1)), store(y, t * 32 + thread, kept)})});
  };
  std::vector<float> out(64);
  for (const bool in_shared : {false, true}) {
    EXPECT_EQ(stepped(carries(in_shared), {bytes_of(out)}, {1}), "status 0");
    EXPECT_NE(stepped(carries(in_shared), {bytes_of(out)}, {2}).substr(0, 6), "status");
  }
}

TEST(LaunchSteps, NoCopyOutlivesItsStep) {
  KernelBuilder k("k");
  const Dim n = k.symbol("n");
  auto x = k.in("x", DType::kF32, 32, 16);
  auto y = k.out("y", DType::kF32, 32);
  auto s = k.shared("s", DType::kF32, 32);
  k.launch(32);
  const Function f = k.body(
      {steps(n, {async_copy(s, thread, x, thread, 1), async_commit(), store(y, thread, f32(1))})});
  std::vector<float> in(32), out(32);
  EXPECT_THAT(stepped(f, {bytes_of(in), bytes_of(out)}, {1}), HasSubstr("a copy is on its way"));
}

// ---- the verifier

class VerifySteps : public ::testing::Test {
 protected:
  VerifySteps()
      : n(k.symbol("n")),
        x(k.in("x", DType::kF32, n)),
        y(k.out("y", DType::kF32, n)),
        s(k.shared("s", DType::kF32, 64)) {
    k.launch(64, n);
  }
  std::string fault(std::vector<StmtRef> body) { return verify(k.body(std::move(body))); }

  KernelBuilder k{"k"};
  Dim n;
  BufferRef x, y, s;
};

TEST_F(VerifySteps, TheyEndTheFunction) {
  EXPECT_EQ(fault({store(s, thread, f32(0)), steps(n, {store(y, t, f32(0))})}), "");
  EXPECT_EQ(fault({seq({store(s, thread, f32(0)), seq({steps(n, {})})})}), "");
  EXPECT_THAT(fault({steps(n, {}), barrier(Together::kBlock)}),
              HasSubstr("not the last statement"));
  EXPECT_THAT(fault({if_then(lt(0, n), steps(n, {}))}), HasSubstr("not the last statement"));
  EXPECT_THAT(fault({steps(n, {loop(LoopKind::kSteps, "u", 0, n, seq({}))})}),
              HasSubstr("not the last statement"));
  k.function().launch.reset();
  k.function().shared.clear();
  EXPECT_THAT(fault({steps(n, {})}), HasSubstr("with a launch"));
}

TEST_F(VerifySteps, TheyCountFromZeroWhatTheContractSays) {
  EXPECT_THAT(fault({loop(LoopKind::kSteps, "t", 1, n, seq({}))}), HasSubstr("from 0 by 1"));
  EXPECT_THAT(fault({loop(LoopKind::kSteps, "t", 0, n, seq({}), 2)}), HasSubstr("from 0 by 1"));
  EXPECT_THAT(fault({steps(block_x, {})}), HasSubstr("no symbol of the contract"));
  EXPECT_THAT(fault({let_index("q", index(n)), steps(Dim::symbol("q"), {})}),
              HasSubstr("no symbol of the contract"));
}

TEST_F(VerifySteps, WhatStandsAheadIsOfTheBlockAlone) {
  EXPECT_THAT(fault({store(y, thread, f32(0)), steps(n, {})}), HasSubstr("y is written ahead"));
  EXPECT_THAT(fault({store(s, thread, load(y, thread)), steps(n, {})}),
              HasSubstr("y is read ahead"));
  EXPECT_THAT(fault({store(s, thread, f32(0)), steps(n, {store(s, thread, f32(1))})}),
              HasSubstr("a step writes s"));
  EXPECT_EQ(fault({steps(n, {store(s, thread, f32(1))})}), "");
  const BufferRef z = k.scratch("z", DType::kF32, n);
  EXPECT_THAT(fault({store(z, thread, f32(0)), steps(n, {})}), HasSubstr("z is written ahead"));
  EXPECT_THAT(fault({store(s, thread, load(z, thread)), steps(n, {})}),
              HasSubstr("z is read ahead"));
}

// In one launch their phases would go on from step to step, and else begin anew.
TEST_F(VerifySteps, SignalsOfStepsAreMadeInThem) {
  const BufferRef signals = k.shared("signals", DType::kU64, 1);
  const auto first = [](StmtRef s) { return if_then(eq(thread, 0), std::move(s)); };
  EXPECT_THAT(
      fault({first(signal_init(signals, 0, 1)), steps(n, {first(signal_arrive(signals, 0, 0))})}),
      HasSubstr("a step writes signals"));
}

TEST_F(VerifySteps, NobodyLeavesThem) {
  EXPECT_THAT(fault({steps(n, {check(lt(0, n), "empty")})}),
              HasSubstr("the other blocks would wait"));
  EXPECT_THAT(fault({check(lt(0, n), "empty"), steps(n, {})}),
              HasSubstr("the other blocks would wait"));
}

TEST_F(VerifySteps, BlocksMeetInThemAsElsewhere) {
  EXPECT_EQ(fault({steps(n, {barrier(Together::kBlock)})}), "");
  EXPECT_EQ(fault({steps(n, {if_then(ne(t, 0), barrier(Together::kBlock))})}), "");
  EXPECT_THAT(fault({steps(n, {if_then(eq(thread, 0), barrier(Together::kBlock))})}),
              HasSubstr("not all threads reach alike"));
}

TEST_F(VerifySteps, TextNamesThem) {
  EXPECT_THAT(print(k.body({steps(n, {store(y, t, f32(0))})})),
              HasSubstr("steps t from 0 count n {"));
}

}  // namespace
}  // namespace nimble::kir
