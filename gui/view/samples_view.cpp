// "Samples": one measurement. Left every sample in the order taken, outliers marked, median and its
// interval; right the share of samples at most as long (the empirical distribution). Of one whose
// samples retention removed, median and interval alone.
#include <algorithm>
#include <cmath>

#include "gui/model/units.h"
#include "gui/model/why.h"
#include "gui/view/plot_view.h"

namespace nimble::gui {
namespace {

class SamplesView final : public PlotView {
 public:
  SamplesView(const ViewInfo& info, Context& context) : PlotView(info, context) {
    right_ = new QCPAxisRect(&plot());
    plot().plotLayout()->addElement(0, 1, right_);
    plot().plotLayout()->setColumnStretchFactor(0, 2);
    auto* margins = new QCPMarginGroup(&plot());
    plot().axisRect()->setMarginGroup(QCP::msTop | QCP::msBottom, margins);
    right_->setMarginGroup(QCP::msTop | QCP::msBottom, margins);
    right_->setRangeDrag(Qt::Orientations());
    right_->setRangeZoom(Qt::Orientations());
    for (QCPAxis* axis : right_->axes()) {
      axis->setLayer(QStringLiteral("axes"));
      axis->grid()->setLayer(QStringLiteral("grid"));
    }
    right_->axis(QCPAxis::atBottom)->setLabel(tr("samples at most so long (%)"));
    right_->axis(QCPAxis::atBottom)->setRange(0, 104);
    plot().xAxis->setLabel(tr("sample, in the order taken (number)"));
    connect(plot().yAxis, qOverload<const QCPRange&>(&QCPAxis::rangeChanged),
            right_->axis(QCPAxis::atLeft), qOverload<const QCPRange&>(&QCPAxis::setRange));
    plot().legend->setVisible(true);
    dress(plot(), palette());
    connect(&context.workload, &WorkloadModel::changed, this, &SamplesView::ask);
    connect(&context.selection, &Selection::changed, this, &SamplesView::ask);
    ask();
  }

  bool loading() const override { return asked_ || context().workload.loading(); }

  TableData table() const override {
    TableData t{{"sample", "ns", "outlier", "measurement"}, {}};
    if (!facts_) return t;
    const db::Measurement& m = facts_->measurement;
    for (size_t i = 0; i < m.samples_ns.size(); ++i)
      t.rows.push_back({QVariant::fromValue(static_cast<qlonglong>(i + 1)), m.samples_ns[i],
                        i < m.outliers.size() && m.outliers[i], plain_text(m.uuid)});
    return t;
  }

 protected:
  void redraw() override {
    plot().clearPlottables();
    if (!facts_) return set_marks({});
    const db::Measurement& m = facts_->measurement;
    set_heading(
        tr("%1 · %2 · %3")
            .arg(plain_text(facts_->shape), plain_text(facts_->config_text, 120),
                 facts_->trial ? plain_text(db::name_of(facts_->trial->key.role)) : QString()));
    double lowest = m.ci_low_ns, highest = m.ci_high_ns;
    for (const double ns : m.samples_ns) {
      lowest = std::min(lowest, ns);
      highest = std::max(highest, ns);
    }
    const TimeUnit unit = set_time_axis(plot().yAxis, tr("time of a run"), lowest, highest);
    QCPAxis* side = right_->axis(QCPAxis::atLeft);
    side->setScaleType(QCPAxis::stLogarithmic);
    side->setTicker(plot().yAxis->ticker());
    side->setNumberFormat("g");
    side->setLabel(plot().yAxis->label());
    side->setRange(plot().yAxis->range());
    draw_samples(m, unit);
    draw_distribution(m, unit);
    times_ = plot().yAxis->range();
    show_all();
    const auto outliers = std::count(m.outliers.begin(), m.outliers.end(), true);
    const QString samples =
        m.samples_ns.empty()
            ? removed_text(*facts_)
            : tr("%1 samples, %2 outliers").arg(count_text(facts_->samples), count_text(outliers));
    set_status(
        tr("%1 · median %2, MAD %3, 95 %: %4 to %5 · stopped: %6 · taken %7 · machine %8%9")
            .arg(samples, time_text(m.median_ns), time_text(m.mad_ns), time_text(m.ci_low_ns),
                 time_text(m.ci_high_ns), plain_text(m.stop_reason), moment_text(m.created_at),
                 facts_->hostname.empty() ? short_id(m.machine) : plain_text(facts_->hostname))
            .arg(facts_->host ? QStringLiteral(" · ") + plain_text(text_of(*facts_->host))
                              : QString()));
  }

  // Also of samples that were removed, so that the axis is that of the measurement.
  double width() const {
    return static_cast<double>(facts_ ? std::max<int64_t>(facts_->samples, 1) : 1);
  }

  void show_all() override {
    plot().xAxis->setRange(0, width() + 1);
    plot().yAxis->setRange(times_);
  }

  bool is_selected(const Mark&) const override { return false; }

