// "Dispatch editor": a version of a dispatch table as regions of shapes, one colour an entry.
// Borders are dragged, or typed in the list of tests; entries get other configurations; what that
// costs is told at once. Nothing is written before "Save as draft", and nothing serves before
// "Activate".
#include <QComboBox>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLineEdit>
#include <QPushButton>
#include <QShortcut>
#include <QSpinBox>
#include <QSplitter>
#include <QTableWidget>
#include <QTimer>
#include <QVBoxLayout>
#include <cmath>

#include "gui/model/table_draft.h"
#include "gui/model/units.h"
#include "gui/view/overrides_pane.h"
#include "gui/view/plot_view.h"
#include "gui/view/regions_item.h"

namespace nimble::gui {
namespace {

constexpr double kGrab = 6;  // pixels from a border within which the pointer takes it
constexpr int kMostTests = 500;

// Between two extents the middle of the logarithmic scale divides, where borders stand, too.
int64_t extent_at(double place) {
  const double below = std::floor(std::max(place, 0.0));
  return static_cast<int64_t>(below) + (place > std::sqrt(below * (below + 1)));
}

QTableWidgetItem* fixed_item(const QString& text) {
  auto* item = new QTableWidgetItem(text);
  item->setFlags(Qt::ItemIsSelectable | Qt::ItemIsEnabled);
  item->setToolTip(plain_tool_tip(text));
  return item;
}

class DispatchView final : public PlotView {
 public:
  DispatchView(const ViewInfo& info, Context& context) : PlotView(info, context) {
    make_controls();
    make_panel();
    ground_ = new RegionsItem(plot().xAxis, plot().yAxis);
    plot().setInteractions(QCP::iRangeZoom);  // a drag is for borders
    connect(&context.workload, &WorkloadModel::changed, this, &DispatchView::take_table);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      if (this->context().selection.now().table != before.table) take_table();
    });
    take_table();
  }

  bool loading() const override { return context().workload.loading(); }

  TableData table() const override {
    TableData t{{"entry", "range", "config", "schedule", "expected_ns", "regret", "reason"}, {}};
    if (!draft_) return t;
    int64_t number = 0;
    for (const db::DispatchEntry& e : draft_->now().entries)
      t.rows.push_back({QVariant::fromValue(number++), plain_text(e.range), plain_text(e.config),
                        schedule_of(e.config),
                        e.expected_ns ? QVariant(*e.expected_ns) : QVariant(),
                        e.regret ? QVariant(*e.regret) : QVariant(), plain_text(e.reason)});
    return t;
  }

 protected:
  void redraw() override {
    plot().clearPlottables();
    for (QCPAbstractItem* item : std::exchange(lines_, {})) plot().removeItem(item);
    borders_.clear();
    if (!draft_) {
      ground_->set({}, true, false);
      return set_marks({});
    }
    set_heading(tr("%1 · table %2, version %3, %4%5")
                    .arg(plain_text(title_of(*facts_)), short_id(draft_->original().uuid))
                    .arg(draft_->original().version)
                    .arg(plain_text(db::name_of(draft_->original().status)),
                         draft_->changed() ? tr(" · edited, not saved") : QString()));
    draw_ground();
    draw_legend();
    draw_shapes();
    draw_borders();
    show_all();
    plot().replot(QCustomPlot::rpQueuedReplot);
  }

  void show_all() override {
    plot().xAxis->setRange(x_range_);
    plot().yAxis->setRange(y_range_);
  }

  bool is_selected(const Mark& mark) const override {
    return mark.choice.shape == context().selection.now().shape;
  }

