// What a host operator is called with may disagree: with the other operands, with what its results
// have room for, with the data. Each such disagreement is refused before anything is written; what
// just fits is computed. scripts/mutate-verifier tells which are missing.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "vm/base/error.h"
#include "vm/base/half.h"
#include "vm/library/registry.h"
#include "vm/runtime/device.h"
#include "vm/runtime/object.h"

namespace nimble::rt {
namespace {

using exec::ImplementationKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum DType;

constexpr int64_t kCanary = -7;

// A tensor with room behind its elements, in which nothing may be written.
struct Operand {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> memory;

  template <class T = int64_t>
  std::vector<T> elements(size_t n) const {
    std::vector<T> out(n);
    std::memcpy(out.data(), memory.data(), n * sizeof(T));
    return out;
  }
};
template <class T>
Operand of(DType dtype, std::vector<int64_t> shape, std::vector<T> elements) {
  Operand o{dtype, std::move(shape), std::vector<int64_t>(elements.size() + 64, kCanary)};
  std::memcpy(o.memory.data(), elements.data(), elements.size() * sizeof(T));
  return o;
}
Operand f32(std::vector<int64_t> shape, std::vector<float> elements) {
  return of(kF32, std::move(shape), std::move(elements));
}
Operand i64(std::vector<int64_t> shape, std::vector<int64_t> elements) {
  return of(kI64, std::move(shape), std::move(elements));
}
Operand bools(std::vector<int64_t> shape, std::vector<uint8_t> elements) {
  return of(kBool, std::move(shape), std::move(elements));
}
Operand result(DType dtype, std::vector<int64_t> shape) {
  return {dtype, std::move(shape), std::vector<int64_t>(64, kCanary)};
}

// "" or the message.
std::string run(const std::string& name, std::vector<Operand>& operands,
                const std::vector<int64_t>& scalars = {}) {
  std::vector<LibraryTensor> tensors;
  for (Operand& o : operands) tensors.push_back({o.dtype, o.shape, o.memory.data()});
  WorkMeter meter;
  const LibraryCall call{tensors, {}, scalars, nullptr, {}, &meter};
  try {
    find_library_kernel(ImplementationKind::kHost, name)->run(call, 0, 1, nullptr);
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kFatal) << e.what();
    return e.problem();
  }
  return "";
}

struct Fits {
  std::string name;
  std::vector<Operand> operands;
  std::vector<int64_t> scalars;
  size_t results;                 // the last operands
  std::vector<size_t> free = {};  // operands whose extents decide, so that any will do
};

// Of each operator a small call that fits.
std::vector<Fits> calls() {
  return {
      {"host.copy", {f32({2, 3}, {1, 2, 3, 4, 5, 6}), result(kF32, {2, 3})}, {}, 1},
      {"host.count_nonzero", {f32({3}, {1, 0, 2}), result(kI64, {1})}, {}, 1, {0}},
      {"host.nonzero", {f32({2, 2}, {1, 1, 1, 1}), result(kI64, {2, 4})}, {}, 1},
      {"host.compress",
       {f32({3, 2}, {1, 2, 3, 4, 5, 6}), bools({3}, {1, 1, 1}), result(kF32, {3, 2})},
       {0},
       1},
      {"host.count_repeat", {i64({2}, {3, 4}), result(kI64, {1})}, {}, 1, {0}},
      {"host.repeat", {f32({2, 2}, {1, 2, 3, 4}), i64({2}, {2, 1}), result(kF32, {3, 2})}, {0}, 1},
      {"host.count_range", {f32({}, {0}), f32({}, {5}), f32({}, {2}), result(kI64, {1})}, {}, 1},
      {"host.count_unique", {f32({3}, {1, 2, 1}), result(kI64, {1})}, {-1}, 1, {0}},
      {"host.unique",
       {f32({4, 2}, {5, 1, 3, 1, 5, 1, 3, 1}), result(kF32, {2, 2}), result(kI64, {2}),
        result(kI64, {4}), result(kI64, {2})},
       {0, 0},
       4},
      {"host.topk",
       {f32({2, 3}, {1, 3, 2, 6, 5, 4}), result(kF32, {2, 3}), result(kI64, {2, 3})},
       {1, 1},
       2},
      {"host.nms",
       {f32({1, 2, 4}, {0, 0, 1, 1, 5, 5, 6, 6}), f32({1, 1, 2}, {0.9f, 0.8f}), f32({1}, {0.5f}),
        f32({1}, {0.1f}), result(kI64, {2, 3}), result(kI64, {1})},
       {9, 0},
       2},
      {"host.scatter",
       {f32({3, 2}, {1, 2, 3, 4, 5, 6}), i64({2}, {2, -3}), f32({2, 2}, {7, 8, 9, 10}),
        result(kF32, {3, 2})},
       {0},
       1},
  };
}

TEST(HostOperatorsFit, WhatFitsIsComputed) {
  for (Fits& c : calls()) EXPECT_EQ(run(c.name, c.operands, c.scalars), "") << c.name;
}

// One extent of one operand is one more or one less, or there is a dim more.
TEST(HostOperatorsFit, WhatDoesNotIsRefusedAndNothingWritten) {
  size_t refused = 0;
  for (const Fits& c : calls())
    for (size_t i = 0; i < c.operands.size(); ++i) {
      if (std::ranges::count(c.free, i)) continue;
      const size_t rank = c.operands[i].shape.size();
      for (size_t d = 0; d <= rank; ++d)
        for (const int64_t change : {-1, 1}) {
          Fits wrong = c;
          std::vector<int64_t>& shape = wrong.operands[i].shape;
          if (d == rank && rank > 0) continue;
          if (d == rank)
            shape = {1 + change};
          else
            shape[d] += change;
          // More of what is chosen from, or of where results may lie, is no fault; nor are classes.
          if (c.name == "host.compress" && i == 0 && d == 0 && change > 0) continue;
          if (c.name == "host.topk" && i == 0 && d == 1 && change > 0) continue;
          if (c.name == "host.nms" && i == 1 && d == 1) continue;
          if (c.name == "host.nms" && i == 4 && d == 0 && change > 0) continue;
          SCOPED_TRACE(fmt::format("{}: operand {} is ({})", c.name, i, fmt::join(shape, ", ")));
          EXPECT_NE(run(wrong.name, wrong.operands, wrong.scalars), "");
          ++refused;
          // The boxes that are found are written before it turns out that they are too many.
          for (size_t r = c.operands.size() - c.results; r < c.operands.size(); ++r)
            for (size_t at = c.name == "host.nms" ? 1 : 0; at < 8; ++at)
              if (c.name != "host.nms" || r != 4) {
                EXPECT_EQ(wrong.operands[r].memory[at], kCanary) << r << " " << at;
              }
        }
    }
  EXPECT_GT(refused, 80u);
}

TEST(HostOperatorsFit, Ranks) {
  std::vector<Operand> copy = {f32({4}, {1, 2, 3, 4}), result(kF32, {4})};
  EXPECT_EQ(run("host.copy", copy), "");
  const auto refused = [](const std::string& name, std::vector<Operand> operands,
                          std::vector<int64_t> scalars) {
    return run(name, operands, scalars) != "";
  };
  // The axis is there, a dim beside it is not.
  EXPECT_TRUE(refused("host.compress",
                      {f32({2, 2}, {1, 2, 3, 4}), bools({2}, {1, 1}), result(kF32, {2})}, {0}));
  EXPECT_TRUE(
      refused("host.repeat", {f32({2}, {1, 2}), i64({2}, {1, 1}), result(kF32, {2, 2})}, {0}));
  EXPECT_TRUE(
      refused("host.topk", {f32({2}, {1, 2}), result(kF32, {2, 1}), result(kI64, {2, 1})}, {0, 1}));
  EXPECT_TRUE(
      refused("host.topk", {f32({2}, {1, 2}), result(kF32, {1}), result(kI64, {1})}, {-1, 1}));
  EXPECT_TRUE(refused(
      "host.scatter",
      {f32({2, 2}, {1, 2, 3, 4}), i64({1}, {0}), f32({1}, {1}), result(kF32, {2, 2})}, {0}));
  // No axis behind the last.
  for (const int64_t axis : {1, 2, 9})
    EXPECT_TRUE(
        refused("host.topk", {f32({2}, {1, 2}), result(kF32, {2}), result(kI64, {2})}, {axis, 1}));
  // Flat, the result is a vector.
  EXPECT_TRUE(refused("host.compress",
                      {f32({4}, {1, 2, 3, 4}), bools({2}, {1, 1}), result(kF32, {2, 1})}, {-1}));
  EXPECT_FALSE(refused("host.compress",
                       {f32({2, 2}, {1, 2, 3, 4}), bools({4}, {0, 1, 0, 1}), result(kF32, {2})},
                       {-1}));
}

TEST(HostOperatorsFit, ClassesOfEmptySlices) {
  const auto unique = [](std::vector<int64_t> x, std::vector<int64_t> values, int64_t n,
                         int64_t inverse) {
    std::vector<Operand> operands = {result(kF32, std::move(x)), result(kF32, std::move(values)),
                                     result(kI64, {n}), result(kI64, {inverse}), result(kI64, {n})};
    const std::string problem = run("host.unique", operands, {1, 1});
    return problem.empty() ? operands[2].memory[0] : int64_t{-1};
  };
  EXPECT_EQ(unique({0, 5}, {0, 1}, 1, 5), 0);
  EXPECT_EQ(unique({0, 1}, {0, 1}, 1, 1), 0);
  EXPECT_EQ(unique({0, 0}, {0, 0}, 0, 0), kCanary);
  EXPECT_EQ(unique({0, 5}, {0, 0}, 0, 5), -1);
  EXPECT_EQ(unique({0, 5}, {0, 2}, 2, 5), -1);
  EXPECT_EQ(unique({0, 0}, {0, 1}, 1, 0), -1);
}

TEST(HostOperatorsFit, UniqueHasRoomForItsClasses) {
  const auto unique = [](int64_t n) {
    std::vector<Operand> operands = {f32({5}, {5, 3, 5, 3, 1}), result(kF32, {n}),
                                     result(kI64, {n}), result(kI64, {5}), result(kI64, {n})};
    const std::string problem = run("host.unique", operands, {-1, 0});
    if (!problem.empty()) return problem;
    EXPECT_THAT(operands[1].elements<float>(3), ElementsAre(5, 3, 1));
    EXPECT_THAT(operands[2].elements(3), ElementsAre(0, 1, 4));  // the first of each class
    EXPECT_THAT(operands[3].elements(5), ElementsAre(0, 1, 0, 1, 2));
    EXPECT_THAT(operands[4].elements(3), ElementsAre(2, 2, 1));
    return std::string();
  };
  EXPECT_EQ(unique(3), "");
  EXPECT_THAT(unique(2), HasSubstr("number of classes"));
  EXPECT_THAT(unique(4), HasSubstr("number of classes"));
}

// A stable order: the first of many equals leads.
TEST(HostOperatorsFit, TheFirstOfEqualsLeads) {
  std::vector<float> x(60);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 2);
  std::vector<Operand> operands = {f32({60}, x), result(kF32, {2}), result(kI64, {2}),
                                   result(kI64, {60}), result(kI64, {2})};
  ASSERT_EQ(run("host.unique", operands, {-1, 1}), "");
  EXPECT_THAT(operands[2].elements(2), ElementsAre(0, 1));
  EXPECT_THAT(operands[4].elements(2), ElementsAre(30, 30));
}

