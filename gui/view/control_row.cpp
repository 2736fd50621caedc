#include "gui/view/control_row.h"

#include <QWidget>
#include <algorithm>

namespace nimble::gui {
namespace {

constexpr int kGap = 6;

// A widget that stretches may be as narrow as it can be.
int width_of(const QLayoutItem& item, int stretch) {
  return stretch > 0 ? item.minimumSize().width()
                     : std::max(item.minimumSize().width(), item.sizeHint().width());
}

}  // namespace

ControlRow::~ControlRow() {
  for (const Item& i : items_) delete i.item;
}

void ControlRow::addItem(QLayoutItem* item) {
  items_.push_back({item, 0});
}

void ControlRow::addWidget(QWidget* widget, int stretch) {
  QLayout::addWidget(widget);
  items_.back().stretch = stretch;
}

QLayoutItem* ControlRow::itemAt(int index) const {
  return index >= 0 && index < count() ? items_[static_cast<size_t>(index)].item : nullptr;
}

QLayoutItem* ControlRow::takeAt(int index) {
  QLayoutItem* item = itemAt(index);
  if (item) items_.erase(items_.begin() + index);
  return item;
}

QSize ControlRow::sizeHint() const {
  QSize size(0, 0);
  for (const Item& i : items_) {
    if (i.item->isEmpty()) continue;
    size.rwidth() += (size.width() > 0 ? kGap : 0) + i.item->sizeHint().width();
    size.setHeight(std::max(size.height(), i.item->sizeHint().height()));
  }
  return size;
}

QSize ControlRow::minimumSize() const {
  QSize size(0, 0);
  for (const Item& i : items_)
    if (!i.item->isEmpty())
      size = size.expandedTo({width_of(*i.item, i.stretch), i.item->sizeHint().height()});
  return size;
}

void ControlRow::setGeometry(const QRect& rect) {
  QLayout::setGeometry(rect);
  arrange(rect, true);
}

int ControlRow::arrange(const QRect& rect, bool place) const {
  int y = rect.y();
  for (size_t begin = 0; begin < items_.size();) {
    int width = 0, height = 0;
    size_t end = begin;
    for (; end < items_.size(); ++end) {
      const QLayoutItem& item = *items_[end].item;
      if (item.isEmpty()) continue;
      const int next = width + (width > 0 ? kGap : 0) + width_of(item, items_[end].stretch);
      if (width > 0 && next > rect.width()) break;
      width = next;
      height = std::max(height, item.sizeHint().height());
    }
    if (height > 0 && y > rect.y()) y += kGap;
    if (place) place_line(begin, end, QRect(rect.x(), y, rect.width(), height));
    y += height;
    begin = end;
  }
  return y - rect.y();
}

void ControlRow::place_line(size_t begin, size_t end, QRect line) const {
  int left = line.width(), stretches = 0, shown = 0;
  for (size_t i = begin; i < end; ++i) {
    if (items_[i].item->isEmpty()) continue;
    left -= width_of(*items_[i].item, items_[i].stretch) + (shown++ > 0 ? kGap : 0);
    stretches += items_[i].stretch;
  }
  int x = line.x();
  for (size_t i = begin; i < end; ++i) {
    const auto [item, stretch] = items_[i];
    if (item->isEmpty()) continue;
    int width = width_of(*item, stretch);
    if (stretch > 0 && left > 0) width += left * stretch / stretches;
    width = std::min(width, line.width());
    const int height = item->sizeHint().height();
    item->setGeometry(QRect(x, line.y() + (line.height() - height) / 2, width, height));
    x += width + kGap;
  }
}

}  // namespace nimble::gui
