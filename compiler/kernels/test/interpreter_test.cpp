// What the interpreter computes, and that it catches each kind of wrong access.
#include "compiler/kernels/interpreter.h"

#include <gmock/gmock.h>

#include "compiler/kernels/test/kernel_builder.h"
#include "vm/base/error.h"
#include "vm/executable/check_status.h"

namespace nimble::kir {
namespace {

using namespace build;
using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::KernelBuilder;

const Dim i = Dim::symbol("i"), thread = Dim::symbol("thread");

std::string fault_of(const Function& f, std::vector<std::span<std::byte>> buffers,
                     std::vector<int64_t> symbols = {}, int threads = 1) {
  try {
    const int32_t status = Interpreter(f).run(buffers, symbols, threads);
    return "status " + std::to_string(status);
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(Interpreter, RunsAReductionWithTail) {
  KernelBuilder k("sum");
  const Dim n = k.symbol("n");
  auto x = k.in("x", DType::kF32, n);
  auto y = k.out("y", DType::kF32, 1);
  auto acc = k.registers("acc", DType::kF32, 1, 8);
  const Function f =
      k.body({set_reg(acc, 0, f32(0, 8)),
              loop(LoopKind::kSerial, "i", 0, n,
                   set_reg(acc, 0, add(reg(acc, 0), load_masked(x, i, 8, n - i))), 8),
              store(y, 0, reduce(BinaryOp::kAdd, reg(acc, 0)))});
  for (int64_t n = 0; n < 40; ++n) {
    std::vector<float> in(n), out(1);
    for (int64_t j = 0; j < n; ++j) in[j] = static_cast<float>(j);
    EXPECT_EQ(Interpreter(f).run({{bytes_of(in), bytes_of(out)}}, {{n}}), 0);
    EXPECT_EQ(out[0], static_cast<float>(n * (n - 1) / 2));
  }
}

TEST(Interpreter, CatchesReadsAndWritesOutside) {
  KernelBuilder k("k");
  const Dim n = k.symbol("n");
  auto x = k.in("x", DType::kF32, n);
  auto y = k.out("y", DType::kF32, n);
  std::vector<float> in(8), out(8);
  const auto run = [&](StmtRef s) {
    return fault_of(k.body({s}), {bytes_of(in), bytes_of(out)}, {8});
  };
  EXPECT_THAT(run(store(y, 0, load(x, 1, 8))), HasSubstr("read of x[8] outside its 8 elements"));
  EXPECT_THAT(run(store(y, -1, f32(0))), HasSubstr("write to y[-1] outside its 8 elements"));
  EXPECT_THAT(run(store_strided(y, 0, 3, load(x, 0, 4))), HasSubstr("write to y[9] outside"));
  EXPECT_EQ(run(store_masked(y, 4, load_masked(x, 4, 8, 4), 4)), "status 0");
}

TEST(Interpreter, CatchesUndefinedReads) {
  KernelBuilder k("k");
  auto y = k.out("y", DType::kF32, 2);
  auto s = k.scratch("s", DType::kF32, 2);
  auto r = k.registers("r", DType::kF32, 2);
  std::vector<float> out(2);
  const auto run = [&](std::vector<StmtRef> b) { return fault_of(k.body(b), {bytes_of(out)}); };
  EXPECT_THAT(run({store(y, 0, load(s, 1))}), HasSubstr("s[1], which nothing has written"));
  EXPECT_THAT(run({store(y, 0, load(y, 1))}), HasSubstr("y[1], which nothing has written"));
  EXPECT_THAT(run({set_reg(r, 0, f32(0)), store(y, 0, reg(r, 1))}),
              HasSubstr("register r[1], which nothing has written"));
}

TEST(Interpreter, InOutArgumentsAreDefined) {
  KernelBuilder k("k");
  auto y = k.in_out("y", DType::kF32, 1);
  std::vector<float> v = {3};
  EXPECT_EQ(fault_of(k.body({store(y, 0, add(load(y, 0), f32(1)))}), {bytes_of(v)}), "status 0");
  EXPECT_EQ(v[0], 4);
}

TEST(Interpreter, CatchesRaces) {
  KernelBuilder k("k");
  auto y = k.out("y", DType::kF32, 8);
  std::vector<float> out(8);
  const auto run = [&](std::vector<StmtRef> b) {
    return fault_of(k.body(b), {bytes_of(out)}, {}, 2);
  };
  EXPECT_THAT(run({store(y, 0, f32(1))}), HasSubstr("race"));
  EXPECT_EQ(run({store(y, thread, f32(1))}), "status 0");
  const StmtRef own = store(y, thread, f32(1));
  const StmtRef swap = store(y, thread + 2, load(y, Dim(1) - thread));
  EXPECT_THAT(run({own, barrier(), own, swap}), HasSubstr("race"));
  EXPECT_EQ(run({own, barrier(), swap}), "status 0");
  // A read, then another thread's write, in one phase.
  EXPECT_THAT(run({own, barrier(), swap, if_then(eq(thread, 1), store(y, 1, f32(0)))}),
              HasSubstr("race"));
}

TEST(Interpreter, ThreadsShareALoopAndMeetAtBarriersInLoops) {
  KernelBuilder k("steps");
  const Dim n = k.symbol("n");
  auto a = k.in_out("a", DType::kI64, n);
  auto b = k.scratch("b", DType::kI64, n);
  const auto thread_loop = [](StmtRef s) {
    return loop(LoopKind::kThread, "i", 0, Dim::symbol("n"), s);
  };
  // Rotates by one place per step.
  const Function f =
      k.body({loop(LoopKind::kSerial, "step", 0, 3,
                   seq({thread_loop(store(b, i, load(a, i))), barrier(),
                        thread_loop(store(a, i, load(b, ir::mod(i + 1, n)))), barrier()}))});
  for (int threads : {1, 2, 5}) {
    std::vector<int64_t> v = {0, 1, 2, 3, 4, 5, 6};
    EXPECT_EQ(Interpreter(f).run({{bytes_of(v)}}, {{7}}, threads), 0);
    EXPECT_THAT(v, ElementsAre(3, 4, 5, 6, 0, 1, 2));
  }
}

TEST(Interpreter, ChecksReturnTheStatusOfTheirMessage) {
  KernelBuilder k("k");
  auto x = k.in("x", DType::kI64, 1);
  auto y = k.out("y", DType::kF32, 4);
  const Dim j = Dim::symbol("j");
  const Function f = k.body({let_index("j", load(x, 0)), check(le(0, j), "negative"),
                             check(lt(j, 4), "too large"), store(y, j, f32(7))});
  std::vector<float> out(4);
  std::vector<int64_t> index = {2};
  EXPECT_EQ(fault_of(f, {bytes_of(index), bytes_of(out)}), "status 0");
  EXPECT_EQ(out[2], 7);
  index[0] = -1;
  EXPECT_EQ(fault_of(f, {bytes_of(index), bytes_of(out)}),
            fmt::format("status {}", exec::check_status("negative")));
  index[0] = 4;
  EXPECT_EQ(fault_of(f, {bytes_of(index), bytes_of(out)}),
            fmt::format("status {}", exec::check_status("too large")));
}

TEST(Interpreter, ChecksWhatCodeGenerationAssumes) {
  KernelBuilder k("k");
  const Dim n = k.symbol("n", {8, 64, 8});
  auto x = k.in("x", DType::kF32, n);
  auto y = k.out("y", DType::kF32, n);
  const Function f = k.body({loop(LoopKind::kSerial, "i", 0, n, store(y, i, load(x, i)))});
  std::vector<float> in(72), out(72);
  EXPECT_EQ(fault_of(f, {bytes_of(in), bytes_of(out)}, {16}), "status 0");
  EXPECT_THAT(fault_of(f, {bytes_of(in), bytes_of(out)}, {12}), HasSubstr("n = 12 contradicts"));
  EXPECT_THAT(fault_of(f, {bytes_of(in), bytes_of(out)}, {72}), HasSubstr("n = 72 contradicts"));
  EXPECT_THAT(fault_of(f, {bytes_of(in).first(16), bytes_of(out)}, {16}),
              HasSubstr("x has 16 bytes, 64 needed"));
  Function aligned = f;
  const_cast<Buffer&>(*aligned.arguments[0]).alignment = 64;
  alignas(64) std::byte storage[128] = {};
  EXPECT_THAT(fault_of(aligned, {std::span(storage).subspan(4, 64), bytes_of(out)}, {16}),
              HasSubstr("not aligned to 64"));
}

TEST(Interpreter, CatchesIndexOverflow) {
  KernelBuilder k("k");
  const Dim n = k.symbol("n");
  auto y = k.out("y", DType::kF32, 1);
  std::vector<float> out(1);
  EXPECT_THAT(fault_of(k.body({store(y, n * n, f32(0))}), {bytes_of(out)}, {int64_t{1} << 40}),
              HasSubstr("beyond 64 bits"));
}

}  // namespace
}  // namespace nimble::kir
