// The program's window: every row of Views.def in a dock, the selection above them, and the
// keyboard map. Docks are made when they are first shown, so that a window costs nothing before.
#pragma once

#include <QMainWindow>
#include <map>
#include <string>

#include "gui/view/view.h"

class QActionGroup;
class QDockWidget;
class QLabel;
class QMenu;

namespace nimble::gui {

class MainWindow : public QMainWindow {
  Q_OBJECT
 public:
  explicit MainWindow(QWidget* parent = nullptr);
  ~MainWindow() override;

  void open(const DatabasePlace& place);
  Context& context() { return context_; }
  // The window of that name, made if it was not yet; nothing if Views.def has no such row.
  View* show_view(const std::string& name);
  // Every action with a shortcut: what "Keyboard" in the menu of help lists.
  TableData keyboard_map() const;

 protected:
  void closeEvent(QCloseEvent* event) override;
  void childEvent(QChildEvent* event) override;

 private:
  void make_file_menu();
  void make_view_menu();
  void make_selection_bar();
  void make_help_menu();
  QAction* add(QMenu* menu, const QString& text, const QString& shortcut, const QString& sentence,
               std::function<void()> run);
  QDockWidget* make_dock(const ViewInfo& info);
  void arrange_docks();
  void fill(QDockWidget* dock);
  View* current_view() const;
  void step_view(int by);
  void ask_for_file();
  void ask_for_url();
  void ask_for_export();
  void show_keyboard_map();
  void show_selection();
  void remember(const DatabasePlace& place);
  void fill_recent();
  void restore();
  void save();

  Session session_;
  Selection selection_;
  WorkloadModel workload_;
  Context context_;
  std::map<std::string, QDockWidget*> docks_;
  QMenu *recent_ = nullptr, *view_menu_ = nullptr;
  QActionGroup* themes_ = nullptr;
  QLabel *selection_label_ = nullptr, *busy_label_ = nullptr, *place_label_ = nullptr;
  std::vector<QAction*> actions_;
};

}  // namespace nimble::gui
