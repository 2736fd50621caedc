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

QString start_command(const StartRequest& r, const DatabasePlace& place) {
  const QString database = place.place.empty()
                               ? QStringLiteral("tuning.db")
                               : QString::fromStdString(db::printable_place(place.place));
  QStringList parts{QStringLiteral("nimble")};
  if (r.fleet)
    parts << QStringLiteral("campaigns") << QStringLiteral("submit");
  else
    parts << QStringLiteral("tune");
  parts << r.model << QStringLiteral("--db") << database << QStringLiteral("--budget")
        << QStringLiteral("%1s").arg(r.budget_s);
  const auto add = [&](const char* option, const QString& value) {
    if (!value.trimmed().isEmpty()) parts << QLatin1String(option) << value.trimmed();
  };
  add("--threads", r.threads);
  add("--trace", r.trace);
  if (r.fleet) add("--hardware", r.hardware);
  QString command = shell_command(parts);
  if (r.fleet && !r.key.trimmed().isEmpty())
    command += u'\n' + shell_command({QStringLiteral("nimble"), QStringLiteral("serve"),
                                      QStringLiteral("--db"), database, QStringLiteral("--key"),
                                      r.key.trimmed()});
  return command;
}

void show_start_command(QWidget* parent, const DatabasePlace& place) {
  QDialog dialog(parent);
  dialog.setObjectName(QStringLiteral("start"));
  dialog.setWindowTitle(QObject::tr("Start a campaign"));
  dialog.resize(620, 420);
  auto* form = new QFormLayout(&dialog);
  auto* where = new QComboBox;
  where->setObjectName(QStringLiteral("where"));
  where->setAccessibleName(QObject::tr("Measured by"));
  where->addItems({QObject::tr("One machine, where the command runs (nimble tune)"),
                   QObject::tr("A fleet, by a service (nimble campaigns submit)")});
  form->addRow(QObject::tr("Measured by"), where);
  const auto field = [&](const QString& label, const char* name, const QString& text,
                         const QString& hint) {
    auto* line = new QLineEdit(text);
    line->setObjectName(QLatin1String(name));
    line->setAccessibleName(label);
    line->setPlaceholderText(hint);
    form->addRow(label, line);
    return line;
  };
  auto* model = field(QObject::tr("Model"), "model", QStringLiteral("model.onnx"), {});
  model->setToolTip(QObject::tr("A .onnx or .nir file, or a folder of Hugging Face."));
  auto* budget = new QDoubleSpinBox;
  budget->setObjectName(QStringLiteral("budget"));
  budget->setAccessibleName(QObject::tr("Budget in minutes"));
  budget->setRange(0.1, 100'000);
  budget->setDecimals(1);
  budget->setValue(30);
  budget->setSuffix(QObject::tr(" min"));
  budget->setToolTip(QObject::tr("Of measuring, all machines together."));
  form->addRow(QObject::tr("Budget"), budget);
  auto* threads = field(QObject::tr("Threads"), "threads", {}, QObject::tr("all that may be used"));
  auto* trace = field(QObject::tr("Trace of sizes"), "trace", {},
                      QObject::tr("FILE:COLUMN; none: sizes are spread"));
  auto* hardware = field(QObject::tr("Hardware"), "hardware", {},
                         QObject::tr("part of a processor's name; none: that of this machine"));
  auto* key = field(QObject::tr("Service's key"), "key", {},
                    QObject::tr("name of a key, to start a service too; none: one runs already"));
  auto* command = new QPlainTextEdit;
  command->setObjectName(QStringLiteral("command"));
  command->setAccessibleName(QObject::tr("Command"));
  command->setReadOnly(true);
  form->addRow(QObject::tr("Command"), command);
  auto* hint = plain_label();
  hint->setWordWrap(true);
  form->addRow(hint);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Close);
  auto* copy = buttons->addButton(QObject::tr("&Copy"), QDialogButtonBox::ActionRole);
  copy->setObjectName(QStringLiteral("copy"));
  form->addRow(buttons);
  const auto fill = [=] {
    StartRequest r;
    r.fleet = where->currentIndex() == 1;
    r.model = model->text();
    r.threads = threads->text();
    r.trace = trace->text();
    r.budget_s = qRound(budget->value() * 60);
    r.hardware = hardware->text();
    r.key = key->text();
    hardware->setEnabled(r.fleet);
    key->setEnabled(r.fleet);
    command->setPlainText(start_command(r, place));
    hint->setText(
        r.fleet ? QObject::tr("This window runs nothing: paste the command into a terminal. The "
                              "campaign waits in the database until a service (nimble serve) and "
                              "workers (nimble worker --db) that trust its key take it up.")
                : QObject::tr("This window runs nothing: paste the command into a terminal on the "
                              "machine that is to measure. Progress shows here as the database "
                              "changes."));
  };
  fill();
  QObject::connect(where, &QComboBox::currentIndexChanged, &dialog, fill);
  for (QLineEdit* line : {model, threads, trace, hardware, key})
    QObject::connect(line, &QLineEdit::textChanged, &dialog, fill);
  QObject::connect(budget, &QDoubleSpinBox::valueChanged, &dialog, fill);
  QObject::connect(copy, &QPushButton::clicked, &dialog,
                   [command] { QGuiApplication::clipboard()->setText(command->toPlainText()); });
  QObject::connect(buttons, &QDialogButtonBox::rejected, &dialog, &QDialog::reject);
  dialog.exec();
}

}  // namespace nimble::gui
