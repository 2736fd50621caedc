// "Heat map": each configuration at each shape. A gap was not measured and shows the hatched
// ground; a cell whose interval is wide is hatched itself.
#include <QComboBox>
#include <QHBoxLayout>
#include <algorithm>
#include <cmath>
#include <map>

#include "gui/model/units.h"
#include "gui/view/plot_view.h"

namespace nimble::gui {
namespace {

// An interval wider than this share of the median makes a cell uncertain.
constexpr double kUncertain = 0.1;

// Lines across cells: one item for all of them.
class Hatching final : public QCPAbstractItem {
 public:
  explicit Hatching(QCustomPlot* plot) : QCPAbstractItem(plot) { setSelectable(false); }
  double selectTest(const QPointF&, bool, QVariant*) const override { return -1; }
  std::vector<QPointF> cells;  // centres

 protected:
  void draw(QCPPainter* painter) override {
    QCPAxis *x = mParentPlot->xAxis, *y = mParentPlot->yAxis;
    painter->setPen(QPen(QColor(255, 255, 255, 200), 1));
    for (const QPointF& c : cells) {
      const QPointF a(x->coordToPixel(c.x() - 0.5), y->coordToPixel(c.y() - 0.5));
      const QPointF b(x->coordToPixel(c.x() + 0.5), y->coordToPixel(c.y() + 0.5));
      const QRectF box = QRectF(a, b).normalized();
      painter->save();
      painter->setClipRect(box.intersected(clipRect()));
      for (double at = box.left() - box.height(); at < box.right(); at += 6)
        painter->drawLine(QPointF(at, box.bottom()), QPointF(at + box.height(), box.top()));
      painter->restore();
    }
  }
};

class HeatmapView final : public PlotView {
 public:
  HeatmapView(const ViewInfo& info, Context& context) : PlotView(info, context) {
    what_ = new QComboBox;
    what_->setObjectName(QStringLiteral("what"));
    what_->setAccessibleName(tr("What the colours show"));
    what_->addItems({tr("Time"), tr("Time over the best at the shape")});
    controls()->addWidget(plain_label(tr("Colours:")));
    controls()->addWidget(what_);
    controls()->addStretch(1);
    connect(what_, &QComboBox::currentIndexChanged, this, &HeatmapView::redraw);
    connect(&context.workload, &WorkloadModel::changed, this, &HeatmapView::redraw);

    map_ = new QCPColorMap(plot().xAxis, plot().yAxis);
    map_->setInterpolate(false);
    map_->setTightBoundary(false);
    map_->setGradient(rising_gradient());
    map_->setDataScaleType(QCPAxis::stLogarithmic);
    scale_ = new QCPColorScale(&plot());
    plot().plotLayout()->addElement(0, 1, scale_);
    scale_->setType(QCPAxis::atRight);
    scale_->setDataScaleType(QCPAxis::stLogarithmic);
    scale_->setGradient(rising_gradient());
    auto* margins = new QCPMarginGroup(&plot());
    plot().axisRect()->setMarginGroup(QCP::msBottom | QCP::msTop, margins);
    scale_->setMarginGroup(QCP::msBottom | QCP::msTop, margins);
    map_->setColorScale(scale_);
    hatching_ = new Hatching(&plot());
    plot().yAxis->setRangeReversed(true);  // the best is on top
    plot().xAxis->grid()->setVisible(false);
    plot().yAxis->grid()->setVisible(false);
    dress(plot(), palette());
    redraw();
  }

  bool loading() const override { return context().workload.loading(); }

  TableData table() const override {
    TableData t{{"shape", "config", "schedule", "role", "median_ns", "ci_low_ns", "ci_high_ns",
                 "over_best", "measurement"},
                {}};
    const auto facts = context().workload.facts();
    if (!facts) return t;
    for (const Cell& c : facts->cells) {
      const db::Result& r = c.result;
      t.rows.push_back({plain_text(facts->shapes[c.shape].key), plain_text(r.config),
                        plain_text(knobs_text(facts->configs[c.config])),
                        plain_text(db::name_of(r.role)), r.median_ns, r.ci_low_ns, r.ci_high_ns,
                        r.median_ns / facts->best_at(c.shape)->result.median_ns,
                        plain_text(r.measurement)});
    }
    return t;
  }

 protected:
  void redraw() override {
    const auto facts = context().workload.facts();
    set_message(facts ? QString() : context().workload.problem());
    if (!facts) return;
    set_heading(plain_text(title_of(*facts)));
    const auto columns = static_cast<int>(facts->shapes.size());
    const auto rows = static_cast<int>(facts->configs.size());
    const bool relative = what_->currentIndex() == 1;
    extent_ = QSize(columns, rows);
    // A map of one column or row has no width to paint: an empty one stands behind it, out of
    // sight.
    const int wide = std::max(columns, 2), high = std::max(rows, 2);
    map_->data()->setSize(wide, high);
    map_->data()->setRange({0, wide - 1.0}, {0, high - 1.0});
    map_->data()->fill(NAN);
    double lowest = INFINITY, highest = 0;
    for (const Cell& c : facts->cells) {
      lowest = std::min(lowest, c.result.median_ns);
      highest = std::max(highest, c.result.median_ns);
    }
    const TimeUnit unit = time_unit_for(std::sqrt(lowest * highest));
    double least = INFINITY, most = 0;
    hatching_->cells.clear();
    std::vector<Mark> marks;
    for (const Cell& c : facts->cells) {
      const db::Result& r = c.result;
      const double over = r.median_ns / facts->best_at(c.shape)->result.median_ns;
      const double value = relative ? over : r.median_ns / unit.ns;
      least = std::min(least, value);
      most = std::max(most, value);
      const auto x = static_cast<int>(c.shape), y = static_cast<int>(c.config);
      map_->data()->setCell(x, y, value);
      if (r.ci_high_ns - r.ci_low_ns > kUncertain * r.median_ns)
        hatching_->cells.emplace_back(x, y);
      Mark m{static_cast<double>(x), static_cast<double>(y), describe(*facts, c, over), {}};
      m.choice.shape = facts->shapes[c.shape].key;
      m.choice.config = r.config;
      m.choice.measurement = r.measurement;
      marks.push_back(std::move(m));
    }
    scale_->axis()->setLabel(relative ? tr("time over the best (×)")
                                      : tr("median time (%1)").arg(unit.name));
    scale_->axis()->setTicker(QSharedPointer<LogTicker>::create());
    scale_->axis()->setNumberFormat("g");
    scale_->axis()->setNumberPrecision(4);
    map_->setDataRange({least, std::max(most, least * 1.01)});
    label_axes(*facts);
    show_all();
    set_ground();
    set_status(tr("%1 configurations at %2 shapes, %3 measured; hatched: not measured, lines: an "
                  "interval wider than %4")
                   .arg(count_text(rows), count_text(columns),
                        count_text(static_cast<int64_t>(facts->cells.size())),
                        percent_text(kUncertain)));
    set_marks(std::move(marks));
  }

