// A campaign in a folder of its own that is over in a second, with kernels that go wrong if they
// are told to.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "db/store/store.h"
#include "tuner/service/campaign.h"
#include "tuner/service/test/copy_workload.h"

namespace nimble::tuner {

class QuickCampaignTest : public testing::Test {
 protected:
  QuickCampaignTest() {
    const std::filesystem::path root =
        ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string pattern = (root / "nimble-tune-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    ::setenv("NIMBLE_LOCK_FOLDER", folder.c_str(), 1);  // tests run side by side
  }
  ~QuickCampaignTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  std::string file(const std::string& name) const { return folder + "/" + name; }
  CampaignOptions quick(const std::string& model) const {
    std::ofstream(file("model.nir")) << model;
    CampaignOptions o;
    o.model = file("model.nir");
    o.database = file("tuning.db");
    o.threads = {1};
    o.quiet = true;
    o.budget_s = 60;
    o.worker = NIMBLE_FAULT_WORKER;
    o.policy.batch_ns = 10'000;
    o.policy.max_samples = 6;
    o.policy.case_ns = 100'000'000;
    return o;
  }
  std::string folder;
};

class CampaignTest : public QuickCampaignTest {
 protected:
  std::vector<db::TrialOutcome> outcomes(const db::Uuid& campaign) {
    return db::Store::open(file("tuning.db"))->outcomes(campaign);
  }
};

}  // namespace nimble::tuner
