// Tables of text for people and programs: aligned columns, JSON or CSV.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace nimble::db {

enum class Format { kTable, kJson, kCsv };

// Rows of JSON scalars under named columns. A null prints as nothing in tables and CSV.
class Output {
 public:
  explicit Output(std::vector<std::string> columns) : columns_(std::move(columns)) {}
  void add(std::vector<nlohmann::ordered_json> row);
  bool empty() const { return rows_.empty(); }
  // JSON: one array of objects. CSV: with a header. Table: "(none)" when empty.
  void print(std::ostream& out, Format format) const;

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<nlohmann::ordered_json>> rows_;
};

// "2026-11-21 14:05:09" (UTC) of milliseconds since 1970.
std::string time_text(int64_t ms);

}  // namespace nimble::db
