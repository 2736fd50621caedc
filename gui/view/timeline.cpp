#include "gui/view/timeline.h"

#include <algorithm>
#include <cmath>

#include "gui/view/theme.h"

namespace nimble::gui {
namespace {

constexpr double kBarHeight = 0.8;  // of a lane

Ink ink_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::kFunction:
      return Ink::kOther;
    case SpanKind::kInstruction:
      return Ink::kDefault;
    case SpanKind::kKernel:
      return Ink::kChosen;
  }
  return Ink::kOther;
}

// A unit of bytes that suits `most`: how many it has, and its name.
std::pair<double, QString> memory_unit_for(double most) {
  if (most >= 1024. * 1024 * 1024) return {1024. * 1024 * 1024, QStringLiteral("GiB")};
  if (most >= 1024. * 1024) return {1024. * 1024, QStringLiteral("MiB")};
  if (most >= 1024) return {1024, QStringLiteral("KiB")};
  return {1, QObject::tr("bytes")};
}

}  // namespace

QString bytes_text(int64_t bytes) {
  const auto [unit, name] = memory_unit_for(static_cast<double>(bytes));
  return number_text(static_cast<double>(bytes) / unit) + u' ' + name;
}

SpansItem::SpansItem(QCPAxis* x, QCPAxis* y) : QCPAbstractItem(x->parentPlot()), x_(x), y_(y) {
  setSelectable(false);
  setLayer(QStringLiteral("main"));
  setClipAxisRect(x->axisRect());
  setClipToAxisRect(true);
}

void SpansItem::set(std::shared_ptr<const RunTrace> trace, double unit_ns,
                    std::optional<uint32_t> chosen) {
  trace_ = std::move(trace);
  unit_ns_ = unit_ns;
  chosen_ = chosen;
}

void SpansItem::draw(QCPPainter* painter) {
  if (!trace_) return;
  const QPalette palette = parentPlot()->palette();
  const QRect box = x_->axisRect()->rect();
  std::vector<double> filled(static_cast<size_t>(trace_->lanes()), -1e9);  // up to which pixel
  const QFontMetrics metrics(parentPlot()->font());
  painter->setFont(parentPlot()->font());
  painter->setAntialiasing(false);
  for (const TraceSpan& s : trace_->spans) {
    const double from = x_->coordToPixel(static_cast<double>(s.start_ns) / unit_ns_);
    const double to = x_->coordToPixel(static_cast<double>(s.start_ns + s.ns) / unit_ns_);
    if (from > box.right()) break;  // they are sorted
    if (to < box.left()) continue;
    double& done = filled[static_cast<size_t>(s.lane)];
    const bool chosen = chosen_ == s.group;
    if (to < done + 0.5 && !chosen) continue;
    const double left = std::max<double>(from, box.left() - 2);
    const double right = std::max(left + 1, std::min<double>(to, box.right() + 2));
    done = std::max(done, right);
    const double y = TimeLine::y_of(s, *trace_);
    const double top = y_->coordToPixel(y + kBarHeight / 2);
    const double bottom = y_->coordToPixel(y - kBarHeight / 2);
    const QRectF bar(left, top, right - left, bottom - top);
    const QColor colour = chosen ? ink(Ink::kCursor, palette) : ink(ink_of(s.kind), palette);
    painter->fillRect(bar, colour);
    if (bar.width() < 4) continue;
    painter->setPen(palette.color(QPalette::Base));  // a gap between neighbours
    painter->drawLine(bar.topRight(), bar.bottomRight());
    if (bar.width() < 3 * metrics.averageCharWidth() || bar.height() < metrics.height() * 0.8)
      continue;
    painter->setPen(colour.lightnessF() > 0.5 ? Qt::black : Qt::white);
    painter->drawText(
        bar.adjusted(3, 0, -3, 0), Qt::AlignLeft | Qt::AlignVCenter,
        metrics.elidedText(s.name, Qt::ElideRight, static_cast<int>(bar.width()) - 6));
  }
}

double TimeLine::x_of(const TraceSpan& s) const {
  return (static_cast<double>(s.start_ns) + static_cast<double>(s.ns) / 2) / unit_.ns;
}

double TimeLine::y_of(const TraceSpan& span, const RunTrace& trace) {
  return trace.lanes() - 1 - span.lane;  // the first lane on top
}

void TimeLine::label_lanes() {
  auto names = QSharedPointer<QCPAxisTickerText>::create();
  for (int lane = 0; lane < trace_->depth; ++lane) {
    const bool deepest = lane + 1 == RunTrace::kMostDepth;
    names->addTick(trace_->lanes() - 1 - lane, deepest ? QObject::tr("depth ≥ %1").arg(lane + 1)
                                                       : QObject::tr("depth %1").arg(lane + 1));
  }
  names->addTick(1, QObject::tr("instructions"));
  names->addTick(0, QObject::tr("kernels"));
  plot_.yAxis->setScaleType(QCPAxis::stLinear);
  plot_.yAxis->setTicker(names);
  plot_.yAxis->setLabel(QObject::tr("calls"));
}

void TimeLine::draw_memory(const QPalette& palette) {
  int64_t most = 1;
  for (const MemoryAt& m : trace_->memory) most = std::max(most, m.bytes);
  const auto [unit, name] = memory_unit_for(static_cast<double>(most));
  memory_unit_ = unit;
  most_memory_ = static_cast<double>(most) / unit;
  auto* curve = new QCPGraph(memory_->axis(QCPAxis::atBottom), memory_->axis(QCPAxis::atLeft));
  curve->setLineStyle(QCPGraph::lsStepLeft);
  curve->setPen(QPen(ink(Ink::kBest, palette), 1.5));
  QColor ground = ink(Ink::kBest, palette);
  ground.setAlpha(60);
  curve->setBrush(ground);
  for (const MemoryAt& m : trace_->memory)
    curve->addData(static_cast<double>(m.at_ns) / unit_.ns, static_cast<double>(m.bytes) / unit);
  if (!trace_->memory.empty())
    curve->addData(static_cast<double>(trace_->ns) / unit_.ns,
                   static_cast<double>(trace_->memory.back().bytes) / unit);
  memory_->axis(QCPAxis::atLeft)->setLabel(QObject::tr("live (%1)").arg(name));
}

