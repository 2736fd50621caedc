#include "db/tools/output.h"

#include <algorithm>
#include <ctime>
#include <ostream>

#include "vm/base/error.h"

namespace nimble::db {
namespace {

std::string plain(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.dump();
}

// Columns are counted in code points: a UTF-8 continuation byte takes no place.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
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
    out << all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
    return;
  }
  if (format == Format::kCsv) {
    for (size_t i = 0; i < columns_.size(); ++i) out << (i ? "," : "") << quoted(columns_[i]);
    out << "\r\n";
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) out << (i ? "," : "") << quoted(plain(row[i]));
      out << "\r\n";
    }
    return;
  }
  if (rows_.empty()) {
    out << "(none)\n";
    return;
  }
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = width_of(columns_[i]);
    for (const auto& row : rows_) width = std::max(width, width_of(plain(row[i])));
    widths.push_back(width);
  }
  auto line = [&](auto cell, auto right) {
    std::string text;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string value = cell(i);
      const std::string pad(widths[i] - width_of(value), ' ');
      if (i) text += "  ";
      text += right(i) ? pad + value : value + pad;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out << text << '\n';
  };
  auto numeric = [&](size_t i) { return rows_.front()[i].is_number(); };
  line([&](size_t i) { return columns_[i]; }, numeric);
  for (const auto& row : rows_) line([&](size_t i) { return plain(row[i]); }, numeric);
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
