// "Regret by shape": how much over the best measured what serves is, by the table or an override
// over it, the default schedule beside it, and the borders where another one serves.
#include <cmath>

#include "gui/model/regret.h"
#include "gui/model/units.h"
#include "gui/view/plot_view.h"

namespace nimble::gui {
namespace {

class RegretView final : public PlotView {
 public:
  RegretView(const ViewInfo& info, Context& context) : PlotView(info, context) {
    plot().legend->setVisible(true);
    connect(&context.workload, &WorkloadModel::changed, this, &RegretView::redraw);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      if (this->context().selection.now().table != before.table) redraw();
    });
    redraw();
  }

  bool loading() const override { return context().workload.loading(); }

  TableData table() const override {
    TableData t{{"shape", "entry", "override", "config", "chosen_ns", "best_config", "best_ns",
                 "default_ns", "regret", "default_regret", "side_by_side"},
                {}};
    const auto facts = context().workload.facts();
    const db::DispatchTable* table =
        facts ? facts->table(context().selection.now().table) : nullptr;
    if (!table || !message().isEmpty()) return t;
    const auto time = [](const Cell* c) { return c ? QVariant(c->result.median_ns) : QVariant(); };
    const auto real = [](const std::optional<double>& v) { return v ? QVariant(*v) : QVariant(); };
    for (const RegretPoint& p : regret_of(*facts, table, Serving::Overrides::kLaid))
      t.rows.push_back(
          {plain_text(facts->shapes[p.shape].key), QVariant::fromValue(p.served.entry),
           p.served.by ? plain_text(p.served.by->uuid) : QString(), plain_text(p.served.config),
           time(p.chosen), p.best ? plain_text(p.best->result.config) : QString(), time(p.best),
           time(p.standard), real(p.regret()), real(p.standard_regret()), p.side_by_side});
    return t;
  }

 protected:
  void redraw() override {
    const auto facts = context().workload.facts();
    plot().clearPlottables();
    for (QCPAbstractItem* item : std::exchange(borders_, {})) plot().removeItem(item);
    const db::DispatchTable* table =
        facts ? facts->table(context().selection.now().table) : nullptr;
    set_message(!facts   ? context().workload.problem()
                : !table ? tr("The workload has no dispatch table.")
                         : QString());
    if (!table) return set_marks({});
    set_heading(tr("%1 · table %2 (%3)")
                    .arg(plain_text(title_of(*facts)), short_id(table->uuid),
                         plain_text(db::name_of(table->status))));
    try {
      draw_points(*facts, *table, regret_of(*facts, table, Serving::Overrides::kLaid));
    } catch (const Error& e) {
      set_message(plain_text(e.what(), 1000));
      set_marks({});
    }
  }

  void show_all() override {
    plot().xAxis->setRange(shapes_.range());
    plot().yAxis->setRange(-0.04 * top_, top_ * 1.1);
  }

 private:
  QCPGraph* add_graph(const QString& name, Ink which, QCPScatterStyle::ScatterShape mark) {
    auto* graph = plot().addGraph();
    graph->setName(name);
    graph->setPen(QPen(ink(which, palette()), which == Ink::kChosen ? 2 : 1.2));
    graph->setScatterStyle(QCPScatterStyle(mark, ink(which, palette()), 7));
    return graph;
  }

