#include "gui/model/table_data.h"

#include <QSaveFile>
#include <cmath>

#include "vm/base/error.h"
#include "vm/base/json_writer.h"
#include "vm/base/text_table.h"

namespace nimble::gui {
namespace {

enum class Kind { kNone, kBool, kInteger, kReal, kText };

Kind kind_of(const QVariant& value) {
  switch (value.typeId()) {
    case QMetaType::UnknownType:
      return Kind::kNone;
    case QMetaType::Bool:
      return Kind::kBool;
    case QMetaType::Int:
    case QMetaType::UInt:
    case QMetaType::LongLong:
    case QMetaType::ULongLong:
      return Kind::kInteger;
    case QMetaType::Double:
    case QMetaType::Float:
      return std::isfinite(value.toDouble()) ? Kind::kReal : Kind::kNone;
    default:
      return Kind::kText;
  }
}

std::string text_of(const QVariant& value) {
  switch (kind_of(value)) {
    case Kind::kNone:
      return {};
    case Kind::kReal:
      return fmt::format("{}", value.toDouble());
    default:
      return value.toString().toStdString();
  }
}

}  // namespace

std::string csv_of(const TableData& table) {
  std::string out;
  for (size_t i = 0; i < table.columns.size(); ++i)
    out += (i ? "," : "") + csv_cell(table.columns[i].toStdString());
  out += '\n';
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) out += (i ? "," : "") + csv_cell(text_of(row[i]));
    out += '\n';
  }
  return out;
}

std::string json_of(const TableData& table) {
  JsonWriter json;
  json.begin_array();
  for (const auto& row : table.rows) {
    json.begin_object();
    for (size_t i = 0; i < row.size() && i < table.columns.size(); ++i) {
      const QVariant& value = row[i];
      if (kind_of(value) == Kind::kNone) continue;
      json.key(table.columns[i].toStdString());
      switch (kind_of(value)) {
        case Kind::kBool:
          json.value(value.toBool());
          break;
        case Kind::kInteger:
          json.value(static_cast<int64_t>(value.toLongLong()));
          break;
        case Kind::kReal:
          json.value(value.toDouble());
          break;
        default:
          json.value(std::string_view(value.toString().toStdString()));
      }
    }
    json.end_object();
  }
  return json.end_array().text() + "\n";
}

void write_file(const QString& path, const std::string& bytes) {
  QSaveFile file(path);
  const auto size = static_cast<qint64>(bytes.size());
  if (!file.open(QIODevice::WriteOnly) || file.write(bytes.data(), size) != size || !file.commit())
    throw Error(Status::kIo, path.toStdString(),
                "cannot be written: " + file.errorString().toStdString(),
                "choose another file, or make room");
}

}  // namespace nimble::gui