void TimeLine::show(std::shared_ptr<const RunTrace> trace, const QPalette& palette) {
  hide();
  trace_ = std::move(trace);
  unit_ = time_unit_for(static_cast<double>(std::max<int64_t>(trace_->ns, 1)));
  memory_ = new QCPAxisRect(&plot_, true);
  QCPLayoutGrid* grid = plot_.plotLayout();
  const int row = grid->rowCount();
  grid->addElement(row, 0, memory_);
  grid->setRowStretchFactor(row, 0.4);
  // The same margins left and right: equal times stand above each other.
  auto* margins = new QCPMarginGroup(&plot_);
  margins->setObjectName(QStringLiteral("margins"));
  plot_.axisRect(0)->setMarginGroup(QCP::msLeft | QCP::msRight, margins);
  memory_->setMarginGroup(QCP::msLeft | QCP::msRight, margins);
  QCPAxis* below = memory_->axis(QCPAxis::atBottom);
  memory_->setRangeDragAxes(below, nullptr);
  memory_->setRangeZoomAxes(below, nullptr);
  plot_.axisRect(0)->setRangeDragAxes(plot_.xAxis, nullptr);
  plot_.axisRect(0)->setRangeZoomAxes(plot_.xAxis, nullptr);
  using Follow = void (QCPAxis::*)(const QCPRange&);
  const auto changed = static_cast<Follow>(&QCPAxis::rangeChanged);
  together_ = QObject::connect(plot_.xAxis, changed, below,
                               [below](const QCPRange& range) { below->setRange(range); });
  QObject::connect(below, changed, plot_.xAxis,
                   [this](const QCPRange& range) { plot_.xAxis->setRange(range); });

  plot_.xAxis->setScaleType(QCPAxis::stLinear);
  plot_.xAxis->setTicker(QSharedPointer<QCPAxisTicker>::create());
  plot_.xAxis->setLabel({});
  plot_.xAxis->setTickLabelRotation(0);
  below->setLabel(QObject::tr("time from the beginning (%1)").arg(unit_.name));
  for (QCPAxis* axis : memory_->axes()) axis->setNumberFormat(QStringLiteral("g"));
  label_lanes();
  bars_ = new SpansItem(plot_.xAxis, plot_.yAxis);
  bars_->set(trace_, unit_.ns, chosen_);
  draw_memory(palette);
  dress(plot_, palette);
  show_all();
}

void TimeLine::hide() {
  QObject::disconnect(together_);
  if (bars_) plot_.removeItem(bars_);
  if (memory_) {
    plot_.plotLayout()->remove(memory_);
    plot_.plotLayout()->simplify();
  }
  if (auto* margins = plot_.findChild<QCPMarginGroup*>(QStringLiteral("margins"))) delete margins;
  plot_.axisRect(0)->setRangeDragAxes(plot_.xAxis, plot_.yAxis);
  plot_.axisRect(0)->setRangeZoomAxes(plot_.xAxis, plot_.yAxis);
  trace_.reset();
}

void TimeLine::choose(std::optional<uint32_t> group) {
  chosen_ = group;
  if (bars_) bars_->set(trace_, unit_.ns, chosen_);
}

void TimeLine::show_all() {
  if (!trace_ || !memory_) return;
  const double end = static_cast<double>(std::max<int64_t>(trace_->ns, 1)) / unit_.ns;
  plot_.xAxis->setRange(-0.01 * end, 1.01 * end);
  plot_.yAxis->setRange(-0.6, trace_->lanes() - 0.4);
  memory_->axis(QCPAxis::atLeft)->setRange(0, most_memory_ * 1.1);
}

int TimeLine::span_at(const QPointF& pixel) const {
  if (!trace_ || !plot_.axisRect(0)->rect().contains(pixel.toPoint())) return -1;
  const double x = plot_.xAxis->pixelToCoord(pixel.x()) * unit_.ns;
  const double pixel_ns = std::abs(plot_.xAxis->pixelToCoord(pixel.x() + 1) * unit_.ns - x);
  const auto lane =
      static_cast<int32_t>(trace_->lanes() - 1 - std::lround(plot_.yAxis->pixelToCoord(pixel.y())));
  int best = -1;
  double least = 2 * pixel_ns;  // beside a bar that is thinner than the pointer is exact
  for (size_t i = 0; i < trace_->spans.size(); ++i) {
    const TraceSpan& s = trace_->spans[i];
    const auto from = static_cast<double>(s.start_ns), to = from + static_cast<double>(s.ns);
    if (from > x + 2 * pixel_ns) break;
    if (s.lane != lane) continue;
    const double away = std::max({from - x, x - to, 0.0});
    if (away <= least) {
      least = away;
      best = static_cast<int>(i);
    }
  }
  return best;
}

QString TimeLine::memory_at(const QPointF& pixel) const {
  if (!trace_ || !memory_ || !memory_->rect().contains(pixel.toPoint())) return {};
  const auto at = static_cast<int64_t>(plot_.xAxis->pixelToCoord(pixel.x()) * unit_.ns);
  return QObject::tr("%1 live at %2")
      .arg(bytes_text(trace_->bytes_at(at)),
           time_text(static_cast<double>(std::max<int64_t>(at, 0))));
}

}  // namespace nimble::gui
