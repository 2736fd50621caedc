// "Progress": the search of a campaign on the selected workload, live or replayed: every time in
// the order measured, the best so far, what the model predicted, and the default schedule.
// Predictions are hollow and never part of the line of the best.
#include <QHBoxLayout>
#include <QSlider>
#include <cmath>

#include "gui/model/units.h"
#include "gui/view/plot_view.h"

namespace nimble::gui {
namespace {

constexpr int64_t kMostTrials = 20'000;

class ProgressView final : public PlotView {
 public:
  ProgressView(const ViewInfo& info, Context& context) : PlotView(info, context) {
    replay_ = new QSlider(Qt::Horizontal);
    replay_->setObjectName(QStringLiteral("replay"));
    replay_->setAccessibleName(tr("Replay up to this trial"));
    replay_->setRange(0, 0);
    controls()->addWidget(plain_label(tr("Replay:")));
    controls()->addWidget(replay_, 1);
    plot().legend->setVisible(true);
    auto whole = QSharedPointer<QCPAxisTickerFixed>::create();  // there is no half a trial
    whole->setTickStep(1);
    whole->setScaleStrategy(QCPAxisTickerFixed::ssMultiples);
    plot().xAxis->setTicker(whole);
    connect(replay_, &QSlider::valueChanged, this, &ProgressView::redraw);
    connect(&context.session, &Session::changed, this, &ProgressView::ask);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      const Choice& now = this->context().selection.now();
      if (now.campaign != before.campaign || now.workload != before.workload) ask();
    });
    ask();
  }

  bool loading() const override { return asked_; }

  TableData table() const override {
    TableData t{{"position", "role", "round", "shape", "config", "median_ns", "predicted_ns",
                 "best_so_far_ns"},
                {}};
    double best = INFINITY;
    for (const db::TrialOutcome* o : searched()) {
      if (o->median_ns) best = std::min(best, *o->median_ns);
      t.rows.push_back(
          {QVariant::fromValue(o->trial.position), plain_text(db::name_of(o->trial.key.role)),
           QVariant::fromValue(o->trial.round), plain_text(db::text_of(o->dims)),
           plain_text(o->config_json), o->median_ns ? QVariant(*o->median_ns) : QVariant(),
           o->trial.predicted_ns ? QVariant(*o->trial.predicted_ns) : QVariant(),
           std::isfinite(best) ? QVariant(best) : QVariant()});
    }
    return t;
  }

 protected:
  void redraw() override {
    plot().clearPlottables();
    const auto trials = searched();
    if (trials.empty()) return set_marks({});
    double lowest = INFINITY, highest = 0;
    for (const db::TrialOutcome* o : trials)
      for (const auto& time : {o->median_ns, o->trial.predicted_ns}) {
        lowest = std::min(lowest, time.value_or(INFINITY));
        highest = std::max(highest, time.value_or(0));
      }
    if (!(highest > 0)) return set_marks({});
    const QString shape = plain_text(db::text_of(trials.front()->dims));
    const TimeUnit unit =
        set_time_axis(plot().yAxis, tr("median time at %1").arg(shape), lowest, highest);
    times_ = plot().yAxis->range();
    plot().xAxis->setLabel(tr("trial of the search, in the order queued (number)"));
    draw_trials(trials, unit);
    show_all();
  }

  void show_all() override {
    plot().xAxis->setRange(0, static_cast<double>(searched().size()) + 1);
    plot().yAxis->setRange(times_);
  }

 private:
  void ask() {
    question_.drop();
    const Choice now = context().selection.now();
    asked_ = context().session.is_open() && !now.workload.empty();
    if (!asked_) {
      outcomes_.clear();
      set_message(tr("Choose a workload in “Workloads and kernels”."));
      return redraw();
    }
    question_ = context().session.ask<std::vector<db::TrialOutcome>>(
        this,
        [now](Reader& reader, const Cancel& cancel) {
          TrialQuery query;
          query.workload = now.workload;
          query.campaign = now.campaign;
          if (query.campaign.empty()) {
            // The newest that tried this workload.
            for (const CampaignRow& c : reader.campaigns(cancel)) {
              query.campaign = c.campaign.uuid;
              if (reader.trial_count(query, cancel) > 0) break;
            }
          }
          return query.campaign.empty() ? std::vector<db::TrialOutcome>()
                                        : reader.trials(query, 0, kMostTrials, cancel);
        },
        [this](Answer<std::vector<db::TrialOutcome>> answer) {
          asked_ = false;
          outcomes_ = answer.value ? std::move(*answer.value) : std::vector<db::TrialOutcome>();
          show_trials(answer.error);
        });
  }

