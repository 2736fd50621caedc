// The program nimble-campaigns as an operator meets it.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "db/store/gpu_records.h"
#include "db/store/host_records.h"
#include "db/store/store.h"
#include "vm/base/test/run_command.h"
#include "vm/base/test/scoped_variable.h"

namespace nimble::tuner {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class CampaignsProgram : public testing::Test {
 protected:
  CampaignsProgram() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "nimble-campaigns-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    std::ofstream(folder + "/model.nir")
        << "fn @main(%x: Tensor[(n, 32), f32]) -> Tensor[(n, 32), f32] "
           "{ let %y = softmax(%x) {axis = 1}; %y }";
  }
  ~CampaignsProgram() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  CommandResult run(const std::string& arguments) const {
    return run_command(
        fmt::format("{} {} --db {}/tuning.db 2>&1", NIMBLE_CAMPAIGNS_PROGRAM, arguments, folder));
  }
  std::string submit(const std::string& more = "") const {
    const CommandResult r = run_command(fmt::format(
        "{} submit {}/model.nir --db {}/tuning.db --threads 1 --budget 60s {} 2>/dev/null",
        NIMBLE_CAMPAIGNS_PROGRAM, folder, folder, more));
    EXPECT_EQ(r.exit_code, 0) << r.out;
    return r.out.substr(0, 36);
  }
  std::unique_ptr<db::Store> store() const { return db::Store::open(folder + "/tuning.db"); }
  std::string folder;
};

TEST_F(CampaignsProgram, ACampaignForAGpuIsForItsHardware) {
  const ScopedVariable none("NIMBLE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  const std::string submit = "submit " + folder + "/model.nir --budget 60s ";
  const auto refused = [&](const std::string& more) {
    const CommandResult r = run(submit + more);
    EXPECT_EQ(r.exit_code, 1) << r.out;
    return r.out;
  };
  const std::string unknown = refused("--target sm_90a");
  EXPECT_THAT(unknown, HasSubstr("knows no GPU that runs such code"));
  EXPECT_THAT(unknown, HasSubstr("nimble worker --db PLACE --device gpu"));
  const db::Hash h100 = store()->put(
      db::gpu_hardware({"NVIDIA H100", 90, 132, 232448, 50 << 20, uint64_t{80} << 30}));
  EXPECT_THAT(refused("--hardware H100 --target x86-64-v3"),
              HasSubstr("NVIDIA H100 (sm_90) cannot run such code"));
  EXPECT_THAT(refused("--hardware H100 --target sm_80"), HasSubstr("cannot run such code"));
  store()->put(db::host_hardware());
  EXPECT_THAT(refused("--hardware " + db::key_of(db::host_hardware()) + " --target sm_90a"),
              HasSubstr("cannot run such code"));
  EXPECT_THAT(refused("--hardware H100 --threads 2"), HasSubstr("--threads 2"));

  const CommandResult made = run(submit + "--hardware H100");
  if (made.exit_code != 0) {
    EXPECT_THAT(made.out, HasSubstr("NVRTC"));
    GTEST_SKIP() << made.out;
  }
  const std::vector<db::Campaign> all = store()->campaigns(10, {});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].key.hardware, h100);
  EXPECT_THAT(all[0].key.options, HasSubstr(R"("target":"sm_90a")"));
  // By the target alone it is the same: the database knows one such GPU.
  EXPECT_EQ(run(submit + "--target sm_90a").exit_code, 0);
  EXPECT_EQ(store()->campaigns(10, {}).size(), 1u);
  store()->put(db::gpu_hardware({"NVIDIA H200", 90, 132, 232448, 50 << 20, uint64_t{141} << 30}));
  EXPECT_THAT(run(submit + "--target sm_90a").out, HasSubstr("2 kinds of GPUs run such code"));
}