// The same among many slices, in an order that sorting must find.
TEST(HostOperatorsFit, ClassesAsDefined) {
  constexpr int64_t kSlices = 300;
  std::vector<int64_t> x(kSlices);
  uint64_t random = 1;
  for (int64_t& e : x) {
    random = random * 6364136223846793005 + 1442695040888963407;
    e = static_cast<int64_t>(random >> 33) % 20;
  }
  std::vector<int64_t> classes, index, inverse, counts;
  for (int64_t k = 0; k < 20; ++k) {
    const auto first = std::ranges::find(x, k);
    if (first == x.end()) continue;
    classes.push_back(k);
    index.push_back(first - x.begin());
    counts.push_back(std::ranges::count(x, k));
  }
  for (const int64_t e : x) inverse.push_back(std::ranges::find(classes, e) - classes.begin());
  const auto n = static_cast<int64_t>(classes.size());
  std::vector<Operand> operands = {i64({kSlices}, x), i64({n}, classes), i64({n}, index),
                                   i64({kSlices}, inverse), i64({n}, counts)};
  for (size_t i = 1; i < operands.size(); ++i) std::ranges::fill(operands[i].memory, kCanary);
  ASSERT_EQ(run("host.unique", operands, {-1, 1}), "");
  EXPECT_EQ(operands[1].elements(classes.size()), classes);
  EXPECT_EQ(operands[2].elements(classes.size()), index);
  EXPECT_EQ(operands[3].elements(x.size()), inverse);
  EXPECT_EQ(operands[4].elements(classes.size()), counts);
}

