#include "gui/view/plot_view.h"

#include <QAccessible>
#include <cmath>

#include "gui/model/units.h"

namespace nimble::gui {
namespace {

constexpr double kReach = 24;  // how far the pointer may be from a mark, in pixels

}  // namespace

PlotView::PlotView(const ViewInfo& info, Context& context) : View(info, context) {
  plot_ = new QCustomPlot;
  plot_->setObjectName(QStringLiteral("plot"));
  plot_->setAccessibleName(tr(info.title));
  plot_->setAccessibleDescription(tr(
      "A plot. The arrow keys go from point to point, Enter selects one; plus, minus and 0 zoom."));
  plot_->setFocusPolicy(Qt::StrongFocus);
  plot_->setMinimumSize(280, 190);
  plot_->setMouseTracking(true);
  plot_->setInteractions(QCP::iRangeDrag | QCP::iRangeZoom);
  plot_->setNoAntialiasingOnDrag(true);
  // As they are: a hash with an "e" in it is no number with an exponent.
  for (QCPAxis* axis : {plot_->xAxis, plot_->yAxis}) axis->setNumberFormat(QStringLiteral("g"));
  // Items and their pens outlive changes of what is plotted.
  plot_->addLayer(QStringLiteral("cursor"), plot_->layer(QStringLiteral("overlay")),
                  QCustomPlot::limBelow);
  const auto make_tracer = [&](double size) {
    auto* tracer = new QCPItemTracer(plot_);
    tracer->setLayer(QStringLiteral("cursor"));
    tracer->setStyle(QCPItemTracer::tsCircle);
    tracer->setSize(size);
    tracer->setVisible(false);
    return tracer;
  };
  selected_ = make_tracer(15);
  tracer_ = make_tracer(9);
  connect(plot_, &QCustomPlot::beforeReplot, this,
          [this] { wrap_legend(plot_->viewport().width()); });
  connect(plot_, &QCustomPlot::afterReplot, this, [this] {
    if (fit_labels(*plot_)) plot_->replot(QCustomPlot::rpQueuedReplot);
  });
  plot_->installEventFilter(this);
  set_content(plot_);
  dress(*plot_, palette());
  connect(&context.selection, &Selection::changed, this, &PlotView::follow_selection);
}

void PlotView::draw(QPainter& painter, const QSize& size) {
  painter.fillRect(QRect(QPoint(), size), palette().color(QPalette::Base));
  painter.setPen(palette().color(QPalette::Text));
  QFont bold = font();
  bold.setBold(true);
  painter.setFont(bold);
  const int top = QFontMetrics(bold).height() + 10;
  const QString title =
      QFontMetrics(bold).elidedText(heading(), Qt::ElideMiddle, size.width() - 16);
  painter.drawText(QRect(8, 0, size.width() - 16, top), Qt::AlignLeft | Qt::AlignVCenter, title);
  if (!message().isEmpty()) {
    painter.drawText(QRect(QPoint(), size), Qt::AlignCenter | Qt::TextWordWrap, message());
    return;
  }
  // QCustomPlot draws with a painter of its own kind: a picture of its commands is played here.
  QPicture picture;
  {
    QCPPainter own(&picture);
    own.setMode(QCPPainter::pmVectorized);
    own.setMode(QCPPainter::pmNoCaching);
    wrap_legend(size.width());
    const auto paint = [&](QCPPainter& painter) {
      plot_->toPainter(&painter, size.width(), size.height() - top);
    };
    {
      // Once for the lengths of the axes alone: labels are fitted to them.
      QPicture unseen;
      QCPPainter trial(&unseen);
      trial.setMode(QCPPainter::pmVectorized);
      trial.setMode(QCPPainter::pmNoCaching);
      paint(trial);
    }
    fit_labels(*plot_);
    paint(own);
  }
  plot_->replot();  // toPainter laid it out for the other size
  painter.drawPicture(0, top, picture);
}

// The legend stands above what is drawn, where it hides no point; as many names side by side as
// have room. One that is not shown stays out of the layout, which it would narrow.
void PlotView::wrap_legend(int width) {
  QCPLegend& legend = *plot_->legend;
  if (!legend.visible()) return;
  if (legend.layout() != plot_->plotLayout()) {
    plot_->plotLayout()->insertRow(0);
    plot_->plotLayout()->addElement(0, 0, &legend);
    plot_->plotLayout()->setRowStretchFactor(0, 0.001);
    legend.setFillOrder(QCPLegend::foColumnsFirst);
  }
  int widest = 1, count = 0;
  for (int i = 0; i < legend.itemCount(); ++i)
    if (const QCPAbstractLegendItem* item = legend.item(i)) {  // a row may have empty cells
      widest = std::max(widest, item->minimumOuterSizeHint().width());
      ++count;
    }
  const int columns =
      std::clamp((width - 40) / (widest + legend.columnSpacing()), 1, std::max(count, 1));
  if (legend.wrap() == columns) return;
  legend.setWrap(columns);
  legend.setFillOrder(QCPLegend::foColumnsFirst, true);  // arranges anew
}

void PlotView::set_marks(std::vector<Mark> marks) {
  marks_ = std::move(marks);
  cursor_ = -1;
  tracer_->setVisible(false);
  follow_selection();
}

bool PlotView::is_selected(const Mark& mark) const {
  const Choice& now = context().selection.now();
  const auto agrees = [](const std::string& part, const std::string& chosen) {
    return part.empty() || part == chosen;
  };
  return agrees(mark.choice.shape, now.shape) && agrees(mark.choice.config, now.config) &&
         agrees(mark.choice.campaign, now.campaign) && agrees(mark.choice.table, now.table) &&
         agrees(mark.choice.measurement, now.measurement) && !(mark.choice == Choice{});
}

void PlotView::follow_selection() {
  selected_->setVisible(false);
  for (size_t i = 0; i < marks_.size(); ++i) {
    if (!is_selected(marks_[i])) continue;
    selected_->position->setCoords(marks_[i].x, marks_[i].y);
    selected_->setVisible(true);
    if (cursor_ < 0) cursor_ = static_cast<int>(i);
    break;
  }
  QPen pen(ink(Ink::kCursor, palette()), 2);
  selected_->setPen(pen);
  pen.setStyle(Qt::DotLine);
  tracer_->setPen(pen);
  plot_->replot(QCustomPlot::rpQueuedReplot);
}

QPointF PlotView::pixel_of(const Mark& mark) const {
  return {plot_->xAxis->coordToPixel(mark.x), plot_->yAxis->coordToPixel(mark.y)};
}

int PlotView::nearest(const QPointF& pixel) const {
  int best = -1;
  double least = kReach * kReach;
  for (size_t i = 0; i < marks_.size(); ++i) {
    const QPointF d = pixel_of(marks_[i]) - pixel;
    const double distance = QPointF::dotProduct(d, d);
    if (distance <= least) {
      least = distance;
      best = static_cast<int>(i);
    }
  }
  return best;
}

// The nearest mark that lies more in the direction of the key than aside of it.
int PlotView::neighbour(int key) const {
  if (marks_.empty()) return -1;
  if (cursor_ < 0) return 0;
  const QPointF from = pixel_of(marks_[static_cast<size_t>(cursor_)]);
  int best = cursor_;
  double least = INFINITY;
  for (size_t i = 0; i < marks_.size(); ++i) {
    const QPointF d = pixel_of(marks_[i]) - from;
    const double along = key == Qt::Key_Right  ? d.x()
                         : key == Qt::Key_Left ? -d.x()
                         : key == Qt::Key_Up   ? -d.y()
                                               : d.y();
    const double aside = key == Qt::Key_Right || key == Qt::Key_Left ? d.y() : d.x();
    if (along < 0.5) continue;
    const double cost = along + 3 * std::abs(aside);
    if (cost < least) {
      least = cost;
      best = static_cast<int>(i);
    }
  }
  return best;
}

void PlotView::move_cursor(int mark) {
  if (mark < 0 || mark >= static_cast<int>(marks_.size())) return;
  cursor_ = mark;
  const Mark& m = marks_[static_cast<size_t>(mark)];
  tracer_->position->setCoords(m.x, m.y);
  tracer_->setVisible(true);
  set_status(m.text);
  plot_->setAccessibleDescription(m.text);
  QAccessibleEvent event(plot_, QAccessible::DescriptionChanged);
  QAccessible::updateAccessibility(&event);
  plot_->layer(QStringLiteral("cursor"))->replot();
  plot_->replot(QCustomPlot::rpQueuedReplot);
}

void PlotView::choose(int mark) {
  if (mark < 0) return;
  const Choice& wanted = marks_[static_cast<size_t>(mark)].choice;
  const auto take = [](std::string& part, const std::string& from) {
    if (!from.empty()) part = from;
  };
  // Another workload first: what hangs on the one before goes with it.
  Choice next = context().selection.now();
  take(next.hardware, wanted.hardware);
  take(next.workload, wanted.workload);
  context().selection.set(next);
  next = context().selection.now();
  take(next.shape, wanted.shape);
  take(next.config, wanted.config);
  take(next.campaign, wanted.campaign);
  take(next.table, wanted.table);
  take(next.trial, wanted.trial);
  take(next.measurement, wanted.measurement);
  context().selection.set(next);
  mark_chosen(mark);
}

void PlotView::show_all() {
  plot_->rescaleAxes();
}

bool PlotView::press(int key, Qt::KeyboardModifiers modifiers) {
  if (modifiers & (Qt::ControlModifier | Qt::AltModifier)) return false;
  switch (key) {
    case Qt::Key_Left:
    case Qt::Key_Right:
    case Qt::Key_Up:
    case Qt::Key_Down:
      move_cursor(neighbour(key));
      return true;
    case Qt::Key_Home:
      move_cursor(marks_.empty() ? -1 : 0);
      return true;
    case Qt::Key_End:
      move_cursor(static_cast<int>(marks_.size()) - 1);
      return true;
    case Qt::Key_Return:
    case Qt::Key_Enter:
    case Qt::Key_Space:
      choose(cursor_);
      return true;
    case Qt::Key_Plus:
    case Qt::Key_Equal:
    case Qt::Key_Minus: {
      const double factor = key == Qt::Key_Minus ? 1.25 : 0.8;
      plot_->xAxis->scaleRange(factor);
      // Not where the wheel does not either.
      if (plot_->axisRect()->rangeZoomAxis(Qt::Vertical)) plot_->yAxis->scaleRange(factor);
      plot_->replot(QCustomPlot::rpQueuedReplot);
      return true;
    }
    case Qt::Key_0:
      show_all();
      plot_->replot(QCustomPlot::rpQueuedReplot);
      return true;
    default:
      return false;
  }
}

bool PlotView::eventFilter(QObject* object, QEvent* event) {
  if (object != plot_) return View::eventFilter(object, event);
  if (event->type() == QEvent::KeyPress) {
    const auto* key = static_cast<QKeyEvent*>(event);
    if (press(key->key(), key->modifiers())) return true;
  }
  if (event->type() == QEvent::MouseMove) {
    const auto* mouse = static_cast<QMouseEvent*>(event);
    if (mouse->buttons() == Qt::NoButton) {
      const int mark = mark_at(mouse->position());
      if (mark >= 0 && mark != cursor_) move_cursor(mark);
      if (mark >= 0) set_status(marks_[static_cast<size_t>(mark)].text);
    }
  }
  if (event->type() == QEvent::MouseButtonPress)
    pressed_at_ = static_cast<QMouseEvent*>(event)->position();
  if (event->type() == QEvent::MouseButtonRelease) {
    const auto* mouse = static_cast<QMouseEvent*>(event);
    const bool dragged = (mouse->position() - pressed_at_).manhattanLength() > 4;
    if (mouse->button() == Qt::LeftButton && !dragged) {
      const int mark = mark_at(mouse->position());
      if (mark >= 0) {
        move_cursor(mark);
        choose(mark);
      }
    }
  }
  return View::eventFilter(object, event);
}

void PlotView::changeEvent(QEvent* event) {
  View::changeEvent(event);
  if (event->type() != QEvent::PaletteChange) return;
  dress(*plot_, palette());
  redraw();
}

}  // namespace nimble::gui
