// A campaign's trials by number. Where the store has an index for the order, a page is read from
// the landmark before it, whatever the number of rows; a text that is sought, and orders without an
// index, are looked for page by page once, and what was found is kept until the database changes.
#include <algorithm>

#include "gui/model/store_reader.h"

namespace nimble::gui {
namespace {

constexpr int64_t kStep = 128;            // rows between two landmarks
constexpr int64_t kScanPage = 2'000;      // rows between two looks at `cancel`
constexpr size_t kMostScanned = 200'000;  // rows kept of a scan: what nobody scrolls through

// An order by time leaves out what has none, so it is an index's only beyond what a scan may keep.
bool has_index(const TrialQuery& q, int64_t trials) {
  if (!q.text.empty() || !q.shape.empty()) return false;
  return q.order == TrialOrder::kQueue ||
         (q.order == TrialOrder::kTime && trials > static_cast<int64_t>(kMostScanned));
}

db::TrialFilter filter_of(const TrialQuery& q) {
  db::TrialFilter f;
  f.campaign = q.campaign;
  if (!q.workload.empty()) f.workload = q.workload;
  if (!q.config.empty()) f.config = q.config;
  f.failed = q.failed_only;
  return f;
}

db::TrialOutcome outcome_of(db::TrialRow row) {
  return {std::move(row.trial), std::move(row.dims), std::move(row.config_json), row.median_ns};
}

bool has_text(const db::TrialOutcome& o, const std::string& text) {
  const auto has = [&](const std::string& in) { return in.find(text) != std::string::npos; };
  return has(o.trial.error_class) || has(o.trial.message) || has(o.config_json) ||
         has(db::text_of(o.dims));
}

void sort_rows(std::vector<db::TrialOutcome>& rows, const TrialQuery& q) {
  // What has no time comes last in both directions.
  const auto time = [&](const db::TrialOutcome& o) {
    return q.order == TrialOrder::kTime ? o.median_ns : o.trial.predicted_ns;
  };
  const auto before = [&](const db::TrialOutcome& x, const db::TrialOutcome& y) {
    if (q.order == TrialOrder::kState && x.trial.state != y.trial.state)
      return (x.trial.state < y.trial.state) != q.descending;
    if (q.order == TrialOrder::kTime || q.order == TrialOrder::kPredicted) {
      const auto left = time(x), right = time(y);
      if (left.has_value() != right.has_value()) return left.has_value();
      if (left && *left != *right) return (*left < *right) != q.descending;
    }
    if (q.order == TrialOrder::kQueue && q.descending) return x.trial.position > y.trial.position;
    return x.trial.position < y.trial.position;
  };
  std::sort(rows.begin(), rows.end(), before);
}

}  // namespace

void StoreReader::scan(const TrialQuery& q, const Cancel& cancel) {
  db::PageRequest page;
  page.filter = filter_of(q);
  page.order = db::TrialOrder::kQueue;
  page.descending = false;
  page.limit = kScanPage;
  for (bool more = true; more && scanned_.size() < kMostScanned;) {
    cancel.check();
    std::vector<db::TrialRow> rows = store_->trials(page);
    more = static_cast<int64_t>(rows.size()) == page.limit;
    if (more) page.from = rows.back().key;
    for (db::TrialRow& row : rows) {
      if (!q.shape.empty() && db::text_of(row.dims) != q.shape) continue;
      db::TrialOutcome o = outcome_of(std::move(row));
      if (q.text.empty() || has_text(o, q.text)) scanned_.push_back(std::move(o));
    }
  }
  sort_rows(scanned_, q);
}

void StoreReader::number_rows(const TrialQuery& q, const Cancel& cancel) {
  const std::string version = this->version(cancel);
  if (numbered_ == q && numbered_version_ == version) return;
  numbered_.reset();
  landmarks_.reset();
  scanned_.clear();
  if (has_index(q, store_->progress(q.campaign).trials))
    landmarks_ = store_->landmarks(
        filter_of(q), q.order == TrialOrder::kTime ? db::TrialOrder::kTime : db::TrialOrder::kQueue,
        q.descending, kStep);
  else
    scan(q, cancel);
  numbered_ = q;
  numbered_version_ = version;
}

int64_t StoreReader::trial_count(const TrialQuery& q, const Cancel& cancel) {
  number_rows(q, cancel);
  return landmarks_ ? landmarks_->rows : static_cast<int64_t>(scanned_.size());
}

std::vector<db::TrialOutcome> StoreReader::trials(const TrialQuery& q, int64_t first, int64_t count,
                                                  const Cancel& cancel) {
  number_rows(q, cancel);
  first = std::max<int64_t>(first, 0);
  std::vector<db::TrialOutcome> out;
  if (!landmarks_) {
    const auto size = static_cast<int64_t>(scanned_.size());
    for (int64_t i = first; i < std::min(size, first + count); ++i)
      out.push_back(scanned_[static_cast<size_t>(i)]);
    return out;
  }
  db::PageRequest page;
  page.filter = filter_of(q);
  page.order = q.order == TrialOrder::kTime ? db::TrialOrder::kTime : db::TrialOrder::kQueue;
  page.descending = q.descending;
  const auto known = static_cast<int64_t>(landmarks_->keys.size());
  const int64_t landmark = std::min(first / kStep, known);
  if (landmark > 0) page.from = landmarks_->keys[static_cast<size_t>(landmark - 1)];
  int64_t skip = first - landmark * kStep;
  while (static_cast<int64_t>(out.size()) < count) {
    cancel.check();
    page.limit = std::min(kScanPage, skip + count - static_cast<int64_t>(out.size()));
    std::vector<db::TrialRow> rows = store_->trials(page);
    const bool more = static_cast<int64_t>(rows.size()) == page.limit;
    if (more) page.from = rows.back().key;
    for (db::TrialRow& row : rows)
      if (skip > 0)
        --skip;
      else
        out.push_back(outcome_of(std::move(row)));
    if (!more) break;
  }
  return out;
}

}  // namespace nimble::gui
