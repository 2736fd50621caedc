// "Parallel coordinates": each configuration a line across the knobs that vary, in the colour of
// its time at the selected shape, and the same configurations as a table below; both are one
// selection.
#include <QSplitter>
#include <cmath>

#include "gui/model/knobs.h"
#include "gui/model/units.h"
#include "gui/view/plot_view.h"
#include "gui/view/table_pane.h"

namespace nimble::gui {
namespace {

class ParallelView final : public PlotView {
 public:
  ParallelView(const ViewInfo& info, Context& context) : PlotView(info, context) {
    pane_ =
        new TablePane({{"Configuration", "config", "Its hash.", true, false},
                       {"Time", "median_ns", "Median at the shape.", true, true},
                       {"Over best", "over_best", "Time over the best at the shape.", true, true},
                       {"Knobs", "schedule", "Template and knobs.", true, false}});
    pane_->rows().setAccessibleName(tr("Configurations"));
    auto* split = new QSplitter(Qt::Vertical);
    split->addWidget(&plot());
    plot().setMinimumHeight(240);  // the scale of colours and its label need it
    plot().show();                 // it was no longer the content, so it was hidden
    split->addWidget(pane_);
    split->setStretchFactor(0, 3);
    split->setStretchFactor(1, 2);
    split->setFocusProxy(&plot());
    set_content(split);
    plot().setInteractions({});
    plot().yAxis->setVisible(false);
    plot().xAxis->grid()->setVisible(true);
    scale_ = new QCPColorScale(&plot());
    plot().plotLayout()->addElement(0, 1, scale_);
    scale_->setGradient(rising_gradient());
    scale_->setDataScaleType(QCPAxis::stLogarithmic);
    dress(plot(), palette());
    connect(pane_, &TablePane::chosen, this, [this](const PagedRow& row) {
      this->context().selection.set_config(row.choice.config);
    });
    connect(&context.workload, &WorkloadModel::changed, this, &ParallelView::redraw);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      const Choice& now = this->context().selection.now();
      if (now.shape != before.shape || now.config != before.config) redraw();
    });
    redraw();
  }

  bool loading() const override { return context().workload.loading(); }
  TableData table() const override { return pane_->table(); }

 protected:
  void redraw() override {
    plot().clearPlottables();
    for (QCPAbstractItem* item : std::exchange(labels_, {})) plot().removeItem(item);
    const auto facts = context().workload.facts();
    set_message(facts ? QString() : context().workload.problem());
    if (!facts || facts->shapes.empty()) {
      pane_->set_rows({});
      return set_marks({});
    }
    const auto chosen = facts->shape_index(context().selection.now().shape);
    shape_ = chosen.value_or(shape_of_most(*facts));
    set_heading(
        tr("%1 · %2").arg(plain_text(title_of(*facts)), plain_text(facts->shapes[shape_].key)));
    draw_lines(*facts);
    fill_table(*facts);
  }

  void show_all() override {
    plot().xAxis->setRange(-0.6, static_cast<double>(axes_.size()) + 0.6);
    plot().yAxis->setRange(-0.06, 1.1);
  }

  bool is_selected(const Mark& mark) const override {
    return mark.choice.config == context().selection.now().config;
  }

 private:
  // Where most configurations have a time: without a choice, the most to see.
  static size_t shape_of_most(const WorkloadFacts& f) {
    std::vector<size_t> counts(f.shapes.size());
    for (const Cell& c : f.cells) ++counts[c.shape];
    return static_cast<size_t>(std::max_element(counts.begin(), counts.end()) - counts.begin());
  }

  void add_label(double x, double y, const QString& text, Qt::Alignment alignment) {
    auto* label = new QCPItemText(&plot());
    label->position->setCoords(x, y);
    label->setPositionAlignment(alignment);
    label->setText(text);
    label->setPadding(QMargins(5, 1, 5, 1));
    label->setColor(palette().color(QPalette::Text));
    label->setBrush(QBrush(palette().color(QPalette::Base)));
    label->setFont(font());
    labels_ << label;
  }

  static double height_of(int place, size_t values) {
    return values < 2 ? 0.5 : static_cast<double>(place) / static_cast<double>(values - 1);
  }

