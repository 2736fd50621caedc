#include "gui/view/overrides_pane.h"

#include <QClipboard>
#include <QComboBox>
#include <QDialog>
#include <QDialogButtonBox>
#include <QFormLayout>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QInputDialog>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QSpinBox>
#include <QTableWidget>
#include <QVBoxLayout>
#include <cmath>

#include "db/store/place.h"
#include "gui/model/units.h"
#include "gui/view/campaign_dialogs.h"
#include "gui/view/view.h"

namespace nimble::gui {
namespace {

constexpr int kAny = -1;  // as the last extent: no last one

// "s0 17–39, s1 from 1"; as it is stored where that cannot be read.
QString shapes_text(const std::string& json) {
  try {
    QStringList parts;
    for (const auto& [feature, range] : db::region_from_json(json, "override"))
      parts << (range.second ? QObject::tr("%1 %2–%3")
                                   .arg(plain_text(feature))
                                   .arg(range.first)
                                   .arg(*range.second)
                             : QObject::tr("%1 from %2").arg(plain_text(feature)).arg(range.first));
    return parts.isEmpty() ? QObject::tr("all") : parts.join(QStringLiteral(", "));
  } catch (const Error&) {
    return plain_text(json);
  }
}

// The symbols of the workload's shapes, each with its range.
class RegionFields {
 public:
  RegionFields(QFormLayout* form, const WorkloadFacts& facts) {
    if (facts.shapes.empty()) return;
    for (const auto& [symbol, extent] : facts.shapes.front().dims) {
      Field f{symbol, box(symbol, "first", QObject::tr("First extent of %1")),
              box(symbol, "last", QObject::tr("Last extent of %1"))};
      f.last->setMinimum(kAny);
      f.last->setSpecialValueText(QObject::tr("no end"));
      f.last->setValue(kAny);
      auto* row = new QHBoxLayout;
      row->addWidget(f.first, 1);
      row->addWidget(plain_label(QObject::tr("to")));
      row->addWidget(f.last, 1);
      form->addRow(plain_text(symbol), row);
      fields_.push_back(f);
    }
  }
  // Nothing if a range is empty. A symbol without bounds is left out.
  std::optional<db::Region> region() const {
    db::Region out;
    for (const Field& f : fields_) {
      const int first = f.first->value(), last = f.last->value();
      if (last != kAny && last < first) return std::nullopt;
      if (first > 0 || last != kAny)
        out[f.symbol] = {first, last == kAny ? std::nullopt : std::optional<int64_t>(last)};
    }
    return out;
  }
  template <typename F>
  void on_change(QObject* receiver, F changed) const {
    for (const Field& f : fields_)
      for (QSpinBox* b : {f.first, f.last})
        QObject::connect(b, &QSpinBox::valueChanged, receiver, changed);
  }

