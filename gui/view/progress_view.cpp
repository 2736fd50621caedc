// "Progress": the search of a campaign on the selected workload, live or replayed: every trial in
// the order queued, the best so far, what the model predicted, and the default schedule.
// Predictions are hollow and never part of the line of the best.
//
// Machines and hours differ, so a trial counts by its time over the default schedule's, both timed
// in one session; what no session timed beside the default is hollow, too, and counts for nothing.
// Only where none was, as in campaigns of `nimble tune`, are the times themselves shown, which is
// said.
//
// A search may run at several shapes, which are seen one at a time: times of two are no progress.
// How well the cost model had ranked a round's candidates stands on an axis of its own.
#include <QComboBox>
#include <QHBoxLayout>
#include <QSlider>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <span>

#include "gui/model/units.h"
#include "gui/view/axes.h"
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
    shape_ = new QComboBox;
    shape_->setObjectName(QStringLiteral("shape"));
    shape_->setAccessibleName(tr("Shape that the search ran at"));
    controls()->addWidget(plain_label(tr("Shape:")));
    controls()->addWidget(shape_);
    controls()->addWidget(plain_label(tr("Replay:")));
    controls()->addWidget(replay_, 1);
    plot().legend->setVisible(true);
    auto whole = QSharedPointer<QCPAxisTickerFixed>::create();  // there is no half a trial
    whole->setTickStep(1);
    whole->setScaleStrategy(QCPAxisTickerFixed::ssMultiples);
    plot().xAxis->setTicker(whole);
    connect(replay_, &QSlider::valueChanged, this, &ProgressView::redraw);
    connect(shape_, &QComboBox::currentIndexChanged, this, [this] { show_shape(); });
    connect(&context.session, &Session::changed, this, &ProgressView::ask);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      const Choice& now = this->context().selection.now();
      if (now.campaign != before.campaign || now.workload != before.workload ||
          now.hardware != before.hardware)
        ask();
    });
    ask();
  }

  bool loading() const override { return asked_; }

  TableData table() const override {
    TableData t{{"position", "role", "round", "shape", "config", "median_ns", "predicted_ns",
                 "over_default", "best_so_far_over_default", "best_so_far_ns"},
                {}};
    const auto real = [](double v) { return std::isfinite(v) ? QVariant(v) : QVariant(); };
    double best = INFINITY, ratio = INFINITY;
    for (const SearchedTrial& s : shown()) {
      const db::TrialOutcome& o = s.outcome;
      best = std::min(best, o.median_ns.value_or(INFINITY));
      ratio = std::min(ratio, s.over_default.value_or(INFINITY));
      t.rows.push_back(
          {QVariant::fromValue(o.trial.position), plain_text(db::name_of(o.trial.key.role)),
           QVariant::fromValue(o.trial.round), plain_text(db::text_of(o.dims)),
           plain_text(o.config_json), real(o.median_ns.value_or(INFINITY)),
           real(o.trial.predicted_ns.value_or(INFINITY)), real(s.over_default.value_or(INFINITY)),
           real(ratio), by_ratio_ ? QVariant() : real(best)});
    }
    return t;
  }

 protected:
  void redraw() override {
    plot().clearPlottables();
    const auto trials = shown();
    double lowest = INFINITY, highest = 0;
    for (const SearchedTrial& s : trials)
      for (const auto& value : {measured_of(s), predicted_of(s)}) {
        lowest = std::min(lowest, value.value_or(INFINITY));
        highest = std::max(highest, value.value_or(0));
      }
    plot().yAxis2->setVisible(false);
    if (!(highest > 0)) return set_marks({});
    double unit = 1;
    if (by_ratio_) {
      plot().yAxis->setScaleType(QCPAxis::stLogarithmic);
      plot().yAxis->setTicker(QSharedPointer<LogTicker>::create());
      plot().yAxis->setNumberFormat(QStringLiteral("g"));
      plot().yAxis->setLabel(tr("time over the default schedule's (factor)"));
      plot().yAxis->setRange(lowest / 1.15, highest * 1.15);
    } else {
      const QString shape = plain_text(db::text_of(trials.front().outcome.dims));
      unit = set_time_axis(plot().yAxis, tr("median time at %1").arg(shape), lowest, highest).ns;
    }
    range_ = plot().yAxis->range();
    plot().xAxis->setLabel(tr("trial of the search, in the order queued (number)"));
    draw_trials(trials, unit);
    draw_ranks(trials);
    show_all();
  }

  void show_all() override {
    plot().xAxis->setRange(0, static_cast<double>(shown().size()) + 1);
    plot().yAxis->setRange(range_);
    plot().yAxis2->setRange(-1.05, 1.05);
  }

 private:
  void ask() {
    question_.drop();
    const Choice now = context().selection.now();
    asked_ = context().session.is_open() && !now.workload.empty();
    if (!asked_) {
      facts_ = {};
      set_message(tr("Choose a workload in “Workloads and kernels”."));
      return redraw();
    }
    question_ = context().session.ask<SearchFacts>(
        this,
        [now](Reader& reader, const Cancel& cancel) {
          return reader.search(now.workload, now.hardware, now.campaign, kMostTrials, cancel);
        },
        [this](Answer<SearchFacts> answer) {
          asked_ = false;
          facts_ = answer.value ? std::move(*answer.value) : SearchFacts{};
          show_trials(answer.error);
        });
  }

  static QString shape_of(const SearchedTrial& s) {
    return plain_text(db::text_of(s.outcome.dims));
  }

  void show_trials(const QString& error) {
    // In the order met; the one that was looked at stays.
    const QString before = shape_->currentText();
    QStringList shapes;
    for (const SearchedTrial& s : facts_.trials)
      if (const QString shape = shape_of(s); !shapes.contains(shape)) shapes.push_back(shape);
    {
      const QSignalBlocker quiet(shape_);
      shape_->clear();
      shape_->addItems(shapes);
      shape_->setCurrentIndex(std::max(0, static_cast<int>(shapes.indexOf(before))));
      shape_->setEnabled(shapes.size() > 1);
    }
    show_shape(error);
  }

  void show_shape(const QString& error = {}) {
    const bool followed = replay_->value() == replay_->maximum();
    const QString shape = shape_->currentText();
    trials_.clear();
    std::ranges::copy_if(facts_.trials, std::back_inserter(trials_),
                         [&](const SearchedTrial& s) { return shape_of(s) == shape; });
    const auto& trials = trials_;
    set_message(!error.isEmpty() ? error
                : trials.empty() ? tr("The campaign searched nothing for this workload.")
                                 : QString());
    // The default's own ratio of 1 tells nothing of the others.
    by_ratio_ = std::ranges::any_of(trials, [](const SearchedTrial& s) {
      return s.over_default && s.outcome.trial.key.role == db::Role::kSearch;
    });
    if (!trials.empty())
      set_heading(
          tr("campaign %1 · workload %2")
              .arg(short_id(facts_.campaign), short_id(trials.front().outcome.trial.key.workload)));
    const QSignalBlocker quiet(replay_);
    replay_->setRange(0, static_cast<int>(trials.size()));
    if (followed) replay_->setValue(replay_->maximum());
    redraw();
  }

  // The default's measurement and the search's, up to where the replay stands.
  std::span<const SearchedTrial> shown() const {
    const auto n = std::min(trials_.size(), static_cast<size_t>(replay_->value()));
    return std::span(trials_).first(n);
  }

  // A time as it is plotted; of one of another session than the default's, over the default's
  // median at its shape.
  std::optional<double> plotted(const SearchedTrial& s, std::optional<double> ns) const {
    if (!ns || !by_ratio_) return ns;
    const auto standard = facts_.default_ns.find(db::text_of(s.outcome.dims));
    if (standard == facts_.default_ns.end()) return std::nullopt;
    return *ns / standard->second;
  }
  std::optional<double> measured_of(const SearchedTrial& s) const {
    return by_ratio_ && s.over_default ? s.over_default : plotted(s, s.outcome.median_ns);
  }
  std::optional<double> predicted_of(const SearchedTrial& s) const {
    return plotted(s, s.outcome.trial.predicted_ns);
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

  void draw_trials(std::span<const SearchedTrial> trials, double unit) {
    auto* line = plot().addGraph();
    line->setName(tr("best so far"));
    line->setPen(QPen(ink(Ink::kBest, palette()), 2));
    line->setLineStyle(QCPGraph::lsStepLeft);
    QCPGraph* measured = add_points(tr("measured"), Ink::kChosen, QCPScatterStyle::ssDisc, true);
    QCPGraph* alone = add_points(tr("measured without the default"), Ink::kChosen,
                                 QCPScatterStyle::ssDisc, false);
    QCPGraph* predicted =
        add_points(tr("predicted"), Ink::kOther, QCPScatterStyle::ssCircle, false);
    QCPGraph* standard =
        add_points(tr("default schedule"), Ink::kDefault, QCPScatterStyle::ssSquare, true);
    std::vector<Mark> marks;
    double best = INFINITY, first = 0;
    int64_t failed = 0;
    for (size_t i = 0; i < trials.size(); ++i) {
      const db::TrialOutcome& o = trials[i].outcome;
      const double x = static_cast<double>(i + 1);
      const bool is_default = o.trial.key.role == db::Role::kBaseline;
      if (const auto p = predicted_of(trials[i])) predicted->addData(x, *p / unit);
      failed += db::is_final(o.trial.state) && !o.median_ns;
      const auto y = measured_of(trials[i]);
      if (!y) continue;
      const bool counts = !by_ratio_ || is_default || trials[i].over_default.has_value();
      if (is_default && first == 0) first = *y;
      if (counts) best = std::min(best, *y);
      (is_default ? standard : counts ? measured : alone)->addData(x, *y / unit);
      if (std::isfinite(best)) line->addData(x, best / unit);
      Mark m{x, *y / unit, describe(trials[i], best), {}};
      m.choice.shape = db::text_of(o.dims);
      m.choice.config = o.trial.key.config;
      m.choice.trial = o.trial.uuid;
      marks.push_back(std::move(m));
    }
    if (alone->dataCount() == 0) alone->removeFromLegend();
    tell(trials.size(), failed, best, first);
    set_marks(std::move(marks));
  }

  // At the last trial of each round.
  void draw_ranks(std::span<const SearchedTrial> trials) {
    std::map<int64_t, double> ends;  // of rounds
    for (size_t i = 0; i < trials.size(); ++i)
      ends[trials[i].outcome.trial.round] = static_cast<double>(i + 1);
    // Services have no rounds; they count the times that were known.
    const bool rounds = ends.size() > 1;
    QCPGraph* graph = nullptr;
    for (const auto& [round, correlation] : facts_.ranked) {
      const auto end = ends.find(round);
      if (rounds && end == ends.end()) continue;
      const double x = rounds ? end->second : static_cast<double>(round);
      if (x > static_cast<double>(trials.size())) continue;
      if (!graph) {
        graph = plot().addGraph(plot().xAxis, plot().yAxis2);
        graph->setName(tr("rank correlation of the cost model"));
        graph->setPen(QPen(ink(Ink::kVendor, palette()), 1.4, Qt::DashLine));
        graph->setScatterStyle(QCPScatterStyle(QCPScatterStyle::ssDiamond, 7));
      }
      graph->addData(x, correlation);
    }
    if (!graph) return;
    plot().yAxis2->setVisible(true);
    plot().yAxis2->setTickLabels(true);
    plot().yAxis2->setLabel(tr("rank correlation"));
  }

  QString value_text(double value) const {
    return by_ratio_ ? factor_text(value) : time_text(value);
  }

  QString describe(const SearchedTrial& s, double best) const {
    const db::TrialOutcome& o = s.outcome;
    QString text = tr("trial %1 · round %2").arg(o.trial.position).arg(o.trial.round);
    if (o.median_ns) text += tr(" · measured %1").arg(time_text(*o.median_ns));
    if (s.over_default) text += tr(", %1 of the default's").arg(factor_text(*s.over_default));
    if (o.trial.predicted_ns) text += tr(", predicted %1").arg(time_text(*o.trial.predicted_ns));
    if (std::isfinite(best)) text += tr(" · best so far %1").arg(value_text(best));
    return text + QStringLiteral(" · ") + plain_text(o.config_json);
  }

  void tell(size_t trials, int64_t failed, double best, double first) {
    QString text = tr("%1 trials, %2 failed; best ")
                       .arg(count_text(static_cast<int64_t>(trials)), count_text(failed));
    if (!std::isfinite(best))
      text += tr("none");
    else if (by_ratio_)
      text += tr("%1 the default's speed, timed in one session").arg(factor_text(1 / best));
    else
      text +=
          time_text(best) +
          (first > 0 ? tr(", %1 the default's speed").arg(factor_text(first / best)) : QString()) +
          tr("; times of different sessions, none beside the default's");
    if (facts_.vendor)
      text += tr("; vendor's routine: faster at %1").arg(plain_text(db::text_of(*facts_.vendor)));
    if (facts_.more)
      text += tr("; only the first %1 trials of the campaign are shown").arg(kMostTrials);
    set_status(text);
  }

  QComboBox* shape_;
  QSlider* replay_;
  SearchFacts facts_;
  std::vector<SearchedTrial> trials_;  // of the shape that is looked at
  bool by_ratio_ = false;              // the axis is of times over the default's
  QCPRange range_{0.1, 1};
  Question question_;
  bool asked_ = false;
};

}  // namespace

View* make_progress(const ViewInfo& info, Context& context) {
  return new ProgressView(info, context);
}

}  // namespace nimble::gui
