#include "gui/view/border_lines.h"

#include <cmath>

#include "gui/model/units.h"

namespace nimble::gui {
namespace {

constexpr double kGrab = 6;  // pixels from a border within which the pointer takes it

}  // namespace

void BorderLines::clear() {
  for (const Border& b : borders_) {
    plot_.removeItem(b.line);
    plot_.removeItem(b.label);
  }
  borders_.clear();
}

void BorderLines::show(const DispatchTree& tree, const std::string& x, const std::string& y,
                       const QPalette& palette) {
  clear();
  plane_ = !y.empty();
  const auto& nodes = tree.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const TreeNode& n = nodes[i];
    const bool interval =
        n.feature.kind == Feature::Kind::kSymbol || n.feature.kind == Feature::Kind::kCeilDiv;
    const bool across = n.feature.a == x;
    if (n.leaf || !interval || (!across && !(plane_ && n.feature.a == y))) continue;
    Border b{i, across, n.feature.t, n, borders_.size() % 4};
    b.line = new QCPItemStraightLine(&plot_);
    b.line->setPen(QPen(palette.color(QPalette::Text), 1.6));
    b.line->setSelectable(false);
    b.label = new QCPItemText(&plot_);
    b.label->setColor(palette.color(QPalette::Text));
    b.label->setPadding(QMargins(4, 1, 4, 1));
    b.label->setBrush(QBrush(palette.color(QPalette::Base)));
    place(b);
    borders_.push_back(b);
  }
}

// Between the last shape of one side and the first of the other.
double BorderLines::place_of(const Border& b) {
  const double edge = static_cast<double>(b.test.value) * static_cast<double>(b.step);
  return std::max(0.6, std::sqrt(edge * (edge + 1)));
}

void BorderLines::place(const Border& b) {
  const double at = place_of(b);
  const auto row = static_cast<double>(b.row);
  b.label->setText(plain_text(text_of(b.test)));
  if (b.across) {
    b.line->point1->setCoords(at, plane_ ? 1 : 0);
    b.line->point2->setCoords(at, plane_ ? 2 : 1);
    b.label->position->setTypeX(QCPItemPosition::ptPlotCoords);
    b.label->position->setTypeY(QCPItemPosition::ptAxisRectRatio);
    b.label->position->setCoords(at, 0.03 + 0.06 * row);
    b.label->setPositionAlignment(Qt::AlignTop | Qt::AlignLeft);
  } else {
    b.line->point1->setCoords(1, at);
    b.line->point2->setCoords(2, at);
    b.label->position->setTypeX(QCPItemPosition::ptAxisRectRatio);
    b.label->position->setTypeY(QCPItemPosition::ptPlotCoords);
    b.label->position->setCoords(0.03 + 0.2 * row, at);
    b.label->setPositionAlignment(Qt::AlignBottom | Qt::AlignLeft);
  }
}

int BorderLines::at(const QPointF& pixel) const {
  if (!plot_.axisRect()->rect().contains(pixel.toPoint())) return -1;
  int best = -1;
  double least = kGrab;
  for (size_t i = 0; i < borders_.size(); ++i) {
    const Border& b = borders_[i];
    const double distance = b.across ? std::abs(plot_.xAxis->coordToPixel(place_of(b)) - pixel.x())
                                     : std::abs(plot_.yAxis->coordToPixel(place_of(b)) - pixel.y());
    if (distance <= least) {
      least = distance;
      best = static_cast<int>(i);
    }
  }
  return best;
}

int64_t BorderLines::value_at(int line, const QPointF& pixel) const {
  const Border& b = of(line);
  const double at =
      b.across ? plot_.xAxis->pixelToCoord(pixel.x()) : plot_.yAxis->pixelToCoord(pixel.y());
  return std::max<int64_t>(0, std::llround(at / static_cast<double>(b.step) - 0.5));
}

void BorderLines::drag(int line, const QPointF& pixel) {
  Border& b = borders_[static_cast<size_t>(line)];
  b.test.value = value_at(line, pixel);
  place(b);
  plot_.replot(QCustomPlot::rpQueuedReplot);
}

}  // namespace nimble::gui
