// The buttons under the dispatch editor: undo and redo, and what is written, each time with the
// reason that a person gives. Nothing is written before "Save as draft", and nothing serves before
// "Activate".
#pragma once

#include <QWidget>
#include <functional>

#include "db/store/store.h"

class QHBoxLayout;
class QLineEdit;
class QPushButton;

namespace nimble::gui {

struct Context;
class TableDraft;

class DraftActions final : public QWidget {
  Q_OBJECT
 public:
  explicit DraftActions(Context& context, QWidget* parent = nullptr);
  // Null: nothing is edited. The draft must live until the next call.
  void show_draft(const TableDraft* draft);

 Q_SIGNALS:
  void undo();
  void redo();
  // What was edited is in the database; the draft is not needed any more.
  void saved();
  void said(const QString& text);

 private:
  QPushButton* button(QHBoxLayout* row, const QString& text, const char* name, const QString& tip);
  void write(std::function<QString(db::Store&)> work, std::function<void(const QString&)> done);
  bool has_reason();
  std::string reason() const;
  void save();
  void copy_verify();
  void activate();
  void roll_back();

  Context& context_;
  const TableDraft* draft_ = nullptr;
  QLineEdit* reason_;
  QPushButton *undo_, *redo_, *save_, *verify_, *activate_, *roll_back_;
};

}  // namespace nimble::gui
