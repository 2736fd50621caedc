// What lies behind the figures: ceilings of machines, generated code, failures, workers, and two
// campaigns against each other.
#include <algorithm>
#include <set>

#include "db/store/pages.h"
#include "gui/model/store_reader.h"

namespace nimble::gui {
namespace {

constexpr int64_t kHeardWithinMs = 24 * 3600 * 1000;
constexpr size_t kMostText = size_t{16} << 20;  // bytes of one text that a window shows

}  // namespace

RooflineFacts StoreReader::roofline(const db::Hash& hardware, const Cancel& cancel) {
  RooflineFacts out;
  std::set<db::Uuid> machines;
  db::each_workload(*store_, [&](const db::Workload& w) {
    const db::Hash hash = db::key_of(w);
    for (const db::MeasurePolicy& policy : store_->policies(hash, hardware)) {
      cancel.check();
      int64_t codegen = 0;
      // The fastest comes first: the first of a shape is its best.
      std::map<db::Hash, const db::Result*> best;
      const std::vector<db::Result> results =
          newest_results(hash, hardware, db::key_of(policy), codegen, cancel);
      for (const db::Result& r : results) best.emplace(r.shape, &r);
      for (const auto& [shape, r] : best) {
        cancel.check();
        const auto work = store_->shape(shape);
        if (!work || work->flops <= 0 || work->bytes <= 0) continue;
        out.points.push_back(
            {hash, w.op, w.dtype, db::text_of(r->dims), w.threads, work->flops, work->bytes, *r});
      }
      if (results.empty() || machines.size() >= 16) continue;
      for (const db::MeasurementSummary& m : store_->measurements(results.front().trial, 1))
        machines.insert(m.measurement.machine);
    }
  });
  // Of machines of one kind, one speaks for all: the one whose ceilings were measured last.
  int64_t newest = -1;
  for (const db::Uuid& uuid : machines) {
    std::vector<db::Ceiling> all = store_->ceilings(uuid);
    int64_t at = -1;
    for (const db::Ceiling& c : all) at = std::max(at, c.created_at);
    if (at <= newest) continue;
    newest = at;
    out.ceilings = std::move(all);
    const auto machine = store_->machine(uuid);
    out.machine = machine ? machine->hostname : uuid;
  }
  return out;
}

std::vector<CodeText> StoreReader::code(const std::string& code_hash, const Cancel& cancel) {
  std::vector<CodeText> all;
  for (const db::GeneratedCode& c : store_->generated_code(code_hash)) {
    cancel.check();
    const auto bytes = store_->blob(c.digest);
    if (!bytes) continue;
    const size_t shown = std::min(bytes->size(), kMostText);
    all.push_back({c.kind, {bytes->begin(), bytes->begin() + static_cast<std::ptrdiff_t>(shown)}});
  }
  return all;
}

std::vector<db::FailureLog> StoreReader::failures(const db::Uuid& trial, const Cancel&) {
  return store_->failures(trial);
}

std::vector<MachineRow> StoreReader::machines(const Cancel& cancel) {
  std::map<db::Hash, std::string> names;
  for (const db::Hardware& h : store_->hardware()) names[db::key_of(h)] = h.model_name;
  std::vector<db::LiveWorker> workers = store_->live_workers(kHeardWithinMs);
  // The latest sign of any of them is the server's time of day, which ours need not be.
  int64_t now = 0;
  const auto heard = [](const db::LiveWorker& w) {
    return w.heartbeat ? w.heartbeat->at : w.worker.started_at;
  };
  for (const db::LiveWorker& w : workers) now = std::max(now, heard(w));
  std::vector<MachineRow> rows;
  for (db::LiveWorker& w : workers) {
    cancel.check();
    MachineRow row;
    row.silent_ms = now - heard(w);
    row.hardware_name = names[w.hardware];
    if (w.heartbeat && w.heartbeat->job)
      if (const auto job = store_->job(*w.heartbeat->job))
        row.campaign = store_->campaign(job->campaign);
    row.verdict = store_->verdict(w.worker.machine);
    row.worker = std::move(w);
    rows.push_back(std::move(row));
  }
  return rows;
}

db::CampaignDiff StoreReader::diff(const db::Uuid& a, const db::Uuid& b, double smallest,
                                   const Cancel& cancel) {
  cancel.check();
  db::MeasuredQuery left, right;
  left.campaign = a;
  right.campaign = b;
  return db::compare(*store_, left, right, smallest);
}

void StoreReader::add_peers_and_twins(WorkloadFacts& f, const Cancel& cancel) {
  cancel.check();
  f.peers = store_->peer_figures(f.record.canonical);
  // The newest come first; figures of other runs are of other hours.
  std::erase_if(f.peers, [run = f.peers.empty() ? db::Uuid() : f.peers.front().run](
                             const db::PeerFigure& p) { return p.run != run; });
  std::set<db::Uuid> own;
  for (const db::Result& r : f.results) own.insert(r.measurement);
  f.twins = store_->twins(f.workload, f.hardware);
  std::erase_if(f.twins, [&](const db::TwinRow& t) { return !own.contains(t.measurement); });
}

std::function<void()> StoreReader::stopper() {
  return [canceller = store_->canceller()] { canceller->cancel(); };
}

}  // namespace nimble::gui