  void draw_lines(const WorkloadFacts& f) {
    axes_ = knob_axes(f.configs);
    const Cell* best = f.best_at(shape_);
    double most = 1.01;
    for (const Cell& c : f.cells)
      if (c.shape == shape_) most = std::max(most, c.result.median_ns / best->result.median_ns);
    auto ticker = QSharedPointer<QCPAxisTickerText>::create();
    for (size_t a = 0; a < axes_.size(); ++a)
      ticker->addTick(static_cast<double>(a), plain_text(axes_[a].name, 24));
    ticker->addTick(static_cast<double>(axes_.size()), tr("time"));
    plot().xAxis->setTicker(ticker);
    plot().xAxis->setLabel(tr("knobs that vary, and the time over the best at the shape (×)"));
    const QCPRange range(1, most);
    scale_->setDataRange(range);
    scale_->axis()->setTicker(QSharedPointer<QCPAxisTicker>::create());
    scale_->axis()->setLabel(tr("time over the best (×)"));
    QCPColorGradient gradient = rising_gradient();
    const db::Hash& selected = context().selection.now().config;
    std::vector<Mark> marks;
    for (size_t c = 0; c < f.configs.size(); ++c) {
      const Cell* cell = f.cell(c, shape_);
      if (!cell) continue;
      const double over = cell->result.median_ns / best->result.median_ns;
      const bool is_chosen = f.configs[c].hash == selected;
      auto* line = plot().addGraph();
      line->removeFromLegend();
      line->setPen(is_chosen ? QPen(ink(Ink::kCursor, palette()), 3)
                             : QPen(QColor(gradient.color(over, range, true)), 1.3));
      if (is_chosen) line->setLayer(QStringLiteral("overlay"));
      for (size_t a = 0; a < axes_.size(); ++a)
        if (axes_[a].place[c] >= 0)
          line->addData(static_cast<double>(a),
                        height_of(axes_[a].place[c], axes_[a].values.size()));
      // The fastest are on top.
      const double y = 1 - std::log(over) / std::log(most);
      const double x = static_cast<double>(axes_.size());
      line->addData(x, y);
      Mark m{x,
             y,
             QStringLiteral("%1 · %2 · %3 the best · %4")
                 .arg(short_id(f.configs[c].hash), time_text(cell->result.median_ns),
                      factor_text(over), plain_text(knobs_text(f.configs[c]))),
             {}};
      m.choice.config = f.configs[c].hash;
      m.choice.shape = f.shapes[shape_].key;
      marks.push_back(std::move(m));
    }
    label_axes(most);
    show_all();
    set_status(tr("%1 configurations at %2; light lines are slow, the fastest are on top")
                   .arg(marks.size())
                   .arg(plain_text(f.shapes[shape_].key)));
    set_marks(std::move(marks));
  }

  void label_axes(double most) {
    for (size_t a = 0; a < axes_.size(); ++a) {
      const size_t n = axes_[a].values.size(), step = 1 + n / 13;
      for (size_t v = 0; v < n; v += step)
        add_label(static_cast<double>(a), height_of(static_cast<int>(v), n),
                  plain_text(axes_[a].values[v], 16), Qt::AlignLeft | Qt::AlignVCenter);
    }
    const auto x = static_cast<double>(axes_.size());
    add_label(x, 1, factor_text(1), Qt::AlignLeft | Qt::AlignVCenter);
    add_label(x, 0.5, factor_text(std::sqrt(most)), Qt::AlignLeft | Qt::AlignVCenter);
    add_label(x, 0, factor_text(most), Qt::AlignLeft | Qt::AlignVCenter);
  }

  void fill_table(const WorkloadFacts& f) {
    std::vector<PagedRow> rows;
    for (size_t c = 0; c < f.configs.size(); ++c) {
      const Cell* cell = f.cell(c, shape_);
      if (!cell) continue;
      const double over = cell->result.median_ns / f.best_at(shape_)->result.median_ns;
      const QString schedule = plain_text(knobs_text(f.configs[c]), 1000);
      PagedRow row;
      row.cells = {short_id(f.configs[c].hash), time_text(cell->result.median_ns),
                   factor_text(over), schedule};
      row.raw = {QString::fromStdString(f.configs[c].hash), cell->result.median_ns, over, schedule};
      row.choice.config = f.configs[c].hash;
      rows.push_back(std::move(row));
    }
    pane_->set_rows(std::move(rows));
    pane_->show_row([&](const Choice& c) { return c.config == context().selection.now().config; });
  }

  TablePane* pane_;
  QCPColorScale* scale_;
  std::vector<KnobAxis> axes_;
  QList<QCPAbstractItem*> labels_;
  size_t shape_ = 0;
};

}  // namespace

View* make_parallel(const ViewInfo& info, Context& context) {
  return new ParallelView(info, context);
}

}  // namespace nimble::gui
