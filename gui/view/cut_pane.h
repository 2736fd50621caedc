// Where the dispatch editor's plot cuts through the shapes: a slider for each symbol that has no
// axis, and for each remainder that the tree asks for a strip with the entry of each remainder.
#pragma once

#include <QWidget>
#include <map>
#include <vector>

#include "gui/model/dispatch_tree.h"

class QFormLayout;

namespace nimble::gui {

// The remainders 0, 1, …, t - 1 of a symbol side by side, each in the colour of the entry that
// serves the place with the symbol moved to that remainder. A click, or an arrow key, moves it.
class RemainderStrip final : public QWidget {
  Q_OBJECT
 public:
  explicit RemainderStrip(Feature feature, QWidget* parent = nullptr);
  void show_place(const DispatchTree& tree, int64_t threads, const db::Dims& place);
  const Feature& feature() const { return feature_; }
  // By remainder.
  const std::vector<int64_t>& entries() const { return entries_; }
  QSize sizeHint() const override { return {200, 20}; }

 Q_SIGNALS:
  void chosen(const std::string& symbol, int64_t extent);

 protected:
  void paintEvent(QPaintEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  bool event(QEvent* event) override;

 private:
  void choose(int64_t remainder);
  int64_t remainder_at(double x) const;
  int64_t extent_of(int64_t remainder) const { return first_ + remainder; }

  Feature feature_;
  std::vector<int64_t> entries_;
  int64_t first_ = 0, now_ = 0;  // the extent of remainder 0; the remainder of the place
};

class CutPane final : public QWidget {
  Q_OBJECT
 public:
  explicit CutPane(QWidget* parent = nullptr);
  // `extents`: of each symbol those that were measured, ascending. Symbols in `on_axes` get no
  // slider. The place stays where it is unless it is of other symbols.
  void show_table(const DispatchTree& tree, int64_t threads,
                  const std::map<std::string, std::vector<int64_t>>& extents,
                  const std::vector<std::string>& on_axes);
  // The extents at which the plot cuts, and the strips ask.
  const db::Dims& place() const { return place_; }
  void move_to(const db::Dims& place) { place_ = place; }

 Q_SIGNALS:
  void moved();  // by hand

 private:
  void move(const std::string& symbol, int64_t extent);
  void make_rows(const std::vector<std::string>& sliders, const std::vector<Feature>& strips);

  QFormLayout* rows_;
  std::vector<std::string> sliders_;  // what there are rows for
  std::vector<Feature> strips_;
  std::map<std::string, std::vector<int64_t>> extents_;
  db::Dims place_;
};

}  // namespace nimble::gui
