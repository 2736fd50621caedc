// What a choice loses, and where the time goes.
#include "tuner/service/regret.h"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

#include "tuner/service/account.h"
#include "tuner/service/jobs.h"

namespace nimble::tuner {
namespace {

TEST(Regret, IsRelativeToTheBestAtEachSize) {
  const std::vector<double> times = {10, 30, 8}, best = {10, 20, 16};
  const Regret r = regret_against(times, best, std::vector<double>{1, 3, 4});
  EXPECT_DOUBLE_EQ(r.mean, 0.5 * 3 / 8);  // half as much again at the second size
  EXPECT_DOUBLE_EQ(r.worst, 0.5);
  // Sizes without weight count alike.
  EXPECT_DOUBLE_EQ(regret_against(times, best, std::vector<double>{0, 0, 0}).mean, 0.5 / 3);
}

TEST(Account, SpansSuspendEachOtherAndSumToTheWallTime) {
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  const Account::Clock::time_point start = Account::Clock::now();
  Account account(start);
  {
    const Account::Span outer(account, Activity::kCompile);
    wait();
    const Account::Span inner(account, Activity::kStore);
    wait();
  }
  wait();
  for (Activity a : {Activity::kCompile, Activity::kStore, Activity::kOther})
    EXPECT_GE(account.seconds(a), 0.02) << name_of(a);
  EXPECT_EQ(account.seconds(Activity::kTime), 0);
  const double compiled = account.seconds(Activity::kCompile);
  account.move(Activity::kCompile, Activity::kTime, 0.005);
  EXPECT_DOUBLE_EQ(account.seconds(Activity::kTime), 0.005);
  account.move(Activity::kCompile, Activity::kTime, 1e9);  // not more than there is
  EXPECT_DOUBLE_EQ(account.seconds(Activity::kTime), compiled);
  EXPECT_EQ(account.seconds(Activity::kCompile), 0);
  const double total = account.total();
  EXPECT_LE(total, std::chrono::duration<double>(Account::Clock::now() - start).count());
  EXPECT_GE(total, 0.06);
}

TEST(Jobs, AllAreDoneAndTheFirstFaultIsThrownOn) {
  for (size_t threads : {1, 2, 5}) {
    std::atomic<int> done{0};
    run_jobs(std::vector<std::function<void()>>(20, [&] { ++done; }), threads);
    EXPECT_EQ(done, 20);
    run_jobs({}, threads);
    EXPECT_THROW(run_jobs({[] { throw std::runtime_error("no"); }, [&] { ++done; }}, threads),
                 std::runtime_error);
  }
}

}  // namespace
}  // namespace nimble::tuner
