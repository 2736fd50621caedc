// Products of groups of warps: what they compute in the emulator, and what verifier and emulator
// refuse.
#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "compiler/kernels/group_fragments.h"
#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/test/argument_memory.h"
#include "compiler/kernels/test/kernel_builder.h"
#include "compiler/kernels/test/launch_harness.h"
#include "vm/base/half.h"

namespace nimble::kir {
namespace {

using namespace build;  // NOLINT
using kernels::ArgumentMemory;
using ::testing::AnyOf;
using testing::bytes_of;
using ::testing::HasSubstr;
using testing::KernelBuilder;
using testing::lane;
using testing::outcome;
using testing::thread;
using testing::warp;

// --- What a product computes

std::byte* put(DType t, float v, std::byte* to) {
  const auto write = [&](auto value) {
    std::copy_n(reinterpret_cast<const std::byte*>(&value), sizeof value, to);
    return to + sizeof value;
  };
  switch (t) {
    case DType::kF16:
      return write(f16_from_f32(v));
    case DType::kBF16:
      return write(bf16_from_f32(v));
    case DType::kI8:
      return write(static_cast<int8_t>(v));
    case DType::kI32:
      return write(static_cast<int32_t>(v));
    default:
      return write(v);
  }
}

std::vector<std::byte> encoded(DType t, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * size_of(t));
  std::byte* to = bytes.data();
  for (const float v : values) to = put(t, v, to);
  return bytes;
}

struct Factor {
  bool along_k = true;
  int line_bytes = 128;
};

// A matrix of `wide` rows (or columns) by `depth`, as it lies in shared memory: the layouts of the
// PTX ISA, said otherwise than group_place does.
class Image {
 public:
  Image(DType t, Factor f, int wide, int depth)
      : size(static_cast<int>(size_of(t))),
        factor(f),
        span(f.line_bytes / size),
        lines(f.along_k ? wide : depth),
        elements((f.along_k ? depth : wide) * lines) {}

  int at(int x, int k) const {
    const int line = factor.along_k ? x : k, in_line = factor.along_k ? k : x;
    const int piece = 16 / size, pieces = span / piece;
    const int phase = line % 8 * factor.line_bytes / 128;
    return in_line / span * lines * span + line * span +
           ((in_line % span / piece) ^ (phase % pieces)) * piece + in_line % piece;
  }
  GroupView view(const BufferRef& b, int k) const {
    return {b, factor.along_k ? k : k * span, factor.along_k, span,
            factor.along_k ? 0 : lines * span};
  }

