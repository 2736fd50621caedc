// "Compare": two versions of a workload's dispatch table, of one campaign or of two. The left one
// is the baseline; it stays pinned while the selection moves the right one.
#include <QComboBox>
#include <QHBoxLayout>
#include <cmath>

#include "gui/model/comparison.h"
#include "gui/model/units.h"
#include "gui/view/plot_view.h"

namespace nimble::gui {
namespace {

class CompareView final : public PlotView {
 public:
  CompareView(const ViewInfo& info, Context& context) : PlotView(info, context) {
    left_ = add_choice(tr("Baseline:"), "left", 24);
    right_ = add_choice(tr("against:"), "right", 24);
    for (QComboBox* box : {left_, right_})
      connect(box, &QComboBox::activated, this, &CompareView::redraw);
    controls()->addStretch(1);
    connect(&context.workload, &WorkloadModel::changed, this, &CompareView::fill);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      const std::string& table = this->context().selection.now().table;
      if (table == before.table || table.empty()) return;
      const int at = right_->findData(QString::fromStdString(table));
      if (at >= 0) right_->setCurrentIndex(at);
      redraw();
    });
    fill();
  }

  bool loading() const override { return context().workload.loading(); }

  TableData table() const override {
    TableData t{{"shape", "left_entry", "right_entry", "left_config", "right_config", "left_ns",
                 "right_ns", "ratio", "ratio_low", "ratio_high", "differs"},
                {}};
    const auto facts = context().workload.facts();
    if (!facts || !message().isEmpty()) return t;
    const db::DispatchTable &l = table_of_box(*left_), &r = table_of_box(*right_);
    const auto time = [](const Cell* c) { return c ? QVariant(c->result.median_ns) : QVariant(); };
    const auto real = [](const std::optional<double>& v) { return v ? QVariant(*v) : QVariant(); };
    for (const ComparedShape& c : compare(*facts, l, r))
      t.rows.push_back({plain_text(facts->shapes[c.shape].key), QVariant::fromValue(c.left_entry),
                        QVariant::fromValue(c.right_entry),
                        plain_text(l.entries[static_cast<size_t>(c.left_entry)].config),
                        plain_text(r.entries[static_cast<size_t>(c.right_entry)].config),
                        time(c.left), time(c.right), real(c.ratio), real(c.low), real(c.high),
                        c.differs()});
    return t;
  }

 protected:
  void redraw() override {
    plot().clearPlottables();
    const auto facts = context().workload.facts();
    set_message(!facts                     ? context().workload.problem()
                : facts->tables.size() < 2 ? tr("The workload has fewer than two dispatch tables.")
                                           : QString());
    if (!facts || !message().isEmpty()) return set_marks({});
    set_heading(plain_text(title_of(*facts)));
    try {
      draw_ratios(*facts, compare(*facts, table_of_box(*left_), table_of_box(*right_)));
    } catch (const Error& e) {
      set_message(plain_text(e.what(), 1000));
      set_marks({});
    }
  }

  void show_all() override {
    plot().xAxis->setRange(shapes_.range());
    plot().yAxis->setRange(ratios_);
  }

 private:
  void fill() {
    const auto facts = context().workload.facts();
    const QVariant left = left_->currentData(), right = right_->currentData();
    left_->clear();
    right_->clear();
    if (facts)
      for (const db::DispatchTable& t : facts->tables) {
        const QString text = tr("%1 · version %2 · %3 · campaign %4")
                                 .arg(short_id(t.uuid))
                                 .arg(t.version)
                                 .arg(plain_text(db::name_of(t.status)),
                                      t.campaign ? short_id(*t.campaign) : tr("none: edited"));
        left_->addItem(text, QString::fromStdString(t.uuid));
        right_->addItem(text, QString::fromStdString(t.uuid));
      }
    // What was pinned stays; else the oldest against the newest.
    const int pinned = left_->findData(left), chosen = right_->findData(right);
    left_->setCurrentIndex(pinned >= 0 ? pinned : left_->count() - 1);
    right_->setCurrentIndex(chosen >= 0 ? chosen : std::min(0, right_->count() - 1));
    redraw();
  }

