#include "gui/model/units.h"

#include <QDateTime>
#include <QLocale>
#include <algorithm>
#include <cmath>

namespace nimble::gui {

TimeUnit time_unit_for(double ns) {
  if (!(ns >= 1e3)) return {1, QStringLiteral("ns")};
  if (ns < 1e6) return {1e3, QStringLiteral("µs")};
  if (ns < 1e9) return {1e6, QStringLiteral("ms")};
  return {1e9, QStringLiteral("s")};
}

QString time_text(double ns) {
  const TimeUnit unit = time_unit_for(ns);
  return number_text(ns / unit.ns) + QChar(0xA0) + unit.name;
}

QString number_text(double value, int digits) {
  if (!std::isfinite(value)) return QStringLiteral("–");
  return QLocale::c().toString(
      value, 'g', std::abs(value) < 1e7 && std::abs(value) >= 1e4 ? std::max(digits, 7) : digits);
}

QString count_text(int64_t n) {
  QString digits = QString::number(n);
  for (auto i = digits.size() - 3; i > (n < 0 ? 1 : 0); i -= 3) digits.insert(i, QChar(0xA0));
  return digits;
}

QString percent_text(double share) {
  if (!std::isfinite(share)) return QStringLiteral("–");
  return QString::number(share * 100, 'f', 1) + QChar(0xA0) + QChar('%');
}

QString factor_text(double ratio) {
  if (!std::isfinite(ratio)) return QStringLiteral("–");
  return QString::number(ratio, 'f', ratio < 100 ? 2 : 0) + QChar(0xD7);
}

QString moment_text(int64_t ms) {
  if (ms <= 0) return {};
  const QDateTime moment = QDateTime::fromMSecsSinceEpoch(ms);
  return moment.isValid() ? moment.toString(QStringLiteral("yyyy-MM-dd HH:mm:ss")) : QString();
}

QString duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return QStringLiteral("–");
  if (seconds < 100) return QString::number(seconds, 'f', 1) + QStringLiteral(" s");
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e15)), minutes = whole / 60;
  if (minutes < 120) return QStringLiteral("%1 min %2 s").arg(minutes).arg(whole % 60);
  return QStringLiteral("%1 h %2 min").arg(minutes / 60).arg(minutes % 60);
}

QString plain_text(std::string_view text, int most) {
  // No more of it is looked at than can be shown: it may be large.
  const size_t bytes = std::min(text.size(), 4 * (static_cast<size_t>(std::max(most, 0)) + 1));
  QString out = QString::fromUtf8(text.data(), static_cast<qsizetype>(bytes));
  if (out.size() > most) out = out.left(most) + QChar(0x2026);
  for (QChar& c : out) {
    const bool turns = (c >= QChar(0x202A) && c <= QChar(0x202E)) ||
                       (c >= QChar(0x2066) && c <= QChar(0x2069)) || c == QChar(0x200E) ||
                       c == QChar(0x200F) || c == QChar(0x061C);
    const bool parts = c == QChar(0x2028) || c == QChar(0x2029);  // lines, paragraphs
    if (c.category() == QChar::Other_Control || turns || parts) c = QChar(' ');
  }
  return out;
}

QString plain_tool_tip(const QString& text) {
  return text.isEmpty()
             ? QString()
             : QStringLiteral("<p style='white-space:pre-wrap'>%1</p>").arg(text.toHtmlEscaped());
}

QString short_id(std::string_view id) {
  return plain_text(id.substr(0, 8));
}

}  // namespace nimble::gui