  int size;
  Factor factor;
  int span, lines, elements;
};

BufferRef tile(KernelBuilder& k, const std::string& name, DType t, const Image& image) {
  return k.shared(name, t, image.elements, 8 * image.factor.line_bytes);
}

// Copies of 16 bytes from global to shared memory, by all threads.
StmtRef copied(const BufferRef& to, const BufferRef& from, int elements, int size) {
  const int piece = 16 / size, pieces = elements / piece;
  std::vector<StmtRef> all;
  for (int first = 0; first < pieces; first += kGroupThreads)
    all.push_back(if_then(lt(thread + first, pieces), async_copy(to, (thread + first) * piece, from,
                                                                 (thread + first) * piece, piece)));
  return seq(std::move(all));
}

void check_product(const GroupFragmentRow& row, int columns, Factor a_is, Factor b_is) {
  SCOPED_TRACE(::testing::Message()
               << row.name << " of " << columns << " columns, along k " << a_is.along_k
               << b_is.along_k << ", lines of " << a_is.line_bytes << " and " << b_is.line_bytes);
  const int size = static_cast<int>(size_of(row.a));
  const int depth =
      std::min(a_is.along_k ? a_is.line_bytes : 128, b_is.along_k ? b_is.line_bytes : 128) / size;
  const auto image = [&](Factor f, int wide) {
    return Image(row.a, f, wide, f.along_k ? f.line_bytes / size : depth);
  };
  const Image a_image = image(a_is, kGroupRows), b_image = image(b_is, columns);
  KernelBuilder k("product");
  k.launch(kGroupThreads);
  const BufferRef a = k.in("a", row.a, a_image.elements, 64),
                  b = k.in("b", row.b, b_image.elements, 64),
                  c = k.in_out("c", row.sum, kGroupRows * columns);
  const BufferRef as = tile(k, "as", row.a, a_image), bs = tile(k, "bs", row.b, b_image);
  const int registers = GroupFragmentRow::sum_registers(columns);
  const BufferRef sum = k.registers("sum", row.sum, registers);
  std::vector<StmtRef> body = {copied(as, a, a_image.elements, size),
                               copied(bs, b, b_image.elements, size),
                               async_commit(),
                               async_wait(0),
                               proxy_fence(),
                               barrier(Together::kBlock)};
  const auto place = [&](int i) {
    const Dim m = 16 * warp + 8 * (i / 2 % 2) + ir::floordiv(lane, 4),
              n = 8 * (i / 4) + 2 * ir::mod(lane, 4) + i % 2;
    return m * columns + n;
  };
  for (int i = 0; i < registers; ++i) body.push_back(set_reg(sum, i, load(c, place(i))));
  body.push_back(group_fence());
  for (int kk = 0; kk < depth; kk += row.k)
    body.push_back(group_dot(row.id, columns, sum, 0, a_image.view(as, kk), b_image.view(bs, kk)));
  body.push_back(group_commit());
  body.push_back(group_wait(0));
  for (int i = 0; i < registers; ++i) body.push_back(store(c, place(i), reg(sum, i)));
  const Function f = k.body(std::move(body));
  ASSERT_EQ(verify(f), "");

  const auto number = [](int x, int kk, int seed) {
    return static_cast<float>((x * 37 + kk * 11 + x / 5 * seed) % 23 - 11);
  };
  std::vector<float> left(a_image.elements), right(b_image.elements), sums(kGroupRows * columns);
  for (int kk = 0; kk < depth; ++kk) {
    for (int m = 0; m < kGroupRows; ++m) left[a_image.at(m, kk)] = number(m, kk, 3);
    for (int n = 0; n < columns; ++n) right[b_image.at(n, kk)] = number(n, kk, 7);
  }
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = number(static_cast<int>(i), 1, 5);
  std::vector<std::byte> bytes_a = encoded(row.a, left), bytes_b = encoded(row.b, right),
                         bytes_c = encoded(row.sum, sums);
  for (int m = 0; m < kGroupRows; ++m)
    for (int n = 0; n < columns; ++n)
      for (int kk = 0; kk < depth; ++kk)
        sums[m * columns + n] += number(m, kk, 3) * number(n, kk, 7);
  const auto argument = [](const std::vector<std::byte>& from) {
    ArgumentMemory to(from.size());
    std::copy(from.begin(), from.end(), std::span<std::byte>(to).begin());
    return to;
  };
  ArgumentMemory memory_a = argument(bytes_a), memory_b = argument(bytes_b);
  const std::vector<std::span<std::byte>> buffers = {memory_a, memory_b, bytes_c};
  EXPECT_EQ(Interpreter(f).run(buffers, {}), 0);
  EXPECT_EQ(bytes_c, encoded(row.sum, sums));
}

TEST(LaunchGroup, ProductsOfEveryRow) {
  for (const GroupFragmentRow& row : all_group_fragments())
    for (const int columns : {8, 16, 64})
      for (const bool a_along : {true, false})
        for (const bool b_along : {true, false})
          for (const int line : {32, 64, 128}) {
            const int size = static_cast<int>(size_of(row.a));
            if (!row.across() && !(a_along && b_along)) continue;
            // Lines across k are no longer than what they hold.
            if (!b_along && columns % (line / size) != 0) continue;
            check_product(row, columns, {a_along, line}, {b_along, line});
          }
}

TEST(LaunchGroup, FactorsMayLieDifferently) {
  for (const GroupFragmentRow& row : all_group_fragments()) {
    check_product(row, 32, {true, 128}, {true, 32});
    if (row.across()) check_product(row, 256, {true, 64}, {false, 128});
    if (row.across()) check_product(row, 32, {false, 128}, {false, 64});
  }
}

// The descriptor of the PTX ISA: bits 16 to 29 from slab to slab, 32 to 45 from eight lines to the
// next, in units of 16 bytes; 62 and 63 the swizzle.
TEST(LaunchGroup, DescriptorsSayWhereLinesAre) {
  Buffer b;
  b.dtype = DType::kBF16;
  const auto of = [&](bool along_k, int span, int64_t slab) {
    return descriptor_of({std::make_shared<const Buffer>(b), 0, along_k, span, slab});
  };
  EXPECT_EQ(of(true, 64, 0), uint64_t{1} << 16 | uint64_t{64} << 32 | uint64_t{1} << 62);
  EXPECT_EQ(of(true, 32, 0), uint64_t{1} << 16 | uint64_t{32} << 32 | uint64_t{2} << 62);
  EXPECT_EQ(of(true, 16, 0), uint64_t{1} << 16 | uint64_t{16} << 32 | uint64_t{3} << 62);
  EXPECT_EQ(of(false, 64, 64 * 64), uint64_t{512} << 16 | uint64_t{64} << 32 | uint64_t{1} << 62);
}

// --- What is refused

class LaunchGroupRules : public ::testing::Test {
 protected:
  static constexpr DType kType = DType::kBF16;
  static constexpr int kColumns = 8, kDepth = 16;

