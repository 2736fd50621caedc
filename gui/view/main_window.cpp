#include "gui/view/main_window.h"

#include <QAction>
#include <QActionGroup>
#include <QApplication>
#include <QCloseEvent>
#include <QDialog>
#include <QDialogButtonBox>
#include <QDockWidget>
#include <QFileDialog>
#include <QHeaderView>
#include <QInputDialog>
#include <QLabel>
#include <QMenuBar>
#include <QMessageBox>
#include <QSettings>
#include <QStatusBar>
#include <QTabBar>
#include <QTableWidget>
#include <QTimer>
#include <QToolBar>
#include <QVBoxLayout>

#include "db/store/place.h"
#include "gui/model/units.h"
#include "gui/view/picture.h"
#include "gui/view/theme.h"
#include "gui/view/view_frame.h"

namespace nimble::gui {
namespace {

constexpr int kWatchMs = 3000;
constexpr int kRecent = 8;
constexpr int kLayoutVersion = 1;  // raised when docks of an older layout would stand wrong

QString printable(const DatabasePlace& place) {
  return plain_text(db::printable_place(place.place));
}

}  // namespace

MainWindow::MainWindow(QWidget* parent)
    : QMainWindow(parent),
      workload_(session_, selection_),
      context_{session_, selection_, workload_} {
  setObjectName(QStringLiteral("main"));
  setWindowTitle(tr("nimble"));
  resize(1440, 900);
  setDockNestingEnabled(true);
  setTabPosition(Qt::AllDockWidgetAreas, QTabWidget::North);
  make_file_menu();
  make_view_menu();
  make_help_menu();
  make_selection_bar();
  place_label_ = plain_label(tr("no database"));
  busy_label_ = plain_label();
  statusBar()->addWidget(place_label_, 1);
  statusBar()->addPermanentWidget(busy_label_);
  connect(&session_, &Session::busy_changed, this,
          [this](int busy) { busy_label_->setText(busy ? tr("reading…") : QString()); });
  connect(&selection_, &Selection::changed, this, &MainWindow::show_selection);
  connect(&workload_, &WorkloadModel::changed, this, &MainWindow::show_selection);
  for (const ViewInfo& info : views()) make_dock(info);
  arrange_docks();
  restore();
  session_.watch(kWatchMs);
  show_selection();
}

MainWindow::~MainWindow() = default;

QAction* MainWindow::add(QMenu* menu, const QString& text, const QString& shortcut,
                         const QString& sentence, std::function<void()> run) {
  auto* action = menu->addAction(text);
  if (!shortcut.isEmpty()) action->setShortcut(QKeySequence(shortcut));
  action->setShortcutContext(Qt::ApplicationShortcut);
  action->setStatusTip(sentence);
  action->setToolTip(sentence);
  connect(action, &QAction::triggered, this, std::move(run));
  actions_.push_back(action);
  return action;
}

void MainWindow::make_file_menu() {
  QMenu* file = menuBar()->addMenu(tr("&File"));
  add(file, tr("&Open…"), "Ctrl+O", tr("Opens a tuning database in a file."),
      [this] { ask_for_file(); });
  add(file, tr("Open &server…"), "Ctrl+Shift+O", tr("Opens a database on a PostgreSQL server."),
      [this] { ask_for_url(); });
  recent_ = file->addMenu(tr("Open &recent"));
  fill_recent();
  add(file, tr("&Read again"), "F5", tr("Makes every window read the database again."),
      [this] { session_.refresh(); });
  file->addSeparator();
  add(file, tr("&Export window…"), "Ctrl+E",
      tr("Writes the current window as CSV, JSON, PNG or SVG."), [this] { ask_for_export(); });
  file->addSeparator();
  add(file, tr("&Quit"), "Ctrl+Q", tr("Ends the program."), [this] { close(); });
}

void MainWindow::make_view_menu() {
  view_menu_ = menuBar()->addMenu(tr("&Windows"));
  for (const ViewInfo& info : views())
    add(view_menu_, tr(info.title), info.shortcut, tr(info.sentence),
        [this, name = std::string(info.name)] { show_view(name); });
  view_menu_->addSeparator();
  add(view_menu_, tr("&Next window"), "Ctrl+Tab", tr("Goes to the next window that is shown."),
      [this] { step_view(1); });
  add(view_menu_, tr("&Previous window"), "Ctrl+Shift+Tab", tr("Goes to the one before."),
      [this] { step_view(-1); });
  add(view_menu_, tr("&Default layout"), "", tr("Puts every window back to its place."),
      [this] { arrange_docks(); });
  QMenu* theme = view_menu_->addMenu(tr("&Colours"));
  themes_ = new QActionGroup(this);
  const std::pair<Theme, QString> all[] = {{Theme::kSystem, tr("As the &system")},
                                           {Theme::kLight, tr("&Light")},
                                           {Theme::kDark, tr("&Dark")}};
  for (const auto& [value, text] : all) {
    QAction* action =
        add(theme, text, "", tr("Colours of all windows."), [value = value] { set_theme(value); });
    action->setCheckable(true);
    action->setData(name_of(value));
    themes_->addAction(action);
  }
}

void MainWindow::make_help_menu() {
  QMenu* help = menuBar()->addMenu(tr("&Help"));
  add(help, tr("&Keyboard"), "F1", tr("Lists every key."), [this] { show_keyboard_map(); });
  add(help, tr("&About"), "", tr("Tells version and licence."), [this] {
    QMessageBox box(this);
    box.setWindowTitle(tr("About nimble"));
    box.setTextFormat(Qt::PlainText);
    box.setText(tr("nimble gui " NIMBLE_VERSION
                   "\n\nThe sources of nimble are under the Apache License 2.0. This program is "
                   "linked with QCustomPlot, so it as a whole is under the GNU General Public "
                   "License 3."));
    box.exec();
  });
}

void MainWindow::make_selection_bar() {
  auto* bar = addToolBar(tr("Selection"));
  bar->setObjectName(QStringLiteral("selection"));
  bar->setMovable(false);
  selection_label_ = plain_label();
  selection_label_->setObjectName(QStringLiteral("selected"));
  selection_label_->setAccessibleName(tr("Selected"));
  selection_label_->setMargin(3);
  selection_label_->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Preferred);
  selection_label_->setMinimumWidth(1);  // long text is cut, and whole in the tool tip
  auto* clear = new QAction(tr("Clear"), this);
  clear->setShortcut(QKeySequence(QStringLiteral("Ctrl+Backspace")));
  clear->setToolTip(tr("Selects nothing but the workload (Ctrl+Backspace)."));
  connect(clear, &QAction::triggered, this, [this] {
    Choice next;
    next.workload = selection_.now().workload;
    next.hardware = selection_.now().hardware;
    next.policy = selection_.now().policy;
    selection_.set(next);
  });
  actions_.push_back(clear);
  bar->addAction(clear);
  bar->addWidget(selection_label_);
}

