// What default schedules of convolutions take from the target's caches.
#include "compiler/kernels/targets.h"
#include "compiler/kernels/test/image_cases.h"

namespace nimble::kernels::testing {
namespace {

Config default_of(const Filter& f, const TargetInfo& t) {
  const Workload w = workload_of(packed_convolution(f, DType::kF32).text);
  const Template* chosen = template_for(w, t);
  EXPECT_EQ(chosen->name(), "conv2d_nhwc");
  return chosen->default_config(w, t);
}

TEST(ImageSchedules, BlocksAreLeftOutWhereALargeL2IsKnown) {
  const Filter f{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 512, 512};
  TargetInfo t = mode().targets.front();
  EXPECT_GT(knob_int(default_of(f, t), "c_block"), 0) << "1 MiB is a guess";
  t.knows_l2 = true;
  EXPECT_EQ(knob_int(default_of(f, t), "c_block"), 0);
  t.l2_bytes = 512 << 10;
  EXPECT_GT(knob_int(default_of(f, t), "c_block"), 0);
}

TEST(ImageSchedules, PixelsOfATileFindRoomInL1) {
  TargetInfo t = mode().targets.front();
  const auto rows = [&](int64_t stride, int64_t channels) {
    return knob_int(default_of({1, 1, stride, stride, 0, 0, 0, 0, 1, 1, 1, channels, 1024}, t),
                    "rows");
  };
  EXPECT_EQ(rows(2, 512), 8);  // 4096 bytes apart: 8 ways of one set
  EXPECT_EQ(rows(2, 1024), 8);
  EXPECT_GT(rows(2, 256), 8);  // two sets
  EXPECT_GT(rows(2, 513), 8);
  t.l1_bytes = 48 << 10;
  EXPECT_EQ(rows(2, 512), 12);
}

}  // namespace
}  // namespace nimble::kernels::testing