 private:
  void ask() {
    const auto facts = context().workload.facts();
    const Choice& now = context().selection.now();
    db::Uuid wanted = now.measurement;
    if (wanted.empty() && facts)
      for (const db::Result& r : facts->results)
        if (r.trial == now.trial) wanted = r.measurement;
    if (wanted.empty() && facts) {
      const auto c = facts->config_index(now.config);
      const auto s = facts->shape_index(now.shape);
      if (const Cell* cell = c && s ? facts->cell(*c, *s) : nullptr)
        wanted = cell->result.measurement;
    }
    if (wanted == wanted_ && !wanted.empty()) return;
    wanted_ = wanted;
    question_.drop();
    asked_ = !wanted.empty();
    if (wanted.empty()) {
      facts_.reset();
      set_message(tr("Choose a measurement: a point in another window."));
      redraw();
      return;
    }
    question_ = context().session.ask<std::optional<MeasurementFacts>>(
        this,
        [wanted](Reader& reader, const Cancel& cancel) {
          return reader.measurement(wanted, cancel);
        },
        [this](Answer<std::optional<MeasurementFacts>> answer) {
          asked_ = false;
          facts_ = answer.value ? std::move(*answer.value) : std::nullopt;
          set_message(facts_         ? QString()
                      : answer.value ? tr("The measurement is not in the database.")
                                     : answer.error);
          redraw();
        });
  }

  // A level across all samples; of those of one name the first is in the legend.
  void add_level(double y, const QString& name, Qt::PenStyle style) {
    auto* line = plot().addGraph();
    line->setName(name);
    if (name.isEmpty()) line->removeFromLegend();
    line->setPen(QPen(ink(Ink::kBest, palette()), 1.4, style));
    line->addData(0, y);
    line->addData(width() + 1, y);
  }

  void draw_samples(const db::Measurement& m, const TimeUnit& unit) {
    auto* usual = plot().addGraph();
    usual->setName(tr("sample"));
    if (m.samples_ns.empty()) usual->removeFromLegend();
    usual->setLineStyle(QCPGraph::lsNone);
    usual->setScatterStyle(
        QCPScatterStyle(QCPScatterStyle::ssDisc, ink(Ink::kChosen, palette()), 6));
    auto* outlying = plot().addGraph();
    outlying->setName(tr("outlier"));
    if (m.samples_ns.empty()) outlying->removeFromLegend();
    outlying->setLineStyle(QCPGraph::lsNone);
    outlying->setScatterStyle(
        QCPScatterStyle(QCPScatterStyle::ssCross, ink(Ink::kDefault, palette()), 8));
    std::vector<Mark> marks;
    for (size_t i = 0; i < m.samples_ns.size(); ++i) {
      const bool outlier = i < m.outliers.size() && m.outliers[i];
      const double x = static_cast<double>(i + 1), y = m.samples_ns[i] / unit.ns;
      (outlier ? outlying : usual)->addData(x, y);
      marks.push_back({x,
                       y,
                       tr("sample %1 · %2%3")
                           .arg(i + 1)
                           .arg(time_text(m.samples_ns[i]), outlier ? tr(" · outlier") : QString()),
                       {}});
    }
    add_level(m.median_ns / unit.ns, tr("median"), Qt::SolidLine);
    add_level(m.ci_low_ns / unit.ns, tr("95 % interval of the median"), Qt::DotLine);
    add_level(m.ci_high_ns / unit.ns, {}, Qt::DotLine);
    if (m.samples_ns.empty())
      marks.push_back(
          {width() / 2 + 0.5,
           m.median_ns / unit.ns,
           tr("median %1 · 95 %: %2 to %3")
               .arg(time_text(m.median_ns), time_text(m.ci_low_ns), time_text(m.ci_high_ns)),
           {}});
    set_marks(std::move(marks));
  }

  void draw_distribution(const db::Measurement& m, const TimeUnit& unit) {
    if (m.samples_ns.empty()) return;
    std::vector<double> sorted = m.samples_ns;
    std::sort(sorted.begin(), sorted.end());
    auto* curve = new QCPCurve(right_->axis(QCPAxis::atBottom), right_->axis(QCPAxis::atLeft));
    curve->removeFromLegend();
    curve->setPen(QPen(ink(Ink::kChosen, palette()), 2));
    const auto n = static_cast<double>(sorted.size());
    curve->addData(0, sorted.front() / unit.ns);
    for (size_t i = 0; i < sorted.size(); ++i) {
      curve->addData(static_cast<double>(i) / n * 100, sorted[i] / unit.ns);
      curve->addData(static_cast<double>(i + 1) / n * 100, sorted[i] / unit.ns);
    }
  }

  QCPAxisRect* right_;
  QCPRange times_{0.1, 1};
  std::optional<MeasurementFacts> facts_;
  db::Uuid wanted_;
  Question question_;
  bool asked_ = false;
};

}  // namespace

View* make_samples(const ViewInfo& info, Context& context) {
  return new SamplesView(info, context);
}

}  // namespace nimble::gui
