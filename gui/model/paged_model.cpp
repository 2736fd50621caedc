#include "gui/model/paged_model.h"

#include <QEventLoop>
#include <QTimer>
#include <algorithm>

#include "gui/model/units.h"

namespace nimble::gui {
namespace {

// Qt's views place rows by pixels in an int: beyond this the last ones could not be reached.
constexpr int64_t kMostRows = 50'000'000;
// Questions at a time, and how many pages may wait: of those scrolled past only the latest count.
constexpr size_t kMostAsked = 2;
constexpr size_t kMostWanted = 4;

}  // namespace

PagedModel::PagedModel(Session& session, std::vector<PagedColumn> columns, QObject* parent)
    : QAbstractTableModel(parent), session_(session), columns_(std::move(columns)) {}

void PagedModel::set_source(MakeSource make) {
  make_ = std::move(make);
  source_ = make_ ? make_(sort_column_, sort_order_) : nullptr;
  ask_count(true);
}

void PagedModel::reload() {
  source_ = make_ ? make_(sort_column_, sort_order_) : nullptr;
  ask_count(false);
}

void PagedModel::drop_pages() {
  asked_.clear();
  wanted_.clear();
  pages_.clear();
  recent_.clear();
}

void PagedModel::ask_count(bool fresh) {
  asked_.clear();
  wanted_.clear();
  problem_.clear();
  growing_ = false;
  counting_ = source_ && session_.is_open();
  if (counting_) return count_on(fresh);
  count_question_.drop();
  beginResetModel();
  drop_pages();
  total_ = rows_ = 0;
  endResetModel();
  emit loaded();
}

void PagedModel::count_on(bool fresh) {
  count_question_ = session_.ask<TrialCount>(
      this,
      [source = source_](Reader& reader, const Cancel& cancel) {
        return source->count(reader, cancel);
      },
      [this, fresh](const Answer<TrialCount>& answer) {
        const TrialCount count = answer.value.value_or(TrialCount{growing_ ? total_ : 0, false});
        problem_ = answer.error;
        const bool begins = counting_;
        // A look at the same rows a moment later: the view keeps its place.
        if (!(begins && count.more && (count.rows == 0 || (!fresh && count.rows < total_)))) {
          counting_ = false;
          show_count(count, begins);
        }
        growing_ = count.more && !counting_;
        if (count.more) count_on(fresh);
        emit loaded();
      });
}

void PagedModel::show_count(const TrialCount& count, bool begins) {
  const int rows = static_cast<int>(std::min(count.rows, kMostRows));
  if (!begins) {
    total_ = count.rows;
    if (rows <= rows_) return;
    // The last page may have been read when it was shorter.
    const int page = rows_ / kPageRows;
    if (const auto it = pages_.find(page); it != pages_.end()) {
      recent_.erase(it->second.second);
      pages_.erase(it);
    }
    beginInsertRows({}, rows_, rows - 1);
    rows_ = rows;
    endInsertRows();
    return;
  }
  if (rows == rows_ && rows > 0) {
    // The same rows in another order: the view keeps its place.
    drop_pages();
    total_ = count.rows;
    emit dataChanged(index(0, 0), index(rows_ - 1, columnCount() - 1));
    return;
  }
  beginResetModel();
  drop_pages();
  total_ = count.rows;
  rows_ = rows;
  endResetModel();
}

int PagedModel::rowCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : rows_;
}

int PagedModel::columnCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(columns_.size());
}

const PagedRow* PagedModel::row_at(int row) const {
  if (row < 0 || row >= rows_) return nullptr;
  const int page = row / kPageRows;
  const auto it = pages_.find(page);
  if (it == pages_.end()) {
    want(page);
    return nullptr;
  }
  recent_.splice(recent_.begin(), recent_, it->second.second);
  const auto at = static_cast<size_t>(row % kPageRows);
  return at < it->second.first.size() ? &it->second.first[at] : nullptr;
}

