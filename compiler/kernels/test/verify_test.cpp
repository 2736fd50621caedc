// Every rule of verify() rejects a kernel that breaks this rule only.
#include <gmock/gmock.h>

#include "compiler/kernels/test/kernel_builder.h"

namespace nimble::kir {
namespace {

using namespace build;
using ::testing::HasSubstr;
using testing::KernelBuilder;

class Verify : public ::testing::Test {
 protected:
  Verify() : n(k.symbol("n")), x(k.in("x", DType::kF32, n)), y(k.out("y", DType::kF32, n)) {}

  std::string fault(std::vector<StmtRef> body) { return verify(k.body(std::move(body))); }
  static StmtRef serial(const std::string& v, const Dim& extent, StmtRef body) {
    return loop(LoopKind::kSerial, v, 0, extent, std::move(body));
  }

  KernelBuilder k{"k"};
  Dim n;
  BufferRef x, y;
  Dim i = Dim::symbol("i");
};

TEST_F(Verify, AcceptsACopy) {
  EXPECT_EQ(fault({serial("i", n, store(y, i, load(x, i)))}), "");
}

TEST_F(Verify, RejectsUnboundSymbol) {
  EXPECT_THAT(fault({store(y, i, f32(0))}), HasSubstr("symbol i is not bound"));
}
TEST_F(Verify, RejectsSymbolBeyondItsLoop) {
  EXPECT_THAT(fault({serial("i", n, store(y, i, f32(0))), store(y, i, f32(0))}),
              HasSubstr("symbol i is not bound"));
}
TEST_F(Verify, RejectsHidingLoopVariable) {
  EXPECT_THAT(fault({serial("n", 4, store(y, 0, f32(0)))}), HasSubstr("hides another symbol"));
}
TEST_F(Verify, RejectsWriteToInput) {
  EXPECT_THAT(fault({store(x, 0, f32(0))}), HasSubstr("not writable"));
}
TEST_F(Verify, RejectsForeignBuffer) {
  auto z = buffer("z", Scope::kScratch, DType::kF32, 4);
  EXPECT_THAT(fault({store(z, 0, f32(0))}), HasSubstr("not the function's"));
}
TEST_F(Verify, RejectsStoreOfWrongType) {
  EXPECT_THAT(fault({store(y, 0, integer(DType::kI32, 1))}), HasSubstr("store of i32"));
}
TEST_F(Verify, RejectsOddLanes) {
  EXPECT_THAT(fault({store(y, 0, load(x, 0, 3))}), HasSubstr("power of two"));
}
TEST_F(Verify, RejectsVariableRegisterIndex) {
  auto r = k.registers("r", DType::kF32, 4);
  EXPECT_THAT(fault({serial("i", 4, set_reg(r, i, f32(0)))}),
              HasSubstr("not a constant after unrolling"));
}
TEST_F(Verify, RejectsRegisterOutOfRange) {
  auto r = k.registers("r", DType::kF32, 4);
  EXPECT_THAT(fault({set_reg(r, 4, f32(0))}), HasSubstr("out of range"));
}
TEST_F(Verify, RejectsSymbolicUnroll) {
  EXPECT_THAT(fault({loop(LoopKind::kUnroll, "i", 0, n, store(y, i, f32(0)))}),
              HasSubstr("unrolled loop i has extent n"));
}
TEST_F(Verify, RejectsNestedThreadLoops) {
  EXPECT_THAT(fault({loop(LoopKind::kThread, "i", 0, n,
                          loop(LoopKind::kThread, "j", 0, n, store(y, i, f32(0))))}),
              HasSubstr("inside a thread loop"));
}
TEST_F(Verify, RejectsThreadLoopWithBoundsOfAThread) {
  EXPECT_THAT(fault({loop(LoopKind::kThread, "i", 0, Dim::symbol("thread"), store(y, i, f32(0)))}),
              HasSubstr("differ between threads"));
}
TEST_F(Verify, RejectsBarrierInThreadLoop) {
  EXPECT_THAT(fault({loop(LoopKind::kThread, "i", 0, n, barrier())}),
              HasSubstr("not all threads reach"));
}
TEST_F(Verify, RejectsBarrierUnderThreadCondition) {
  EXPECT_THAT(fault({if_then(eq(Dim::symbol("thread"), 0), barrier())}),
              HasSubstr("not all threads reach"));
}
TEST_F(Verify, AcceptsBarrierInUniformLoop) {
  EXPECT_EQ(fault({serial("i", n, barrier())}), "");
}
TEST_F(Verify, RejectsDivergentCheckWithBarrier) {
  EXPECT_THAT(fault({loop(LoopKind::kThread, "i", 0, n, check(lt(i, 3), "too far")), barrier()}),
              HasSubstr("a check that differs between threads"));
}
TEST_F(Verify, RejectsArithmeticOnHalves) {
  auto h = k.in("h", DType::kF16, n);
  auto sum = add(load(h, 0), load(h, 1));
  EXPECT_THAT(fault({store(y, 0, cast(DType::kF32, sum))}), HasSubstr("cast to f32 first"));
}
TEST_F(Verify, RejectsFloatRemainder) {
  EXPECT_THAT(fault({store(y, 0, binary(BinaryOp::kMod, f32(3), f32(2)))}),
              HasSubstr("mod of f32"));
}
TEST_F(Verify, RejectsUnboundLocal) {
  EXPECT_THAT(fault({store(y, 0, local("t", DType::kF32, 1))}), HasSubstr("local t is not bound"));
}
TEST_F(Verify, RejectsLocalOfAnotherType) {
  EXPECT_THAT(fault({let("t", f32(1)), store(y, 0, cast(DType::kF32, local("t", DType::kI32, 1)))}),
              HasSubstr("operand f32x1 of a i32x1"));
}
TEST_F(Verify, RejectsSelectWithoutBool) {
  auto v =
      std::make_shared<Value>(*select(compare(CompareOp::kLt, f32(0), f32(1)), f32(0), f32(1)));
  v->operands[0] = f32(1);
  EXPECT_THAT(fault({store(y, 0, v)}), HasSubstr("bool condition"));
}
TEST_F(Verify, RejectsReductionByDifference) {
  EXPECT_THAT(fault({store(y, 0, reduce(BinaryOp::kSub, load(x, 0, 8)))}),
              HasSubstr("not associative"));
}
TEST_F(Verify, RejectsExtractBeyondLanes) {
  EXPECT_THAT(fault({store(y, 0, extract(load(x, 0, 4), 4))}), HasSubstr("lane 4 from 4"));
}
TEST_F(Verify, RejectsContractOfOtherType) {
  k.function().contract.arguments[1].dtype = DType::kI64;
  EXPECT_THAT(fault({store(y, 0, f32(0))}), HasSubstr("in the contract"));
}
TEST_F(Verify, RejectsContractOfOtherAccess) {
  k.function().contract.arguments[1].access = exec::Access::kOut;
  EXPECT_THAT(fault({store(y, 0, f32(0))}), HasSubstr("disagree"));
}
TEST_F(Verify, RejectsBadStep) {
  EXPECT_THAT(fault({loop(LoopKind::kSerial, "i", 0, n, store(y, i, f32(0)), 0)}),
              HasSubstr("has step 0"));
}
TEST_F(Verify, RejectsIndexFromFloat) {
  EXPECT_THAT(fault({let_index("j", f32(1))}), HasSubstr("needs an integer scalar"));
}

TEST(Print, SharedValuesAppearOnce) {
  KernelBuilder k("square");
  auto x = k.in("x", DType::kF32, 8);
  auto y = k.out("y", DType::kF32, 8);
  auto v = load(x, 0, 8);
  EXPECT_EQ(print(k.body({store(y, 0, mul(v, v))})),
            "kernel square(x: f32[8], out y: f32[8]) {\n"
            "  %0 = (load.f32x8 x[0])\n"
            "  store y[0] = mul(%0, %0)\n"
            "}\n");
}

TEST(Scratch, LaysBuffersOutInOrder) {
  KernelBuilder k("s");
  const Dim n = k.symbol("n");
  auto shared = k.scratch("shared", DType::kF32, n);
  auto own = k.scratch("own", DType::kF64, 3, Scope::kThread);
  auto last = k.scratch("last", DType::kI8, 1);
  const Function f = k.body({});
  const auto at = [](const Dim& d) {
    return d.evaluate([](const std::string& s) -> std::optional<int64_t> {
      return s == "n" ? 17 : 3;  // 3 threads
    });
  };
  EXPECT_EQ(at(scratch_place(f, *shared).offset), 0);
  EXPECT_EQ(at(scratch_place(f, *own).offset), 128);
  EXPECT_EQ(at(scratch_place(f, *own).per_thread), 64);
  EXPECT_EQ(at(scratch_place(f, *last).offset), 128 + 3 * 64);
  EXPECT_EQ(at(scratch_bytes(f)), 128 + 3 * 64 + 64);
}

}  // namespace
}  // namespace nimble::kir
