// Signals and copies of boxes: what arrives in the emulator, and what verifier and emulator refuse.
#include <gmock/gmock.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/test/argument_memory.h"
#include "compiler/kernels/test/kernel_builder.h"
#include "compiler/kernels/test/launch_harness.h"
#include "compiler/kernels/unroll.h"
#include "vm/base/error.h"

namespace nimble::kir {
namespace {

using namespace build;  // NOLINT
using kernels::ArgumentMemory;
using ::testing::AnyOf;
using testing::bytes_of;
using ::testing::HasSubstr;
using testing::KernelBuilder;
using testing::outcome;
using testing::thread;

StmtRef by_first(std::vector<StmtRef> body) {
  return if_then(eq(thread, 0), seq(std::move(body)));
}
StmtRef meet() {
  return barrier(Together::kBlock);
}

int32_t result_of(const Function& f, const std::vector<std::span<std::byte>>& buffers,
                  const std::vector<int64_t>& symbols = {}, uint64_t order = 0) {
  Interpreter::Options options;
  options.order = order;
  return Interpreter(f, options).run(buffers, symbols);
}

TensorMapRef map_of(const BufferRef& of, std::vector<Dim> extents, std::vector<int> box) {
  return std::make_shared<const TensorMap>(
      TensorMap{"map", of, std::move(extents), std::move(box)});
}

// --- What a copy brings

struct Boxes {
  DType type;
  std::vector<int> extents, box, at;
};

// Element p of line l of a box, as the PTX ISA lays out swizzled lines of shared memory.
int swizzled_place(int size, int line_bytes, int l, int p) {
  const int span = line_bytes / size, piece = 16 / size, pieces = span / piece;
  const int phase = l % 8 * line_bytes / 128 % pieces;
  return l * span + ((p / piece) ^ phase) * piece + p % piece;
}

void check_box(const Boxes& b) {
  const int size = static_cast<int>(size_of(b.type)), line_bytes = b.box[0] * size;
  SCOPED_TRACE(::testing::Message()
               << nimble::name_of(b.type) << " in lines of " << line_bytes << " at " << b.at[0]);
  constexpr int kThreads = 32;
  int all = 1, of_box = 1;
  std::vector<Dim> extents, coordinates;
  for (size_t axis = 0; axis < b.box.size(); ++axis) {
    all *= b.extents[axis];
    of_box *= b.box[axis];
    extents.emplace_back(b.extents[axis]);
    coordinates.emplace_back(b.at[axis]);
  }
  KernelBuilder k("boxes");
  k.launch(kThreads);
  const BufferRef x = k.in("x", b.type, all, 64), y = k.out("y", b.type, of_box),
                  s = k.shared("s", b.type, of_box, 8 * line_bytes),
                  signals = k.shared("signals", DType::kU64, 1);
  const TensorMapRef map = map_of(x, extents, b.box);
  k.function().maps = {map};
  const Dim place = thread + Dim::symbol("i") * kThreads;
  const Function f = k.body({by_first({signal_init(signals, 0, 1), proxy_fence()}), meet(),
                             by_first({signal_arrive(signals, 0, of_box * size),
                                       tensor_copy(s, 0, map, coordinates, signals, 0)}),
                             signal_wait(signals, 0, 0),
                             loop(LoopKind::kSerial, "i", 0, (of_box + kThreads - 1) / kThreads,
                                  if_then(lt(place, of_box), store(y, place, load(s, place))))});
  ASSERT_EQ(verify(f), "");
  ASSERT_EQ(verify(unroll(f)), "");

  const auto value = [](int n) { return static_cast<uint8_t>(n % 251 + 1); };
  ArgumentMemory in(static_cast<size_t>(all * size));
  std::vector<uint8_t> out(static_cast<size_t>(of_box * size), 0xee), expected(out.size(), 0);
  for (int i = 0; i < all; ++i)
    for (int byte = 0; byte < size; ++byte)
      in[static_cast<size_t>(i * size + byte)] = std::byte{value(i)};
  const int line_elements = b.box[0];
  for (int i = 0; i < of_box; ++i) {
    int from = 0, step = 1, rest = i;
    bool inside = true;
    for (size_t axis = 0; axis < b.box.size(); ++axis) {
      const int c = b.at[axis] + rest % b.box[axis];
      rest /= b.box[axis];
      inside &= c >= 0 && c < b.extents[axis];
      from += c * step;
      step *= b.extents[axis];
    }
    const int to = swizzled_place(size, line_bytes, i / line_elements, i % line_elements) * size;
    if (inside) std::memset(&expected[static_cast<size_t>(to)], value(from), size_of(b.type));
  }
  EXPECT_EQ(result_of(f, {in, bytes_of(out)}), 0);
  EXPECT_EQ(out, expected);
}

TEST(LaunchSignal, BoxesComeSwizzledAndWithZerosAround) {
  for (const DType type : {DType::kU8, DType::kU16, DType::kU32, DType::kU64})
    for (const int line : {32, 64, 128}) {
      const int size = static_cast<int>(size_of(type)), span = line / size, piece = 16 / size;
      const int wide = span + piece, rows = 19;
      for (const int x : {0, -3, 1, wide - 1, wide + 5})
        for (const int y : {0, -9, 7, 18, 40}) check_box({type, {wide, rows}, {span, 16}, {x, y}});
      check_box({type, {wide}, {span}, {1}});
      check_box({type, {wide, 5, 3}, {span, 8, 2}, {piece, 1, 1}});
      check_box({type, {wide, 5, 3, 2}, {span, 4, 2, 2}, {0, -1, 2, 1}});
    }
}

// A pipeline of two stages, as kernels have them: phases follow one another.
TEST(LaunchSignal, StagesComeAgain) {
  constexpr int kSteps = 7, kStages = 2, kRows = 8, kSpan = 16, kBox = kRows * kSpan;
  KernelBuilder k("stages");
  k.launch(64);
  const BufferRef x = k.in("x", DType::kU16, kSteps * kBox, 64),
                  y = k.out("y", DType::kU16, kSteps * 64),
                  s = k.shared("s", DType::kU16, kStages * kBox, 256),
                  signals = k.shared("signals", DType::kU64, kStages);
  const TensorMapRef map = map_of(x, {kSpan, kSteps * kRows}, {kSpan, kRows});
  k.function().maps = {map};
  const Dim step = Dim::symbol("step");
  const auto fetch = [&](const Dim& n) {
    const Dim slot = ir::mod(n, kStages);
    return by_first({signal_arrive(signals, slot, 2 * kBox),
                     tensor_copy(s, slot * kBox, map, {0, n * kRows}, signals, slot)});
  };
  const Function f = k.body(
      {by_first({signal_init(signals, 0, 1), signal_init(signals, 1, 1), proxy_fence()}), meet(),
       fetch(0),
       loop(LoopKind::kSerial, "step", 0, kSteps,
            seq({signal_wait(signals, ir::mod(step, kStages), ir::floordiv(step, kStages)), meet(),
                 if_then(lt(step + 1, kSteps), fetch(step + 1)),
                 store(y, step * 64 + thread, load(s, ir::mod(step, kStages) * kBox + thread))}))});
  ASSERT_EQ(verify(f), "");
  ArgumentMemory in(sizeof(uint16_t) * kSteps * kBox);
  for (int i = 0; i < kSteps * kBox; ++i) {
    const auto v = static_cast<uint16_t>(i);
    std::memcpy(&in[sizeof v * static_cast<size_t>(i)], &v, sizeof v);
  }
  for (const uint64_t order : {0, 1, 7}) {
    std::vector<uint16_t> out(kSteps * 64);
    ASSERT_EQ(result_of(f, {in, bytes_of(out)}, {}, order), 0);
    // The first four lines of 32 bytes are where they would be without a swizzle.
    for (int n = 0; n < kSteps; ++n)
      for (int t = 0; t < 64; ++t)
        EXPECT_EQ(out[static_cast<size_t>(n * 64 + t)], n * kBox + t) << n;
  }
}

// --- What is refused

class LaunchSignalRules : public ::testing::Test {
 protected:
  static constexpr int kBox = 128, kBytes = 2 * kBox;