void MainWindow::show_selection() {
  const Choice& now = selection_.now();
  QStringList parts;
  if (workload_.facts())
    parts << plain_text(title_of(*workload_.facts()))
          << plain_text(workload_.facts()->machine.model_name);
  const auto part = [&](const QString& what, const std::string& value) {
    if (!value.empty()) parts << what + QChar(' ') + value.c_str();
  };
  if (!now.campaign.empty()) parts << tr("campaign ") + short_id(now.campaign);
  part(tr("shape"), now.shape);
  if (!now.config.empty()) parts << tr("configuration ") + short_id(now.config);
  if (!now.table.empty()) parts << tr("table ") + short_id(now.table);
  selection_label_->setText(parts.isEmpty() ? tr("Nothing is selected.")
                                            : parts.join(QStringLiteral("   ›   ")));
  selection_label_->setToolTip(plain_tool_tip(selection_label_->text()));
}

QDockWidget* MainWindow::make_dock(const ViewInfo& info) {
  auto* dock = new QDockWidget(tr(info.title), this);
  dock->setObjectName(QStringLiteral("dock.") + QLatin1String(info.name));
  dock->setAllowedAreas(Qt::AllDockWidgetAreas);
  docks_[info.name] = dock;
  connect(dock, &QDockWidget::visibilityChanged, this, [this, dock](bool visible) {
    if (visible) fill(dock);
  });
  return dock;
}

void MainWindow::fill(QDockWidget* dock) {
  if (dock->widget()) return;
  const std::string name = dock->objectName().mid(5).toStdString();
  const ViewInfo* info = find_view(name);
  if (!info) return;
  View* view = info->make(*info, context_);
  dock->setWidget(new ViewFrame(view));
  connect(view, &View::view_wanted, this,
          [this](const QString& wanted) { show_view(wanted.toStdString()); });
}

