// The line of controls above a window's content: side by side, and over several lines where the
// window is narrow, so that none is cut off.
#pragma once

#include <QLayout>
#include <vector>

namespace nimble::gui {

class ControlRow final : public QLayout {
 public:
  using QLayout::addWidget;
  // What a line has left goes to its widgets by their stretch.
  void addWidget(QWidget* widget, int stretch);
  // What comes next keeps its size: a line is filled from the left.
  void addStretch(int /*stretch*/) {}

  ~ControlRow() override;
  void addItem(QLayoutItem* item) override;
  int count() const override { return static_cast<int>(items_.size()); }
  QLayoutItem* itemAt(int index) const override;
  QLayoutItem* takeAt(int index) override;
  QSize sizeHint() const override;
  QSize minimumSize() const override;
  bool hasHeightForWidth() const override { return true; }
  int heightForWidth(int width) const override { return arrange(QRect(0, 0, width, 0), false); }
  void setGeometry(const QRect& rect) override;

 private:
  struct Item {
    QLayoutItem* item;
    int stretch;
  };
  // The height that it takes.
  int arrange(const QRect& rect, bool place) const;
  void place_line(size_t begin, size_t end, QRect line) const;

  std::vector<Item> items_;
};

}  // namespace nimble::gui
