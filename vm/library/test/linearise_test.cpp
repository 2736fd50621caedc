// The order of batched recursion: heights, shared cells, depth without recursion; schemas and cells
// that do not fit.
#include <gmock/gmock.h>

#include "vm/base/error.h"
#include "vm/library/registry.h"
#include "vm/runtime/device.h"
#include "vm/runtime/object.h"

namespace nimble::rt {
namespace {

using exec::ImplementationKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One function over Leaf(tag 0, an f32 pair) and Node(tag 1, two trees).
const std::vector<int64_t> kTree = {2, 0, 0, 0, 1, 0, static_cast<int64_t>(DType::kF32), 1, 2, 0, 1,
                                    2, 0, 0, 1, 0, 0};

class Linearise : public ::testing::Test {
 protected:
  ~Linearise() override {
    for (Object* o : made_) heap_.release(o);
  }

  Cell* leaf(float a, float b) {
    Storage* s = heap_.new_storage(8);
    const int64_t shape[] = {2};
    Tensor* t = heap_.new_tensor(s, 0, DType::kF32, shape);
    heap_.release(s);
    reinterpret_cast<float*>(t->data())[0] = a;
    reinterpret_cast<float*>(t->data())[1] = b;
    const Value fields[] = {Value::of(t)};
    Cell* cell = heap_.new_cell(ObjectKind::kAdt, 0, fields);
    heap_.release(t);
    made_.push_back(cell);
    return cell;
  }
  Cell* node(Cell* l, Cell* r) {
    const Value fields[] = {Value::of(l), Value::of(r)};
    Cell* cell = heap_.new_cell(ObjectKind::kAdt, 1, fields);
    made_.push_back(cell);
    return cell;
  }

  static void run(const char* name, const Cell* root, std::vector<LibraryTensor> tensors,
                  const std::vector<int64_t>& schema = kTree) {
    WorkMeter meter;
    run(name, root, tensors, schema, meter);
  }
  static void run(const char* name, const Cell* root, std::vector<LibraryTensor> tensors,
                  const std::vector<int64_t>& schema, WorkMeter& meter) {
    const LibraryCall call{tensors, {}, schema, nullptr, {&root, 1}, &meter};
    find_library_kernel(ImplementationKind::kHost, name)->run(call, 0, 1, nullptr);
  }
  static std::vector<int64_t> counts(const Cell* root, const std::vector<int64_t>& schema = kTree) {
    std::vector<int64_t> out(4, -7);
    const int64_t shape[] = {4};
    run("host.count_linearise", root, {{DType::kI64, shape, out.data()}}, schema);
    return out;
  }

