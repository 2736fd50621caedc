// "Machines": the workers that measure, what each is at, how much others load its machine, and how
// long ago it was heard of.
#include "gui/model/units.h"
#include "gui/view/list_view.h"

namespace nimble::gui {
namespace {

// A worker sends a sign of life every few seconds; leases end after a minute.
constexpr int64_t kSilentMs = 60'000;

std::vector<PagedColumn> machine_columns() {
  return {
      {"Worker", "worker", "Its name.", true, false},
      {"Machine", "machine", "The machine's name.", true, false},
      {"State", "state", "Idle, measuring, paused, stopping; silent: not heard of for a minute.",
       true, false},
      {"Silent", "silent_ms",
       "Time between its last sign of life and the latest of any. –: it gave none.", true, true},
      {"Agrees", "agrees",
       "Whether its times agree with those of its kind; a campaign sets aside one whose do not. –: "
       "it was not compared.",
       true, false},
      {"Load", "load", "Programs of others that wanted a processor when it was heard of last.",
       true, true},
      {"Campaign", "campaign", "Whose job it holds.", true, false},
      {"Says", "message", "What the worker says of itself.", true, false},
      {"Hardware", "hardware", "The kind of hardware.", true, false},
      {"Version", "version", "Of nimble.", true, false},
      {"Process", "pid", "Its number on the machine.", true, true},
      {"Started", "started_at_ms", "When it registered.", true, false},
      {"Heard", "heard_at_ms", "When it was heard of last.", true, false},
      {"UUID", "uuid", "Of the worker.", true, false},
  };
}

PagedRow machine_row(const MachineRow& m) {
  const auto integer = [](int64_t n) { return QVariant::fromValue(n); };
  const db::LiveWorker& w = m.worker;
  const bool silent = m.silent_ms > kSilentMs || !w.heartbeat;
  const QString state =
      silent ? QObject::tr("silent") : plain_text(db::name_of(w.heartbeat->state));
  const QString name = plain_text(w.worker.name), host = plain_text(w.hostname);
  const QString says = w.heartbeat ? plain_text(w.heartbeat->message) : QString();
  const QString hardware = plain_text(m.hardware_name), version = plain_text(w.worker.version);
  const QString agrees =
      !m.verdict ? QStringLiteral("–")
      : m.verdict->set_aside
          ? QObject::tr("set aside, %1 apart").arg(percent_text(m.verdict->apart))
          : QObject::tr("yes");
  const int64_t heard = w.heartbeat ? w.heartbeat->at : 0;
  PagedRow row;
  row.cells = {
      name,
      host,
      state,
      w.heartbeat ? duration_text(static_cast<double>(m.silent_ms) / 1000) : QStringLiteral("–"),
      agrees,
      w.heartbeat ? number_text(w.heartbeat->load, 3) : QStringLiteral("–"),
      m.campaign ? short_id(m.campaign->uuid) : QStringLiteral("–"),
      says,
      hardware,
      version,
      QString::number(w.worker.pid),
      moment_text(w.worker.started_at),
      moment_text(heard),
      short_id(w.worker.uuid)};
  row.raw = {name,
             host,
             state,
             w.heartbeat ? integer(m.silent_ms) : QVariant(),
             agrees,
             w.heartbeat ? QVariant(w.heartbeat->load) : QVariant(),
             m.campaign ? QString::fromStdString(m.campaign->uuid) : QString(),
             says,
             hardware,
             version,
             integer(w.worker.pid),
             integer(w.worker.started_at),
             heard ? integer(heard) : QVariant(),
             QString::fromStdString(w.worker.uuid)};
  if (m.campaign) row.choice.campaign = m.campaign->uuid;
  return row;
}

Listed read_machines(Reader& reader, const Cancel& cancel) {
  Listed all;
  int64_t measuring = 0, silent = 0;
  for (const MachineRow& m : reader.machines(cancel)) {
    const PagedRow& row = all.rows.emplace_back(machine_row(m));
    silent += row.raw[2] == QObject::tr("silent");
    measuring += m.worker.heartbeat && m.silent_ms <= kSilentMs &&
                 m.worker.heartbeat->state == db::WorkerState::kMeasuring;
  }
  all.status = QObject::tr("%1 workers, %2 measuring, %3 silent")
                   .arg(count_text(static_cast<int64_t>(all.rows.size())), count_text(measuring),
                        count_text(silent));
  return all;
}

class MachinesView final : public ListView {
 public:
  MachinesView(const ViewInfo& info, Context& context)
      : ListView(info, context,
                 {tr("Machines"), machine_columns(), tr("No worker is alive: nimble worker --db …"),
                  &read_machines}) {}

 protected:
  void choose(const PagedRow& row) override {
    if (!row.choice.campaign.empty()) context().selection.set_campaign(row.choice.campaign);
  }
};

}  // namespace

View* make_machines(const ViewInfo& info, Context& context) {
  return new MachinesView(info, context);
}

}  // namespace nimble::gui
