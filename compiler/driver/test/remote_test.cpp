// The corpus on a machine of another architecture, which NIMBLE_TEST_RUNNER names
// (scripts/test-aarch64): each program for one of the levels that it runs, on one thread or on two,
// and those with products under policies of precision.
#include "vm/interpreter/test/runner/remote.h"

#include "compiler/driver/test/harness.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/targets.h"
#include "vm/base/cpu.h"

namespace nimble::driver::testing {
namespace {

using rt::testing::Remote;

// Levels that the other machine runs, the lowest first; none if there is no such machine.
std::vector<std::string> remote_levels() {
  std::vector<std::string> levels = kernels::machine_levels();
  CpuInfo cpu;
  if (Remote* remote = Remote::get()) cpu.level = remote->level();
  std::erase_if(levels, [&](const std::string& level) { return !cpu.has(level); });
  return levels;
}

// All programs, shared out: as tests of their own they would start an emulator each.
constexpr size_t kShards = 8;
class OtherMachine : public ::testing::TestWithParam<size_t> {};

TEST_P(OtherMachine, AgreesWithTheReference) {
  const std::vector<std::string> levels = remote_levels();
  if (levels.empty()) GTEST_SKIP() << "NIMBLE_TEST_RUNNER names no other machine";
  const std::vector<Program>& all = all_programs();
  for (size_t i = GetParam(); i < all.size(); i += kShards) {
    Configuration c;
    c.target = levels[(i / kShards) % levels.size()];
    c.threads = 1 + static_cast<int>(i % 2);
    c.name = fmt::format("{}, {} threads", c.target, c.threads);
    check_program(all[i], c, 6);
  }
}

// Narrow numbers are the same rounding on both machines, so that what this one computes is the
// oracle. A sum's last bit may turn the rounding of a byte that is made of it.
TEST_P(OtherMachine, AgreesWithThisOneInNarrowNumbers) {
  const std::vector<std::string> levels = remote_levels();
  if (levels.empty()) GTEST_SKIP() << "NIMBLE_TEST_RUNNER names no other machine";
  constexpr double kTolerance = 2e-2;
  std::vector<const Program*> products;
  for (const Program& p : all_programs())
    if (p.text.find(" matmul(") != std::string::npos ||
        p.text.find(" conv2d(") != std::string::npos)
      products.push_back(&p);
  size_t compared = 0;
  for (size_t i = GetParam(); i < products.size(); i += kShards)
    for (const passes::PrecisionInfo& precision : passes::all_precisions()) {
      if (precision.id == passes::Precision{}) continue;
      const Program& p = *products[i];
      Configuration here, there;
      here.precision = there.precision = precision.id;
      there.target = levels[++compared % levels.size()];
      SCOPED_TRACE(fmt::format("{} as {} for {}", p.name, precision.name, there.target));
      const ir::Module m = ir::parse_module(p.text, p.name);
      Compiled own(m, here), other(m, there);
      for (const Sizes& sizes : sizes_of(p, *own.typed().find("main"), 2)) {
        const auto inputs = random_inputs(p, *own.typed().find("main"), sizes, 3);
        std::vector<ir::TensorRef> want;
        try {
          want = own.run("main", inputs);
        } catch (const Error&) {
          EXPECT_THROW(other.run("main", inputs), Error);
          continue;
        }
        expect_close(other.run("main", inputs), want, kTolerance);
        if (HasFatalFailure()) return;
      }
    }
  EXPECT_GT(compared, 0u);
}

INSTANTIATE_TEST_SUITE_P(Shards, OtherMachine, ::testing::Range(size_t{0}, kShards));

}  // namespace
}  // namespace nimble::driver::testing
