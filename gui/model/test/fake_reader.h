// A Reader that has what a test gives it, and as many trials as one likes without having any.
#pragma once

#include <atomic>
#include <thread>

#include "gui/model/reader.h"

namespace nimble::gui {

struct FakeDatabase {
  int64_t trials = 0;
  int64_t slice = std::numeric_limits<int64_t>::max() / 2;  // that one question counts
  int delay_ms = 0;                                         // of every answer
  std::atomic<int> opened{0}, pages{0}, cancelled{0};
  std::string problem;  // thrown instead of an answer
};

class FakeReader final : public Reader {
 public:
  explicit FakeReader(FakeDatabase& db) : db_(db) { ++db_.opened; }

  Overview overview(const Cancel& cancel) override {
    work(cancel);
    return {};
  }
  std::vector<CampaignRow> campaigns(const Cancel& cancel) override {
    work(cancel);
    return {};
  }
  std::vector<CoverageRow> coverage(const Cancel& cancel) override {
    work(cancel);
    return {};
  }
  std::optional<WorkloadFacts> workload(const db::Hash&, const db::Hash&, const db::Hash&,
                                        const Cancel& cancel) override {
    work(cancel);
    return std::nullopt;
  }
  TrialCount number_trials(const TrialQuery&, TrialNumbers& numbers,
                           const Cancel& cancel) override {
    work(cancel);
    const std::lock_guard lock(numbers.mutex);
    if (!numbers.landmarks) numbers.landmarks.emplace();
    int64_t& rows = numbers.landmarks->rows;
    rows = std::min(db_.trials, rows + db_.slice);
    return {rows, rows < db_.trials};
  }
  using Reader::trials;
  std::vector<db::TrialOutcome> trials(const TrialQuery& query, TrialNumbers&, int64_t first,
                                       int64_t count, const Cancel& cancel) override {
    ++db_.pages;
    work(cancel);
    std::vector<db::TrialOutcome> page;
    for (int64_t i = first; i < std::min(first + count, db_.trials); ++i) {
      db::TrialOutcome o;
      o.trial.position = 1 + (query.descending ? db_.trials - 1 - i : i);
      o.trial.uuid = std::to_string(o.trial.position);
      o.trial.state = db::TrialState::kOk;
      o.dims = {{"m", o.trial.position % 257}};
      o.config_json = R"({"rows":8})";
      o.median_ns = 1000.0 + static_cast<double>(o.trial.position % 1000);
      page.push_back(std::move(o));
    }
    return page;
  }
  SearchFacts search(const db::Hash&, const db::Hash&, const db::Uuid&, int64_t,
                     const Cancel& cancel) override {
    work(cancel);
    return {};
  }
  std::optional<MeasurementFacts> measurement(const db::Uuid&, const Cancel& cancel) override {
    work(cancel);
    return std::nullopt;
  }
  std::optional<KernelPlace> place_of(const ExplainedKernel&, const Cancel& cancel) override {
    work(cancel);
    return std::nullopt;
  }
  std::string version(const Cancel&) override { return "1"; }
  RooflineFacts roofline(const db::Hash&, const Cancel& cancel) override {
    work(cancel);
    return {};
  }
  std::vector<CodeText> code(const std::string&, const Cancel& cancel) override {
    work(cancel);
    return {};
  }
  std::vector<db::FailureLog> failures(const db::Uuid&, const Cancel& cancel) override {
    work(cancel);
    return {};
  }
  std::vector<MachineRow> machines(const Cancel& cancel) override {
    work(cancel);
    return {};
  }
  db::CampaignDiff diff(const db::Uuid&, const db::Uuid&, double, const Cancel& cancel) override {
    work(cancel);
    return {};
  }

 private:
  void work(const Cancel& cancel) {
    if (!db_.problem.empty()) throw Error(Status::kIo, "fake", db_.problem);
    for (int i = 0; i < db_.delay_ms; ++i) {
      if (cancel.asked()) ++db_.cancelled;
      cancel.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  FakeDatabase& db_;
};

}  // namespace nimble::gui
