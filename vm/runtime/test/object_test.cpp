#include "vm/runtime/object.h"

#include <gtest/gtest.h>

#include "vm/base/error.h"

namespace nimble::rt {
namespace {

std::shared_ptr<StoragePool> make_pool(uint64_t limit = 0) {
  return std::make_shared<StoragePool>(device(0), limit);
}

TEST(Heap, TensorsKeepTheirStorage) {
  Heap heap(make_pool());
  Storage* s = heap.new_storage(256);
  const int64_t shape[] = {2, 3, 4};
  Tensor* t = heap.new_tensor(s, 64, DType::kF32, shape);
  heap.release(s);
  EXPECT_EQ(t->bytes(), 96u);
  EXPECT_EQ(t->strides[0], 12);
  EXPECT_EQ(t->strides[2], 1);
  EXPECT_EQ(t->capacity, t->storage->bytes - 64);
  EXPECT_EQ(t->data(), t->storage->data + 64);
  EXPECT_EQ(heap.live(), 2u);
  heap.release(t);
  EXPECT_EQ(heap.live(), 0u);
}

// A program may put one object into as many fields as there is memory for: 2^32 take 64 GiB.
TEST(Heap, CountsMoreReferencesThanFitInFourBytes) {
  Heap heap(make_pool());
  Storage* s = heap.new_storage(64);
  s->refs = UINT32_MAX;
  Heap::retain(s);
  EXPECT_EQ(s->refs, uint64_t{1} << 32);
  heap.release(s);
  EXPECT_EQ(heap.live(), 1u);
  BlockHold* hold = heap.hold(s);
  hold->refs = UINT32_MAX;
  heap.hold(s);
  EXPECT_EQ(hold->refs, uint64_t{1} << 32);
  hold->refs = 2;
  BlockHold::release(hold);
  s->refs = 1;
  heap.release(s);
  EXPECT_EQ(heap.live(), 0u);
}

TEST(Heap, RefusesTensorsThatDoNotFit) {
  Heap heap(make_pool());
  Storage* s = heap.new_storage(64);
  auto fails = [&](int64_t offset, std::vector<int64_t> shape) {
    EXPECT_THROW(heap.new_tensor(s, offset, DType::kF32, shape), Error);
  };
  fails(0, {17});
  fails(4, {16});
  fails(-4, {1});
  fails(2, {1});
  fails(0, {-1});
  fails(0, {INT64_MAX, INT64_MAX});
  fails(0, std::vector<int64_t>(kMaxRank + 1, 1));
  const int64_t empty[] = {0, INT64_MAX, INT64_MAX};
  Tensor* t = heap.new_tensor(s, 64, DType::kF32, empty);
  EXPECT_EQ(t->bytes(), 0u);
  heap.release(t);
  heap.free_memory(s);
  fails(0, {1});
  heap.release(s);
}

// Up to the last byte and the last dim.
TEST(Heap, TensorsEndWithTheirStorage) {
  Heap heap(make_pool());
  Storage* s = heap.new_storage(64);
  ASSERT_EQ(s->bytes, 64u);
  const auto fits = [&](int64_t offset, std::vector<int64_t> shape, DType dtype = DType::kU8) {
    try {
      heap.release(heap.new_tensor(s, offset, dtype, shape));
    } catch (const Error&) {
      return false;
    }
    return true;
  };
  EXPECT_TRUE(fits(0, {64}));
  EXPECT_FALSE(fits(0, {65}));
  EXPECT_TRUE(fits(63, {1}));
  EXPECT_FALSE(fits(63, {2}));
  EXPECT_TRUE(fits(64, {0}));
  EXPECT_FALSE(fits(64, {1}));
  EXPECT_FALSE(fits(65, {0}));
  EXPECT_FALSE(fits(68, {0}, DType::kF32));
  EXPECT_FALSE(fits(INT64_MAX, {0}));
  for (const int64_t negative : {int64_t{-1}, int64_t{-64}, INT64_MIN})
    for (const int64_t extent : {0, 1, 64})
      EXPECT_FALSE(fits(negative, {extent})) << negative << ", " << extent;
  // Extents that have no size in bytes.
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{-1}, {INT64_MIN}, {0, -1}, {INT64_MAX, 2}}) {
    try {
      heap.release(heap.new_tensor(s, 0, DType::kU8, shape));
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_NE(e.problem().find("is negative or too large"), std::string::npos) << e.problem();
    }
  }
  EXPECT_TRUE(fits(0, {16}, DType::kF32));
  EXPECT_TRUE(fits(0, std::vector<int64_t>(kMaxRank, 1)));
  EXPECT_FALSE(fits(0, std::vector<int64_t>(kMaxRank + 1, 1)));
  heap.release(s);
}

TEST(Heap, LongListsDieWithoutRecursion) {
  Heap heap(make_pool());
  Value list = Value::of(heap.new_cell(ObjectKind::kAdt, 0, {}));
  for (int i = 0; i < 1000000; ++i) {
    const Value fields[] = {Value::of(i), list};
    const Value longer = Value::of(heap.new_cell(ObjectKind::kAdt, 1, fields));
    heap.release(list);
    list = longer;
  }
  EXPECT_EQ(heap.live(), 1000001u);
  heap.release(list);
  EXPECT_EQ(heap.live(), 0u);
}

TEST(Heap, ReusesObjects) {
  auto pool = make_pool();
  Heap heap(pool);
  for (int i = 0; i < 10000; ++i) {
    Storage* s = heap.new_storage(100);
    const int64_t shape[] = {25};
    Tensor* t = heap.new_tensor(s, 0, DType::kF32, shape);
    heap.release(s);
    heap.release(t);
  }
  EXPECT_LE(pool->stats().reserved, 128u << 10);
}

TEST(Heap, ObjectsCountAgainstTheLimit) {
  Heap heap(make_pool(1 << 20));
  std::vector<Object*> cells;
  EXPECT_THROW(
      {
        while (true) cells.push_back(heap.new_cell(ObjectKind::kAdt, 0, {}));
      },
      Error);
  EXPECT_GT(cells.size(), 1000u);
  for (Object* c : cells) heap.release(c);
}

TEST(Heap, OutputsOutliveTheHeap) {
  auto pool = make_pool();
  BlockHold* hold = nullptr;
  {
    Heap heap(pool);
    Storage* s = heap.new_storage(64);
    s->data[0] = 42;
    hold = heap.hold(s);
    heap.release(s);
    Storage* other = heap.new_storage(64);
    EXPECT_NE(other->data, hold->block.data);
    heap.release(other);
  }
  EXPECT_EQ(hold->block.data[0], 42);
  BlockHold::release(hold);
  EXPECT_EQ(pool->stats().in_use, 0u);
}

}  // namespace
}  // namespace nimble::rt
