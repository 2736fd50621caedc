// Host operators on their own: values against what is written here, refusals of extents that do not
// fit the data.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "vm/base/error.h"
#include "vm/library/registry.h"
#include "vm/runtime/thread_pool.h"

namespace nimble::rt {
namespace {

using exec::ImplementationKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

const LibraryKernel& kernel(const std::string& name) {
  const LibraryKernel* k = find_library_kernel(ImplementationKind::kHost, name);
  EXPECT_NE(k, nullptr) << name;
  return *k;
}

// A tensor that owns its elements.
template <class T>
struct Owned {
  std::vector<int64_t> shape;
  std::vector<T> data;
  DType dtype;
  LibraryTensor view() { return {dtype, shape, data.data()}; }
};
Owned<float> f32(std::vector<int64_t> shape, std::vector<float> data) {
  return {std::move(shape), std::move(data), DType::kF32};
}
Owned<int64_t> i64(std::vector<int64_t> shape, std::vector<int64_t> data = {}) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  data.resize(static_cast<size_t>(n), -7);
  return {std::move(shape), std::move(data), DType::kI64};
}

void run(const std::string& name, std::vector<LibraryTensor> tensors,
         std::vector<int64_t> scalars = {}) {
  WorkMeter meter;
  const LibraryCall call{tensors, {}, scalars, nullptr, {}, &meter};
  kernel(name).run(call, 0, 1, nullptr);
}

template <class F>
std::string message_of(F body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kFatal);
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Selection, NonzeroTakesNegativeZeroAsZeroAndNaNAsNot) {
  auto x = f32({2, 3}, {0, -0.0F, kNaN, 1, 0, -2});
  auto n = i64({1});
  run("host.count_nonzero", {x.view(), n.view()});
  EXPECT_EQ(n.data[0], 3);
  auto y = i64({2, 3});
  run("host.nonzero", {x.view(), y.view()});
  EXPECT_THAT(y.data, ElementsAre(0, 1, 1, 2, 0, 2));
  auto wrong = i64({2, 2});
  EXPECT_THAT(message_of([&] {
                run("host.nonzero", {x.view(), wrong.view()});
              }),
              HasSubstr("count"));
  EXPECT_THAT(wrong.data, ElementsAre(-7, -7, -7, -7));
}

TEST(Selection, RepeatsAreCheckedBeforeAnythingIsWritten) {
  auto r = i64({3}, {2, 0, 1});
  auto n = i64({1});
  run("host.count_repeat", {r.view(), n.view()});
  EXPECT_EQ(n.data[0], 3);
  auto x = f32({3}, {5, 6, 7});
  auto y = f32({3}, {0, 0, 0});
  run("host.repeat", {x.view(), r.view(), y.view()}, {0});
  EXPECT_THAT(y.data, ElementsAre(5, 5, 7));
  r.data[1] = -1;
  EXPECT_THAT(message_of([&] {
                run("host.count_repeat", {r.view(), n.view()});
              }),
              HasSubstr("repeat 1 is negative: -1"));
  r.data = {std::numeric_limits<int64_t>::max(), 1, 0};
  EXPECT_THAT(message_of([&] {
                run("host.count_repeat", {r.view(), n.view()});
              }),
              HasSubstr("63 bits"));
}

TEST(Selection, RangesWithoutAnEndAreRefused) {
  auto n = i64({1});
  auto count = [&](float a, float b, float c) {
    auto start = f32({}, {a}), stop = f32({}, {b}), step = f32({}, {c});
    run("host.count_range", {start.view(), stop.view(), step.view(), n.view()});
    return n.data[0];
  };
  EXPECT_EQ(count(0, 1, 0.25F), 4);
  EXPECT_EQ(count(0, 1, -1), 0);
  EXPECT_EQ(count(1, 0, -0.3F), 4);
  for (float step : {0.0F, kNaN})
    EXPECT_THAT(message_of([&] { count(0, 1, step); }), HasSubstr("has no end"));
}

