// Campaigns of a workload that copies, with kernels whose speed is known: a copy, one that sleeps,
// and one that is wrong.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "compiler/tuned/tuned.h"
#include "db/store/test/all.h"
#include "tuner/measure/test/fault_executable.h"
#include "tuner/service/test/copy_workload.h"
#include "tuner/service/test/quick_campaign.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::tuner {

class TwoSpeeds : public CopyingBackend {
 public:
  Built build(const kernels::Workload&, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo&) override {
    Built b;
    std::vector<std::string> names;
    for (const tuned::Candidate& c : candidates) {
      const std::string text = text_of(c);
      names.push_back(slow.contains(text)    ? "test.slow"
                      : wrong.contains(text) ? "test.wrong"
                                             : kernel);
      b.code_hashes.push_back(hex(hash64(text)));
    }
    b.executable = fault_executable(names);
    b.compile_ms = 1;
    const std::lock_guard lock(mutex_);
    built += candidates.size();
    if (after_build) after_build();
    return b;
  }
  std::set<std::string> slow;  // candidates
  std::set<std::string> wrong;
  std::string kernel = "test.copy";  // of the others
  size_t built = 0;
  std::function<void()> after_build;

 private:
  std::mutex mutex_;
};

class TwoSpeedsTest : public QuickCampaignTest {
 protected:
  static std::string text_of_config(db::Store& store, const db::Hash& config) {
    const auto info = store.config(config);
    return text_of(candidate_of(info->template_name, info->json));
  }
  // A campaign's table; its pool as candidates.
  std::set<std::string> tune() {
    const CampaignReport made = run_campaign(campaign, backend, kNever);
    EXPECT_EQ(made.tasks.size(), 1u);
    EXPECT_TRUE(made.tasks[0].table) << made.tasks[0].note;
    const auto store = db::Store::open(campaign.database);
    table = db::all_tables(*store).at(0);
    std::set<std::string> pool;
    for (const db::DispatchEntry& e : table.entries) pool.insert(text_of_config(*store, e.config));
    return pool;
  }
  // Leaves a copy of the campaign's table, active, as another compiler would have made it.
  db::Uuid copy_of_another_toolchain(db::Store& store) {
    db::NewDispatchTable copy = table;
    copy.campaign.reset();
    db::Toolchain toolchain = tuned::toolchain_record();
    toolchain.compiler = "another compiler";
    copy.toolchain = store.put(toolchain);
    const db::Uuid made = store.create_table(copy);
    store.activate(made, "tuned with another compiler");
    return made;
  }
  // What the error says; its status is asked for.
  static std::string refusal_of(const std::function<void()>& call, Status status) {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), status) << e.what();
      return e.what();
    }
    ADD_FAILURE() << "it was taken";
    return "";
  }

  CampaignOptions campaign = quick(kCopy);
  TwoSpeeds backend;
  db::DispatchTable table;
};

}  // namespace nimble::tuner