  void show_all() override {
    plot().xAxis->setRange(-0.5, extent_.width() - 0.5);
    plot().yAxis->setRange(-0.5, extent_.height() - 0.5);
  }

  // The cell under the pointer: of a gap there is nothing to tell.
  int mark_at(const QPointF& pixel) const override {
    const double x = plot().xAxis->pixelToCoord(pixel.x()),
                 y = plot().yAxis->pixelToCoord(pixel.y());
    for (size_t i = 0; i < marks().size(); ++i)
      if (std::abs(marks()[i].x - x) <= 0.5 && std::abs(marks()[i].y - y) <= 0.5)
        return static_cast<int>(i);
    return -1;
  }

  bool is_selected(const Mark& mark) const override {
    const Choice& now = context().selection.now();
    return mark.choice.shape == now.shape && mark.choice.config == now.config;
  }

 private:
  static QString describe(const WorkloadFacts& f, const Cell& c, double over) {
    const db::Result& r = c.result;
    return QStringLiteral("%1 · %2 · %3 (95 %: %4 to %5, %6 samples, %7) · %8 the best · %9")
        .arg(plain_text(f.shapes[c.shape].key), short_id(r.config), time_text(r.median_ns),
             time_text(r.ci_low_ns), time_text(r.ci_high_ns), count_text(r.n),
             plain_text(db::name_of(r.role)), factor_text(over),
             plain_text(knobs_text(f.configs[c.config])));
  }

  void label_axes(const WorkloadFacts& f) {
    const bool one = !f.shapes.empty() && f.shapes.front().dims.size() == 1;
    auto x = QSharedPointer<QCPAxisTickerText>::create();
    for (size_t i = 0; i < f.shapes.size(); ++i) {
      if (i % (1 + f.shapes.size() / 40) != 0) continue;
      const ShapeFacts& s = f.shapes[i];
      x->addTick(static_cast<double>(i),
                 one ? QString::number(s.dims.begin()->second) : plain_text(s.key, 40));
    }
    plot().xAxis->setTicker(x);
    plot().xAxis->setTickLabelRotation(f.shapes.size() > 12 || !one ? 60 : 0);
    plot().xAxis->setLabel(
        one ? tr("extent of %1 (elements)").arg(plain_text(f.shapes.front().dims.begin()->first))
            : tr("shape (elements), by growing work"));
    auto y = QSharedPointer<QCPAxisTickerText>::create();
    for (const auto& [row, label] : row_labels(f)) y->addTick(static_cast<double>(row), label);
    plot().yAxis->setTicker(y);
    plot().yAxis->setLabel(tr("configuration, best on top"));
  }

  // As many as have room: the default, the vendor's and the table's come before the others.
  std::map<size_t, QString> row_labels(const WorkloadFacts& f) const {
    const db::DispatchTable* table = f.table(context().selection.now().table);
    const int height = std::max(plot().axisRect()->height(), 200);
    const double apart = (QFontMetrics(plot().yAxis->tickLabelFont()).height() + 1.0) *
                         static_cast<double>(f.configs.size()) / height;
    std::map<size_t, QString> labels;
    for (const bool special : {true, false})
      for (size_t i = 0; i < f.configs.size(); ++i) {
        const ConfigFacts& c = f.configs[i];
        const bool in_table = table && table->configs.contains(c.hash);
        if (special != (in_table || c.is_default || c.is_vendor)) continue;
        const bool room = std::none_of(labels.begin(), labels.end(), [&](const auto& other) {
          return std::abs(static_cast<double>(other.first) - static_cast<double>(i)) < apart;
        });
        if (!room) continue;
        labels[i] = (c.is_default ? tr("default ") : QString()) +
                    (c.is_vendor ? tr("vendor ") : QString()) +
                    (in_table ? tr("table ") : QString()) + short_id(c.hash);
      }
    return labels;
  }

  void set_ground() {
    QColor lines = palette().color(QPalette::Text);
    lines.setAlpha(60);
    plot().axisRect()->setBackground(QBrush(lines, Qt::BDiagPattern));
  }

  QComboBox* what_;
  QSize extent_;  // shapes, configurations
  QCPColorMap* map_;
  QCPColorScale* scale_;
  Hatching* hatching_;
};

}  // namespace

View* make_heatmap(const ViewInfo& info, Context& context) {
  return new HeatmapView(info, context);
}

}  // namespace nimble::gui