 private:
  struct Field {
    std::string symbol;
    QSpinBox *first, *last;
  };
  static QSpinBox* box(const std::string& symbol, const char* name, const QString& what) {
    auto* b = new QSpinBox;
    b->setObjectName(QLatin1String(name) + QLatin1Char('_') + QString::fromStdString(symbol));
    b->setAccessibleName(what.arg(plain_text(symbol)));
    b->setRange(0, std::numeric_limits<int>::max());
    return b;
  }
  std::vector<Field> fields_;
};

QString effect_text(const OverrideEffect& e) {
  const QString shapes = QObject::tr("%1 measured shapes lie there.").arg(e.shapes);
  if (e.measured == 0)
    return shapes + QObject::tr(" With this configuration none of them was measured.");
  return shapes + QObject::tr(
                      " At %1 of them it takes %2 of the time of what serves them now, at "
                      "worst %3.")
                      .arg(e.measured)
                      .arg(factor_text(e.ratio), factor_text(e.worst));
}

}  // namespace

OverrideEffect effect_of(const WorkloadFacts& facts, const std::vector<RegretPoint>& points,
                         const db::Region& region, const db::Hash& config) {
  OverrideEffect out;
  const auto index = facts.config_index(config);
  double sum = 0;
  for (const RegretPoint& p : points) {
    const db::Dims& dims = facts.shapes[p.shape].dims;
    const bool inside = std::ranges::all_of(region, [&](const auto& r) {
      const auto it = dims.find(r.first);
      return it != dims.end() && it->second >= r.second.first &&
             (!r.second.second || it->second <= *r.second.second);
    });
    if (!inside) continue;
    ++out.shapes;
    const Cell* cell = index ? facts.cell(*index, p.shape) : nullptr;
    if (!cell || !p.chosen) continue;
    const double ratio = cell->result.median_ns / p.chosen->result.median_ns;
    ++out.measured;
    sum += std::log(ratio);
    out.worst = std::max(out.worst, ratio);
  }
  if (out.measured > 0) out.ratio = std::exp(sum / static_cast<double>(out.measured));
  return out;
}

OverridesPane::OverridesPane(Context& context, std::function<void(const QString&)> say)
    : context_(context), say_(std::move(say)) {
  list_ = new QTableWidget(0, 3);
  list_->setObjectName(QStringLiteral("overrides"));
  list_->setAccessibleName(tr("Overrides in force"));
  list_->setHorizontalHeaderLabels({tr("Override: shapes"), tr("Configuration"), tr("Reason")});
  list_->verticalHeader()->setVisible(false);
  list_->horizontalHeader()->setStretchLastSection(true);
  list_->setSelectionBehavior(QAbstractItemView::SelectRows);
  list_->setSelectionMode(QAbstractItemView::SingleSelection);
  list_->setEditTriggers(QAbstractItemView::NoEditTriggers);
  list_->setTabKeyNavigation(false);
  make_ = new QPushButton(tr("&Override…"));
  make_->setObjectName(QStringLiteral("override"));
  withdraw_ = new QPushButton(tr("&Withdraw…"));
  withdraw_->setObjectName(QStringLiteral("withdraw"));
  auto* buttons = new QHBoxLayout;
  buttons->addWidget(make_);
  buttons->addWidget(withdraw_);
  buttons->addStretch(1);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(0, 0, 0, 0);
  column->addWidget(list_);
  column->addLayout(buttons);
  connect(make_, &QPushButton::clicked, this, &OverridesPane::make);
  connect(withdraw_, &QPushButton::clicked, this, &OverridesPane::withdraw);
  connect(list_, &QTableWidget::itemSelectionChanged, this, &OverridesPane::enable);
  enable();
}

void OverridesPane::show_facts(std::shared_ptr<const WorkloadFacts> facts,
                               std::vector<RegretPoint> points, const db::Uuid& table) {
  facts_ = std::move(facts);
  points_ = std::move(points);
  table_ = table;
  const std::vector<db::Override> none;
  const auto& all = facts_ ? facts_->overrides : none;
  list_->setRowCount(static_cast<int>(all.size()));
  for (size_t i = 0; i < all.size(); ++i) {
    const QString texts[] = {shapes_text(all[i].region), short_id(all[i].config),
                             plain_text(all[i].reason)};
    for (int column = 0; column < 3; ++column) {
      auto* item = new QTableWidgetItem(texts[column]);
      item->setToolTip(plain_tool_tip(texts[column]));
      list_->setItem(static_cast<int>(i), column, item);
    }
  }
  list_->resizeColumnsToContents();
  enable();
}

void OverridesPane::enable() {
  const bool writable = !context_.session.place().read_only;
  make_->setEnabled(facts_ && !table_.empty());
  make_->setToolTip(
      tr("Gives some shapes another configuration, whichever table is active, until withdrawn."));
  withdraw_->setEnabled(writable && !list_->selectedItems().isEmpty());
  withdraw_->setToolTip(writable ? tr("Ends the chosen override; the active table decides again.")
                                 : tr("The database is open for reading only."));
}

void OverridesPane::write(std::function<QString(db::Store&)> work, const QString& done) {
  context_.session.write(this, std::move(work), [this, done](const Answer<QString>& answer) {
    say_(answer.value ? done.arg(answer.value->left(8)) : answer.error);
  });
}

void OverridesPane::make() {
  const bool writable = !context_.session.place().read_only;
  QDialog dialog(this);
  dialog.setObjectName(QStringLiteral("override_dialog"));
  dialog.setWindowTitle(tr("Override"));
  dialog.resize(560, 0);
  auto* form = new QFormLayout(&dialog);
  const RegionFields fields(form, *facts_);
  auto* config = new QComboBox;
  config->setObjectName(QStringLiteral("config"));
  config->setAccessibleName(tr("Configuration"));
  config->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
  for (const ConfigFacts& c : facts_->configs)
    config->addItem(short_id(c.hash) + QLatin1Char(' ') + plain_text(knobs_text(c), 120),
                    QString::fromStdString(c.hash));
  form->addRow(tr("Configuration"), config);
  auto* reason = new QLineEdit;
  reason->setObjectName(QStringLiteral("reason"));
  reason->setAccessibleName(tr("Reason"));
  reason->setPlaceholderText(tr("due: it is kept, and nimble explain shows it"));
  form->addRow(tr("Reason"), reason);
  auto* effect = plain_label();
  effect->setObjectName(QStringLiteral("effect"));
  effect->setWordWrap(true);
  // What it will say may take another line than what it says first.
  effect->setMinimumHeight(2 * effect->fontMetrics().lineSpacing() + 4);
  form->addRow(effect);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Ok | QDialogButtonBox::Cancel);
  auto* ok = buttons->button(QDialogButtonBox::Ok);
  ok->setText(tr("&Override"));
  if (!writable) ok->setToolTip(tr("The database is open for reading only."));
  auto* copy = buttons->addButton(tr("&Copy command"), QDialogButtonBox::ActionRole);
  copy->setObjectName(QStringLiteral("copy"));
  form->addRow(buttons);

