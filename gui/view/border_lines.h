// The borders of a dispatch tree as lines across the editor's plot, and what the pointer does with
// them.
#pragma once

#include <qcustomplot.h>

#include <string>
#include <vector>

#include "gui/model/dispatch_tree.h"

namespace nimble::gui {

class BorderLines {
 public:
  explicit BorderLines(QCustomPlot& plot) : plot_(plot) {}
  // A line for each test of a symbol that has an axis; `y` is empty where the other axis is none of
  // a symbol. In the colours of `palette`: a change of theme reaches the window before its plot.
  void show(const DispatchTree& tree, const std::string& x, const std::string& y,
            const QPalette& palette);
  void clear();
  // The line within reach of the pointer, or -1.
  int at(const QPointF& pixel) const;
  size_t node(int line) const { return of(line).node; }
  // Whether it is a value of the x axis.
  bool across(int line) const { return of(line).across; }
  // What the line's test would compare with at that place.
  int64_t value_at(int line, const QPointF& pixel) const;
  // Moves the line alone, with its label.
  void drag(int line, const QPointF& pixel);

 private:
  struct Border {
    size_t node = 0;
    bool across = true;
    int64_t step = 1;  // shapes per unit of the feature
    TreeNode test;
    size_t row = 0;  // of its label, so that labels don't lie upon each other
    QCPItemStraightLine* line = nullptr;
    QCPItemText* label = nullptr;
  };
  const Border& of(int line) const { return borders_[static_cast<size_t>(line)]; }
  static double place_of(const Border& b);
  void place(const Border& b);

  QCustomPlot& plot_;
  bool plane_ = false;
  std::vector<Border> borders_;
};

}  // namespace nimble::gui
