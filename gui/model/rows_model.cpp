#include "gui/model/rows_model.h"

#include "gui/model/units.h"

namespace nimble::gui {

RowsModel::RowsModel(std::vector<PagedColumn> columns, QObject* parent)
    : QAbstractTableModel(parent), columns_(std::move(columns)) {}

void RowsModel::set_rows(std::vector<PagedRow> rows) {
  // Rows that only changed their content keep the view's place and selection.
  if (rows.size() == rows_.size()) {
    rows_ = std::move(rows);
    if (!rows_.empty()) emit dataChanged(index(0, 0), index(rowCount() - 1, columnCount() - 1));
    return;
  }
  beginResetModel();
  rows_ = std::move(rows);
  endResetModel();
}

int RowsModel::rowCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

int RowsModel::columnCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(columns_.size());
}

QVariant RowsModel::data(const QModelIndex& index, int role) const {
  if (!index.isValid()) return {};
  const PagedRow& row = rows_[static_cast<size_t>(index.row())];
  const auto column = static_cast<size_t>(index.column());
  switch (role) {
    case Qt::DisplayRole:
      return column < row.cells.size() ? row.cells[column] : QVariant();
    case Qt::ToolTipRole:
      return column < row.cells.size() ? QVariant(plain_tool_tip(row.cells[column].toString()))
                                       : QVariant();
    case PagedModel::kRawRole:
      return column < row.raw.size() ? row.raw[column] : QVariant();
    case Qt::TextAlignmentRole:
      return static_cast<int>((columns_[column].number ? Qt::AlignRight : Qt::AlignLeft) |
                              Qt::AlignVCenter);
    default:
      return {};
  }
}

QVariant RowsModel::headerData(int section, Qt::Orientation orientation, int role) const {
  if (orientation == Qt::Vertical || section < 0 || section >= columnCount()) return {};
  const PagedColumn& column = columns_[static_cast<size_t>(section)];
  if (role == Qt::DisplayRole) return column.title;
  if (role == Qt::ToolTipRole) return column.tip;
  if (role == Qt::TextAlignmentRole)
    return static_cast<int>((column.number ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignVCenter);
  return {};
}

RowsFilter::RowsFilter(QObject* parent) : QSortFilterProxyModel(parent) {
  setSortRole(PagedModel::kRawRole);
}

void RowsFilter::set_text(const QString& text) {
  text_ = text;
  invalidateFilter();
}

bool RowsFilter::filterAcceptsRow(int row, const QModelIndex& parent) const {
  if (text_.isEmpty()) return true;
  for (int column = 0; column < sourceModel()->columnCount(parent); ++column)
    if (sourceModel()
            ->index(row, column, parent)
            .data()
            .toString()
            .contains(text_, Qt::CaseInsensitive))
      return true;
  return false;
}

// What is missing is the least.
bool RowsFilter::lessThan(const QModelIndex& left, const QModelIndex& right) const {
  const QVariant l = left.data(PagedModel::kRawRole), r = right.data(PagedModel::kRawRole);
  if (!l.isValid() || !r.isValid()) return !l.isValid() && r.isValid();
  return QSortFilterProxyModel::lessThan(left, right);
}

TableData table_of(const QAbstractItemModel& model, const std::vector<PagedColumn>& columns) {
  TableData table;
  for (const PagedColumn& c : columns) table.columns.push_back(c.name);
  for (int row = 0; row < model.rowCount(); ++row) {
    auto& cells = table.rows.emplace_back();
    for (int column = 0; column < model.columnCount(); ++column)
      cells.push_back(model.index(row, column).data(PagedModel::kRawRole));
  }
  return table;
}

}  // namespace nimble::gui
