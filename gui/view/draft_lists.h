// The lists beside the dispatch editor's plot: the entries of the table with their configurations,
// the tests of its tree with their values, and what the edits so far cost.
#pragma once

#include <QWidget>

#include "gui/model/table_draft.h"

class QLabel;
class QTableWidget;

namespace nimble::gui {

// A configuration's knobs; of one that was never measured for the workload its key.
QString schedule_of(const WorkloadFacts& facts, const db::Hash& config);

class DraftLists final : public QWidget {
  Q_OBJECT
 public:
  explicit DraftLists(QWidget* parent = nullptr);
  // Null: nothing is edited.
  void show_draft(const WorkloadFacts* facts, const TableDraft* draft);

 Q_SIGNALS:
  void config_chosen(size_t entry, const db::Hash& config);
  void value_chosen(size_t node, int64_t value);

 private:
  void fill_entries(const WorkloadFacts& facts, const TableDraft& draft);
  void fill_tests(const TableDraft& draft);
  void show_preview(const TableDraft& draft);

  QTableWidget *entries_, *tests_;
  QLabel* preview_;
};

}  // namespace nimble::gui