void MainWindow::arrange_docks() {
  // First one dock an area: beside a tab Qt would add a tab instead of dividing the place.
  std::map<Area, QDockWidget*> first;
  for (const ViewInfo& info : views()) {
    docks_[info.name]->setFloating(false);
    removeDockWidget(docks_[info.name]);
    first.emplace(info.area, docks_[info.name]);
  }
  for (const auto& [area, dock] : first)
    addDockWidget(area == Area::kLeft ? Qt::LeftDockWidgetArea : Qt::RightDockWidgetArea, dock);
  if (first.contains(Area::kBelow) && first.contains(Area::kCentre))
    splitDockWidget(first[Area::kCentre], first[Area::kBelow], Qt::Vertical);
  for (const ViewInfo& info : views()) {
    QDockWidget* dock = docks_[info.name];
    if (dock != first[info.area]) tabifyDockWidget(first[info.area], dock);
    dock->show();
  }
  for (const auto& [area, dock] : first) dock->raise();
  if (first.contains(Area::kLeft) && first.contains(Area::kCentre))
    resizeDocks({first[Area::kLeft], first[Area::kCentre]}, {460, 980}, Qt::Horizontal);
  if (first.contains(Area::kBelow) && first.contains(Area::kCentre))
    resizeDocks({first[Area::kCentre], first[Area::kBelow]}, {520, 300}, Qt::Vertical);
}

View* MainWindow::show_view(const std::string& name) {
  const auto it = docks_.find(name);
  if (it == docks_.end()) return nullptr;
  QDockWidget* dock = it->second;
  dock->show();
  dock->raise();
  fill(dock);
  // A dock that was behind another one is shown only when events are handled.
  View* view = dock->findChild<View*>();
  view->setFocus(Qt::ShortcutFocusReason);
  QTimer::singleShot(0, view, [view] { view->setFocus(Qt::ShortcutFocusReason); });
  return view;
}

View* MainWindow::current_view() const {
  for (QWidget* w = QApplication::focusWidget(); w; w = w->parentWidget())
    if (auto* view = qobject_cast<View*>(w)) return view;
  return nullptr;
}

void MainWindow::step_view(int by) {
  const auto count = static_cast<int>(views().size());
  int at = by > 0 ? -1 : count;
  for (int i = 0; i < count; ++i)
    if (current_view() && &current_view()->info() == &views()[static_cast<size_t>(i)]) at = i;
  for (int step = 0; step < count; ++step) {
    at = (at + by + count) % count;
    const std::string name = views()[static_cast<size_t>(at)].name;
    if (!docks_[name]->isHidden()) {
      show_view(name);
      return;
    }
  }
}

void MainWindow::open(const DatabasePlace& place) {
  selection_.clear();
  session_.open(place);
  place_label_->setText(printable(place) + (place.read_only ? tr(" (read only)") : QString()));
  setWindowTitle(tr("%1 — nimble").arg(printable(place)));
  remember(place);
}

void MainWindow::ask_for_file() {
  const QString file =
      QFileDialog::getOpenFileName(this, tr("Open a tuning database"), {},
                                   tr("Tuning databases (*.db *.nimbledb);;All files (*)"));
  if (!file.isEmpty()) open({file.toStdString(), false});
}

void MainWindow::ask_for_url() {
  const QString url = QInputDialog::getText(
      this, tr("Open a database on a server"),
      tr("postgresql://USER@HOST/DATABASE (keep the password in ~/.pgpass):"));
  if (!url.isEmpty()) open({url.toStdString(), false});
}

void MainWindow::ask_for_export() {
  View* view = current_view();
  if (!view) {
    statusBar()->showMessage(tr("Go to a window first; its content is what is exported."), 8000);
    return;
  }
  const QString path =
      QFileDialog::getSaveFileName(this, tr("Export %1").arg(tr(view->info().title)),
                                   QLatin1String(view->info().name) + QStringLiteral(".svg"),
                                   tr("Pictures and tables (*.svg *.png *.csv *.json)"));
  if (path.isEmpty()) return;
  try {
    export_view(*view, path, {view->size(), devicePixelRatioF()});
    statusBar()->showMessage(tr("Written: %1").arg(path), 8000);
  } catch (const Error& e) {
    QMessageBox box(QMessageBox::Warning, tr("Export"), plain_text(e.what(), 1000), QMessageBox::Ok,
                    this);
    box.setTextFormat(Qt::PlainText);
    box.exec();
  }
}

