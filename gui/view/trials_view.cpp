// "Trials" and "Failures": the selected campaign's trials, page by page, of the selected workload,
// shape and configuration where the boxes say so. Without a campaign: the newest one's.
#include <QCheckBox>
#include <QClipboard>
#include <QFontDatabase>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QLineEdit>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QSplitter>

#include "gui/model/trials_source.h"
#include "gui/model/units.h"
#include "gui/view/table_pane.h"
#include "gui/view/view.h"

namespace nimble::gui {
namespace {

class TrialsView final : public View {
 public:
  TrialsView(const ViewInfo& info, Context& context, bool failed_only)
      : View(info, context), failed_only_(failed_only) {
    model_ = new PagedModel(context.session, trial_columns(), this);
    rows_ = new Rows;
    rows_->setObjectName(QStringLiteral("rows"));
    rows_->setAccessibleName(tr("Trials"));
    rows_->setModel(model_);
    rows_->setSortingEnabled(true);
    rows_->sortByColumn(-1, Qt::AscendingOrder);
    if (failed_only) {
      log_ = new QPlainTextEdit;
      log_->setObjectName(QStringLiteral("log"));
      log_->setAccessibleName(tr("What the chosen trial's process left"));
      log_->setPlaceholderText(tr("Choose a trial: what its process said, and how to repeat it."));
      log_->setReadOnly(true);
      log_->setTabChangesFocus(true);
      log_->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
      auto* split = new QSplitter(Qt::Vertical);
      split->addWidget(rows_);
      split->addWidget(log_);
      split->setStretchFactor(0, 3);
      split->setStretchFactor(1, 2);
      split->setFocusProxy(rows_);
      set_content(split);
    } else {
      set_content(rows_);
    }
    filter_ = new QLineEdit;
    filter_->setObjectName(QStringLiteral("filter"));
    filter_->setPlaceholderText(tr("Filter: text in shape, configuration or error"));
    filter_->setAccessibleName(tr("Filter"));
    filter_->setClearButtonEnabled(true);
    controls()->addWidget(filter_, 1);
    const auto box = [&](const QString& text, const char* name, bool checked) {
      auto* b = new QCheckBox(text);
      b->setObjectName(QLatin1String(name));
      b->setChecked(checked);
      b->setToolTip(tr("Only of what is selected."));
      controls()->addWidget(b);
      connect(b, &QCheckBox::toggled, this, &TrialsView::ask);
      return b;
    };
    if (failed_only) {
      auto* copy = new QPushButton(tr("&Copy reproducer"));
      copy->setObjectName(QStringLiteral("copy"));
      copy->setToolTip(tr("Copies the command that repeats the chosen trial's failure."));
      controls()->addWidget(copy);
      connect(copy, &QPushButton::clicked, this, &TrialsView::copy_reproducer);
    }
    of_workload_ = box(tr("&Workload"), "of_workload", !failed_only);
    of_shape_ = box(tr("S&hape"), "of_shape", false);
    of_config_ = box(tr("Confi&guration"), "of_config", false);
    connect(filter_, &QLineEdit::textChanged, this, &TrialsView::ask);
    connect(model_, &PagedModel::loaded, this, &TrialsView::tell);
    connect(rows_, &Rows::row_chosen, this, &TrialsView::choose);
    connect(&context.session, &Session::changed, this, &TrialsView::find_campaign);
    connect(&context.selection, &Selection::changed, this, &TrialsView::find_campaign);
    find_campaign();
  }

  bool loading() const override { return finding_ || model_->loading(); }

  TableData table() const override { return model_->all_rows(); }

 private:
  void find_campaign() {
    const db::Uuid chosen = context().selection.now().campaign;
    question_.drop();
    finding_ = chosen.empty() && context().session.is_open();
    if (!finding_) {
      campaign_ = chosen;
      return ask();
    }
    question_ = context().session.ask<db::Uuid>(
        this,
        [](Reader& reader, const Cancel& cancel) {
          const std::vector<CampaignRow> all = reader.campaigns(cancel);
          return all.empty() ? db::Uuid() : all.front().campaign.uuid;
        },
        [this](const Answer<db::Uuid>& answer) {
          finding_ = false;
          campaign_ = answer.value.value_or("");
          set_message(answer.error);
          if (answer.value) ask();
        });
  }

