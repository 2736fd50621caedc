#include "gui/view/table_pane.h"

#include <QClipboard>
#include <QGuiApplication>
#include <QHeaderView>
#include <QKeyEvent>
#include <QLineEdit>
#include <QVBoxLayout>
#include <algorithm>

namespace nimble::gui {

Rows::Rows(QWidget* parent) : QTableView(parent) {
  setSelectionBehavior(SelectRows);
  setSelectionMode(ExtendedSelection);
  setEditTriggers(NoEditTriggers);
  setAlternatingRowColors(true);
  setShowGrid(false);
  setWordWrap(false);
  setTabKeyNavigation(false);  // Tab leaves the table
  setVerticalScrollMode(ScrollPerPixel);
  setHorizontalScrollMode(ScrollPerPixel);
  verticalHeader()->setVisible(false);
  // Every row is as high as a line: nothing is measured row by row.
  verticalHeader()->setSectionResizeMode(QHeaderView::Fixed);
  verticalHeader()->setDefaultSectionSize(fontMetrics().height() + 6);
  horizontalHeader()->setHighlightSections(false);
  horizontalHeader()->setStretchLastSection(true);
  connect(this, &QTableView::clicked, this, &Rows::row_chosen);
}

void Rows::keyPressEvent(QKeyEvent* event) {
  if ((event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter) &&
      currentIndex().isValid()) {
    emit row_chosen(currentIndex());
    return;
  }
  if (event->matches(QKeySequence::Copy)) {
    QStringList lines;
    QModelIndexList rows = selectionModel()->selectedRows();
    std::sort(rows.begin(), rows.end());
    for (const QModelIndex& row : rows) {
      QStringList cells;
      for (int column = 0; column < model()->columnCount(); ++column)
        cells << row.siblingAtColumn(column).data().toString();
      lines << cells.join('\t');
    }
    QGuiApplication::clipboard()->setText(lines.join('\n'));
    return;
  }
  QTableView::keyPressEvent(event);
}

void Rows::fit_columns(int most) {
  const int rows = std::min(model()->rowCount(), 40);
  for (int column = 0; column < model()->columnCount(); ++column) {
    const QString title = model()->headerData(column, Qt::Horizontal).toString();
    int width = horizontalHeader()->fontMetrics().horizontalAdvance(title) + 30;
    for (int row = 0; row < rows; ++row)
      width = std::max(
          width,
          fontMetrics().horizontalAdvance(model()->index(row, column).data().toString()) + 14);
    setColumnWidth(column, std::min(width, most));
  }
}

TablePane::TablePane(std::vector<PagedColumn> columns, QWidget* parent) : QWidget(parent) {
  model_ = new RowsModel(std::move(columns), this);
  filtered_ = new RowsFilter(this);
  filtered_->setSourceModel(model_);
  filter_ = new QLineEdit;
  filter_->setObjectName(QStringLiteral("filter"));
  filter_->setPlaceholderText(tr("Filter: text in any column"));
  filter_->setAccessibleName(tr("Filter"));
  filter_->setClearButtonEnabled(true);
  rows_ = new Rows;
  rows_->setObjectName(QStringLiteral("rows"));
  rows_->setModel(filtered_);
  rows_->setSortingEnabled(true);
  rows_->sortByColumn(-1, Qt::AscendingOrder);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(0, 0, 0, 0);
  column->addWidget(filter_);
  column->addWidget(rows_, 1);
  setFocusProxy(rows_);
  connect(filter_, &QLineEdit::textChanged, filtered_, &RowsFilter::set_text);
  connect(rows_, &Rows::row_chosen, this, [this](const QModelIndex& index) {
    if (!quiet_) emit chosen(model_->row(filtered_->mapToSource(index).row()));
  });
}

void TablePane::set_rows(std::vector<PagedRow> rows) {
  model_->set_rows(std::move(rows));
  if (!fitted_ && model_->rowCount() > 0) {
    rows_->fit_columns();
    fitted_ = true;
  }
}

void TablePane::show_row(const std::function<bool(const Choice&)>& is_it) {
  quiet_ = true;
  for (int row = 0; row < filtered_->rowCount(); ++row) {
    const QModelIndex index = filtered_->index(row, 0);
    if (!is_it(model_->row(filtered_->mapToSource(index).row()).choice)) continue;
    if (rows_->currentIndex().row() != row) rows_->setCurrentIndex(index);
    break;
  }
  quiet_ = false;
}

const PagedRow* TablePane::current() const {
  const QModelIndex index = rows_->currentIndex();
  return index.isValid() ? &model_->row(filtered_->mapToSource(index).row()) : nullptr;
}

TableData TablePane::table() const {
  return table_of(*filtered_, model_->columns());
}

int TablePane::count() const {
  return filtered_->rowCount();
}

}  // namespace nimble::gui
