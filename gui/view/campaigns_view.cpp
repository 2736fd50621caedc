// "Campaigns": what ran and runs, how far it got, and the command that starts it again.
#include <QClipboard>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QLineEdit>
#include <QPushButton>

#include "gui/model/units.h"
#include "gui/view/table_pane.h"
#include "gui/view/view.h"

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
      {"Done", "done", "Share of its trials that ended.", true, true},
      {"Trials", "trials", "In its queue, ended ones too.", true, true},
      {"Measured", "ok", "Ended with a time.", true, true},
      {"Failed", "failed", "Wrong, crashed, timed out, not compiled.", true, true},
      {"Queued", "queued", "Waiting.", true, true},
      {"At work", "claimed", "Claimed by a worker.", true, true},
      {"Command", "command", "The command line that reproduces it.", false, false},
  };
}

PagedRow campaign_row(const CampaignRow& c) {
  const auto integer = [](int64_t n) { return QVariant::fromValue(n); };
  const db::CampaignProgress& p = c.progress;
  const QString state = plain_text(db::name_of(c.campaign.state));
  const QString command = plain_text(c.campaign.command, 4000);
  const double done =
      p.trials ? static_cast<double>(p.ok + p.failed) / static_cast<double>(p.trials) : 0;
  PagedRow row;
  row.cells = {short_id(c.campaign.uuid),
               state,
               moment_text(c.campaign.created_at),
               moment_text(c.campaign.updated_at),
               duration_text(c.campaign.consumed_s),
               duration_text(c.campaign.budget_s),
               percent_text(done),
               count_text(p.trials),
               count_text(p.ok),
               count_text(p.failed),
               count_text(p.queued),
               count_text(p.claimed),
               command};
  row.raw = {QString::fromStdString(c.campaign.uuid),
             state,
             integer(c.campaign.created_at),
             integer(c.campaign.updated_at),
             c.campaign.consumed_s,
             c.campaign.budget_s,
             done,
             integer(p.trials),
             integer(p.ok),
             integer(p.failed),
             integer(p.queued),
             integer(p.claimed),
             command};
  row.choice.campaign = c.campaign.uuid;
  return row;
}

class CampaignsView final : public View {
 public:
  CampaignsView(const ViewInfo& info, Context& context) : View(info, context) {
    pane_ = new TablePane(campaign_columns());
    pane_->rows().setAccessibleName(tr("Campaigns"));
    set_content(pane_);
    auto* copy = new QPushButton(tr("&Copy command"));
    copy->setObjectName(QStringLiteral("copy"));
    copy->setToolTip(tr("Copies the command that continues or repeats the chosen campaign."));
    controls()->addWidget(copy);
    controls()->addStretch(1);
    connect(copy, &QPushButton::clicked, this, &CampaignsView::copy_command);
    connect(pane_, &TablePane::chosen, this, [this](const PagedRow& row) {
      this->context().selection.set_campaign(row.choice.campaign);
    });
    connect(&context.session, &Session::changed, this, &CampaignsView::ask);
    connect(&context.selection, &Selection::changed, this, &CampaignsView::follow);
    ask();
  }

  TableData table() const override { return pane_->table(); }
  bool loading() const override { return loading_; }

 private:
  void ask() {
    question_.drop();
    loading_ = context().session.is_open();
    if (!loading_) {
      pane_->set_rows({});
      set_message(tr("No database is open: File, Open (Ctrl+O)."));
      return;
    }
    question_ = context().session.ask<std::vector<CampaignRow>>(
        this, [](Reader& reader, const Cancel& cancel) { return reader.campaigns(cancel); },
        [this](const Answer<std::vector<CampaignRow>>& answer) { show_rows(answer); });
  }

  void show_rows(const Answer<std::vector<CampaignRow>>& answer) {
    loading_ = false;
    std::vector<PagedRow> rows;
    int64_t failed = 0, running = 0;
    if (answer.value)
      for (const CampaignRow& c : *answer.value) {
        rows.push_back(campaign_row(c));
        failed += c.progress.failed;
        running += c.campaign.state == db::CampaignState::kRunning;
      }
    set_message(!answer.value  ? answer.error
                : rows.empty() ? tr("No campaign yet: nimble tune MODEL --db …")
                               : QString());
    set_status(tr("%1 campaigns, %2 running; %3 trials failed")
                   .arg(count_text(static_cast<int64_t>(rows.size())), count_text(running),
                        count_text(failed)));
    pane_->set_rows(std::move(rows));
    follow();
  }

  void copy_command() {
    const PagedRow* row = pane_->current();
    if (!row) return set_status(tr("Choose a campaign first."));
    QGuiApplication::clipboard()->setText(row->raw.back().toString());
    set_status(tr("Copied; nothing was run."));
  }

  void follow() {
    pane_->show_row(
        [&](const Choice& c) { return c.campaign == context().selection.now().campaign; });
  }

  TablePane* pane_;
  Question question_;
  bool loading_ = false;
};

}  // namespace

View* make_campaigns(const ViewInfo& info, Context& context) {
  return new CampaignsView(info, context);
}

}  // namespace nimble::gui
