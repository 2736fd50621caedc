// What a window stands in: where there is less room than it needs, it can be scrolled, so that the
// program's least size does not depend on what its windows have.
#pragma once

#include <QScrollArea>

namespace nimble::gui {

class ViewFrame final : public QScrollArea {
 public:
  explicit ViewFrame(QWidget* view);
  QSize minimumSizeHint() const override { return {120, 90}; }
  QSize sizeHint() const override;

 protected:
  void resizeEvent(QResizeEvent* event) override;
  bool eventFilter(QObject* object, QEvent* event) override;

 private:
  // The room that there is, or what the view needs at its width.
  void fit();
  int bar_of(Qt::Orientation direction) const;  // how thick it is
};

}  // namespace nimble::gui
