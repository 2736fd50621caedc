// What programs print: tables for people, and the same rows as JSON or CSV for programs. Every
// `--format` is this one, so all of them quote, align and round alike.
//
// The JSON and CSV of a program are an interface: keys and columns keep their names and meaning,
// new ones may come. Tables for people may change at any time.
#pragma once

#include <functional>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace nimble {

enum class Format { kTable, kJson, kCsv };

// Adds `--format`; `what` is printed so ("The report").
CLI::Option* add_format(CLI::App& app, Format* format, const std::string& what = "The output");

// A column of a table. `key` is the member of a row in JSON and the column's name in CSV.
struct Column {
  using Json = nlohmann::ordered_json;
  using Text = std::function<std::string(const Json& value)>;

  Column(const char* key_, Text text_ = {}) : key(key_), heading(key_), text(std::move(text_)) {}
  Column(std::string key_, Text text_ = {})
      : key(std::move(key_)), heading(key), text(std::move(text_)) {}
  // With a heading of its own for people; none ("") leaves the column out of their table.
  Column(std::string key_, std::string heading_, Text text_ = {})
      : key(std::move(key_)), heading(std::move(heading_)), text(std::move(text_)) {}

  std::string key, heading;
  Text text;  // how people see the value; by default as in CSV, floats with six digits
};

// Rows of JSON values under columns.
class Table {
 public:
  using Json = nlohmann::ordered_json;

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // One value per column.
  void add(std::vector<Json> row);
  // An object; members that are no column show in JSON alone, missing ones are null.
  void add_object(Json row);

  bool empty() const { return rows_.empty(); }
  size_t size() const { return rows_.size(); }
  // The rows, an array of objects: all of the JSON, or a part of a larger report.
  const Json& json() const { return rows_; }
  // For people: aligned, or `none` where there are no rows.
  std::string text(const std::string& none = "(none)", const std::string& indent = "") const;
  // RFC 4180 with a header; lines end with a line feed alone, a null is an empty cell, a value that
  // is no scalar is JSON. A float has all its digits.
  std::string csv() const;
  // JSON: the array of objects.
  void print(std::ostream& out, Format format, const std::string& none = "(none)") const;

 private:
  std::vector<Column> columns_;
  Json rows_ = Json::array();
};

// Prints a report: its JSON, or its main table as CSV, or what `people` prints.
void print_report(std::ostream& out, Format format, const std::function<Table::Json()>& json,
                  const std::function<Table()>& csv, const std::function<void()>& people);

// Texts of values for people; "-" for null.
namespace cell {
std::string microseconds(const Table::Json& ns);  // "12.3 us"; a null or what is not above 0: "-"
std::string percent(const Table::Json& share);    // "12.3%" of 0.123
std::string short_id(const Table::Json& id);      // the first eight characters
// "2026-11-21 14:05:09" (UTC) of milliseconds since 1970.
std::string time(const Table::Json& ms);
}  // namespace cell

}  // namespace nimble
