#include "gui/view/axes.h"

#include <cmath>

namespace nimble::gui {
namespace {

constexpr int kEvenTicks = 6;
// A shorter range has fewer than three powers of two, or one of ten.
constexpr double kShortDecades = 1.5, kShortDoublings = 2.5;

// The label on as few lines as have room in `length` pixels, broken at spaces.
QString broken(const QString& label, const QFontMetrics& metrics, int length) {
  QString lines, line;
  for (const QString& word : label.split(QLatin1Char(' '))) {
    const QString longer = line.isEmpty() ? word : line + QLatin1Char(' ') + word;
    if (!line.isEmpty() && metrics.horizontalAdvance(longer) > length) {
      lines += line + QLatin1Char('\n');
      line = word;
    } else {
      line = longer;
    }
  }
  return lines + line;
}

}  // namespace

LogTicker::LogTicker(double base, bool whole) : is_whole_(whole) {
  setLogBase(base);
  even_.setTickCount(kEvenTicks);
  whole_.setTickCount(kEvenTicks);
  whole_.setTickStep(1);
  whole_.setScaleStrategy(QCPAxisTickerFixed::ssMultiples);
  if (whole) setSubTickCount(0);
}

void LogTicker::generate(const QCPRange& range, const QLocale& locale, QChar format, int precision,
                         QVector<double>& ticks, QVector<double>* sub_ticks,
                         QVector<QString>* labels) {
  if (sub_ticks) sub_ticks->clear();
  const double ratio = range.lower > 0 ? range.upper / range.lower : INFINITY;
  const double least =
      logBase() < 10 ? std::pow(logBase(), kShortDoublings) : std::pow(logBase(), kShortDecades);
  if (ratio >= least)
    return QCPAxisTickerLog::generate(range, locale, format, precision, ticks, sub_ticks, labels);
  if (is_whole_) return whole_.generate(range, locale, format, precision, ticks, nullptr, labels);
  // Of a "g", precision counts all digits: those above a step and two of the step itself.
  const double step = range.size() / kEvenTicks;
  const int digits = static_cast<int>(std::ceil(std::log10(range.upper / step))) + 2;
  even_.generate(range, locale, format,
                 format == QLatin1Char('g') ? std::clamp(digits, precision, 15) : precision, ticks,
                 sub_ticks, labels);
}

void set_linear_axis(QCPAxis* axis, const QString& label) {
  axis->setScaleType(QCPAxis::stLinear);
  axis->setTicker(QSharedPointer<QCPAxisTicker>::create());
  axis->setNumberFormat(QStringLiteral("g"));
  axis->setNumberPrecision(6);
  axis->setLabel(label);
}

void set_extent_axis(QCPAxis* axis, const std::string& symbol) {
  axis->setScaleType(QCPAxis::stLogarithmic);
  axis->setTicker(QSharedPointer<LogTicker>::create(2.0, true));
  axis->setNumberFormat(QStringLiteral("f"));
  axis->setNumberPrecision(0);
  axis->setTickLabelRotation(0);
  axis->setLabel(QObject::tr("extent of %1 (elements)").arg(plain_text(symbol)));
}

bool fit_labels(QCustomPlot& plot) {
  bool changed = false;
  for (QCPAxisRect* rect : plot.axisRects())
    for (QCPAxis* axis : rect->axes(QCPAxis::atLeft | QCPAxis::atRight)) {
      QString whole = axis->label();
      whole.replace(QLatin1Char('\n'), QLatin1Char(' '));
      const QString fitting = broken(whole, QFontMetrics(axis->labelFont()), rect->height());
      if (fitting == axis->label()) continue;
      axis->setLabel(fitting);
      changed = true;
    }
  return changed;
}

TimeUnit set_time_axis(QCPAxis* axis, const QString& label, double lowest, double highest) {
  const TimeUnit unit = time_unit_for(std::sqrt(lowest * highest));
  axis->setScaleType(QCPAxis::stLogarithmic);
  axis->setLabel(QStringLiteral("%1 (%2)").arg(label, unit.name));
  axis->setTicker(QSharedPointer<LogTicker>::create());
  axis->setNumberFormat(QStringLiteral("g"));
  axis->setNumberPrecision(5);
  axis->setRange(lowest / unit.ns / 1.15, highest / unit.ns * 1.15);
  return unit;
}

ShapeAxis::ShapeAxis(const std::vector<ShapeFacts>& shapes, QCPAxis* axis) {
  const bool one =
      !shapes.empty() && shapes.front().dims.size() == 1 && shapes.front().dims.begin()->second > 0;
  if (one) {
    symbol_ = shapes.front().dims.begin()->first;
    for (const ShapeFacts& s : shapes)
      places_.push_back(static_cast<double>(s.dims.begin()->second));
    set_extent_axis(axis, symbol_);
  } else {
    auto ticker = QSharedPointer<QCPAxisTickerText>::create();
    const size_t step = 1 + shapes.size() / 40;
    for (size_t i = 0; i < shapes.size(); ++i) {
      places_.push_back(static_cast<double>(i));
      if (i % step == 0) ticker->addTick(static_cast<double>(i), plain_text(shapes[i].key, 40));
    }
    axis->setScaleType(QCPAxis::stLinear);
    axis->setTicker(ticker);
    axis->setTickLabelRotation(shapes.size() > 4 ? 60 : 0);
    axis->setLabel(QObject::tr("shape (elements), by growing work"));
  }
  axis->setRange(range());
}

QCPRange ShapeAxis::range() const {
  if (places_.empty()) return {0, 1};
  if (by_extent()) return {places_.front() / 1.2, places_.back() * 1.2};
  return {-0.7, static_cast<double>(places_.size()) - 0.3};
}

}  // namespace nimble::gui