  void ask() {
    if (campaign_.empty()) {
      model_->set_source({});
      shown_query_.reset();
      set_message(context().session.is_open() ? tr("The database has no campaign.")
                                              : tr("No database is open: File, Open (Ctrl+O)."));
      return;
    }
    const Choice& now = context().selection.now();
    TrialQuery query;
    query.campaign = campaign_;
    if (of_workload_->isChecked()) query.workload = now.workload;
    if (of_shape_->isChecked()) query.shape = now.shape;
    if (of_config_->isChecked()) query.config = now.config;
    query.failed_only = failed_only_;
    query.text = filter_->text().toStdString();
    set_heading(tr("campaign %1").arg(short_id(campaign_)));

    if (shown_query_ == query) return model_->reload();
    shown_query_ = query;
    model_->set_source(trials_source(query));
  }

  void tell() {
    if (model_->loading() && model_->rowCount() == 0) return;
    const bool none = model_->total() == 0;
    set_message(!model_->problem().isEmpty() ? model_->problem()
                : none ? (failed_only_ ? tr("No trial of the campaign failed.")
                                       : tr("No trial is of what is selected."))
                       : QString());
    set_status((model_->growing() ? tr("%1 trials so far") : tr("%1 trials"))
                   .arg(count_text(model_->total())));
    if (fitted_ || !model_->filled(0)) return;
    rows_->fit_columns(320);
    fitted_ = true;
  }

  // What the trial's failed attempts left.
  void ask_log(const db::Uuid& trial) {
    log_question_ = context().session.ask<std::vector<db::FailureLog>>(
        this,
        [trial](Reader& reader, const Cancel& cancel) { return reader.failures(trial, cancel); },
        [this](const Answer<std::vector<db::FailureLog>>& answer) {
          reproducer_.clear();
          QString text;
          if (!answer.value) text = answer.error;
          if (answer.value && answer.value->empty())
            text = tr("Nothing was kept of this failure but its class and message.");
          for (const db::FailureLog& log : answer.value.value_or(std::vector<db::FailureLog>{})) {
            if (reproducer_.isEmpty()) reproducer_ = plain_text(log.command, 20'000);
            text += tr("Attempt %1, %2 · %3: %4\nTo repeat it: %5\n%6\n")
                        .arg(log.attempt)
                        .arg(moment_text(log.created_at), plain_text(log.error_class),
                             plain_text(log.message),
                             log.command.empty() ? tr("no command was kept")
                                                 : plain_text(log.command, 20'000),
                             QString::fromStdString(log.output));
          }
          log_->setPlainText(text);
        });
  }

  void copy_reproducer() {
    if (reproducer_.isEmpty())
      return set_status(tr("Choose a trial first whose command was kept."));
    QGuiApplication::clipboard()->setText(reproducer_);
    set_status(tr("Copied; nothing was run."));
  }

  void choose(const QModelIndex& index) {
    const PagedRow* row = model_->row_at(index.row());
    if (!row) return;
    if (log_) ask_log(row->choice.trial);
    // Of the hardware that is selected: a campaign is of one kind.
    Choice next = context().selection.now();
    if (next.workload == row->choice.workload) {
      next.shape = row->choice.shape;
      next.config = row->choice.config;
    }
    next.trial = row->choice.trial;
    next.measurement.clear();
    context().selection.set(next);
    set_status(row->raw.back().toString().isEmpty()
                   ? row->raw[4].toString()
                   : tr("%1 · %2").arg(row->raw.back().toString(), row->raw[4].toString()));
  }

  bool failed_only_;
  PagedModel* model_;
  Rows* rows_;
  QLineEdit* filter_;
  QCheckBox *of_workload_, *of_shape_, *of_config_;
  QPlainTextEdit* log_ = nullptr;  // of failures
  QString reproducer_;
  db::Uuid campaign_;
  Question question_, log_question_;
  std::optional<TrialQuery> shown_query_;
  bool finding_ = false, fitted_ = false;
};

}  // namespace

View* make_trials(const ViewInfo& info, Context& context) {
  return new TrialsView(info, context, false);
}

View* make_failures(const ViewInfo& info, Context& context) {
  return new TrialsView(info, context, true);
}

}  // namespace nimble::gui
