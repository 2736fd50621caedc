// A run's time line in a plot: a bar for each call of a function, by depth, for each instruction
// and each kernel; below it, over the same time, the bytes that were live.
#pragma once

#include <qcustomplot.h>

#include <memory>
#include <optional>

#include "gui/model/run_trace.h"
#include "gui/model/units.h"

namespace nimble::gui {

// The bars. Those narrower than a pixel are drawn once a pixel, so that a zoom out over any number
// of them costs what the plot's width does.
class SpansItem final : public QCPAbstractItem {
 public:
  SpansItem(QCPAxis* x, QCPAxis* y);
  // `unit_ns`: of the x axis. `chosen`: the group whose bars are marked, or nothing.
  void set(std::shared_ptr<const RunTrace> trace, double unit_ns, std::optional<uint32_t> chosen);
  double selectTest(const QPointF&, bool, QVariant*) const override { return -1; }

 protected:
  void draw(QCPPainter* painter) override;

 private:
  QCPAxis *x_, *y_;
  std::shared_ptr<const RunTrace> trace_;
  double unit_ns_ = 1;
  std::optional<uint32_t> chosen_;
};

class TimeLine {
 public:
  explicit TimeLine(QCustomPlot& plot) : plot_(plot) {}

  // Draws it into the plot, whose plottables were cleared.
  void show(std::shared_ptr<const RunTrace> trace, const QPalette& palette);
  // Takes away what it added to the plot.
  void hide();
  void choose(std::optional<uint32_t> group);
  void show_all();

  double x_of(const TraceSpan& span) const;  // its middle
  static double y_of(const TraceSpan& span, const RunTrace& trace);
  // The innermost span at a place of the widget, or -1.
  int span_at(const QPointF& pixel) const;
  // What was live at a place in the memory's curve; empty elsewhere.
  QString memory_at(const QPointF& pixel) const;

 private:
  void label_lanes();
  void draw_memory(const QPalette& palette);

  QCustomPlot& plot_;
  std::shared_ptr<const RunTrace> trace_;
  std::optional<uint32_t> chosen_;
  TimeUnit unit_;
  double memory_unit_ = 1, most_memory_ = 1;
  // Owned by the plot.
  QPointer<QCPAxisRect> memory_;
  QPointer<SpansItem> bars_;
  QMetaObject::Connection together_;
};

// "12.5 MiB"
QString bytes_text(int64_t bytes);

}  // namespace nimble::gui
