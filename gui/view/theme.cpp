#include "gui/view/theme.h"

#include <qcustomplot.h>

#include <QApplication>

namespace nimble::gui {
namespace {

QPalette palette_of(const QColor& window, const QColor& base, const QColor& text,
                    const QColor& button, const QColor& highlight) {
  QPalette p(button, window);
  p.setColor(QPalette::Window, window);
  p.setColor(QPalette::WindowText, text);
  p.setColor(QPalette::Base, base);
  p.setColor(QPalette::AlternateBase, window);
  p.setColor(QPalette::Text, text);
  p.setColor(QPalette::Button, button);
  p.setColor(QPalette::ButtonText, text);
  p.setColor(QPalette::ToolTipBase, base);
  p.setColor(QPalette::ToolTipText, text);
  p.setColor(QPalette::Highlight, highlight);
  p.setColor(QPalette::HighlightedText, QColor(0xFFFFFF));
  QColor faint = text;
  faint.setAlpha(140);
  p.setColor(QPalette::PlaceholderText, faint);
  for (const auto role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText})
    p.setColor(QPalette::Disabled, role, faint);
  return p;
}

QColor mixed(const QColor& a, const QColor& b, double share) {
  const auto part = [&](int x, int y) { return static_cast<int>(x + (y - x) * share); };
  return {part(a.red(), b.red()), part(a.green(), b.green()), part(a.blue(), b.blue())};
}

}  // namespace

void set_theme(Theme theme) {
  static const QPalette system = QApplication::palette();
  if (theme == Theme::kSystem) QApplication::setPalette(system);
  if (theme == Theme::kLight)
    QApplication::setPalette(palette_of(0xF3F3F3, 0xFFFFFF, 0x1A1A1A, 0xE6E6E6, 0x1F5FA8));
  if (theme == Theme::kDark)
    QApplication::setPalette(palette_of(0x35383C, 0x1E2022, 0xE8E8E8, 0x45494E, 0x3A76BD));
}

QString name_of(Theme theme) {
  return theme == Theme::kLight  ? QStringLiteral("light")
         : theme == Theme::kDark ? QStringLiteral("dark")
                                 : QStringLiteral("system");
}

Theme theme_from_name(const QString& name) {
  return name == QLatin1String("light")  ? Theme::kLight
         : name == QLatin1String("dark") ? Theme::kDark
                                         : Theme::kSystem;
}

bool is_dark(const QPalette& palette) {
  return palette.color(QPalette::Base).lightness() < 128;
}

QColor ink(Ink which, const QPalette& palette) {
  const bool dark = is_dark(palette);
  switch (which) {
    case Ink::kBest:
      return 0x009E73;  // bluish green
    case Ink::kChosen:
      return dark ? 0x56B4E9 : 0x0072B2;  // sky blue, blue
    case Ink::kDefault:
      return dark ? 0xE69F00 : 0xD55E00;  // orange, vermilion
    case Ink::kVendor:
      return 0xCC79A7;  // reddish purple
    case Ink::kOther:
      return mixed(palette.color(QPalette::Text), palette.color(QPalette::Base), 0.55);
    case Ink::kCursor:
      return dark ? 0xFFFFFF : 0x000000;
  }
  return {};
}

QCPColorGradient rising_gradient() {
  QCPColorGradient gradient;
  gradient.clearColorStops();
  constexpr QRgb kStops[] = {0x440154, 0x472D7B, 0x3B528B, 0x2C728E, 0x21918C,
                             0x28AE80, 0x5EC962, 0xADDC30, 0xFDE725};
  for (int i = 0; i < 9; ++i) gradient.setColorStopAt(i / 8.0, QColor(kStops[i]));
  gradient.setLevelCount(256);
  gradient.setNanHandling(QCPColorGradient::nhTransparent);
  return gradient;
}

void dress(QCustomPlot& plot, const QPalette& palette) {
  const QColor text = palette.color(QPalette::Text), base = palette.color(QPalette::Base);
  plot.setBackground(QBrush(base));
  const QPen line(mixed(text, base, 0.3)), grid(mixed(text, base, 0.82), 1, Qt::DotLine);
  const auto dress_axis = [&](QCPAxis* axis) {
    axis->setBasePen(line);
    axis->setTickPen(line);
    axis->setSubTickPen(line);
    axis->setTickLabelColor(text);
    axis->setLabelColor(text);
    axis->grid()->setPen(grid);
    axis->grid()->setZeroLinePen(grid);
  };
  for (QCPAxisRect* rect : plot.axisRects())
    for (QCPAxis* axis : rect->axes()) dress_axis(axis);
  for (int i = 0; i < plot.plotLayout()->elementCount(); ++i)
    if (auto* scale = qobject_cast<QCPColorScale*>(plot.plotLayout()->elementAt(i)))
      dress_axis(scale->axis());
  plot.legend->setBrush(QBrush(base));
  plot.legend->setTextColor(text);
  plot.legend->setBorderPen(Qt::NoPen);
}

}  // namespace nimble::gui