TEST_F(CampaignsProgram, ASubmittedModelIsACampaignThatWaitsForAService) {
  const std::string uuid = submit();
  EXPECT_EQ(submit(), uuid) << "the same model again";
  EXPECT_NE(submit("--seed 1"), uuid);
  const CommandResult list = run("list --format json");
  const json rows = json::parse(list.out);
  ASSERT_EQ(rows.size(), 2u);
  const CommandResult one = run("status " + uuid.substr(0, 6) + " --format json");
  const json status = json::parse(one.out);
  const json& campaign = status["campaigns"][0];
  EXPECT_EQ(campaign["campaign"], uuid);
  EXPECT_EQ(campaign["state"], "running");
  EXPECT_EQ(campaign["budget_s"], 60.0);
  EXPECT_EQ(campaign["served"], true);
  ASSERT_EQ(campaign["tasks"].size(), 1u);
  EXPECT_EQ(campaign["tasks"][0]["label"], "softmax");
  EXPECT_TRUE(status["workers"].empty());
  const std::string text = run("status").out;
  EXPECT_THAT(text, HasSubstr("softmax")) << "its task";
  EXPECT_THAT(text, HasSubstr("none is alive"));
}

TEST_F(CampaignsProgram, StatusSaysWhyATaskKeepsItsDefaultSchedule) {
  const std::string uuid = submit();
  const db::Uuid task = store()->tasks(uuid).at(0).uuid;
  EXPECT_THAT(run("status").out, Not(HasSubstr("softmax: ")));
  store()->enter_phase(task, "verify", R"({"note":"ended without a \u001bworker"})");
  EXPECT_THAT(run("status").out, HasSubstr("softmax: ended without a ?worker"));
  for (const char* odd : {R"({"note":3})", "[]", "{}"}) {
    store()->enter_phase(task, "verify", odd);
    const CommandResult shown = run("status");
    EXPECT_EQ(shown.exit_code, 0) << shown.out;
    EXPECT_THAT(shown.out, Not(HasSubstr("softmax: "))) << odd;
  }
}

TEST_F(CampaignsProgram, StatusSaysHowManyTrialsWerePruned) {
  const std::string uuid = submit();
  const db::Uuid task = store()->tasks(uuid).at(0).uuid;
  store()->enter_phase(task, "search", R"({"trials":50,"failed":41,"pruned":37})");
  EXPECT_THAT(run("status").out, testing::ContainsRegex("failed +pruned"));
  EXPECT_THAT(run("status").out, testing::ContainsRegex("50 +41 +37"));
}

TEST_F(CampaignsProgram, StatusSaysHowOftenAVendorsRoutineWins) {
  const std::string uuid = submit();
  const db::Uuid task = store()->tasks(uuid).at(0).uuid;
  const auto status = [&] { return json::parse(run("status --format json").out)["campaigns"][0]; };
  EXPECT_TRUE(status()["vendor"].is_null());
  EXPECT_THAT(run("status").out, Not(HasSubstr("vendor's routine")));
  store()->enter_phase(task, "verify", R"({"vendor":{"sizes":3,"of":5,"failed":1,"wins":1,
      "faster":1.25,"slower":2,"worst":0.25,"ours_behind":[{"n":64},{"n":7}]},
      "no_vendor":"far: libdnnl.so.2 is not\u001b installed"})");
  const json found = status();
  EXPECT_EQ(found["vendor"]["sizes"], 3);
  EXPECT_EQ(found["vendor"]["of"], 5);
  EXPECT_EQ(found["vendor"]["failed"], 1);
  EXPECT_EQ(found["vendor"]["faster"], 1.25);
  EXPECT_EQ(found["tasks"][0]["detail"]["vendor"]["ours_behind"][0]["n"], 64);
  const std::string text = run("status").out;
  for (const char* part :
       {"1/3 of 5 by 1.25x, behind 2.00x", "took part in 3 of 5 cases", "wrong or broke off in 1",
        "softmax: ours takes over 5% more at n=64; n=7",
        "for 1 of 1 workloads: far: libdnnl.so.2 is not? installed"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST_F(CampaignsProgram, RequestsWaitInTheDatabaseForTheServicesAnswer) {
  const std::string uuid = submit();
  EXPECT_EQ(run("pause " + uuid + " --reason 'machines are needed'").exit_code, 0);
  auto open = store()->open_requests(uuid);
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].request, db::ControlRequest::kPause);
  EXPECT_EQ(open[0].reason, "machines are needed");
  EXPECT_THAT(run("status").out, HasSubstr("no service has answered yet"));
  const CommandResult late = run("stop " + uuid + " --wait 0.1");
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_THAT(late.out, HasSubstr("nimble serve"));
  EXPECT_EQ(store()->open_requests(uuid).size(), 2u);
}

