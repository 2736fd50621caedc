#include "gui/view/list_view.h"

#include <QClipboard>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QLineEdit>
#include <QPushButton>
#include <QTimer>

#include "gui/model/units.h"

namespace nimble::gui {

ListView::ListView(const ViewInfo& info, Context& context, ListOf list)
    : View(info, context), list_(std::move(list)) {
  pane_ = new TablePane(list_.columns);
  pane_->rows().setAccessibleName(list_.name);
  set_content(pane_);
  connect(pane_, &TablePane::chosen, this, [this](const PagedRow& row) { choose(row); });
  connect(&pane_->filter(), &QLineEdit::textChanged, this, &ListView::count);
  connect(&context.session, &Session::changed, this, &ListView::ask);
  const auto follow = [this] {
    pane_->show_row([this](const Choice& c) { return is_selected(c); });
  };
  connect(&context.selection, &Selection::changed, this, follow);
  ask();
}

void ListView::choose(const PagedRow& row) {
  Choice next = context().selection.now();
  next.workload = row.choice.workload;
  next.hardware = row.choice.hardware;
  context().selection.set(next);
}

bool ListView::is_selected(const Choice& row) const {
  const Choice& now = context().selection.now();
  return !row.workload.empty() && row.workload == now.workload && row.hardware == now.hardware;
}

void ListView::ask() {
  question_.drop();
  loading_ = context().session.is_open();
  if (!loading_) {
    all_.clear();
    pane_->set_rows({});
    set_message(tr("No database is open: File, Open (Ctrl+O)."));
    set_status({});
    // Asked first by the constructor, when what derives from this is not made yet.
    QTimer::singleShot(0, this, [this] { listed(); });
    return;
  }
  question_ = context().session.ask<Listed>(
      this, list_.read, [this](Answer<Listed> answer) { show_rows(std::move(answer)); });
}

void ListView::show_rows(Answer<Listed> answer) {
  loading_ = false;
  Listed listed_rows = answer.value ? std::move(*answer.value) : Listed{};
  set_message(!answer.value ? answer.error : listed_rows.rows.empty() ? list_.none : QString());
  all_ = listed_rows.status;
  pane_->set_rows(std::move(listed_rows.rows));
  count();
  pane_->show_row([this](const Choice& c) { return is_selected(c); });
  listed();
}

void ListView::count() {
  const int all = pane_->model().rowCount(), left = pane_->count();
  set_status(left == all ? all_ : tr("%1 of %2 · %3").arg(count_text(left), count_text(all), all_));
}

void ListView::add_copy_button(const QString& text, const QString& tip, const QString& column,
                               const QString& none) {
  auto* button = new QPushButton(text);
  button->setObjectName(QStringLiteral("copy"));
  button->setToolTip(tip);
  controls()->addWidget(button);
  connect(button, &QPushButton::clicked, this, [this, column, none] { copy(column, none); });
}

void ListView::copy(const QString& column, const QString& none) {
  const PagedRow* row = pane_->current();
  if (!row) return set_status(tr("Choose a row first."));
  QString text;
  for (size_t i = 0; i < list_.columns.size(); ++i)
    if (list_.columns[i].name == column) text = row->raw[i].toString();
  if (text.isEmpty()) return set_status(none);
  QGuiApplication::clipboard()->setText(text);
  set_status(tr("Copied; nothing was run."));
}

}  // namespace nimble::gui
