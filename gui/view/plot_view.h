// A window that is a plot. Its marks (points, cells, bars) are what the pointer and the arrow keys
// go to: each has a text, shown in the status line and read to screen readers, and a choice that a
// click or Enter makes.
#pragma once

#include <qcustomplot.h>

#include "gui/view/axes.h"
#include "gui/view/theme.h"
#include "gui/view/view.h"

namespace nimble::gui {

struct Mark {
  double x = 0, y = 0;  // in the axes' units
  QString text;
  Choice choice;  // parts that are empty stay as they are
};

class PlotView : public View {
  Q_OBJECT
 public:
  PlotView(const ViewInfo& info, Context& context);

  QCustomPlot& plot() const { return *plot_; }
  const std::vector<Mark>& marks() const { return marks_; }
  int cursor() const { return cursor_; }  // a mark, or -1
  void draw(QPainter& painter, const QSize& size) override;

 protected:
  // Marks of what was just drawn. The cursor goes to the one that has the selection's choice.
  void set_marks(std::vector<Mark> marks);
  void move_cursor(int mark);
  // Whether a mark is what is selected now.
  virtual bool is_selected(const Mark& mark) const;
  // The mark that the pointer is at, or -1; by default the nearest within reach.
  virtual int mark_at(const QPointF& pixel) const { return nearest(pixel); }
  // A click or Enter on a mark, besides what its choice selects.
  virtual void mark_chosen(int /*mark*/) {}
  // Called when the palette changed, with the axes dressed: colours of what is plotted.
  virtual void redraw() = 0;
  // Both axes to what holds all that is drawn.
  virtual void show_all();

  bool eventFilter(QObject* object, QEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  int nearest(const QPointF& pixel) const;
  int neighbour(int key) const;
  bool press(int key, Qt::KeyboardModifiers modifiers);
  void choose(int mark);
  QPointF pixel_of(const Mark& mark) const;
  void follow_selection();
  void wrap_legend(int width);

  QCustomPlot* plot_;
  QCPItemTracer *tracer_, *selected_;
  std::vector<Mark> marks_;
  int cursor_ = -1;
  QPointF pressed_at_;
};

}  // namespace nimble::gui