  void show_trials(const QString& error) {
    const bool followed = replay_->value() == replay_->maximum();
    shown_ = {};
    for (const db::TrialOutcome& o : outcomes_)
      if (o.trial.key.role == db::Role::kSearch || o.trial.key.role == db::Role::kBaseline)
        shown_.push_back(&o);
    set_message(!error.isEmpty() ? error
                : shown_.empty() ? tr("The campaign searched nothing for this workload.")
                                 : QString());
    if (!shown_.empty())
      set_heading(tr("campaign %1 · workload %2")
                      .arg(short_id(shown_.front()->trial.key.campaign),
                           short_id(shown_.front()->trial.key.workload)));
    const QSignalBlocker quiet(replay_);
    replay_->setRange(0, static_cast<int>(shown_.size()));
    if (followed) replay_->setValue(replay_->maximum());
    redraw();
  }

  // The default's measurement and the search's, up to where the replay stands.
  std::vector<const db::TrialOutcome*> searched() const {
    const auto n = std::min(shown_.size(), static_cast<size_t>(replay_->value()));
    return {shown_.begin(), shown_.begin() + static_cast<std::ptrdiff_t>(n)};
  }

  QCPGraph* add_points(const QString& name, Ink which, QCPScatterStyle::ScatterShape shape,
                       bool filled) {
    auto* graph = plot().addGraph();
    graph->setName(name);
    graph->setLineStyle(QCPGraph::lsNone);
    const QColor colour = ink(which, palette());
    graph->setScatterStyle(
        QCPScatterStyle(shape, QPen(colour, 1.4), filled ? QBrush(colour) : Qt::NoBrush, 7));
    return graph;
  }

  void draw_trials(const std::vector<const db::TrialOutcome*>& trials, const TimeUnit& unit) {
    auto* line = plot().addGraph();
    line->setName(tr("best so far"));
    line->setPen(QPen(ink(Ink::kBest, palette()), 2));
    line->setLineStyle(QCPGraph::lsStepLeft);
    QCPGraph* measured = add_points(tr("measured"), Ink::kChosen, QCPScatterStyle::ssDisc, true);
    QCPGraph* predicted =
        add_points(tr("predicted"), Ink::kOther, QCPScatterStyle::ssCircle, false);
    QCPGraph* standard =
        add_points(tr("default schedule"), Ink::kDefault, QCPScatterStyle::ssSquare, true);
    std::vector<Mark> marks;
    double best = INFINITY, first = 0;
    int64_t failed = 0;
    for (size_t i = 0; i < trials.size(); ++i) {
      const db::TrialOutcome& o = *trials[i];
      const double x = static_cast<double>(i + 1);
      const bool is_default = o.trial.key.role == db::Role::kBaseline;
      if (o.trial.predicted_ns) predicted->addData(x, *o.trial.predicted_ns / unit.ns);
      if (!o.median_ns) {
        failed += db::is_final(o.trial.state);
        continue;
      }
      if (is_default && first == 0) first = *o.median_ns;
      best = std::min(best, *o.median_ns);
      (is_default ? standard : measured)->addData(x, *o.median_ns / unit.ns);
      line->addData(x, best / unit.ns);
      Mark m{
          x,
          *o.median_ns / unit.ns,
          tr("trial %1 · round %2 · measured %3%4 · best so far %5 · %6")
              .arg(o.trial.position)
              .arg(o.trial.round)
              .arg(time_text(*o.median_ns),
                   o.trial.predicted_ns ? tr(", predicted %1").arg(time_text(*o.trial.predicted_ns))
                                        : QString(),
                   time_text(best), plain_text(o.config_json)),
          {}};
      m.choice.shape = db::text_of(o.dims);
      m.choice.config = o.trial.key.config;
      m.choice.trial = o.trial.uuid;
      marks.push_back(std::move(m));
    }
    set_status(tr("%1 trials, %2 failed; best %3%4")
                   .arg(count_text(static_cast<int64_t>(trials.size())), count_text(failed),
                        std::isfinite(best) ? time_text(best) : tr("none"),
                        first > 0 ? tr(", %1 the default's speed").arg(factor_text(first / best))
                                  : QString()));
    set_marks(std::move(marks));
  }

  QSlider* replay_;
  std::vector<db::TrialOutcome> outcomes_;
  std::vector<const db::TrialOutcome*> shown_;  // into outcomes_
  QCPRange times_{0.1, 1};
  Question question_;
  bool asked_ = false;
};

}  // namespace

View* make_progress(const ViewInfo& info, Context& context) {
  return new ProgressView(info, context);
}

}  // namespace nimble::gui
