// "Dispatch editor": a version of a dispatch table as regions of shapes, one colour an entry.
// Borders are dragged, or typed in the list of tests; entries get other configurations; what that
// costs is told at once. Nothing is written before "Save as draft", and nothing serves before
// "Activate".
#include <QComboBox>
#include <QShortcut>
#include <QSplitter>
#include <QVBoxLayout>
#include <cmath>
#include <set>

#include "gui/model/table_draft.h"
#include "gui/model/units.h"
#include "gui/view/border_lines.h"
#include "gui/view/cut_pane.h"
#include "gui/view/draft_actions.h"
#include "gui/view/draft_lists.h"
#include "gui/view/overrides_pane.h"
#include "gui/view/plot_view.h"
#include "gui/view/regions_item.h"

namespace nimble::gui {
namespace {

// Between two extents the middle of the logarithmic scale divides, where borders stand, too.
int64_t extent_at(double place) {
  const double below = std::floor(std::max(place, 0.0));
  return static_cast<int64_t>(below) + (place > std::sqrt(below * (below + 1)));
}

class DispatchView final : public PlotView {
 public:
  DispatchView(const ViewInfo& info, Context& context) : PlotView(info, context), borders_(plot()) {
    make_controls();
    make_panel();
    ground_ = new RegionsItem(plot().xAxis, plot().yAxis);
    plot().setInteractions(QCP::iRangeZoom);  // a drag is for borders
    connect(&context.workload, &WorkloadModel::changed, this, &DispatchView::take_table);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      const Choice& now = this->context().selection.now();
      if (now.table != before.table) return take_table();
      if (now.shape == before.shape || !draft_) return;
      if (const auto s = facts_->shape_index(now.shape)) cut_->move_to(facts_->shapes[*s].dims);
      redraw();
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
                        schedule_of(*facts_, e.config),
                        e.expected_ns ? QVariant(*e.expected_ns) : QVariant(),
                        e.regret ? QVariant(*e.regret) : QVariant(), plain_text(e.reason)});
    return t;
  }

 protected:
  void redraw() override {
    plot().clearPlottables();
    borders_.clear();
    if (!draft_) {
      cut_->hide();
      ground_->set({}, true, false);
      return set_marks({});
    }
    set_heading(tr("%1 · table %2, version %3, %4%5")
                    .arg(plain_text(title_of(*facts_)), short_id(draft_->original().uuid))
                    .arg(draft_->original().version)
                    .arg(plain_text(db::name_of(draft_->original().status)),
                         draft_->changed() ? tr(" · edited, not saved") : QString()));
    show_cut();
    draw_ground();
    draw_legend();
    draw_shapes();
    borders_.show(draft_->tree(), x_name(), plane() ? y_name() : std::string(), palette());
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
    const auto at = [event] { return static_cast<QMouseEvent*>(event)->position(); };
    if (event->type() == QEvent::MouseButtonPress) {
      dragged_ = borders_.at(at());
      if (dragged_ >= 0) return true;
    }
    if (event->type() == QEvent::MouseMove) {
      if (dragged_ >= 0) {
        borders_.drag(dragged_, at());
        return true;
      }
      const int border = borders_.at(at());
      plot().setCursor(border < 0                ? Qt::ArrowCursor
                       : borders_.across(border) ? Qt::SplitHCursor
                                                 : Qt::SplitVCursor);
    }
    if (event->type() == QEvent::MouseButtonRelease && dragged_ >= 0) {
      const int border = std::exchange(dragged_, -1);
      move_border(borders_.node(border), borders_.value_at(border, at()));
      return true;
    }
    return PlotView::eventFilter(object, event);
  }

 private:
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

  void make_panel() {
    lists_ = new DraftLists;
    connect(lists_, &DraftLists::config_chosen, this, [this](size_t entry, const db::Hash& config) {
      if (draft_) report(draft_->set_config(entry, config));
    });
    connect(lists_, &DraftLists::value_chosen, this, &DispatchView::move_border);
    actions_ = new DraftActions(context());
    connect(actions_, &DraftActions::undo, this, &DispatchView::undo);
    connect(actions_, &DraftActions::redo, this, &DispatchView::redo);
    connect(actions_, &DraftActions::said, this, [this](const QString& t) { set_status(t); });
    connect(actions_, &DraftActions::saved, this, [this] {
      actions_->show_draft(nullptr);
      draft_.reset();  // what is shown next is what was stored
    });
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
    column->addWidget(lists_, 5);
    column->addWidget(actions_);
    column->addWidget(overrides_, 1);
    auto* split = new QSplitter(Qt::Horizontal);
    cut_ = new CutPane;
    connect(cut_, &CutPane::moved, this, &DispatchView::redraw);
    auto* left = new QWidget;
    auto* beside = new QVBoxLayout(left);
    beside->setContentsMargins(0, 0, 0, 0);
    beside->addWidget(&plot(), 1);
    beside->addWidget(cut_);
    split->addWidget(left);
    plot().show();  // it was no longer the content, so it was hidden
    split->addWidget(panel);
    split->setStretchFactor(0, 3);
    split->setStretchFactor(1, 2);
    split->setFocusProxy(&plot());
    set_content(split);
  }

