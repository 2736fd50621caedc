#include "gui/view/view_frame.h"

#include <QEvent>
#include <QLayout>
#include <QScrollBar>

namespace nimble::gui {

ViewFrame::ViewFrame(QWidget* view) {
  setFrameShape(NoFrame);
  setFocusPolicy(Qt::NoFocus);  // the keys are the view's
  setWidget(view);
  setFocusProxy(view);
}

QSize ViewFrame::sizeHint() const {
  return widget() ? widget()->sizeHint() : QScrollArea::sizeHint();
}

int ViewFrame::bar_of(Qt::Orientation direction) const {
  return direction == Qt::Vertical ? verticalScrollBar()->sizeHint().width()
                                   : horizontalScrollBar()->sizeHint().height();
}

void ViewFrame::resizeEvent(QResizeEvent* event) {
  QScrollArea::resizeEvent(event);
  fit();
}

bool ViewFrame::eventFilter(QObject* object, QEvent* event) {
  const bool seen = QScrollArea::eventFilter(object, event);
  if (object == widget() && event->type() == QEvent::LayoutRequest) fit();
  return seen;
}

void ViewFrame::fit() {
  const QLayout* layout = widget() ? widget()->layout() : nullptr;
  if (!layout) return;
  const QSize room = maximumViewportSize();
  const auto needed = [&](int width) {
    return layout->hasHeightForWidth() ? layout->minimumHeightForWidth(width)
                                       : layout->minimumSize().height();
  };
  const int least = layout->minimumSize().width();
  // A bar for one direction takes room from the other.
  const bool wide = least > room.width();
  QSize size(std::max(room.width(), least), room.height() - (wide ? bar_of(Qt::Horizontal) : 0));
  if (needed(size.width()) > size.height()) {
    size.setWidth(std::max(room.width() - bar_of(Qt::Vertical), least));
    size.setHeight(std::max(size.height(), needed(size.width())));
  }
  if (widget()->size() != size) widget()->resize(size);
}

}  // namespace nimble::gui
