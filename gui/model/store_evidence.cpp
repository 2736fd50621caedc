// What lies behind the figures: ceilings of machines, generated code, failures, workers, and two
// campaigns against each other.
#include <algorithm>
#include <set>

#include "db/store/pages.h"
#include "gui/model/store_reader.h"

namespace nimble::gui {
namespace {

constexpr int64_t kHeardWithinMs = 24 * 3600 * 1000;
constexpr size_t kMostMachines = 16;            // that are asked for their ceilings
constexpr size_t kMostText = size_t{16} << 20;  // bytes of one text that a window shows

}  // namespace

RooflineFacts StoreReader::roofline(const db::Hash& hardware, const Cancel& cancel) {
  RooflineFacts out;
  std::set<db::Uuid> machines;
  db::each_workload(*store_, [&](const db::Workload& w) {
    cancel.check();
    const db::Hash hash = db::key_of(w);
    // Of each policy the newest code generator comes first, and is the one that counts.
    const db::BestResult* newest = nullptr;
    const std::vector<db::BestResult> all = store_->best_results({hash, hardware});
    for (const db::BestResult& b : all) {
      const db::Result& r = b.result;
      if (!newest || newest->result.policy != r.policy) newest = &b;
      if (newest->result.codegen_version != r.codegen_version) continue;
      if (machines.size() < kMostMachines) machines.insert(b.machine);
      if (b.flops <= 0 || b.bytes <= 0) continue;
      out.points.push_back(
          {hash, w.op, w.dtype, db::text_of(r.dims), w.threads, b.flops, b.bytes, r});
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

std::optional<KernelPlace> StoreReader::place_of(const ExplainedKernel& k, const Cancel& cancel) {
  cancel.check();
  if (!k.table.empty())
    if (const auto t = store_->table(k.table))
      return KernelPlace{t->workload, t->hardware, t->policy, t->uuid};
  if (!k.measurement.empty())
    if (const auto m = store_->measurement(k.measurement)) {
      const auto trial = store_->trial(m->trial);
      const auto machine = store_->machine(m->machine);
      if (trial && machine)
        return KernelPlace{trial->key.workload, machine->hardware, m->policy, {}};
    }
  if (!k.override_uuid.empty())
    for (const db::Override& o : store_->overrides(true)) {
      cancel.check();
      if (o.uuid == k.override_uuid) return KernelPlace{o.workload, o.hardware, {}, {}};
    }
  return std::nullopt;
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