  // ---- what is edited ----

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
      actions_->show_draft(nullptr);
      draft_.reset();
      try {
        if (table) draft_ = std::make_unique<TableDraft>(facts_, *table);
      } catch (const Error& e) {
        set_message(plain_text(e.what(), 1000));
      }
    }
    if (draft_ && !facts_->shapes.empty()) {
      // Beyond the axes the plot cuts at the selected shape, else at the middle one.
      const auto s = facts_->shape_index(context().selection.now().shape);
      const db::Dims& dims = facts_->shapes[s.value_or(facts_->shapes.size() / 2)].dims;
      if (s || !same) cut_->move_to(dims);
    }
    fill_choices();
    overrides_->show_facts(facts_, in_force(), draft_ ? draft_->original().uuid : db::Uuid());
    show_draft();
  }

  // Of what serves now: the active table and the overrides over it.
  std::vector<RegretPoint> in_force() const {
    if (!facts_) return {};
    try {
      return regret_of(*facts_, facts_->table({}), Serving::Overrides::kLaid);
    } catch (const Error&) {
      return {};  // the message tells
    }
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
    lists_->show_draft(facts_.get(), draft_.get());
    actions_->show_draft(draft_.get());
    redraw();
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

  // ---- the plot ----

  std::string x_name() const { return x_symbol_->currentText().toStdString(); }
  std::string y_name() const { return y_symbol_->currentText().toStdString(); }
  bool plane() const {
    return facts_ && !facts_->shapes.empty() && facts_->shapes.front().dims.size() > 1 &&
           x_name() != y_name();
  }

  void show_cut() {
    std::map<std::string, std::set<int64_t>> sets;
    for (const ShapeFacts& s : facts_->shapes)
      for (const auto& [symbol, extent] : s.dims) sets[symbol].insert(extent);
    std::map<std::string, std::vector<int64_t>> extents;
    for (const auto& [symbol, all] : sets) extents[symbol].assign(all.begin(), all.end());
    std::vector<std::string> on_axes{x_name()};
    if (plane()) on_axes.push_back(y_name());
    cut_->show_table(draft_->tree(), facts_->record.threads, extents, on_axes);
  }

  // Whether a shape lies where the plot cuts: equal in all symbols that have no axis.
  bool on_cut(const db::Dims& dims) const {
    for (const auto& [symbol, extent] : dims) {
      const auto at = cut_->place().find(symbol);
      if (symbol != x_name() && !(plane() && symbol == y_name()) && at != cut_->place().end() &&
          at->second != extent)
        return false;
    }
    return true;
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
      set_linear_axis(plot().yAxis, tr("time over the best measured, less 1 (%)"));
    }
    auto dims = std::make_shared<db::Dims>(cut_->place());
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
    QCPGraph *old = plot().addGraph(), *fresh = plot().addGraph(), *off = plot().addGraph();
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
    off->setName(tr("measured at other extents"));
    off->setPen(Qt::NoPen);
    off->setLineStyle(QCPGraph::lsNone);
    off->setScatterStyle(
        QCPScatterStyle(QCPScatterStyle::ssCircle, ink(Ink::kOther, palette()), flat ? 6 : 4));
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
      (on_cut(dims) ? fresh : off)->addData(x, y);
      Mark m{
          x,
          y,
          tr("%1 · entry %2 · %3%4")
              .arg(plain_text(facts_->shapes[p.shape].key))
              .arg(p.served.entry)
              .arg(regret ? tr("%1, %2 over the best measured")
                                .arg(time_text(p.chosen->result.median_ns), percent_text(*regret))
                          : tr("not measured with this configuration"),
                   draft_->changed() && was ? tr(" (before: %1)").arg(percent_text(*was))
                                            : QString()),
          {}};
      m.choice.shape = facts_->shapes[p.shape].key;
      marks.push_back(std::move(m));
    }
    if (off->data()->isEmpty()) off->removeFromLegend();
    if (flat) y_range_ = {-0.05 * top, top * 1.15};
    set_marks(std::move(marks));
  }

  std::shared_ptr<const WorkloadFacts> facts_;
  std::unique_ptr<TableDraft> draft_;
  QComboBox *versions_, *x_symbol_, *y_symbol_;
  DraftLists* lists_;
  DraftActions* actions_;
  CutPane* cut_;
  OverridesPane* overrides_;
  RegionsItem* ground_;
  BorderLines borders_;
  QCPRange x_range_{1, 2}, y_range_{0, 1};
  int dragged_ = -1;
};

}  // namespace

View* make_dispatch(const ViewInfo& info, Context& context) {
  return new DispatchView(info, context);
}

}  // namespace nimble::gui
