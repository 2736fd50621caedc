// "Coverage and staleness": every workload on every kind of hardware that the database knows, with
// what is missing or old, the shapes that runs saw without a table, and the command that measures
// it again, to be copied.
#include <QClipboard>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QPushButton>

#include "gui/model/units.h"
#include "gui/view/table_pane.h"
#include "gui/view/view.h"

namespace nimble::gui {
namespace {

std::vector<PagedColumn> coverage_columns() {
  return {
      {"Kernel", "op", "The operator that the fused group is named after.", true, false},
      {"Symbols", "symbols", "Extents that vary.", true, false},
      {"Threads", "threads", "How many threads the kernel runs on.", true, true},
      {"Hardware", "hardware", "A kind of hardware that the database knows.", true, false},
      {"State", "state", "What the newest toolchain that the database knows makes of the table.",
       true, false},
      {"Made", "created_at_ms", "When the table was made.", true, false},
      {"Missed shapes", "missed_shapes", "That runs saw without a table.", true, true},
      {"Misses", "misses", "How often they did.", true, true},
      {"Workload", "workload", "Its hash.", true, false},
      {"Verify again", "command", "The command of the campaign that made the table.", false, false},
  };
}

PagedRow coverage_row(const CoverageRow& c) {
  const WorkloadRow& w = c.row;
  const auto integer = [](int64_t n) { return QVariant::fromValue(n); };
  const QString op = plain_text(w.record.op), symbols = plain_text(w.record.symbolic_dims);
  const QString hardware = plain_text(w.hardware_name), command = plain_text(c.command, 4000);
  const QString state =
      c.measured ? plain_text(name_of(w.staleness)) : QObject::tr("never measured");
  PagedRow row;
  row.cells = {op,
               symbols,
               count_text(w.record.threads),
               hardware,
               state,
               moment_text(w.created_at),
               count_text(c.missed_shapes),
               count_text(c.misses),
               short_id(w.workload),
               command};
  row.raw = {op,
             symbols,
             integer(w.record.threads),
             hardware,
             state,
             w.created_at ? integer(w.created_at) : QVariant(),
             integer(c.missed_shapes),
             integer(c.misses),
             QString::fromStdString(w.workload),
             command};
  row.choice.workload = w.workload;
  row.choice.hardware = w.hardware;
  return row;
}

class CoverageView final : public View {
 public:
  CoverageView(const ViewInfo& info, Context& context) : View(info, context) {
    pane_ = new TablePane(coverage_columns());
    pane_->rows().setAccessibleName(tr("Coverage"));
    set_content(pane_);
    auto* copy = new QPushButton(tr("&Copy command to verify again"));
    copy->setObjectName(QStringLiteral("copy"));
    controls()->addWidget(copy);
    controls()->addStretch(1);
    connect(copy, &QPushButton::clicked, this, &CoverageView::copy_command);
    connect(pane_, &TablePane::chosen, this, [this](const PagedRow& row) {
      Choice next = this->context().selection.now();
      next.workload = row.choice.workload;
      next.hardware = row.choice.hardware;
      this->context().selection.set(next);
    });
    connect(&context.session, &Session::changed, this, &CoverageView::ask);
    ask();
  }

  TableData table() const override { return pane_->table(); }
  bool loading() const override { return loading_; }

 private:
  void ask() {
    question_.drop();
    loading_ = context().session.is_open();
    if (!loading_) {
      pane_->set_rows({});
      return set_message(tr("No database is open: File, Open (Ctrl+O)."));
    }
    question_ = context().session.ask<std::vector<CoverageRow>>(
        this, [](Reader& reader, const Cancel& cancel) { return reader.coverage(cancel); },
        [this](const Answer<std::vector<CoverageRow>>& answer) { show_rows(answer); });
  }

  void show_rows(const Answer<std::vector<CoverageRow>>& answer) {
    loading_ = false;
    std::vector<PagedRow> rows;
    int64_t current = 0;
    if (answer.value)
      for (const CoverageRow& c : *answer.value) {
        rows.push_back(coverage_row(c));
        current += c.measured && c.row.staleness == Staleness::kCurrent;
      }
    set_message(!answer.value  ? answer.error
                : rows.empty() ? tr("Nothing was measured yet: nimble tune MODEL --db …")
                               : QString());
    set_status(tr("%1 of %2 pairs of workload and hardware have a table of the newest toolchain")
                   .arg(count_text(current), count_text(static_cast<int64_t>(rows.size()))));
    pane_->set_rows(std::move(rows));
  }

  void copy_command() {
    const PagedRow* row = pane_->current();
    if (!row) return set_status(tr("Choose a row first."));
    const QString command = row->raw.back().toString();
    if (command.isEmpty()) return set_status(tr("No campaign made a table for it."));
    QGuiApplication::clipboard()->setText(command);
    set_status(tr("Copied; nothing was run."));
  }

  TablePane* pane_;
  Question question_;
  bool loading_ = false;
};

}  // namespace

View* make_coverage(const ViewInfo& info, Context& context) {
  return new CoverageView(info, context);
}

}  // namespace nimble::gui
