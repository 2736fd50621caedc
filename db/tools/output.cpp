#include "db/tools/output.h"

#include <ctime>
#include <ostream>

#include "vm/base/error.h"
#include "vm/base/json_text.h"
#include "vm/base/text_table.h"

namespace nimble::db {
namespace {

std::string plain(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.dump();
}

}  // namespace

void Output::add(std::vector<nlohmann::ordered_json> row) {
  NIMBLE_CHECK(row.size() == columns_.size());
  rows_.push_back(std::move(row));
}

void Output::print(std::ostream& out, Format format) const {
  if (format == Format::kJson) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const auto& row : rows_) {
      nlohmann::ordered_json object = nlohmann::ordered_json::object();
      for (size_t i = 0; i < row.size(); ++i) object[columns_[i]] = row[i];
      all.push_back(std::move(object));
    }
    out << json_text(all) << '\n';
    return;
  }
  if (rows_.empty() && format == Format::kTable) {
    out << "(none)\n";
    return;
  }
  TextTable table(columns_);
  for (const auto& row : rows_) {
    std::vector<std::string> cells;
    for (const auto& value : row) cells.push_back(plain(value));
    table.add(std::move(cells));
  }
  for (size_t i = 0; i < columns_.size(); ++i)
    if (!rows_.empty() && rows_.front()[i].is_number()) table.align_right(i);
  out << (format == Format::kCsv ? table.csv() : table.str());
}

std::string time_text(int64_t ms) {
  const std::time_t seconds = ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

}  // namespace nimble::db
