#include "vm/runtime/work_meter.h"

#include <gmock/gmock.h>

#include "vm/base/error.h"

namespace nimble::rt {
namespace {

template <class F>
Status status_of(F body) {
  try {
    body();
  } catch (const Error& e) {
    return e.status();
  }
  return Status::kOk;
}

TEST(WorkMeter, TakesWhatIsLeftAndNoMore) {
  WorkMeter meter{100};
  meter.charge(60);
  EXPECT_EQ(meter.steps, 40u);
  meter.charge_bytes(64 * 39);
  EXPECT_EQ(meter.steps, 0u);
  meter.charge(0);
  EXPECT_EQ(status_of([&] { meter.charge(1); }), Status::kExhausted);
}

TEST(WorkMeter, StepsTakenOneByOneAreExact) {
  WorkMeter meter{3 * WorkMeter::kPollSteps};
  {
    StepCounter counter(meter);
    for (int i = 0; i < 1000; ++i) counter.charge(7);
    counter.charge(2 * WorkMeter::kPollSteps);
  }
  EXPECT_EQ(meter.steps, WorkMeter::kPollSteps - 7000);
  EXPECT_EQ(status_of([&] {
              StepCounter counter(meter);
              for (uint64_t i = 0; i <= WorkMeter::kPollSteps - 7000; ++i) counter.charge(1);
            }),
            Status::kExhausted);
}

TEST(WorkMeter, EndsWorkThatIsCancelled) {
  RunControl control;
  ASSERT_TRUE(control.begin());
  WorkMeter meter{UINT64_MAX, &control};
  meter.charge(1);
  control.cancel();
  EXPECT_EQ(status_of([&] { meter.poll(); }), Status::kCancelled);
  EXPECT_EQ(status_of([&] { meter.charge(0); }), Status::kCancelled);
}

TEST(WorkMeter, EndsAWorkOfSmallStepsInTheMiddle) {
  RunControl control;
  ASSERT_TRUE(control.begin());
  WorkMeter meter{UINT64_MAX, &control};
  StepCounter counter(meter);
  counter.charge(1);
  control.cancel();
  uint64_t more = 0;
  EXPECT_EQ(status_of([&] {
              for (; more < 2 * WorkMeter::kPollSteps; ++more) counter.charge(1);
            }),
            Status::kCancelled);
  EXPECT_LE(more, WorkMeter::kPollSteps);
}

TEST(WorkMeter, MemoryOfItsVectorsCountsAgainstTheLimit) {
  StoragePool pool(device(kCpuDevice), 1 << 20);
  WorkMeter meter;
  meter.memory = &pool;
  {
    MemoryAccount account(meter.memory);
    MeteredVector<int64_t> v(account);
    v.resize(100'000);
    EXPECT_EQ(status_of([&] { pool.charge(300'000); }), Status::kExhausted);
    EXPECT_EQ(status_of([&] { v.resize(200'000); }), Status::kExhausted);
    EXPECT_EQ(v.size(), 100'000u);
    EXPECT_GE(account.held(), 800'000u);
    account.move_to(nullptr);  // kept, but no longer the session's
    pool.charge(1 << 20);
    EXPECT_EQ(status_of([&] { account.move_to(&pool); }), Status::kExhausted);
    pool.refund(1 << 20);
    account.move_to(&pool);
  }
  pool.charge(1 << 20);  // all of it was given back
  pool.refund(1 << 20);
}

}  // namespace
}  // namespace nimble::rt
