#include "gui/view/cut_pane.h"

#include <QFormLayout>
#include <QHBoxLayout>
#include <QHelpEvent>
#include <QLabel>
#include <QMouseEvent>
#include <QPainter>
#include <QSignalBlocker>
#include <QSlider>
#include <QSpinBox>
#include <QToolTip>
#include <algorithm>

#include "gui/model/units.h"
#include "gui/view/regions_item.h"
#include "gui/view/theme.h"
#include "gui/view/view.h"

namespace nimble::gui {
namespace {

// Of a divisor beyond it the first remainders alone are shown: cells must be seen.
constexpr int64_t kMostCells = 256;
constexpr size_t kMostStrips = 4;

QString name_of(const char* what, const std::string& symbol) {
  return QLatin1String(what) + QString::fromStdString(symbol);
}

}  // namespace

RemainderStrip::RemainderStrip(Feature feature, QWidget* parent)
    : QWidget(parent), feature_(std::move(feature)) {
  setFocusPolicy(Qt::StrongFocus);
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  setObjectName(QLatin1String("strip_") + QString::fromStdString(text_of(feature_)));
}

void RemainderStrip::show_place(const DispatchTree& tree, int64_t threads, const db::Dims& place) {
  const auto at = place.find(feature_.a);
  const int64_t extent = at == place.end() ? 0 : at->second;
  now_ = extent % feature_.t;
  first_ = extent - now_;
  entries_.clear();
  db::Dims dims = place;
  for (int64_t r = 0; r < std::min(feature_.t, kMostCells); ++r) {
    dims[feature_.a] = extent_of(r);
    entries_.push_back(tree.entry_at(dims, threads));
  }
  const int64_t entry = now_ < kMostCells ? entries_[static_cast<size_t>(now_)] : -1;
  setAccessibleName(tr("Remainders of %1 by %2").arg(plain_text(feature_.a)).arg(feature_.t));
  setAccessibleDescription(tr("%1 = %2 has remainder %3, served by entry %4")
                               .arg(plain_text(feature_.a))
                               .arg(extent)
                               .arg(now_)
                               .arg(entry));
  update();
}

void RemainderStrip::paintEvent(QPaintEvent*) {
  QPainter painter(this);
  const double cell = static_cast<double>(width()) / static_cast<double>(entries_.size());
  const bool dark = is_dark(palette());
  for (size_t r = 0; r < entries_.size(); ++r) {
    const QRectF box(static_cast<double>(r) * cell, 0, cell, height());
    painter.fillRect(box, entry_colour(entries_[r], dark));
    painter.setPen(palette().color(QPalette::Mid));
    if (cell > 4) painter.drawLine(box.topRight(), box.bottomRight());
    painter.setPen(palette().color(QPalette::Text));
    if (const QString text = QString::number(r); fontMetrics().horizontalAdvance(text) + 4 < cell)
      painter.drawText(box, Qt::AlignCenter, text);
  }
  if (now_ >= static_cast<int64_t>(entries_.size())) return;
  painter.setPen(QPen(palette().color(hasFocus() ? QPalette::Highlight : QPalette::Text), 2));
  painter.drawRect(
      QRectF(static_cast<double>(now_) * cell + 1, 1, std::max(2.0, cell - 2), height() - 2));
}

int64_t RemainderStrip::remainder_at(double x) const {
  const auto cells = static_cast<double>(entries_.size());
  return std::clamp<int64_t>(static_cast<int64_t>(x * cells / std::max(1, width())), 0,
                             static_cast<int64_t>(entries_.size()) - 1);
}

void RemainderStrip::choose(int64_t remainder) {
  if (remainder < 0 || remainder >= static_cast<int64_t>(entries_.size())) return;
  Q_EMIT chosen(feature_.a, extent_of(remainder));
}

void RemainderStrip::mousePressEvent(QMouseEvent* event) {
  choose(remainder_at(event->position().x()));
}

void RemainderStrip::keyPressEvent(QKeyEvent* event) {
  const int step = event->key() == Qt::Key_Right ? 1 : event->key() == Qt::Key_Left ? -1 : 0;
  if (step == 0) return QWidget::keyPressEvent(event);
  choose(now_ + step);
}

bool RemainderStrip::event(QEvent* event) {
  if (event->type() != QEvent::ToolTip || entries_.empty()) return QWidget::event(event);
  const auto* help = static_cast<QHelpEvent*>(event);
  const int64_t r = remainder_at(help->pos().x());
  QToolTip::showText(help->globalPos(),
                     plain_tool_tip(tr("%1 = %2, remainder %3: entry %4")
                                        .arg(plain_text(feature_.a))
                                        .arg(extent_of(r))
                                        .arg(r)
                                        .arg(entries_[static_cast<size_t>(r)])),
                     this);
  return true;
}

// ---- sliders and strips -----------------------------------------------------------------------

CutPane::CutPane(QWidget* parent) : QWidget(parent), rows_(new QFormLayout(this)) {
  rows_->setContentsMargins(6, 0, 6, 4);
  rows_->setVerticalSpacing(3);
}

void CutPane::show_table(const DispatchTree& tree, int64_t threads,
                         const std::map<std::string, std::vector<int64_t>>& extents,
                         const std::vector<std::string>& on_axes) {
  std::vector<std::string> sliders;
  for (const auto& [symbol, all] : extents)
    if (std::find(on_axes.begin(), on_axes.end(), symbol) == on_axes.end())
      sliders.push_back(symbol);
  std::vector<Feature> strips;
  for (const TreeNode& n : tree.nodes())
    if (!n.leaf && n.feature.kind == Feature::Kind::kMod && n.feature.t > 1 &&
        strips.size() < kMostStrips &&
        std::find(strips.begin(), strips.end(), n.feature) == strips.end())
      strips.push_back(n.feature);
  // Rows that stay keep the focus, and the pointer that drags one.
  if (extents != extents_ || sliders != sliders_ || strips != strips_) {
    extents_ = extents;
    make_rows(sliders, strips);
  }
  for (const std::string& symbol : sliders_) {
    const int64_t extent = place_.contains(symbol) ? place_.at(symbol) : 0;
    const auto& all = extents_.at(symbol);
    auto* slider = findChild<QSlider*>(name_of("slider_", symbol));
    auto* box = findChild<QSpinBox*>(name_of("extent_", symbol));
    const QSignalBlocker still(slider), quiet(box);
    const auto nearest = std::lower_bound(all.begin(), all.end(), extent);
    slider->setValue(
        static_cast<int>(std::min<std::ptrdiff_t>(nearest - all.begin(), std::ssize(all) - 1)));
    box->setValue(static_cast<int>(std::min<int64_t>(extent, box->maximum())));
  }
  for (const Feature& f : strips_) {
    auto* strip = findChild<RemainderStrip*>(name_of("strip_", text_of(f)));
    strip->show_place(tree, threads, place_);
    const int64_t extent = place_.contains(f.a) ? place_.at(f.a) : 0;
    static_cast<QLabel*>(rows_->labelForField(strip))
        ->setText(tr("%1 mod %2, at %1 = %3:").arg(plain_text(f.a)).arg(f.t).arg(extent));
  }
  setVisible(!sliders_.empty() || !strips_.empty());
}

void CutPane::make_rows(const std::vector<std::string>& sliders,
                        const std::vector<Feature>& strips) {
  sliders_ = sliders;
  strips_ = strips;
  while (rows_->rowCount() > 0) rows_->removeRow(0);
  for (const std::string& symbol : sliders_) {
    const auto& all = extents_.at(symbol);
    auto* slider = new QSlider(Qt::Horizontal);
    slider->setObjectName(name_of("slider_", symbol));
    slider->setAccessibleName(tr("Extent of %1").arg(plain_text(symbol)));
    slider->setRange(0, static_cast<int>(all.size()) - 1);
    slider->setTickPosition(QSlider::TicksBelow);
    slider->setToolTip(tr("Goes through the extents at which something was measured."));
    auto* box = new QSpinBox;
    box->setObjectName(name_of("extent_", symbol));
    box->setAccessibleName(tr("Extent of %1, any").arg(plain_text(symbol)));
    box->setRange(0, std::numeric_limits<int>::max());
    box->setKeyboardTracking(false);
    connect(slider, &QSlider::valueChanged, this,
            [this, symbol](int at) { move(symbol, extents_.at(symbol)[static_cast<size_t>(at)]); });
    connect(box, &QSpinBox::valueChanged, this, [this, symbol](int to) { move(symbol, to); });
    auto* row = new QHBoxLayout;
    row->addWidget(slider, 1);
    row->addWidget(box);
    rows_->addRow(plain_label(tr("%1:").arg(plain_text(symbol))), row);
  }
  for (const Feature& f : strips_) {
    auto* strip = new RemainderStrip(f);
    connect(strip, &RemainderStrip::chosen, this, &CutPane::move);
    rows_->addRow(plain_label(QString()), strip);
  }
}

void CutPane::move(const std::string& symbol, int64_t extent) {
  if (place_.contains(symbol) && place_.at(symbol) == extent) return;
  place_[symbol] = extent;
  Q_EMIT moved();
}

}  // namespace nimble::gui
