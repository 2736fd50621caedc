// What a service makes of machines whose times disagree with those of their kind.
#include "tuner/service/test/service_fixture.h"

namespace nimble::tuner {
namespace {

// What the odd machine says instead, of the default and of every third other, unless it is 0.
struct Lies {
  double base = 0, other = 0;
};

// Machines that only say how long something took: the default 100 us, others less, by what the
// configuration is called. On `odd` everything but the default takes half as long again.
class SaidMachines {
 public:
  SaidMachines(const std::string& place, const std::string& odd, Lies lies = {})
      : store_(db::Store::open(place)), lies_(lies) {
    for (const char* host : {"a", "b", "c", "d", "odd"}) {
      const db::Uuid machine = store_->put(db::Machine{"", host, store_->put(db::host_hardware())});
      names_[host] = machine;
      workers_.push_back({store_->add(db::Worker{"", machine, host, 1, "0.1", "{}", "[]"}), machine,
                          host == odd ? 1.5 : 1});
      store_->heartbeat({workers_.back().uuid});
    }
    thread_ = std::thread([this] { work(); });
  }
  ~SaidMachines() {
    over_ = true;
    thread_.join();
  }
  const db::Uuid& machine(const std::string& host) const { return names_.at(host); }

 private:
  struct One {
    db::Uuid uuid, machine;
    double factor = 1;
  };
  void work() {
    // Each has its turn, however few jobs there are at a time.
    for (size_t turn = 0; !over_;) {
      const One& w = workers_[turn % workers_.size()];
      store_->heartbeat({w.uuid});
      const std::optional<db::Job> job = store_->claim_job({w.uuid});
      if (job) store_->report(report(w, *job));
      ++turn;
      if (!job) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  db::JobReport report(const One& w, const db::Job& job) {
    db::JobReport r;
    r.uuid = db::new_uuid();
    r.job = job.uuid;
    r.worker = w.uuid;
    r.attempt = job.attempt;
    r.host = {"", "performance", true, {}, "0", 0, 0};
    r.consumed_s = 0.05;
    const db::MeasureCase c = *store_->measure_case(job.measure_case);
    const db::Hash base = job.trials.at(0).trial.key.config;
    for (const db::JobTrial& t : job.trials) {
      const db::Hash& config = t.trial.key.config;
      double ns = config == base
                      ? 1e5
                      : 1e5 * w.factor * (0.5 + static_cast<double>(hash64(config) % 40) / 100);
      if (w.factor != 1 && lies_.base > 0) {
        if (config == base) ns = lies_.base;
        if (config != base && hash64(config) % 3 == 0) ns = lies_.other;
      }
      db::Measurement m;
      m.trial = t.trial.uuid;
      m.artifact = t.artifact;
      m.policy = c.policy;
      m.median_ns = ns;
      m.ci_low_ns = 0.99 * ns;
      m.ci_high_ns = 1.01 * ns;
      m.stop_reason = "ci";
      m.samples_ns = {ns, ns, ns};
      db::TrialReport result;
      result.trial = t.trial.uuid;
      result.measurement = m;
      result.correctness = db::Correctness{"", t.artifact, t.trial.key.shape, 0, c.tolerance, true};
      r.results.push_back(std::move(result));
    }
    return r;
  }

  std::unique_ptr<db::Store> store_;
  const Lies lies_;
  std::vector<One> workers_;
  std::map<std::string, db::Uuid> names_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

TEST_F(ServiceTest, AMachineThatDisagreesIsSetAsideAndTheDatabaseSaysSo) {
  // A space that is not used up before machines have met.
  const Submission s = submission(
      0,
      "fn @main(%x: Tensor[(n, 64), f32], %w: Tensor[(64, 64), f32]) -> Tensor[(n, 64), f32] {\n"
      "  let %y = matmul(%x, %w);\n  %y\n}\n");
  const db::Uuid uuid = submit(*store, s, store->put(db::host_hardware()), 6, "test");
  const SaidMachines machines(place(), "odd");
  EXPECT_EQ(serve().finished, 1) << said;
  const std::vector<db::MachineVerdict> verdicts = store->verdicts(uuid);
  ASSERT_EQ(verdicts.size(), 5u) << said;
  for (const db::MachineVerdict& v : verdicts) {
    const bool odd = v.machine == machines.machine("odd");
    EXPECT_EQ(v.set_aside, odd) << said;
    EXPECT_GT(v.cases, 0);
    if (odd) {
      EXPECT_NEAR(v.apart, std::log(1.5), 1e-6);
    }
  }
  EXPECT_THAT(said, testing::HasSubstr("is set aside: its times are 41% apart"));
  EXPECT_TRUE(store->verdict(machines.machine("odd"))->set_aside);
}

// Whoever measures may say anything that the database takes. Ratios of such times are no numbers:
// no model learns from them, and no table holds them.
TEST_F(ServiceTest, TimesThatCannotBeEndNoService) {
  for (const Lies lies : {Lies{9e17, 1e-300}, Lies{1e-300, 9e17}}) {
    said.clear();
    const db::Uuid uuid = campaign(3, static_cast<int64_t>(lies.base > 1));
    const SaidMachines machines(place(), "odd", lies);
    const ServiceTally tally = serve();
    EXPECT_EQ(tally.finished, 1) << said;
    EXPECT_EQ(tally.refused, 0) << said;
    for (const db::DispatchTable& t : tables(uuid))
      for (const db::DispatchEntry& e : t.entries) {
        EXPECT_GT(e.expected_ns.value_or(1e5), 1e4);
        EXPECT_LT(e.expected_ns.value_or(1e5), 1e6);
      }
  }
}

}  // namespace
}  // namespace nimble::tuner
