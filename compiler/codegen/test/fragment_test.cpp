// Dots as machine code and as portable code: the row's bits where there is an instruction for it,
// elsewhere those of the expansion.
#include <gtest/gtest.h>

#include "compiler/codegen/llvm/architecture.h"
#include "compiler/codegen/test/native.h"
#include "compiler/codegen/test/portable.h"
#include "compiler/kernels/test/fragment_cases.h"

namespace nimble::codegen {
namespace {

using namespace kir;         // NOLINT
using namespace kir::build;  // NOLINT
using kir::testing::bytes_of;
using kir::testing::dot_kernel;
using kir::testing::DotCase;
using kir::testing::KernelBuilder;
using kir::testing::same_sum;
using testing::Native;
using testing::Portable;
using testing::runnable_levels;

class Fragments : public ::testing::TestWithParam<Fragment> {
 protected:
  const FragmentRow& row_ = row_of(GetParam());
  std::mt19937_64 random_{5};

  // Runs `run` and the interpreter on the same elements.
  template <class Run>
  void compare(const Function& interpreted, int lanes, bool fused, const std::string& what,
               const Run& run) {
    const Interpreter interpreter(interpreted, {.fused = fused});
    for (const int64_t n : {0, 1, 7, 500}) {
      DotCase c(row_.id, lanes, n, false, random_), want = c;
      ASSERT_EQ(run(c.arguments(), n), 0);
      ASSERT_EQ(interpreter.run(want.arguments(), {{n}}), 0);
      for (size_t i = 0; i < static_cast<size_t>(n * lanes); ++i)
        ASSERT_TRUE(same_sum(row_.sum, c.y, want.y, i))
            << what << ", " << lanes << " sums: " << std::hex
            << kir::testing::element_at<uint32_t>(c.y, i) << " instead of "
            << kir::testing::element_at<uint32_t>(want.y, i);
    }
  }

