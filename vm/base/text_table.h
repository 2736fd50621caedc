// Tables of text: aligned columns for terminals, CSV for programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nimble {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  // As many cells as the header has.
  void add(std::vector<std::string> row);
  bool empty() const { return rows_.empty(); }
  // Numbers of a column stand below each other's last digits.
  void align_right(size_t column);

  // Columns two spaces apart, as wide as their widest cell in code points; no space at an end of a
  // line. Control characters of a cell are spaces: a row is a line.
  std::string str(const std::string& indent = "") const;
  // RFC 4180, with the header, but with lines that end as all others here do.
  std::string csv() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> right_;
};

// A cell of CSV: in quotes where a reader would otherwise see more than one.
std::string csv_cell(std::string_view text);

// A word of a POSIX shell's command line that stands for exactly this text.
std::string shell_word(std::string_view text);

}  // namespace nimble
