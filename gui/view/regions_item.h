// The ground of the dispatch editor's plot: each point in the colour of the entry that serves it.
#pragma once

#include <qcustomplot.h>

#include <functional>

namespace nimble::gui {

// Colours of entries, distinct for people who cannot tell red from green; the ninth is the first.
QColor entry_colour(int64_t entry, bool dark);

class RegionsItem final : public QCPAbstractItem {
 public:
  // The entry at a point of the axes.
  using EntryAt = std::function<int64_t(double x, double y)>;

  RegionsItem(QCPAxis* x, QCPAxis* y);
  // `along_x_only`: the entry does not depend on y.
  void set(EntryAt entry_at, bool along_x_only, bool dark);
  double selectTest(const QPointF&, bool, QVariant*) const override { return -1; }

 protected:
  void draw(QCPPainter* painter) override;

 private:
  QCPAxis *x_, *y_;
  EntryAt entry_at_;
  bool along_x_only_ = true, dark_ = false;
  // What was drawn last, while neither the axes nor what is served changed.
  QImage image_;
  QCPRange image_x_, image_y_;
};

}  // namespace nimble::gui
