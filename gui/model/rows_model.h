// A short table that is held whole (workloads, campaigns, entries of a dispatch table): the same
// columns and rows as a PagedModel's, with sorting and filtering in memory.
#pragma once

#include <QAbstractTableModel>
#include <QSortFilterProxyModel>

#include "gui/model/paged_model.h"
#include "gui/model/table_data.h"

namespace nimble::gui {

class RowsModel : public QAbstractTableModel {
  Q_OBJECT
 public:
  explicit RowsModel(std::vector<PagedColumn> columns, QObject* parent = nullptr);
  void set_rows(std::vector<PagedRow> rows);

  int rowCount(const QModelIndex& parent = {}) const override;
  int columnCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role) const override;
  const PagedRow& row(int at) const { return rows_[static_cast<size_t>(at)]; }
  const std::vector<PagedColumn>& columns() const { return columns_; }

 private:
  std::vector<PagedColumn> columns_;
  std::vector<PagedRow> rows_;
};

// Sorts by what is exported, not by what is shown, and keeps rows that have the text in any column.
class RowsFilter : public QSortFilterProxyModel {
  Q_OBJECT
 public:
  explicit RowsFilter(QObject* parent = nullptr);
  void set_text(const QString& text);

 protected:
  bool filterAcceptsRow(int row, const QModelIndex& parent) const override;
  bool lessThan(const QModelIndex& left, const QModelIndex& right) const override;

 private:
  QString text_;
};

// The rows of `model` in its order, as they are exported.
TableData table_of(const QAbstractItemModel& model, const std::vector<PagedColumn>& columns);

}  // namespace nimble::gui
