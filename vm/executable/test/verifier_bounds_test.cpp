// Both sides of each bound of the verifiers: what lies on it is accepted, the next value is
// refused. scripts/mutate-verifier tells which are missing.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "vm/executable/opcodes.h"
#include "vm/executable/test/prelude.h"
#include "vm/executable/test/sample.h"
#include "vm/executable/verifier.h"

namespace nimble::exec {
namespace {

constexpr auto kLastDType = static_cast<DType>(kDTypeCount - 1);
constexpr auto kNoDType = static_cast<DType>(kDTypeCount);

std::string faults_of(const std::vector<Violation>& found) {
  std::string names;
  for (const Violation& v : found)
    names += (names.empty() ? "" : " ") + std::string(info_of(v.fault).name);
  return names;
}
std::string faults_of(const std::string& text) {
  return faults_of(find_violations(with_prelude(text)));
}
// Of the sample after some damage.
std::string faults_after(const std::function<void(Executable&)>& damage) {
  Executable e = sample();
  damage(e);
  return faults_of(find_violations(e));
}
std::string name_of_fault(Fault fault) {
  return std::string(info_of(fault).name);
}

std::string times(int n, const std::string& text) {
  std::string out;
  for (int i = 0; i < n; ++i) out += (i ? ", " : "") + text;
  return out;
}

TEST(VerifierBounds, Ranks) {
  const auto function = [](const std::string& code) {
    return "function \"f\" 2 10 { " + code + "  Ret r0 }";
  };
  const auto alloc = [&](int rank) {
    return function("AllocTensor r0, r0, r1, f32, [" + times(rank, "1") + "]");
  };
  const auto alloc_reg = [&](int rank) {
    return function("AllocTensorReg r0, r0, r1, f32, (" + times(rank, "r1") + ")");
  };
  const auto reshape = [&](int rank) {
    return function("ReshapeTensor r0, r0, (" + times(rank, "r1") + ")");
  };
  const auto shape_of = [&](int rank) {
    return function("ShapeOf r1, " + std::to_string(rank) + ", r0");
  };
  EXPECT_EQ(faults_of(alloc(kMaxRank)), "");
  EXPECT_EQ(faults_of(alloc(kMaxRank + 1)), name_of_fault(Fault::kBadShape));
  EXPECT_EQ(faults_of(alloc_reg(kMaxRank)), "");
  EXPECT_EQ(faults_of(alloc_reg(kMaxRank + 1)), name_of_fault(Fault::kBadTensorRank));
  EXPECT_EQ(faults_of(reshape(kMaxRank)), "");
  EXPECT_EQ(faults_of(reshape(kMaxRank + 1)), name_of_fault(Fault::kBadReshapeRank));
  EXPECT_EQ(faults_of(shape_of(0)), "");
  EXPECT_EQ(faults_of(shape_of(kMaxRank)), "");
  EXPECT_EQ(faults_of(shape_of(kMaxRank + 1)), name_of_fault(Fault::kBadShapeOfRank));
  // The registers that the extents go to, up to the last.
  EXPECT_EQ(faults_of("function \"f\" 1 9 { ShapeOf r1, 8, r0  Ret r0 }"), "");
  EXPECT_EQ(faults_of("function \"f\" 1 8 { ShapeOf r1, 8, r0  Ret r0 }"),
            name_of_fault(Fault::kResultsBeyondRegisters));

  const auto ranks = [](auto of) {
    EXPECT_EQ(faults_after([&](Executable& e) { of(e, kMaxRank); }), "");
    return faults_after([&](Executable& e) { of(e, kMaxRank + 1); });
  };
  EXPECT_EQ(ranks([](Executable& e, int rank) {
              e.kernels[1].contract.arguments[0].dims.assign(static_cast<size_t>(rank),
                                                             DimProgram::constant(1));
            }),
            name_of_fault(Fault::kUnknownArgument));
  EXPECT_EQ(ranks([](Executable& e, int rank) {
              e.constants[5].shape.assign(static_cast<size_t>(rank), 0);
            }),
            name_of_fault(Fault::kConstantShape));
  EXPECT_EQ(ranks([](Executable& e, int rank) {
              e.types[3].dims.assign(static_cast<size_t>(rank), "n");
              e.types[3].extents.assign(static_cast<size_t>(rank), -1);
            }),
            name_of_fault(Fault::kTypeDims));
  EXPECT_EQ(ranks([](Executable& e, int rank) {
              e.entries[0].inputs[0].dims.assign(static_cast<size_t>(rank), "n");
              e.entries[0].inputs[0].extents.assign(static_cast<size_t>(rank), -1);
            }),
            name_of_fault(Fault::kPortDims));
}

TEST(VerifierBounds, Immediates) {
  const auto tag = [](const std::string& n) {
    return faults_of("function \"f\" 1 1 { AllocADT r0, " + n + ", ()  Ret r0 }");
  };
  EXPECT_EQ(tag("0"), "");
  EXPECT_EQ(tag("2147483647"), "");
  EXPECT_EQ(tag("2147483648"), name_of_fault(Fault::kBadTag));
  const auto field = [](const std::string& n) {
    return faults_of("function \"f\" 1 1 { GetField r0, r0, " + n + "  Ret r0 }");
  };
  EXPECT_EQ(field("2147483647"), "");
  EXPECT_EQ(field("2147483648"), name_of_fault(Fault::kBadField));
  const auto alignment = [](const std::string& n) {
    return faults_of("function \"f\" 1 1 { LoadConsti r0, 1  AllocStorage r0, r0, " + n +
                     ", d0  Ret r0 }");
  };
  EXPECT_EQ(alignment("1"), "");
  EXPECT_EQ(alignment("2097152"), "");
  EXPECT_EQ(alignment("4194304"), name_of_fault(Fault::kBadAlignment));
  const auto registers = [](const std::string& n) {
    return faults_of("function \"f\" 1 " + n + " { Ret r0 }");
  };
  EXPECT_EQ(registers("1048576"), "");
  EXPECT_EQ(registers("1048577"), name_of_fault(Fault::kTooManyRegisters));
}

TEST(VerifierBounds, AClosureMayHoldEveryArgument) {
  EXPECT_EQ(faults_of("function \"f\" 1 1 { AllocClosure r0, f\"callee\", (r0, r0)  Ret r0 }"), "");
  EXPECT_EQ(faults_of("function \"f\" 1 1 { AllocClosure r0, f\"callee\", (r0, r0, r0)  Ret r0 }"),
            name_of_fault(Fault::kClosureCaptures));
}

// One message each, though several checks come by what is out of range.
TEST(VerifierBounds, WhatIsOutOfRangeIsToldOnce) {
  const auto prepended = [](Opcode op, std::vector<int64_t> operands) {
    return faults_after([&](Executable& e) {
      std::vector<Instruction>& code = e.functions[0].code;
      code.insert(code.begin(), Instruction{op, operands});
    });
  };
  const int64_t functions = static_cast<int64_t>(sample().functions.size()),
                scalars = static_cast<int64_t>(sample().scalar_functions.size());
  const std::string no_register = name_of_fault(Fault::kNoSuchRegister),
                    no_function = name_of_fault(Fault::kNoSuchFunction);
  EXPECT_EQ(prepended(Opcode::kMove, {-1, 0}), no_register);
  EXPECT_EQ(prepended(Opcode::kMove, {0, INT64_MIN}), no_register);
  EXPECT_EQ(prepended(Opcode::kMove, {12, 0}), no_register);
  EXPECT_EQ(prepended(Opcode::kShapeOf, {-1, 8, 0}), no_register);
  EXPECT_EQ(prepended(Opcode::kInvoke, {0, -1, 0}), no_function);
  EXPECT_EQ(prepended(Opcode::kInvoke, {0, functions + scalars, 0}), no_function);
  EXPECT_EQ(prepended(Opcode::kAllocClosure, {0, -1, 0}),
            no_function + " " + name_of_fault(Fault::kClosureOfNoBytecode));
  EXPECT_EQ(prepended(Opcode::kAllocClosure, {0, functions, 0}),
            name_of_fault(Fault::kClosureOfNoBytecode));
  EXPECT_EQ(prepended(Opcode::kAllocTensor, {0, 0, 0, -1, 0}), name_of_fault(Fault::kNoSuchDType));
  EXPECT_EQ(prepended(Opcode::kAllocTensor, {0, 0, 0, kDTypeCount, 0}),
            name_of_fault(Fault::kNoSuchDType));
  for (const int64_t dtype : {-1, kDTypeCount})
    EXPECT_EQ(prepended(Opcode::kAllocTensor, {0, 0, 0, dtype, 1, -1}),
              name_of_fault(Fault::kNoSuchDType));
  EXPECT_EQ(prepended(Opcode::kShapeOf, {99, 0, 0}), no_register);
  EXPECT_EQ(prepended(Opcode::kShapeOf, {12, 1, 0}),
            no_register + " " + name_of_fault(Fault::kResultsBeyondRegisters));
  EXPECT_EQ(prepended(Opcode::kAllocTensor, {0, 0, 0, kDTypeCount - 1, 1, -1}),
            name_of_fault(Fault::kBadShape));
  EXPECT_EQ(prepended(Opcode::kAllocTensor, {0, 0, 0, 0, 1, -1}), name_of_fault(Fault::kBadShape));
  EXPECT_EQ(faults_after([](Executable& e) {
              e.functions[0].code.push_back({static_cast<Opcode>(kOpcodeCount), {}});
            }),
            name_of_fault(Fault::kBadOperands));
}

// The registers that an instruction's results go to, of a frame of two.
TEST(VerifierBounds, RunsOfResults) {
  const auto shape_of = [](int64_t first, int64_t rank) {
    Executable e = with_prelude("function \"f\" 1 2 { Ret r0 }");
    std::vector<Instruction>& code = e.functions[0].code;
    code.insert(code.begin(), Instruction{Opcode::kShapeOf, {first, rank, 0}});
    return faults_of(find_violations(e));
  };
  const std::string beyond = name_of_fault(Fault::kResultsBeyondRegisters);
  EXPECT_EQ(shape_of(0, 2), "");
  EXPECT_EQ(shape_of(0, 3), beyond);
  EXPECT_EQ(shape_of(1, 1), "");
  EXPECT_EQ(shape_of(1, 2), beyond);
  EXPECT_EQ(shape_of(-1, 8), name_of_fault(Fault::kNoSuchRegister));
  EXPECT_EQ(shape_of(1, 9), name_of_fault(Fault::kBadShapeOfRank));
}

TEST(VerifierBounds, Notes) {
  const auto notes = [](std::vector<uint32_t> at) {
    return faults_after([&](Executable& e) {
      BytecodeFunction& f = e.functions[0];
      f.notes.resize(at.size(), f.notes[0]);
      for (size_t i = 0; i < at.size(); ++i) f.notes[i].instruction = at[i];
    });
  };
  const auto end = static_cast<uint32_t>(sample().functions[0].code.size());
  EXPECT_EQ(notes({0, 0, end - 1}), "");
  EXPECT_EQ(notes({end}), name_of_fault(Fault::kNotePlace));
  EXPECT_EQ(notes({3, 2}), name_of_fault(Fault::kNotePlace));
  EXPECT_EQ(notes({2, 3}), "");
}

TEST(VerifierBounds, KernelsAndConstants) {
  EXPECT_EQ(
      faults_after([](Executable& e) { e.kernels[1].contract.arguments[0].dtype = kLastDType; }),
      "");
  EXPECT_EQ(
      faults_after([](Executable& e) { e.kernels[1].contract.arguments[0].dtype = kNoDType; }),
      name_of_fault(Fault::kUnknownArgument));
  EXPECT_EQ(faults_after([](Executable& e) { e.kernels[1].device = 255; }), "");
  EXPECT_EQ(faults_after([](Executable& e) { e.kernels[1].device = 256; }),
            name_of_fault(Fault::kBadDevice));
  EXPECT_EQ(faults_after([](Executable& e) { e.kernels[1].device = -1; }),
            name_of_fault(Fault::kBadDevice));
  EXPECT_EQ(faults_after([](Executable& e) { e.kernels[1].implementations[0].max_threads = 0; }),
            "");
  EXPECT_EQ(faults_after([](Executable& e) { e.kernels[0].dispatch.nodes[2].feature.t = 1; }), "");
  EXPECT_EQ(faults_after([](Executable& e) { e.constants[0].dtype = kNoDType; }),
            name_of_fault(Fault::kConstantDType));
  EXPECT_EQ(faults_of("constant \"last\" f64 [1] { 1 }"), "");
  // A program that is malformed is told so, once.
  EXPECT_EQ(faults_after([](Executable& e) {
              e.kernels[1].contract.requirements = {{0, 2, {{DimOp::kConst, 1}}}};
            }),
            name_of_fault(Fault::kDimResults));
  // A fault of the contract is not told again of the portable form, which is seen in its light.
  const std::string faults =
      faults_after([](Executable& e) { e.kernels[0].contract.arguments[0].dtype = kNoDType; });
  EXPECT_TRUE(faults.starts_with(name_of_fault(Fault::kUnknownArgument))) << faults;
  EXPECT_EQ(faults.find(name_of_fault(Fault::kPortableUnsound)), std::string::npos) << faults;
  // Surplus axes are native code's to take.
  EXPECT_EQ(faults_of("kernel \"x\" { symbols m  in rows u8 ([a0])  scratch [0]  "
                      "dispatch { 0: 0 }  native \"n\" }"),
            "");
  // A scalar and a symbol that the next dims read.
  EXPECT_EQ(faults_of("kernel \"x\" { symbols m n  scalar n  in f32 ([a0], [a1])  "
                      "require [a0 a1 <=]  scratch [a0 a2 *]  dispatch { 0: 0 }  native \"n\" }"),
            "");
}

TEST(VerifierBounds, TensorMaps) {
  const auto after = [](const std::function<void(Launch&, TensorMap&)>& damage) {
    return faults_after([&](Executable& e) {
      Launch& l = *e.kernels[4].implementations[0].launch;
      TensorMap m = l.maps.at(0);
      damage(l, m);
      if (!l.maps.empty()) l.maps[0] = m;
    });
  };
  EXPECT_EQ(after([](Launch&, TensorMap&) {}), "");
  EXPECT_EQ(after([](Launch& l, TensorMap& m) { l.maps.resize(Launch::kMaxMaps, m); }), "");
  EXPECT_EQ(after([](Launch& l, TensorMap& m) { l.maps.resize(Launch::kMaxMaps + 1, m); }),
            name_of_fault(Fault::kMapsMany));
  EXPECT_EQ(after([](Launch& l, TensorMap&) { l.alignment = 8; }),
            name_of_fault(Fault::kMapsAlignment));
  EXPECT_EQ(after([](Launch& l, TensorMap&) {
              l.alignment = 8;
              l.maps.clear();
            }),
            "");
  EXPECT_EQ(after([](Launch&, TensorMap& m) { m.argument = 1; }),
            name_of_fault(Fault::kMapArgument));  // written
  EXPECT_EQ(after([](Launch&, TensorMap& m) { m.argument = 2; }),
            name_of_fault(Fault::kMapArgument));
  EXPECT_EQ(after([](Launch&, TensorMap& m) { m.axes.clear(); }), name_of_fault(Fault::kMapRank));
  EXPECT_EQ(after([](Launch&, TensorMap& m) { m.axes.resize(1); }), "");
  EXPECT_EQ(after([](Launch&, TensorMap& m) { m.axes.resize(TensorMap::kMaxRank, m.axes[1]); }),
            "");
  EXPECT_EQ(after([](Launch&, TensorMap& m) { m.axes.resize(TensorMap::kMaxRank + 1, m.axes[1]); }),
            name_of_fault(Fault::kMapRank));
  for (const uint32_t box : {1u, TensorMap::kMaxBox})
    EXPECT_EQ(after([&](Launch&, TensorMap& m) { m.axes[1].box = box; }), "");
  for (const uint32_t box : {0u, TensorMap::kMaxBox + 1})
    EXPECT_EQ(after([&](Launch&, TensorMap& m) { m.axes[1].box = box; }),
              name_of_fault(Fault::kMapBox));
  for (const uint32_t box : {8u, 16u, 32u})
    EXPECT_EQ(after([&](Launch&, TensorMap& m) { m.axes[0].box = box; }), "");
  for (const uint32_t box : {4u, 7u, 9u, 64u})
    EXPECT_EQ(after([&](Launch&, TensorMap& m) { m.axes[0].box = box; }),
              name_of_fault(Fault::kMapLine));
}

TEST(VerifierBounds, TypesAndPorts) {
  const auto type = [](int index, const std::function<void(ValueType&)>& damage) {
    return faults_after([&](Executable& e) { damage(e.types[static_cast<size_t>(index)]); });
  };
  EXPECT_EQ(type(3, [](ValueType& t) { t.dtype = kLastDType; }), "");
  EXPECT_EQ(type(3, [](ValueType& t) { t.dtype = kNoDType; }), name_of_fault(Fault::kTypeKind));
  EXPECT_EQ(type(0, [](ValueType& t) { t.dtype = DType::kBool; }), "");
  EXPECT_EQ(type(0, [](ValueType& t) { t.dtype = DType::kI32; }),
            name_of_fault(Fault::kTypeScalar));
  EXPECT_EQ(type(2,
                 [](ValueType& t) {
                   t.dims = {"n"};
                   t.extents = {-1};
                 }),
            name_of_fault(Fault::kTypeDims));
  EXPECT_EQ(type(3, [](ValueType& t) { t.extents = {0, 0}; }), "");
  EXPECT_EQ(type(0, [](ValueType& t) { t.constructors.resize(1); }),
            name_of_fault(Fault::kTypeConstructors));

  const auto input = [](const std::function<void(Port&)>& damage) {
    return faults_after([&](Executable& e) { damage(e.entries[0].inputs[0]); });
  };
  const auto types = static_cast<int32_t>(sample().types.size());
  EXPECT_EQ(input([](Port& p) { p.name = ""; }), name_of_fault(Fault::kPortName));
  EXPECT_EQ(input([](Port& p) { p.type = -2; }), name_of_fault(Fault::kPortType));
  EXPECT_EQ(input([&](Port& p) {
              p.type = types;
              p.dims.clear();
              p.extents.clear();
            }),
            name_of_fault(Fault::kPortType));
  EXPECT_EQ(input([&](Port& p) {
              p.type = types - 1;
              p.dims.clear();
              p.extents.clear();
            }),
            "");
  EXPECT_EQ(input([](Port& p) { p.type = 0; }), name_of_fault(Fault::kPortTyped));
  EXPECT_EQ(input([](Port& p) { p.dtype = kLastDType; }), "");
  EXPECT_EQ(input([](Port& p) { p.dtype = kNoDType; }), name_of_fault(Fault::kPortDims));
  EXPECT_EQ(input([](Port& p) { p.extents[1] = 0; }), "");
  EXPECT_EQ(faults_after([](Executable& e) { e.entries[0].name = ""; }),
            name_of_fault(Fault::kEntryName));
  EXPECT_EQ(faults_after([](Executable& e) {
              e.entries[0].function = static_cast<uint32_t>(e.functions.size());
            }),
            name_of_fault(Fault::kEntryFunction));
}

TEST(VerifierBounds, NoMoreMessagesThanAskedFor) {
  Executable e = sample();
  for (ScalarFunction& f : e.scalar_functions) f.program.code.clear();
  for (Kernel& k : e.kernels) k.name = "";
  ASSERT_GT(find_violations(e).size(), 5u);
  for (size_t limit = 1; limit <= 5; ++limit) EXPECT_EQ(find_violations(e, limit).size(), limit);
}

// --- Portable kernels ---------------------------------------------------------------------------

std::string portable_fault(const std::function<void(PortableKernel&)>& change) {
  static const KernelContract contract = sample().kernels[0].contract;
  PortableKernel k = sample_portable();
  change(k);
  const auto fault = verify_portable(k, contract);
  return fault ? std::string(info_of(fault->fault).name) : "";
}
std::string name_of_fault(PortableFault fault) {
  return std::string(info_of(fault).name);
}
// Registers v4 and on, and an instruction before all others.
std::string portable_fault(std::vector<PortableValue> values, PortableOp op,
                           std::array<int64_t, kPortableOperands> operands) {
  return portable_fault([&](PortableKernel& k) {
    k.values.insert(k.values.end(), values.begin(), values.end());
    k.code.insert(k.code.begin(), {op, operands});
  });
}

TEST(VerifierBounds, PortableSizes) {
  EXPECT_EQ(portable_fault([](auto& k) { k.indices = kMaxPortableIndices; }), "");
  EXPECT_EQ(portable_fault([](auto& k) {
              k.values.resize(kMaxPortableValues, {DType::kF32, 1});
            }),
            "");
  EXPECT_EQ(portable_fault([](auto& k) { k.scratch.resize(kMaxPortableScratch, k.scratch[0]); }),
            "");
  EXPECT_EQ(portable_fault([](auto& k) {
              k.code.resize(kMaxPortableCode, {PortableOp::kIndexConst, {2, 0}});
            }),
            "");
  EXPECT_EQ(portable_fault([](auto& k) {
              k.indices = 2;
              k.code = {{PortableOp::kCheck, {1, 1}}};
            }),
            "");
  EXPECT_EQ(portable_fault([](auto& k) {
              k.code.assign(kMaxPortableDepth, {PortableOp::kIf, {2}});
              k.code.resize(2 * kMaxPortableDepth, {PortableOp::kEnd, {}});
            }),
            "");
  EXPECT_EQ(portable_fault([](auto& k) { k.values[1].dtype = kNoDType; }),
            name_of_fault(PortableFault::kValueDType));
  EXPECT_EQ(portable_fault([](auto& k) { k.scratch[0].dtype = kNoDType; }),
            name_of_fault(PortableFault::kScratchDType));
  EXPECT_EQ(portable_fault([](auto& k) {
              k.scratch.push_back({kLastDType, DimProgram::constant(1)});
              k.values.push_back({kLastDType, kMaxPortableLanes});
            }),
            "");
  EXPECT_EQ(portable_fault([](auto& k) {
              k.scratch[0].extent = {0, 2, {{DimOp::kConst, 1}, {DimOp::kConst, 1}}};
            }),
            name_of_fault(PortableFault::kScratchExtent));
  EXPECT_EQ(portable_fault({}, static_cast<PortableOp>(kPortableOpCount), {}),
            name_of_fault(PortableFault::kUnknownOperation));
}

TEST(VerifierBounds, PortableOperands) {
  using Op = PortableOp;
  const std::string dtype = name_of_fault(PortableFault::kOperandDType),
                    lanes = name_of_fault(PortableFault::kResultLanes);
  EXPECT_EQ(portable_fault({}, Op::kIndexConst, {-1, 0}),
            name_of_fault(PortableFault::kNoSuchSlot));
  EXPECT_EQ(portable_fault({}, Op::kIndexConst, {2, 0}), "");
  EXPECT_EQ(portable_fault({}, Op::kIndexConst, {4, 0}), "");
  for (const DType t : {DType::kF32, DType::kF64, DType::kI8, DType::kU64})
    EXPECT_EQ(portable_fault({{t, 1}}, Op::kAdd, {4, 4, 4}), "") << name_of(t);
  for (const DType t : {DType::kF16, DType::kBF16, DType::kBool})
    EXPECT_EQ(portable_fault({{t, 1}}, Op::kAdd, {4, 4, 4}), dtype) << name_of(t);
  for (const DType t : {DType::kF32, DType::kF64})
    EXPECT_EQ(portable_fault({{t, 1}}, Op::kSqrt, {4, 4}), "") << name_of(t);
  for (const DType t : {DType::kF16, DType::kI32})
    EXPECT_EQ(portable_fault({{t, 1}}, Op::kSqrt, {4, 4}), dtype) << name_of(t);
  for (const DType t : {DType::kF16, DType::kBF16})
    EXPECT_EQ(portable_fault({{t, 8}}, Op::kEq, {2, 4, 4}), dtype) << name_of(t);
  for (const DType t : {DType::kBool, DType::kI32})
    EXPECT_EQ(portable_fault({{t, 1}}, Op::kAnd, {4, 4, 4}), "") << name_of(t);
  // The mask's lanes, too.
  EXPECT_EQ(portable_fault({}, Op::kSelect, {0, 2, 0, 0}), "");
  EXPECT_EQ(portable_fault({}, Op::kSelect, {1, 2, 1, 1}), lanes);
  // A bool is one of two bits, not of 256.
  EXPECT_EQ(portable_fault({{DType::kU8, 8}}, Op::kBitcast, {4, 4}), "");
  EXPECT_EQ(portable_fault({{DType::kU8, 8}}, Op::kBitcast, {2, 4}), dtype);
  EXPECT_EQ(portable_fault({{DType::kU8, 8}}, Op::kBitcast, {4, 2}), dtype);
  EXPECT_EQ(portable_fault({}, Op::kBitcast, {2, 2}), dtype);
  EXPECT_EQ(portable_fault({{DType::kI32, 4}, {DType::kF32, 4}}, Op::kBitcast, {4, 5}), "");
  EXPECT_EQ(portable_fault({{DType::kI32, 4}, {DType::kF32, 2}}, Op::kBitcast, {4, 5}), lanes);
  // Other lanes, as long as the bytes are as many.
  EXPECT_EQ(portable_fault({{DType::kI32, 4}, {DType::kBF16, 8}}, Op::kBitcast, {4, 5}), "");
  EXPECT_EQ(portable_fault({{DType::kU64, 1}, {DType::kI8, 8}}, Op::kBitcast, {4, 5}), "");
  EXPECT_EQ(portable_fault({{DType::kI32, 4}, {DType::kBF16, 16}}, Op::kBitcast, {4, 5}), lanes);
  EXPECT_EQ(portable_fault({{DType::kI32, 2}, {DType::kU8, 4}}, Op::kBitcast, {5, 4}), lanes);
  EXPECT_EQ(portable_fault({{DType::kF32, 2}}, Op::kExtract, {4, 0, 0}), lanes);
  EXPECT_EQ(portable_fault({}, Op::kExtract, {1, 0, 0}), "");
  EXPECT_EQ(portable_fault({}, Op::kExtract, {1, 0, 7}), "");
  EXPECT_EQ(portable_fault({{DType::kU8, 1}}, Op::kConst, {4, 255}), "");
  EXPECT_EQ(portable_fault({{DType::kU8, 1}}, Op::kConst, {4, 0}), "");
  const std::string bits = name_of_fault(PortableFault::kConstantBits);
  EXPECT_EQ(portable_fault({{DType::kU8, 1}}, Op::kConst, {4, 256}), bits);
  EXPECT_EQ(portable_fault({{DType::kU8, 1}}, Op::kConst, {4, -1}), bits);
  EXPECT_EQ(portable_fault({{DType::kI64, 1}}, Op::kConst, {4, INT64_MIN}), "");
  for (const int64_t b : {0, 1}) EXPECT_EQ(portable_fault({}, Op::kConst, {2, b}), "");
  EXPECT_EQ(portable_fault({}, Op::kConst, {2, -1}), bits);
  EXPECT_EQ(portable_fault({}, Op::kCheck, {2, INT32_MAX}), "");
  EXPECT_EQ(portable_fault({}, Op::kCheck, {2, int64_t{INT32_MAX} + 1}),
            name_of_fault(PortableFault::kCheckStatus));
}

}  // namespace
}  // namespace nimble::exec
