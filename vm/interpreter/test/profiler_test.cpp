// What a profile keeps.
#include "vm/interpreter/profiler.h"

#include <gmock/gmock.h>

#include "vm/executable/assembler.h"

namespace nimble::rt {
namespace {

using ::testing::HasSubstr;

constexpr char kKernel[] =
    "kernel \"k\" { symbols n scalar n scratch [0] dispatch { 0: 0 } host \"h\" }";

void add_shapes(Profiler* profiler, int64_t from, int64_t to) {
  for (int64_t n = from; n < to; ++n) profiler->add_kernel(0, 0, 1, {&n, 1}, 1000);
}

// Beyond that many shapes calls are still counted, and the profile stays as large as it is.
TEST(ProfilerTest, HoldsABoundedNumberOfShapes) {
  constexpr auto kMost = static_cast<int64_t>(Profiler::kMostShapes);
  Profiler profiler;
  add_shapes(&profiler, 0, 2 * kMost);
  EXPECT_EQ(profiler.shapes(), Profiler::kMostShapes + 1);
  add_shapes(&profiler, 0, 1);  // one that is known stays apart
  const std::string json = profiler.json(exec::assemble(kKernel));
  EXPECT_THAT(json, HasSubstr(R"("count":16384,"implementation":"h","name":"k","shape":{},)"));
  EXPECT_THAT(json, HasSubstr(R"("count":2,"implementation":"h","name":"k","shape":{"n":0},)"));
}

TEST(ProfilerTest, HoldsAsManyAfterItTookInOthers) {
  constexpr auto kMost = static_cast<int64_t>(Profiler::kMostShapes);
  Profiler all;
  for (int64_t i = 0; i < 4; ++i) {
    Profiler run;
    add_shapes(&run, i * kMost / 2, (i + 1) * kMost / 2);
    all.absorb(run);
    EXPECT_EQ(run.shapes(), 0u);
  }
  EXPECT_EQ(all.shapes(), Profiler::kMostShapes + 1);
  EXPECT_THAT(all.json(exec::assemble(kKernel)), HasSubstr(R"("count":16384,)"));
}

}  // namespace
}  // namespace nimble::rt
