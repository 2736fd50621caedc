#include "gui/view/campaign_dialogs.h"

#include <QClipboard>
#include <QComboBox>
#include <QDialog>
#include <QDialogButtonBox>
#include <QDoubleSpinBox>
#include <QFormLayout>
#include <QGuiApplication>
#include <QLabel>
#include <QLineEdit>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QRegularExpression>
#include <QVBoxLayout>

#include "db/store/place.h"
#include "gui/model/units.h"
#include "gui/view/view.h"

namespace nimble::gui {

std::optional<QString> confirm_request(QWidget* parent, const QString& request,
                                       const QString& campaign, const QString& what) {
  QDialog dialog(parent);
  dialog.setObjectName(QStringLiteral("confirm"));
  dialog.setWindowTitle(QObject::tr("Ask a campaign to %1").arg(request));
  auto* column = new QVBoxLayout(&dialog);
  auto* text = plain_label(QObject::tr("Ask campaign %1 to %2? %3").arg(campaign, request, what));
  text->setWordWrap(true);
  text->setMinimumWidth(420);
  column->addWidget(text);
  auto* reason = new QLineEdit;
  reason->setObjectName(QStringLiteral("reason"));
  reason->setAccessibleName(QObject::tr("Reason"));
  reason->setPlaceholderText(QObject::tr("Reason, kept with the request"));
  column->addWidget(reason);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Ok | QDialogButtonBox::Cancel);
  buttons->button(QDialogButtonBox::Ok)->setText(QObject::tr("Ask"));
  QObject::connect(buttons, &QDialogButtonBox::accepted, &dialog, &QDialog::accept);
  QObject::connect(buttons, &QDialogButtonBox::rejected, &dialog, &QDialog::reject);
  column->addWidget(buttons);
  if (dialog.exec() != QDialog::Accepted) return std::nullopt;
  return reason->text().trimmed();
}

QString shell_command(const QStringList& parts) {
  static const QRegularExpression plain(QStringLiteral("^[A-Za-z0-9_@%+=:,./-]+$"));
  QStringList quoted;
  for (const QString& part : parts)
    quoted << (plain.match(part).hasMatch() ? part
                                            : QStringLiteral("'%1'").arg(QString(part).replace(
                                                  QLatin1Char('\''), QLatin1String("'\\''"))));
  return quoted.join(QLatin1Char(' '));
}

QString requester() {
  const QString user = qEnvironmentVariable("USER", qEnvironmentVariable("LOGNAME"));
  return user.isEmpty() ? QStringLiteral("nimble gui") : user + QStringLiteral(" (nimble gui)");
}

void show_start_command(QWidget* parent, const DatabasePlace& place) {
  QDialog dialog(parent);
  dialog.setObjectName(QStringLiteral("start"));
  dialog.setWindowTitle(QObject::tr("Start a campaign"));
  dialog.resize(560, 300);
  auto* form = new QFormLayout(&dialog);
  const auto field = [&](const QString& label, const char* name, const QString& text) {
    auto* line = new QLineEdit(text);
    line->setObjectName(QLatin1String(name));
    line->setAccessibleName(label);
    form->addRow(label, line);
    return line;
  };
  auto* model = field(QObject::tr("Model"), "model", QStringLiteral("model.onnx"));
  model->setToolTip(QObject::tr("A .onnx or .nir file, or a folder of Hugging Face."));
  auto* budget = new QDoubleSpinBox;
  budget->setObjectName(QStringLiteral("budget"));
  budget->setAccessibleName(QObject::tr("Budget in minutes"));
  budget->setRange(0.1, 100'000);
  budget->setDecimals(1);
  budget->setValue(30);
  budget->setSuffix(QObject::tr(" min"));
  form->addRow(QObject::tr("Budget"), budget);
  auto* threads = field(QObject::tr("Threads"), "threads", {});
  threads->setPlaceholderText(QObject::tr("all that may be used"));
  auto* command = new QPlainTextEdit;
  command->setObjectName(QStringLiteral("command"));
  command->setAccessibleName(QObject::tr("Command"));
  command->setReadOnly(true);
  form->addRow(QObject::tr("Command"), command);
  auto* hint = plain_label(QObject::tr(
      "This window runs nothing: paste the command into a terminal on the machine that is to "
      "measure. Progress shows here as the database changes."));
  hint->setWordWrap(true);
  form->addRow(hint);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Close);
  auto* copy = buttons->addButton(QObject::tr("&Copy"), QDialogButtonBox::ActionRole);
  copy->setObjectName(QStringLiteral("copy"));
  form->addRow(buttons);
  const auto fill = [=] {
    QStringList parts{QStringLiteral("nimble"),
                      QStringLiteral("tune"),
                      model->text(),
                      QStringLiteral("--db"),
                      place.place.empty()
                          ? QStringLiteral("tuning.db")
                          : QString::fromStdString(db::printable_place(place.place)),
                      QStringLiteral("--budget"),
                      QStringLiteral("%1s").arg(qRound(budget->value() * 60))};
    if (!threads->text().isEmpty()) parts << QStringLiteral("--threads") << threads->text();
    command->setPlainText(shell_command(parts));
  };
  fill();
  QObject::connect(model, &QLineEdit::textChanged, &dialog, fill);
  QObject::connect(threads, &QLineEdit::textChanged, &dialog, fill);
  QObject::connect(budget, &QDoubleSpinBox::valueChanged, &dialog, fill);
  QObject::connect(copy, &QPushButton::clicked, &dialog,
                   [command] { QGuiApplication::clipboard()->setText(command->toPlainText()); });
  QObject::connect(buttons, &QDialogButtonBox::rejected, &dialog, &QDialog::reject);
  dialog.exec();
}

}  // namespace nimble::gui