  LaunchGroupRules() { k.launch(kGroupThreads); }

  StmtRef copies() {
    return seq({copied(as, a, kGroupRows * kDepth, 2), copied(bs, b, kColumns * kDepth, 2),
                async_commit()});
  }
  StmtRef zero() {
    std::vector<StmtRef> all;
    for (int i = 0; i < 4; ++i) all.push_back(set_reg(sum, i, f32(0)));
    return seq(std::move(all));
  }
  GroupView view(const BufferRef& of, const Dim& at = 0) { return {of, at, true, kDepth, 0}; }
  StmtRef dot() {
    return group_dot(GroupFragment::kBf16Group, kColumns, sum, 0, view(as), view(bs));
  }
  StmtRef stored() { return store(y, thread, reg(sum, 0)); }
  StmtRef meet() { return barrier(Together::kBlock); }
  // Up to where products may begin.
  std::vector<StmtRef> ready() {
    return {copies(), async_wait(0), proxy_fence(), meet(), zero(), group_fence()};
  }
  // What the verifier says, or else the emulator.
  std::string run(std::vector<StmtRef> body, const std::vector<StmtRef>& more = {}) {
    body.insert(body.end(), more.begin(), more.end());
    const Function f = k.body(std::move(body));
    if (std::string wrong = verify(f); !wrong.empty()) return wrong;
    ArgumentMemory in_a(kGroupRows * kDepth * 2), in_b(kColumns * kDepth * 2);
    std::vector<float> out(kGroupThreads);
    return outcome(f, {in_a, in_b, bytes_of(out)});
  }

