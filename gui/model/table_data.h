// A table as it is exported: what a view shows, in base units, with named columns.
#pragma once

#include <QString>
#include <QVariant>
#include <string>
#include <vector>

namespace nimble::gui {

struct TableData {
  std::vector<QString> columns;  // with the unit where there is one: "median_ns"
  std::vector<std::vector<QVariant>> rows;
};

// CSV (RFC 4180, lines end with LF as in nimble's programs) and JSON (an array of objects). Numbers
// have all their digits; what is missing is left empty, in JSON left out.
std::string csv_of(const TableData& table);
std::string json_of(const TableData& table);

// Writes `bytes` to `path` in one step, replacing a file there. Throws Error(kIo).
void write_file(const QString& path, const std::string& bytes);

}  // namespace nimble::gui