TEST_F(CampaignsProgram, ABudgetIsOnlyRaised) {
  const std::string uuid = submit();
  store()->set_campaign_state(uuid, db::CampaignState::kFinished);
  EXPECT_THAT(run("stop " + uuid).out, HasSubstr("is finished"));
  const CommandResult less = run("budget " + uuid + " 30s");
  EXPECT_EQ(less.exit_code, 1);
  EXPECT_THAT(less.out, HasSubstr("no more than"));
  EXPECT_EQ(run("budget " + uuid + " 2m").exit_code, 0);
  EXPECT_EQ(store()->campaign(uuid)->budget_s, 120);
  EXPECT_EQ(store()->campaign(uuid)->state, db::CampaignState::kRunning);
}

TEST_F(CampaignsProgram, WhatNoServiceAttendsToIsRefused) {
  db::CampaignKey key;
  key.digest = "program";
  key.hardware = store()->put(db::host_hardware());
  const std::string uuid = store()->create_campaign(key, 60, "nimble tune");
  const CommandResult refused = run("pause " + uuid);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.out, HasSubstr("nimble tune"));
  EXPECT_EQ(run("pause zzzz").exit_code, 1);
}

TEST_F(CampaignsProgram, KindsOfMachinesAreNamedAsTheDatabaseKnowsThem) {
  const CommandResult unknown = run("submit " + folder + "/model.nir --hardware 'no such'");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.out, HasSubstr("no such"));
  db::Hardware other;
  other.vendor = "ACME";
  other.model_name = "Abacus 3000";
  other.isa = "x86-64-v2";
  store()->put(other);
  const std::string uuid = submit("--hardware Abacus");
  const auto campaign = store()->campaign(uuid);
  EXPECT_EQ(campaign->key.hardware, db::key_of(other));
  EXPECT_EQ(json::parse(campaign->key.options)["target"], "x86-64-v2") << "that machine's level";
  EXPECT_THAT(run("submit " + folder + "/model.nir --hardware Abacus").out,
              HasSubstr("give --threads"));
}

TEST_F(CampaignsProgram, TwoAreComparedAsTheDatabaseComparesThem) {
  const std::string a = submit(), b = submit("--seed 1");
  const CommandResult nothing = run("diff " + a.substr(0, 8) + " " + b.substr(0, 8));
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.out, HasSubstr("nimble db"));
}

// Whoever may write there may tell anything of a task.
TEST_F(CampaignsProgram, WhatIsToldOfATaskMayBeAnything) {
  const std::string uuid = submit();
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const std::string& detail : {deep, std::string("["), std::string("[1]"), std::string()}) {
    store()->enter_phase(store()->tasks(uuid).at(0).uuid, "search", detail);
    EXPECT_EQ(run("status > /dev/null").exit_code, 0);
    EXPECT_EQ(run("status --format json > /dev/null").exit_code, 0);
  }
}

TEST_F(CampaignsProgram, TheMetricsFileIsWritten) {
  submit();
  ASSERT_EQ(run("status --metrics " + folder + "/nimble.prom").exit_code, 0);
  std::ifstream in(folder + "/nimble.prom");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(text, HasSubstr("nimble_campaign_budget_seconds"));
  EXPECT_THAT(text, ::testing::EndsWith("# EOF\n"));
}

}  // namespace
}  // namespace nimble::tuner