  KernelBuilder k{"k"};
  BufferRef a = k.in("a", kType, kGroupRows*kDepth, 64), b = k.in("b", kType, kColumns*kDepth, 64),
            y = k.out("y", DType::kF32, kGroupThreads);
  BufferRef as = k.shared("as", kType, kGroupRows*kDepth, 256),
            bs = k.shared("bs", kType, kColumns*kDepth, 256);
  BufferRef sum = k.registers("sum", DType::kF32, 4);
};

TEST_F(LaunchGroupRules, AcceptAProduct) {
  EXPECT_EQ(run(ready(), {dot(), group_commit(), group_wait(0), stored()}), "status 0");
}

TEST_F(LaunchGroupRules, WritesAreShownToProductsAheadOfABarrier) {
  const std::vector<StmtRef> product = {zero(),         group_fence(), dot(),
                                        group_commit(), group_wait(0), stored()};
  const std::string fault = "has not shown to products ahead of a barrier";
  EXPECT_THAT(run({copies(), async_wait(0), meet()}, product), HasSubstr(fault));
  EXPECT_THAT(run({copies(), async_wait(0), meet(), proxy_fence()}, product), HasSubstr(fault));
  EXPECT_THAT(run({copies(), proxy_fence(), async_wait(0), meet()}, product), HasSubstr(fault));
  EXPECT_THAT(run({copies(), async_wait(1), proxy_fence(), meet()}, product),
              HasSubstr("to which a copy is on its way"));
  EXPECT_THAT(run({copies(), async_wait(0), proxy_fence()}, product),
              AnyOf(HasSubstr("race"), HasSubstr("nothing has written"), HasSubstr(fault)));
}

TEST_F(LaunchGroupRules, FactorsStayUntilTheProductIsDone) {
  EXPECT_THAT(run(ready(), {dot(), group_commit(), copies(), async_wait(0), group_wait(0)}),
              HasSubstr("which a product on its way reads"));
  EXPECT_THAT(run(ready(), {dot(), group_commit(), meet(), copies(), async_wait(0), group_wait(0)}),
              HasSubstr("which a product on its way reads"));
  EXPECT_THAT(run(ready(), {dot(), group_commit(), group_wait(0), copies(), async_wait(0)}),
              HasSubstr("race"));
  EXPECT_EQ(run(ready(), {dot(), group_commit(), group_wait(0), meet(), copies(), async_wait(0)}),
            "status 0");
}

TEST_F(LaunchGroupRules, SumsAreLeftAloneUntilTheProductIsDone) {
  const std::string fault = "register sum is used while products into it are under way";
  EXPECT_THAT(run(ready(), {dot(), group_commit(), stored(), group_wait(0)}), HasSubstr(fault));
  EXPECT_THAT(run(ready(), {dot(), group_commit(), group_wait(1), stored(), group_wait(0)}),
              HasSubstr(fault));
  EXPECT_THAT(run(ready(), {dot(), group_wait(0), stored()}), HasSubstr(fault));
  EXPECT_THAT(run(ready(), {dot(), group_commit(), zero(), group_wait(0)}), HasSubstr(fault));
  EXPECT_THAT(run(ready(), {dot(), group_commit()}), HasSubstr("the function ends while products"));
  EXPECT_THAT(run(ready(), {dot(), meet(), group_commit(), group_wait(0)}),
              HasSubstr("of no batch yet"));
  EXPECT_EQ(run(ready(), {dot(), group_commit(), meet(), group_wait(0), stored()}), "status 0");
}

// What a loop leaves under way its next round finds.
TEST_F(LaunchGroupRules, LoopsAreFollowed) {
  const auto rounds = [&](std::vector<StmtRef> body) {
    return loop(LoopKind::kSerial, "i", 0, 3, seq(std::move(body)));
  };
  EXPECT_EQ(run(ready(), {rounds({group_fence(), dot(), group_commit(), group_wait(1)}),
                          group_wait(0), stored()}),
            "status 0");
  EXPECT_THAT(run(ready(), {rounds({zero(), group_fence(), dot(), group_commit(), group_wait(1)}),
                            group_wait(0)}),
              HasSubstr("register sum is used while"));
  EXPECT_THAT(run(ready(), {rounds({group_fence(), dot(), group_commit()}), stored()}),
              HasSubstr("register sum is used while"));
}

TEST_F(LaunchGroupRules, FencesStandBehindWritesOfSums) {
  const std::vector<StmtRef> begin = {copies(), async_wait(0), proxy_fence(), meet(), zero()};
  EXPECT_THAT(run(begin, {dot(), group_commit(), group_wait(0)}),
              HasSubstr("with no fence of the group behind"));
  EXPECT_THAT(run(ready(), {set_reg(sum, 1, f32(1)), dot(), group_commit(), group_wait(0)}),
              HasSubstr("with no fence of the group behind"));
}

TEST_F(LaunchGroupRules, AllWarpsOfAGroupComeToItsProducts) {
  const std::string fault = "that not all warps of a group reach alike";
  const StmtRef product = seq({dot(), group_commit(), group_wait(0)});
  for (const Condition& c : {eq(warp, 0), lt(thread, 64), eq(ir::floordiv(thread, 64), 0)})
    EXPECT_THAT(run(ready(), {if_then(c, product)}), HasSubstr(fault));
  EXPECT_EQ(verify(k.body([&] {
              std::vector<StmtRef> body = ready();
              body.push_back(if_then(eq(ir::floordiv(thread, 128), 0), product));
              return body;
            }())),
            "");
  auto small = k;
  small.launch(64);
  EXPECT_THAT(verify(small.body({group_wait(0)})), HasSubstr("groups of warps have 128"));
}

TEST_F(LaunchGroupRules, FactorsAreTilesThatADescriptorNames) {
  const auto fault = [&](int columns, const GroupView& left, const GroupView& right) {
    return run(ready(), {group_dot(GroupFragment::kBf16Group, columns, sum, 0, left, right),
                         group_commit(), group_wait(0)});
  };
  EXPECT_THAT(fault(12, view(as), view(bs)), HasSubstr("multiples of 8"));
  EXPECT_THAT(fault(16, view(as), view(bs)), HasSubstr("out of range"));
  EXPECT_THAT(fault(8, view(as, lane * 8), view(bs)),
              HasSubstr("differs between the threads of a group"));
  EXPECT_THAT(fault(8, view(as, 4), view(bs)), HasSubstr("no multiple of 16 bytes"));
  EXPECT_THAT(fault(8, view(as, 16), view(bs)), HasSubstr("in the first of eight lines"));
  EXPECT_THAT(fault(8, view(as), view(bs, 8)), HasSubstr("in the first of eight lines"));
  EXPECT_THAT(fault(8, {as, 0, true, 24, 0}, view(bs)), HasSubstr("have a swizzle"));
  EXPECT_THAT(fault(8, {as, 0, true, 64, 0}, view(bs)), HasSubstr("its swizzle needs 1024"));
  EXPECT_THAT(fault(8, view(as), {bs, 0, false, 16, 0}), HasSubstr("not whole lines"));
  EXPECT_THAT(fault(8, view(a), view(bs)), HasSubstr("not shared memory"));
}

TEST(LaunchGroup, BytesLieAlongK) {
  KernelBuilder k("k");
  k.launch(kGroupThreads);
  const BufferRef s = k.shared("s", DType::kI8, 8192, 256);
  const BufferRef sum = k.registers("sum", DType::kI32, 16);
  const GroupView across{s, 0, false, 32, 1024}, along{s, 0, true, 32, 0};
  EXPECT_THAT(verify(k.body(
                  {group_fence(), group_dot(GroupFragment::kS8Group, 32, sum, 0, along, across)})),
              HasSubstr("along k alone"));
}

TEST_F(LaunchGroupRules, RegistersAreOfOneNumberOfColumns) {
  const BufferRef wide = k.registers("wide", DType::kF32, 8);
  const BufferRef more = k.shared("more", kType, 16 * kDepth, 256);
  EXPECT_THAT(
      verify(k.body({group_fence(),
                     group_dot(GroupFragment::kBf16Group, 8, wide, 0, view(as), view(bs)),
                     group_dot(GroupFragment::kBf16Group, 16, wide, 0, view(as), view(more)),
                     group_commit(), group_wait(0)})),
      HasSubstr("each needs registers of its own"));
  EXPECT_THAT(verify(k.body({group_fence(),
                             group_dot(GroupFragment::kBf16Group, 8, wide, 2, view(as), view(bs)),
                             group_commit(), group_wait(0)})),
              HasSubstr("begin at multiples of 4 registers"));
}

// In one launch sums that begin ahead of the steps would go on from step to step, and with a launch
// for each they would begin anew.
TEST_F(LaunchGroupRules, SumsOfStepsBeginInThem) {
  const Dim n = k.symbol("n");
  const auto fault = [&](std::vector<StmtRef> ahead, std::vector<StmtRef> step) {
    ahead.push_back(loop(LoopKind::kSteps, "t", 0, n, seq(std::move(step))));
    return verify(k.body(std::move(ahead)));
  };
  const std::vector<StmtRef> product = {dot(), group_commit(), group_wait(0), stored()};
  EXPECT_THAT(fault(ready(), product), HasSubstr("a step writes sum, which was made ready"));
  // Nor may those that begin in the step, as yet.
  std::vector<StmtRef> whole = {zero(), group_fence()};
  whole.insert(whole.end(), product.begin(), product.end());
  EXPECT_THAT(fault({copies(), async_wait(0), proxy_fence(), meet()}, whole),
              HasSubstr("a fence of a group in a function with steps of the whole grid"));
}

// Shared memory begins where the widest swizzle of its buffers may.
TEST(LaunchGroup, SharedMemoryIsAligned) {
  KernelBuilder k("k");
  const BufferRef first = k.shared("first", DType::kF32, 3),
                  second = k.shared("second", DType::kF32, 3, 1024),
                  third = k.shared("third", DType::kF32, 1);
  k.launch(32);
  const Function f = k.body({});
  EXPECT_EQ(verify(f), "");
  EXPECT_EQ(shared_alignment(f), 1024);
  EXPECT_EQ(shared_place(f, *first), 0);
  EXPECT_EQ(shared_place(f, *second), 1024);
  EXPECT_EQ(shared_place(f, *third), 1152);
  EXPECT_EQ(shared_bytes(f), 1280);
}

}  // namespace
}  // namespace nimble::kir
