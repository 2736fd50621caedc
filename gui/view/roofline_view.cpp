// "Roofline": each workload's best known kernel at each shape, by operations a byte and operations
// a second, under the ceilings that were measured on the machine.
#include <cmath>

#include "gui/model/roofline.h"
#include "gui/model/units.h"
#include "gui/view/plot_view.h"

namespace nimble::gui {
namespace {

constexpr double kGiga = 1e9;

QString share_text(const std::optional<double>& share) {
  return share ? percent_text(*share) : QObject::tr("unknown");
}

class RooflineView final : public PlotView {
 public:
  RooflineView(const ViewInfo& info, Context& context) : PlotView(info, context) {
    plot().legend->setVisible(true);
    plot().xAxis->setLabel(tr("operations a byte of operands (op/B)"));
    plot().yAxis->setLabel(tr("operations a second (Gop/s)"));
    for (QCPAxis* axis : {plot().xAxis, plot().yAxis}) {
      axis->setScaleType(QCPAxis::stLogarithmic);
      axis->setTicker(QSharedPointer<LogTicker>::create());
    }
    connect(&context.session, &Session::changed, this, &RooflineView::ask);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      const Choice& now = this->context().selection.now();
      if (now.hardware != before.hardware) return ask();
      if (now.workload != before.workload) redraw();
    });
    ask();
  }

  bool loading() const override { return asked_; }

  TableData table() const override {
    TableData t{
        {"workload", "op", "dtype", "threads", "shape", "config", "flops", "bytes", "median_ns",
         "intensity_op_per_byte", "rate_op_per_s", "share_of_peak", "share_of_roof", "measurement"},
        {}};
    const auto share = [](const std::optional<double>& v) { return v ? QVariant(*v) : QVariant(); };
    for (const RooflinePoint& p : facts_.points) {
      const RooflineRate r = rate_of(facts_, p);
      t.rows.push_back({plain_text(p.workload), plain_text(p.op), plain_text(p.dtype),
                        QVariant::fromValue(p.threads), plain_text(p.shape),
                        plain_text(p.result.config), QVariant::fromValue(p.flops),
                        QVariant::fromValue(p.bytes), p.result.median_ns, r.intensity, r.rate,
                        share(r.of_peak), share(r.of_roof), plain_text(p.result.measurement)});
    }
    return t;
  }

 protected:
  void redraw() override {
    plot().clearPlottables();
    if (facts_.points.empty()) return set_marks({});
    const db::Hash& workload = context().selection.now().workload;
    // Roofs are of one type and number of threads: the selected workload's.
    const RooflinePoint* about = &facts_.points.front();
    for (const RooflinePoint& p : facts_.points)
      if (p.workload == workload) {
        about = &p;
        break;
      }
    set_heading(tr("%1 · %2 · threads: %3")
                    .arg(facts_.machine.empty() ? tr("ceilings not measured yet")
                                                : plain_text(facts_.machine),
                         plain_text(about->dtype))
                    .arg(about->threads));
    double least_x = INFINITY, most_x = 0, least_y = INFINITY, most_y = 0;
    const auto reach = [&](double x, double y) {
      least_x = std::min(least_x, x);
      most_x = std::max(most_x, x);
      least_y = std::min(least_y, y);
      most_y = std::max(most_y, y);
    };
    for (const RooflinePoint& p : facts_.points) {
      const RooflineRate r = rate_of(facts_, p);
      reach(r.intensity, r.rate / kGiga);
    }
    const Roofs roofs = roofs_of(facts_, about->dtype, about->threads);
    if (roofs.compute) most_y = std::max(most_y, *roofs.compute / kGiga);
    x_range_ = {least_x / 2, most_x * 2};
    y_range_ = {least_y / 2, most_y * 2};
    draw_roofs(roofs);
    draw_points(about->workload);
    show_all();
  }

  void show_all() override {
    plot().xAxis->setRange(x_range_);
    plot().yAxis->setRange(y_range_);
  }

  bool is_selected(const Mark& mark) const override {
    const Choice& now = context().selection.now();
    return mark.choice.workload == now.workload && mark.choice.shape == now.shape;
  }

 private:
  void ask() {
    question_.drop();
    const db::Hash hardware = context().selection.now().hardware;
    asked_ = context().session.is_open() && !hardware.empty();
    if (!asked_) {
      facts_ = {};
      set_status({});
      set_message(tr("Choose a workload in “Workloads and kernels”."));
      return redraw();
    }
    question_ = context().session.ask<RooflineFacts>(
        this,
        [hardware](Reader& reader, const Cancel& cancel) {
          return reader.roofline(hardware, cancel);
        },
        [this](Answer<RooflineFacts> answer) {
          asked_ = false;
          facts_ = answer.value ? std::move(*answer.value) : RooflineFacts{};
          set_message(!answer.value           ? answer.error
                      : facts_.points.empty() ? tr("No measured shape has known operations.")
                                              : QString());
          tell();
          redraw();
        });
  }

