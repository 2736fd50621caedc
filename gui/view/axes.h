// Axes that plots share: times, extents, shapes; and labels that have room.
#pragma once

#include <qcustomplot.h>

#include <string>
#include <vector>

#include "gui/model/facts.h"
#include "gui/model/units.h"

namespace nimble::gui {

// Ticks of a logarithmic axis: powers of its base where the axis holds several, else even steps
// with as many digits as tell them apart, so that a short range has labels, too, and no two alike.
class LogTicker final : public QCPAxisTickerLog {
 public:
  // `whole`: what is counted has no parts, so that ticks stand at whole numbers alone.
  explicit LogTicker(double base = 10, bool whole = false);
  void generate(const QCPRange& range, const QLocale& locale, QChar format, int precision,
                QVector<double>& ticks, QVector<double>* sub_ticks,
                QVector<QString>* labels) override;

 private:
  QCPAxisTicker even_;
  QCPAxisTickerFixed whole_;
  bool is_whole_;
};

// An axis of numbers on a linear scale, after whatever it was before.
void set_linear_axis(QCPAxis* axis, const QString& label);

// An axis of extents of a symbol on a logarithmic scale.
void set_extent_axis(QCPAxis* axis, const std::string& symbol);

// An axis of times on a logarithmic scale; `lowest` and `highest` in ns. Values are then plotted in
// the unit that is returned, which the axis names.
TimeUnit set_time_axis(QCPAxis* axis, const QString& label, double lowest, double highest);

// Breaks the label of each upright axis into lines that are no longer than the axis, and joins
// them where there is room again. As the plot was laid out last; tells whether a label changed.
bool fit_labels(QCustomPlot& plot);

// Where shapes stand on an axis: by extent on a logarithmic scale if they have one symbol, else
// side by side in their order.
class ShapeAxis {
 public:
  ShapeAxis() = default;
  ShapeAxis(const std::vector<ShapeFacts>& shapes, QCPAxis* axis);
  double at(size_t shape) const { return places_[shape]; }
  bool by_extent() const { return !symbol_.empty(); }
  const std::string& symbol() const { return symbol_; }  // empty unless by_extent()
  QCPRange range() const;

 private:
  std::vector<double> places_;
  std::string symbol_;
};

}  // namespace nimble::gui