  const db::DispatchTable& table_of_box(const QComboBox& box) const {
    const auto& tables = context().workload.facts()->tables;
    return tables[static_cast<size_t>(std::max(0, box.currentIndex()))];
  }

  void draw_ratios(const WorkloadFacts& f, const std::vector<ComparedShape>& shapes) {
    shapes_ = ShapeAxis(f.shapes, plot().xAxis);
    plot().yAxis->setLabel(tr("over the baseline's time (%)"));
    auto* even = plot().addGraph();
    even->setPen(QPen(ink(Ink::kOther, palette()), 1, Qt::DashLine));
    even->addData(shapes_.range().lower, 0);
    even->addData(shapes_.range().upper, 0);
    const std::pair<Ink, QString> kinds[] = {{Ink::kOther, tr("no difference")},
                                             {Ink::kBest, tr("faster")},
                                             {Ink::kDefault, tr("slower")}};
    QCPGraph* graphs[3];
    QCPErrorBars* bars[3];
    constexpr QCPScatterStyle::ScatterShape kShapes[] = {QCPScatterStyle::ssCircle,
                                                         QCPScatterStyle::ssTriangleInverted,
                                                         QCPScatterStyle::ssTriangle};
    for (int i = 0; i < 3; ++i) {
      const QColor colour = ink(kinds[i].first, palette());
      graphs[i] = plot().addGraph();
      graphs[i]->setName(kinds[i].second);
      graphs[i]->setLineStyle(QCPGraph::lsNone);
      graphs[i]->setScatterStyle(QCPScatterStyle(kShapes[i], QPen(colour, 1.4), colour, 8));
      bars[i] = new QCPErrorBars(plot().xAxis, plot().yAxis);
      bars[i]->removeFromLegend();
      bars[i]->setDataPlottable(graphs[i]);
      bars[i]->setPen(QPen(colour));
    }
    even->removeFromLegend();
    plot().legend->setVisible(true);
    std::vector<Mark> marks;
    double least = 0, most = 0;
    for (const ComparedShape& c : shapes) {
      if (!c.ratio) continue;
      const int kind = !c.differs() ? 0 : *c.ratio < 1 ? 1 : 2;
      const double x = shapes_.at(c.shape), y = c.same_config ? 0 : (*c.ratio - 1) * 100;
      graphs[kind]->addData(x, y);
      bars[kind]->addData(y - (*c.low - 1) * 100, (*c.high - 1) * 100 - y);
      least = std::min(least, (*c.low - 1) * 100);
      most = std::max(most, (*c.high - 1) * 100);
      Mark m{x,
             y,
             tr("%1 · entry %2: %3 · entry %4: %5 · %6 (%7 to %8)%9")
                 .arg(plain_text(f.shapes[c.shape].key))
                 .arg(c.left_entry)
                 .arg(time_text(c.left->result.median_ns))
                 .arg(c.right_entry)
                 .arg(time_text(c.right->result.median_ns), factor_text(*c.ratio),
                      factor_text(*c.low), factor_text(*c.high),
                      c.same_config ? tr(" · the same configuration") : QString()),
             {}};
      m.choice.shape = f.shapes[c.shape].key;
      m.choice.config = c.right->result.config;
      marks.push_back(std::move(m));
    }
    const double pad = 0.08 * (most - least) + 1;
    ratios_ = {least - pad, most + pad};
    show_all();
    const ComparisonSummary sum = summary_of(shapes);
    set_status(
        tr("%1 of its time on the geometric mean of %2 shapes; %3 of %4 choose otherwise: %5 "
           "faster, %6 slower, the rest within their intervals")
            .arg(factor_text(sum.ratio))
            .arg(sum.shapes)
            .arg(sum.changed)
            .arg(shapes.size())
            .arg(sum.faster)
            .arg(sum.slower));
    set_marks(std::move(marks));
  }

  QComboBox *left_, *right_;
  ShapeAxis shapes_;
  QCPRange ratios_{-1, 1};
};

}  // namespace

View* make_compare(const ViewInfo& info, Context& context) {
  return new CompareView(info, context);
}

}  // namespace nimble::gui