  // Every number of lanes, with a factor each and with one group for all.
  template <class Check>
  void each(const Check& check) {
    for (int lanes = 1; lanes * row_.group <= 64; lanes *= 2)
      for (const bool one_group : {false, true}) {
        check(lanes, one_group);
        if (HasFatalFailure()) return;
      }
  }
};

INSTANTIATE_TEST_SUITE_P(Table, Fragments, ::testing::ValuesIn([] {
                           std::vector<Fragment> out;
                           for (const FragmentRow& row : all_fragments()) out.push_back(row.id);
                           return out;
                         }()),
                         [](const auto& info) { return std::string(row_of(info.param).name); });

TEST_P(Fragments, AreTheRowWhereThereIsAnInstruction) {
  if (row_.feature.empty()) GTEST_SKIP() << "no target has one; its expansion has the row's bits";
  bool found = false;
  for (const std::string& level : runnable_levels()) {
    if (!kernels::target_by_name(level).has(std::string(row_.feature))) continue;
    found = true;
    each([&](int lanes, bool one_group) {
      const Function f = dot_kernel(row_.id, lanes, {.one_group = one_group});
      const Native native(f, level);
      compare(f, lanes, true, level,
              [&](const auto& buffers, int64_t n) { return native.run(buffers, {n}); });
    });
  }
  if (!found) GTEST_SKIP() << "this machine lacks " << row_.feature;
}

TEST_P(Fragments, AreTheExpansionElsewhere) {
  each([&](int lanes, bool one_group) {
    const Function f = dot_kernel(row_.id, lanes, {.one_group = one_group});
    const Function expanded =
        dot_kernel(row_.id, lanes, {.expanded = true, .one_group = one_group});
    const Portable portable(f);
    compare(expanded, lanes, false, "portable",
            [&](const auto& buffers, int64_t n) { return portable.run(buffers, {n}); });
    for (const std::string& level : runnable_levels()) {
      const kernels::TargetInfo target = kernels::target_by_name(level);
      if (target.has(std::string(row_.feature))) continue;
      const Native native(f, level);
      compare(expanded, lanes, has_fma(target), level,
              [&](const auto& buffers, int64_t n) { return native.run(buffers, {n}); });
    }
  });
}

// A kernel without f16 is the same code at the level that multiplies them.
TEST(Halves, AreAPartOfTheCodesHash) {
  const auto hash = [](const Function& f, const char* level) {
    return compile({&f, 1}, kernels::target_by_name(level)).functions.at(0).code_hash;
  };
  const Function halves = dot_kernel(Fragment::kF16Pairs, 4);
  EXPECT_NE(hash(halves, "aarch64-fp16fml"), hash(halves, "aarch64-bf16"));
  const Function others = dot_kernel(Fragment::kBf16Pairs, 4);
  EXPECT_EQ(hash(others, "aarch64-fp16fml"), hash(others, "aarch64-bf16"));
}

// Groups of every size that fills words and of those that do not, of every kind of element.
TEST(Groups, AreBroadcastEverywhere) {
  std::mt19937_64 random(6);
  for (const DType t : {DType::kBool, DType::kI8, DType::kBF16, DType::kF32, DType::kF64})
    for (int group = 1; group <= 16; group *= 2) {
      KernelBuilder k("groups");
      auto x = k.in("x", t, 16);
      auto y = k.out("y", t, 48);
      const ValueRef v = load(x, 0, group);
      // A masked load, too: it is no load that a printer may repeat lane by lane.
      const Function f = k.body({store(y, 0, broadcast(v, 16)),
                                 store(y, 16, broadcast(load_masked(x, 0, group, 16), 32))});
      ASSERT_EQ(verify(f), "");
      std::vector<std::byte> in(16 * size_of(t));
      for (std::byte& b : in) b = static_cast<std::byte>(random() & (t == DType::kBool ? 1 : 0x7f));
      std::vector<std::byte> want(48 * size_of(t));
      ASSERT_EQ(Interpreter(f).run({{std::span(in), std::span(want)}}, {}), 0);
      const auto check = [&](const std::string& what, const auto& run) {
        std::vector<std::byte> got(want.size());
        ASSERT_EQ(run(std::vector<std::span<std::byte>>{in, got}), 0);
        ASSERT_EQ(got, want) << what << ", groups of " << group << ' ' << nimble::name_of(t);
      };
      const Portable portable(f);
      check("portable", [&](const auto& buffers) { return portable.run(buffers, {}); });
      for (const std::string& level : runnable_levels()) {
        const Native native(f, level);
        check(level, [&](const auto& buffers) { return native.run(buffers, {}); });
      }
    }
}

// There and back between lanes of all sizes.
TEST(Bitcasts, RegroupLanesEverywhere) {
  std::mt19937_64 random(7);
  KernelBuilder k("words");
  auto x = k.in("x", DType::kU8, 64);
  std::vector<StmtRef> stores;
  for (const DType t : {DType::kI8, DType::kU16, DType::kBF16, DType::kI32, DType::kF64}) {
    const ValueRef words = bitcast(t, load(x, 0, 64));
    const auto y = k.out(fmt::format("y{}", stores.size()), t, words->lanes);
    stores.push_back(store(y, 0, words));
    const auto z = k.out(fmt::format("y{}", stores.size()), DType::kU32, 16);
    stores.push_back(store(z, 0, bitcast(DType::kU32, words)));
  }
  const Function f = k.body(stores);
  ASSERT_EQ(verify(f), "");
  std::vector<std::byte> in(64);
  for (std::byte& b : in) b = static_cast<std::byte>(random());
  const auto check = [&](const std::string& what, const auto& run) {
    std::vector<std::vector<std::byte>> out(stores.size(), std::vector<std::byte>(64));
    std::vector<std::span<std::byte>> buffers = {in};
    buffers.insert(buffers.end(), out.begin(), out.end());
    ASSERT_EQ(run(buffers), 0);
    for (const auto& bytes : out) ASSERT_EQ(bytes, in) << what;
  };
  check("interpreter", [&](const auto& buffers) { return Interpreter(f).run(buffers, {}); });
  const Portable portable(f);
  check("portable", [&](const auto& buffers) { return portable.run(buffers, {}); });
  for (const std::string& level : runnable_levels()) {
    const Native native(f, level);
    check(level, [&](const auto& buffers) { return native.run(buffers, {}); });
  }
}

}  // namespace
}  // namespace nimble::codegen