TEST(Scatter, AppliesUpdatesInTheirOrder) {
  auto x = f32({3}, {1, 2, 3}), u = f32({4}, {5, 6, 7, kNaN}), y = f32({3}, {0, 0, 0});
  auto at = i64({4}, {0, -1, 0, 1});
  run("host.scatter", {x.view(), at.view(), u.view(), y.view()}, {0});
  EXPECT_EQ(y.data[0], 7);
  EXPECT_TRUE(std::isnan(y.data[1]));
  EXPECT_EQ(y.data[2], 6);
  run("host.scatter", {x.view(), at.view(), u.view(), y.view()}, {1});
  EXPECT_EQ(y.data[0], 13);
  for (int64_t extreme : {3, 4}) {  // a NaN stays
    run("host.scatter", {x.view(), at.view(), u.view(), y.view()}, {extreme});
    EXPECT_EQ(y.data[0], extreme == 3 ? 1 : 7);
    EXPECT_TRUE(std::isnan(y.data[1]));
  }
  at.data[1] = 3;
  EXPECT_THAT(message_of([&] {
                run("host.scatter", {x.view(), at.view(), u.view(), y.view()}, {0});
              }),
              HasSubstr("the index 3 is out of range of 3 rows"));
}

TEST(Ordering, UniqueTakesAllNaNsAsOne) {
  auto x = f32({6}, {2, kNaN, 1, 2, kNaN, 1});
  auto n = i64({1});
  run("host.count_unique", {x.view(), n.view()}, {-1});
  ASSERT_EQ(n.data[0], 3);
  auto values = f32({3}, {0, 0, 0});
  auto index = i64({3}), inverse = i64({6}), counts = i64({3});
  const std::vector<LibraryTensor> all = {x.view(), values.view(), index.view(), inverse.view(),
                                          counts.view()};
  run("host.unique", all, {-1, 1});
  EXPECT_EQ(values.data[0], 1);
  EXPECT_EQ(values.data[1], 2);
  EXPECT_TRUE(values.data[2] != values.data[2]);
  EXPECT_THAT(index.data, ElementsAre(2, 0, 1));
  EXPECT_THAT(inverse.data, ElementsAre(1, 2, 0, 1, 2, 0));
  EXPECT_THAT(counts.data, ElementsAre(2, 2, 2));
  run("host.unique", all, {-1, 0});  // by first appearance
  EXPECT_THAT(index.data, ElementsAre(0, 1, 2));
}

TEST(Ordering, TopkGivesTheEarlierOfEqualsAndNaNAsLargest) {
  auto x = f32({5}, {1, 3, kNaN, 3, 2});
  auto values = f32({3}, {0, 0, 0});
  auto indices = i64({3});
  run("host.topk", {x.view(), values.view(), indices.view()}, {0, 1});
  EXPECT_THAT(indices.data, ElementsAre(2, 1, 3));
  run("host.topk", {x.view(), values.view(), indices.view()}, {0, 0});
  EXPECT_THAT(indices.data, ElementsAre(0, 4, 1));
  EXPECT_THAT(values.data, ElementsAre(1, 2, 3));
}

TEST(Ordering, NmsKeepsTheBestOfOverlappingBoxes) {
  // Boxes 0 and 1 overlap by 0.81 / 1.19; box 2 stands apart, its corners given the other way
  // round.
  auto boxes = f32({1, 3, 4}, {0, 0, 1, 1, 0.1F, 0.1F, 1.1F, 1.1F, 6, 6, 5, 5});
  auto scores = f32({1, 1, 3}, {0.8F, 0.9F, 0.5F});
  auto overlap = f32({1}, {0.5F}), score = f32({1}, {0.1F});
  auto rows = i64({3, 3}), count = i64({1});
  auto selected = [&](int64_t limit) {
    rows.data.assign(9, -7);
    run("host.nms",
        {boxes.view(), scores.view(), overlap.view(), score.view(), rows.view(), count.view()},
        {limit, 0});
    return std::vector<int64_t>(rows.data.begin(), rows.data.begin() + count.data[0] * 3);
  };
  EXPECT_THAT(selected(3), ElementsAre(0, 0, 1, 0, 0, 2));
  EXPECT_THAT(selected(1), ElementsAre(0, 0, 1));
  EXPECT_THAT(selected(0), ElementsAre());
  overlap.data[0] = 0.7F;
  EXPECT_THAT(selected(3), ElementsAre(0, 0, 1, 0, 0, 0, 0, 0, 2));
  score.data[0] = 0.8F;  // a score must exceed it
  EXPECT_THAT(selected(3), ElementsAre(0, 0, 1));
}

}  // namespace
}  // namespace nimble::rt