TableData MainWindow::keyboard_map() const {
  TableData t{{"key", "action", "what"}, {}};
  for (const QAction* a : actions_)
    if (!a->shortcut().isEmpty())
      t.rows.push_back(
          {a->shortcut().toString(), QString(a->text()).remove('&').remove(u'…'), a->toolTip()});
  const std::pair<const char*, const char*> in_windows[] = {
      {"Arrow keys", "in a plot: the next point in that direction"},
      {"Home, End", "in a plot: the first and the last point"},
      {"Enter", "in a plot or table: selects what the cursor is at, for all windows"},
      {"+, -, 0", "in a plot: larger, smaller, all of it"},
      {"Ctrl+C", "in a table or text: copies what is selected"},
      {"Tab, Shift+Tab", "the next control of a window, the one before"},
      {"Alt+letter", "a menu by its underlined letter"},
  };
  for (const auto& [key, what] : in_windows) t.rows.push_back({key, QString(), what});
  return t;
}

void MainWindow::show_keyboard_map() {
  QDialog dialog(this);
  dialog.setObjectName(QStringLiteral("keyboard"));
  dialog.setWindowTitle(tr("Keyboard"));
  dialog.resize(720, 560);
  const TableData keys = keyboard_map();
  auto* table = new QTableWidget(static_cast<int>(keys.rows.size()), 3);
  table->setHorizontalHeaderLabels({tr("Key"), tr("Action"), tr("What it does")});
  table->setEditTriggers(QAbstractItemView::NoEditTriggers);
  table->setAccessibleName(tr("Keys"));
  table->verticalHeader()->setVisible(false);
  table->horizontalHeader()->setStretchLastSection(true);
  for (size_t row = 0; row < keys.rows.size(); ++row)
    for (size_t column = 0; column < 3; ++column)
      table->setItem(static_cast<int>(row), static_cast<int>(column),
                     new QTableWidgetItem(keys.rows[row][column].toString()));
  table->resizeColumnsToContents();
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Close);
  connect(buttons, &QDialogButtonBox::rejected, &dialog, &QDialog::reject);
  auto* column = new QVBoxLayout(&dialog);
  column->addWidget(table);
  column->addWidget(buttons);
  dialog.exec();
}

// ---- what is kept -------------------------------------------------------------------------------

void MainWindow::remember(const DatabasePlace& place) {
  QSettings settings;
  QStringList recent = settings.value(QStringLiteral("recent")).toStringList();
  const QString name = QString::fromStdString(db::printable_place(place.place));  // no password
  recent.removeAll(name);
  recent.prepend(name);
  settings.setValue(QStringLiteral("recent"), QStringList(recent.mid(0, kRecent)));
  fill_recent();
}

void MainWindow::fill_recent() {
  recent_->clear();
  for (const QString& place : QSettings().value(QStringLiteral("recent")).toStringList()) {
    QAction* action = recent_->addAction(QString(place).replace('&', QLatin1String("&&")));
    connect(action, &QAction::triggered, this, [this, place] {
      open({place.toStdString(), false});
    });
  }
  recent_->setEnabled(!recent_->isEmpty());
}

void MainWindow::restore() {
  QSettings settings;
  const Theme theme = theme_from_name(settings.value(QStringLiteral("theme")).toString());
  set_theme(theme);
  for (QAction* action : themes_->actions()) action->setChecked(action->data() == name_of(theme));
  restoreGeometry(settings.value(QStringLiteral("geometry")).toByteArray());
  restoreState(settings.value(QStringLiteral("layout")).toByteArray(), kLayoutVersion);
}

void MainWindow::save() {
  QSettings settings;
  settings.setValue(QStringLiteral("geometry"), saveGeometry());
  settings.setValue(QStringLiteral("layout"), saveState(kLayoutVersion));
  if (const QAction* theme = themes_->checkedAction())
    settings.setValue(QStringLiteral("theme"), theme->data());
}

// Docks that share a place have tabs, which Qt makes as it needs them. In a narrow window they are
// scrolled: of shortened ones nobody can tell which is which.
void MainWindow::childEvent(QChildEvent* event) {
  QMainWindow::childEvent(event);
  if (!event->polished()) return;
  if (auto* tabs = qobject_cast<QTabBar*>(event->child())) {
    tabs->setElideMode(Qt::ElideNone);
    tabs->setUsesScrollButtons(true);
  }
}

void MainWindow::closeEvent(QCloseEvent* event) {
  save();
  event->accept();
}

}  // namespace nimble::gui
