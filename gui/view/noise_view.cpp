// "Noise": by shape, how wide the intervals are, and what believing the first measurement would
// have cost where a second one, side by side, names another winner.
#include <cmath>

#include "gui/model/noise.h"
#include "gui/model/units.h"
#include "gui/view/plot_view.h"

namespace nimble::gui {
namespace {

constexpr double kLeast = 0.01;  // percent: below, a point stands on the axis

class NoiseView final : public PlotView {
 public:
  NoiseView(const ViewInfo& info, Context& context) : PlotView(info, context) {
    plot().legend->setVisible(true);
    connect(&context.workload, &WorkloadModel::changed, this, &NoiseView::redraw);
    redraw();
  }

  bool loading() const override { return context().workload.loading(); }

  TableData table() const override {
    TableData t{
        {"shape", "measurements", "half_interval", "aa_pairs", "aa_false_positives", "twins",
         "twin_false_positives", "twin_spread", "first_winner", "second_winner", "flip_cost"},
        {}};
    const auto facts = context().workload.facts();
    if (!facts) return t;
    const auto config = [](const db::Result* r) { return r ? plain_text(r->config) : QString(); };
    for (const NoiseAtShape& n : noise_of(*facts))
      t.rows.push_back(
          {plain_text(facts->shapes[n.shape].key), QVariant::fromValue(n.measurements),
           n.half_interval, QVariant::fromValue(n.pairs), QVariant::fromValue(n.false_positives),
           QVariant::fromValue(n.twins), QVariant::fromValue(n.twin_false_positives),
           n.twins ? QVariant(n.twin_spread) : QVariant(), config(n.first_winner),
           config(n.second_winner), n.flip_cost ? QVariant(*n.flip_cost) : QVariant()});
    return t;
  }

 protected:
  void redraw() override {
    plot().clearPlottables();
    const auto facts = context().workload.facts();
    set_message(facts ? QString() : context().workload.problem());
    if (!facts) return set_marks({});
    set_heading(plain_text(title_of(*facts)));
    shapes_ = ShapeAxis(facts->shapes, plot().xAxis);
    plot().yAxis->setLabel(tr("share of the time (%)"));
    // A winner of noise may cost many times its rival: a line of a few percent is to be seen beside
    // it.
    plot().yAxis->setScaleType(QCPAxis::stLogarithmic);
    plot().yAxis->setTicker(QSharedPointer<LogTicker>::create());
    const auto add_graph = [&](const QString& name, Ink which,
                               QCPScatterStyle::ScatterShape shape) {
      auto* graph = plot().addGraph();
      graph->setName(name);
      graph->setPen(QPen(ink(which, palette()), 1.4));
      graph->setScatterStyle(
          QCPScatterStyle(shape, QPen(ink(which, palette())), ink(which, palette()), 7));
      return graph;
    };
    QCPGraph* width =
        add_graph(tr("half of the 95 % interval, median"), Ink::kChosen, QCPScatterStyle::ssDisc);
    QCPGraph* flips =
        add_graph(tr("cost of the first winner"), Ink::kDefault, QCPScatterStyle::ssSquare);
    flips->setLineStyle(QCPGraph::lsImpulse);
    QCPGraph* twins =
        add_graph(tr("A/A pairs timed in turn, apart"), Ink::kBest, QCPScatterStyle::ssTriangle);
    twins->setLineStyle(QCPGraph::lsNone);
    std::vector<Mark> marks;
    top_ = 1;
    const auto noise = noise_of(*facts);
    for (const NoiseAtShape& n : noise) {
      if (!n.measurements) continue;
      const double x = shapes_.at(n.shape), y = std::max(kLeast, n.half_interval * 100);
      width->addData(x, y);
      top_ = std::max(top_, y);
      QString text = tr("%1 · intervals ± %2 · %3 A/A pairs, %4 false positives")
                         .arg(plain_text(facts->shapes[n.shape].key), percent_text(n.half_interval))
                         .arg(n.pairs)
                         .arg(n.false_positives);
      if (n.twins > 0) {
        const double spread = std::max(kLeast, n.twin_spread * 100);
        twins->addData(x, spread);
        top_ = std::max(top_, spread);
        text += tr(" · %1 pairs in turn %2 apart, %3 beyond the interval")
                    .arg(n.twins)
                    .arg(percent_text(n.twin_spread))
                    .arg(n.twin_false_positives);
      }
      if (n.flip_cost && *n.flip_cost > 0) {
        flips->addData(x, std::max(kLeast, *n.flip_cost * 100));
        top_ = std::max(top_, *n.flip_cost * 100);
        text += tr(" · winner %1, then %2: %3 dearer")
                    .arg(short_id(n.first_winner->config), short_id(n.second_winner->config),
                         percent_text(*n.flip_cost));
      }
      Mark m{x, y, text, {}};
      m.choice.shape = facts->shapes[n.shape].key;
      if (n.second_winner) m.choice.config = n.second_winner->config;
      marks.push_back(std::move(m));
    }
    if (twins->dataCount() == 0) twins->removeFromLegend();
    show_all();
    const NoiseSummary sum = summary_of(noise);
    set_status(tr("intervals ± %1 at the median shape; %2 A/A pairs between sessions, %3 false "
                  "positives; %4; winners flip at %5 of %6 shapes, %7 dearer on average")
                   .arg(percent_text(sum.half_interval))
                   .arg(sum.pairs)
                   .arg(sum.false_positives)
                   .arg(sum.twins ? tr("%1 pairs in turn, %2 beyond the interval")
                                        .arg(sum.twins)
                                        .arg(sum.twin_false_positives)
                                  : tr("no pairs timed in turn"))
                   .arg(sum.flips)
                   .arg(sum.judged)
                   .arg(percent_text(sum.flip_cost)));
    set_marks(std::move(marks));
  }

  void show_all() override {
    plot().xAxis->setRange(shapes_.range());
    plot().yAxis->setRange(kLeast * 0.8, top_ * 4);
  }

 private:
  ShapeAxis shapes_;
  double top_ = 1;
};

}  // namespace

View* make_noise(const ViewInfo& info, Context& context) {
  return new NoiseView(info, context);
}

}  // namespace nimble::gui