  const auto hash = [&] { return config->currentData().toString().toStdString(); };
  const auto look = [&] {
    const auto region = fields.region();
    effect->setText(region ? effect_text(effect_of(*facts_, points_, *region, hash()))
                           : tr("A range ends before it begins."));
    const bool whole = region && config->currentIndex() >= 0 && !reason->text().trimmed().isEmpty();
    ok->setEnabled(whole && writable);
    copy->setEnabled(whole);
  };
  fields.on_change(&dialog, look);
  connect(config, &QComboBox::currentIndexChanged, &dialog, look);
  connect(reason, &QLineEdit::textChanged, &dialog, look);
  connect(buttons, &QDialogButtonBox::accepted, &dialog, &QDialog::accept);
  connect(buttons, &QDialogButtonBox::rejected, &dialog, &QDialog::reject);
  connect(copy, &QPushButton::clicked, &dialog, [&] {
    QStringList parts{QStringLiteral("nimble"), QStringLiteral("dispatch"),
                      QStringLiteral("override"), QString::fromStdString(table_)};
    const db::Region region = *fields.region();
    if (region.empty()) parts << QStringLiteral("--region") << QStringLiteral("all");
    for (const auto& [symbol, range] : region)
      parts << QStringLiteral("--region")
            << QStringLiteral("%1=%2..%3")
                   .arg(QString::fromStdString(symbol))
                   .arg(range.first)
                   .arg(range.second ? QString::number(*range.second) : QString());
    parts << QStringLiteral("--config") << QString::fromStdString(hash())
          << QStringLiteral("--reason") << reason->text().trimmed() << QStringLiteral("--db")
          << QString::fromStdString(db::printable_place(context_.session.place().place));
    QGuiApplication::clipboard()->setText(shell_command(parts));
  });
  look();
  if (dialog.exec() != QDialog::Accepted) return;
  const db::NewOverride made{facts_->workload, facts_->hardware, *fields.region(), hash(),
                             reason->text().trimmed().toStdString()};
  write([made](db::Store& store) { return QString::fromStdString(store.add(made)); },
        tr("Override %1 is in force; the next compilation takes it."));
}

void OverridesPane::withdraw() {
  const int row = list_->currentRow();
  if (!facts_ || row < 0 || static_cast<size_t>(row) >= facts_->overrides.size()) return;
  const db::Uuid uuid = facts_->overrides[static_cast<size_t>(row)].uuid;
  const QString reason =
      QInputDialog::getText(this, tr("Withdraw an override"), tr("Reason, kept with it:"))
          .trimmed();
  if (reason.isEmpty()) return say_(tr("Nothing was withdrawn: a reason is due."));
  write(
      [uuid, reason = reason.toStdString()](db::Store& store) {
        store.withdraw(uuid, reason);
        return QString::fromStdString(uuid);
      },
      tr("Override %1 is withdrawn."));
}

}  // namespace nimble::gui
