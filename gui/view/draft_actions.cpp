#include "gui/view/draft_actions.h"

#include <QClipboard>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QLineEdit>
#include <QPushButton>
#include <QVBoxLayout>

#include "db/store/place.h"
#include "gui/model/table_draft.h"
#include "gui/view/campaign_dialogs.h"
#include "gui/view/view.h"

namespace nimble::gui {

DraftActions::DraftActions(Context& context, QWidget* parent)
    : QWidget(parent), context_(context), reason_(new QLineEdit) {
  reason_->setObjectName(QStringLiteral("reason"));
  reason_->setAccessibleName(tr("Reason"));
  reason_->setPlaceholderText(tr("Reason: due for every change that is kept"));
  auto* row = new QHBoxLayout;
  undo_ = button(row, tr("Undo"), "undo", tr("Takes the last change back (Ctrl+Z)."));
  redo_ = button(row, tr("Redo"), "redo", tr("Makes it again (Ctrl+Shift+Z)."));
  save_ = button(row, tr("&Save as draft"), "save",
                 tr("Stores the edited table as a new version that serves nothing yet."));
  verify_ = button(row, tr("Copy &verify"), "verify",
                   tr("Copies the command that times this version beside what it would displace, "
                      "and activates it if it is not slower."));
  activate_ = button(row, tr("&Activate"), "activate",
                     tr("Makes this version, as it is stored, the one that compilers use, whether "
                        "it was verified or not."));
  roll_back_ = button(row, tr("Roll &back"), "rollback",
                      tr("Retires this version; what was active before is active again."));
  connect(undo_, &QPushButton::clicked, this, &DraftActions::undo);
  connect(redo_, &QPushButton::clicked, this, &DraftActions::redo);
  connect(save_, &QPushButton::clicked, this, &DraftActions::save);
  connect(verify_, &QPushButton::clicked, this, &DraftActions::copy_verify);
  connect(activate_, &QPushButton::clicked, this, &DraftActions::activate);
  connect(roll_back_, &QPushButton::clicked, this, &DraftActions::roll_back);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(0, 0, 0, 0);
  column->addWidget(reason_);
  column->addLayout(row);
}

QPushButton* DraftActions::button(QHBoxLayout* row, const QString& text, const char* name,
                                  const QString& tip) {
  auto* b = new QPushButton(text);
  b->setObjectName(QLatin1String(name));
  b->setToolTip(tip);
  row->addWidget(b);
  return b;
}

void DraftActions::show_draft(const TableDraft* draft) {
  draft_ = draft;
  undo_->setEnabled(draft_ && draft_->can_undo());
  redo_->setEnabled(draft_ && draft_->can_redo());
  const bool writable = !context_.session.place().read_only;
  save_->setEnabled(draft_ && draft_->changed() && writable);
  const bool active = draft_ && draft_->original().status == db::TableStatus::kActive;
  verify_->setEnabled(draft_ && !draft_->changed() && !active);
  activate_->setEnabled(draft_ && !draft_->changed() && !active && writable);
  roll_back_->setEnabled(draft_ && !draft_->changed() && active && writable);
}

void DraftActions::write(std::function<QString(db::Store&)> work,
                         std::function<void(const QString&)> done) {
  context_.session.write(this, std::move(work), [this, done](const Answer<QString>& answer) {
    if (!answer.value) {
      Q_EMIT said(answer.error);
      return;
    }
    reason_->clear();
    done(*answer.value);
  });
}

std::string DraftActions::reason() const {
  return reason_->text().trimmed().toStdString();
}

bool DraftActions::has_reason() {
  if (!reason().empty()) return true;
  Q_EMIT said(tr("Give a reason first: it is kept with the change."));
  reason_->setFocus();
  return false;
}

void DraftActions::save() {
  if (!draft_ || !draft_->changed() || !has_reason()) return;
  const db::NewDispatchTable made = draft_->to_store(reason());
  write([made](db::Store& store) { return QString::fromStdString(store.create_table(made)); },
        [this](const QString& uuid) {
          Q_EMIT saved();
          context_.selection.set_table(uuid.toStdString());
          Q_EMIT said(tr("Saved as %1, a draft: Copy verify gives the command that tries it, "
                         "Activate makes it serve untried.")
                          .arg(uuid.left(8)));
        });
}

void DraftActions::copy_verify() {
  if (!draft_) return;
  const QStringList command{
      QStringLiteral("nimble"),
      QStringLiteral("dispatch"),
      QStringLiteral("verify"),
      QString::fromStdString(draft_->original().uuid),
      QStringLiteral("MODEL"),
      QStringLiteral("--db"),
      QString::fromStdString(db::printable_place(context_.session.place().place))};
  QGuiApplication::clipboard()->setText(shell_command(command));
  Q_EMIT said(
      tr("Copied. Put the model that was tuned in place of MODEL, and run it on a machine "
         "of this kind."));
}

void DraftActions::activate() {
  if (!draft_ || !has_reason()) return;
  write(
      [uuid = draft_->original().uuid, reason = reason()](db::Store& store) {
        store.activate(uuid, reason);
        return QString::fromStdString(uuid);
      },
      [this](const QString& uuid) { Q_EMIT said(tr("Active: %1.").arg(uuid.left(8))); });
}

void DraftActions::roll_back() {
  if (!draft_ || !has_reason()) return;
  write(
      [uuid = draft_->original().uuid, reason = reason()](db::Store& store) {
        return QString::fromStdString(store.roll_back(uuid, reason).value_or(""));
      },
      [this](const QString& uuid) {
        context_.selection.set_table(uuid.toStdString());
        Q_EMIT said(uuid.isEmpty() ? tr("Rolled back: the default schedule serves now.")
                                   : tr("Rolled back: %1 is active again.").arg(uuid.left(8)));
      });
}

}  // namespace nimble::gui