  // A border under the pointer is dragged; everything else is as in every plot.
  bool eventFilter(QObject* object, QEvent* event) override {
    if (object != &plot() || !draft_) return PlotView::eventFilter(object, event);
    if (event->type() == QEvent::MouseButtonPress) {
      dragged_ = border_at(static_cast<QMouseEvent*>(event)->position());
      if (dragged_ >= 0) return true;
    }
    if (event->type() == QEvent::MouseMove) {
      const QPointF at = static_cast<QMouseEvent*>(event)->position();
      if (dragged_ >= 0) {
        show_drag(at);
        return true;
      }
      const int border = border_at(at);
      plot().setCursor(border < 0                                     ? Qt::ArrowCursor
                       : borders_[static_cast<size_t>(border)].across ? Qt::SplitHCursor
                                                                      : Qt::SplitVCursor);
    }
    if (event->type() == QEvent::MouseButtonRelease && dragged_ >= 0) {
      const auto& b = borders_[static_cast<size_t>(std::exchange(dragged_, -1))];
      move_border(b.node, value_at(b, static_cast<QMouseEvent*>(event)->position()));
      return true;
    }
    return PlotView::eventFilter(object, event);
  }

 private:
  // A test on a symbol of an axis, as a line across the plot.
  struct Border {
    size_t node = 0;
    bool across = true;  // a value of the x axis
    int64_t step = 1;    // shapes per unit of the feature
    QCPItemStraightLine* line = nullptr;
    QCPItemText* label = nullptr;
  };

