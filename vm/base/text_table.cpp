#include "vm/base/text_table.h"

#include <algorithm>

#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble {
namespace {

// Columns are counted in code points: a UTF-8 continuation byte takes no place.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string on_one_line(const std::string& text) {
  return without_controls(text, ' ');
}

}  // namespace

TextTable::TextTable(std::vector<std::string> header)
    : header_(std::move(header)), right_(header_.size(), false) {}

void TextTable::add(std::vector<std::string> row) {
  NIMBLE_CHECK(row.size() == header_.size(), "{} cells under {} columns", row.size(),
               header_.size());
  rows_.push_back(std::move(row));
}

void TextTable::align_right(size_t column) {
  right_.at(column) = true;
}

std::string TextTable::str(const std::string& indent) const {
  // One cell must not widen all rows beyond measure: what is longer sticks out.
  constexpr size_t kWidest = 200;
  std::vector<size_t> widths;
  for (const std::string& name : header_) widths.push_back(width_of(name));
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], std::min(kWidest, width_of(row[i])));
  std::string out;
  const auto line = [&](const std::vector<std::string>& row) {
    std::string text = indent;
    for (size_t i = 0; i < row.size(); ++i) {
      const size_t width = width_of(row[i]);
      const std::string pad(widths[i] - std::min(widths[i], width), ' ');
      const std::string cell = on_one_line(row[i]);
      text += (i ? "  " : "") + (right_[i] ? pad + cell : cell + pad);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  };
  line(header_);
  for (const auto& row : rows_) line(row);
  return out;
}

std::string TextTable::csv() const {
  std::string out;
  const auto line = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i) out += (i ? "," : "") + csv_cell(row[i]);
    out += '\n';
  };
  line(header_);
  for (const auto& row : rows_) line(row);
  return out;
}

std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (char c : text) out.append(c == '"' ? 2 : 1, c);
  return out + '"';
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(text);
  std::string out = "'";
  for (char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace nimble
