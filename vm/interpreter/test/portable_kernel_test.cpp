// What the checked interpreter does with kernels that the verifier accepts: their arithmetic where
// C++ leaves it undefined, and every way in which they could harm. Operations on ordinary values
// are compared with native code in compiler/codegen/test. Run under the sanitizers for full effect.
#include "vm/interpreter/portable_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "vm/base/cpu.h"
#include "vm/base/error.h"
#include "vm/base/test/refuse_tiles.h"
#include "vm/executable/assembler.h"
#include "vm/executable/reader.h"
#include "vm/executable/writer.h"
#include "vm/interpreter/fuzz/portable_programs.h"
#include "vm/interpreter/session.h"

namespace nimble::rt {
namespace {

using exec::PortableKernel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Op = exec::PortableOp;

// in f32 (n), out f32 (n): symbol n is i0.
exec::KernelContract contract() {
  exec::KernelContract c;
  c.symbols = {"n"};
  for (const exec::Access access : {exec::Access::kIn, exec::Access::kOut}) {
    exec::KernelArgument a;
    a.access = access;
    a.dims = {exec::DimProgram::argument(0)};
    c.arguments.push_back(a);
  }
  return c;
}

struct Outcome {
  int32_t status = 0;
  std::vector<float> y;
  std::string error;
  Status error_status = Status::kOk;
};

// Runs the code over arguments of exactly `n` elements each.
Outcome run(const PortableKernel& k, int64_t n = 4, uint64_t steps = 1 << 20) {
  const exec::KernelContract c = contract();
  const auto fault = exec::verify_portable(k, c);
  EXPECT_FALSE(fault.has_value()) << fault->message;
  if (fault) return {};
  // On the heap and no larger: an access outside is one that the sanitizer sees.
  const auto count = static_cast<size_t>(n);
  std::vector<float> x(count), y(count, -1);
  for (size_t i = 0; i < count; ++i) x[i] = static_cast<float>(i) + 0.5f;
  Outcome r;
  try {
    const PortableProgram program(k, c, "kernel k");
    const int64_t symbols[] = {n};
    std::vector<uint8_t> scratch(program.scratch_bytes(symbols));
    const PortableBuffer buffers[] = {{reinterpret_cast<uint8_t*>(x.data()), count * 4},
                                      {reinterpret_cast<uint8_t*>(y.data()), count * 4}};
    PortableFrame frame;
    WorkMeter meter{steps};
    r.status = program.run(buffers, symbols, scratch.data(), &frame, &meter);
  } catch (const Error& e) {
    r.error = e.what();
    r.error_status = e.status();
  }
  r.y = y;
  return r;
}

PortableKernel with_code(std::vector<exec::PortableInstruction> code) {
  PortableKernel k;
  k.indices = 8;
  k.values = {{DType::kF32, 4}, {DType::kF32, 1}, {DType::kI64, 1}, {DType::kI32, 1}};
  k.code = std::move(code);
  return k;
}

TEST(PortableProgramTest, CopiesInVectorsWithATail) {
  const PortableKernel k = with_code({{Op::kLoop, {2, 1, 0, 4}},
                                      {Op::kIndexMulAdd, {3, 0, 2, -1}},
                                      {Op::kLoadMasked, {0, 0, 1, 2, 0, 3, 0}},
                                      {Op::kStoreMasked, {1, 1, 2, 0, 0, 3}},
                                      {Op::kEnd, {}}});
  EXPECT_THAT(run(k, 6).y, ElementsAre(0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f));
  EXPECT_THAT(run(k, 0).error, "");
}

TEST(PortableProgramTest, ConditionsAndChecks) {
  // y[0] = n < 3 ? 1 : 2, then a check of n = 3.
  const PortableKernel k = with_code({{Op::kIndexConst, {2, 3}},
                                      {Op::kIndexLt, {3, 0, 2}},
                                      {Op::kIf, {3}},
                                      {Op::kConst, {1, std::bit_cast<int32_t>(1.f)}},
                                      {Op::kElse, {}},
                                      {Op::kConst, {1, std::bit_cast<int32_t>(2.f)}},
                                      {Op::kEnd, {}},
                                      {Op::kStore, {1, 1, 1, 0, 1}},
                                      {Op::kIndexEq, {3, 0, 2}},
                                      {Op::kCheck, {3, 7}},
                                      {Op::kStore, {1, 1, 1, 1, 1}}});
  EXPECT_THAT(run(k, 2).y, ElementsAre(1, -1));
  EXPECT_EQ(run(k, 2).status, 7);
  EXPECT_THAT(run(k, 3).y, ElementsAre(2, 2, -1));
  EXPECT_EQ(run(k, 3).status, 0);
}

// --- Hostile code --------------------------------------------------------------------------------

TEST(PortableProgramTest, StopsEveryAccessOutside) {
  const int64_t huge = INT64_MAX, least = INT64_MIN;
  struct Access {
    const char* what;
    exec::PortableInstruction access;
  };
  // i2 is 1, i3 is 2^63 - 1, i4 is -2^63, i1 is 0; n is 4, registers have 4 lanes.
  const std::vector<Access> accesses = {
      {"just behind", {Op::kLoad, {0, 0, 1, 1, 1}}},
      {"far behind", {Op::kLoad, {0, 0, 3, 1, 0}}},
      {"before", {Op::kLoad, {0, 0, 1, 1, -1}}},
      {"far before", {Op::kLoad, {0, 0, 4, 1, 0}}},
      {"wrapped", {Op::kLoad, {0, 0, 3, 3, 0}}},
      {"wrapped by the displacement", {Op::kLoad, {0, 0, 2, 3, huge}}},
      {"a scalar", {Op::kLoad, {1, 0, 1, 1, 4}}},
      {"a splat", {Op::kLoadSplat, {0, 0, 1, 1, 4}}},
      {"a stride", {Op::kLoadStrided, {0, 0, 2, 1, 0, 2}}},
      {"a huge stride", {Op::kLoadStrided, {0, 0, 1, 1, 0, 3}}},
      {"a negative stride", {Op::kLoadStrided, {0, 0, 1, 1, 0, 4}}},
      {"the valid part", {Op::kLoadMasked, {0, 0, 1, 1, 1, 3, 0}}},
      {"the valid strided part", {Op::kLoadMaskedStrided, {0, 0, 2, 1, 0, 3, 0, 2}}},
      {"a store", {Op::kStore, {1, 1, 1, 1, 0}}},
      {"a store before", {Op::kStore, {1, 1, 1, -4, 0}}},
      {"a strided store", {Op::kStoreStrided, {1, 1, 1, 0, 0, 3}}},
      {"a masked store", {Op::kStoreMasked, {1, 2, 1, 0, 0, 3}}},
      {"a masked strided store", {Op::kStoreMaskedStrided, {1, 1, 1, 0, 0, 3, 3}}},
      {"empty scratch", {Op::kStore, {2, 1, 1, 0, 0}}},
  };
  for (const Access& a : accesses) {
    PortableKernel k = with_code({{Op::kIndexConst, {2, 1}},
                                  {Op::kIndexConst, {3, huge}},
                                  {Op::kIndexConst, {4, least}},
                                  a.access});
    k.scratch = {{DType::kF32, exec::DimProgram::constant(0)}};
    const Outcome r = run(k);
    EXPECT_EQ(r.error_status, Status::kFatal) << a.what;
    EXPECT_THAT(r.error, AllOf(HasSubstr("kernel k"), HasSubstr("accesses element"))) << a.what;
    if (a.access.op == Op::kStore) {
      EXPECT_THAT(r.y, ElementsAre(-1, -1, -1, -1)) << a.what;
    }
  }
}

TEST(PortableProgramTest, InvalidLanesAreNotTouched) {
  // Nothing valid: the wildest address is not looked at, and the other lanes come through.
  const PortableKernel k = with_code({{Op::kIndexConst, {3, INT64_MAX}},
                                      {Op::kIndexConst, {4, INT64_MIN}},
                                      {Op::kLoadMasked, {0, 0, 3, 3, 0, 4, 0}},
                                      {Op::kLoadMaskedStrided, {0, 0, 3, 3, 0, 1, 0, 3}},
                                      {Op::kStoreMasked, {1, 3, 3, 0, 0, 4}},
                                      {Op::kStore, {1, 1, 1, 0, 0}}});
  EXPECT_THAT(run(k).y, ElementsAre(0, 0, 0, 0));
}

TEST(PortableProgramTest, EndsWithinItsSteps) {
  // 2^63 turns, and loops in loops; each needs its steps.
  for (const int64_t extent : {INT64_MAX, int64_t{1} << 40}) {
    const PortableKernel k = with_code({{Op::kIndexConst, {2, extent}},
                                        {Op::kLoop, {3, 1, 2, 1}},
                                        {Op::kLoop, {4, 1, 2, 1}},
                                        {Op::kIndexConst, {4, 0}},  // cannot prolong the loop
                                        {Op::kEnd, {}},
                                        {Op::kEnd, {}}});
    const Outcome r = run(k);
    EXPECT_EQ(r.error_status, Status::kExhausted);
    EXPECT_THAT(r.error, HasSubstr("more steps"));
  }
  // An extent below 1 is no turn at all; a step may be larger than the extent.
  for (const int64_t extent : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    const PortableKernel k = with_code({{Op::kIndexConst, {2, extent}},
                                        {Op::kLoop, {3, 1, 2, 1}},
                                        {Op::kStore, {1, 1, 1, 0, 1}},
                                        {Op::kEnd, {}}});
    EXPECT_THAT(run(k, 1).y, ElementsAre(-1));
  }
  const PortableKernel once = with_code({{Op::kIndexConst, {2, INT64_MAX}},
                                         {Op::kLoop, {3, 2, 2, INT64_MAX}},
                                         {Op::kStore, {1, 1, 1, 0, 1}},
                                         {Op::kEnd, {}}});
  EXPECT_THAT(run(once, 1).y, ElementsAre(0));
}

TEST(PortableProgramTest, TakesItsStepsFromTheBudget) {
  const PortableKernel k = with_code({{Op::kLoop, {2, 1, 0, 1}}, {Op::kEnd, {}}});
  const exec::KernelContract c = contract();
  const PortableProgram program(k, c, "k");
  PortableFrame frame;
  auto used = [&](int64_t n) {
    WorkMeter meter{1 << 20};
    const int64_t symbols[] = {n};
    const PortableBuffer none[2] = {};
    program.run(none, symbols, nullptr, &frame, &meter);
    return (1 << 20) - static_cast<int64_t>(meter.steps);
  };
  EXPECT_EQ(used(100) - used(0), 100 * (used(1) - used(0)));
  EXPECT_GT(used(1), used(0));
  RunControl control;
  control.begin();
  control.cancel();
  WorkMeter meter{1 << 20, &control};
  const int64_t symbols[] = {1};
  const PortableBuffer none[2] = {};
  EXPECT_THROW(program.run(none, symbols, nullptr, &frame, &meter), Error);
}

// Steps are taken by the slice: also where the last of them begins a new one.
TEST(PortableProgramTest, TheStepsThatItTakesAreEnoughAndOneLessIsNot) {
  const PortableKernel k = with_code({{Op::kLoop, {2, 1, 0, 1}}, {Op::kEnd, {}}});
  const exec::KernelContract c = contract();
  const PortableProgram program(k, c, "k");
  PortableFrame frame;
  const auto left = [&](int64_t n, uint64_t steps) {
    WorkMeter meter{steps};
    const PortableBuffer none[2] = {};
    program.run(none, std::span(&n, 1), nullptr, &frame, &meter);
    return meter.steps;
  };
  constexpr uint64_t kMuch = 4 * WorkMeter::kPollSteps;
  const auto used = [&](int64_t n) { return kMuch - left(n, kMuch); };
  const auto slice = static_cast<int64_t>((WorkMeter::kPollSteps - used(0)) / (used(1) - used(0)));
  for (int64_t n = slice - 3; n <= slice + 3; ++n) {
    EXPECT_EQ(left(n, used(n)), 0u) << n;
    EXPECT_THROW(left(n, used(n) - 1), Error) << n;
  }
}

TEST(PortableProgramTest, ScratchHasLimits) {
  PortableKernel k = with_code({});
  for (const int64_t extent : {INT64_MAX, int64_t{1} << 61, int64_t{1} << 31}) {
    k.scratch = {{DType::kF32, exec::DimProgram::constant(extent)}};
    EXPECT_EQ(run(k).error_status, Status::kExhausted) << extent;
  }
  k.scratch.assign(256, {DType::kF64, exec::DimProgram::constant(int64_t{1} << 28)});
  EXPECT_EQ(run(k).error_status, Status::kExhausted);
  // Up to the last byte.
  const auto bytes_of = [&](int64_t extent) {
    k.scratch = {{DType::kF32, exec::DimProgram::constant(extent)}};
    const int64_t n = 4;
    return PortableProgram(k, contract(), "k").scratch_bytes({&n, 1});
  };
  EXPECT_EQ(bytes_of(int64_t{1} << 30), uint64_t{1} << 32);
  EXPECT_THROW(bytes_of((int64_t{1} << 30) + 1), Error);
  for (const int64_t extent : {int64_t{-1}, INT64_MIN}) {
    k.scratch = {{DType::kF32, exec::DimProgram::constant(extent)}};
    EXPECT_EQ(run(k).error_status, Status::kFatal);
  }
  // n * (2^63 - 1) overflows.
  k.scratch = {
      {DType::kF32,
       {1, 1, {{exec::DimOp::kArg, 0}, {exec::DimOp::kConst, INT64_MAX}, {exec::DimOp::kMul}}}}};
  EXPECT_EQ(run(k).error_status, Status::kFatal);
}

// What is cleared before the first operation is paid for first.
TEST(PortableProgramTest, PaysForTheRegistersThatItClears) {
  PortableKernel k = with_code({});
  k.values.assign(1 << 16, {DType::kF64, 64});  // 32 MiB
  k.indices = 1 << 16;
  EXPECT_EQ(run(k, 4, (1 << 19) + (1 << 13)).error_status, Status::kExhausted);
  EXPECT_EQ(run(k, 4, (1 << 19) + (1 << 13) + 100).error, "");
  exec::DimProgram extent = exec::DimProgram::constant(0);
  for (int i = 0; i < 10000; ++i) {
    extent.code.push_back({exec::DimOp::kConst, 1});
    extent.code.push_back({exec::DimOp::kMul});
  }
  k = with_code({});
  EXPECT_EQ(run(k, 4, 100).error, "");
  k.scratch = {{DType::kF32, extent}};
  EXPECT_EQ(run(k, 4, 1000).error_status, Status::kExhausted);
}

TEST(PortableProgramTest, ItsRegistersCountAgainstTheMemoryLimit) {
  PortableKernel k = with_code({});
  k.values.assign(1 << 14, {DType::kF64, 64});  // 8 MiB
  const PortableProgram program(k, contract(), "k");
  const int64_t symbols[] = {0};
  const PortableBuffer none[2] = {};
  StoragePool pool(device(0), 10 << 20);
  WorkMeter meter{1 << 20, nullptr, &pool};
  {
    PortableFrame frame;
    program.run(none, symbols, nullptr, &frame, &meter);
    EXPECT_THROW(pool.charge(3 << 20), Error);
    program.run(none, symbols, nullptr, &frame, &meter);
    PortableFrame second;
    EXPECT_THROW(program.run(none, symbols, nullptr, &second, &meter), Error);
  }
  pool.charge(10 << 20);  // all of it was given back
  pool.refund(10 << 20);
}

TEST(PortableProgramTest, RegistersAndScratchStartAsZeros) {
  PortableKernel k = with_code(
      {{Op::kStore, {1, 1, 1, 0, 0}}, {Op::kLoad, {1, 2, 1, 1, 2}}, {Op::kStore, {1, 1, 1, 3, 1}}});
  k.scratch = {{DType::kF32, exec::DimProgram::constant(3)}};
  EXPECT_THAT(run(k).y, ElementsAre(0, 0, 0, 0));
}

// --- Arithmetic that C++ leaves undefined --------------------------------------------------------

// An index operation of two numbers, as element [0] of the result cast to f32 via i64.
int64_t index_result(Op op, int64_t a, int64_t b) {
  // i4 = a op b, compared with each candidate's low and high half through f32 exactly: 16 bits at
  // a time.
  std::vector<exec::PortableInstruction> code = {
      {Op::kIndexConst, {2, a}}, {Op::kIndexConst, {3, b}}, {op, {4, 2, 3}}};
  for (int part = 0; part < 4; ++part) {
    code.push_back({Op::kIndexConst, {5, int64_t{1} << 16}});
    code.push_back({Op::kIndexMod, {6, 4, 5}});
    code.push_back({Op::kFromIndex, {2, 6}});
    code.push_back({Op::kCast, {1, 2}});
    code.push_back({Op::kStore, {1, 1, 1, part, 1}});
    code.push_back({Op::kIndexDiv, {4, 4, 5}});
  }
  const Outcome r = run(with_code(code));
  EXPECT_EQ(r.error, "");
  uint64_t v = 0;
  for (int part = 0; part < 4; ++part) v |= static_cast<uint64_t>(r.y[part]) << (16 * part);
  return static_cast<int64_t>(v);
}

TEST(PortableProgramTest, IndexArithmeticIsTotal) {
  EXPECT_EQ(index_result(Op::kIndexMul, INT64_MAX, 2), -2);
  EXPECT_EQ(index_result(Op::kIndexMul, INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(index_result(Op::kIndexDiv, INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(index_result(Op::kIndexDiv, 5, 0), 0);
  EXPECT_EQ(index_result(Op::kIndexDiv, -5, 3), -2);
  EXPECT_EQ(index_result(Op::kIndexMod, INT64_MIN, -1), 0);
  EXPECT_EQ(index_result(Op::kIndexMod, 5, 0), 0);
  EXPECT_EQ(index_result(Op::kIndexMod, -5, 3), 1);
  EXPECT_EQ(index_result(Op::kIndexMod, 5, -3), -1);
  EXPECT_EQ(index_result(Op::kIndexMod, 6, -3), 0);
  EXPECT_EQ(index_result(Op::kIndexMod, -6, 3), 0);
  EXPECT_EQ(index_result(Op::kIndexMin, INT64_MIN, 7), INT64_MIN);
  EXPECT_EQ(index_result(Op::kIndexMax, INT64_MIN, 7), 7);
  EXPECT_EQ(index_result(Op::kIndexBroadcast, 1, 9), 9);
  EXPECT_EQ(index_result(Op::kIndexBroadcast, 6, 9), 6);
  EXPECT_EQ(index_result(Op::kIndexNe, 6, 9), 1);
  EXPECT_EQ(index_result(Op::kIndexAnd, 6, 0), 0);
  EXPECT_EQ(index_result(Op::kIndexAnd, 0, 6), 0);
  EXPECT_EQ(index_result(Op::kIndexAnd, 6, 9), 1);
}

TEST(PortableProgramTest, ConversionsSaturate) {
  for (const auto& [bits, expected] :
       std::vector<std::pair<float, float>>{{NAN, 0.f},
                                            {INFINITY, 2147483648.f},
                                            {-INFINITY, -2147483648.f},
                                            {3e9f, 2147483648.f},
                                            {-1.75f, -1.f}}) {
    const PortableKernel k = with_code({{Op::kConst, {1, std::bit_cast<uint32_t>(bits)}},
                                        {Op::kCast, {3, 1}},
                                        {Op::kCast, {1, 3}},
                                        {Op::kStore, {1, 1, 1, 0, 1}}});
    EXPECT_EQ(run(k).y[0], expected) << bits;
  }
}

// Random code that the verifier accepts: it ends with an answer or an error. The sanitizers see
// whether it did anything else on the way.
TEST(PortableProgramTest, SurvivesAnyCodeThatTheVerifierAccepts) {
  std::mt19937_64 random(20260);
  const exec::KernelContract c = contract();
  PortableKernel base;
  base.indices = 6;
  for (int t = 0; t < kDTypeCount; ++t)
    for (const uint8_t lanes : {1, 4, 16}) base.values.push_back({static_cast<DType>(t), lanes});
  base.scratch = {{DType::kF32, exec::DimProgram::argument(0)},
                  {DType::kI8, exec::DimProgram::constant(9)},
                  {DType::kBool, exec::DimProgram::constant(40)}};
  int accepted = 0, finished = 0;
  for (int trial = 0; trial < 1200; ++trial) {
    PortableKernel k = base;
    size_t open = 0;
    for (int i = 0; i < 60; ++i) {
      // Tries until an instruction fits what the rules ask; blocks are closed at the end.
      for (int attempt = 0; attempt < 200; ++attempt) {
        exec::PortableInstruction in{static_cast<Op>(random() % exec::kPortableOpCount), {}};
        const std::string_view kinds = exec::info_of(in.op).operands;
        for (size_t o = 0; o < kinds.size(); ++o) {
          const bool is_value = kinds[o] == 'V' || kinds[o] == 'W';
          in.operands[o] = is_value ? static_cast<int64_t>(random() % k.values.size())
                           : kinds[o] == 'N'
                               ? (random() % 8 == 0 ? static_cast<int64_t>(random())
                                                    : static_cast<int64_t>(random() % 9))
                               : static_cast<int64_t>(random() % 6);
        }
        if (in.op == Op::kEnd && open == 0) continue;
        k.code.push_back(in);
        const auto fault = exec::verify_portable(k, c);
        if (fault && fault->rule != 11) {
          k.code.pop_back();
          continue;
        }
        if (in.op == Op::kElse) {  // legal or not is a matter of the block: leave it out
          k.code.pop_back();
          continue;
        }
        open += in.op == Op::kLoop || in.op == Op::kIf;
        open -= in.op == Op::kEnd;
        break;
      }
    }
    for (; open > 0; --open) k.code.push_back({Op::kEnd, {}});
    if (exec::verify_portable(k, c)) continue;  // blocks too deep
    ++accepted;
    const Outcome r = run(k, static_cast<int64_t>(random() % 40), 20000);
    EXPECT_NE(r.error_status, Status::kInternal);
    finished += r.error.empty();
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(finished, 40);
  EXPECT_LT(finished, accepted);
}

// --- In a model ----------------------------------------------------------------------------------

constexpr const char* kModel = R"ASM(
kernel "twice" { source "add" symbols n in f32 ([a0]) out f32 ([a0]) scratch [0]
  dispatch { 0: 0 } native "twice" }
function "main" 1 5 {
  ShapeOf r1, 1, r0
  LoadConsti r2, 400
  AllocStorage r2, r2, 64, d0
  LoadConsti r3, 0
  AllocTensorReg r3, r2, r3, f32, (r1)
  InvokePacked k0, (r0, r3)
  Ret r3
}
entry "main" f0 { input "x" f32 ["n"] [-1] output "y" f32 ["n"] [-1] }
)ASM";

exec::Executable model_with(PortableKernel k) {
  exec::Executable e = exec::assemble(kModel);
  const uint8_t junk[] = {1, 2, 3};
  e.images.push_back({"x86-64-v9", {"avx9"}, junk, nullptr});
  e.kernels[0].portable = std::move(k);
  return exec::deserialize(exec::serialize(e));
}

PortableKernel twice() {
  return with_code({{Op::kLoop, {2, 1, 0, 1}},
                    {Op::kLoad, {1, 0, 1, 2, 0}},
                    {Op::kAdd, {1, 1, 1}},
                    {Op::kStore, {1, 1, 2, 0, 1}},
                    {Op::kEnd, {}}});
}

std::vector<float> run_model(const std::shared_ptr<const Model>& model, std::vector<float> x,
                             SessionOptions options = {}) {
  Session session(model, options);
  const int64_t shape[] = {static_cast<int64_t>(x.size())};
  const InputTensor in{x.data(), DType::kF32, shape, {}, true};
  OutputTensor out;
  session.run(0, {&in, 1}, {&out, 1});
  const auto* y = static_cast<const float*>(out.data);
  return {y, y + x.size()};
}

TEST(PortableModelTest, RunsWithoutTrust) {
  const auto model = Model::load(model_with(twice()), LoadOptions{}, "m.nimble");
  EXPECT_TRUE(model->no_native());
  EXPECT_EQ(model->target(), "");
  EXPECT_THAT(model->notes(), ElementsAre(HasSubstr("native code is not used")));
  EXPECT_THAT(run_model(model, {1, 2, 3}), ElementsAre(2, 4, 6));
}

TEST(PortableModelTest, ForeignNativeCodeNamesTheRemedy) {
  try {
    Model::load(model_with(twice()), LoadOptions{true}, "m.nimble");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("lacks avx9"), HasSubstr("--no-native")));
  }
}

// Only a file with code for tile registers asks Linux for them.
TEST(PortableModelTest, AsksForTileRegistersOnlyWhereTheFileHasCodeForThem) {
  if (tile_registers() != TileRegisters::kGranted || !host_cpu().has("amx_tile"))
    GTEST_SKIP() << "this machine lacks AMX, or refuses it";
  EXPECT_EQ(exit_code_of_test("PortableModelTest.DISABLED_WhereTileRegistersAreNotAskedFor"), 0);
}

TEST(PortableModelTest, DISABLED_WhereTileRegistersAreNotAskedFor) {
  exec::Executable e = model_with(twice());
  EXPECT_THAT(run_model(Model::load(e, {}, "m.nimble"), {1, 2, 3}), ElementsAre(2, 4, 6));
  const auto fails = [&] {
    EXPECT_THROW(Model::load(e, LoadOptions{true}, "m.nimble"), Error);  // its code is none
    return has_tile_permission();
  };
  e.images[0].features = {"avx9"};
  EXPECT_FALSE(fails());
  e.images[0].features = {"avx512f"};
  EXPECT_FALSE(fails());
  e.images[0].features = {"avx512f", "amx-int8"};
  EXPECT_TRUE(fails());
}

// What Linux refuses a process is no other machine's: the file runs all the same.
TEST(PortableModelTest, StandsInWhereTileRegistersAreRefused) {
  if (tile_registers() != TileRegisters::kGranted || !host_cpu().has("amx_tile"))
    GTEST_SKIP() << "this machine lacks AMX, or refuses it anyway";
  const int code = refused_exit_code(
      [] { return exit_code_of_test("PortableModelTest.DISABLED_WhereTileRegistersAreRefused"); });
  if (code == kNoRefusal) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(code, 0);
}

TEST(PortableModelTest, DISABLED_WhereTileRegistersAreRefused) {
  ASSERT_EQ(tile_registers(), TileRegisters::kRefused);
  exec::Executable e = model_with(twice());
  const LoadOptions trusted{true};
  const std::vector<std::string> amx = {"avx512f", "amx-bf16", "amx-int8"};
  e.images[0].features = amx;
  const auto model = Model::load(e, trusted, "m.nimble");
  EXPECT_TRUE(model->no_native());
  EXPECT_TRUE(model->trusted());
  EXPECT_EQ(model->target(), "");
  EXPECT_THAT(model->notes(), ElementsAre(HasSubstr("Linux refuses this process")));
  EXPECT_THAT(run_model(model, {1, 2, 3}), ElementsAre(2, 4, 6));
  const auto fails = [&](const exec::Executable& file) -> std::string {
    try {
      Model::load(file, trusted, "m.nimble");
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  // Another image that fits is taken ahead of portable forms; this one is none.
  exec::Executable both = e;
  both.images.push_back(both.images[0]);
  both.images[1].target = "x86-64-v8";
  both.images[1].features = {"avx512f"};
  EXPECT_THAT(fails(both), HasSubstr("ends early"));
  exec::Executable foreign = e;
  foreign.images[0].features.push_back("avx9");
  EXPECT_THAT(fails(foreign), HasSubstr("lacks amx-bf16, amx-int8, avx9"));
  exec::Executable native = e;
  native.kernels[0].portable.reset();
  EXPECT_THAT(fails(native), HasSubstr("lacks amx-bf16, amx-int8"));
}

TEST(PortableModelTest, WildCodeIsAnErrorOfTheRun) {
  const auto model = Model::load(model_with(with_code({{Op::kStore, {1, 1, 0, 0, 1}}})),
                                 LoadOptions{}, "m.nimble");
  try {
    run_model(model, {1, 2});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kFatal);
    EXPECT_THAT(e.what(), HasSubstr("accesses element 2 of buffer 1, which has 2"));
  }
}

// The seeds of the fuzzer are worth what they reach: each runs to its end.
TEST(PortableModelTest, SeedsOfTheFuzzerRun) {
  for (const auto& [name, e] : fuzz::portable_programs())
    EXPECT_THAT(run_model(Model::load(e, LoadOptions{}, name), {1, 2, 3, 4, 5, 6, 7, 8}),
                ElementsAre(1, 2, 3, 4, 5, 6, 7, 8))
        << name;
}

// Nothing is allocated, let alone cleared, that the fuel does not pay for.
TEST(PortableModelTest, ScratchIsPaidForFirst) {
  PortableKernel k = twice();
  k.scratch = {{DType::kF32, exec::DimProgram::constant(int64_t{1} << 28)}};
  const auto model = Model::load(model_with(k), LoadOptions{}, "m.nimble");
  SessionOptions options;
  options.fuel = 1'000'000;
  Session session(model, options);
  const float x[] = {1, 2};
  const int64_t shape[] = {2};
  const InputTensor in{x, DType::kF32, shape, {}, true};
  OutputTensor out;
  try {
    session.run(0, {&in, 1}, {&out, 1});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kExhausted);
  }
  EXPECT_LT(session.memory().peak, 1u << 20);
}

TEST(PortableModelTest, FuelCoversKernels) {
  const auto model = Model::load(model_with(twice()), LoadOptions{}, "m.nimble");
  SessionOptions options;
  options.fuel = 100;
  EXPECT_THAT(run_model(model, {1, 2}, options), ElementsAre(2, 4));
  try {
    run_model(model, std::vector<float>(50, 1), options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kExhausted);
  }
}

}  // namespace
}  // namespace nimble::rt
