// A campaign's trials by number. Where the store has an index for the order, a page is read from
// the landmark before it, whatever the number of rows; a text or a shape is sought page by page
// once, and a small campaign is read and sorted. Each is counted in slices, so that the first rows
// are seen before the last is known.
#include <algorithm>
#include <chrono>

#include "gui/model/store_reader.h"
#include "vm/base/error.h"

namespace nimble::gui {
namespace {

constexpr int64_t kStep = 128;        // rows between two landmarks
constexpr int64_t kScanPage = 2'000;  // rows between two looks at `cancel`
constexpr int64_t kLandmarksAtOnce = 64 * kStep;
// How long a question counts before it tells how far it is.
constexpr auto kSlice = std::chrono::milliseconds(40);
constexpr size_t kMostScanned = 200'000;      // rows kept of a scan: what nobody scrolls through
constexpr int64_t kMostSorted = 160 * kStep;  // rows of a small campaign

db::TrialOrder order_of(const TrialQuery& q) {
  switch (q.order) {
    case TrialOrder::kQueue:
      return db::TrialOrder::kQueue;
    case TrialOrder::kTime:
      return db::TrialOrder::kTime;
    case TrialOrder::kPredicted:
      return db::TrialOrder::kPredicted;
    case TrialOrder::kState:
      return db::TrialOrder::kState;
  }
  NIMBLE_UNREACHABLE("order {}", static_cast<int>(q.order));
}

db::TrialFilter filter_of(const TrialQuery& q) {
  db::TrialFilter f;
  f.campaign = q.campaign;
  if (!q.workload.empty()) f.workload = q.workload;
  if (!q.config.empty()) f.config = q.config;
  f.failed = q.failed_only;
  return f;
}

// Looks at no more trials than a small campaign may have, in an index: to count all by their state
// takes a second where there are a million.
bool is_large(db::Store& store, const db::Uuid& campaign) {
  db::TrialFilter all;
  all.campaign = campaign;
  return store.landmarks(all, db::TrialOrder::kQueue, false, kStep, {}, kMostSorted).more;
}

// Whether anything stands in the order's index.
bool has_any(db::Store& store, const TrialQuery& q) {
  return store.landmarks(filter_of(q), order_of(q), q.descending, 1, {}, 1).rows > 0;
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
      return (db::name_of(x.trial.state) < db::name_of(y.trial.state)) != q.descending;
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

int64_t Reader::trial_count(const TrialQuery& query, const Cancel& cancel) {
  TrialNumbers numbers;
  TrialCount count;
  do count = number_trials(query, numbers, cancel);
  while (count.more);
  return count.rows;
}

std::vector<db::TrialOutcome> Reader::trials(const TrialQuery& query, int64_t first, int64_t count,
                                             const Cancel& cancel) {
  TrialNumbers numbers;
  return trials(query, numbers, first, count, cancel);
}

void StoreReader::scan_page(const TrialQuery& q, TrialNumbers& n) {
  db::PageRequest page;
  page.filter = filter_of(q);
  page.order = n.by;
  page.descending = !n.sorted && q.descending;
  page.limit = kScanPage;
  page.from = n.from;
  std::vector<db::TrialRow> rows = store_->trials(page);
  if (std::ssize(rows) < page.limit) n.complete = true;
  if (!rows.empty()) n.from = rows.back().key;
  for (db::TrialRow& row : rows) {
    if (!q.shape.empty() && db::text_of(row.dims) != q.shape) continue;
    db::TrialOutcome o = outcome_of(std::move(row));
    if (q.text.empty() || has_text(o, q.text)) n.scanned.push_back(std::move(o));
  }
  if (n.scanned.size() >= kMostScanned) n.complete = true;
  if (n.complete && n.sorted) sort_rows(n.scanned, q);
}

// An index by time or prediction leaves out what has none, so a small campaign is sorted here.
// Where nothing has what is asked for, all are alike, and stand as enqueued.
void StoreReader::begin(const TrialQuery& q, TrialNumbers& n) {
  n.begun = true;
  n.sorted = q.order != TrialOrder::kQueue && !is_large(*store_, q.campaign);
  if (!n.sorted && has_any(*store_, q)) n.by = order_of(q);
  if (n.sorted || !q.text.empty() || !q.shape.empty()) return;
  n.landmarks.emplace();
  n.landmarks->step = kStep;
}

TrialCount StoreReader::count_on(const TrialQuery& q, TrialNumbers& n, int64_t rows,
                                 const Cancel& cancel) {
  if (!n.begun) begin(q, n);
  const auto numbered = [&] {
    return n.landmarks ? n.landmarks->rows : n.complete || !n.sorted ? std::ssize(n.scanned) : 0;
  };
  const auto end = std::chrono::steady_clock::now() + kSlice;
  while (!n.complete && (numbered() < rows || std::chrono::steady_clock::now() < end)) {
    cancel.check();
    if (!n.landmarks) {
      scan_page(q, n);
      continue;
    }
    db::Landmarks& all = *n.landmarks;
    const db::Landmarks next = store_->landmarks(
        filter_of(q), n.by, q.descending, kStep,
        all.keys.empty() ? std::nullopt : std::optional(all.keys.back()), kLandmarksAtOnce);
    all.keys.insert(all.keys.end(), next.keys.begin(), next.keys.end());
    all.rows += next.rows;
    n.complete = !next.more;
  }
  return {numbered(), !n.complete};
}

TrialCount StoreReader::number_trials(const TrialQuery& q, TrialNumbers& n, const Cancel& cancel) {
  const std::lock_guard lock(n.mutex);
  return count_on(q, n, 0, cancel);
}

std::vector<db::TrialOutcome> StoreReader::trials(const TrialQuery& q, TrialNumbers& n,
                                                  int64_t first, int64_t count,
                                                  const Cancel& cancel) {
  first = std::max<int64_t>(first, 0);
  std::vector<db::TrialOutcome> out;
  db::PageRequest page;
  int64_t skip = 0;
  {
    const std::lock_guard lock(n.mutex);
    // Of a scan that goes on elsewhere what there is: nobody waits for it here.
    if (!n.begun) count_on(q, n, first + count, cancel);
    if (!n.landmarks) {
      const auto size = std::ssize(n.scanned);
      for (int64_t i = first; i < std::min<int64_t>(size, first + count); ++i)
        out.push_back(n.scanned[static_cast<size_t>(i)]);
      return out;
    }
    if (n.landmarks->rows < first && !n.complete) count_on(q, n, first, cancel);
    const auto known = std::ssize(n.landmarks->keys);
    const int64_t landmark = std::min<int64_t>(first / kStep, known);
    page.order = n.by;
    if (landmark > 0) page.from = n.landmarks->keys[static_cast<size_t>(landmark - 1)];
    skip = first - landmark * kStep;
  }
  page.filter = filter_of(q);
  page.descending = q.descending;
  while (std::ssize(out) < count) {
    cancel.check();
    page.limit = std::min(kScanPage, skip + count - std::ssize(out));
    std::vector<db::TrialRow> rows = store_->trials(page);
    const bool more = std::ssize(rows) == page.limit;
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