  void tell() {
    if (facts_.points.empty()) return set_status({});
    if (facts_.ceilings.empty())
      return set_status(
          tr("No ceilings of this hardware yet: on it, run nimble doctor --measure "
             "--format json > machine.json, then nimble db ceilings --add "
             "machine.json --db …"));
    double best = 0;
    const RooflinePoint* at = nullptr;
    for (const RooflinePoint& p : facts_.points)
      if (const auto share = rate_of(facts_, p).of_peak; share && *share > best) {
        best = *share;
        at = &p;
      }
    set_status(at ? tr("%1 kernels at shapes; the nearest to its peak: %2 at %3, %4")
                        .arg(facts_.points.size())
                        .arg(plain_text(at->op), plain_text(at->shape), percent_text(best))
                  : tr("The machine's ceilings are of other types or numbers of threads."));
  }

  void draw_roofs(const Roofs& roofs) {
    const auto add_line = [&](const QString& name, Ink which, Qt::PenStyle style) {
      auto* line = plot().addGraph();
      line->setName(name);
      line->setPen(QPen(ink(which, palette()), 1.6, style));
      return line;
    };
    if (roofs.compute) {
      const double y = *roofs.compute / kGiga;
      auto* line =
          add_line(tr("peak %1 Gop/s").arg(number_text(y, 3)), Ink::kDefault, Qt::SolidLine);
      line->addData(x_range_.lower, y);
      line->addData(x_range_.upper, y);
    }
    const Qt::PenStyle styles[] = {Qt::SolidLine, Qt::DashLine, Qt::DotLine, Qt::DashDotLine};
    for (size_t i = 0; i < roofs.bandwidths.size(); ++i) {
      const db::Ceiling& c = roofs.bandwidths[i];
      // Only below the peak: there it is the roof.
      const double end =
          roofs.compute ? std::min(x_range_.upper, *roofs.compute / c.value) : x_range_.upper;
      if (end <= x_range_.lower) continue;
      auto* line =
          add_line(tr("%1 %2 GB/s")
                       .arg(plain_text(c.kind).replace('_', ' '), number_text(c.value / kGiga, 3)),
                   Ink::kVendor, styles[i % 4]);
      line->addData(x_range_.lower, c.value * x_range_.lower / kGiga);
      line->addData(end, c.value * end / kGiga);
    }
  }

  void draw_points(const db::Hash& workload) {
    const auto add_graph = [&](const QString& name, Ink which,
                               QCPScatterStyle::ScatterShape shape) {
      auto* graph = plot().addGraph();
      graph->setName(name);
      graph->setLineStyle(QCPGraph::lsNone);
      graph->setScatterStyle(QCPScatterStyle(shape, ink(which, palette()), 7));
      return graph;
    };
    QCPGraph* others = add_graph(tr("other workloads"), Ink::kOther, QCPScatterStyle::ssCircle);
    QCPGraph* own = add_graph(tr("this workload"), Ink::kChosen, QCPScatterStyle::ssDisc);
    std::vector<Mark> marks;
    for (const RooflinePoint& p : facts_.points) {
      const RooflineRate r = rate_of(facts_, p);
      (p.workload == workload ? own : others)->addData(r.intensity, r.rate / kGiga);
      Mark m{r.intensity,
             r.rate / kGiga,
             tr("%1 %2 · %3 · %4 Gop/s, %5 op/B · %6 of the peak, %7 of the roof of memory")
                 .arg(plain_text(p.op), plain_text(p.shape), time_text(p.result.median_ns),
                      number_text(r.rate / kGiga), number_text(r.intensity, 3),
                      share_text(r.of_peak), share_text(r.of_roof)),
             {}};
      m.choice.workload = p.workload;
      m.choice.shape = p.shape;
      m.choice.config = p.result.config;
      m.choice.measurement = p.result.measurement;
      marks.push_back(std::move(m));
    }
    if (others->dataCount() == 0) others->removeFromLegend();
    set_marks(std::move(marks));
  }

  RooflineFacts facts_;
  QCPRange x_range_{0.1, 10}, y_range_{0.1, 10};
  Question question_;
  bool asked_ = false;
};

}  // namespace

View* make_roofline(const ViewInfo& info, Context& context) {
  return new RooflineView(info, context);
}

}  // namespace nimble::gui
