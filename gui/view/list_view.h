// A window that is a list of rows, read whole by one question: it asks, waits, tells why there is
// nothing, filters, and copies. What a list is of comes as a ListOf; the rows are made in the
// worker that reads them.
#pragma once

#include "gui/view/table_pane.h"
#include "gui/view/view.h"

namespace nimble::gui {

struct Listed {
  std::vector<PagedRow> rows;
  QString status;  // of all of them: "3 campaigns, 1 running"
};

struct ListOf {
  QString name;  // to screen readers: "Campaigns"
  std::vector<PagedColumn> columns;
  QString none;  // shown where the database has no row
  std::function<Listed(Reader&, const Cancel&)> read;
};

class ListView : public View {
  Q_OBJECT
 public:
  ListView(const ViewInfo& info, Context& context, ListOf list);

  TableData table() const override { return pane_->table(); }
  bool loading() const override { return loading_; }

 protected:
  TablePane& pane() const { return *pane_; }
  void ask();
  // What choosing a row does; by default its workload and hardware are selected.
  virtual void choose(const PagedRow& row);
  // Whether a row is what is selected: it is made current. By default, if workload and hardware
  // are.
  virtual bool is_selected(const Choice& row) const;
  // Rows came, or went.
  virtual void listed() {}
  // A button that puts the current row's `column` (its name in exports) on the clipboard; `none`:
  // said where that is empty.
  void add_copy_button(const QString& text, const QString& tip, const QString& column,
                       const QString& none);

 private:
  void show_rows(Answer<Listed> answer);
  void copy(const QString& column, const QString& none);
  void count();

  ListOf list_;
  TablePane* pane_;
  Question question_;
  QString all_;  // the status of all rows
  bool loading_ = false;
};

}  // namespace nimble::gui