// Boxes apart from each other come by their scores, and of equal ones the first before the others.
TEST(HostOperatorsFit, BoxesComeInTheOrderOfTheirScores) {
  constexpr int64_t kBoxes = 100;
  std::vector<float> boxes, scores;
  std::vector<int64_t> expected(kBoxes);
  for (int64_t i = 0; i < kBoxes; ++i) {
    const auto at = static_cast<float>(2 * i);
    for (const float corner : {at, at, at + 1, at + 1}) boxes.push_back(corner);
    scores.push_back(static_cast<float>(1 + i * 7 % 5));
    expected[static_cast<size_t>(i)] = i;
  }
  std::ranges::stable_sort(expected, [&](int64_t a, int64_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  std::vector<Operand> operands = {f32({1, kBoxes, 4}, boxes),
                                   f32({1, 1, kBoxes}, scores),
                                   f32({1}, {0.5f}),
                                   f32({1}, {0}),
                                   i64({kBoxes, 3}, std::vector<int64_t>(3 * kBoxes)),
                                   result(kI64, {1})};
  ASSERT_EQ(run("host.nms", operands, {kBoxes, 0}), "");
  ASSERT_EQ(operands[5].memory[0], kBoxes);
  for (int64_t i = 0; i < kBoxes; ++i)
    EXPECT_EQ(operands[4].memory[static_cast<size_t>(3 * i + 2)], expected[static_cast<size_t>(i)]);
}

TEST(HostOperatorsFit, BoxesHaveRoom) {
  const auto boxes = [](int64_t room) {
    std::vector<Operand> operands = {f32({1, 2, 4}, {0, 0, 1, 1, 5, 5, 6, 6}),
                                     f32({1, 1, 2}, {0.9f, 0.8f}),
                                     f32({1}, {0.5f}),
                                     f32({1}, {0.1f}),
                                     result(kI64, {room, 3}),
                                     result(kI64, {1})};
    const std::string problem = run("host.nms", operands, {9, 0});
    return problem.empty() ? operands[5].memory[0] : int64_t{-1};
  };
  EXPECT_EQ(boxes(3), 2);
  EXPECT_EQ(boxes(2), 2);
  EXPECT_EQ(boxes(1), -1);
}

TEST(HostOperatorsFit, RangesEnd) {
  const auto count = [](double start, double stop, double step) {
    std::vector<Operand> operands = {of<double>(kF64, {}, {start}), of<double>(kF64, {}, {stop}),
                                     of<double>(kF64, {}, {step}), result(kI64, {1})};
    return run("host.count_range", operands) == "" ? operands[3].memory[0] : int64_t{-1};
  };
  EXPECT_EQ(count(0, 8e15, 1), 8'000'000'000'000'000);
  EXPECT_EQ(count(0, 9e15, 1), -1);
  EXPECT_EQ(count(0, 5, 0), -1);
  EXPECT_EQ(count(0, 0, 0), -1);
  EXPECT_EQ(count(5, 0, 0), -1);
  EXPECT_EQ(count(0, std::numeric_limits<double>::quiet_NaN(), 1), -1);
  EXPECT_EQ(count(5, 0, 1), 0);
}

TEST(HostOperatorsFit, ScatterLooksAtIndicesAndReduction) {
  const auto scatter = [](int64_t index, int64_t reduction) {
    std::vector<Operand> operands = {f32({3}, {1, 2, 3}), i64({1}, {index}), f32({1}, {7}),
                                     result(kF32, {3})};
    return run("host.scatter", operands, {reduction});
  };
  for (const int64_t index : {-3, -1, 0, 2}) EXPECT_EQ(scatter(index, 0), "") << index;
  for (const int64_t index : {int64_t{-4}, int64_t{3}, INT64_MIN, INT64_MAX})
    EXPECT_THAT(scatter(index, 0), HasSubstr("out of range")) << index;
  for (const int64_t reduction : {0, 4}) EXPECT_EQ(scatter(0, reduction), "") << reduction;
  for (const int64_t reduction : {-1, 5}) EXPECT_NE(scatter(0, reduction), "") << reduction;
  // Rows without elements, of an index that is there.
  std::vector<Operand> none = {result(kF32, {3, 0}), i64({2}, {1, 2}), result(kF32, {2, 0}),
                               result(kF32, {3, 0})};
  EXPECT_EQ(run("host.scatter", none, {1}), "");
  none[1] = i64({2}, {1, 3});
  EXPECT_NE(run("host.scatter", none, {1}), "");
}

TEST(HostOperatorsFit, ScatterCombinesAsNumpyDoes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto combined = [](float a, float b, int64_t reduction) {
    std::vector<Operand> operands = {f32({1}, {a}), i64({1}, {0}), f32({1}, {b}),
                                     result(kF32, {1})};
    EXPECT_EQ(run("host.scatter", operands, {reduction}), "");
    return operands[3].elements<float>(1)[0];
  };
  constexpr int64_t kMin = 3, kMax = 4;
  for (const auto& [a, b] : {std::pair(1.f, 2.f), {2.f, 1.f}, {-1.f, 1.f}, {3.f, 3.f}}) {
    EXPECT_EQ(combined(a, b, kMin), std::min(a, b));
    EXPECT_EQ(combined(a, b, kMax), std::max(a, b));
  }
  for (const int64_t reduction : {kMin, kMax}) {
    EXPECT_TRUE(std::isnan(combined(nan, 1, reduction)));
    EXPECT_TRUE(std::isnan(combined(1, nan, reduction)));
  }
  // Equal numbers of other bits: the first stays.
  EXPECT_FALSE(std::signbit(combined(0.f, -0.f, kMin)));
  EXPECT_TRUE(std::signbit(combined(-0.f, 0.f, kMax)));
  // Bools: or, and, and, or.
  const auto logic = [](uint8_t a, uint8_t b, int64_t reduction) {
    std::vector<Operand> operands = {bools({1}, {a}), i64({1}, {0}), bools({1}, {b}),
                                     result(kBool, {1})};
    EXPECT_EQ(run("host.scatter", operands, {reduction}), "");
    return operands[3].elements<uint8_t>(1)[0] != 0;
  };
  for (const uint8_t a : {0, 1})
    for (const uint8_t b : {0, 1}) {
      for (const int64_t either : {1, 4}) EXPECT_EQ(logic(a, b, either), a || b);
      for (const int64_t both : {2, 3}) EXPECT_EQ(logic(a, b, both), a && b);
    }
}

// NaN is the largest number and equal to itself.
TEST(HostOperatorsFit, NaNsHaveAPlace) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<Operand> operands = {f32({4}, {nan, 1, nan, 2}), result(kF32, {4}),
                                   result(kI64, {4})};
  ASSERT_EQ(run("host.topk", operands, {0, 1}), "");
  EXPECT_THAT(operands[2].elements(4), ElementsAre(0, 2, 3, 1));
  ASSERT_EQ(run("host.topk", operands, {0, 0}), "");
  EXPECT_THAT(operands[2].elements(4), ElementsAre(1, 3, 0, 2));
}

// --- Values of data types -----------------------------------------------------------------------

class LineariseFit : public ::testing::Test {
 protected:
  ~LineariseFit() override {
    for (Object* o : made_) heap_.release(o);
  }
  Tensor* tensor(DType dtype, std::vector<int64_t> shape, int32_t device = kCpuDevice) {
    Storage* s = heap_.new_storage(64, device);
    Tensor* t = heap_.new_tensor(s, 0, dtype, shape);
    heap_.release(s);
    made_.push_back(t);
    return t;
  }
  Cell* cell(int64_t tag, std::vector<Value> fields) {
    Cell* c = heap_.new_cell(ObjectKind::kAdt, tag, fields);
    made_.push_back(c);
    return c;
  }
  std::string run(const char* name, const Cell* root, std::vector<LibraryTensor> tensors,
                  const std::vector<int64_t>& schema, size_t given = SIZE_MAX) {
    WorkMeter meter;
    const LibraryCall call{std::span(tensors).first(std::min(given, tensors.size())),
                           {},
                           schema,
                           nullptr,
                           {&root, 1},
                           &meter};
    try {
      find_library_kernel(ImplementationKind::kHost, name)->run(call, 0, 1, nullptr);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kFatal) << e.what();
      return e.problem();
    }
    return "";
  }
  std::string count(const Cell* root, const std::vector<int64_t>& schema, int64_t size,
                    DType dtype = kI64) {
    std::vector<int64_t> out(64, kCanary);
    const int64_t shape[] = {size};
    return run("host.count_linearise", root, {{dtype, shape, out.data()}}, schema);
  }
  // Of one function at a cell of tag 0 whose field 0 is an f32 (2): room for these results, of
  // which the call has the first `given`.
  std::string linearise(const Cell* root, std::vector<std::pair<DType, std::vector<int64_t>>> room,
                        size_t given = SIZE_MAX) {
    std::vector<std::vector<int64_t>> memory(room.size(), std::vector<int64_t>(64, kCanary));
    std::vector<LibraryTensor> tensors;
    for (size_t i = 0; i < room.size(); ++i)
      tensors.push_back({room[i].first, room[i].second, memory[i].data()});
    return run("host.linearise", root, tensors, kLeaf, given);
  }
  static inline const std::vector<int64_t> kLeaf = {1, 0, 0, 0, 1, 0, static_cast<int64_t>(kF32),
                                                    1, 2};

  Heap heap_{std::make_shared<StoragePool>(device(kCpuDevice))};
  std::vector<Object*> made_;
};

TEST_F(LineariseFit, NumbersOfFunctionsAndTags) {
  const Cell* root = cell(0, {});
  const Cell* high = cell(4095, {});
  const auto function_and_tag = [&](int64_t function, int64_t tag) {
    // A kind for the root, and one of that number.
    return count(root, {2, 0, 0, 0, 0, function, tag, 0, 0}, 4);
  };
  EXPECT_EQ(function_and_tag(4095, 0), "");
  EXPECT_EQ(function_and_tag(0, 4095), "");
  EXPECT_THAT(function_and_tag(4096, 0), HasSubstr("too large"));
  EXPECT_THAT(function_and_tag(0, 4096), HasSubstr("too large"));
  // Of a call.
  const auto calls = [&](int64_t function) {
    return count(root, {2, 0, 0, 0, 0, 0, 1, 1, 0, function, 0}, 4);
  };
  EXPECT_EQ(calls(4095), "");
  EXPECT_THAT(calls(4096), HasSubstr("too large"));
  // Cases that are not there: of a tag just beyond the last, of a function just beyond the last.
  EXPECT_EQ(count(high, {1, 0, 4095, 0, 0}, 3), "");
  EXPECT_THAT(count(cell(1, {}), {1, 0, 0, 0, 0}, 3), HasSubstr("no case for tag 1"));
  EXPECT_THAT(count(cell(0, {}), {1, 0, 1, 0, 0}, 3), HasSubstr("no case for tag 0"));
  Cell* leaf = cell(0, {});
  EXPECT_THAT(
      count(cell(1, {Value::of(leaf), Value::of(leaf)}), {2, 0, 0, 0, 0, 0, 1, 1, 0, 1, 0}, 4),
      HasSubstr("function 1 has no case"));
  // A field just beyond the last.
  EXPECT_THAT(count(cell(1, {Value::of(leaf)}), {2, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0}, 4),
              HasSubstr("field 1 of a value with 1"));
}

TEST_F(LineariseFit, Counts) {
  const Cell* root = cell(0, {Value::of(tensor(kF32, {2}))});
  EXPECT_EQ(count(root, kLeaf, 3), "");
  EXPECT_NE(count(root, kLeaf, 2), "");
  EXPECT_NE(count(root, kLeaf, 4), "");
  EXPECT_NE(count(root, kLeaf, 3, kI32), "");
}

// A cell that two others hold, and nobody else.
TEST_F(LineariseFit, APartOfTwoIsOneTask) {
  const auto next = [&](Cell* below) {
    Cell* c = cell(1, {Value::of(below), Value::of(below)});
    heap_.release(below);
    std::erase(made_, below);
    return c;
  };
  const Cell* root = next(next(cell(0, {})));
  std::vector<int64_t> counts(4);
  const int64_t shape[] = {4};
  // Leaves of tag 0, nodes of tag 1 with two calls of the function.
  ASSERT_EQ(run("host.count_linearise", root, {{kI64, shape, counts.data()}},
                {2, 0, 0, 0, 0, 0, 1, 2, 0, 0, 1, 0, 0}),
            "");
  EXPECT_THAT(counts, ElementsAre(3, 7, 1, 2));
}

TEST_F(LineariseFit, Results) {
  const Cell* root = cell(0, {Value::of(tensor(kF32, {2}))});
  using Room = std::vector<std::pair<DType, std::vector<int64_t>>>;
  const Room fits = {{kI64, {1, 4}}, {kF32, {1, 2}}};
  EXPECT_EQ(linearise(root, fits), "");
  // What lies behind the last result is nobody's.
  EXPECT_THAT(linearise(root, fits, 1), HasSubstr("does not fit what there is"));
  for (const Room& wrong :
       {Room{{kI64, {1, 4}}}, Room{{kI64, {1, 4}}, {kF32, {1, 2}}, {kF32, {1, 2}}},
        Room{{kI32, {1, 4}}, {kF32, {1, 2}}}, Room{{kI64, {1, 3}}, {kF32, {1, 2}}},
        Room{{kI64, {2, 4}}, {kF32, {1, 2}}}, Room{{kI64, {4}}, {kF32, {1, 2}}},
        Room{{kI64, {1, 4}}, {kF64, {1, 2}}}, Room{{kI64, {1, 4}}, {kF32, {2, 2}}},
        Room{{kI64, {1, 4}}, {kF32, {1, 3}}}, Room{{kI64, {1, 4}}, {kF32, {1, 2, 1}}},
        Room{{kI64, {1, 4}}, {kF32, {1}}}})
    EXPECT_NE(linearise(root, wrong), "");
}

TEST_F(LineariseFit, Fields) {
  using Room = std::vector<std::pair<DType, std::vector<int64_t>>>;
  const Room room = {{kI64, {1, 4}}, {kF32, {1, 2}}};
  const auto with = [&](Value field) { return linearise(cell(0, {field}), room); };
  EXPECT_EQ(with(Value::of(tensor(kF32, {2}))), "");
  EXPECT_THAT(with(Value::of(tensor(kF64, {2}))), HasSubstr("field 0 is f64 (2), not f32 (2)"));
  EXPECT_THAT(with(Value::of(tensor(kF32, {3}))), HasSubstr("field 0 is f32 (3)"));
  EXPECT_THAT(with(Value::of(tensor(kF32, {2, 1}))), HasSubstr("field 0 is f32 (2, 1)"));
  EXPECT_THAT(with(Value::of(int64_t{7})), HasSubstr("holds no tensor"));
  EXPECT_THAT(with(Value::of(cell(0, {}))), HasSubstr("holds no tensor"));
  Tensor* freed = tensor(kF32, {2});
  heap_.free_memory(freed->storage);
  EXPECT_THAT(with(Value::of(freed)), HasSubstr("field 0 is f32 (2)"));
  EXPECT_THAT(with(Value::of(tensor(kF32, {2}, kStandInDevice))), HasSubstr("field 0 is f32 (2)"));
}

}  // namespace
}  // namespace nimble::rt
