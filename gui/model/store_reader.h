// The Reader over db/store; one file a theme: store_reader.cpp (workloads, tables, measurements),
// store_trials.cpp (a campaign's trials, page by page), store_evidence.cpp (ceilings, code,
// failures, machines).
#pragma once

#include "db/store/store.h"
#include "gui/model/reader.h"

namespace nimble::gui {

class StoreReader final : public Reader {
 public:
  explicit StoreReader(const DatabasePlace& place);

  Overview overview(const Cancel& cancel) override;
  std::vector<CampaignRow> campaigns(const Cancel& cancel) override;
  std::vector<CoverageRow> coverage(const Cancel& cancel) override;
  std::optional<WorkloadFacts> workload(const db::Hash& workload, const db::Hash& hardware,
                                        const db::Hash& policy, const Cancel& cancel) override;
  TrialCount number_trials(const TrialQuery& query, TrialNumbers& numbers,
                           const Cancel& cancel) override;
  using Reader::trials;
  std::vector<db::TrialOutcome> trials(const TrialQuery& query, TrialNumbers& numbers,
                                       int64_t first, int64_t count, const Cancel& cancel) override;
  SearchFacts search(const db::Hash& workload, const db::Hash& hardware, const db::Uuid& campaign,
                     int64_t most, const Cancel& cancel) override;
  std::optional<MeasurementFacts> measurement(const db::Uuid& uuid, const Cancel& cancel) override;
  std::optional<KernelPlace> place_of(const ExplainedKernel& kernel, const Cancel& cancel) override;
  std::string version(const Cancel& cancel) override;
  RooflineFacts roofline(const db::Hash& hardware, const Cancel& cancel) override;
  std::vector<CodeText> code(const std::string& code_hash, const Cancel& cancel) override;
  std::vector<db::FailureLog> failures(const db::Uuid& trial, const Cancel& cancel) override;
  std::vector<MachineRow> machines(const Cancel& cancel) override;
  db::CampaignDiff diff(const db::Uuid& a, const db::Uuid& b, double smallest,
                        const Cancel& cancel) override;
  std::function<void()> stopper() override;

 private:
  void forget_changed_progress();
  void add_peers_and_twins(WorkloadFacts& facts, const Cancel& cancel);
  std::vector<db::Result> newest_results(const db::Hash& workload, const db::Hash& hardware,
                                         const db::Hash& policy, int64_t& codegen,
                                         const Cancel& cancel);
  // Under the numbers' mutex: until `rows` are numbered, or the slice is over.
  TrialCount count_on(const TrialQuery& query, TrialNumbers& numbers, int64_t rows,
                      const Cancel& cancel);
  void begin(const TrialQuery& query, TrialNumbers& numbers);
  void scan_page(const TrialQuery& query, TrialNumbers& numbers);

  DatabasePlace place_;
  std::unique_ptr<db::Store> store_;
  std::map<db::Uuid, db::CampaignProgress> resting_;  // of campaigns that do not run
  int64_t progress_as_of_ = 0;                        // the event up to which they are right
};

}  // namespace nimble::gui