  LaunchSignalRules() {
    k.launch(64);
    k.function().maps = {map};
  }

  StmtRef made() { return seq({by_first({init(), proxy_fence()}), meet()}); }
  StmtRef init() { return signal_init(signals, 0, 1); }
  StmtRef arrive(int bytes = kBytes) { return signal_arrive(signals, 0, bytes); }
  StmtRef copy(const Dim& to = 0) { return tensor_copy(s, to, map, {0, 0}, signals, 0); }
  StmtRef fetch() { return by_first({arrive(), copy()}); }
  StmtRef wait(const Dim& phase = 0) { return signal_wait(signals, 0, phase); }
  StmtRef read() { return store(y, thread, load(s, thread)); }
  // What the verifier says, or else the emulator.
  std::string run(std::vector<StmtRef> body) {
    const Function f = k.body(std::move(body));
    if (std::string wrong = verify(f); !wrong.empty()) return wrong;
    ArgumentMemory in(sizeof(uint16_t) * 16 * 16);
    std::vector<uint16_t> out(64);
    return outcome(f, {in, bytes_of(out)});
  }

  KernelBuilder k{"k"};
  BufferRef x = k.in("x", DType::kU16, 256, 64), y = k.out("y", DType::kU16, 64);
  BufferRef s = k.shared("s", DType::kU16, 2 * kBox, 256),
            signals = k.shared("signals", DType::kU64, 2);
  TensorMapRef map = map_of(x, {16, 16}, {16, 8});
};

TEST_F(LaunchSignalRules, AcceptACopyThatIsWaitedFor) {
  EXPECT_EQ(run({made(), fetch(), wait(), read()}), "status 0");
  EXPECT_EQ(run({made(), by_first({copy(), arrive()}), wait(), read()}), "status 0");
  EXPECT_EQ(run({made(), fetch(), wait(), wait(), read(), meet(), fetch(), wait(1), read()}),
            "status 0");
}

TEST_F(LaunchSignalRules, CopiesAreWaitedFor) {
  EXPECT_THAT(run({made(), fetch(), meet(), read()}), HasSubstr("to which a copy is on its way"));
  EXPECT_THAT(run({made(), fetch(), meet(), store(s, thread, load(x, thread)), wait()}),
              HasSubstr("to which a copy is on its way"));
  EXPECT_THAT(run({made(), fetch(), wait(), meet(), fetch()}),
              HasSubstr("the block ends while copies to s are on their way"));
  EXPECT_THAT(run({made(), by_first({arrive(2 * kBytes), copy(), copy()}), wait()}),
              HasSubstr("to which a copy is on its way"));
}

TEST_F(LaunchSignalRules, WhatNothingEndsIsNotWaitedFor) {
  EXPECT_THAT(run({made(), wait()}), HasSubstr("for ever: 1 of its 1 arrivals never come"));
  EXPECT_THAT(run({made(), by_first({copy()}), wait()}), HasSubstr("1 of its 1 arrivals"));
  EXPECT_THAT(run({made(), by_first({arrive(2 * kBytes), copy()}), wait()}),
              HasSubstr("512 bytes are expected and 256 come"));
  EXPECT_THAT(run({made(), by_first({copy(), arrive(kBytes / 2)}), wait()}),
              HasSubstr("128 bytes are expected and 256 come"));
  EXPECT_THAT(run({made(), by_first({arrive(kBytes / 2), copy()}), wait()}),
              HasSubstr("whose phase 0 is over with 128 bytes"));
  EXPECT_THAT(run({made(), by_first({arrive(0), arrive(0)}), wait()}),
              HasSubstr("beyond the 1 of its phase 0"));
}

// A parity tells the phase that goes on from the one before it, and no other.
TEST_F(LaunchSignalRules, PhasesAreNotMissed) {
  const StmtRef twice = seq({made(), fetch(), wait(), meet(), fetch(), wait(1)});
  EXPECT_EQ(run({twice, wait(1), read()}), "status 0");
  EXPECT_THAT(run({twice, wait()}), HasSubstr("which has gone on to phase 2 since"));
  EXPECT_THAT(run({twice, wait(3)}), HasSubstr("which is still at phase 2"));
  EXPECT_THAT(run({twice, wait(2)}), HasSubstr("for ever"));
}

TEST_F(LaunchSignalRules, SignalsAreShownAheadOfABarrier) {
  const std::string fault = "which its maker has not shown ahead of a barrier";
  EXPECT_THAT(run({by_first({init()}), meet(), fetch(), wait()}), HasSubstr(fault));
  EXPECT_THAT(run({by_first({proxy_fence(), init()}), meet(), fetch(), wait()}), HasSubstr(fault));
  EXPECT_THAT(run({by_first({init(), proxy_fence(), arrive(), copy()}), wait()}), HasSubstr(fault));
  EXPECT_THAT(run({fetch(), wait()}), HasSubstr("which nobody has made"));
  EXPECT_THAT(run({made(), by_first({init()})}), HasSubstr("is made twice"));
  EXPECT_THAT(run({by_first({signal_init(signals, 2, 1)})}), HasSubstr("which is not there"));
}

// A copy writes as the thread that begins it does, by way of the proxy that has to be shown what
// others wrote.
TEST_F(LaunchSignalRules, TargetsAreFree) {
  EXPECT_THAT(run({made(), fetch(), wait(), read(), fetch(), wait(1)}), HasSubstr("race"));
  const StmtRef write = store(s, thread, load(x, thread));
  EXPECT_THAT(run({made(), write, fetch(), wait()}),
              AnyOf(HasSubstr("race"), HasSubstr("has not shown it")));
  EXPECT_THAT(run({made(), write, meet(), fetch(), wait()}),
              HasSubstr("whose writer has not shown it ahead of a barrier"));
  EXPECT_EQ(run({made(), write, proxy_fence(), meet(), fetch(), wait(), read()}), "status 0");
  EXPECT_THAT(run({made(), by_first({arrive(), copy(2 * kBox)}), wait()}), HasSubstr("outside"));
}

TEST_F(LaunchSignalRules, TheWholeBlockWaitsAlike) {
  const std::string fault = "that not all threads of the block reach alike";
  EXPECT_THAT(run({made(), fetch(), by_first({wait()})}), HasSubstr(fault));
  EXPECT_THAT(run({made(), fetch(), if_then(lt(thread, 32), wait())}), HasSubstr(fault));
  EXPECT_THAT(run({made(), fetch(), wait(ir::floordiv(thread, 32))}), HasSubstr(fault));
  EXPECT_THAT(run({made(), fetch(), signal_wait(signals, thread, 0)}), HasSubstr(fault));
  EXPECT_THAT(run({check(lt(thread, 32), "too many"), wait()}),
              HasSubstr("a check that differs between threads"));
}

TEST_F(LaunchSignalRules, SignalsAreNothingElse) {
  const BufferRef words = k.registers("words", DType::kU64, 1);
  EXPECT_THAT(run({made(), set_reg(words, 0, load(signals, 0))}), HasSubstr("holds signals"));
  EXPECT_THAT(run({made(), signal_wait(s, 0, 0)}), HasSubstr("signals are u64 in shared memory"));
  EXPECT_THAT(run({by_first({signal_init(signals, 0, 0)})}), HasSubstr("for 0 arrivals"));
  EXPECT_THAT(run({by_first({arrive(1 << 20)})}), HasSubstr("with 1048576 bytes"));
  KernelBuilder cpu("cpu");
  const BufferRef out = cpu.out("out", DType::kU64, 1);
  EXPECT_THAT(verify(cpu.body({signal_wait(out, 0, 0)})), HasSubstr("without a launch"));
}

TEST_F(LaunchSignalRules, MapsAreOfRowsThatTheEngineReads) {
  const auto fault = [&](const BufferRef& of, std::vector<Dim> extents, std::vector<int> box) {
    k.function().maps = {map_of(of, std::move(extents), std::move(box))};
    return verify(k.body({}));
  };
  EXPECT_EQ(fault(x, {16, 16}, {16, 8}), "");
  EXPECT_THAT(fault(y, {16, 4}, {16, 8}), HasSubstr("no argument that is only read"));
  EXPECT_THAT(fault(s, {16, 4}, {16, 8}), HasSubstr("no argument that is only read"));
  EXPECT_THAT(fault(x, {16, 16}, {8, 8}), HasSubstr("have a swizzle"));
  EXPECT_THAT(fault(x, {16, 16}, {128, 8}), HasSubstr("have a swizzle"));
  EXPECT_THAT(fault(x, {16, 16}, {16, 257}), HasSubstr("boxes of 257"));
  EXPECT_THAT(fault(x, {16, 16}, {16}), HasSubstr("has 2 axes, and its boxes 1"));
  EXPECT_THAT(fault(x, {}, {}), HasSubstr("has 0 axes"));
  EXPECT_THAT(fault(x, {12, 16}, {16, 8}), HasSubstr("multiples of 16 bytes"));
  EXPECT_EQ(fault(x, {12}, {16}), "") << "one row may end anywhere";
  EXPECT_THAT(fault(x, {thread, 16}, {16, 8}), HasSubstr("no symbol of the contract"));
  const Dim n = k.symbol("n");
  EXPECT_THAT(fault(x, {n, 16}, {16, 8}), HasSubstr("multiples of 16 bytes"));
  EXPECT_EQ(fault(x, {n * 8, 16}, {16, 8}), "");
  const BufferRef loose = k.in("loose", DType::kU16, 256, 8);
  EXPECT_THAT(fault(loose, {16, 16}, {16, 8}), HasSubstr("aligned to 8 bytes; 16 are needed"));
}

TEST_F(LaunchSignalRules, CopiesAreOfTheFunctionsMaps) {
  const auto fault = [&](const StmtRef& copy) { return run({made(), by_first({arrive(), copy})}); };
  const TensorMapRef other = map_of(x, {16, 16}, {16, 8});
  EXPECT_THAT(fault(tensor_copy(s, 0, other, {0, 0}, signals, 0)), HasSubstr("no map of the"));
  EXPECT_THAT(fault(tensor_copy(s, 0, map, {0}, signals, 0)), HasSubstr("1 coordinates"));
  EXPECT_THAT(fault(copy(16)), HasSubstr("no multiple of 256 bytes"));
  const BufferRef loose = k.shared("loose", DType::kU16, kBox, 128);
  EXPECT_THAT(fault(tensor_copy(loose, 0, map, {0, 0}, signals, 0)),
              HasSubstr("is aligned to 128 bytes; boxes of map need 256"));
}

// No driver encodes a map of nothing.
TEST(LaunchSignal, TensorsWithoutElementsHaveNoBoxes) {
  KernelBuilder k("k");
  const Dim n = k.symbol("n");
  k.launch(32);
  const BufferRef x = k.in("x", DType::kU16, n * 16, 64), s = k.shared("s", DType::kU16, 128, 256),
                  signals = k.shared("signals", DType::kU64, 1);
  const TensorMapRef map = map_of(x, {16, n}, {16, 8});
  k.function().maps = {map};
  const Function f = k.body(
      {by_first({signal_init(signals, 0, 1), proxy_fence()}), meet(),
       by_first({signal_arrive(signals, 0, 256), tensor_copy(s, 0, map, {0, 0}, signals, 0)}),
       signal_wait(signals, 0, 0)});
  ASSERT_EQ(verify(f), "");
  ArgumentMemory in(64);
  EXPECT_EQ(result_of(f, {in}, {2}), 0);
  try {
    result_of(f, {std::span<std::byte>(in).first(0)}, {0});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("a copy of a box of map, which has no elements"));
  }
}

}  // namespace
}  // namespace nimble::kir
