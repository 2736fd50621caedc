// "Campaigns": what ran and runs, how far it got, the command that starts it again, and requests to
// its service: pause, resume, stop.
#include <QHBoxLayout>
#include <QPushButton>
#include <algorithm>
#include <optional>
#include <tuple>

#include "gui/model/units.h"
#include "gui/view/campaign_dialogs.h"
#include "gui/view/list_view.h"

namespace nimble::gui {
namespace {

std::vector<PagedColumn> campaign_columns() {
  return {
      {"Campaign", "campaign", "Its UUID.", true, false},
      {"State", "state", "Running, paused, interrupted, finished or failed.", true, false},
      {"Started", "created_at_ms", "When it was begun.", true, false},
      {"Last sign", "updated_at_ms", "When it last wrote.", true, false},
      {"Used", "consumed_s", "Of its budget, in all runs together.", true, true},
      {"Budget", "budget_s", "Time that it may use.", true, true},
      {"Left", "left_s", "Of the budget of one that runs or waits: machine-seconds.", true, true},
      {"Done", "done", "Share of its trials that ended.", true, true},
      {"Trials", "trials", "In its queue, ended ones too.", true, true},
      {"Measured", "ok", "Ended with a time.", true, true},
      {"Failed", "failed", "Wrong, crashed, timed out, not compiled, pruned.", true, true},
      {"Queued", "queued", "Waiting.", true, true},
      {"At work", "claimed", "Claimed by a worker.", true, true},
      {"Request", "request", "What was asked of it last, and the service's answer.", true, false},
      {"Command", "command", "The command line that reproduces it.", false, false},
  };
}

QString request_text(const std::optional<db::Control>& c) {
  if (!c) return {};
  const QString request = plain_text(db::name_of(c->request));
  if (!c->accepted) return QObject::tr("%1: not answered yet").arg(request);
  const QString verdict = *c->accepted ? QObject::tr("accepted") : QObject::tr("refused");
  return c->answer.empty() ? QObject::tr("%1: %2").arg(request, verdict)
                           : QObject::tr("%1: %2, %3").arg(request, verdict, plain_text(c->answer));
}

PagedRow campaign_row(const CampaignRow& c) {
  const auto integer = [](int64_t n) { return QVariant::fromValue(n); };
  const db::CampaignProgress& p = c.progress;
  const QString state = plain_text(db::name_of(c.campaign.state));
  const QString command = plain_text(c.campaign.command, 4000);
  const double done =
      p.trials ? static_cast<double>(p.ok + p.failed) / static_cast<double>(p.trials) : 0;
  const QString request = request_text(c.request);
  std::optional<double> left;
  if (c.campaign.resumable()) left = std::max(0.0, c.campaign.budget_s - c.campaign.consumed_s);
  PagedRow row;
  row.cells = {short_id(c.campaign.uuid),
               state,
               moment_text(c.campaign.created_at),
               moment_text(c.campaign.updated_at),
               duration_text(c.campaign.consumed_s),
               duration_text(c.campaign.budget_s),
               left ? duration_text(*left) : QStringLiteral("–"),
               percent_text(done),
               count_text(p.trials),
               count_text(p.ok),
               count_text(p.failed),
               count_text(p.queued),
               count_text(p.claimed),
               request,
               command};
  row.raw = {QString::fromStdString(c.campaign.uuid),
             state,
             integer(c.campaign.created_at),
             integer(c.campaign.updated_at),
             c.campaign.consumed_s,
             c.campaign.budget_s,
             left ? QVariant(*left) : QVariant(),
             done,
             integer(p.trials),
             integer(p.ok),
             integer(p.failed),
             integer(p.queued),
             integer(p.claimed),
             request,
             command};
  row.choice.campaign = c.campaign.uuid;
  return row;
}

Listed read_campaigns(Reader& reader, const Cancel& cancel) {
  Listed all;
  int64_t failed = 0, running = 0;
  for (const CampaignRow& c : reader.campaigns(cancel)) {
    all.rows.push_back(campaign_row(c));
    failed += c.progress.failed;
    running += c.campaign.state == db::CampaignState::kRunning;
  }
  all.status = QObject::tr("%1 campaigns, %2 running; %3 trials failed")
                   .arg(count_text(static_cast<int64_t>(all.rows.size())), count_text(running),
                        count_text(failed));
  return all;
}

class CampaignsView final : public ListView {
 public:
  CampaignsView(const ViewInfo& info, Context& context)
      : ListView(info, context,
                 {tr("Campaigns"), campaign_columns(),
                  tr("No campaign yet: nimble tune MODEL --db …"), &read_campaigns}) {
    add_button(tr("&Start…"), "start",
               tr("Shows the command that starts a campaign, to be copied."),
               [this] { show_start_command(this, this->context().session.place()); });
    using Request = db::ControlRequest;
    const std::tuple<QString, const char*, Request, QString> requests[] = {
        {tr("&Pause"), "pause", Request::kPause,
         tr("Nothing new is measured until it is resumed.")},
        {tr("&Resume"), "resume", Request::kResume, tr("A paused campaign goes on.")},
        {tr("S&top"), "stop", Request::kStop,
         tr("It ends after what is being measured, with tables of what it found.")}};
    for (const auto& [text, name, request, tip] : requests)
      add_button(text, name, tip, [this, request = request, tip = tip] { ask_for(request, tip); });
    add_copy_button(tr("&Copy command"),
                    tr("Copies the command that continues or repeats the chosen campaign."),
                    QStringLiteral("command"), tr("The campaign has no command."));
    controls()->addStretch(1);
  }