  Heap heap_{std::make_shared<StoragePool>(device(kCpuDevice))};
  std::vector<Object*> made_;
};

TEST_F(Linearise, NumbersTasksByHeightAndKind) {
  Cell* a = leaf(1, 2);
  Cell* b = leaf(3, 4);
  Cell* c = leaf(5, 6);
  Cell* root = node(node(a, b), c);
  EXPECT_THAT(counts(root), ElementsAre(3, 5, 3, 2));

  std::vector<int64_t> steps(12), left(2), right(2);
  std::vector<float> fields(6);
  const int64_t steps_shape[] = {3, 4}, leaves[] = {3, 2}, nodes[] = {2};
  run("host.linearise", root,
      {{DType::kI64, steps_shape, steps.data()},
       {DType::kF32, leaves, fields.data()},
       {DType::kI64, nodes, left.data()},
       {DType::kI64, nodes, right.data()}});
  // Kind, tasks, tasks of the kind and of the function before: three leaves, then a node of each
  // height.
  EXPECT_THAT(steps, ElementsAre(0, 3, 0, 0, 1, 1, 0, 3, 1, 1, 1, 4));
  EXPECT_THAT(fields, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(left, ElementsAre(0, 3));
  EXPECT_THAT(right, ElementsAre(1, 2));
}

TEST_F(Linearise, ASharedCellIsOneTask) {
  Cell* t = leaf(1, 2);
  for (int i = 0; i < 60; ++i) t = node(t, t);
  const std::vector<int64_t> found = counts(t);
  EXPECT_EQ(found[0], 61);
  EXPECT_EQ(found[1], int64_t{1} << 40);  // visits saturate
  EXPECT_EQ(found[2], 1);
  EXPECT_EQ(found[3], 60);
}

// Two functions that both call both on each child, and one that calls twice on a field: without a
// memory of what was seen, 2^60 visits.
TEST_F(Linearise, APartThatSeveralCallsLeadToIsOneTask) {
  Cell* t = leaf(1, 2);
  Cell* other = leaf(3, 4);
  for (int i = 0; i < 60; ++i) {
    Cell* next = node(t, other);
    heap_.release(t);  // one reference, its parent's
    std::erase(made_, t);
    t = next;
  }
  const std::vector<int64_t> both = {4, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0,
                                     1, 0, 0, 0, 1, 1, 2, 0, 0, 0, 1, 0};
  std::vector<int64_t> found(6);
  const int64_t shape[] = {6};
  run("host.count_linearise", t, {{DType::kI64, shape, found.data()}}, both);
  EXPECT_THAT(found, ElementsAre(121, int64_t{1} << 40, 1, 60, 1, 59));
  EXPECT_THAT(counts(t, {2, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0}),
              ElementsAre(61, int64_t{1} << 40, 1, 60));
}

TEST_F(Linearise, AMillionLevelsNeedNoStack) {
  Cell* t = leaf(1, 2);
  Cell* other = leaf(3, 4);
  for (int i = 0; i < 1000000; ++i) t = node(t, other);
  EXPECT_THAT(counts(t), ElementsAre(1000001, 2000001, 2, 1000000));
}

TEST_F(Linearise, TakesStepsAndMemoryByTheSizeOfTheValue) {
  constexpr int kLevels = 100'000;
  Cell* t = leaf(1, 2);
  Cell* other = leaf(3, 4);
  for (int i = 0; i < kLevels; ++i) t = node(t, other);
  std::vector<int64_t> out(4);
  const int64_t shape[] = {4};
  const auto status = [&](WorkMeter& meter) {
    try {
      run("host.count_linearise", t, {{DType::kI64, shape, out.data()}}, kTree, meter);
    } catch (const Error& e) {
      return e.status();
    }
    return Status::kOk;
  };
  WorkMeter meter{1 << 30};
  ASSERT_EQ(status(meter), Status::kOk);
  const uint64_t taken = (1 << 30) - meter.steps;
  EXPECT_GE(taken, uint64_t{2 * kLevels});
  meter.steps = taken;
  EXPECT_EQ(status(meter), Status::kOk);
  EXPECT_EQ(meter.steps, 0u);
  meter.steps = taken - 1;
  EXPECT_EQ(status(meter), Status::kExhausted);

  // What earlier calls left to the thread does not count, and neither is it in the way.
  StoragePool small(device(kCpuDevice), 64 << 10), large(device(kCpuDevice), 64 << 20);
  for (StoragePool* pool : {&small, &large}) {
    counts(leaf(1, 2));
    meter = {UINT64_MAX, nullptr, pool};
    EXPECT_EQ(status(meter), pool == &small ? Status::kExhausted : Status::kOk);
    pool->charge(pool->limit());  // all was given back
    pool->refund(pool->limit());
  }

  RunControl control;
  ASSERT_TRUE(control.begin());
  control.cancel();
  meter = {UINT64_MAX, &control};
  EXPECT_EQ(status(meter), Status::kCancelled);
}

// A schema of many kinds over a deep value would take a table of kinds times levels.
TEST_F(Linearise, CountsTheTableOfItsSteps) {
  constexpr int kKinds = 2000, kLevels = 20'000;
  std::vector<int64_t> schema = {kKinds};
  for (int64_t tag = 0; tag < kKinds; ++tag) {
    schema.insert(schema.end(), {0, tag, tag == 1 ? 2 : 0});
    if (tag == 1) schema.insert(schema.end(), {0, 0, 1, 0});
    schema.push_back(0);
  }
  Cell* t = leaf(1, 2);
  Cell* other = leaf(3, 4);
  for (int i = 0; i < kLevels; ++i) t = node(t, other);
  std::vector<int64_t> out(kKinds + 2);
  const int64_t shape[] = {kKinds + 2};
  StoragePool pool(device(kCpuDevice), 16 << 20);
  WorkMeter meter{UINT64_MAX, nullptr, &pool};
  EXPECT_THROW(run("host.count_linearise", t, {{DType::kI64, shape, out.data()}}, schema, meter),
               Error);
}

TEST_F(Linearise, RefusesWhatDoesNotFit) {
  Cell* root = node(leaf(1, 2), leaf(3, 4));
  const auto message = [&](const std::vector<int64_t>& schema, const Cell* at) -> std::string {
    try {
      counts(at, schema);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kFatal);
      return e.what();
    }
    return "no error";
  };
  for (size_t n = 0; n < kTree.size(); ++n)  // cut short anywhere
    EXPECT_NE(message({kTree.begin(), kTree.begin() + static_cast<int64_t>(n)}, root), "no error");
  EXPECT_THAT(message({2, 0, 0, 0, 0, 0, 5, 0, 0}, root), HasSubstr("no case for tag 1"));
  EXPECT_THAT(message({2, 0, 0, 0, 0, 0, 1, 1, 9, 0, 0}, root), HasSubstr("field 9"));
  EXPECT_THAT(message({2, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0}, root),
              HasSubstr("holds no data-type value"));
  EXPECT_THAT(message({-1}, root), HasSubstr("not a schema"));
  EXPECT_THAT(message({1, 0, 9999, 0, 0}, root), HasSubstr("too large"));
  // A function without cases, called on a part that is shared.
  Cell* shared = leaf(1, 2);
  EXPECT_THAT(message({2, 0, 0, 0, 0, 0, 1, 1, 0, 7, 0}, node(shared, shared)),
              HasSubstr("function 7 has no case"));
  // A field of another shape than the schema says.
  std::vector<int64_t> other = kTree;
  other[8] = 3;
  std::vector<int64_t> steps(6), rows(1);
  std::vector<float> fields(6);
  const int64_t steps_shape[] = {2, 3}, leaves[] = {2, 3}, nodes[] = {1};
  EXPECT_THROW(run("host.linearise", root,
                   {{DType::kI64, steps_shape, steps.data()},
                    {DType::kF32, leaves, fields.data()},
                    {DType::kI64, nodes, rows.data()},
                    {DType::kI64, nodes, rows.data()}},
                   other),
               Error);
}

}  // namespace
}  // namespace nimble::rt
