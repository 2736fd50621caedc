#include "gui/view/draft_lists.h"

#include <QComboBox>
#include <QHeaderView>
#include <QLabel>
#include <QSpinBox>
#include <QTableWidget>
#include <QTimer>
#include <QVBoxLayout>

#include "gui/model/units.h"
#include "gui/view/regions_item.h"
#include "gui/view/theme.h"
#include "gui/view/view.h"

namespace nimble::gui {
namespace {

constexpr int kMostTests = 500;

QTableWidgetItem* fixed_item(const QString& text) {
  auto* item = new QTableWidgetItem(text);
  item->setFlags(Qt::ItemIsSelectable | Qt::ItemIsEnabled);
  item->setToolTip(plain_tool_tip(text));
  return item;
}

QTableWidget* make_list(const char* name, const QString& title, const QStringList& columns) {
  auto* list = new QTableWidget(0, static_cast<int>(columns.size()));
  list->setObjectName(QLatin1String(name));
  list->setAccessibleName(title);
  list->setHorizontalHeaderLabels(columns);
  list->verticalHeader()->setVisible(false);
  list->horizontalHeader()->setStretchLastSection(true);
  list->setSelectionBehavior(QAbstractItemView::SelectRows);
  list->setTabKeyNavigation(false);
  return list;
}

}  // namespace

QString schedule_of(const WorkloadFacts& facts, const db::Hash& config) {
  if (const auto c = facts.config_index(config)) return plain_text(knobs_text(facts.configs[*c]));
  return short_id(config);
}

DraftLists::DraftLists(QWidget* parent) : QWidget(parent) {
  entries_ =
      make_list("entries", tr("Entries of the table"),
                {tr("Entry"), tr("Shapes"), tr("Expected"), tr("Regret"), tr("Configuration")});
  tests_ = make_list("tests", tr("Tests of the tree"), {tr("Test"), tr("Value")});
  preview_ = plain_label();
  preview_->setObjectName(QStringLiteral("preview"));
  preview_->setWordWrap(true);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(0, 0, 0, 0);
  column->addWidget(entries_, 3);
  column->addWidget(tests_, 2);
  column->addWidget(preview_);
}

void DraftLists::show_draft(const WorkloadFacts* facts, const TableDraft* draft) {
  // The lists are made anew: who was in one of their fields is in it again.
  const QWidget* focus = window()->focusWidget();
  const QString was_in = focus && isAncestorOf(focus) ? focus->objectName() : QString();
  entries_->setRowCount(0);
  tests_->setRowCount(0);
  preview_->setText({});
  if (!facts || !draft) return;
  fill_entries(*facts, *draft);
  fill_tests(*draft);
  show_preview(*draft);
  if (!was_in.startsWith(QLatin1String("config")) && !was_in.startsWith(QLatin1String("test")))
    return;
  for (QTableWidget* list : {entries_, tests_})
    for (int row = 0; row < list->rowCount(); ++row)
      if (QWidget* field = list->cellWidget(row, list->columnCount() - 1);
          field && field->objectName() == was_in)
        QTimer::singleShot(0, field, [field] { field->setFocus(); });  // once it is shown
}

void DraftLists::fill_entries(const WorkloadFacts& facts, const TableDraft& draft) {
  const auto& entries = draft.now().entries;
  entries_->setRowCount(static_cast<int>(entries.size()));
  for (size_t i = 0; i < entries.size(); ++i) {
    const db::DispatchEntry& e = entries[i];
    const int row = static_cast<int>(i);
    auto* number = fixed_item(QString::number(i));
    QColor colour = entry_colour(static_cast<int64_t>(i), is_dark(palette()));
    number->setBackground(colour);
    entries_->setItem(row, 0, number);
    entries_->setItem(row, 1, fixed_item(plain_text(e.range)));
    entries_->setItem(row, 2,
                      fixed_item(e.expected_ns ? time_text(*e.expected_ns) : tr("unknown")));
    entries_->setItem(row, 3, fixed_item(e.regret ? percent_text(*e.regret) : tr("unknown")));
    auto* box = new QComboBox;
    box->setObjectName(QStringLiteral("config%1").arg(i));
    box->setAccessibleName(tr("Configuration of entry %1").arg(i));
    for (const ConfigFacts& c : facts.configs)
      box->addItem(short_id(c.hash) + QStringLiteral(" ") + plain_text(knobs_text(c), 120),
                   QString::fromStdString(c.hash));
    int chosen = box->findData(QString::fromStdString(e.config));
    if (chosen < 0) {
      box->addItem(short_id(e.config) + tr(" (not measured)"), QString::fromStdString(e.config));
      chosen = box->count() - 1;
    }
    box->setCurrentIndex(chosen);
    box->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
    connect(box, &QComboBox::activated, this, [this, i, box] {
      Q_EMIT config_chosen(i, box->currentData().toString().toStdString());
    });
    entries_->setCellWidget(row, 4, box);
  }
  entries_->resizeColumnsToContents();
  entries_->setColumnWidth(1, std::min(entries_->columnWidth(1), 180));
}

void DraftLists::fill_tests(const TableDraft& draft) {
  const auto& nodes = draft.tree().nodes();
  for (size_t i = 0; i < nodes.size() && tests_->rowCount() < kMostTests; ++i) {
    const TreeNode& n = nodes[i];
    if (n.leaf) continue;
    const int row = tests_->rowCount();
    tests_->insertRow(row);
    const QString test =
        plain_text(text_of(n.feature)) + (n.equal ? QStringLiteral(" ==") : QStringLiteral(" <="));
    tests_->setItem(row, 0, fixed_item(test));
    auto* value = new QSpinBox;
    value->setObjectName(QStringLiteral("test%1").arg(i));
    value->setAccessibleName(tr("Value of the test %1").arg(test));
    value->setRange(0, std::numeric_limits<int>::max());
    value->setValue(static_cast<int>(std::min<int64_t>(n.value, value->maximum())));
    value->setKeyboardTracking(false);  // when the number is complete
    // Only numbers that the box can hold can be typed into it.
    value->setEnabled(n.value <= value->maximum());
    connect(
        value, &QSpinBox::valueChanged, this, [this, i](int to) { Q_EMIT value_chosen(i, to); },
        Qt::QueuedConnection);
    tests_->setCellWidget(row, 1, value);
  }
  tests_->resizeColumnToContents(0);
}

void DraftLists::show_preview(const TableDraft& draft) {
  const RegretSummary before = summary_of(draft.before()), after = summary_of(draft.after());
  const auto pair = [&](const QString& x, const QString& y) {
    return draft.changed() ? tr("%1 → %2").arg(x, y) : x;
  };
  preview_->setText(
      tr("Over %1 shapes: mean regret %2, worst %3; speed over the default schedule %4.%5")
          .arg(after.shapes)
          .arg(pair(percent_text(before.mean), percent_text(after.mean)),
               pair(percent_text(before.worst), percent_text(after.worst)),
               pair(factor_text(before.speed_up), factor_text(after.speed_up)),
               draft.changed() ? tr(" Last change: %1.").arg(plain_text(draft.last_change()))
                               : QString()));
}

}  // namespace nimble::gui
