// What a search begins with: tables of earlier campaigns, the likest hardware first.
#include "tuner/service/warm_start.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "compiler/driver/compile.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/targets.h"
#include "compiler/passes/pipeline.h"
#include "tuner/fleet/case_record.h"

namespace nimble::tuner {
namespace {

class WarmStartTest : public testing::Test {
 protected:
  WarmStartTest() : target(kernels::target_by_name("x86-64-v3")) {
    std::string pattern = (std::filesystem::temp_directory_path() / "nimble-warm-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    db::OpenOptions options;
    options.clock_ms = [this] { return clock += 1000; };
    store = db::Store::open(folder + "/tuning.db", options);
    passes::PassContext passes;
    passes.target = target;
    const ir::Module lowered = passes::run_pipeline(
        ir::infer_types(ir::parse_module("fn @main(%x: Tensor[(n, 64), f32], %w: Tensor[(64, 48), "
                                         "f32]) -> Tensor[(n, 48), f32] { let %y = matmul(%x, %w); "
                                         "%y }")),
        passes);
    workload = driver::workloads_of(lowered).at(0).workload;
    space.emplace(workload, target);
    here.vendor = "AuthenticAMD";
    here.family = 25;
    here.isa = "x86-64-v3";
    here.caches = "L2 1M/1";
    store->put(here);
    store->put(tuned::toolchain_record());
    Random random(5);
    while (points.size() < 6) {
      const tuned::Candidate c = *space->sample(random);
      if (text_of(c) != text_of(space->default_candidate())) points.emplace(text_of(c), c);
    }
  }
  ~WarmStartTest() override {
    store.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  const tuned::Candidate& point(size_t i) const { return std::next(points.begin(), i)->second; }
  // A table with these points, of the workload on such hardware.
  db::Uuid table(const db::Hardware& hardware, const std::vector<size_t>& of,
                 const std::string& level = "x86-64-v3") {
    db::NewDispatchTable t;
    t.workload = store->put(tuned::workload_record(workload, kernels::target_by_name(level), 1));
    t.hardware = store->put(hardware);
    t.toolchain = db::key_of(tuned::toolchain_record());
    t.policy = store->put(policy_record(Policy::of_class("cached"), 1));
    t.objective = "weighted mean";
    t.tree = R"({"leaf": 0})";
    for (const size_t i : of) {
      db::DispatchEntry e;
      e.config = store->put(
          db::Config{store->put(db::Template{point(i).template_name, tuned::kTemplateVersion, ""}),
                     config_json(point(i))});
      t.entries.push_back(e);
    }
    return store->create_table(t);
  }
  std::vector<std::string> begins_with(size_t most = 8) {
    std::vector<std::string> out;
    for (const tuned::Candidate& c : warm_start(*store, *space, 1, db::key_of(here), most))
      out.push_back(text_of(c));
    return out;
  }
  std::vector<std::string> texts(const std::vector<size_t>& of) const {
    std::vector<std::string> out;
    for (const size_t i : of) out.push_back(text_of(point(i)));
    return out;
  }

  const kernels::TargetInfo target;
  int64_t clock = 1'700'000'000'000;
  std::string folder;
  std::unique_ptr<db::Store> store;
  kernels::Workload workload;
  std::optional<Space> space;
  std::map<std::string, tuned::Candidate> points;
  db::Hardware here;
};

TEST_F(WarmStartTest, WithoutTablesThereIsNothing) {
  EXPECT_TRUE(begins_with().empty());
}

TEST_F(WarmStartTest, TheLikestHardwareComesFirst) {
  db::Hardware other = here, far = here;
  other.caches = "L2 2M/1";
  far.vendor = "GenuineIntel";
  table(far, {0});
  table(other, {1, 0});
  table(here, {2});
  EXPECT_EQ(begins_with(), texts({2, 1, 0}));
  EXPECT_EQ(begins_with(2), texts({2, 1}));
}

TEST_F(WarmStartTest, ActiveTablesComeBeforeDraftsAndNewOnesBeforeOld) {
  const db::Uuid first = table(here, {3});
  table(here, {4});
  table(here, {5});
  store->activate(first, "a test");
  EXPECT_EQ(begins_with(), texts({3, 5, 4}));
}

TEST_F(WarmStartTest, TablesOfAnotherLevelCount) {
  db::Hardware more = here;
  more.isa = "x86-64-v4";
  table(more, {1}, "x86-64-v4");
  EXPECT_EQ(begins_with(), texts({1}));
}

TEST_F(WarmStartTest, WhatIsNoPointOfTheSpaceIsPassedOver) {
  const db::Uuid uuid = table(here, {0, 1});
  db::NewDispatchTable t = *store->table(uuid);
  const auto foreign = [&](const std::string& name, const std::string& json) {
    t.entries[0].config =
        store->put(db::Config{store->put(db::Template{name, tuned::kTemplateVersion, ""}), json});
    store->create_table(t);
  };
  foreign("no such template", "{}");
  foreign(point(0).template_name, R"({"no such knob": 3})");
  foreign("vendor", R"({"routine": "no such routine"})");
  EXPECT_EQ(begins_with(), texts({1, 0}));
}

TEST(Unlikeness, WeighsWhatCodeMayUseMost) {
  db::Hardware a, b;
  EXPECT_EQ(unlikeness(a, b), 0);
  b.topology = "2 sockets";
  const int topology = unlikeness(a, b);
  b.caches = "L2 2M/1";
  const int caches = unlikeness(a, b);
  db::Hardware c;
  c.isa = "x86-64-v4";
  EXPECT_GT(topology, 0);
  EXPECT_GT(caches, topology);
  EXPECT_GT(unlikeness(a, c), caches);
}

}  // namespace
}  // namespace nimble::tuner
