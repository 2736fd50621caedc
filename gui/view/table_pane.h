// A table with a field that filters it: what windows of rows are made of.
#pragma once

#include <QTableView>
#include <QWidget>

#include "gui/model/rows_model.h"

class QLineEdit;

namespace nimble::gui {

// A QTableView in the house's manner: rows are chosen whole, Ctrl+C copies them, Enter opens one.
class Rows : public QTableView {
  Q_OBJECT
 public:
  explicit Rows(QWidget* parent = nullptr);
  // Widths by the header and the first rows in sight, none wider than `most` pixels.
  void fit_columns(int most = 420);

 signals:
  void row_chosen(const QModelIndex& index);  // by Enter or a click

 protected:
  void keyPressEvent(QKeyEvent* event) override;
};

class TablePane : public QWidget {
  Q_OBJECT
 public:
  explicit TablePane(std::vector<PagedColumn> columns, QWidget* parent = nullptr);

  void set_rows(std::vector<PagedRow> rows);
  // Makes the row current whose choice `is_it`, without telling anybody.
  void show_row(const std::function<bool(const Choice&)>& is_it);
  const PagedRow* current() const;
  TableData table() const;
  Rows& rows() const { return *rows_; }
  QLineEdit& filter() const { return *filter_; }
  RowsModel& model() const { return *model_; }
  int count() const;  // that the filter leaves

 signals:
  void chosen(const nimble::gui::PagedRow& row);

 private:
  RowsModel* model_;
  RowsFilter* filtered_;
  Rows* rows_;
  QLineEdit* filter_;
  bool fitted_ = false, quiet_ = false;
};

}  // namespace nimble::gui
