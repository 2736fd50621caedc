// Numbers as a person reads them. What is exported stays in base units (ns, 1) and is named so.
#pragma once

#include <QString>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nimble::gui {

// Four significant digits with the unit that suits: "812 ns", "12.35 µs", "1.204 ms", "3.5 s".
QString time_text(double ns);
// As time_text, in the unit that suits `like`: for axes and pairs of numbers.
struct TimeUnit {
  double ns = 1;  // that one of it has
  QString name;   // "µs"
};
TimeUnit time_unit_for(double ns);

QString number_text(double value, int digits = 4);  // significant digits, no exponent below 1e7
QString count_text(int64_t n);                      // "1 234 567"
QString percent_text(double share);                 // 0.0213 → "2.1 %"
QString factor_text(double ratio);                  // 1.234 → "1.23×"
QString moment_text(int64_t ms_since_1970);         // "2026-11-22 19:52:28", local time; "" for 0
QString duration_text(double seconds);              // "25 h 12 min", "72 min 5 s", "88.6 s"

// Text of a database as one line of plain text: no control characters, no change of the direction
// of writing, cut at `most` characters.
QString plain_text(std::string_view text, int most = 400);
// The same for a tool tip, which Qt would read as HTML wherever it looks like it.
QString plain_tool_tip(const QString& text);

// The first eight characters of a hash or UUID: what nimble's programs take as well.
QString short_id(std::string_view id);

}  // namespace nimble::gui