 protected:
  void choose(const PagedRow& row) override {
    context().selection.set_campaign(row.choice.campaign);
  }
  bool is_selected(const Choice& c) const override {
    return c.campaign == context().selection.now().campaign;
  }
  void listed() override {
    const bool writable = context().session.is_open() && !context().session.place().read_only;
    for (const char* name : {"pause", "resume", "stop"})
      if (auto* button = findChild<QPushButton*>(QLatin1String(name))) button->setEnabled(writable);
  }

 private:
  void add_button(const QString& text, const char* name, const QString& tip,
                  std::function<void()> run) {
    auto* button = new QPushButton(text);
    button->setObjectName(QLatin1String(name));
    button->setToolTip(tip);
    controls()->addWidget(button);
    connect(button, &QPushButton::clicked, this, std::move(run));
  }

  // Asks the campaign's service, once the user confirmed it.
  void ask_for(db::ControlRequest request, const QString& what) {
    const PagedRow* row = pane().current();
    if (!row) return set_status(tr("Choose a campaign first."));
    const db::Uuid campaign = row->choice.campaign;
    const auto reason =
        confirm_request(this, plain_text(db::name_of(request)), short_id(campaign), what);
    if (!reason) return set_status(tr("Nothing was asked for."));
    db::Control control;
    control.campaign = campaign;
    control.request = request;
    control.requested_by = requester().toStdString();
    control.reason = reason->toStdString();
    context().session.write(
        this,
        [control](db::Store& store) {
          const auto now = store.campaign(control.campaign);
          if (now && !now->resumable())
            throw Error(Status::kInvalidArgument, "campaign " + control.campaign,
                        "has ended: nothing can be asked of it", "run its command again");
          return QString::fromStdString(store.request(control));
        },
        [this, request](const Answer<QString>& answer) {
          set_status(answer.value ? tr("Asked to %1: the campaign's service answers in the column "
                                       "“Request”.")
                                        .arg(plain_text(db::name_of(request)))
                                  : answer.error);
        });
  }
};

}  // namespace

View* make_campaigns(const ViewInfo& info, Context& context) {
  return new CampaignsView(info, context);
}

}  // namespace nimble::gui