  void draw_points(const WorkloadFacts& f, const db::DispatchTable& table,
                   const std::vector<RegretPoint>& points) {
    shapes_ = ShapeAxis(f.shapes, plot().xAxis);
    plot().yAxis->setLabel(tr("over the best measured (%)"));
    QCPGraph* standard =
        add_graph(tr("default schedule"), Ink::kDefault, QCPScatterStyle::ssSquare);
    QCPGraph* chosen =
        add_graph(f.overrides.empty() ? tr("dispatch table") : tr("dispatch table and overrides"),
                  Ink::kChosen, QCPScatterStyle::ssDisc);
    std::vector<Mark> marks;
    top_ = 1;
    for (const RegretPoint& p : points) {
      const double x = shapes_.at(p.shape);
      if (const auto r = p.standard_regret()) {
        standard->addData(x, *r * 100);
        top_ = std::max(top_, *r * 100);
      }
      const auto r = p.regret();
      if (!r) continue;
      chosen->addData(x, *r * 100);
      top_ = std::max(top_, *r * 100);
      Mark m{x, *r * 100, describe(f, p, *r), {}};
      m.choice.shape = f.shapes[p.shape].key;
      m.choice.config = p.chosen->result.config;
      m.choice.measurement = p.chosen->result.measurement;
      marks.push_back(std::move(m));
    }
    draw_borders(f, table, points);
    show_all();
    const RegretSummary sum = summary_of(points);
    set_status(sum.shapes
                   ? tr("mean regret %1, worst %2 at %3; %4 the default schedule's speed over %5 "
                        "shapes; table's objective: %6")
                         .arg(percent_text(sum.mean), percent_text(sum.worst),
                              plain_text(f.shapes[sum.worst_shape].key), factor_text(sum.speed_up))
                         .arg(sum.compared)
                         .arg(plain_text(table.objective))
                   : tr("The table's configurations were measured at none of the shapes."));
    set_marks(std::move(marks));
  }

  static QString served_text(const Served& served) {
    return served.by ? tr("override %1").arg(short_id(served.by->uuid))
                     : tr("entry %1").arg(served.entry);
  }

  static QString describe(const WorkloadFacts& f, const RegretPoint& p, double regret) {
    return tr("%1 · %2 · %3, best %4 (%5 over, %6) · %7")
        .arg(plain_text(f.shapes[p.shape].key), served_text(p.served))
        .arg(time_text(p.chosen->result.median_ns), time_text(p.best->result.median_ns),
             percent_text(regret),
             p.side_by_side ? tr("side by side") : tr("of different sessions"),
             plain_text(knobs_text(f.configs[p.chosen->config])));
  }

  void add_border(double x, const QString& text) {
    auto* line = new QCPItemStraightLine(&plot());
    line->point1->setCoords(x, 0);
    line->point2->setCoords(x, 1);
    line->setPen(QPen(ink(Ink::kOther, palette()), 1.4, Qt::DashLine));
    line->setSelectable(false);
    auto* label = new QCPItemText(&plot());
    label->position->setTypeX(QCPItemPosition::ptPlotCoords);
    label->position->setTypeY(QCPItemPosition::ptAxisRectRatio);
    label->position->setCoords(x, 0.02);
    label->setPositionAlignment(Qt::AlignTop | Qt::AlignLeft);
    label->setPadding(QMargins(4, 0, 0, 0));
    label->setText(text);
    label->setColor(palette().color(QPalette::Text));
    borders_ << line << label;
  }

  // By extent: where the tests on the symbol lie. Side by side: between shapes of two entries.
  void draw_borders(const WorkloadFacts& f, const db::DispatchTable& table,
                    const std::vector<RegretPoint>& points) {
    if (shapes_.by_extent()) {
      const Serving serving(f, &table, Serving::Overrides::kLaid);
      for (const int64_t border : serving.borders_of(shapes_.symbol()))
        if (border > 0)
          add_border(std::sqrt(static_cast<double>(border) * static_cast<double>(border + 1)),
                     QStringLiteral("≤ %1").arg(border));
      return;
    }
    for (size_t i = 1; i < points.size(); ++i)
      if (points[i].served.entry != points[i - 1].served.entry ||
          points[i].served.by != points[i - 1].served.by)
        add_border(static_cast<double>(i) - 0.5, served_text(points[i].served));
  }

  ShapeAxis shapes_;
  QList<QCPAbstractItem*> borders_;
  double top_ = 1;
};

}  // namespace

View* make_regret(const ViewInfo& info, Context& context) {
  return new RegretView(info, context);
}

}  // namespace nimble::gui
