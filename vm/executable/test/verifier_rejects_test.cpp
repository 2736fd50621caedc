// A rejected program for every fault that VerifierRules.def lists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "vm/executable/opcodes.h"
#include "vm/executable/test/prelude.h"
#include "vm/executable/test/sample.h"
#include "vm/executable/verifier.h"

namespace nimble::exec {
namespace {

using ::testing::HasSubstr;

struct Rejected {
  Fault fault;
  const char* where;
  std::string text;  // behind the prelude
  friend void PrintTo(const Rejected& r, std::ostream* out) {
    *out << info_of(r.fault).name << " at " << r.where;
  }
};

class VerifierRejects : public ::testing::TestWithParam<Rejected> {};

TEST_P(VerifierRejects, ByItsFault) {
  const std::vector<Violation> found = find_violations(with_prelude(GetParam().text));
  ASSERT_FALSE(found.empty()) << GetParam().text;
  EXPECT_EQ(info_of(found[0].fault).name, info_of(GetParam().fault).name)
      << found[0].where << ": " << found[0].message;
  EXPECT_EQ(found[0].rule, info_of(GetParam().fault).rule);
  EXPECT_EQ(found[0].where, GetParam().where) << found[0].message;
}

// A kernel on a GPU that would be sound with another launch.
std::string with_launch(const std::string& launch) {
  return "kernel \"x\" { symbols s device d2 in f32 ([a0]) scratch [0] dispatch { 0: 0 } "
         "native \"n\" launch " +
         launch + " }";
}

std::string with_maps(const std::string& maps) {
  return with_launch("([1], [1], [1]) block 32 shared 0 " + maps);
}

const Rejected kRejected[] = {
    {Fault::kNoSuchRegister, "f@0", "function \"f\" 1 1 { Move r1, r0  Ret r0 }"},
    {Fault::kNoSuchRegister, "f@0", "function \"f\" 1 1 { Ret r7 }"},
    {Fault::kNoSuchRegister, "f@0", "function \"f\" 1 2 { AllocADT r1, 0, (r0, r2)  Ret r1 }"},
    {Fault::kTooManyParameters, "f", "function \"f\" 3 2 { Ret r0 }"},
    {Fault::kTooManyRegisters, "f", "function \"f\" 0 1048577 { LoadConsti r0, 1  Ret r0 }"},
    {Fault::kResultsBeyondRegisters, "f@0", "function \"f\" 1 3 { ShapeOf r1, 3, r0  Ret r0 }"},
    {Fault::kNoSuchTarget, "f@0", "function \"f\" 1 1 { Goto @1 }"},
    {Fault::kNoSuchTarget, "f@0", "function \"f\" 1 1 { If r0, @1, @9  Ret r0 }"},
    {Fault::kNoInstructions, "f", "function \"f\" 0 1 { }"},
    {Fault::kRunsOffTheEnd, "f@0", "function \"f\" 1 2 { Move r1, r0 }"},
    {Fault::kReadUnwritten, "f@0", "function \"f\" 0 1 { Ret r0 }"},
    {Fault::kReadUnwritten, "f@0", "function \"f\" 0 2 { AllocADT r0, 0, (r1)  Ret r0 }"},
    // Written on one of two paths only.
    {Fault::kReadUnwritten, "f@2",
     "function \"f\" 1 2 { If r0, @1, @2  1: LoadConsti r1, 1  2: Ret r1 }"},
    // Written, but only later on the way around the loop.
    {Fault::kReadUnwritten, "f@0",
     "function \"f\" 1 2 { 0: Move r0, r1  LoadConsti r1, 1  Goto @0 }"},
    {Fault::kReadFreed, "f@2", "function \"f\" 0 1 { LoadConst r0, c0  FreeTensor r0  Ret r0 }"},
    {Fault::kReadFreed, "f@2", "function \"f\" 2 2 { If r0, @1, @2  1: FreeTensor r1  2: Ret r1 }"},
    {Fault::kReadFreed, "f@3",
     "function \"f\" 0 2 { LoadConsti r0, 8  AllocStorage r1, r0, 8, d0  FreeStorage r1  "
     "AllocTensor r1, r1, r0, f32, [2]  Ret r1 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { LoadConsti r0, 1  ShapeOf r1, 1, r0  Ret r1 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { LoadConst r0, c0  AllocStorage r1, r0, 8, d0  Ret r1 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { LoadConsti r0, 1  AllocTensor r1, r0, r0, f32, [1]  Ret r1 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { LoadConsti r0, 1  InvokeClosure r1, r0, ()  Ret r1 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { LoadConsti r0, 1  GetField r1, r0, 0  Ret r1 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { LoadConsti r0, 1  GetElement r1, r0, 0  Ret r1 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { AllocADT r0, 0, ()  GetElement r1, r0, 0  Ret r1 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { LoadConst r0, c0  GetField r1, r0, 0  Ret r1 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { AllocADT r0, 0, ()  GetStorage r1, r0  Ret r1 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { LoadConst r0, c0  GetCapacity r1, r0  Ret r1 }"},
    {Fault::kWrongKind, "f@1", "function \"f\" 0 2 { LoadConst r0, c0  GetTag r1, r0  Ret r1 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { LoadConst r0, c0  Invoke r1, f\"twice\", (r0)  Ret r1 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 1 { AllocADT r0, 0, ()  If r0, @2, @2  2: Ret r0 }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { LoadConst r0, c0  ReshapeTensor r1, r0, (r0)  Ret r1 }"},
    {Fault::kWrongKind, "f@1", "function \"f\" 0 1 { LoadConsti r0, 0  FreeTensor r0  Ret r0 }"},
    {Fault::kWrongKind, "f@1", "function \"f\" 0 1 { LoadConst r0, c0  Fatal t0, (r0) }"},
    {Fault::kWrongKind, "f@1",
     "function \"f\" 0 2 { LoadConsti r0, 0  DeviceCopy r1, r0, d0  Ret r1 }"},
    {Fault::kNoSuchConstant, "f@0", "function \"f\" 0 1 { LoadConst r0, c3  Ret r0 }"},
    {Fault::kNoSuchFunction, "f@0", "function \"f\" 0 1 { Invoke r0, f9, ()  Ret r0 }"},
    {Fault::kNoSuchKernel, "f@0", "function \"f\" 0 1 { InvokePacked k2, ()  Ret r0 }"},
    {Fault::kNoSuchText, "f@0", "function \"f\" 0 1 { Fatal t1, () }"},
    {Fault::kClosureOfNoBytecode, "f@0",
     "function \"f\" 0 1 { AllocClosure r0, f\"twice\", ()  Ret r0 }"},
    {Fault::kCallArguments, "f@0", "function \"f\" 1 1 { Invoke r0, f\"callee\", (r0)  Ret r0 }"},
    {Fault::kCallArguments, "f@1",
     "function \"f\" 0 1 { LoadConsti r0, 1  Invoke r0, f\"twice\", (r0, r0)  Ret r0 }"},
    {Fault::kClosureCaptures, "f@0",
     "function \"f\" 1 1 { AllocClosure r0, f\"callee\", (r0, r0, r0)  Ret r0 }"},
    {Fault::kBadAlignment, "f@1",
     "function \"f\" 0 1 { LoadConsti r0, 1  AllocStorage r0, r0, 24, d0  Ret r0 }"},
    {Fault::kBadAlignment, "f@1",
     "function \"f\" 0 1 { LoadConsti r0, 1  AllocStorage r0, r0, 0, d0  Ret r0 }"},
    {Fault::kBadAlignment, "f@1",
     "function \"f\" 0 1 { LoadConsti r0, 1  AllocStorage r0, r0, 4194304, d0  Ret r0 }"},
    {Fault::kNoSuchDevice, "f@1",
     "function \"f\" 0 1 { LoadConsti r0, 1  AllocStorage r0, r0, 8, d256  Ret r0 }"},
    {Fault::kBadShape, "f@0", "function \"f\" 2 2 { AllocTensor r0, r0, r1, f32, [-1]  Ret r0 }"},
    {Fault::kBadShape, "f@0",
     "function \"f\" 2 2 { AllocTensor r0, r0, r1, f32, [4611686018427387904]  Ret r0 }"},
    {Fault::kBadTag, "f@0", "function \"f\" 1 1 { AllocADT r0, -1, ()  Ret r0 }"},
    {Fault::kBadField, "f@0", "function \"f\" 1 1 { GetField r0, r0, -1  Ret r0 }"},
    {Fault::kBadElement, "f@0", "function \"f\" 1 1 { GetElement r0, r0, -1  Ret r0 }"},
    {Fault::kBadShapeOfRank, "f@0", "function \"f\" 1 1 { ShapeOf r0, -1, r0  Ret r0 }"},
    {Fault::kBadShapeOfRank, "f@0", "function \"f\" 1 10 { ShapeOf r1, 9, r0  Ret r1 }"},
    {Fault::kBadShape, "f@0",
     "function \"f\" 2 2 { AllocTensor r0, r0, r1, f32, [1, 1, 1, 1, 1, 1, 1, 1, 1]  Ret r0 }"},
    {Fault::kBadTensorRank, "f@0",
     "function \"f\" 2 2 { AllocTensorReg r0, r0, r1, f32, (r1, r1, r1, r1, r1, r1, r1, r1, r1)  "
     "Ret r0 }"},
    {Fault::kBadReshapeRank, "f@0",
     "function \"f\" 2 2 { ReshapeTensor r0, r0, (r1, r1, r1, r1, r1, r1, r1, r1, r1)  Ret r0 }"},
    {Fault::kDimNoSuchArgument, "scalar function s", "scalar \"s\" [1->1: a1]"},
    {Fault::kDimStackUnderflow, "scalar function s", "scalar \"s\" [0->1: +]"},
    {Fault::kDimResults, "scalar function s", "scalar \"s\" [0->2: 1]"},
    {Fault::kDimResultsUsed, "kernel x",
     "kernel \"x\" { in f32 ([0->2: 1 1]) scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {Fault::kDimStackUnderflow, "kernel x",
     "kernel \"x\" { scratch [1 +] dispatch { 0: 0 } host \"h\" }"},
    // An output's dim does not bind.
    {Fault::kReadBeforeBound, "kernel x",
     "kernel \"x\" { symbols m out f32 ([a0]) scratch [0] dispatch { 0: 0 } host \"h\" }"},
    // Read before bound.
    {Fault::kReadBeforeBound, "kernel x",
     "kernel \"x\" { symbols m in f32 ([a0 1 +], [a0]) scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {Fault::kUnbound, "kernel x",
     "kernel \"x\" { symbols m scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {Fault::kProgramArguments, "kernel x",
     "kernel \"x\" { in f32 ([a0]) scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {Fault::kProgramArguments, "kernel x",
     "kernel \"x\" { require [a0] scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {Fault::kProgramArguments, "kernel x",
     "kernel \"x\" { scratch [a1] dispatch { 0: 0 } host \"h\" }"},
    // Surplus axes that no dim takes, and such that a host operator would see.
    {Fault::kRowsWithoutDims, "kernel x",
     "kernel \"x\" { in rows u8 () scratch [0] dispatch { 0: 0 } native \"n\" }"},
    {Fault::kRowsOfHost, "kernel x",
     "kernel \"x\" { symbols m in rows u8 ([a0]) scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {Fault::kRowsOfHost, "kernel x",
     "kernel \"x\" { symbols m in rows u8 ([a0]) scratch [0] dispatch { 0: 1 } native \"n\" host "
     "\"h\" }"},
    {Fault::kDispatchEmpty, "kernel x", "kernel \"x\" { scratch [0] dispatch { } host \"h\" }"},
    {Fault::kDispatchNoSuchLeaf, "kernel x",
     "kernel \"x\" { scratch [0] dispatch { 0: 1 } host \"h\" }"},
    {Fault::kDispatchNoSuchNode, "kernel x",
     "kernel \"x\" { scratch [0] dispatch { 0: threads <= 1 ? 0 : 1  1: 0 } host \"h\" }"},
    {Fault::kKernelArguments, "f@1",
     "function \"f\" 1 2 { LoadConsti r1, 1  InvokePacked k0, (r0, r1)  Ret r0 }"},
    {Fault::kWrongArgumentKind, "f@1",
     "kernel \"d\" { data scratch [0] dispatch { 0: 0 } host \"h\" } "
     "function \"f\" 0 1 { LoadConsti r0, 1  InvokePacked k\"d\", (r0)  Ret r0 }"},
    {Fault::kWrongArgumentKind, "f@1",
     "function \"f\" 2 3 { LoadConst r2, c0  InvokePacked k0, (r0, r2, r1)  Ret r0 }"},
    {Fault::kWrongArgumentKind, "f@1",
     "function \"f\" 2 3 { LoadConsti r2, 1  InvokePacked k0, (r2, r2, r1)  Ret r0 }"},
    {Fault::kWritesConstant, "f@2",
     "function \"f\" 1 3 { LoadConst r1, c0  LoadConsti r2, 1  InvokePacked k0, (r0, r2, r1)  Ret "
     "r1 }"},
    // A constant by way of a reshape, and on one path only.
    {Fault::kWritesConstant, "f@7",
     "function \"f\" 1 5 { LoadConsti r1, 2  LoadConst r2, c0  If r0, @3, @5  "
     "3: AllocStorage r3, r1, 8, d0  4: AllocTensor r2, r3, r1, f32, [2]  "
     "5: ReshapeTensor r4, r2, (r1)  Move r3, r4  InvokePacked k0, (r0, r1, r3)  Ret r3 }"},
    // A tensor placed in what is a constant on one path, and something else on the other.
    {Fault::kWritesConstant, "f@7",
     "function \"f\" 1 4 { LoadConsti r3, 0  LoadConst r2, c0  If r0, @3, @5  "
     "3: LoadConsti r1, 8  4: AllocStorage r2, r1, 8, d0  5: AllocTensor r2, r2, r3, f32, [1]  "
     "LoadConsti r3, 1  InvokePacked k0, (r0, r3, r2)  Ret r2 }"},
    // A part of a constant.
    {Fault::kWritesConstant, "f@3",
     "function \"f\" 1 3 { LoadConst r1, c0  LoadConsti r2, 0  AllocTensor r1, r1, r2, f32, [1]  "
     "InvokePacked k0, (r0, r2, r1)  Ret r1 }"},
    {Fault::kConstantBytes, "constant bad", "constant \"bad\" f32 [3] { 1, 2 }"},
    {Fault::kConstantShape, "constant bad", "constant \"bad\" f32 [-1] { }"},
    {Fault::kConstantBool, "constant bad", "constant \"bad\" bool [1] { 0x2 }"},
    {Fault::kEntryFunction, "entry e", "entry \"e\" f5 { output \"y\" f32 [] [] }"},
    {Fault::kEntryInputs, "entry e", "entry \"e\" f0 { output \"y\" f32 [] [] }"},
    {Fault::kEntryOutputs, "entry e",
     "entry \"e\" f0 { input \"a\" f32 [] [] input \"b\" f32 [] [] }"},
    {Fault::kPortName, "entry e",
     "entry \"e\" f0 { input \"a\" f32 [] [] input \"a\" f32 [] [] output \"y\" f32 [] [] }"},
    {Fault::kPortDims, "entry e",
     "entry \"e\" f0 { input \"a\" f32 [\"n\"] [] input \"b\" f32 [] [] output \"y\" f32 [] [] }"},
    {Fault::kPortExtent, "entry e",
     "entry \"e\" f0 { input \"a\" f32 [\"n\"] [-2] input \"b\" f32 [] [] output \"y\" f32 [] [] "
     "}"},
    {Fault::kPortDefault, "entry e",
     "entry \"e\" f0 { input \"a\" f32 [] [] default \"twos\" input \"b\" f32 [] [] "
     "output \"y\" f32 [] [] }"},
    {Fault::kKernelNameTwice, "kernel k",
     "kernel \"k\" { scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {Fault::kBadImplementation, "kernel x",
     "kernel \"x\" { scratch [0] dispatch { 0: 0 } native \"\" }"},
    {Fault::kDataOffHost, "kernel x",
     "kernel \"x\" { data scratch [0] dispatch { 0: 0 } native \"n\" }"},
    {Fault::kBadImplementation, "kernel x",
     "kernel \"x\" { scratch [0] dispatch { 0: 0 } native \"x\" threads -1 }"},
    // A constant, a storage's tensor and its part, a copy: none lies where the kernel runs.
    {Fault::kWrongDevice, "f@1",
     "function \"f\" 1 2 { LoadConst r1, c0  InvokePacked k1, (r1, r0)  Ret r0 }"},
    {Fault::kWrongDevice, "f@2",
     "function \"f\" 1 3 { LoadConst r1, c2  LoadConsti r2, 1  InvokePacked k0, (r1, r2, r0)  "
     "Ret r0 }"},
    {Fault::kWrongDevice, "f@5",
     "function \"f\" 1 4 { LoadConsti r1, 8  AllocStorage r2, r1, 8, d1  LoadConsti r1, 0  "
     "AllocTensor r2, r2, r1, f32, [2]  DeviceCopy r3, r2, d0  InvokePacked k1, (r2, r3)  Ret r0 "
     "}"},
    {Fault::kWrongDevice, "f@3",
     "function \"f\" 1 3 { LoadConsti r1, 2  DeviceCopy r2, r0, d1  ReshapeTensor r2, r2, (r1)  "
     "InvokePacked k0, (r2, r1, r0)  Ret r0 }"},
    // Elements are read on the CPU.
    {Fault::kWrongDevice, "f@1",
     "function \"f\" 1 2 { DeviceCopy r1, r0, d1  GetElement r1, r1, 0  Ret r1 }"},
    {Fault::kWrongDevice, "f@1",
     "function \"f\" 1 2 { DeviceCopy r1, r0, d1  If r1, @2, @2  2: Ret r0 }"},
    // The same register from both sides of a branch: on one device only.
    {Fault::kWrongDevice, "f@4",
     "function \"f\" 1 2 { If r0, @1, @3  1: DeviceCopy r1, r0, d1  Goto @4  "
     "3: DeviceCopy r1, r0, d1  4: GetElement r1, r1, 0  Ret r1 }"},
    {Fault::kTypeField, "type t", "type \"t\" data { \"A\" (0, 7) }"},
    {Fault::kTypeConstructors, "type t", "type \"t\" data { }"},
    {Fault::kTypeConstructorName, "type t", "type \"t\" data { \"\" () }"},
    {Fault::kTypeScalar, "type t", "type \"t\" scalar f32\n"},
    {Fault::kTypeDims, "type t", "type \"t\" tensor f32 [\"n\"] []"},
    {Fault::kTypeDims, "type t", "type \"t\" tensor f32 [\"n\"] [-2]"},
    {Fault::kTypeField, "type t", "type \"t\" tuple (1)"},
    {Fault::kPortType, "entry e",
     "entry \"e\" f0 { input \"a\" type 0 input \"b\" type 0 output \"y\" type 0 }"},
    // Launches: of native code of a GPU, and of nothing else.
    {Fault::kLaunchMissing, "kernel x",
     "kernel \"x\" { device d2 scratch [0] dispatch { 0: 0 } native \"n\" }"},
    {Fault::kLaunchMissing, "kernel x",
     "kernel \"x\" { device d2 scratch [0] dispatch { 0: 0 } native \"n\" launch ([1], [1], [1]) "
     "block 32 shared 0 native \"m\" }"},
    {Fault::kLaunchElsewhere, "kernel x",
     "kernel \"x\" { scratch [0] dispatch { 0: 0 } native \"n\" launch ([1], [1], [1]) block 32 "
     "shared 0 }"},
    {Fault::kLaunchElsewhere, "kernel x",
     "kernel \"x\" { device d1 scratch [0] dispatch { 0: 0 } native \"n\" launch ([1], [1], [1]) "
     "block 32 shared 0 }"},
    {Fault::kLaunchElsewhere, "kernel x",
     "kernel \"x\" { scratch [0] dispatch { 0: 0 } host \"n\" launch ([1], [1], [1]) block 32 "
     "shared 0 }"},
    {Fault::kGpuImplementation, "kernel x",
     "kernel \"x\" { device d2 scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {Fault::kLaunchElsewhere, "kernel x",
     "kernel \"x\" { device d2 scratch [0] dispatch { 0: 0 } vendor \"v\" launch ([1], [1], [1]) "
     "block 32 shared 0 }"},
    {Fault::kLaunchElsewhere, "kernel x",
     "kernel \"x\" { scratch [0] dispatch { 0: 0 } vendor \"v\" launch ([1], [1], [1]) block 32 "
     "shared 0 }"},
    {Fault::kLaunchThreads, "kernel x", with_launch("([1], [1], [1]) block 0 shared 0")},
    {Fault::kLaunchThreads, "kernel x", with_launch("([1], [1], [1]) block 33 shared 0")},
    {Fault::kLaunchThreads, "kernel x", with_launch("([1], [1], [1]) block 1056 shared 0")},
    {Fault::kLaunchThreads, "kernel x", with_launch("([1], [1], [1]) block 4294967264 shared 0")},
    {Fault::kLaunchAlignment, "kernel x",
     with_launch("([1], [1], [1]) block 32 shared 0 aligned 0")},
    {Fault::kLaunchAlignment, "kernel x",
     with_launch("([1], [1], [1]) block 32 shared 0 aligned 12")},
    {Fault::kLaunchAlignment, "kernel x",
     with_launch("([1], [1], [1]) block 32 shared 0 aligned 32")},
    {Fault::kLaunchShared, "kernel x", with_launch("([1], [1], [1]) block 32 shared 232449")},
    // One symbol; `threads` is not the grid's.
    {Fault::kProgramArguments, "kernel x", with_launch("([a1], [1], [1]) block 32 shared 0")},
    {Fault::kProgramArguments, "kernel x", with_launch("([1], [a1], [1]) block 32 shared 0")},
    {Fault::kProgramArguments, "kernel x", with_launch("([1], [1], [a1]) block 32 shared 0")},
    {Fault::kProgramArguments, "kernel x",
     with_launch("([1], [1], [1]) block 32 shared 0 steps [a1]")},
    {Fault::kDimResults, "kernel x", with_launch("([1], [1], [1]) block 32 shared 0 steps []")},
    {Fault::kDimStackUnderflow, "kernel x", with_launch("([1], [+], [1]) block 32 shared 0")},
    {Fault::kDimResults, "kernel x", with_launch("([], [1], [1]) block 32 shared 0")},
    {Fault::kDimResultsUsed, "kernel x",
     with_launch("([1], [1], [1->2: a0 a0]) block 32 shared 0")},
    {Fault::kMapsMany, "kernel x",
     with_maps("map 0 ([a0] by 8) map 0 ([a0] by 8) map 0 ([a0] by 8) map 0 ([a0] by 8) "
               "map 0 ([a0] by 8) map 0 ([a0] by 8) map 0 ([a0] by 8) map 0 ([a0] by 8) "
               "map 0 ([a0] by 8)")},
    {Fault::kMapsAlignment, "kernel x", with_maps("aligned 8 map 0 ([a0] by 8)")},
    {Fault::kMapArgument, "kernel x", with_maps("map 1 ([a0] by 8)")},
    {Fault::kMapArgument, "kernel x",
     "kernel \"x\" { symbols s device d2 in f32 ([a0]) inout f32 ([a0]) scratch [0] "
     "dispatch { 0: 0 } native \"n\" launch ([1], [1], [1]) block 32 shared 0 "
     "map 1 ([a0] by 8) }"},
    {Fault::kMapRank, "kernel x", with_maps("map 0 ()")},
    {Fault::kMapRank, "kernel x",
     with_maps("map 0 ([8] by 8, [1] by 1, [1] by 1, [1] by 1, [1] by 1, [a0] by 1)")},
    {Fault::kMapBox, "kernel x", with_maps("map 0 ([8] by 8, [a0] by 0)")},
    {Fault::kMapBox, "kernel x", with_maps("map 0 ([8] by 8, [a0] by 257)")},
    {Fault::kMapLine, "kernel x", with_maps("map 0 ([a0] by 4)")},
    {Fault::kMapLine, "kernel x", with_maps("map 0 ([a0] by 64)")},
    {Fault::kProgramArguments, "kernel x", with_maps("map 0 ([a1] by 8)")},
    {Fault::kDimStackUnderflow, "kernel x", with_maps("map 0 ([8] by 8, [+] by 1)")},
    {Fault::kNotePlace, "f", "function \"f\" 1 1 { Ret r0 .note \"behind the end\" }"},
};

INSTANTIATE_TEST_SUITE_P(All, VerifierRejects, ::testing::ValuesIn(kRejected),
                         [](const auto& info) {
                           return std::string(info_of(info.param.fault).name) + "_" +
                                  std::to_string(info.index);
                         });

// What cannot be written as text: damage to the sample.
struct Damaged {
  Fault fault;
  const char* where;
  std::function<void(Executable&)> damage;
};

void prepend(Executable& e, Instruction in) {
  std::vector<Instruction>& code = e.functions[0].code;
  code.insert(code.begin(), std::move(in));
}
std::function<void(Executable&)> with_node(DispatchNode node) {
  return [node](Executable& e) { e.kernels[1].dispatch.nodes = {node, {}}; };
}
// Argument 0 of "dense", a tensor.
std::function<void(Executable&)> with_argument(std::function<void(KernelArgument&)> damage) {
  return [damage](Executable& e) { damage(e.kernels[0].contract.arguments[0]); };
}

const std::vector<Damaged>& damaged() {
  using Test = DispatchNode::Test;
  using Kind = DispatchFeature::Kind;
  static const std::vector<Damaged> kAll = {
      {Fault::kBadOperands, "main@0",
       [](auto& e) {
         prepend(e, {static_cast<Opcode>(kOpcodeCount), {}});
       }},
      {Fault::kBadOperands, "main@0",
       [](auto& e) {
         prepend(e, {Opcode::kMove, {0}});
       }},
      {Fault::kBadOperands, "main@0",
       [](auto& e) {
         prepend(e, {Opcode::kMove, {0, 0, 0}});
       }},
      {Fault::kBadOperands, "main@0",
       [](auto& e) {
         prepend(e, {Opcode::kAllocADT, {0, 0, 5, 0}});
       }},
      {Fault::kBadOperands, "main@0",
       [](auto& e) {
         prepend(e, {Opcode::kAllocADT, {0, 0, -1}});
       }},
      {Fault::kNoSuchDType, "main@0",
       [](auto& e) {
         prepend(e, {Opcode::kAllocTensor, {0, 0, 0, kDTypeCount, 0}});
       }},
      {Fault::kDimUnknownOperation, "scalar function bytes",
       [](auto& e) { e.scalar_functions[0].program.code[0].op = static_cast<DimOp>(99); }},
      {Fault::kDimStackTooDeep, "scalar function bytes",
       [](auto& e) {
         e.scalar_functions[0].program = {0, 257, {257, DimInstruction{DimOp::kConst, 1}}};
       }},
      // A bare symbol that binds is well formed, too: its index does not wrap.
      {Fault::kDimNoSuchArgument, "kernel dense",
       with_argument([](auto& a) { a.dims[0].code[0].immediate = int64_t{1} << 32; })},
      {Fault::kScalarBindsNoSymbol, "kernel dense",
       [](auto& e) { e.kernels[0].contract.arguments[2].symbol = 2; }},
      {Fault::kUnknownArgument, "kernel dense",
       with_argument([](auto& a) { a.kind = static_cast<KernelArgument::Kind>(3); })},
      {Fault::kUnknownArgument, "kernel dense",
       with_argument([](auto& a) { a.access = static_cast<Access>(3); })},
      {Fault::kUnknownArgument, "kernel dense",
       with_argument([](auto& a) { a.dtype = static_cast<DType>(kDTypeCount); })},
      {Fault::kUnknownArgument, "kernel dense",
       with_argument([](auto& a) { a.dims.resize(kMaxRank + 1, DimProgram::constant(1)); })},
      {Fault::kDispatchUnknownTest, "kernel less", with_node({static_cast<Test>(3), {}, 0, 1, 1})},
      {Fault::kDispatchUnknownFeature, "kernel less",
       with_node({Test::kEqual, {static_cast<Kind>(5)}, 0, 1, 1})},
      {Fault::kDispatchNoSuchSymbol, "kernel less",
       with_node({Test::kEqual, {Kind::kSymbol}, 0, 1, 1})},
      {Fault::kDispatchNoSuchFactor, "kernel dense",
       [](auto& e) { e.kernels[0].dispatch.nodes[6].feature.b = 2; }},
      {Fault::kDispatchDivisor, "kernel dense",
       [](auto& e) { e.kernels[0].dispatch.nodes[2].feature.t = 0; }},
      {Fault::kDispatchDivisor, "kernel dense",
       [](auto& e) { e.kernels[0].dispatch.nodes[4].feature.t = 0; }},
      {Fault::kConstantDType, "constant w",
       [](auto& e) { e.constants[0].dtype = static_cast<DType>(kDTypeCount); }},
      {Fault::kConstantShape, "constant empty",
       [](auto& e) { e.constants[5].shape.assign(kMaxRank + 1, 0); }},
      {Fault::kKernelNoName, "kernel ", [](auto& e) { e.kernels[1].name = ""; }},
      {Fault::kBadImplementation, "kernel less",
       [](auto& e) { e.kernels[1].implementations[0].kind = static_cast<ImplementationKind>(4); }},
      {Fault::kImageTarget, "image x86-64-v2",
       [](auto& e) { e.images[1].target = e.images[0].target; }},
      {Fault::kImageTarget, "image ", [](auto& e) { e.images[0].target = ""; }},
      {Fault::kImageTarget, "image x86-64-v2",
       [](auto& e) {
         e.images[2].target = e.images[0].target;
         e.images[2].device = kCpuDevice;
       }},
      {Fault::kImageEmpty, "image x86-64-v2", [](auto& e) { e.images[0].bytes = {}; }},
      {Fault::kImageDevice, "image sm_90a", [](auto& e) { e.images[2].device = kStandInDevice; }},
      {Fault::kImageDevice, "image sm_90a", [](auto& e) { e.images[2].device = 255; }},
      {Fault::kImageDevice, "image x86-64-v2", [](auto& e) { e.images[0].device = -1; }},
      {Fault::kModulesElsewhere, "image x86-64-v2",
       [](auto& e) {
         e.images[0].modules = {{"f", e.images[0].bytes.size()}};
       }},
      {Fault::kModuleSymbol, "image sm_90a",
       [](auto& e) { e.images[2].modules[1].symbol = "gpu_0"; }},
      {Fault::kModuleSymbol, "image sm_90a", [](auto& e) { e.images[2].modules[0].symbol = ""; }},
      {Fault::kModuleBytes, "image sm_90a", [](auto& e) { e.images[2].modules[0].bytes = 0; }},
      {Fault::kModuleBytes, "image sm_90a", [](auto& e) { ++e.images[2].modules[1].bytes; }},
      // 200 + a number that makes the sum wrap to 500.
      {Fault::kModuleBytes, "image sm_90a",
       [](auto& e) {
         e.images[2].modules = {{"gpu_0", 200}, {"gpu_1", ~uint64_t{0} - 99}, {"g", 400}};
       }},
      {Fault::kModulesEnd, "image sm_90a", [](auto& e) { --e.images[2].modules[1].bytes; }},
      {Fault::kModuleMissing, "image sm_90a",
       [](auto& e) { e.images[2].modules[1].symbol = "gpu_2"; }},
      {Fault::kLaunchElsewhere, "kernel gpu", [](auto& e) { e.kernels[4].device = kCpuDevice; }},
      {Fault::kGpuImplementation, "kernel dense",
       [](auto& e) {
         Kernel& k = e.kernels[0];
         k.device = kCudaDevice;
         k.implementations = {{ImplementationKind::kPortable, "p"},
                              {ImplementationKind::kPortable, "q"},
                              {ImplementationKind::kPortable, "r"}};
       }},
      {Fault::kBadDevice, "kernel dense", [](auto& e) { e.kernels[0].device = 256; }},
      {Fault::kBadDevice, "constant w", [](auto& e) { e.constants[0].device = -1; }},
      {Fault::kPortableMissing, "kernel less",
       [](auto& e) { e.kernels[1].implementations[0].kind = ImplementationKind::kPortable; }},
      {Fault::kPortableUnsound, "kernel dense",
       [](auto& e) {
         e.kernels[0].portable->code.pop_back(), e.kernels[0].portable->code.pop_back();
       }},
      {Fault::kEntryName, "entry main", [](auto& e) { e.entries[1].name = "main"; }},
      {Fault::kPortDims, "entry main", [](auto& e) { e.entries[0].inputs[0].extents.pop_back(); }},
      {Fault::kTypeTuple, "type (i64, Tensor[(n, 3), f32])",
       [](auto& e) { e.types[2].constructors.resize(2); }},
      {Fault::kTypeKind, "type i64",
       [](auto& e) { e.types[0].kind = static_cast<ValueType::Kind>(4); }},
      {Fault::kTypeKind, "type i64",
       [](auto& e) { e.types[0].dtype = static_cast<DType>(kDTypeCount); }},
      {Fault::kPortTyped, "entry third",
       [](auto& e) { e.entries[2].inputs[0].default_fill = "ones"; }},
      {Fault::kPortTyped, "entry third",
       [](auto& e) {
         e.entries[2].inputs[0].dims = {"n"};
         e.entries[2].inputs[0].extents = {-1};
       }},
  };
  return kAll;
}

TEST(VerifierTest, RejectsDamage) {
  ASSERT_TRUE(find_violations(sample()).empty());
  for (const Damaged& d : damaged()) {
    Executable e = sample();
    d.damage(e);
    const std::vector<Violation> found = find_violations(e);
    ASSERT_FALSE(found.empty()) << info_of(d.fault).name;
    EXPECT_EQ(info_of(found[0].fault).name, info_of(d.fault).name) << found[0].message;
    EXPECT_EQ(found[0].where, d.where) << found[0].message;
  }
}

// It is looked through no further: many images of many kernels would take the product of both.
TEST(VerifierTest, AnImageWithoutManyKernelsIsOneFault) {
  Executable e = sample();
  e.images[2].modules = {{"other", e.images[2].bytes.size()}};
  const std::vector<Violation> found = find_violations(e);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].fault, Fault::kModuleMissing);
  EXPECT_THAT(found[0].message, HasSubstr("no module has \"gpu_0\", which kernel gpu is made of"));
}

// Every place that reports has a fault of its own, so every place has a program that it rejects.
TEST(VerifierTest, EveryFaultHasARejectingTest) {
  std::set<Fault> tested = {Fault::kTooManySteps};  // verifier_flow_test.cpp
  for (const Rejected& r : kRejected) tested.insert(r.fault);
  for (const Damaged& d : damaged()) tested.insert(d.fault);
  for (int i = 0; i < kFaultCount; ++i)
    EXPECT_TRUE(tested.contains(static_cast<Fault>(i))) << kFaults[i].name;
}

TEST(VerifierTest, RulesAreNumberedFromOne) {
  EXPECT_EQ(rule_sentence(1), "an instruction fits its opcode");
  EXPECT_TRUE(rule_sentence(0).empty());
  EXPECT_TRUE(rule_sentence(kRuleCount + 1).empty());
}

}  // namespace
}  // namespace nimble::exec
