// Residue substitution and the proofs that it makes possible.
#include <gmock/gmock.h>

#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/test/kernel_builder.h"
#include "vm/executable/check_status.h"

namespace nimble::kir {
namespace {

using namespace build;
using testing::bytes_of;
using ::testing::HasSubstr;
using testing::KernelBuilder;
using ::testing::Not;

// y[i] = 2 x[i] in blocks of eight rows, each row guarded, as a template writes it for any n.
Function guarded(int block) {
  KernelBuilder k("guarded");
  const Dim n = k.symbol("n"), o = Dim::symbol("o"), i = Dim::symbol("i");
  auto x = k.in("x", DType::kF32, n);
  auto y = k.out("y", DType::kF32, n);
  const Dim row = o * Dim(block) + i;
  return k.body({loop(LoopKind::kSerial, "o", 0, ir::floordiv(n, block),
                      loop(LoopKind::kUnroll, "i", 0, block,
                           if_then(lt(row, n), store(y, row, mul(load(x, row), f32(2)))))),
                 loop(LoopKind::kSerial, "i", 0, ir::mod(n, block),
                      if_then(lt(n - ir::mod(n, block) + i, n),
                              store(y, n - ir::mod(n, block) + i,
                                    mul(load(x, n - ir::mod(n, block) + i), f32(2)))))});
}

TEST(Simplify, ResidueRemovesBoundaryChecks) {
  const Function f = guarded(8);
  EXPECT_THAT(print(f), HasSubstr("if "));
  for (int r = 0; r < 8; ++r) {
    const Function g = simplify(substitute(f, {{"n", Dim(8) * Dim::symbol("k") + r}}));
    EXPECT_THAT(print(g), Not(HasSubstr("if "))) << print(g);
    EXPECT_THAT(print(g), Not(HasSubstr("mod("))) << print(g);
    EXPECT_EQ(verify(g), "");
    for (int64_t n = r; n < 40; n += 8) {
      std::vector<float> x(n), y(n);
      for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i) + 1;
      EXPECT_EQ(Interpreter(g).run({{bytes_of(x), bytes_of(y)}}, {{n}}), 0);
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(y[i], 2 * x[i]) << n << " " << i;
    }
  }
}

TEST(Simplify, KernelRefusesAnotherResidue) {
  const Dim form = Dim(8) * Dim::symbol("k") + 3;
  const Function g = simplify(substitute(guarded(8), {{"n", form}}));
  std::vector<float> x(16), y(16);
  EXPECT_EQ(Interpreter(g).run({{bytes_of(x), bytes_of(y)}}, {{16}}),
            exec::check_status("n is not " + form.str()));
}

TEST(Simplify, ConstantSpecialisationLeavesNoSymbol) {
  const Function g = simplify(substitute(guarded(8), {{"n", Dim(16)}}));
  EXPECT_THAT(print(g), HasSubstr("serial o from 0 count 2"));
  EXPECT_THAT(print(g), Not(HasSubstr("if ")));
}

TEST(Simplify, KeepsChecksThatMayFail) {
  KernelBuilder k("k");
  const Dim n = k.symbol("n"), o = Dim::symbol("o");
  auto y = k.out("y", DType::kF32, n);
  const Function f = simplify(k.body({loop(LoopKind::kSerial, "o", 0, ir::ceildiv(n, 8),
                                           if_then(lt(o * 8 + 7, n), store(y, o * 8, f32(0))))}));
  EXPECT_THAT(print(f), HasSubstr("if "));
}

TEST(Simplify, DropsMasksThatCoverAllLanesAndStoresOfNone) {
  KernelBuilder k("k");
  const Dim n = k.symbol("n"), o = Dim::symbol("o");
  auto x = k.in("x", DType::kF32, n);
  auto y = k.out("y", DType::kF32, n);
  Function f = k.body({loop(LoopKind::kSerial, "o", 0, n - 7,
                            store_masked(y, o, load_masked(x, o, 8, n - o), n - o), 8),
                       store_masked(y, 0, f32(1, 8), n - n)});
  f = simplify(std::move(f));
  EXPECT_THAT(print(f), Not(HasSubstr("first"))) << print(f);
  EXPECT_THAT(print(f), Not(HasSubstr("store y[0]"))) << print(f);
}

TEST(Simplify, TakesTheBranchThatARangeDecides) {
  KernelBuilder k("k");
  const Dim n = k.symbol("n", {16, 128, 1});
  auto y = k.out("y", DType::kF32, n);
  const Function f =
      simplify(k.body({if_then(le(8, n), store(y, 0, f32(1)), store(y, 0, f32(2))),
                       if_then(lt(n, 16), store(y, 1, f32(1)), store(y, 1, f32(2)))}));
  EXPECT_EQ(print(f),
            "kernel k(out y: f32[n]) symbols(n in [16, 128]) {\n"
            "  store y[0] = f32(0x1p+0)\n"
            "  store y[1] = f32(0x1p+1)\n"
            "}\n");
}

TEST(Simplify, KeepsThreadLoopsOfOneIteration) {
  KernelBuilder k("k");
  auto y = k.out("y", DType::kF32, 1);
  const Function f =
      simplify(k.body({loop(LoopKind::kThread, "i", 0, 1, store(y, Dim::symbol("i"), f32(1)))}));
  EXPECT_THAT(print(f), HasSubstr("thread i"));
  std::vector<float> out(1);
  EXPECT_EQ(Interpreter(f).run({{bytes_of(out)}}, {}, 4), 0);
}

}  // namespace
}  // namespace nimble::kir
