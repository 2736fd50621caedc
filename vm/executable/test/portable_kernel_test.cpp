// Bytes, text and rules of portable kernels. What accepted kernels do is tested in
// vm/interpreter/test/portable_kernel_test.cpp.
#include "vm/executable/portable_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

#include "vm/base/error.h"
#include "vm/executable/reader.h"
#include "vm/executable/test/sample.h"
#include "vm/executable/verifier_rules.h"
#include "vm/executable/writer.h"

namespace nimble::exec {
namespace {

using ::testing::HasSubstr;
using Op = PortableOp;

std::vector<uint8_t> bytes_of(const PortableKernel& k) {
  ByteWriter out;
  encode(k, &out);
  return out.take();
}

PortableKernel kernel_of(std::span<const uint8_t> bytes) {
  ByteReader in(bytes, "test");
  PortableKernel k = decode_portable(&in);
  in.expect_end();
  return k;
}

const KernelContract& contract() {
  static const KernelContract c = sample().kernels[0].contract;
  return c;
}

TEST(PortableKernelTest, SurvivesItsBytes) {
  const PortableKernel k = sample_portable();
  EXPECT_EQ(kernel_of(bytes_of(k)), k);
  // Every operation, with operands of any size that its row allows.
  PortableKernel all;
  all.indices = 1;
  for (int op = 0; op < kPortableOpCount; ++op) {
    PortableInstruction in{static_cast<Op>(op), {}};
    const std::string_view kinds = info_of(in.op).operands;
    for (size_t i = 0; i < kinds.size(); ++i)
      in.operands[i] = kinds[i] == 'N' ? INT64_MIN + op : int64_t{UINT32_MAX} - op;
    all.code.push_back(in);
  }
  EXPECT_EQ(kernel_of(bytes_of(all)), all);
}

TEST(PortableKernelTest, IsPartOfTheFile) {
  const Executable e = sample();
  const Executable back = deserialize(serialize(e));
  ASSERT_TRUE(back.kernels[0].portable.has_value());
  EXPECT_EQ(*back.kernels[0].portable, *e.kernels[0].portable);
  EXPECT_FALSE(back.kernels[1].portable.has_value());
}

TEST(PortableKernelTest, BytesCutShortAreRefused) {
  const std::vector<uint8_t> good = bytes_of(sample_portable());
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_THROW(kernel_of(std::span(good).first(n)), Error) << n;
  std::vector<uint8_t> newer = good;
  newer[0] = kPortableVersion + 1;
  EXPECT_THROW(kernel_of(newer), Error);
}

// Any bytes: the reader, then the verifier and the printer, end with an answer.
TEST(PortableKernelTest, SurvivesDamage) {
  const std::vector<uint8_t> good = bytes_of(sample_portable());
  std::mt19937_64 random(5);
  int read = 0, sound = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<uint8_t> bytes = good;
    for (uint64_t edits = 1 + random() % 3; edits > 0; --edits)
      bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    try {
      const PortableKernel k = kernel_of(bytes);
      ++read;
      EXPECT_FALSE(disassemble(k, contract()).empty());
      if (!verify_portable(k, contract())) {
        ++sound;
        EXPECT_EQ(kernel_of(bytes_of(k)), k);
      }
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kCorrupt);
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(sound, 100);
  EXPECT_LT(sound, read);
}

TEST(PortableKernelTest, Text) {
  EXPECT_EQ(disassemble(sample_portable(), contract()),
            "5 index slots, symbols (m, b*n); 4 values: v0..v0 f32x8, v1..v1 f32x1, "
            "v2..v2 boolx8, v3..v3 i64x1\n"
            "scratch s0 f32 [a0 * 3]\n"
            "  i2 = IndexConst 0\n"
            "  i3 = Loop i2, i0, 8\n"
            "    i4 = IndexMulAdd i0, i3, -1\n"
            "    v0 = Const 1065353216\n"
            "    v0 = LoadMasked b0 [i2 + i3 + 0], i4, v0\n"
            "    v0 = Fma v0, v0, v0\n"
            "    v2 = Lt v0, v0\n"
            "    StoreMasked s0 [i2 + i3 + 0], v0, i4\n"
            "    i4 = IndexLt i3, i1\n"
            "    Check i4, 1\n"
            "    If i4\n"
            "      v1 = ReduceAdd v0\n"
            "    Else\n"
            "      v1 = Extract v0, 7\n"
            "    End\n"
            "    Store b2 [i2 + i2 + 0], v1\n"
            "  End\n"
            "  v3 = FromIndex i1\n");
}

// --- Rules ---------------------------------------------------------------------------------------

struct Wrong {
  int rule;
  std::string text;  // part of the message
  std::function<void(PortableKernel&)> damage;
};

// Puts an instruction before all others.
std::function<void(PortableKernel&)> first(Op op, std::array<int64_t, kPortableOperands> operands) {
  return [=](PortableKernel& k) { k.code.insert(k.code.begin(), {op, operands}); };
}
std::function<void(PortableKernel&)> value(DType t, int lanes) {
  return [=](PortableKernel& k) { k.values.push_back({t, static_cast<uint8_t>(lanes)}); };
}
std::function<void(PortableKernel&)> with(std::vector<std::function<void(PortableKernel&)>> all) {
  return [=](PortableKernel& k) {
    for (const auto& f : all) f(k);
  };
}

// Registers of the sample: v0 f32x8, v1 f32, v2 boolx8, v3 i64; the next is v4.
const std::vector<Wrong>& wrongs() {
  static const std::vector<Wrong> kWrongs = {
      {1, "index slots", [](auto& k) { k.indices = kMaxPortableIndices + 1; }},
      {1, "values", [](auto& k) { k.values.resize(kMaxPortableValues + 1); }},
      {1, "scratch", [](auto& k) { k.scratch.resize(kMaxPortableScratch + 1); }},
      {1, "instructions", [](auto& k) { k.code.resize(kMaxPortableCode + 1); }},
      {2, "1 index slots for 2 symbols", [](auto& k) { k.indices = 1; }},
      {2, "writes i1", first(Op::kIndexConst, {1, 7})},
      {3, "i5 of 5", first(Op::kIndexConst, {5, 7})},
      {3, "i-1 of 5", first(Op::kIf, {-1})},
      {3, "of 5", first(Op::kIndexMul, {2, 2, int64_t{1} << 40})},
      {4, "v4 of 4", first(Op::kCopy, {0, 4})},
      {4, "v-9 of 4", first(Op::kCopy, {-9, 0})},
      {4, "3 lanes", value(DType::kF32, 3)},
      {4, "0 lanes", value(DType::kF32, 0)},
      {4, "128 lanes", value(DType::kF32, 128)},
      {5, "s0", [](auto& k) { k.scratch[0].extent.code.pop_back(); }},
      {5, "3 values", [](auto& k) { k.scratch[0].extent.arguments = 3; }},
      {6, "buffer 4 of 4", first(Op::kLoad, {0, 4, 2, 2, 0})},
      {6, "buffer -1", first(Op::kStore, {-1, 2, 2, 0, 0})},
      {7, "stores into b0", first(Op::kStore, {0, 2, 2, 0, 0})},
      {8, "Add of bool", first(Op::kAdd, {2, 2, 2})},
      {8, "Mod of f32", first(Op::kMod, {0, 0, 0})},
      {8, "And of f32", first(Op::kAnd, {0, 0, 0})},
      {8, "Sqrt of i64", first(Op::kSqrt, {3, 3})},
      {8, "Copy of i64 and f32", first(Op::kCopy, {3, 1})},
      {8, "Lt of f32", first(Op::kLt, {0, 0, 0})},
      {8, "Select of i64", first(Op::kSelect, {3, 3, 3, 3})},
      {8, "Bitcast", first(Op::kBitcast, {1, 3})},
      {8, "Broadcast", first(Op::kBroadcast, {0, 3})},
      {8, "Iota", first(Op::kIota, {0})},
      {8, "FromIndex", first(Op::kFromIndex, {1, 2})},
      {8, "IndexOf", first(Op::kIndexOf, {2, 1})},
      {8, "buffer of f32", first(Op::kLoad, {3, 0, 2, 2, 0})},
      {8, "Add of f16", with({value(DType::kF16, 1), first(Op::kAdd, {4, 4, 4})})},
      {8, "Eq of bf16", with({value(DType::kBF16, 8), first(Op::kEq, {2, 4, 4})})},
      {8, "dtype 99", [](auto& k) { k.values[0].dtype = static_cast<DType>(99); }},
      {8, "dtype 99", [](auto& k) { k.scratch[0].dtype = static_cast<DType>(99); }},
      {9, "Add of 8 and 1 lanes", first(Op::kAdd, {0, 0, 1})},
      {9, "Cast of 1 to 8", first(Op::kCast, {0, 3})},
      {9, "Broadcast of 8 to 1", first(Op::kBroadcast, {1, 0})},
      {9, "ReduceAdd of 8 to 8", first(Op::kReduceAdd, {0, 0})},
      {9, "Lt of 1 to 8", first(Op::kLt, {2, 1, 1})},
      {9, "FromIndex", with({value(DType::kI64, 2), first(Op::kFromIndex, {4, 2})})},
      {9, "IndexOf", with({value(DType::kI64, 2), first(Op::kIndexOf, {2, 4})})},
      {9, "LoadMasked of 8 and 1", first(Op::kLoadMasked, {0, 0, 2, 2, 0, 2, 1})},
      {10, "lane 8 of 8", first(Op::kExtract, {1, 0, 8})},
      {10, "lane -1 of 8", first(Op::kExtract, {1, 0, -1})},
      {10, "steps of 0", first(Op::kLoop, {2, 2, 2, 0})},
      {10, "steps of -1", first(Op::kLoop, {2, 2, 2, -1})},
      {10, "status 0", first(Op::kCheck, {2, 0})},
      {10, "status", first(Op::kCheck, {2, int64_t{1} << 31})},
      {10, "bits 0x2 of a bool", first(Op::kConst, {2, 2})},
      {10, "of a f32", first(Op::kConst, {0, int64_t{1} << 32})},
      {11, "are open", first(Op::kIf, {2})},
      {11, "Else without", first(Op::kElse, {})},
      {11, "End without", first(Op::kEnd, {})},
      {11, "Else without", with({first(Op::kElse, {}), first(Op::kLoop, {2, 2, 2, 1})})},
      {11, "64 blocks", [](auto& k) { k.code.assign(65, {Op::kIf, {2}}); }},
      {12, "operation 255", first(static_cast<Op>(255), {})},
  };
  return kWrongs;
}

TEST(PortableKernelTest, RulesReject) {
  std::set<PortableFault> tested;
  for (const Wrong& w : wrongs()) {
    PortableKernel k = sample_portable();
    ASSERT_FALSE(verify_portable(k, contract()).has_value());
    w.damage(k);
    const auto fault = verify_portable(k, contract());
    ASSERT_TRUE(fault.has_value()) << w.text;
    EXPECT_EQ(fault->rule, w.rule) << fault->message;
    EXPECT_THAT(fault->message, HasSubstr(w.text));
    tested.insert(fault->fault);
  }
  // Every place that reports has a fault of its own.
  for (int i = 0; i < kPortableFaultCount; ++i)
    EXPECT_TRUE(tested.contains(static_cast<PortableFault>(i))) << kPortableFaults[i].name;
  EXPECT_TRUE(portable_rule_sentence(kPortableRuleCount + 1).empty());
}

}  // namespace
}  // namespace nimble::exec
