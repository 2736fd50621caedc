// A table of any length for Qt's views. It holds the pages around what is in sight and asks a
// worker for others; a cell that is not there yet is a placeholder, and nothing here takes time
// with the number of rows.
#pragma once

#include <QAbstractTableModel>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>

#include "gui/model/selection.h"
#include "gui/model/session.h"
#include "gui/model/table_data.h"

namespace nimble::gui {

// A row of a page: what the cells show, and what they are sorted and exported by.
struct PagedRow {
  std::vector<QVariant> cells;  // as shown
  std::vector<QVariant> raw;    // in base units, as exported
  Choice choice;                // what choosing the row sets; parts that are empty stay
};

struct PagedColumn {
  QString title;  // as shown
  QString name;   // as exported: "median_ns"
  QString tip;    // a sentence
  bool sortable = false;
  bool number = false;  // aligned right
};

// What a table is of, at one moment. Called in worker threads, by several at a time.
class PagedSource {
 public:
  virtual ~PagedSource() = default;
  // Goes on counting each time, for a tenth of a second or so, until nothing more follows.
  virtual TrialCount count(Reader& reader, const Cancel& cancel) const = 0;
  virtual std::vector<PagedRow> rows(Reader& reader, int64_t first, int64_t count,
                                     const Cancel& cancel) const = 0;
};

class PagedModel : public QAbstractTableModel {
  Q_OBJECT
 public:
  static constexpr int kPageRows = 128;
  static constexpr size_t kPagesKept = 64;
  enum Role { kRawRole = Qt::UserRole, kFilledRole };  // kFilledRole: whether the row is there

  // Makes the source of a sort order and filter.
  using MakeSource = std::function<std::shared_ptr<const PagedSource>(int column, Qt::SortOrder)>;

  PagedModel(Session& session, std::vector<PagedColumn> columns, QObject* parent = nullptr);

  // Turns to another source: filter, selection or content changed. Rows in sight stay until the new
  // count is known.
  void set_source(MakeSource make);
  void reload();

  int rowCount(const QModelIndex& parent = {}) const override;
  int columnCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role) const override;
  void sort(int column, Qt::SortOrder order) override;

  const std::vector<PagedColumn>& columns() const { return columns_; }
  bool filled(int row) const { return row_at(row) != nullptr; }
  // The row if it is there; else it is asked for.
  const PagedRow* row_at(int row) const;
  // The whole table as it is exported: read in a worker, while events of the screen are handled and
  // the user's wait. Throws Error if it cannot be read.
  TableData all_rows() const;
  const QString& problem() const { return problem_; }
  bool loading() const { return counting_ || growing_ || !asked_.empty(); }
  // Whether the rows are still those of the source before.
  bool turning() const { return counting_; }
  // Whether rows are still being counted: there are total() at least.
  bool growing() const { return growing_; }
  // More rows than Qt's views can number are not shown; this is how many there are.
  int64_t total() const { return total_; }

 signals:
  void loaded();  // a count or page has come, or an error

 private:
  using Page = std::vector<PagedRow>;
  // `fresh`: of another order or filter, whose first rows are shown at once; else the rows in sight
  // stay until as many are known anew.
  void ask_count(bool fresh);
  void count_on(bool fresh);
  void show_count(const TrialCount& count, bool begins);
  void want(int page) const;
  void ask_pages();
  void drop_pages();

  Session& session_;
  std::vector<PagedColumn> columns_;
  MakeSource make_;
  std::shared_ptr<const PagedSource> source_;
  int sort_column_ = -1;
  Qt::SortOrder sort_order_ = Qt::AscendingOrder;
  int64_t total_ = 0;
  int rows_ = 0;
  bool counting_ = false, growing_ = false;
  Question count_question_;
  QString problem_;

  mutable std::list<int> recent_;  // pages, the latest looked at first
  mutable std::unordered_map<int, std::pair<Page, std::list<int>::iterator>> pages_;
  mutable std::vector<int> wanted_;  // not asked for yet, the latest last
  mutable bool ask_soon_ = false;
  std::map<int, Question> asked_;
};

}  // namespace nimble::gui