TableData PagedModel::all_rows() const {
  TableData table;
  for (const PagedColumn& c : columns_) table.columns.push_back(c.name);
  if (!source_) return table;
  using Raw = std::vector<std::vector<QVariant>>;
  QEventLoop loop;
  QString error;
  const Question question = session_.ask<Raw>(
      &loop,
      [source = source_](Reader& reader, const Cancel& cancel) {
        constexpr int64_t kMany = 10'000;
        TrialCount count;
        do count = source->count(reader, cancel);
        while (count.more);
        Raw raw;
        for (int64_t first = 0; first < count.rows; first += kMany)
          for (PagedRow& row : source->rows(reader, first, kMany, cancel))
            raw.push_back(std::move(row.raw));
        return raw;
      },
      [&](Answer<Raw> answer) {
        error = answer.error;
        if (answer.value) table.rows = std::move(*answer.value);
        loop.quit();
      });
  loop.exec(QEventLoop::ExcludeUserInputEvents);
  if (!error.isEmpty()) throw Error(Status::kIo, "table", error.toStdString(), "read it again");
  return table;
}

QVariant PagedModel::data(const QModelIndex& index, int role) const {
  const auto column = static_cast<size_t>(index.column());
  if (!index.isValid() || column >= columns_.size()) return {};
  if (role == Qt::TextAlignmentRole)
    return static_cast<int>((columns_[column].number ? Qt::AlignRight : Qt::AlignLeft) |
                            Qt::AlignVCenter);
  if (role != Qt::DisplayRole && role != kRawRole && role != kFilledRole && role != Qt::ToolTipRole)
    return {};
  const PagedRow* row = row_at(index.row());
  if (role == kFilledRole) return row != nullptr;
  if (!row) return role == Qt::DisplayRole ? QVariant(QStringLiteral("…")) : QVariant();
  const auto& cells = role == kRawRole ? row->raw : row->cells;
  if (column >= cells.size()) return {};
  if (role == Qt::ToolTipRole) return plain_tool_tip(cells[column].toString());
  return cells[column];
}

QVariant PagedModel::headerData(int section, Qt::Orientation orientation, int role) const {
  if (orientation == Qt::Vertical || section < 0 || section >= columnCount()) return {};
  const PagedColumn& column = columns_[static_cast<size_t>(section)];
  if (role == Qt::DisplayRole) return column.title;
  if (role == Qt::ToolTipRole)
    return column.sortable ? column.tip : tr("%1 Not sortable.").arg(column.tip);
  if (role == Qt::TextAlignmentRole)
    return static_cast<int>((column.number ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignVCenter);
  return {};
}

void PagedModel::sort(int column, Qt::SortOrder order) {
  if (column >= 0 && !columns_.at(static_cast<size_t>(column)).sortable) return;
  if (column == sort_column_ && order == sort_order_) return;
  sort_column_ = column;
  sort_order_ = order;
  source_ = make_ ? make_(sort_column_, sort_order_) : nullptr;
  ask_count(true);
}

void PagedModel::want(int page) const {
  if (asked_.contains(page)) return;
  std::erase(wanted_, page);
  wanted_.push_back(page);
  if (wanted_.size() > kMostWanted) wanted_.erase(wanted_.begin());
  if (ask_soon_) return;
  ask_soon_ = true;
  // After the view has asked for all that is in sight.
  QTimer::singleShot(0, this, [self = const_cast<PagedModel*>(this)] {
    self->ask_soon_ = false;
    self->ask_pages();
  });
}

void PagedModel::ask_pages() {
  if (counting_ || !source_) return;
  // What is in sight was wanted last: a question for a page that is no longer wanted makes room.
  while (!wanted_.empty() && asked_.size() < kMostAsked) {
    const int page = wanted_.back();
    wanted_.pop_back();
    asked_[page] = session_.ask<Page>(
        this,
        [source = source_, page](Reader& reader, const Cancel& cancel) {
          return source->rows(reader, int64_t{page} * kPageRows, kPageRows, cancel);
        },
        [this, page](Answer<Page> answer) {
          asked_.erase(page);
          if (answer.value) {
            recent_.push_front(page);
            pages_.insert_or_assign(page, std::pair(std::move(*answer.value), recent_.begin()));
            while (pages_.size() > kPagesKept) {
              pages_.erase(recent_.back());
              recent_.pop_back();
            }
            const int first = page * kPageRows;
            const int last = std::min(rows_, first + kPageRows) - 1;
            if (last >= first) emit dataChanged(index(first, 0), index(last, columnCount() - 1));
          } else {
            problem_ = answer.error;
          }
          emit loaded();
          ask_pages();
        });
  }
}

}  // namespace nimble::gui
