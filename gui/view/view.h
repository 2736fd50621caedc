// What every window of the program is: a widget with a heading, a line of controls, a line of
// status, a table that can be exported and a picture of itself.
#pragma once

#include <QWidget>
#include <functional>
#include <string_view>
#include <vector>

#include "gui/model/session.h"
#include "gui/model/table_data.h"
#include "gui/model/units.h"
#include "gui/model/workload_model.h"
#include "gui/view/control_row.h"

class QComboBox;
class QLabel;
class QPainter;
class QStackedLayout;

namespace nimble::gui {

// What all windows share.
struct Context {
  Session& session;
  Selection& selection;
  WorkloadModel& workload;
};

class View;
enum class Area { kLeft, kCentre, kBelow };

// A row of Views.def.
struct ViewInfo {
  const char* name;
  const char* title;
  Area area;
  const char* shortcut;
  const char* sentence;
  View* (*make)(const ViewInfo&, Context&);
};
const std::vector<ViewInfo>& views();
const ViewInfo* find_view(std::string_view name);  // nothing if there is none

class View : public QWidget {
  Q_OBJECT
 public:
  View(const ViewInfo& info, Context& context);

  const ViewInfo& info() const { return info_; }
  // What the window shows, in base units.
  virtual TableData table() const = 0;
  // Draws the window into a picture of `size`; by default as it is on the screen.
  virtual void draw(QPainter& painter, const QSize& size);
  // Whether what it shows is still on its way.
  virtual bool loading() const { return false; }
  // Why it shows nothing; empty if it shows something.
  const QString& message() const { return message_; }
  QString heading() const;
  QString status() const;

 signals:
  void status_changed(const QString& text);
  void view_wanted(const QString& name);  // of Views.def, to be shown

 protected:
  Context& context() const { return context_; }
  // Set at construction. Keys go to it, or to its own focus proxy.
  void set_content(QWidget* content);
  ControlRow* controls() const { return controls_; }
  // A box of choices in the line of controls, behind its label; as wide as so many characters and
  // what room there is.
  QComboBox* add_choice(const QString& label, const char* name, int characters);
  void set_heading(const QString& text);
  void set_status(const QString& text);
  // Shows `message` instead of the content; the content if it is empty.
  void set_message(const QString& message);

 private:
  const ViewInfo& info_;
  Context& context_;
  QLabel *heading_, *status_, *message_label_;
  ControlRow* controls_;
  QStackedLayout* stack_;
  QWidget* content_ = nullptr;
  QString message_;
};

// Labels of text that may come from a database: never read as rich text.
QLabel* plain_label(const QString& text = {}, QWidget* parent = nullptr);

}  // namespace nimble::gui
