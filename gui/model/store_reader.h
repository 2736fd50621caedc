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
  std::optional<MeasurementFacts> measurement(const db::Uuid& uuid, const Cancel& cancel) override;
  std::string version(const Cancel& cancel) override;
  RooflineFacts roofline(const db::Hash& hardware, const Cancel& cancel) override;
  std::vector<CodeText> code(const std::string& code_hash, const Cancel& cancel) override;
  std::vector<db::FailureLog> failures(const db::Uuid& trial, const Cancel& cancel) override;
  std::vector<MachineRow> machines(const Cancel& cancel) override;
  db::CampaignDiff diff(const db::Uuid& a, const db::Uuid& b, double smallest,
                        const Cancel& cancel) override;
  std::function<void()> stopper() override;

 private:
  std::map<db::Hash, db::Toolchain> toolchains();
  WorkloadRow row_of(const db::Workload& w, const HardwareRow& h,
                     const std::vector<const db::DispatchTable*>& tables,
                     const std::map<db::Hash, db::Toolchain>& toolchains);
  void add_peers_and_twins(WorkloadFacts& facts, const Cancel& cancel);
  // By workload and hardware, of the newest campaign that knows it.
  std::map<std::pair<db::Hash, db::Hash>, double> model_shares(const Cancel& cancel);
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
};

}  // namespace nimble::gui
