// Each record of a kind, for programs that list them: read in pages, so that nobody holds a whole
// table. What is written meanwhile may be shown or not.
#pragma once

#include "db/store/hash.h"
#include "db/store/store.h"

namespace nimble::db {

constexpr int64_t kListedAtOnce = 500;

// The newest first.
template <typename Visit>
void each_campaign(Reading& db, const Visit& visit) {
  std::optional<Campaign> last;
  for (;;) {
    std::vector<Campaign> page = db.campaigns(kListedAtOnce, last);
    const bool more = std::ssize(page) == kListedAtOnce;
    if (more) last = page.back();
    for (Campaign& c : page) visit(std::move(c));
    if (!more) return;
  }
}

// By canonical text.
template <typename Visit>
void each_workload(Reading& db, const Visit& visit) {
  std::string last;
  for (;;) {
    std::vector<Workload> page = db.workloads(kListedAtOnce, last);
    const bool more = std::ssize(page) == kListedAtOnce;
    if (more) last = page.back().canonical;
    for (Workload& w : page) visit(std::move(w));
    if (!more) return;
  }
}

// Of each workload on each kind of hardware that has a table the one that decides.
template <typename Visit>
void each_deciding_table(Reading& db, const Visit& visit) {
  WorkloadPlace last;
  for (;;) {
    const std::vector<TableSummary> page = db.deciding_tables(kListedAtOnce, last);
    for (const TableSummary& t : page) visit(t);
    if (std::ssize(page) < kListedAtOnce) return;
    last = page.back().of;
  }
}

// Those of a campaign, of one workload if given, in the order enqueued, each once; `visit` may ask
// the store.
template <typename Visit>
void each_outcome(Store& db, const Uuid& campaign, const std::optional<Hash>& workload,
                  const Visit& visit) {
  std::optional<Trial> last;
  for (;;) {
    std::vector<TrialOutcome> page = db.outcomes(campaign, workload, kListedAtOnce, last);
    const bool more = std::ssize(page) == kListedAtOnce;
    if (more) last = page.back().trial;
    for (TrialOutcome& o : page) visit(std::move(o));
    if (!more) return;
  }
}

// By workload, of each the newest first.
template <typename Visit>
void each_table(Store& db, const Visit& visit) {
  each_workload(db, [&](const Workload& w) {
    for (DispatchTable& t : db.tables(key_of(w))) visit(std::move(t));
  });
}

}  // namespace nimble::db
