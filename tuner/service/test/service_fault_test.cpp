// A service whose disk fills and whose connection is lost, again and again.
#include <random>

#include "db/store/test/fault_vfs.h"
#include "tuner/service/test/service_fixture.h"

namespace nimble::tuner {
namespace {

// The database's faults, again and again while a campaign is served.
class ServiceFaultTest : public ServiceTest {
 protected:
  explicit ServiceFaultTest(Where where) : ServiceTest(where) {}
  // Between two faults something was published: each is later than the one before.
  ServiceTally serve_while(int faults, const std::function<void()>& fault,
                           const std::function<void()>& over) {
    int64_t published = -1;
    serving.looked = [&] {
      if (faults == 0) return;
      const int64_t now = connection()->integer("SELECT count(*) FROM job");
      if (now == published) return;
      published = now;
      --faults;
      fault();
    };
    return serve_campaigns(serving, backend, key, load_submission, kNever,
                           [&](const std::string& text) {
                             said += text + "\n";
                             if (text.find("trying again") == std::string::npos) return;
                             ++tried;
                             over();
                           });
  }
  int tried = 0;
};

class ServiceFileFaultTest : public ServiceFaultTest {
 protected:
  ServiceFileFaultTest() : ServiceFaultTest(Where::kFiles) {}
};

TEST_F(ServiceFileFaultTest, ADiskThatIsFullForAWhileLosesNothing) {
  db::register_faulty_vfs();
  serving.open.vfs = "nimble-faulty";
  const db::Uuid uuid = campaign(1.5);
  start_worker("a");
  std::mt19937_64 random(5);
  const ServiceTally tally = serve_while(
      8, [&] { db::fill_up_after(static_cast<long>(random() % 30)); }, [] { db::stop_failing(); });
  db::stop_failing();
  EXPECT_EQ(tally.finished, 1) << said;
  EXPECT_GT(tried, 2) << said;
  expect_tuned(uuid);
}

class ServiceServerFaultTest : public ServiceFaultTest {
 protected:
  ServiceServerFaultTest() : ServiceFaultTest(Where::kServer) {}
};

TEST_F(ServiceServerFaultTest, AConnectionThatIsLostAgainAndAgainLosesNothing) {
  const db::Uuid uuid = campaign(1.5);
  start_worker("a");
  // A worker that cannot open the database when it begins says so and ends.
  while (store->live_workers().empty() || !store->live_workers()[0].heartbeat)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  store.reset();
  const auto database = connection();
  int64_t ended = 0;
  const ServiceTally tally = serve_while(
      8,
      [&] {
        ended += database->integer(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()");
      },
      [] {});
  store = db::Store::open(serving.database);
  EXPECT_EQ(tally.finished, 1) << said;
  EXPECT_GT(ended, 8) << "service and worker";
  EXPECT_GT(tried, 2) << said;
  expect_tuned(uuid);
}

}  // namespace
}  // namespace nimble::tuner