  void make_controls() {
    versions_ = new QComboBox;
    versions_->setObjectName(QStringLiteral("version"));
    versions_->setAccessibleName(tr("Version of the table"));
    versions_->setSizeAdjustPolicy(QComboBox::AdjustToContents);
    controls()->addWidget(plain_label(tr("Version:")));
    controls()->addWidget(versions_);
    connect(versions_, &QComboBox::activated, this, [this] {
      context().selection.set_table(versions_->currentData().toString().toStdString());
    });
    const auto axis_box = [&](const QString& label, const char* name) {
      auto* box = new QComboBox;
      box->setObjectName(QLatin1String(name));
      box->setAccessibleName(label);
      controls()->addWidget(plain_label(label));
      controls()->addWidget(box);
      connect(box, &QComboBox::activated, this, &DispatchView::redraw);
      return box;
    };
    x_symbol_ = axis_box(tr("Across:"), "across");
    y_symbol_ = axis_box(tr("Up:"), "up");
    controls()->addStretch(1);
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

  void make_panel() {
    tests_ = make_list("tests", tr("Tests of the tree"), {tr("Test"), tr("Value")});
    entries_ =
        make_list("entries", tr("Entries of the table"),
                  {tr("Entry"), tr("Shapes"), tr("Expected"), tr("Regret"), tr("Configuration")});
    preview_ = plain_label();
    preview_->setObjectName(QStringLiteral("preview"));
    preview_->setWordWrap(true);
    reason_ = new QLineEdit;
    reason_->setObjectName(QStringLiteral("reason"));
    reason_->setAccessibleName(tr("Reason"));
    reason_->setPlaceholderText(tr("Reason: due for every change that is kept"));
    auto* buttons = new QHBoxLayout;
    const auto button = [&](const QString& text, const char* name, const QString& tip,
                            void (DispatchView::*run)()) {
      auto* b = new QPushButton(text);
      b->setObjectName(QLatin1String(name));
      b->setToolTip(tip);
      buttons->addWidget(b);
      connect(b, &QPushButton::clicked, this, run);
      return b;
    };
    undo_ =
        button(tr("Undo"), "undo", tr("Takes the last change back (Ctrl+Z)."), &DispatchView::undo);
    redo_ = button(tr("Redo"), "redo", tr("Makes it again (Ctrl+Shift+Z)."), &DispatchView::redo);
    save_ = button(tr("&Save as draft"), "save",
                   tr("Stores the edited table as a new version that serves nothing yet."),
                   &DispatchView::save);
    activate_ = button(tr("&Activate"), "activate",
                       tr("Makes this version, as it is stored, the one that compilers use."),
                       &DispatchView::activate);
    roll_back_ = button(tr("Roll &back"), "rollback",
                        tr("Retires this version; what was active before is active again."),
                        &DispatchView::roll_back);
    for (const auto& [keys, run] : {std::pair("Ctrl+Z", &DispatchView::undo),
                                    std::pair("Ctrl+Shift+Z", &DispatchView::redo)}) {
      auto* shortcut = new QShortcut(QKeySequence(keys), this);
      shortcut->setContext(Qt::WidgetWithChildrenShortcut);
      connect(shortcut, &QShortcut::activated, this, run);
    }
    overrides_ = new OverridesPane(context(), [this](const QString& text) { set_status(text); });
    auto* panel = new QWidget;
    auto* column = new QVBoxLayout(panel);
    column->setContentsMargins(0, 0, 0, 0);
    column->addWidget(entries_, 3);
    column->addWidget(tests_, 2);
    column->addWidget(preview_);
    column->addWidget(reason_);
    column->addLayout(buttons);
    column->addWidget(overrides_, 1);
    auto* split = new QSplitter(Qt::Horizontal);
    split->addWidget(&plot());
    plot().show();  // it was no longer the content, so it was hidden
    split->addWidget(panel);
    split->setStretchFactor(0, 3);
    split->setStretchFactor(1, 2);
    split->setFocusProxy(&plot());
    set_content(split);
  }

  // ---- what is edited
  // ----------------------------------------------------------------------------

  void take_table() {
    facts_ = context().workload.facts();
    const db::DispatchTable* table =
        facts_ ? facts_->table(context().selection.now().table) : nullptr;
    set_message(!facts_  ? context().workload.problem()
                : !table ? tr("The workload has no dispatch table.")
                         : QString());
    // An edit that is under way outlives a look at the database, not another table.
    const bool same = table && draft_ && draft_->original().uuid == table->uuid &&
                      draft_->original().status == table->status;
    if (!same || !draft_->changed()) {
      draft_.reset();
      try {
        if (table) draft_ = std::make_unique<TableDraft>(facts_, *table);
      } catch (const Error& e) {
        set_message(plain_text(e.what(), 1000));
      }
    }
    fill_choices();
    overrides_->show_facts(facts_, draft_ ? draft_->before() : std::vector<RegretPoint>(),
                           draft_ ? draft_->original().uuid : db::Uuid());
    show_draft();
  }

  void fill_choices() {
    versions_->clear();
    QStringList symbols;
    if (facts_) {
      for (const db::DispatchTable& t : facts_->tables)
        versions_->addItem(tr("%1 · version %2 · %3")
                               .arg(short_id(t.uuid))
                               .arg(t.version)
                               .arg(plain_text(db::name_of(t.status))),
                           QString::fromStdString(t.uuid));
      if (!facts_->shapes.empty())
        for (const auto& [symbol, extent] : facts_->shapes.front().dims)
          symbols << QString::fromStdString(symbol);
    }
    if (draft_)
      versions_->setCurrentIndex(
          versions_->findData(QString::fromStdString(draft_->original().uuid)));
    const auto set = [](QComboBox* box, const QStringList& items, int chosen) {
      QStringList present;
      for (int i = 0; i < box->count(); ++i) present << box->itemText(i);
      if (present == items) return;
      box->clear();
      box->addItems(items);
      box->setCurrentIndex(chosen);
      box->setEnabled(items.size() > 1);
    };
    set(x_symbol_, symbols, 0);
    set(y_symbol_, symbols.size() > 1 ? symbols : QStringList{tr("regret")},
        symbols.size() > 1 ? 1 : 0);
  }

  void show_draft() {
    // The lists are made anew: who was in one of their fields is in it again.
    const QWidget* focus = window()->focusWidget();
    const QString was_in = focus && isAncestorOf(focus) ? focus->objectName() : QString();
    fill_entries();
    fill_tests();
    if (was_in.startsWith(QLatin1String("config")) || was_in.startsWith(QLatin1String("test")))
      for (QTableWidget* list : {entries_, tests_})
        for (int row = 0; row < list->rowCount(); ++row)
          if (QWidget* field = list->cellWidget(row, list->columnCount() - 1);
              field && field->objectName() == was_in)
            QTimer::singleShot(0, field, [field] { field->setFocus(); });  // once it is shown
    show_preview();
    undo_->setEnabled(draft_ && draft_->can_undo());
    redo_->setEnabled(draft_ && draft_->can_redo());
    const bool writable = !context().session.place().read_only;
    save_->setEnabled(draft_ && draft_->changed() && writable);
    const bool active = draft_ && draft_->original().status == db::TableStatus::kActive;
    activate_->setEnabled(draft_ && !draft_->changed() && !active && writable);
    roll_back_->setEnabled(draft_ && !draft_->changed() && active && writable);
    redraw();
  }

  QString schedule_of(const db::Hash& config) const {
    if (const auto c = facts_->config_index(config))
      return plain_text(knobs_text(facts_->configs[*c]));
    return short_id(config);
  }

  void fill_entries() {
    entries_->setRowCount(0);
    if (!draft_) return;
    const auto& entries = draft_->now().entries;
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
      for (const ConfigFacts& c : facts_->configs)
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
        report(draft_->set_config(i, box->currentData().toString().toStdString()));
      });
      entries_->setCellWidget(row, 4, box);
    }
    entries_->resizeColumnsToContents();
    entries_->setColumnWidth(1, std::min(entries_->columnWidth(1), 180));
  }

  void fill_tests() {
    tests_->setRowCount(0);
    if (!draft_) return;
    const auto& nodes = draft_->tree().nodes();
    for (size_t i = 0; i < nodes.size() && tests_->rowCount() < kMostTests; ++i) {
      const TreeNode& n = nodes[i];
      if (n.leaf) continue;
      const int row = tests_->rowCount();
      tests_->insertRow(row);
      const QString test = plain_text(text_of(n.feature)) +
                           (n.equal ? QStringLiteral(" ==") : QStringLiteral(" <="));
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
          value, &QSpinBox::valueChanged, this, [this, i](int to) { move_border(i, to); },
          Qt::QueuedConnection);
      tests_->setCellWidget(row, 1, value);
    }
    tests_->resizeColumnToContents(0);
  }

  void show_preview() {
    if (!draft_) return preview_->setText({});
    const RegretSummary before = summary_of(draft_->before()), after = summary_of(draft_->after());
    const auto pair = [&](const QString& x, const QString& y) {
      return draft_->changed() ? tr("%1 → %2").arg(x, y) : x;
    };
    preview_->setText(
        tr("Over %1 shapes: mean regret %2, worst %3; speed over the default schedule %4.%5")
            .arg(after.shapes)
            .arg(pair(percent_text(before.mean), percent_text(after.mean)),
                 pair(percent_text(before.worst), percent_text(after.worst)),
                 pair(factor_text(before.speed_up), factor_text(after.speed_up)),
                 draft_->changed() ? tr(" Last change: %1.").arg(plain_text(draft_->last_change()))
                                   : QString()));
  }

  void report(const std::optional<std::string>& refusal) {
    set_status(refusal ? tr("Refused: %1.").arg(plain_text(*refusal)) : QString());
    show_draft();
  }
  void move_border(size_t node, int64_t value) {
    if (draft_ && node < draft_->tree().nodes().size()) report(draft_->move_border(node, value));
  }
  void undo() {
    if (!draft_) return;
    draft_->undo();
    report({});
  }
  void redo() {
    if (!draft_) return;
    draft_->redo();
    report({});
  }

  // ---- what is written
  // ---------------------------------------------------------------------------

  void write(std::function<QString(db::Store&)> work, std::function<void(const QString&)> done) {
    context().session.write(this, std::move(work), [this, done](const Answer<QString>& answer) {
      if (answer.value) {
        reason_->clear();
        done(*answer.value);
      } else {
        set_status(answer.error);
      }
    });
  }

  bool has_reason() {
    if (!reason_->text().trimmed().isEmpty()) return true;
    set_status(tr("Give a reason first: it is kept with the change."));
    reason_->setFocus();
    return false;
  }

  void save() {
    if (!draft_ || !draft_->changed() || !has_reason()) return;
    const db::NewDispatchTable made = draft_->to_store(reason_->text().trimmed().toStdString());
    write([made](db::Store& store) { return QString::fromStdString(store.create_table(made)); },
          [this](const QString& uuid) {
            draft_.reset();  // what is shown next is what was stored
            context().selection.set_table(uuid.toStdString());
            set_status(tr("Saved as %1, a draft: Activate makes it serve.").arg(uuid.left(8)));
          });
  }

  void activate() {
    if (!draft_ || !has_reason()) return;
    write(
        [uuid = draft_->original().uuid,
         reason = reason_->text().trimmed().toStdString()](db::Store& store) {
          store.activate(uuid, reason);
          return QString::fromStdString(uuid);
        },
        [this](const QString& uuid) { set_status(tr("Active: %1.").arg(uuid.left(8))); });
  }

  void roll_back() {
    if (!draft_ || !has_reason()) return;
    write(
        [uuid = draft_->original().uuid,
         reason = reason_->text().trimmed().toStdString()](db::Store& store) {
          return QString::fromStdString(store.roll_back(uuid, reason).value_or(""));
        },
        [this](const QString& uuid) {
          context().selection.set_table(uuid.toStdString());
          set_status(uuid.isEmpty() ? tr("Rolled back: the default schedule serves now.")
                                    : tr("Rolled back: %1 is active again.").arg(uuid.left(8)));
        });
  }

  // ---- the plot
  // ----------------------------------------------------------------------------------

  std::string x_name() const { return x_symbol_->currentText().toStdString(); }
  std::string y_name() const { return y_symbol_->currentText().toStdString(); }
  bool plane() const {
    return facts_ && !facts_->shapes.empty() && facts_->shapes.front().dims.size() > 1 &&
           x_name() != y_name();
  }

  // Of the symbols beyond the axes: the selected shape's extents, else the middle shape's.
  db::Dims rest() const {
    if (const auto s = facts_->shape_index(context().selection.now().shape))
      return facts_->shapes[*s].dims;
    return facts_->shapes[facts_->shapes.size() / 2].dims;
  }

  void set_extent_axis(QCPAxis* axis, const std::string& symbol) {
    auto ticker = QSharedPointer<QCPAxisTickerLog>::create();
    ticker->setLogBase(2);
    ticker->setSubTickCount(0);
    axis->setScaleType(QCPAxis::stLogarithmic);
    axis->setTicker(ticker);
    axis->setNumberFormat("f");
    axis->setNumberPrecision(0);
    axis->setLabel(tr("extent of %1 (elements)").arg(plain_text(symbol)));
  }

  QCPRange extent_range(const std::string& symbol) const {
    double least = INFINITY, most = 1;
    for (const ShapeFacts& s : facts_->shapes)
      if (const auto it = s.dims.find(symbol); it != s.dims.end()) {
        least = std::min(least, static_cast<double>(std::max<int64_t>(it->second, 1)));
        most = std::max(most, static_cast<double>(it->second));
      }
    return {std::min(least, most) / 1.3, most * 1.3};
  }

  void draw_ground() {
    if (facts_->shapes.empty() || facts_->shapes.front().dims.empty()) return;
    set_extent_axis(plot().xAxis, x_name());
    x_range_ = extent_range(x_name());
    if (plane()) {
      set_extent_axis(plot().yAxis, y_name());
      y_range_ = extent_range(y_name());
    } else {
      plot().yAxis->setScaleType(QCPAxis::stLinear);
      plot().yAxis->setTicker(QSharedPointer<QCPAxisTicker>::create());
      plot().yAxis->setNumberFormat("g");
      plot().yAxis->setLabel(tr("time over the best measured, less 1 (%)"));
    }
    auto dims = std::make_shared<db::Dims>(rest());
    ground_->set(
        [dims, tree = draft_->tree(), x = x_name(), y = plane() ? y_name() : std::string(),
         threads = facts_->record.threads](double at_x, double at_y) {
          (*dims)[x] = extent_at(at_x);
          if (!y.empty()) (*dims)[y] = extent_at(at_y);
          return tree.entry_at(*dims, threads);
        },
        !plane(), is_dark(palette()));
  }

  // A colour an entry, as in the list; of many the first ones.
  void draw_legend() {
    const auto& entries = draft_->now().entries;
    for (size_t i = 0; i < entries.size() && i < 12; ++i) {
      auto* colour = plot().addGraph();
      colour->setName(tr("entry %1: %2").arg(i).arg(short_id(entries[i].config)));
      colour->setPen(Qt::NoPen);
      colour->setBrush(entry_colour(static_cast<int64_t>(i), is_dark(palette())));
    }
    plot().legend->setVisible(true);
  }

  void draw_shapes() {
    const auto before = draft_->before(), after = draft_->after();
    QCPGraph *old = plot().addGraph(), *fresh = plot().addGraph();
    const bool flat = !plane();
    fresh->setName(flat ? tr("regret") : tr("measured shape"));
    old->setName(tr("before"));
    if (!flat || !draft_->changed()) old->removeFromLegend();
    old->setPen(flat && draft_->changed() ? QPen(ink(Ink::kOther, palette()), 1, Qt::DashLine)
                                          : QPen(Qt::NoPen));
    fresh->setPen(flat ? QPen(ink(Ink::kChosen, palette()), 2) : QPen(Qt::NoPen));
    fresh->setLineStyle(flat ? QCPGraph::lsLine : QCPGraph::lsNone);
    fresh->setScatterStyle(
        QCPScatterStyle(QCPScatterStyle::ssDisc, palette().color(QPalette::Text), flat ? 6 : 4));
    std::vector<Mark> marks;
    double top = 1;
    for (size_t i = 0; i < after.size(); ++i) {
      const RegretPoint& p = after[i];
      const auto regret = p.regret(), was = before[i].regret();
      const db::Dims& dims = facts_->shapes[p.shape].dims;
      if (!dims.contains(x_name()) || (flat && !regret)) continue;
      const double x = static_cast<double>(dims.at(x_name()));
      const double y = flat ? *regret * 100 : static_cast<double>(dims.at(y_name()));
      if (flat) {
        top = std::max(top, y);
        if (was && draft_->changed()) {
          old->addData(x, *was * 100);
          top = std::max(top, *was * 100);
        }
      }
      fresh->addData(x, y);
      Mark m{
          x,
          y,
          tr("%1 · entry %2 · %3%4")
              .arg(plain_text(facts_->shapes[p.shape].key))
              .arg(p.entry)
              .arg(regret ? tr("%1, %2 over the best measured")
                                .arg(time_text(p.chosen->result.median_ns), percent_text(*regret))
                          : tr("not measured with this configuration"),
                   draft_->changed() && was ? tr(" (before: %1)").arg(percent_text(*was))
                                            : QString()),
          {}};
      m.choice.shape = facts_->shapes[p.shape].key;
      marks.push_back(std::move(m));
    }
    if (flat) y_range_ = {-0.05 * top, top * 1.15};
    set_marks(std::move(marks));
  }

  void draw_borders() {
    const auto& nodes = draft_->tree().nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      const TreeNode& n = nodes[i];
      const bool interval =
          n.feature.kind == Feature::Kind::kSymbol || n.feature.kind == Feature::Kind::kCeilDiv;
      const bool across = n.feature.a == x_name();
      if (n.leaf || !interval || (!across && !(plane() && n.feature.a == y_name()))) continue;
      Border b{i, across, n.feature.t};
      b.line = new QCPItemStraightLine(&plot());
      b.line->setPen(QPen(palette().color(QPalette::Text), 1.6));
      b.line->setSelectable(false);
      b.label = new QCPItemText(&plot());
      b.label->setColor(palette().color(QPalette::Text));
      b.label->setPadding(QMargins(4, 1, 4, 1));
      b.label->setBrush(QBrush(palette().color(QPalette::Base)));
      lines_ << b.line << b.label;
      place(b, n.value, plain_text(text_of(n)));
      borders_.push_back(b);
    }
  }

  // Between the last shape of one side and the first of the other.
  static double place_of(const Border& b, int64_t value) {
    const double edge = static_cast<double>(value) * static_cast<double>(b.step);
    return std::max(0.6, std::sqrt(edge * (edge + 1)));
  }

  void place(const Border& b, int64_t value, const QString& text) {
    const double at = place_of(b, value);
    b.label->setText(text);
    if (b.across) {
      b.line->point1->setCoords(at, plane() ? 1 : 0);
      b.line->point2->setCoords(at, plane() ? 2 : 1);
      b.label->position->setTypeX(QCPItemPosition::ptPlotCoords);
      b.label->position->setTypeY(QCPItemPosition::ptAxisRectRatio);
      b.label->position->setCoords(at, 0.03 + 0.06 * static_cast<double>(borders_.size() % 4));
      b.label->setPositionAlignment(Qt::AlignTop | Qt::AlignLeft);
    } else {
      b.line->point1->setCoords(1, at);
      b.line->point2->setCoords(2, at);
      b.label->position->setTypeX(QCPItemPosition::ptAxisRectRatio);
      b.label->position->setTypeY(QCPItemPosition::ptPlotCoords);
      b.label->position->setCoords(0.03 + 0.2 * static_cast<double>(borders_.size() % 4), at);
      b.label->setPositionAlignment(Qt::AlignBottom | Qt::AlignLeft);
    }
  }

  int border_at(const QPointF& pixel) const {
    if (!plot().axisRect()->rect().contains(pixel.toPoint())) return -1;
    int best = -1;
    double least = kGrab;
    for (size_t i = 0; i < borders_.size(); ++i) {
      const Border& b = borders_[i];
      const double at = place_of(b, draft_->tree().nodes()[b.node].value);
      const double distance = b.across ? std::abs(plot().xAxis->coordToPixel(at) - pixel.x())
                                       : std::abs(plot().yAxis->coordToPixel(at) - pixel.y());
      if (distance <= least) {
        least = distance;
        best = static_cast<int>(i);
      }
    }
    return best;
  }

  int64_t value_at(const Border& b, const QPointF& pixel) const {
    const double at =
        b.across ? plot().xAxis->pixelToCoord(pixel.x()) : plot().yAxis->pixelToCoord(pixel.y());
    return std::max<int64_t>(0, std::llround(at / static_cast<double>(b.step) - 0.5));
  }

  void show_drag(const QPointF& pixel) {
    const Border& b = borders_[static_cast<size_t>(dragged_)];
    const int64_t value = value_at(b, pixel);
    TreeNode moved = draft_->tree().nodes()[b.node];
    moved.value = value;
    place(b, value, plain_text(text_of(moved)));
    plot().replot(QCustomPlot::rpQueuedReplot);
  }

  std::shared_ptr<const WorkloadFacts> facts_;
  std::unique_ptr<TableDraft> draft_;
  QComboBox *versions_, *x_symbol_, *y_symbol_;
  QTableWidget *tests_, *entries_;
  QLabel* preview_;
  QLineEdit* reason_;
  QPushButton *undo_, *redo_, *save_, *activate_, *roll_back_;
  OverridesPane* overrides_;
  RegionsItem* ground_;
  QList<QCPAbstractItem*> lines_;
  std::vector<Border> borders_;
  QCPRange x_range_{1, 2}, y_range_{0, 1};
  int dragged_ = -1;
};

}  // namespace

View* make_dispatch(const ViewInfo& info, Context& context) {
  return new DispatchView(info, context);
}

}  // namespace nimble::gui
